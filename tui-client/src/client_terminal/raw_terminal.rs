//! The terminal that the client's is shown on: every byte of it comes here untouched, until it is
//! given back as it was.

use std::io::{self, Stdin, stdin};
use std::sync::{Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr};

use super::terminal_io::write_to_terminal;

/// How the terminal was before, for whoever has to give it back.
static MODES_BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Leaves the alternate screen and what else a card or a client may have switched on.
const AFTER_PANIC: &[u8] =
    b"\x18\x1b\\\x1b[0m\x1b[r\x1b[?1049l\x1b[?25h\x1b[?2004l\x1b[?1000;1002;1003;1006;1004l";

/// Our own terminal, without line editing and without keys that send signals. Dropping this gives it
/// back as it was.
pub(super) struct RawTerminal {
    stdin: Stdin,
    before: Termios,
    is_raw: bool,
}

impl RawTerminal {
    pub(super) fn take() -> io::Result<Self> {
        let stdin = stdin();
        let before = tcgetattr(&stdin)?;
        let previous_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_after_panic();
            previous_hook(panic);
        }));
        let mut terminal = Self {
            stdin,
            before,
            is_raw: false,
        };
        terminal.make_raw()?;
        Ok(terminal)
    }

    /// How the terminal was before, for the client's own.
    pub(super) fn modes_before(&self) -> &Termios {
        &self.before
    }

    pub(super) fn size(&self) -> io::Result<Winsize> {
        Ok(tcgetwinsize(&self.stdin)?)
    }

    /// Takes the terminal, whatever a shell has made of it meanwhile.
    pub(super) fn make_raw(&mut self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        *lock_modes() = Some(self.before.clone());
        self.is_raw = true;
        Ok(tcsetattr(&self.stdin, OptionalActions::Now, &raw)?)
    }

    /// Gives the terminal back as it was.
    pub(super) fn give_back(&mut self) -> io::Result<()> {
        self.is_raw = false;
        lock_modes().take();
        Ok(tcsetattr(
            &self.stdin,
            OptionalActions::Drain,
            &self.before,
        )?)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if self.is_raw {
            // If the terminal is gone, there is nothing to give back.
            let _ = self.give_back();
        }
    }
}

fn lock_modes() -> std::sync::MutexGuard<'static, Option<Termios>> {
    MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A panic message must be readable.
fn restore_after_panic() {
    if let Some(before) = lock_modes().take() {
        // If the terminal is gone, there is nothing to restore.
        let _ = write_to_terminal(AFTER_PANIC);
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}
