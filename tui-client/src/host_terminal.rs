//! The terminal: taken for the screen, given back, and taken again after a shell had it.

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

/// The terminal, as it was before once this is dropped.
pub(crate) struct HostTerminal {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    mouse: bool,
    /// Whether it is ours at present, and not a shell's.
    acquired: bool,
    /// What the window is called, as far as we said.
    title: String,
}

impl HostTerminal {
    pub(crate) fn open(mouse: bool) -> anyhow::Result<Self> {
        // What a panic says is read on the usual screen.
        let previous_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_terminal();
            previous_hook(panic);
        }));
        let backend = CrosstermBackend::new(BufWriter::with_capacity(64 * 1024, stdout()));
        let terminal = Terminal::new(backend).context("preparing the terminal")?;
        let mut screen = Self {
            terminal,
            mouse,
            acquired: false,
            title: String::new(),
        };
        screen.acquire()?;
        Ok(screen)
    }

    /// Whether it is ours at present, and not a shell's.
    pub(crate) fn is_acquired(&self) -> bool {
        self.acquired
    }

    /// Gives the terminal back to whoever had it before.
    pub(crate) fn release(&mut self) {
        self.acquired = false;
        restore_terminal();
    }

    /// Leaves the terminal to a shell that has taken it already.
    pub(crate) fn mark_released(&mut self) {
        self.acquired = false;
    }

    /// Takes the terminal again, whatever was done to it meanwhile; gives its size.
    pub(crate) fn reacquire(&mut self) -> anyhow::Result<Size> {
        // Raw mode is remembered, so that it is not entered twice; a shell may have left it since.
        disable_raw_mode().context("preparing the terminal")?;
        self.acquire()?;
        self.title.clear();
        let (width, height) = crossterm::terminal::size().context("asking for its size")?;
        let size = Size { width, height };
        self.clear(size)?;
        Ok(size)
    }

    fn acquire(&mut self) -> anyhow::Result<()> {
        // From here on there is something to give back.
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

    /// Empties it, so that the next picture is drawn whole.
    pub(crate) fn clear(&mut self, size: Size) -> anyhow::Result<()> {
        // `Terminal::clear` would ask the terminal where its cursor is and wait for the answer,
        // which the reader of keys may take away.
        let area = Rect::new(0, 0, size.width, size.height);
        self.terminal.resize(area).context("clearing the terminal")
    }

    /// Draws a picture below a title.
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
    // A terminal that is gone needs no tidying.
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
