//! A run under way: what comes from the command, its reaper, its keyboard and whoever wants it stopped.

use std::time::Duration;

use pvp_protocol::payload::OutputStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::stopping::Asked;
use super::stream::{PIECE, Recorder};
use super::terminal::{Screen, Terminal};
use super::{Bounds, Finish, Overflow, Piece, RunError, Stopped};
use crate::mask::Mask;
use crate::reaper::{Cgroup, Mechanism, Report, Word};

/// Bytes that are read of a pipe at a time; as many as a pipe holds.
const READ: usize = 64 * 1024;

/// How long bytes may wait for more of them before they are told.
const COALESCE: Duration = Duration::from_millis(10);

/// How long a pipe is waited for once nothing of the command is left. Someone else may hold it
/// open for ever: a program that it was given to.
const DRAIN: Duration = Duration::from_secs(1);

/// What a reaper says, a line at a time.
pub(super) type Reports = Lines<BufReader<OwnedReadHalf>>;

/// Where what a command prints comes from.
pub(super) enum Source {
    Output(ChildStdout),
    Errors(ChildStderr),
    Screen(Screen),
    Ended,
}

impl Source {
    /// The next bytes; 0 when it has ended or cannot be read any more.
    async fn read(&mut self, buffer: &mut [u8]) -> usize {
        let read = match self {
            Self::Output(pipe) => pipe.read(buffer).await,
            Self::Errors(pipe) => pipe.read(buffer).await,
            Self::Screen(screen) => screen.read(buffer).await,
            Self::Ended => std::future::pending().await,
        };
        read.unwrap_or(0)
    }

    fn is_open(&self) -> bool {
        !matches!(self, Self::Ended)
    }
}

/// What a run listens to.
pub(super) struct Ears {
    pub(super) stdout: Source,
    pub(super) stderr: Source,
    pub(super) terminal: Option<Terminal>,
    pub(super) reports: Reports,
    pub(super) asked: Asked,
}

impl Ears {
    fn are_open(&self) -> bool {
        self.stdout.is_open() || self.stderr.is_open()
    }

    fn close(&mut self, stream: OutputStream) {
        match stream {
            OutputStream::Stdout => self.stdout = Source::Ended,
            OutputStream::Stderr => self.stderr = Source::Ended,
        }
    }
}

/// What was read of each stream at last.
struct Buffers {
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Buffers {
    fn first(&self, stream: OutputStream, count: usize) -> &[u8] {
        match stream {
            OutputStream::Stdout => &self.out[..count],
            OutputStream::Stderr => &self.err[..count],
        }
    }
}

/// What a run has come to.
pub(super) struct Course {
    words: OwnedWriteHalf,
    cgroup: Option<Cgroup>,
    ends_at: Option<Instant>,
    on_overflow: Overflow,
    /// Bytes that may still be told.
    room: u64,
    stdout: Recorder,
    stderr: Recorder,
    stopped: Option<Stopped>,
    ended: Option<(Option<i32>, Option<i32>)>,
    gone: Option<(Mechanism, u32)>,
    /// Whether its reaper is still there.
    reporting: bool,
    /// Whether anyone takes pieces.
    listening: bool,
    /// Whether what waits has waited long enough, and when it will have.
    due: bool,
    due_at: Option<Instant>,
    /// When enough was waited for more to read, once its reaper is gone.
    drained_at: Instant,
}

/// What happens next.
enum Event<'a> {
    Asked(Word, String),
    TimedOut,
    Report(Option<String>),
    Typed,
    /// What waits has waited long enough.
    Due,
    /// Someone takes a piece; or nobody does any more.
    Room(Option<mpsc::Permit<'a, Piece>>),
    Read(OutputStream, usize),
    Drained,
}

impl Course {
    pub(super) fn new(
        begun: Instant,
        bounds: Bounds,
        mask: &Mask,
        words: OwnedWriteHalf,
        cgroup: Option<Cgroup>,
    ) -> Self {
        let keeps_the_end = match bounds.on_overflow {
            Overflow::Kill => false,
            Overflow::Truncate => true,
        };
        let recorder = |stream| Recorder::new(stream, mask.clone(), keeps_the_end);
        Self {
            words,
            cgroup,
            ends_at: bounds.timeout.map(|timeout| begun + timeout),
            on_overflow: bounds.on_overflow,
            room: bounds.output_bytes,
            stdout: recorder(OutputStream::Stdout),
            stderr: recorder(OutputStream::Stderr),
            stopped: None,
            ended: None,
            gone: None,
            reporting: true,
            listening: true,
            due: false,
            due_at: None,
            drained_at: begun,
        }
    }

    /// Follows the run until nothing is left of it and everything that it printed was told.
    pub(super) async fn follow(&mut self, mut ears: Ears, pieces: &mpsc::Sender<Piece>) {
        let mut buffers = Buffers {
            out: vec![0; READ],
            err: vec![0; READ],
        };
        while ears.are_open() || self.reporting || self.waiting() > 0 {
            let event = self.next(&mut ears, &mut buffers, pieces).await;
            self.react(event, &mut ears, &buffers).await;
            if !self.listening {
                while self.next_piece().is_some() {}
            }
            if self.waiting() == 0 {
                (self.due, self.due_at) = (false, None);
            } else if !self.due {
                self.due_at.get_or_insert_with(|| Instant::now() + COALESCE);
            }
        }
    }

    async fn next<'a>(
        &self,
        ears: &mut Ears,
        buffers: &mut Buffers,
        pieces: &'a mpsc::Sender<Piece>,
    ) -> Event<'a> {
        // Nothing more is read while nobody takes what is there.
        let full = self.waiting() >= PIECE;
        let tells = self.listening && self.waiting() > 0 && (self.due || full);
        let reads = ears.are_open() && !full;
        tokio::select! {
            biased;
            (word, why) = ears.asked.next() => Event::Asked(word, why),
            () = at(self.ends_at) => Event::TimedOut,
            report = ears.reports.next_line(), if self.reporting => Event::Report(report.unwrap_or(None)),
            () = typing(ears.terminal.as_ref()) => Event::Typed,
            () = at(self.due_at) => Event::Due,
            room = pieces.reserve(), if tells => Event::Room(room.ok()),
            (stream, count) = either(&mut ears.stdout, &mut ears.stderr, buffers), if reads => {
                Event::Read(stream, count)
            }
            () = sleep_until(self.drained_at), if reads && !self.reporting => Event::Drained,
        }
    }

    async fn react(&mut self, event: Event<'_>, ears: &mut Ears, buffers: &Buffers) {
        match event {
            Event::Asked(word, why) => self.stop(word, Stopped::Asked(why)).await,
            Event::TimedOut => {
                self.ends_at = None;
                self.stop(Word::Stop, Stopped::TimedOut).await;
            }
            Event::Report(Some(line)) => self.hear(&line),
            Event::Report(None) => {
                self.reporting = false;
                self.mourn().await;
                self.drained_at = Instant::now() + DRAIN;
            }
            Event::Typed => {}
            Event::Due => (self.due, self.due_at) = (true, None),
            Event::Room(Some(permit)) => {
                if let Some(piece) = self.next_piece() {
                    permit.send(piece);
                }
            }
            Event::Room(None) => {
                self.listening = false;
                let nobody = Stopped::Asked("nobody listens any more".to_owned());
                self.stop(Word::Kill, nobody).await;
            }
            Event::Read(stream, 0) => {
                ears.close(stream);
                self.end(stream);
            }
            Event::Read(stream, count) => {
                self.take(stream, buffers.first(stream, count)).await;
                self.drained_at = Instant::now() + DRAIN;
            }
            Event::Drained => {
                for stream in [OutputStream::Stdout, OutputStream::Stderr] {
                    ears.close(stream);
                    self.end(stream);
                }
            }
        }
    }

    fn hear(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Report::Ended { code, signal }) => self.ended = Some((code, signal)),
            Ok(Report::Gone {
                mechanism,
                left_behind,
            }) => self.gone = Some((mechanism, left_behind)),
            Ok(Report::Started { .. } | Report::NotStarted { .. }) => {
                tracing::warn!("a reaper said twice how it began");
            }
            Err(error) => tracing::warn!(%error, "a reaper said something else"),
        }
    }

    /// Ends what a reaper did not live to end.
    async fn mourn(&mut self) {
        if self.gone.is_none()
            && let Some(cgroup) = self.cgroup.take()
        {
            // It waits for the kernel; a panic there would have nothing to say to us.
            let _ = tokio::task::spawn_blocking(move || cgroup.end()).await;
        }
    }

    async fn stop(&mut self, word: Word, why: Stopped) {
        self.stopped.get_or_insert(why);
        let mut line = serde_json::to_vec(&word).expect("a word is plain data");
        line.push(b'\n');
        // A reaper that is gone has nothing left to stop.
        let _ = self.words.write_all(&line).await;
    }

    fn recorder(&mut self, stream: OutputStream) -> &mut Recorder {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    fn waiting(&self) -> usize {
        self.stdout.waiting() + self.stderr.waiting()
    }

    fn next_piece(&mut self) -> Option<Piece> {
        let piece = self.stdout.next_piece();
        piece.or_else(|| self.stderr.next_piece())
    }

    /// Takes bytes as far as there is room for what they become.
    async fn take(&mut self, stream: OutputStream, bytes: &[u8]) {
        let room = self.room;
        let used = self.recorder(stream).take(bytes, room);
        self.room -= used.told;
        let too_much = used.cut && self.on_overflow == Overflow::Kill;
        if too_much && self.stopped.is_none() {
            self.stop(Word::Kill, Stopped::PrintedTooMuch).await;
        }
    }

    /// An unfinished character at the end of a stream becomes a replacement.
    fn end(&mut self, stream: OutputStream) {
        let room = self.room;
        let used = self.recorder(stream).end(room);
        self.room -= used;
        self.due = true;
    }

    pub(super) fn finish(self, duration: Duration) -> Result<Finish, RunError> {
        let Some((code, signal)) = self.ended else {
            return Err(RunError::Lost("its reaper was killed".to_owned()));
        };
        Ok(Finish {
            code,
            signal,
            stopped: self.stopped,
            duration,
            stdout: self.stdout.summary(),
            stderr: self.stderr.summary(),
            mechanism: self.gone.map(|(mechanism, _)| mechanism),
            left_behind: self.gone.map_or(0, |(_, left_behind)| left_behind),
        })
    }
}

/// Waits until then; for ever if there is no such time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn typing(terminal: Option<&Terminal>) {
    match terminal {
        Some(terminal) => terminal.type_some().await,
        None => std::future::pending().await,
    }
}

/// The next bytes of one of the two, whichever has some; if both have, neither goes short.
async fn either(
    stdout: &mut Source,
    stderr: &mut Source,
    buffers: &mut Buffers,
) -> (OutputStream, usize) {
    let Buffers { out, err } = buffers;
    tokio::select! {
        count = stdout.read(out) => (OutputStream::Stdout, count),
        count = stderr.read(err) => (OutputStream::Stderr, count),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tokio::net::unix::pipe;

    use super::*;

    #[tokio::test]
    async fn errors_are_heard_beside_a_flood_of_output() {
        let full_pipe = async || {
            let (mut sender, receiver) = pipe::pipe().unwrap();
            sender.write_all(&[b'x'; 4096]).await.unwrap();
            (sender, Source::Screen(receiver))
        };
        let ((_out, mut stdout), (_err, mut stderr)) = (full_pipe().await, full_pipe().await);
        let mut buffers = Buffers {
            out: vec![0],
            err: vec![0],
        };
        let mut heard: HashMap<OutputStream, usize> = HashMap::new();
        for _ in 0..1000 {
            let (stream, count) = either(&mut stdout, &mut stderr, &mut buffers).await;
            *heard.entry(stream).or_default() += count;
        }
        assert!(
            heard[&OutputStream::Stdout] > 200 && heard[&OutputStream::Stderr] > 200,
            "{heard:?}"
        );
    }
}
