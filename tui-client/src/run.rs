//! The screen on a real terminal: keys, messages and the clock go in, frames come out.

use std::io::{IsTerminal, stdin, stdout};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use crossterm::clipboard::CopyToClipboard;
use crossterm::event::{Event as Pressed, EventStream, KeyEventKind};
use crossterm::execute;
use futures_util::{FutureExt, StreamExt};
use pvp_client::{
    ApiClient, ConnectOptions, Connection, ConnectionEvent, ConnectionEvents, EndReason, Link, now,
};
use ratatui::layout::Size;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::app::{App, Effect, Input, Tone};
use crate::config::Config;
use crate::errands::Errands;
use crate::history::Keeper;
use crate::screen::Screen;
use crate::signals::{self, Asked, Signals};
use crate::{draw, notify};

/// Time between two frames while things happen; a person sees no more.
const FRAME: Duration = Duration::from_millis(30);

/// Time between two frames after a key.
const KEY_FRAME: Duration = Duration::from_millis(8);

/// How often the clock on the screen moves.
const TICK: Duration = Duration::from_millis(500);

/// How long an end may come after the signal that makes it possible: a shell sends both at once, but
/// they may be heard one after the other.
const END_COMES: Duration = Duration::from_millis(100);

/// Messages that are taken at a time, before keys are looked at again.
const BATCH: usize = 256;

/// What to show, and how.
pub struct Start {
    pub link: Link,
    pub options: ConnectOptions,
    pub config: Config,
    /// Where what is sent is kept for the next time.
    pub history: Option<PathBuf>,
}

/// Joins a session and shows it until the person leaves.
pub async fn run(start: Start) -> anyhow::Result<()> {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        bail!("this needs a terminal; --plain works without one");
    }
    let (connection, events) = Connection::open(start.link.clone(), start.options).await?;
    let (width, height) = crossterm::terminal::size().context("asking for the terminal's size")?;
    let app = App::new(start.config, Size { width, height }, now());
    let session = connection.session().clone();
    let (replies, inbox) = mpsc::unbounded_channel();
    let history = start.history.filter(|_| app.config.history);
    let keeper = history.map(|path| Keeper::start(path, replies.clone()));
    let keeper = keeper.transpose()?;
    let errands = Errands::new(ApiClient::new(start.link), session, connection, replies);
    let screen = Screen::open(app.config.mouse)?;
    Loop {
        app,
        screen,
        errands,
        keeper,
        events: Some(events),
        behind: false,
        dirty: true,
        frame_at: Instant::now(),
        last_frame: None,
        over: false,
    }
    .turn(inbox)
    .await
}

struct Loop {
    app: App,
    screen: Screen,
    errands: Errands,
    /// `None` if nothing is kept.
    keeper: Option<Keeper>,
    /// `None` once the connection is over.
    events: Option<ConnectionEvents>,
    /// Whether we were continued while a shell has the terminal.
    behind: bool,
    dirty: bool,
    frame_at: Instant,
    last_frame: Option<Instant>,
    over: bool,
}

impl Loop {
    async fn turn(mut self, mut inbox: mpsc::UnboundedReceiver<Input>) -> anyhow::Result<()> {
        let mut pressed = EventStream::new();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut signals = Signals::listen()?;
        while !self.over {
            if !self.screen.is_held() {
                // Until a shell gives it back there is nobody to ask or to tell.
                tokio::select! {
                    biased;
                    asked = signals.next() => self.asked(asked)?,
                    () = sleep(END_COMES), if self.behind => self.take_again()?,
                }
                continue;
            }
            tokio::select! {
                biased;
                event = pressed.next() => match event {
                    Some(event) => self.pressed(event.context("reading the terminal")?)?,
                    None => return Ok(()),
                },
                asked = signals.next() => self.asked(asked)?,
                () = sleep_until(self.frame_at), if self.dirty => self.draw()?,
                Some(reply) = inbox.recv() => self.take(reply, FRAME)?,
                _ = ticks.tick() => self.tick()?,
                event = next(&mut self.events) => self.happened(event)?,
            }
        }
        Ok(())
    }

    fn asked(&mut self, asked: Asked) -> anyhow::Result<()> {
        match asked {
            Asked::End => {
                self.over = true;
                Ok(())
            }
            Asked::Suspend => self.suspend(),
            Asked::Continue => self.come_back(),
        }
    }

    /// Takes the terminal again. A shell that has it itself continues us either to end us, which is
    /// waited for, or in the background, where the kernel stops whoever takes the terminal.
    fn come_back(&mut self) -> anyhow::Result<()> {
        self.behind = !signals::in_foreground();
        if self.behind {
            self.screen.let_go();
            return Ok(());
        }
        self.take_again()
    }

    fn take_again(&mut self) -> anyhow::Result<()> {
        self.behind = false;
        let size = self.screen.take_again()?;
        self.take(Input::Resize(size), KEY_FRAME)
    }

    /// Gives the terminal back to the shell and stops; [`Asked::Continue`] says that we go on.
    fn suspend(&mut self) -> anyhow::Result<()> {
        if !signals::has_shell() {
            self.dirty = true;
            self.app.tell(
                Tone::Bad,
                "no shell is here that could bring the screen back",
            );
            return Ok(());
        }
        self.behind = false;
        self.screen.give_back();
        signals::stop()
    }

    fn pressed(&mut self, event: Pressed) -> anyhow::Result<()> {
        let input = match event {
            Pressed::Key(key) if key.kind == KeyEventKind::Release => return Ok(()),
            Pressed::Key(key) => Input::Key(key),
            Pressed::Paste(text) => Input::Paste(text),
            Pressed::Mouse(event) => Input::Mouse(event),
            Pressed::FocusGained => Input::Focus(true),
            Pressed::FocusLost => Input::Focus(false),
            Pressed::Resize(width, height) => Input::Resize(Size { width, height }),
        };
        self.take(input, KEY_FRAME)
    }

    /// Takes what happened on the connection, and what else already has.
    fn happened(&mut self, event: Option<ConnectionEvent>) -> anyhow::Result<()> {
        self.take_event(event)?;
        for _ in 0..BATCH {
            match next(&mut self.events).now_or_never() {
                Some(event) => self.take_event(event)?,
                None => break,
            }
        }
        Ok(())
    }

    fn take_event(&mut self, event: Option<ConnectionEvent>) -> anyhow::Result<()> {
        let input = match event {
            Some(ConnectionEvent::Message {
                envelope: Some(envelope),
                ..
            }) => Input::Told(envelope),
            Some(ConnectionEvent::Message { envelope: None, .. }) => return Ok(()),
            Some(ConnectionEvent::Connected { resumed }) => Input::Up { resumed },
            Some(ConnectionEvent::Disconnected { why }) => Input::Down { why },
            Some(ConnectionEvent::Ended(ending)) => {
                let why = match ending {
                    EndReason::Closed => "the connection is closed".to_owned(),
                    EndReason::Left => "you left".to_owned(),
                    EndReason::Refused(report) => report.message,
                };
                Input::Over { why }
            }
            None => {
                self.events = None;
                return Ok(());
            }
        };
        self.take(input, FRAME)
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        let timely = self.app.is_timely();
        let dirty = self.dirty;
        self.take(Input::Tick, FRAME)?;
        self.dirty = dirty || timely;
        Ok(())
    }

    /// Takes an input; a frame follows soon, after a key at once.
    fn take(&mut self, input: Input, pace: Duration) -> anyhow::Result<()> {
        let effects = self.app.update(now(), input);
        let soonest = self.last_frame.map_or(Instant::now(), |last| last + pace);
        self.frame_at = if self.dirty {
            self.frame_at.min(soonest)
        } else {
            soonest
        };
        self.dirty = true;
        effects
            .into_iter()
            .try_for_each(|effect| self.perform(effect))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the server does the others")]
    fn perform(&mut self, effect: Effect) -> anyhow::Result<()> {
        match effect {
            Effect::Copy(text) => {
                execute!(stdout(), CopyToClipboard::to_clipboard_from(text))
                    .context("writing to the terminal")?;
            }
            Effect::Call => {
                let waiting = self.app.view.awaiting_my_vote().count();
                notify::call(&mut stdout(), &self.app.config.notify, waiting)
                    .context("writing to the terminal")?;
            }
            Effect::Redraw => self.screen.clear(self.app.size)?,
            Effect::Suspend => self.suspend()?,
            Effect::Keep(text) => {
                if let Some(keeper) = &self.keeper {
                    keeper.keep(text);
                }
            }
            Effect::Quit => self.over = true,
            other => self.errands.run(other),
        }
        Ok(())
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        let title = draw::window_title(&self.app);
        let mut drawn = Default::default();
        let app = &self.app;
        self.screen
            .draw(title, |frame| drawn = draw::draw(app, frame))
            .context("drawing")?;
        self.app.drawn(drawn);
        self.dirty = false;
        self.last_frame = Some(Instant::now());
        Ok(())
    }
}

/// The next event; never, once there are none.
async fn next(events: &mut Option<ConnectionEvents>) -> Option<ConnectionEvent> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}
