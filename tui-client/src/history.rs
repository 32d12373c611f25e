//! The history file: keeps the texts that the user sent for the next run.

use pvp_client::narrate;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::mpsc::UnboundedSender;

use crate::app::AppInput;

/// The most texts that are kept; nobody goes back further by hand.
const MAX_ENTRIES: usize = 1_000;

/// The most bytes that the texts take together; a prompt may be a pasted log.
const MAX_HISTORY_BYTES: usize = 1024 * 1024;

/// How often to try the lock. Another process holds it only while it writes one small file, unless
/// it was stopped just then.
const LOCK_ATTEMPTS: u32 = 100;
/// How long to wait between two attempts.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The newest entries, within the limits.
pub(crate) fn keep_newest(mut entries: Vec<String>) -> Vec<String> {
    let mut bytes = 0;
    let fit = entries.iter().rev().take(MAX_ENTRIES).take_while(|entry| {
        bytes += entry.len();
        bytes <= MAX_HISTORY_BYTES
    });
    let kept = fit.count();
    entries.split_off(entries.len() - kept)
}

/// Writes the history file on a thread of its own, because a disk may be slow.
pub(crate) struct HistoryWriter {
    sender: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl HistoryWriter {
    /// Starts the thread. It reads the file, sends the content as an input, then appends texts.
    pub(crate) fn start(path: PathBuf, inputs: UnboundedSender<AppInput>) -> anyhow::Result<Self> {
        let (sender, queue) = channel();
        let thread = std::thread::Builder::new().name("history".to_owned());
        let thread = thread.spawn(move || run_writer(&HistoryFile { path }, &queue, &inputs));
        Ok(Self {
            sender: Some(sender),
            thread: Some(thread.context("starting a thread")?),
        })
    }

    pub(crate) fn append(&self, text: String) {
        if let Some(sender) = &self.sender {
            // The thread receives until the sender is dropped.
            let _ = sender.send(text);
        }
    }
}

impl Drop for HistoryWriter {
    /// Waits until everything is written.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was already reported by the panic hook.
            let _ = thread.join();
        }
    }
}

fn run_writer(file: &HistoryFile, queue: &Receiver<String>, inputs: &UnboundedSender<AppInput>) {
    let mut problem_reported = false;
    let mut report = |done: anyhow::Result<LoadedHistory>| {
        let loaded = done.unwrap_or_else(|error| LoadedHistory {
            entries: Vec::new(),
            problem: Some(format!("the input history is not saved: {error:#}")),
        });
        let again = problem_reported && loaded.problem.is_some();
        if again || (loaded.entries.is_empty() && loaded.problem.is_none()) {
            return;
        }
        // A problem that persists is reported once.
        problem_reported |= loaded.problem.is_some();
        // The screen may be closed by now.
        let _ = inputs.send(AppInput::HistoryLoaded(loaded));
    };
    report(file.read());
    for text in queue {
        let problem = file.add(text);
        report(problem.map(|problem| LoadedHistory {
            entries: Vec::new(),
            problem,
        }));
    }
}

/// The content of the history file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadedHistory {
    /// Oldest first.
    pub(crate) entries: Vec<String>,
    /// What was wrong with the file, for the user; `None` if nothing was.
    pub(crate) problem: Option<String>,
}

/// The file: one text per line, each a JSON string, oldest first.
struct HistoryFile {
    path: PathBuf,
}

impl HistoryFile {
    fn read(&self) -> anyhow::Result<LoadedHistory> {
        if !self.path.exists() {
            return Ok(LoadedHistory {
                entries: Vec::new(),
                problem: None,
            });
        }
        let _lock = self.lock()?;
        self.load()
    }

    /// Adds a text to the file as it is by then; returns what was wrong with the file.
    fn add(&self, text: String) -> anyhow::Result<Option<String>> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let mut make = DirBuilder::new();
        let made = make.recursive(true).mode(0o700).create(directory);
        made.with_context(|| format!("making {}", directory.display()))?;
        let _lock = self.lock()?;
        let LoadedHistory {
            mut entries,
            problem,
        } = self.load()?;
        if entries.last() != Some(&text) {
            entries.push(text);
            self.write(&keep_newest(entries))?;
        }
        Ok(problem)
    }

    /// Locks the history while the file is read and written, so that no process loses texts of
    /// another.
    fn lock(&self) -> anyhow::Result<File> {
        let path = self.path.with_extension("lock");
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(false).mode(0o600);
        let file = open.open(&path);
        let file = file.with_context(|| format!("opening {}", path.display()))?;
        for _ in 0..LOCK_ATTEMPTS {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_INTERVAL),
                Err(TryLockError::Error(error)) => {
                    return Err(error).context("locking the history");
                }
            }
        }
        bail!("{} is locked by another process", path.display())
    }

    /// Loads the file. A damaged file is renamed, and what can be read of it is kept.
    fn load(&self) -> anyhow::Result<LoadedHistory> {
        let bytes = self.read_bytes()?;
        let lines = bytes.split(|byte| *byte == b'\n');
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        let entries: Vec<String> = lines
            .iter()
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        let bad = lines.len() - entries.len();
        let entries = keep_newest(entries);
        let problem = (bad > 0).then(|| self.quarantine(bad, &entries));
        let problem = problem.transpose()?;
        Ok(LoadedHistory { entries, problem })
    }

    /// Reads the file, or only its end if something else made it too long.
    fn read_bytes(&self) -> anyhow::Result<Vec<u8>> {
        let reading = || format!("reading {}", self.path.display());
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(reading),
        };
        // JSON may write one byte as six.
        let max_bytes = MAX_HISTORY_BYTES as u64 * 6;
        let length = file.metadata().with_context(reading)?.len();
        let skipped = length.saturating_sub(max_bytes);
        let mut bytes = Vec::new();
        let read = file
            .seek(SeekFrom::Start(skipped))
            .and_then(|_| file.take(max_bytes).read_to_end(&mut bytes));
        read.with_context(reading)?;
        if skipped > 0 {
            let first = bytes.iter().position(|byte| *byte == b'\n');
            bytes.drain(..first.map_or(bytes.len(), |at| at + 1));
        }
        Ok(bytes)
    }

    fn quarantine(&self, bad: usize, entries: &[String]) -> anyhow::Result<String> {
        let aside = self.path.with_extension("damaged");
        std::fs::rename(&self.path, &aside)
            .with_context(|| format!("putting {} aside", self.path.display()))?;
        self.write(entries)?;
        let lines = narrate::pluralize(bad as u64, "line");
        Ok(format!(
            "{lines} of the input history could not be read; the damaged file is {}",
            aside.display()
        ))
    }

    /// Replaces the file atomically, so that nobody ever sees a part of it.
    fn write(&self, entries: &[String]) -> anyhow::Result<()> {
        let fresh = self.path.with_extension("new");
        let mut text = String::new();
        for entry in entries {
            text += &serde_json::to_string(entry)?;
            text.push('\n');
        }
        // A file that a crash left behind may belong to anybody.
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

    struct HistoryDir {
        temp_dir: tempfile::TempDir,
    }

    impl HistoryDir {
        fn new() -> Self {
            let temp_dir = tempfile::tempdir().unwrap();
            Self { temp_dir }
        }

        fn path(&self) -> PathBuf {
            self.temp_dir.path().join("pvp/history")
        }

        fn file(&self) -> HistoryFile {
            HistoryFile { path: self.path() }
        }

        fn write_bytes(&self, bytes: &[u8]) {
            std::fs::create_dir_all(self.path().parent().unwrap()).unwrap();
            std::fs::write(self.path(), bytes).unwrap();
        }

        fn entries(&self) -> Vec<String> {
            let loaded = self.file().read().unwrap();
            assert_eq!(loaded.problem, None);
            loaded.entries
        }
    }

    fn add(history_dir: &HistoryDir, text: &str) {
        assert_eq!(history_dir.file().add(text.to_owned()).unwrap(), None);
    }

    #[test]
    fn texts_of_any_kind_are_read_as_they_were_written() {
        let history_dir = HistoryDir::new();
        assert_eq!(history_dir.entries(), [""; 0]);
        let texts = ["!ls", "two\nlines", "\u{1b}[31m \"quoted\" 世界", "!ls"];
        texts.iter().for_each(|text| add(&history_dir, text));
        add(&history_dir, "!ls");
        assert_eq!(history_dir.entries(), texts);
    }

    #[test]
    fn only_the_user_may_read_the_history() {
        let history_dir = HistoryDir::new();
        history_dir.write_bytes(b"\"old\"\n");
        add(&history_dir, "secret");
        for (name, mode) in [("history", 0o600), ("history.lock", 0o600)] {
            let path = history_dir.path().with_file_name(name);
            let found = std::fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "{name}");
        }
        let fresh = HistoryDir::new();
        add(&fresh, "secret");
        let directory = std::fs::metadata(fresh.path().parent().unwrap()).unwrap();
        assert_eq!(directory.permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn concurrent_writers_lose_nothing_of_each_other() {
        let history_dir = HistoryDir::new();
        std::thread::scope(|scope| {
            for screen in 0..4 {
                let history_dir = &history_dir;
                scope.spawn(move || {
                    (0..20).for_each(|text| add(history_dir, &format!("{screen} {text}")));
                });
            }
        });
        let entries = history_dir.entries();
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
        let history_dir = HistoryDir::new();
        let line = |number: usize| format!("\"{number}\"\n");
        let many: String = (0..MAX_ENTRIES + 5).map(line).collect();
        history_dir.write_bytes(many.as_bytes());
        add(&history_dir, "last");
        let entries = history_dir.entries();
        assert_eq!((entries.len(), entries[0].as_str()), (MAX_ENTRIES, "6"));
        assert_eq!(entries[MAX_ENTRIES - 1], "last");
        let large = "x".repeat(MAX_HISTORY_BYTES / 2);
        add(&history_dir, &large);
        add(&history_dir, "small");
        add(&history_dir, &format!("{large}y"));
        assert_eq!(
            history_dir.entries(),
            ["small".to_owned(), format!("{large}y")]
        );
    }

    #[test]
    fn a_file_that_somebody_made_too_long_is_read_from_its_end() {
        let history_dir = HistoryDir::new();
        let line = format!("\"{}\"\n", "x".repeat(997));
        let mut bytes = line.repeat(MAX_HISTORY_BYTES * 7 / 1000).into_bytes();
        bytes.extend(b"\"end\"\n");
        history_dir.write_bytes(&bytes);
        let entries = history_dir.entries();
        assert_eq!(entries.len(), MAX_ENTRIES);
        assert_eq!(entries[MAX_ENTRIES - 1], "end");
    }

    #[test]
    fn a_damaged_file_is_quarantined_and_reported_once() {
        let history_dir = HistoryDir::new();
        let damaged = b"\"one\"\n\xff\xfe\n{}\n\"two\"\n\"thr";
        history_dir.write_bytes(damaged);
        let loaded = history_dir.file().read().unwrap();
        assert_eq!(loaded.entries, ["one", "two"]);
        let aside = history_dir.path().with_extension("damaged");
        let message = format!(
            "3 lines of the input history could not be read; the damaged file is {}",
            aside.display()
        );
        assert_eq!(loaded.problem, Some(message));
        assert_eq!(std::fs::read(aside).unwrap(), damaged);
        add(&history_dir, "four");
        assert_eq!(history_dir.entries(), ["one", "two", "four"]);
    }

    #[test]
    fn a_write_failure_is_reported_once_and_nothing_else_breaks() {
        let temp_dir = tempfile::tempdir().unwrap();
        let path = temp_dir.path().join("file/history");
        std::fs::write(temp_dir.path().join("file"), "").unwrap();
        let (inputs, mut inbox) = tokio::sync::mpsc::unbounded_channel();
        let history_writer = HistoryWriter::start(path, inputs).unwrap();
        history_writer.append("one".to_owned());
        history_writer.append("two".to_owned());
        drop(history_writer);
        let Some(AppInput::HistoryLoaded(loaded)) = inbox.blocking_recv() else {
            panic!("nothing is told");
        };
        let problem = loaded.problem.unwrap();
        assert!(
            problem.starts_with("the input history is not saved: making "),
            "{problem}"
        );
        assert!(inbox.blocking_recv().is_none());
    }

    #[test]
    fn dropping_the_writer_waits_until_everything_is_written() {
        let history_dir = HistoryDir::new();
        let (inputs, mut inbox) = tokio::sync::mpsc::unbounded_channel();
        add(&history_dir, "old");
        let history_writer = HistoryWriter::start(history_dir.path(), inputs).unwrap();
        (0..20).for_each(|number| history_writer.append(number.to_string()));
        drop(history_writer);
        let Some(AppInput::HistoryLoaded(loaded)) = inbox.blocking_recv() else {
            panic!("the past is not told");
        };
        assert_eq!(
            (loaded.entries, loaded.problem),
            (vec!["old".to_owned()], None)
        );
        assert_eq!(history_dir.entries().len(), 21);
    }
}
