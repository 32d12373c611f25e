//! What was sent before, kept in a file for the next time.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::mpsc::UnboundedSender;

use crate::app::Input;

/// Texts that are kept; nobody goes back further by hand.
const ENTRIES: usize = 1_000;

/// Bytes that they take together; a prompt may be a pasted log.
const BYTES: usize = 1024 * 1024;

/// How often a lock is tried, and how long to wait between: whoever has it writes one small file,
/// unless it was stopped just then.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// The newest of these, as many as are kept.
pub(crate) fn newest(mut entries: Vec<String>) -> Vec<String> {
    let mut bytes = 0;
    let fit = entries.iter().rev().take(ENTRIES).take_while(|entry| {
        bytes += entry.len();
        bytes <= BYTES
    });
    let kept = fit.count();
    entries.split_off(entries.len() - kept)
}

/// Keeps what is sent, beside the screen: a disk may be slow.
pub(crate) struct Keeper {
    texts: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Reads what the file has, which comes as an input, and keeps what is to be kept in it.
    pub(crate) fn start(path: PathBuf, inputs: UnboundedSender<Input>) -> anyhow::Result<Self> {
        let (texts, queue) = channel();
        let thread = std::thread::Builder::new().name("history".to_owned());
        let thread = thread.spawn(move || keep(&HistoryFile { path }, &queue, &inputs));
        Ok(Self {
            texts: Some(texts),
            thread: Some(thread.context("starting a thread")?),
        })
    }

    pub(crate) fn keep(&self, text: String) {
        if let Some(texts) = &self.texts {
            // It listens until it is told that nothing more comes.
            let _ = texts.send(text);
        }
    }
}

impl Drop for Keeper {
    /// Waits until everything is written.
    fn drop(&mut self) {
        self.texts = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was told where it happened.
            let _ = thread.join();
        }
    }
}

fn keep(file: &HistoryFile, queue: &Receiver<String>, inputs: &UnboundedSender<Input>) {
    let mut silent = false;
    let mut tell = |done: anyhow::Result<Past>| {
        let past = done.unwrap_or_else(|error| Past {
            entries: Vec::new(),
            problem: Some(format!("what you send is not kept: {error:#}")),
        });
        let again = silent && past.problem.is_some();
        if again || (past.entries.is_empty() && past.problem.is_none()) {
            return;
        }
        // A problem that stays is told about once.
        silent |= past.problem.is_some();
        // The screen may be closed by now.
        let _ = inputs.send(Input::Past(past));
    };
    tell(file.read());
    for text in queue {
        let problem = file.add(text);
        tell(problem.map(|problem| Past {
            entries: Vec::new(),
            problem,
        }));
    }
}

/// What a file had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Past {
    /// Oldest first.
    pub(crate) entries: Vec<String>,
    /// What was wrong with it.
    pub(crate) problem: Option<String>,
}

/// One text a line, each a JSON string, oldest first.
struct HistoryFile {
    path: PathBuf,
}

impl HistoryFile {
    fn read(&self) -> anyhow::Result<Past> {
        if !self.path.exists() {
            return Ok(Past {
                entries: Vec::new(),
                problem: None,
            });
        }
        let _lock = self.lock()?;
        self.load()
    }

    /// Adds a text to what the file has by now; gives what was wrong with it.
    fn add(&self, text: String) -> anyhow::Result<Option<String>> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let mut make = DirBuilder::new();
        let made = make.recursive(true).mode(0o700).create(directory);
        made.with_context(|| format!("making {}", directory.display()))?;
        let _lock = self.lock()?;
        let Past {
            mut entries,
            problem,
        } = self.load()?;
        if entries.last() != Some(&text) {
            entries.push(text);
            self.write(&newest(entries))?;
        }
        Ok(problem)
    }

    /// Held while the file is read and written, so that two screens lose nothing of each other's.
    fn lock(&self) -> anyhow::Result<File> {
        let path = self.path.with_extension("lock");
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(false).mode(0o600);
        let file = open.open(&path);
        let file = file.with_context(|| format!("opening {}", path.display()))?;
        for _ in 0..TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
                Err(TryLockError::Error(error)) => {
                    return Err(error).context("locking the history");
                }
            }
        }
        bail!("{} is held by another screen", path.display())
    }

    /// What the file has. One that is damaged is put aside, and what can be read of it is kept.
    fn load(&self) -> anyhow::Result<Past> {
        let bytes = self.bytes()?;
        let lines = bytes.split(|byte| *byte == b'\n');
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        let entries: Vec<String> = lines
            .iter()
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        let bad = lines.len() - entries.len();
        let entries = newest(entries);
        let problem = (bad > 0).then(|| self.put_aside(bad, &entries));
        let problem = problem.transpose()?;
        Ok(Past { entries, problem })
    }

    /// The file, or the end of one that somebody else made too long.
    fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        let reading = || format!("reading {}", self.path.display());
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(reading),
        };
        // A byte may be written as six.
        let most = BYTES as u64 * 6;
        let length = file.metadata().with_context(reading)?.len();
        let skipped = length.saturating_sub(most);
        let mut bytes = Vec::new();
        let read = file
            .seek(SeekFrom::Start(skipped))
            .and_then(|_| file.take(most).read_to_end(&mut bytes));
        read.with_context(reading)?;
        if skipped > 0 {
            let first = bytes.iter().position(|byte| *byte == b'\n');
            bytes.drain(..first.map_or(bytes.len(), |at| at + 1));
        }
        Ok(bytes)
    }

    fn put_aside(&self, bad: usize, entries: &[String]) -> anyhow::Result<String> {
        let aside = self.path.with_extension("damaged");
        std::fs::rename(&self.path, &aside)
            .with_context(|| format!("putting {} aside", self.path.display()))?;
        self.write(entries)?;
        let lines = crate::words::count(bad as u64, "line");
        Ok(format!(
            "{lines} of your history could not be read; the file is {} now",
            aside.display()
        ))
    }

    /// Replaces the file at once, so that nobody ever sees a part of it.
    fn write(&self, entries: &[String]) -> anyhow::Result<()> {
        let fresh = self.path.with_extension("new");
        let mut text = String::new();
        for entry in entries {
            text += &serde_json::to_string(entry)?;
            text.push('\n');
        }
        // One that a crash left behind may belong to anybody.
        if let Err(error) = std::fs::remove_file(&fresh)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("removing {}", fresh.display()));
        }
        let mut open = OpenOptions::new();
        open.write(true).create_new(true).mode(0o600);
        let written = open
            .open(&fresh)
            .and_then(|mut file| file.write_all(text.as_bytes()).and(file.sync_data()))
            .and_then(|()| std::fs::rename(&fresh, &self.path));
        written.with_context(|| format!("writing {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Desk {
        place: tempfile::TempDir,
    }

    impl Desk {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            Self { place }
        }

        fn path(&self) -> PathBuf {
            self.place.path().join("pvp/history")
        }

        fn file(&self) -> HistoryFile {
            HistoryFile { path: self.path() }
        }

        fn put(&self, bytes: &[u8]) {
            std::fs::create_dir_all(self.path().parent().unwrap()).unwrap();
            std::fs::write(self.path(), bytes).unwrap();
        }

        fn entries(&self) -> Vec<String> {
            let past = self.file().read().unwrap();
            assert_eq!(past.problem, None);
            past.entries
        }
    }

    fn add(desk: &Desk, text: &str) {
        assert_eq!(desk.file().add(text.to_owned()).unwrap(), None);
    }

    #[test]
    fn texts_of_any_kind_are_read_as_they_were_written() {
        let desk = Desk::new();
        assert_eq!(desk.entries(), [""; 0]);
        let texts = ["!ls", "two\nlines", "\u{1b}[31m \"quoted\" 世界", "!ls"];
        texts.iter().for_each(|text| add(&desk, text));
        add(&desk, "!ls");
        assert_eq!(desk.entries(), texts);
    }

    #[test]
    fn nobody_else_may_read_it() {
        let desk = Desk::new();
        desk.put(b"\"old\"\n");
        add(&desk, "secret");
        for (name, mode) in [("history", 0o600), ("history.lock", 0o600)] {
            let path = desk.path().with_file_name(name);
            let found = std::fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "{name}");
        }
        let fresh = Desk::new();
        add(&fresh, "secret");
        let directory = std::fs::metadata(fresh.path().parent().unwrap()).unwrap();
        assert_eq!(directory.permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn screens_that_write_at_the_same_time_lose_nothing_of_each_other() {
        let desk = Desk::new();
        std::thread::scope(|scope| {
            for screen in 0..4 {
                let desk = &desk;
                scope.spawn(move || {
                    (0..20).for_each(|text| add(desk, &format!("{screen} {text}")));
                });
            }
        });
        let entries = desk.entries();
        assert_eq!(entries.len(), 80);
        for screen in 0..4 {
            let head = format!("{screen} ");
            let own = entries.iter().filter_map(|text| text.strip_prefix(&head));
            let numbers: Vec<usize> = own.map(|text| text.parse().unwrap()).collect();
            assert_eq!(numbers, (0..20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn only_the_newest_are_kept() {
        let desk = Desk::new();
        let line = |number: usize| format!("\"{number}\"\n");
        let many: String = (0..ENTRIES + 5).map(line).collect();
        desk.put(many.as_bytes());
        add(&desk, "last");
        let entries = desk.entries();
        assert_eq!((entries.len(), entries[0].as_str()), (ENTRIES, "6"));
        assert_eq!(entries[ENTRIES - 1], "last");
        let large = "x".repeat(BYTES / 2);
        add(&desk, &large);
        add(&desk, "small");
        add(&desk, &format!("{large}y"));
        assert_eq!(desk.entries(), ["small".to_owned(), format!("{large}y")]);
    }

    #[test]
    fn a_file_that_somebody_made_too_long_is_read_from_its_end() {
        let desk = Desk::new();
        let line = format!("\"{}\"\n", "x".repeat(997));
        let mut bytes = line.repeat(BYTES * 7 / 1000).into_bytes();
        bytes.extend(b"\"end\"\n");
        desk.put(&bytes);
        let entries = desk.entries();
        assert_eq!(entries.len(), ENTRIES);
        assert_eq!(entries[ENTRIES - 1], "end");
    }

    #[test]
    fn a_damaged_file_is_put_aside_and_told_about_once() {
        let desk = Desk::new();
        let damaged = b"\"one\"\n\xff\xfe\n{}\n\"two\"\n\"thr";
        desk.put(damaged);
        let past = desk.file().read().unwrap();
        assert_eq!(past.entries, ["one", "two"]);
        let aside = desk.path().with_extension("damaged");
        let told = format!(
            "3 lines of your history could not be read; the file is {} now",
            aside.display()
        );
        assert_eq!(past.problem, Some(told));
        assert_eq!(std::fs::read(aside).unwrap(), damaged);
        add(&desk, "four");
        assert_eq!(desk.entries(), ["one", "two", "four"]);
    }

    #[test]
    fn what_cannot_be_kept_is_told_about_once_and_nothing_else_breaks() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file/history");
        std::fs::write(place.path().join("file"), "").unwrap();
        let (inputs, mut inbox) = tokio::sync::mpsc::unbounded_channel();
        let keeper = Keeper::start(path, inputs).unwrap();
        keeper.keep("one".to_owned());
        keeper.keep("two".to_owned());
        drop(keeper);
        let Some(Input::Past(past)) = inbox.blocking_recv() else {
            panic!("nothing is told");
        };
        let problem = past.problem.unwrap();
        assert!(
            problem.starts_with("what you send is not kept: making "),
            "{problem}"
        );
        assert!(inbox.blocking_recv().is_none());
    }

    #[test]
    fn everything_is_written_before_the_screen_is_gone() {
        let desk = Desk::new();
        let (inputs, mut inbox) = tokio::sync::mpsc::unbounded_channel();
        add(&desk, "old");
        let keeper = Keeper::start(desk.path(), inputs).unwrap();
        (0..20).for_each(|number| keeper.keep(number.to_string()));
        drop(keeper);
        let Some(Input::Past(past)) = inbox.blocking_recv() else {
            panic!("the past is not told");
        };
        assert_eq!((past.entries, past.problem), (vec!["old".to_owned()], None));
        assert_eq!(desk.entries().len(), 21);
    }
}
