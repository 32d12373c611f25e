//! The terminal that we run in: acquires it for the screen and restores it afterwards.

use std::io::{BufWriter, Stdout, Write, stdout};

use anyhow::Context;
use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, DisableMouseCapture, EnableBracketedPaste,
    EnableFocusChange, EnableMouseCapture,
};
use crossterm::execute;
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    SetTitle, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Rect, Size};
use ratatui::{Frame, Terminal};

/// The terminal that we run in. Dropping this restores the terminal.
pub(crate) struct HostTerminal {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    mouse: bool,
    /// Whether we have the terminal at present, and not a shell.
    acquired: bool,
    /// The window title that we set last.
    title: String,
}

impl HostTerminal {
    pub(crate) fn open(mouse: bool) -> anyhow::Result<Self> {
        // A panic message must be readable, which it is only on the normal screen.
        let previous_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_terminal();
            previous_hook(panic);
        }));
        let backend = CrosstermBackend::new(BufWriter::with_capacity(64 * 1024, stdout()));
        let terminal = Terminal::new(backend).context("preparing the terminal")?;
        let mut host_terminal = Self {
            terminal,
            mouse,
            acquired: false,
            title: String::new(),
        };
        host_terminal.acquire()?;
        Ok(host_terminal)
    }

    /// Whether we have the terminal at present, and not a shell.
    pub(crate) fn is_acquired(&self) -> bool {
        self.acquired
    }

    /// Restores the terminal and leaves it to the shell.
    pub(crate) fn release(&mut self) {
        self.acquired = false;
        restore_terminal();
    }

    /// Records that a shell has already taken the terminal.
    pub(crate) fn mark_released(&mut self) {
        self.acquired = false;
    }

    /// Takes the terminal back, whatever state it was left in; returns its size.
    pub(crate) fn reacquire(&mut self) -> anyhow::Result<Size> {
        // crossterm remembers raw mode and does not enter it twice, but a shell may have left it.
        disable_raw_mode().context("preparing the terminal")?;
        self.acquire()?;
        self.title.clear();
        let (width, height) = crossterm::terminal::size().context("reading the terminal's size")?;
        let size = Size { width, height };
        self.clear(size)?;
        Ok(size)
    }

    fn acquire(&mut self) -> anyhow::Result<()> {
        // From here on there is something to restore.
        self.acquired = true;
        enable_raw_mode().context("preparing the terminal")?;
        let taken = execute!(
            stdout(),
            EnterAlternateScreen,
            EnableBracketedPaste,
            EnableFocusChange
        );
        let taken = taken.and_then(|()| match self.mouse {
            true => execute!(stdout(), EnableMouseCapture),
            false => Ok(()),
        });
        taken.context("preparing the terminal")
    }

    /// Clears the terminal, so that the next frame is drawn completely.
    pub(crate) fn clear(&mut self, size: Size) -> anyhow::Result<()> {
        // `Terminal::clear` would ask the terminal for its cursor position and wait for the answer,
        // which the event reader may consume.
        let area = Rect::new(0, 0, size.width, size.height);
        self.terminal.resize(area).context("clearing the terminal")
    }

    /// Draws a frame and sets the window title.
    pub(crate) fn draw(
        &mut self,
        title: String,
        render: impl FnOnce(&mut Frame<'_>),
    ) -> std::io::Result<()> {
        execute!(stdout(), BeginSynchronizedUpdate)?;
        if title != self.title {
            execute!(stdout(), SetTitle(&title))?;
            self.title = title;
        }
        self.terminal.draw(render)?;
        execute!(stdout(), EndSynchronizedUpdate)?;
        stdout().flush()
    }
}

impl Drop for HostTerminal {
    fn drop(&mut self) {
        if self.acquired {
            restore_terminal();
        }
    }
}

fn restore_terminal() {
    // If the terminal is gone, there is nothing to restore.
    let _ = execute!(
        stdout(),
        SetTitle(""),
        DisableMouseCapture,
        DisableFocusChange,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        crossterm::cursor::Show
    );
    let _ = disable_raw_mode();
}
