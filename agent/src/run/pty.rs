//! The pseudo-terminal of an interactive command: its output is read, its input is written.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{InputModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use tokio::net::unix::pipe;
use tokio::sync::Notify;

use crate::reaper::PtySize;

/// Bytes of input that wait for a program to read them: enough for a large paste, not for data.
const MAX_PENDING_BYTES: usize = 64 * 1024;

/// Bytes of input that are written at a time; about what a terminal accepts.
const MAX_WRITE_BYTES: usize = 4096;

/// Why input was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PtyInputError {
    #[error("the program does not read its keys; {MAX_PENDING_BYTES} bytes of them wait already")]
    Full,
    #[error("the command has ended")]
    Gone,
}

/// Writes input to a command's terminal from any task; never waits.
#[derive(Clone)]
pub struct PtyInput(Arc<PtyInputQueue>);

/// The input may be a password, so it is not shown.
impl std::fmt::Debug for PtyInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PtyInput(…)")
    }
}

impl PtyInput {
    /// Queues input, all of it or none.
    pub fn write(&self, bytes: &[u8]) -> Result<(), PtyInputError> {
        let mut pending = self.0.lock_pending();
        if pending.closed {
            return Err(PtyInputError::Gone);
        }
        if pending.bytes.len() + bytes.len() > MAX_PENDING_BYTES {
            return Err(PtyInputError::Full);
        }
        pending.bytes.extend(bytes);
        self.0.input_ready.notify_one();
        Ok(())
    }

    /// Changes the size of the terminal; the program gets a signal, as from any terminal.
    pub fn resize(&self, size: PtySize) -> Result<(), PtyInputError> {
        let mut pending = self.0.lock_pending();
        if pending.closed {
            return Err(PtyInputError::Gone);
        }
        pending.size = Some(size);
        self.0.input_ready.notify_one();
        Ok(())
    }
}

#[derive(Default)]
struct PtyInputQueue {
    pending: Mutex<PendingPtyInput>,
    /// Notified when there is something to write.
    input_ready: Notify,
}

/// Input that is not written to the terminal yet.
#[derive(Default)]
struct PendingPtyInput {
    bytes: VecDeque<u8>,
    size: Option<PtySize>,
    closed: bool,
}

impl PtyInputQueue {
    fn lock_pending(&self) -> MutexGuard<'_, PendingPtyInput> {
        // A panic leaves consistent values behind: each change is one call.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait_for_input(&self) {
        loop {
            let notified = self.input_ready.notified();
            {
                let pending = self.lock_pending();
                if pending.size.is_some() || !pending.bytes.is_empty() {
                    return;
                }
            }
            notified.await;
        }
    }
}

/// The output of a command's terminal. Reading fails once nobody has the other side open.
pub(super) type PtyOutput = pipe::Receiver;

/// Our side of a command's terminal, for writing.
pub(super) struct Pty {
    writer: pipe::Sender,
    input_queue: Arc<PtyInputQueue>,
}

impl Pty {
    /// Opens a pseudo-terminal; the last value is the command's side.
    pub(super) fn open(size: PtySize) -> io::Result<(Self, PtyOutput, OwnedFd)> {
        // Neither side may become the terminal of this process, nor be inherited by other children.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        let mut modes = tcgetattr(&slave)?;
        // Makes erasing delete whole characters.
        modes.input_modes |= InputModes::IUTF8;
        tcsetattr(&slave, OptionalActions::Now, &modes)?;
        tcsetwinsize(&master, winsize(size))?;
        fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
        // To the runtime our side looks like two pipes, one to read from and one to write to.
        let output = PtyOutput::from_owned_fd_unchecked(master.try_clone()?)?;
        let pty = Self {
            writer: pipe::Sender::from_owned_fd_unchecked(master)?,
            input_queue: Arc::default(),
        };
        Ok((pty, output, slave))
    }

    pub(super) fn input(&self) -> PtyInput {
        PtyInput(self.input_queue.clone())
    }

    /// Writes one batch of queued input, as soon as there is some and the terminal has room.
    pub(super) async fn write_pending(&self) {
        self.input_queue.wait_for_input().await;
        let resized = self.input_queue.lock_pending().size.take();
        if let Some(size) = resized {
            // This fails when the command has closed the terminal; then the size does not matter.
            let _ = tcsetwinsize(&self.writer, winsize(size));
            return;
        }
        if self.writer.writable().await.is_err() {
            return self.close_input();
        }
        let next: Vec<u8> = self
            .input_queue
            .lock_pending()
            .bytes
            .iter()
            .take(MAX_WRITE_BYTES)
            .copied()
            .collect();
        match self.writer.try_write(&next) {
            Ok(count) => drop(self.input_queue.lock_pending().bytes.drain(..count)),
            // `writable` waits until there is room again.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.close_input(),
        }
    }

    /// Rejects further input: nothing reads it any more.
    fn close_input(&self) {
        let mut pending = self.input_queue.lock_pending();
        pending.closed = true;
        pending.bytes.clear();
        pending.size = None;
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        self.close_input();
    }
}

fn winsize(size: PtySize) -> Winsize {
    Winsize {
        ws_col: size.columns,
        ws_row: size.rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
