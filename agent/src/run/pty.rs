//! The terminal of an interactive command: its screen is read, its keys are pressed.

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

/// Bytes of keys that wait for a program to read them: a large paste, not a program's input.
const MAX_PENDING_BYTES: usize = 64 * 1024;

/// Bytes of keys that are typed at a time; about what a terminal takes.
const MAX_WRITE_BYTES: usize = 4096;

/// Why a key was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PtyInputError {
    #[error("the program does not read its keys; {MAX_PENDING_BYTES} bytes of them wait already")]
    Full,
    #[error("the command has ended")]
    Gone,
}

/// Presses keys of a command's terminal, from wherever; never waits.
#[derive(Clone)]
pub struct PtyInput(Arc<PtyInputQueue>);

/// What is typed may be a password, so it is not shown.
impl std::fmt::Debug for PtyInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keyboard(…)")
    }
}

impl PtyInput {
    /// Presses keys, all of them or none.
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

    /// Changes the size of the screen; the program is told by a signal, as by any terminal.
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
    /// Rings when something lies on the desk.
    input_ready: Notify,
}

/// What was pressed and is not typed yet.
#[derive(Default)]
struct PendingPtyInput {
    bytes: VecDeque<u8>,
    size: Option<PtySize>,
    closed: bool,
}

impl PtyInputQueue {
    fn lock_pending(&self) -> MutexGuard<'_, PendingPtyInput> {
        // Whoever panicked left whole values behind: each change is one call.
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

/// What is shown on a command's terminal. That nobody has the other side open is an error.
pub(super) type PtyOutput = pipe::Receiver;

/// The side of a command's terminal that keys come from.
pub(super) struct Pty {
    writer: pipe::Sender,
    input_queue: Arc<PtyInputQueue>,
}

impl Pty {
    /// Makes one; the last value is the command's side.
    pub(super) fn open(size: PtySize) -> io::Result<(Self, PtyOutput, OwnedFd)> {
        // Neither side may become the terminal of this process, nor be left to others it starts.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        let mut modes = tcgetattr(&slave)?;
        // Erasing takes back whole characters.
        modes.input_modes |= InputModes::IUTF8;
        tcsetattr(&slave, OptionalActions::Now, &modes)?;
        tcsetwinsize(&master, winsize(size))?;
        fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
        // To the runtime our side is like two pipes: bytes come out of one and go into the other.
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

    /// Takes one step of typing what was pressed, as soon as there is something to type and room.
    pub(super) async fn write_pending(&self) {
        self.input_queue.wait_for_input().await;
        let resized = self.input_queue.lock_pending().size.take();
        if let Some(size) = resized {
            // A terminal that nobody uses any more has no size.
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
            // It says when there is room again.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.close_input(),
        }
    }

    /// Nothing reads these keys any more.
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
