//! The event loop of a run: handles output, reports of the reaper, terminal input and stop
//! requests.

use std::time::Duration;

use pvp_protocol::payload::OutputStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::output_recorder::{MAX_CHUNK_BYTES, OutputRecorder};
use super::pty::{Pty, PtyOutput};
use super::stop_channel::StopReceiver;
use super::{FinishedRun, OverflowAction, RunError, RunLimits, StdioChunk, StopReason};
use crate::mask::SecretMask;
use crate::reaper::{Cgroup, KillMechanism, ReaperCommand, ReaperReport};

/// Bytes that are read from a pipe at a time; as many as a pipe holds.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// How long output may wait for more output before it is sent.
const COALESCE_DELAY: Duration = Duration::from_millis(10);

/// How long to wait for the pipes once no process of the command is left. Another process that was
/// given a pipe may hold it open forever.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// What a reaper reports, one line at a time.
pub(super) type ReaperReports = Lines<BufReader<OwnedReadHalf>>;

/// Where a command's output comes from.
pub(super) enum OutputSource {
    Stdout(ChildStdout),
    Stderr(ChildStderr),
    Pty(PtyOutput),
    Ended,
}

impl OutputSource {
    /// The next bytes; 0 when the source has ended or cannot be read any more.
    async fn read(&mut self, buffer: &mut [u8]) -> usize {
        let read = match self {
            Self::Stdout(pipe) => pipe.read(buffer).await,
            Self::Stderr(pipe) => pipe.read(buffer).await,
            Self::Pty(output) => output.read(buffer).await,
            Self::Ended => std::future::pending().await,
        };
        read.unwrap_or(0)
    }

    fn is_open(&self) -> bool {
        !matches!(self, Self::Ended)
    }
}

/// Where the events of a run come from.
pub(super) struct RunEventSources {
    pub(super) stdout: OutputSource,
    pub(super) stderr: OutputSource,
    pub(super) pty: Option<Pty>,
    pub(super) reports: ReaperReports,
    pub(super) stop_receiver: StopReceiver,
}

impl RunEventSources {
    fn output_is_open(&self) -> bool {
        self.stdout.is_open() || self.stderr.is_open()
    }

    fn close_output(&mut self, stream: OutputStream) {
        match stream {
            OutputStream::Stdout => self.stdout = OutputSource::Ended,
            OutputStream::Stderr => self.stderr = OutputSource::Ended,
        }
    }
}

/// The bytes that were read last from each stream.
struct ReadBuffers {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl ReadBuffers {
    fn filled(&self, stream: OutputStream, count: usize) -> &[u8] {
        match stream {
            OutputStream::Stdout => &self.stdout[..count],
            OutputStream::Stderr => &self.stderr[..count],
        }
    }
}

/// The state of a run that is under way.
pub(super) struct RunState {
    /// Sends commands to the reaper.
    reaper_commands: OwnedWriteHalf,
    /// The command's cgroup; `None` if it has none, or once it was removed.
    cgroup: Option<Cgroup>,
    /// When the command times out; `None` if it may run forever, or once it has.
    deadline: Option<Instant>,
    /// What to do when the output limit is exceeded.
    on_overflow: OverflowAction,
    /// Bytes of output that the limit still allows.
    remaining_bytes: u64,
    /// Records standard output, or the terminal.
    stdout: OutputRecorder,
    /// Records standard error.
    stderr: OutputRecorder,
    /// Why the command was stopped; `None` if nobody stopped it.
    stop_reason: Option<StopReason>,
    /// The exit code and the signal of the command; `None` while it runs.
    exit_status: Option<(Option<i32>, Option<i32>)>,
    /// How the last processes were killed, and how many the command had left behind.
    ///
    /// `None` until the reaper reports it.
    cleanup: Option<(KillMechanism, u32)>,
    /// What a command that is tried was denied.
    denied: Option<String>,
    /// Whether the reaper is still running.
    reaper_alive: bool,
    /// Whether anyone still receives chunks.
    receiver_open: bool,
    /// Whether buffered output should be sent without waiting for more.
    flush_due: bool,
    /// When `flush_due` will be set; `None` while nothing is buffered.
    flush_at: Option<Instant>,
    /// When to stop reading once the reaper is gone.
    drain_until: Instant,
}

/// What happens next in a run.
enum RunLoopEvent<'a> {
    StopRequested(ReaperCommand, String),
    TimedOut,
    Report(Option<String>),
    InputWritten,
    /// Buffered output has waited long enough.
    FlushDue,
    /// The receiver has room for a chunk, or is gone.
    ReceiverReady(Option<mpsc::Permit<'a, StdioChunk>>),
    Read(OutputStream, usize),
    DrainTimedOut,
}

impl RunState {
    pub(super) fn new(
        started_at: Instant,
        limits: RunLimits,
        mask: &SecretMask,
        reaper_commands: OwnedWriteHalf,
        cgroup: Option<Cgroup>,
    ) -> Self {
        let keep_tail = match limits.on_overflow {
            OverflowAction::Kill => false,
            OverflowAction::Truncate => true,
        };
        let recorder = |stream| OutputRecorder::new(stream, mask.clone(), keep_tail);
        Self {
            reaper_commands,
            cgroup,
            deadline: limits.timeout.map(|timeout| started_at + timeout),
            on_overflow: limits.on_overflow,
            remaining_bytes: limits.output_bytes,
            stdout: recorder(OutputStream::Stdout),
            stderr: recorder(OutputStream::Stderr),
            stop_reason: None,
            exit_status: None,
            cleanup: None,
            denied: None,
            reaper_alive: true,
            receiver_open: true,
            flush_due: false,
            flush_at: None,
            drain_until: started_at,
        }
    }

    /// Handles events until no process is left and all output was sent.
    pub(super) async fn drive(
        &mut self,
        mut sources: RunEventSources,
        chunks: &mpsc::Sender<StdioChunk>,
    ) {
        let mut buffers = ReadBuffers {
            stdout: vec![0; READ_BUFFER_BYTES],
            stderr: vec![0; READ_BUFFER_BYTES],
        };
        while sources.output_is_open() || self.reaper_alive || self.buffered_bytes() > 0 {
            let event = self.next_event(&mut sources, &mut buffers, chunks).await;
            self.handle_event(event, &mut sources, &buffers).await;
            if !self.receiver_open {
                while self.next_chunk().is_some() {}
            }
            if self.buffered_bytes() == 0 {
                (self.flush_due, self.flush_at) = (false, None);
            } else if !self.flush_due {
                self.flush_at
                    .get_or_insert_with(|| Instant::now() + COALESCE_DELAY);
            }
        }
    }

    async fn next_event<'a>(
        &self,
        sources: &mut RunEventSources,
        buffers: &mut ReadBuffers,
        chunks: &'a mpsc::Sender<StdioChunk>,
    ) -> RunLoopEvent<'a> {
        // Back-pressure: nothing more is read while the buffer is full.
        let full = self.buffered_bytes() >= MAX_CHUNK_BYTES;
        let can_send = self.receiver_open && self.buffered_bytes() > 0 && (self.flush_due || full);
        let can_read = sources.output_is_open() && !full;
        tokio::select! {
            biased;
            (command, why) = sources.stop_receiver.next() => RunLoopEvent::StopRequested(command, why),
            () = wait_until(self.deadline) => RunLoopEvent::TimedOut,
            report = sources.reports.next_line(), if self.reaper_alive => RunLoopEvent::Report(report.unwrap_or(None)),
            () = write_pty_input(sources.pty.as_ref()) => RunLoopEvent::InputWritten,
            () = wait_until(self.flush_at) => RunLoopEvent::FlushDue,
            room = chunks.reserve(), if can_send => RunLoopEvent::ReceiverReady(room.ok()),
            (stream, count) = read_either(&mut sources.stdout, &mut sources.stderr, buffers), if can_read => {
                RunLoopEvent::Read(stream, count)
            }
            () = sleep_until(self.drain_until), if can_read && !self.reaper_alive => RunLoopEvent::DrainTimedOut,
        }
    }

    async fn handle_event(
        &mut self,
        event: RunLoopEvent<'_>,
        sources: &mut RunEventSources,
        buffers: &ReadBuffers,
    ) {
        match event {
            RunLoopEvent::StopRequested(command, why) => {
                self.stop(command, StopReason::Requested(why)).await
            }
            RunLoopEvent::TimedOut => {
                self.deadline = None;
                self.stop(ReaperCommand::Stop, StopReason::TimedOut).await;
            }
            RunLoopEvent::Report(Some(line)) => self.on_report(&line),
            RunLoopEvent::Report(None) => {
                self.reaper_alive = false;
                self.reap_cgroup().await;
                self.drain_until = Instant::now() + DRAIN_TIMEOUT;
            }
            RunLoopEvent::InputWritten => {}
            RunLoopEvent::FlushDue => (self.flush_due, self.flush_at) = (true, None),
            RunLoopEvent::ReceiverReady(Some(permit)) => {
                if let Some(chunk) = self.next_chunk() {
                    permit.send(chunk);
                }
            }
            RunLoopEvent::ReceiverReady(None) => {
                self.receiver_open = false;
                let nobody = StopReason::Requested("nobody listens any more".to_owned());
                self.stop(ReaperCommand::Kill, nobody).await;
            }
            RunLoopEvent::Read(stream, 0) => {
                sources.close_output(stream);
                self.end_stream(stream);
            }
            RunLoopEvent::Read(stream, count) => {
                self.on_output(stream, buffers.filled(stream, count)).await;
                self.drain_until = Instant::now() + DRAIN_TIMEOUT;
            }
            RunLoopEvent::DrainTimedOut => {
                for stream in [OutputStream::Stdout, OutputStream::Stderr] {
                    sources.close_output(stream);
                    self.end_stream(stream);
                }
            }
        }
    }

    fn on_report(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(ReaperReport::Denied { what }) => self.denied = Some(what),
            Ok(ReaperReport::Ended { code, signal }) => self.exit_status = Some((code, signal)),
            Ok(ReaperReport::Gone {
                mechanism,
                left_behind,
            }) => self.cleanup = Some((mechanism, left_behind)),
            Ok(ReaperReport::Started { .. } | ReaperReport::NotStarted { .. }) => {
                tracing::warn!("a reaper reported its start twice");
            }
            Err(error) => tracing::warn!(%error, "a reaper sent an unexpected message"),
        }
    }

    /// Kills what the reaper could not kill, because it was killed itself.
    async fn reap_cgroup(&mut self) {
        if self.cleanup.is_none()
            && let Some(cgroup) = self.cgroup.take()
        {
            // This waits for the kernel. A panic in there has no consequence here.
            let _ = tokio::task::spawn_blocking(move || cgroup.kill_and_remove()).await;
        }
    }

    async fn stop(&mut self, command: ReaperCommand, reason: StopReason) {
        self.stop_reason.get_or_insert(reason);
        let mut line = serde_json::to_vec(&command).expect("a reaper command is plain data");
        line.push(b'\n');
        // A reaper that is gone has nothing left to stop.
        let _ = self.reaper_commands.write_all(&line).await;
    }

    fn recorder(&mut self, stream: OutputStream) -> &mut OutputRecorder {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    fn buffered_bytes(&self) -> usize {
        self.stdout.buffered_bytes() + self.stderr.buffered_bytes()
    }

    fn next_chunk(&mut self) -> Option<StdioChunk> {
        let chunk = self.stdout.next_chunk();
        chunk.or_else(|| self.stderr.next_chunk())
    }

    /// Records bytes, and kills the command if they exceed the output limit.
    async fn on_output(&mut self, stream: OutputStream, bytes: &[u8]) {
        let room = self.remaining_bytes;
        let used = self.recorder(stream).push(bytes, room);
        self.remaining_bytes -= used.recorded;
        let too_much = used.truncated && self.on_overflow == OverflowAction::Kill;
        if too_much && self.stop_reason.is_none() {
            self.stop(ReaperCommand::Kill, StopReason::OutputLimit)
                .await;
        }
    }

    /// Ends a stream; an incomplete character at its end is replaced.
    fn end_stream(&mut self, stream: OutputStream) {
        let room = self.remaining_bytes;
        let used = self.recorder(stream).finish(room);
        self.remaining_bytes -= used;
        self.flush_due = true;
    }

    pub(super) fn finish(self, duration: Duration) -> Result<FinishedRun, RunError> {
        let Some((code, signal)) = self.exit_status else {
            return Err(RunError::Lost("its reaper was killed".to_owned()));
        };
        Ok(FinishedRun {
            exit_code: code,
            signal,
            stop_reason: self.stop_reason,
            duration,
            stdout: self.stdout.summary(),
            stderr: self.stderr.summary(),
            kill_mechanism: self.cleanup.map(|(mechanism, _)| mechanism),
            left_behind: self.cleanup.map_or(0, |(_, left_behind)| left_behind),
            denied: self.denied,
        })
    }
}

/// Waits until a point in time; forever if there is none.
async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn write_pty_input(pty: Option<&Pty>) {
    match pty {
        Some(pty) => pty.write_pending().await,
        None => std::future::pending().await,
    }
}

/// Reads whichever stream has bytes. If both do, the choice is random, so neither starves.
async fn read_either(
    stdout: &mut OutputSource,
    stderr: &mut OutputSource,
    buffers: &mut ReadBuffers,
) -> (OutputStream, usize) {
    let ReadBuffers {
        stdout: out,
        stderr: err,
    } = buffers;
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
    async fn stderr_is_read_beside_a_flood_of_stdout() {
        let full_pipe = async || {
            let (mut sender, receiver) = pipe::pipe().unwrap();
            sender.write_all(&[b'x'; 4096]).await.unwrap();
            (sender, OutputSource::Pty(receiver))
        };
        let ((_out, mut stdout), (_err, mut stderr)) = (full_pipe().await, full_pipe().await);
        let mut buffers = ReadBuffers {
            stdout: vec![0],
            stderr: vec![0],
        };
        let mut read_bytes: HashMap<OutputStream, usize> = HashMap::new();
        for _ in 0..1000 {
            let (stream, count) = read_either(&mut stdout, &mut stderr, &mut buffers).await;
            *read_bytes.entry(stream).or_default() += count;
        }
        assert!(
            read_bytes[&OutputStream::Stdout] > 200 && read_bytes[&OutputStream::Stderr] > 200,
            "{read_bytes:?}"
        );
    }
}
