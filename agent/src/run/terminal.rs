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

use crate::reaper::Size;

/// Bytes of keys that wait for a program to read them: a large paste, not a program's input.
const KEYS: usize = 64 * 1024;

/// Bytes of keys that are typed at a time; about what a terminal takes.
const TYPED: usize = 4096;

/// Why a key was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PressError {
    #[error("the program does not read its keys; {KEYS} bytes of them wait already")]
    Full,
    #[error("the command has ended")]
    Gone,
}

/// Presses keys of a command's terminal, from wherever; never waits.
#[derive(Clone)]
pub struct Keyboard(Arc<Keys>);

/// What is typed may be a password, so it is not shown.
impl std::fmt::Debug for Keyboard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keyboard(…)")
    }
}

impl Keyboard {
    /// Presses keys, all of them or none.
    pub fn press(&self, bytes: &[u8]) -> Result<(), PressError> {
        let mut desk = self.0.desk();
        if desk.gone {
            return Err(PressError::Gone);
        }
        if desk.pressed.len() + bytes.len() > KEYS {
            return Err(PressError::Full);
        }
        desk.pressed.extend(bytes);
        self.0.bell.notify_one();
        Ok(())
    }

    /// Changes the size of the screen; the program is told by a signal, as by any terminal.
    pub fn resize(&self, size: Size) -> Result<(), PressError> {
        let mut desk = self.0.desk();
        if desk.gone {
            return Err(PressError::Gone);
        }
        desk.resized = Some(size);
        self.0.bell.notify_one();
        Ok(())
    }
}

#[derive(Default)]
struct Keys {
    desk: Mutex<Desk>,
    /// Rings when something lies on the desk.
    bell: Notify,
}

/// What was pressed and is not typed yet.
#[derive(Default)]
struct Desk {
    pressed: VecDeque<u8>,
    resized: Option<Size>,
    gone: bool,
}

impl Keys {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Whoever panicked left whole values behind: each change is one call.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait(&self) {
        loop {
            let rung = self.bell.notified();
            {
                let desk = self.desk();
                if desk.resized.is_some() || !desk.pressed.is_empty() {
                    return;
                }
            }
            rung.await;
        }
    }
}

/// What is shown on a command's terminal. That nobody has the other side open is an error.
pub(super) type Screen = pipe::Receiver;

/// The side of a command's terminal that keys come from.
pub(super) struct Terminal {
    ours: pipe::Sender,
    keys: Arc<Keys>,
}

impl Terminal {
    /// Makes one; the last value is the command's side.
    pub(super) fn open(size: Size) -> io::Result<(Self, Screen, OwnedFd)> {
        // Neither side may become the terminal of this process, nor be left to others it starts.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let theirs = ioctl_tiocgptpeer(&ours, flags)?;
        let mut modes = tcgetattr(&theirs)?;
        // Erasing takes back whole characters.
        modes.input_modes |= InputModes::IUTF8;
        tcsetattr(&theirs, OptionalActions::Now, &modes)?;
        tcsetwinsize(&ours, window(size))?;
        fcntl_setfl(&ours, fcntl_getfl(&ours)? | OFlags::NONBLOCK)?;
        // To the runtime our side is like two pipes: bytes come out of one and go into the other.
        let screen = Screen::from_owned_fd_unchecked(ours.try_clone()?)?;
        let terminal = Self {
            ours: pipe::Sender::from_owned_fd_unchecked(ours)?,
            keys: Arc::default(),
        };
        Ok((terminal, screen, theirs))
    }

    pub(super) fn keyboard(&self) -> Keyboard {
        Keyboard(self.keys.clone())
    }

    /// Takes one step of typing what was pressed, as soon as there is something to type and room.
    pub(super) async fn type_some(&self) {
        self.keys.wait().await;
        let resized = self.keys.desk().resized.take();
        if let Some(size) = resized {
            // A terminal that nobody uses any more has no size.
            let _ = tcsetwinsize(&self.ours, window(size));
            return;
        }
        if self.ours.writable().await.is_err() {
            return self.forget();
        }
        let next: Vec<u8> = self
            .keys
            .desk()
            .pressed
            .iter()
            .take(TYPED)
            .copied()
            .collect();
        match self.ours.try_write(&next) {
            Ok(count) => drop(self.keys.desk().pressed.drain(..count)),
            // It says when there is room again.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.forget(),
        }
    }

    /// Nothing reads these keys any more.
    fn forget(&self) {
        let mut desk = self.keys.desk();
        desk.gone = true;
        desk.pressed.clear();
        desk.resized = None;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.forget();
    }
}

fn window(size: Size) -> Winsize {
    Winsize {
        ws_col: size.columns,
        ws_row: size.rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
