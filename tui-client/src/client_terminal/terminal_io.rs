//! Reads from and writes to our own terminal, in threads: a terminal that does not take or give
//! anything must hold nothing else up.

use std::io::{self, PipeReader, PipeWriter, stdin, stdout};

use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::{mpsc, oneshot};

/// Bytes that are read from the terminal at once: a paste comes in large pieces.
const MAX_READ_BYTES: usize = 64 * 1024;

/// Pieces of input that wait. When they are not taken, the terminal is not read.
const INPUT_BUFFER: usize = 16;

/// Pieces of output that wait. When there are more, the client is not read.
const OUTPUT_BUFFER: usize = 64;

/// What the terminal sends. Dropping this stops the reading: what comes then is for the shell.
pub(super) struct TerminalReader {
    pieces: mpsc::Receiver<Vec<u8>>,
    /// Closed when nobody reads any more.
    _stop: PipeWriter,
}

impl TerminalReader {
    pub(super) fn start() -> io::Result<Self> {
        let (sender, pieces) = mpsc::channel(INPUT_BUFFER);
        let (stopped, stop) = io::pipe()?;
        std::thread::spawn(move || {
            while let Ok(Some(piece)) = read_piece(&stopped) {
                if sender.blocking_send(piece).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            pieces,
            _stop: stop,
        })
    }

    /// What the terminal sends next; `None` once it is gone. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        self.pieces.recv().await
    }

    /// Whether the terminal is gone, and everything that it has sent was taken.
    pub(super) fn is_at_end(&self) -> bool {
        self.pieces.is_closed() && self.pieces.is_empty()
    }
}

/// Reads what the terminal sends next; `None` if it is gone, or the reading is to stop.
fn read_piece(stopped: &PipeReader) -> rustix::io::Result<Option<Vec<u8>>> {
    let stdin = stdin();
    let mut descriptors = [
        PollFd::new(&stdin, PollFlags::IN),
        PollFd::new(stopped, PollFlags::empty()),
    ];
    rustix::io::retry_on_intr(|| poll(&mut descriptors, None))?;
    if !descriptors[1].revents().is_empty() {
        return Ok(None);
    }
    let mut buffer = vec![0; MAX_READ_BYTES];
    let count = rustix::io::retry_on_intr(|| rustix::io::read(&stdin, &mut buffer[..]))?;
    buffer.truncate(count);
    Ok((count > 0).then_some(buffer))
}

/// What is written.
enum WriteRequest {
    Bytes(Vec<u8>),
    /// A frame of the card, with its number.
    Frame(Vec<u8>, u64),
    /// Says when everything before it is written.
    Flush(oneshot::Sender<()>),
}

/// Writes to the terminal, in order.
pub(super) struct TerminalWriter {
    requests: mpsc::Sender<WriteRequest>,
    /// What there was no room for.
    backlog: Vec<WriteRequest>,
    /// The frames that the terminal has.
    written: mpsc::UnboundedReceiver<u64>,
}

impl TerminalWriter {
    pub(super) fn start() -> Self {
        let (requests, queue) = mpsc::channel(OUTPUT_BUFFER);
        let (frames, written) = mpsc::unbounded_channel();
        std::thread::spawn(move || write_requests(queue, &frames));
        Self {
            requests,
            backlog: Vec::new(),
            written,
        }
    }

    pub(super) fn write(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.push(WriteRequest::Bytes(bytes));
        }
    }

    pub(super) fn write_frame(&mut self, bytes: Vec<u8>, number: u64) {
        self.push(WriteRequest::Frame(bytes, number));
    }

    fn push(&mut self, request: WriteRequest) {
        self.backlog.push(request);
        self.pass_on();
    }

    /// Hands over what there is room for. What nobody writes any more is dropped.
    fn pass_on(&mut self) {
        let mut rest = std::mem::take(&mut self.backlog).into_iter();
        for request in rest.by_ref() {
            match self.requests.try_send(request) {
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
                Err(mpsc::error::TrySendError::Full(request)) => {
                    self.backlog.push(request);
                    break;
                }
            }
        }
        self.backlog.extend(rest);
    }

    /// Whether the terminal is behind, so that nothing more should be written that can wait.
    pub(super) fn is_behind(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Waits until there is room again and uses it, or until the terminal has a frame, whose number
    /// it returns. Cancel safe.
    pub(super) async fn progress(&mut self) -> Option<u64> {
        tokio::select! {
            Some(number) = self.written.recv() => return Some(number),
            // If nobody writes any more, everything is dropped.
            _ = self.requests.reserve(), if !self.backlog.is_empty() => {}
            else => std::future::pending().await,
        }
        self.pass_on();
        None
    }

    /// Waits until the terminal has everything.
    pub(super) async fn flush(&mut self) {
        let (sender, flushed) = oneshot::channel();
        self.push(WriteRequest::Flush(sender));
        while self.is_behind() {
            // Which frames the terminal has matters to nobody here.
            let _ = self.progress().await;
        }
        // If nobody writes any more, there is nothing to wait for.
        let _ = flushed.await;
    }
}

fn write_requests(mut queue: mpsc::Receiver<WriteRequest>, frames: &mpsc::UnboundedSender<u64>) {
    while let Some(request) = queue.blocking_recv() {
        let written = match &request {
            WriteRequest::Bytes(bytes) | WriteRequest::Frame(bytes, _) => write_to_terminal(bytes),
            WriteRequest::Flush(_) => Ok(()),
        };
        if written.is_err() {
            // The terminal is gone.
            return;
        }
        match request {
            WriteRequest::Bytes(_) => {}
            // The card may be closed by now.
            WriteRequest::Frame(_, number) => drop(frames.send(number)),
            WriteRequest::Flush(sender) => drop(sender.send(())),
        }
    }
}

/// Writes to the terminal, past what the standard library buffers and locks: after a panic, nobody
/// may be waited for.
pub(super) fn write_to_terminal(bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(stdout(), rest) {
            Ok(count) => rest = &rest[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
