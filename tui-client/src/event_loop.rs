//! Runs the app on a real terminal: feeds it keys, messages and ticks, and draws its frames.

use std::io::{IsTerminal, stdin, stdout};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use crossterm::clipboard::CopyToClipboard;
use crossterm::event::{Event as TerminalEvent, EventStream, KeyEventKind};
use crossterm::execute;
use futures_util::{FutureExt, StreamExt};
use pvp_client::{
    ApiClient, ConnectOptions, Connection, ConnectionEvent, ConnectionEvents, EndReason, Link, now,
};
use ratatui::layout::Size;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::app::{App, AppEffect, AppInput, NoticeLevel};
use crate::config::TuiConfig;
use crate::history::HistoryWriter;
use crate::host_terminal::HostTerminal;
use crate::requests::RequestDispatcher;
use crate::signals::{self, ProcessSignal, SignalListener};
use crate::{draw, notify};

/// Shortest time between two frames when messages arrive; a person sees no more than that.
const FRAME_INTERVAL: Duration = Duration::from_millis(30);

/// Shortest time between two frames after a key.
const KEY_FRAME_INTERVAL: Duration = Duration::from_millis(8);

/// Time between two ticks of the app's clock.
const TICK_INTERVAL: Duration = Duration::from_millis(500);

/// How long to wait for SIGTERM after SIGCONT: a shell that ends a stopped job sends both at once,
/// but they may arrive one after the other.
const TERMINATE_GRACE: Duration = Duration::from_millis(100);

/// The most messages handled in a row before keys are handled again.
const MAX_EVENTS_PER_TURN: usize = 256;

/// What to connect to, and the settings of the screen.
pub struct LaunchOptions {
    pub link: Link,
    pub options: ConnectOptions,
    pub config: TuiConfig,
    /// The file that keeps the input history; `None` keeps none.
    pub history_path: Option<PathBuf>,
}

/// Joins a session and shows it until the user leaves.
pub async fn run(launch_options: LaunchOptions) -> anyhow::Result<()> {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        bail!("the screen needs a terminal; use --plain without one");
    }
    let (connection, events) =
        Connection::open(launch_options.link.clone(), launch_options.options).await?;
    let (width, height) = crossterm::terminal::size().context("reading the terminal's size")?;
    let app = App::new(launch_options.config, Size { width, height }, now());
    let session = connection.session().clone();
    let (replies, inbox) = mpsc::unbounded_channel();
    let history = launch_options.history_path.filter(|_| app.config.history);
    let history_writer = history.map(|path| HistoryWriter::start(path, replies.clone()));
    let history_writer = history_writer.transpose()?;
    let requests = RequestDispatcher::new(
        ApiClient::new(launch_options.link),
        session,
        connection,
        replies,
    );
    requests.list_programs();
    let terminal = HostTerminal::open(app.config.mouse)?;
    EventLoop {
        app,
        terminal,
        requests,
        history_writer,
        events: Some(events),
        in_background: false,
        needs_redraw: true,
        next_frame_at: Instant::now(),
        last_frame_at: None,
        finished: false,
    }
    .run_until_quit(inbox)
    .await
}

struct EventLoop {
    /// The state of the screen.
    app: App,
    /// The terminal to draw on.
    terminal: HostTerminal,
    /// Sends the app's requests to the server.
    requests: RequestDispatcher,
    /// Writes the history file; `None` if no history is kept.
    history_writer: Option<HistoryWriter>,
    /// What happens on the connection; `None` once it has ended.
    events: Option<ConnectionEvents>,
    /// Whether we were continued while a shell has the terminal.
    in_background: bool,
    /// Whether something changed since the last frame.
    needs_redraw: bool,
    /// When to draw the next frame, if one is needed.
    next_frame_at: Instant,
    /// When the last frame was drawn; `None` before the first.
    last_frame_at: Option<Instant>,
    /// Whether the user has quit or a signal ended us.
    finished: bool,
}

impl EventLoop {
    async fn run_until_quit(
        mut self,
        mut inbox: mpsc::UnboundedReceiver<AppInput>,
    ) -> anyhow::Result<()> {
        let mut terminal_events = EventStream::new();
        let mut ticks = interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut signals = SignalListener::listen()?;
        while !self.finished {
            if !self.terminal.is_acquired() {
                // Until a shell gives the terminal back there is nobody to read from or draw for.
                tokio::select! {
                    biased;
                    signal = signals.next() => self.on_signal(signal)?,
                    () = sleep(TERMINATE_GRACE), if self.in_background => self.reacquire_terminal()?,
                }
                continue;
            }
            tokio::select! {
                biased;
                event = terminal_events.next() => match event {
                    Some(event) => self.on_terminal_event(event.context("reading the terminal")?)?,
                    None => return Ok(()),
                },
                signal = signals.next() => self.on_signal(signal)?,
                () = sleep_until(self.next_frame_at), if self.needs_redraw => self.draw()?,
                Some(reply) = inbox.recv() => self.handle_input(reply, FRAME_INTERVAL)?,
                _ = ticks.tick() => self.on_tick()?,
                event = next_event(&mut self.events) => self.on_connection_events(event)?,
            }
        }
        Ok(())
    }

    fn on_signal(&mut self, signal: ProcessSignal) -> anyhow::Result<()> {
        match signal {
            ProcessSignal::Terminate => {
                self.finished = true;
                Ok(())
            }
            ProcessSignal::Suspend => self.suspend(),
            ProcessSignal::Continue => self.on_continue(),
        }
    }

    /// Takes the terminal back after SIGCONT, unless a shell has it. Such a shell continues us
    /// either to end us, so we wait for that, or in the background, where the kernel stops any
    /// process that takes the terminal.
    fn on_continue(&mut self) -> anyhow::Result<()> {
        self.in_background = !signals::in_foreground();
        if self.in_background {
            self.terminal.mark_released();
            return Ok(());
        }
        self.reacquire_terminal()
    }

    fn reacquire_terminal(&mut self) -> anyhow::Result<()> {
        self.in_background = false;
        let size = self.terminal.reacquire()?;
        self.handle_input(AppInput::Resize(size), KEY_FRAME_INTERVAL)
    }

    /// Gives the terminal back to the shell and stops; [`ProcessSignal::Continue`] says that we go
    /// on.
    fn suspend(&mut self) -> anyhow::Result<()> {
        if !signals::has_job_control_shell() {
            self.needs_redraw = true;
            self.app.show_notice(
                NoticeLevel::Error,
                "cannot suspend: there is no shell to return to",
            );
            return Ok(());
        }
        self.in_background = false;
        self.terminal.release();
        signals::stop_process_group()
    }

    fn on_terminal_event(&mut self, event: TerminalEvent) -> anyhow::Result<()> {
        let input = match event {
            TerminalEvent::Key(key) if key.kind == KeyEventKind::Release => return Ok(()),
            TerminalEvent::Key(key) => AppInput::Key(key),
            TerminalEvent::Paste(text) => AppInput::Paste(text),
            TerminalEvent::Mouse(event) => AppInput::Mouse(event),
            TerminalEvent::FocusGained => AppInput::FocusChanged(true),
            TerminalEvent::FocusLost => AppInput::FocusChanged(false),
            TerminalEvent::Resize(width, height) => AppInput::Resize(Size { width, height }),
        };
        self.handle_input(input, KEY_FRAME_INTERVAL)
    }

    /// Handles an event of the connection and those that are already queued behind it.
    fn on_connection_events(&mut self, event: Option<ConnectionEvent>) -> anyhow::Result<()> {
        self.on_connection_event(event)?;
        for _ in 0..MAX_EVENTS_PER_TURN {
            match next_event(&mut self.events).now_or_never() {
                Some(event) => self.on_connection_event(event)?,
                None => break,
            }
        }
        Ok(())
    }

    fn on_connection_event(&mut self, event: Option<ConnectionEvent>) -> anyhow::Result<()> {
        let Some(event) = event else {
            self.events = None;
            return Ok(());
        };
        match connection_input(event) {
            Some(input) => self.handle_input(input, FRAME_INTERVAL),
            None => Ok(()),
        }
    }

    fn on_tick(&mut self) -> anyhow::Result<()> {
        let changes_with_time = self.app.changes_with_time();
        let needed_redraw = self.needs_redraw;
        self.handle_input(AppInput::Tick, FRAME_INTERVAL)?;
        self.needs_redraw = needed_redraw || changes_with_time;
        Ok(())
    }

    /// Updates the app, performs its effects and schedules a frame, `min_interval` after the last
    /// one at the earliest.
    fn handle_input(&mut self, input: AppInput, min_interval: Duration) -> anyhow::Result<()> {
        let effects = self.app.update(now(), input);
        let soonest = self
            .last_frame_at
            .map_or(Instant::now(), |last| last + min_interval);
        self.next_frame_at = if self.needs_redraw {
            self.next_frame_at.min(soonest)
        } else {
            soonest
        };
        self.needs_redraw = true;
        effects
            .into_iter()
            .try_for_each(|effect| self.perform(effect))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the server gets the others")]
    fn perform(&mut self, effect: AppEffect) -> anyhow::Result<()> {
        match effect {
            AppEffect::Copy(text) => {
                execute!(stdout(), CopyToClipboard::to_clipboard_from(text))
                    .context("writing to the terminal")?;
            }
            AppEffect::Notify => {
                let waiting = self.app.view.awaiting_my_vote().count();
                notify::send_notifications(&mut stdout(), &self.app.config.notify, waiting)
                    .context("writing to the terminal")?;
            }
            AppEffect::Redraw => self.terminal.clear(self.app.size)?,
            AppEffect::Suspend => self.suspend()?,
            AppEffect::AppendHistory(text) => {
                if let Some(history_writer) = &self.history_writer {
                    history_writer.append(text);
                }
            }
            AppEffect::Quit => self.finished = true,
            other => self.requests.run_effect(other),
        }
        Ok(())
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        let title = draw::window_title(&self.app);
        let mut drawn = Default::default();
        let app = &self.app;
        self.terminal
            .draw(title, |frame| drawn = draw::draw(app, frame))
            .context("drawing")?;
        self.app.record_drawn(drawn);
        self.needs_redraw = false;
        self.last_frame_at = Some(Instant::now());
        Ok(())
    }
}

/// What an event of the connection is to the app; `None` if that is nothing.
pub(crate) fn connection_input(event: ConnectionEvent) -> Option<AppInput> {
    Some(match event {
        ConnectionEvent::Message { envelope, .. } => AppInput::Message(envelope?),
        ConnectionEvent::Connected { resumed } => AppInput::Connected { resumed },
        ConnectionEvent::RecordWarning(warning) => AppInput::RecordWarning(warning),
        ConnectionEvent::Disconnected { why } => AppInput::Disconnected { reason: why },
        ConnectionEvent::Ended(ending) => {
            let reason = match ending {
                EndReason::Closed => "the connection is closed".to_owned(),
                EndReason::Left => "you left".to_owned(),
                EndReason::Refused(report) => report.message,
                EndReason::RecordChanged(warning) => warning.to_string(),
            };
            AppInput::Closed { reason }
        }
    })
}

/// The next event; waits forever once the connection has ended.
pub(crate) async fn next_event(events: &mut Option<ConnectionEvents>) -> Option<ConnectionEvent> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}
