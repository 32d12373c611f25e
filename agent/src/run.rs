//! One command from its start to the last of its processes: streamed, bounded, stopped.

mod stream;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use pvp_protocol::payload::Stream;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::mask::Mask;
use crate::reaper::{Errand, Mechanism, REAP, Report, Word};
use stream::Recorder;
pub use stream::Summary;

/// Bytes that are read of a pipe at a time; as many as a pipe holds.
const READ: usize = 64 * 1024;

/// How long bytes may wait for more of them before they are told.
const COALESCE: Duration = Duration::from_millis(10);

/// What one run may use before it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// `None` is for ever.
    pub timeout: Option<Duration>,
    /// Bytes of both streams together, counted as they are told.
    pub output_bytes: u64,
}

/// A piece of what a command printed: whole characters, at their place in their stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub stream: Stream,
    pub text: String,
    /// Bytes of the stream that were told before.
    pub offset: u64,
}

/// Why a command did not end by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    TimedOut,
    PrintedTooMuch,
    /// Someone wanted it to; what they said.
    Asked(String),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stopped: Option<Stopped>,
    pub duration: Duration,
    pub stdout: Summary,
    pub stderr: Summary,
    /// How its processes were ended; `None` if that could not be seen.
    pub mechanism: Option<Mechanism>,
    /// Processes that it left behind, and that were ended.
    pub left_behind: u32,
}

/// Why there is no finish.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing ran.
    #[error("it could not be started: {0}")]
    NotStarted(String),
    /// It may or may not have run to its end.
    #[error("it was lost: {0}")]
    Lost(String),
}

/// Tells a run to stop, from wherever.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<Option<(Word, String)>>);

impl Stopper {
    /// Asks, and after the grace insists.
    pub fn stop(&self, why: &str) {
        self.say(Word::Stop, why);
    }

    /// Ends it at once.
    pub fn kill(&self, why: &str) {
        self.say(Word::Kill, why);
    }

    fn say(&self, word: Word, why: &str) {
        self.0.send_replace(Some((word, why.to_owned())));
    }
}

/// A command that has been handed to a reaper.
pub struct Run {
    reaper: Child,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    reports: tokio::io::Lines<BufReader<OwnedReadHalf>>,
    words: OwnedWriteHalf,
    asked: watch::Receiver<Option<(Word, String)>>,
    begun: Instant,
}

impl Run {
    /// Starts a command. `program` is what a reaper is started from: this program.
    pub async fn start(program: &Path, errand: &Errand) -> Result<(Self, Stopper), RunError> {
        let not_started = |error: anyhow::Error| RunError::NotStarted(format!("{error:#}"));
        let begun = Instant::now();
        let (ours, theirs) = sockets().map_err(not_started)?;
        let mut reaper = Command::new(program)
            .arg(REAP)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting a reaper")
            .map_err(not_started)?;
        let (reading, mut words) = ours.into_split();
        let mut line = serde_json::to_vec(errand).expect("an errand is plain data");
        line.push(b'\n');
        words
            .write_all(&line)
            .await
            .context("telling the reaper")
            .map_err(not_started)?;
        let (stopper, asked) = watch::channel(None);
        let run = Self {
            stdout: reaper.stdout.take(),
            stderr: reaper.stderr.take(),
            reaper,
            reports: BufReader::new(reading).lines(),
            words,
            asked,
            begun,
        };
        Ok((run, Stopper(stopper)))
    }

    /// Sends what is printed, with the values of `secrets` hidden, to `pieces` until nothing is left of the command. A receiver that
    /// does not keep up slows the command down; one that is gone stops it.
    pub async fn finish(
        self,
        bounds: Bounds,
        secrets: &BTreeMap<String, String>,
        pieces: mpsc::Sender<Piece>,
    ) -> Result<Finish, RunError> {
        let mask = Mask::new(secrets);
        let mut course = Course {
            ends_at: bounds.timeout.map(|timeout| self.begun + timeout),
            words: self.words,
            pieces,
            room: bounds.output_bytes,
            stdout: Recorder::new(Stream::Stdout, mask.clone()),
            stderr: Recorder::new(Stream::Stderr, mask),
            stopped: None,
            ended: None,
            gone: None,
            not_started: None,
        };
        let (stdout, stderr) = (self.stdout, self.stderr);
        course
            .follow(stdout, stderr, self.reports, self.asked)
            .await;
        let mut reaper = self.reaper;
        // It has told everything that it knows, or it was killed.
        let _ = reaper.wait().await;
        course.finish(self.begun.elapsed())
    }
}

fn sockets() -> anyhow::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().context("making a socket")?;
    ours.set_nonblocking(true).context("making a socket")?;
    Ok((
        UnixStream::from_std(ours).context("making a socket")?,
        theirs.into(),
    ))
}

/// A run under way.
struct Course {
    words: OwnedWriteHalf,
    pieces: mpsc::Sender<Piece>,
    ends_at: Option<Instant>,
    /// Bytes that may still be told.
    room: u64,
    stdout: Recorder,
    stderr: Recorder,
    stopped: Option<Stopped>,
    ended: Option<(Option<i32>, Option<i32>)>,
    gone: Option<(Mechanism, u32)>,
    not_started: Option<String>,
}

impl Course {
    async fn follow(
        &mut self,
        mut stdout: Option<ChildStdout>,
        mut stderr: Option<ChildStderr>,
        mut reports: tokio::io::Lines<BufReader<OwnedReadHalf>>,
        mut asked: watch::Receiver<Option<(Word, String)>>,
    ) {
        let (mut out, mut err) = (vec![0; READ], vec![0; READ]);
        let mut flush_at: Option<Instant> = None;
        let mut reporting = true;
        let mut may_be_asked = true;
        while stdout.is_some() || stderr.is_some() || reporting {
            let far = Instant::now() + Duration::from_secs(3600);
            let read = tokio::select! {
                biased;
                changed = asked.changed(), if may_be_asked => {
                    may_be_asked = changed.is_ok();
                    let wish = asked.borrow_and_update().clone();
                    if let Some((word, why)) = wish {
                        self.stop(word, Stopped::Asked(why)).await;
                    }
                    None
                }
                () = sleep_until(self.ends_at.unwrap_or(far)) => {
                    if self.ends_at.take_if(|at| *at <= Instant::now()).is_some() {
                        self.stop(Word::Stop, Stopped::TimedOut).await;
                    }
                    None
                }
                report = reports.next_line(), if reporting => {
                    match report {
                        Ok(Some(line)) => self.hear(&line),
                        Ok(None) | Err(_) => reporting = false,
                    }
                    None
                }
                () = sleep_until(flush_at.unwrap_or(far)), if flush_at.is_some() => {
                    self.flush().await;
                    flush_at = None;
                    None
                }
                read = read(&mut stdout, &mut out), if stdout.is_some() => Some((Stream::Stdout, read)),
                read = read(&mut stderr, &mut err), if stderr.is_some() => Some((Stream::Stderr, read)),
            };
            let Some((stream, count)) = read else {
                continue;
            };
            if count == 0 {
                match stream {
                    Stream::Stdout => stdout = None,
                    Stream::Stderr => stderr = None,
                }
                continue;
            }
            let bytes = match stream {
                Stream::Stdout => &out[..count],
                Stream::Stderr => &err[..count],
            };
            self.take(stream, bytes).await;
            flush_at.get_or_insert(Instant::now() + COALESCE);
            if self.waiting() >= stream::PIECE {
                self.flush().await;
                flush_at = None;
            }
        }
        self.flush().await;
        self.finish_streams().await;
    }

    fn hear(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Report::Started { .. }) => {}
            Ok(Report::NotStarted { why }) => self.not_started = Some(why),
            Ok(Report::Ended { code, signal }) => self.ended = Some((code, signal)),
            Ok(Report::Gone {
                mechanism,
                left_behind,
            }) => self.gone = Some((mechanism, left_behind)),
            Err(error) => tracing::warn!(%error, "a reaper said something else"),
        }
    }

    async fn stop(&mut self, word: Word, why: Stopped) {
        self.stopped.get_or_insert(why);
        let mut line = serde_json::to_vec(&word).expect("a word is plain data");
        line.push(b'\n');
        // A reaper that is gone has nothing left to stop.
        let _ = self.words.write_all(&line).await;
    }

    fn recorder(&mut self, stream: Stream) -> &mut Recorder {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    fn waiting(&self) -> usize {
        self.stdout.waiting() + self.stderr.waiting()
    }

    /// Takes bytes as far as there is room for what they become.
    async fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let room = self.room;
        let used = self.recorder(stream).take(bytes, room);
        self.room -= used.told;
        if used.cut && self.stopped.is_none() {
            self.stop(Word::Kill, Stopped::PrintedTooMuch).await;
        }
    }

    async fn flush(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            while let Some(piece) = self.recorder(stream).next_piece() {
                if self.pieces.send(piece).await.is_err() {
                    let nobody = Stopped::Asked("nobody listens any more".to_owned());
                    self.stop(Word::Kill, nobody).await;
                }
            }
        }
    }

    /// An unfinished character at the end becomes a replacement.
    async fn finish_streams(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let room = self.room;
            let used = self.recorder(stream).end(room);
            self.room -= used;
        }
        self.flush().await;
    }

    fn finish(self, duration: Duration) -> Result<Finish, RunError> {
        if let Some(why) = self.not_started {
            return Err(RunError::NotStarted(why));
        }
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

/// The next bytes of a pipe; 0 when it has ended or cannot be read any more.
async fn read(pipe: &mut Option<impl AsyncReadExt + Unpin>, buffer: &mut [u8]) -> usize {
    match pipe {
        Some(pipe) => pipe.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}
