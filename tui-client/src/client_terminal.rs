//! Runs an agent client in a terminal of its own, shows that terminal on ours, and lets the person
//! there answer what waits: a key opens a card over the client's screen.
//!
//! Everything that the client prints and everything that the person types passes through untouched,
//! except that one key. While the card is open, keys are for the card and what the client prints is
//! kept. The client cannot answer: it has no way to write to our terminal's input, nor to the card.

mod answer_card;
mod answer_key;
mod client_pty;
mod client_screen;
mod escape_parser;
mod key_reader;
mod leader;
mod person;
mod raw_terminal;
mod terminal_io;
mod terminal_modes;

use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use pvp_protocol::ParticipantId;
use ratatui::layout::Size;
use rustix::process::{Pid, Signal};
use rustix::termios::Winsize;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

pub use answer_key::AnswerKey;
pub use leader::{LEADER_SUBCOMMAND, run_internal_subcommand};
pub use person::PersonAtTerminal;

use crate::app::{AppEffect, AppInput};
use crate::config::TuiConfig;
use crate::{notify, signals};
use answer_card::{AnswerCard, CardNext, KeyArrival};
use answer_key::AnswerKeyWatcher;
use client_pty::{ClientOutput, ClientPty, LedClient, LedClientEvent};
use client_screen::{ClientRedraw, ClientScreen, bounded_size};
use key_reader::{KeyReader, TerminalInput};
use person::PersonConnection;
use raw_terminal::RawTerminal;
use terminal_io::{TerminalReader, TerminalWriter};

/// Bytes that wait for the client to read them. When there are more, the terminal is not read.
const MAX_UNREAD_BYTES: usize = 1024 * 1024;

/// How long an ESC waits for the rest of a sequence before it is a key.
const ESCAPE_TIME: Duration = Duration::from_millis(50);

/// Shortest time between two frames of the card; a person sees no more than that.
const FRAME_INTERVAL: Duration = Duration::from_millis(16);

/// Time between two ticks of an open card's clock.
const TICK_INTERVAL: Duration = Duration::from_millis(500);

/// How long a sequence of the terminal that began on the card is waited for when the card is closed.
const REST_TIME: Duration = Duration::from_millis(200);

/// How long a client has another size, so that it draws everything again.
const REDRAW_TIME: Duration = Duration::from_millis(60);

/// How long to wait for SIGTERM after SIGCONT: a shell that ends a stopped job sends both at once,
/// but they may arrive one after the other.
const TERMINATE_GRACE: Duration = Duration::from_millis(100);

/// What a client's terminal is run with.
pub struct ClientTerminalOptions {
    /// The key that opens the card.
    pub key: AnswerKey,
    /// Colours and keys of the card.
    pub config: TuiConfig,
    /// Who answers.
    pub person: PersonAtTerminal,
    /// Who the client is in the session.
    pub agent: ParticipantId,
}

/// A client in a terminal of its own.
pub struct ClientTerminal {
    /// Our own terminal.
    terminal: RawTerminal,
    /// Writes to it.
    writer: TerminalWriter,
    /// The client's terminal.
    pty: ClientPty,
    /// What the client prints there.
    output: ClientOutput,
    /// Whether nobody can print there any more.
    output_ended: bool,
    /// The client.
    process: LedClient,
    /// What the client has drawn.
    screen: ClientScreen,
    /// What the client has not read yet.
    unread: Vec<u8>,
    /// Looks for the key in what is typed into the client.
    watcher: AnswerKeyWatcher,
    /// Reads keys on the card.
    keys: KeyReader,
    /// What the person can answer.
    card: AnswerCard,
    /// The person's connection to the session.
    person: PersonConnection,
    /// The key that opens the card.
    key: AnswerKey,
    /// Whether the card has changed since the last frame.
    needs_frame: bool,
    /// When the next frame may be drawn.
    next_frame: Instant,
    /// When the terminal sent something last.
    last_input: Instant,
    /// When an open card looks at the clock next.
    next_tick: Instant,
    /// When the client gets its real size again.
    redraw_ends: Option<Instant>,
    /// Whether a shell has our terminal.
    suspension: Suspension,
}

/// Whether a shell has our terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspension {
    Running,
    /// We are stopped until the shell continues us.
    Suspended,
    /// The shell has continued us, and has the terminal still.
    InBackground,
}

impl ClientTerminal {
    /// Takes our terminal and starts the client in one of its own.
    pub async fn start(client: &Command, options: ClientTerminalOptions) -> anyhow::Result<Self> {
        let terminal = RawTerminal::take().context("preparing the terminal")?;
        let size = terminal.size().context("reading the terminal's size")?;
        let (pty, output, client_side) = ClientPty::open(terminal.modes_before(), size)
            .context("opening a terminal for the client")?;
        let process = LedClient::start(client, client_side).await?;
        let card = AnswerCard::new(options.config, options.agent, card_size(size));
        let key = options.key;
        Ok(Self {
            terminal,
            writer: TerminalWriter::start(),
            pty,
            output,
            output_ended: false,
            process,
            screen: ClientScreen::new(size),
            unread: Vec::new(),
            watcher: AnswerKeyWatcher::new(key),
            keys: KeyReader::new(key),
            card: card.context("preparing the card")?,
            person: PersonConnection::start(options.person),
            key,
            needs_frame: false,
            next_frame: Instant::now(),
            last_input: Instant::now(),
            next_tick: Instant::now(),
            redraw_ends: None,
            suspension: Suspension::Running,
        })
    }

    /// The client's process.
    pub fn client_pid(&self) -> Pid {
        self.process.pid
    }

    /// Stays with the client until it ends, and gives our terminal back.
    pub async fn run(mut self) -> anyhow::Result<ExitStatus> {
        let status = self.serve().await;
        self.print_rest();
        let rest = self.screen.end();
        self.writer.write(rest);
        self.writer.flush().await;
        // If the terminal is gone, there is nothing to give back.
        let _ = self.terminal.give_back();
        status
    }

    /// Passes on what the client prints and the person types, until the client ends.
    async fn serve(&mut self) -> anyhow::Result<ExitStatus> {
        let mut signals = TerminalSignals::listen()?;
        let mut input = TerminalReader::start().context("reading the terminal")?;
        let status = loop {
            if self.suspension != Suspension::Running {
                self.wait_for_shell(&mut signals).await?;
                continue;
            }
            if let Some(status) = self.step(&mut signals, &mut input).await? {
                break status;
            }
        };
        // From here on, what is typed is for the shell.
        drop(input);
        self.process.wait_for_leader().await;
        Ok(status)
    }

    /// Handles what happens next; returns how the client ended once it has.
    async fn step(
        &mut self,
        signals: &mut TerminalSignals,
        input: &mut TerminalReader,
    ) -> anyhow::Result<Option<ExitStatus>> {
        let is_behind = self.writer.is_behind();
        if self.needs_frame && !is_behind && Instant::now() >= self.next_frame {
            self.draw()?;
        }
        let next_time = self.next_time();
        let time = next_time.unwrap_or_else(Instant::now);
        let may_read = self.unread.len() < MAX_UNREAD_BYTES && !input.is_at_end();
        tokio::select! {
            event = self.process.next_event() => match event? {
                LedClientEvent::Ended(status) => return Ok(Some(status)),
                LedClientEvent::Stopped => self.suspend().await?,
            },
            signal = signals.next() => self.on_signal(signal)?,
            frame = self.writer.progress() => if let Some(number) = frame {
                self.card.frame_written(number, std::time::Instant::now());
            },
            () = sleep_until(time), if next_time.is_some() => self.on_time(),
            bytes = input.next(), if may_read => match bytes {
                Some(bytes) => self.on_input(&bytes),
                None => self.on_terminal_gone(),
            },
            written = self.pty.write(&self.unread), if !self.unread.is_empty() => {
                // What a client that has closed its terminal does not read is dropped.
                let count = written.unwrap_or(self.unread.len());
                drop(self.unread.drain(..count));
            }
            printed = self.output.read(), if !is_behind && !self.output_ended => match printed {
                Ok(printed) => self.print(&printed),
                Err(_) => self.output_ended = true,
            },
            input = self.person.next() => self.update(input),
        }
        Ok(None)
    }

    fn print(&mut self, printed: &[u8]) {
        let passed = self.screen.print(printed);
        self.writer.write(passed);
    }

    /// Prints what the client had printed when it ended.
    fn print_rest(&mut self) {
        if self.card.is_open() {
            self.close_card();
        }
        loop {
            let printed = self.output.read_rest();
            if printed.is_empty() {
                return;
            }
            self.print(&printed);
        }
    }

    fn on_terminal_gone(&mut self) {
        self.process.signal(Signal::HUP);
    }

    fn on_input(&mut self, bytes: &[u8]) {
        self.last_input = Instant::now();
        let rest = match self.card.is_open() {
            true => self.read_keys(bytes),
            false => self.skip_rest(bytes),
        };
        if rest.is_empty() {
            return;
        }
        match self.watcher.find(rest) {
            None => self.unread.extend(rest),
            Some(at) => {
                self.unread.extend(&rest[..at.start]);
                self.open_card();
                // What came together with the key is too early to count.
                let _ = self.read_keys(&rest[at.end..]);
            }
        }
    }

    /// Takes the end of what began on a card that is closed; returns the rest.
    fn skip_rest<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        for (at, byte) in bytes.iter().enumerate() {
            if self.keys.is_idle() {
                return &bytes[at..];
            }
            // It was for the card.
            let _ = self.keys.push(*byte);
        }
        &[]
    }

    /// Takes keys on the card; returns what follows the one that closes it.
    fn read_keys<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut was_idle = self.keys.is_idle();
        for (at, byte) in bytes.iter().enumerate() {
            if !self.card.is_open() {
                return &bytes[at..];
            }
            let Some(input) = self.keys.push(*byte) else {
                continue;
            };
            // A key that came alone is all of what was read at once.
            let arrival = match was_idle && at + 1 == bytes.len() {
                true => KeyArrival::Alone,
                false => KeyArrival::AmongOthers,
            };
            was_idle = false;
            self.on_terminal_input(input, arrival);
        }
        &[]
    }

    fn on_terminal_input(&mut self, input: TerminalInput, arrival: KeyArrival) {
        let at = std::time::Instant::now();
        self.needs_frame = true;
        match input {
            TerminalInput::Key(key) => {
                let (effects, state) = self.card.press(key, arrival, at);
                self.perform(effects, state);
            }
            TerminalInput::AnswerKey => {
                if self.card.is_readable(at) {
                    self.close_card();
                    self.unread.push(self.key.control_byte());
                }
            }
            TerminalInput::Paste(text) => self.card.paste(text, at),
            TerminalInput::Report(bytes) => {
                self.card.note_input(at);
                self.unread.extend(bytes);
            }
            TerminalInput::Ignored => {
                self.card.note_input(at);
            }
        }
    }

    fn update(&mut self, input: AppInput) {
        self.needs_frame = self.card.is_open();
        let (effects, state) = self.card.update(input);
        self.perform(effects, state);
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the server gets the others")]
    fn perform(&mut self, effects: Vec<AppEffect>, state: CardNext) {
        for effect in effects {
            match effect {
                AppEffect::Notify if self.card.is_open() => {}
                AppEffect::Notify => self.notify(),
                effect => self.person.run_effect(effect),
            }
        }
        if state == CardNext::Closes && self.card.is_open() {
            self.close_card();
        }
    }

    /// Gets the attention of a person who may not look at the client.
    fn notify(&mut self) {
        let mut bytes = Vec::new();
        let methods = &self.card.config().notify;
        // Writing to memory does not fail.
        let _ = notify::send_notifications(&mut bytes, methods, self.card.waiting());
        self.writer.write(bytes);
    }

    fn open_card(&mut self) {
        self.end_redraw();
        let cover = self.screen.cover();
        self.writer.write(cover);
        self.keys.reset();
        self.card.open();
        self.needs_frame = true;
        self.next_tick = Instant::now() + TICK_INTERVAL;
    }

    fn close_card(&mut self) {
        self.card.close();
        self.needs_frame = false;
        let (bytes, redraw) = self.screen.uncover();
        self.writer.write(bytes);
        match redraw {
            ClientRedraw::NotNeeded => {}
            ClientRedraw::Wanted => self.begin_redraw(),
        }
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        let (frame, number) = self.card.draw().context("drawing")?;
        self.writer.write_frame(frame, number);
        self.needs_frame = false;
        self.next_frame = Instant::now() + FRAME_INTERVAL;
        Ok(())
    }

    /// When something is due next.
    fn next_time(&self) -> Option<Instant> {
        let is_open = self.card.is_open();
        let escape =
            (is_open && self.keys.is_after_escape()).then(|| self.last_input + ESCAPE_TIME);
        let rest = (!is_open && !self.keys.is_idle()).then(|| self.last_input + REST_TIME);
        let tick = is_open.then_some(self.next_tick);
        let closes = self.card.closes_at().filter(|_| is_open);
        let closes = closes.map(Instant::from_std);
        let frame = self.needs_frame.then_some(self.next_frame);
        let times = [escape, rest, tick, closes, frame, self.redraw_ends];
        times.into_iter().flatten().min()
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if self.redraw_ends.is_some_and(|at| now >= at) {
            self.end_redraw();
        }
        if !self.card.is_open() {
            if !self.keys.is_idle() && now >= self.last_input + REST_TIME && !self.keys.is_pasting()
            {
                self.keys.reset();
            }
            return;
        }
        if self.keys.is_after_escape() && now >= self.last_input + ESCAPE_TIME {
            let escape = self.keys.take_escape();
            self.on_terminal_input(escape, KeyArrival::AmongOthers);
        }
        let closes = self.card.closes_at().map(Instant::from_std);
        if now >= self.next_tick || closes.is_some_and(|at| now >= at) {
            self.next_tick = now + TICK_INTERVAL;
            let changes = self.card.changes_with_time();
            let needed = self.needs_frame;
            self.update(AppInput::Tick);
            self.needs_frame = self.card.is_open() && (needed || changes);
        }
    }

    /// Gives the client another size for a moment: it draws everything again when it gets its own.
    fn begin_redraw(&mut self) {
        if let Ok(size) = self.terminal.size()
            && size.ws_row > 2
        {
            let ws_row = size.ws_row - 1;
            self.pty.resize(Winsize { ws_row, ..size });
            self.redraw_ends = Some(Instant::now() + REDRAW_TIME);
        }
    }

    fn end_redraw(&mut self) {
        if self.redraw_ends.take().is_some()
            && let Ok(size) = self.terminal.size()
        {
            self.pty.resize(size);
        }
    }

    fn on_resize(&mut self) {
        let Ok(size) = self.terminal.size() else {
            return;
        };
        self.redraw_ends = None;
        self.pty.resize(size);
        self.screen.resize(size);
        self.update(AppInput::Resize(card_size(size)));
    }

    fn on_signal(&mut self, signal: TerminalSignal) -> anyhow::Result<()> {
        match signal {
            TerminalSignal::Resize => self.on_resize(),
            TerminalSignal::Terminate => self.process.signal(Signal::TERM),
            TerminalSignal::HangUp => self.process.signal(Signal::HUP),
            TerminalSignal::Suspend => self.process.signal_group(Signal::TSTP),
            // A shell had the terminal meanwhile, if something else has stopped us.
            TerminalSignal::Continue => {
                self.terminal.make_raw().context("taking the terminal")?;
                self.on_resize();
            }
        }
        Ok(())
    }

    /// The client has stopped itself, so we do: a shell has the terminal then.
    async fn suspend(&mut self) -> anyhow::Result<()> {
        if self.card.is_open() {
            self.close_card();
        }
        if !signals::has_job_control_shell() {
            // As the kernel would do without a shell.
            self.process.signal_group(Signal::CONT);
            return Ok(());
        }
        loop {
            let printed = self.output.read_rest();
            if printed.is_empty() {
                break;
            }
            self.print(&printed);
        }
        self.writer.flush().await;
        self.terminal
            .give_back()
            .context("giving the terminal back")?;
        self.suspension = Suspension::Suspended;
        signals::stop_process_group()
    }

    /// Waits until a shell gives the terminal back.
    async fn wait_for_shell(&mut self, signals: &mut TerminalSignals) -> anyhow::Result<()> {
        let in_background = self.suspension == Suspension::InBackground;
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                TerminalSignal::Continue if signals::in_foreground() => self.resume(),
                // It continues us either to end us, so we wait for that, or in the background, where
                // the kernel stops any process that takes the terminal.
                TerminalSignal::Continue => {
                    self.suspension = Suspension::InBackground;
                    Ok(())
                }
                TerminalSignal::Terminate => {
                    self.suspension = Suspension::Running;
                    self.process.signal(Signal::TERM);
                    self.process.signal_group(Signal::CONT);
                    Ok(())
                }
                TerminalSignal::HangUp => {
                    self.suspension = Suspension::Running;
                    self.process.signal(Signal::HUP);
                    self.process.signal_group(Signal::CONT);
                    Ok(())
                }
                TerminalSignal::Resize | TerminalSignal::Suspend => Ok(()),
            },
            () = tokio::time::sleep(TERMINATE_GRACE), if in_background => self.resume(),
        }
    }

    fn resume(&mut self) -> anyhow::Result<()> {
        self.suspension = Suspension::Running;
        self.terminal.make_raw().context("taking the terminal")?;
        self.on_resize();
        self.process.signal_group(Signal::CONT);
        Ok(())
    }
}

fn card_size(size: Winsize) -> Size {
    let (rows, columns) = bounded_size(size);
    Size {
        width: columns.get(),
        height: rows.get(),
    }
}

/// What a signal to this process asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TerminalSignal {
    Resize,
    Terminate,
    HangUp,
    Suspend,
    /// We were stopped and run again.
    Continue,
}

struct TerminalSignals {
    /// SIGWINCH.
    resize: SignalStream,
    /// SIGTERM.
    terminate: SignalStream,
    /// SIGHUP.
    hang_up: SignalStream,
    /// SIGTSTP.
    suspend: SignalStream,
    /// SIGCONT.
    resume: SignalStream,
    /// Those of the client's terminal are for the client; one to this process means nobody.
    _ignored: [SignalStream; 2],
}

impl TerminalSignals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("listening for signals");
        let raw = |signal: Signal| SignalKind::from_raw(signal.as_raw());
        Ok(Self {
            resize: listen(SignalKind::window_change())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            suspend: listen(raw(Signal::TSTP))?,
            resume: listen(raw(Signal::CONT))?,
            _ignored: [
                listen(SignalKind::interrupt())?,
                listen(SignalKind::quit())?,
            ],
        })
    }

    /// The next signal, termination first: a shell that kills a stopped job also continues it.
    async fn next(&mut self) -> TerminalSignal {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => TerminalSignal::Terminate,
            _ = self.hang_up.recv() => TerminalSignal::HangUp,
            _ = self.suspend.recv() => TerminalSignal::Suspend,
            _ = self.resume.recv() => TerminalSignal::Continue,
            _ = self.resize.recv() => TerminalSignal::Resize,
        }
    }
}
