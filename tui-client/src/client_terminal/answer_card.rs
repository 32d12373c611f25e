//! The card over a client's screen: shows what waits of this client and takes the person's answer.
//!
//! Only a key that a person pressed after reading can approve: alone, a while after what it approves
//! was on the screen, and not among other input.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossterm::event::KeyEvent;
use pvp_client::now;
use pvp_protocol::{ClientMessage, Digest, MessageId, ParticipantId};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Rect, Size};
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::app::{App, AppEffect, AppInput, DrawnGates, NoticeLevel, ScreenPurpose};
use crate::config::TuiConfig;
use crate::draw;

/// How long a card is on the screen before any key counts: what was typed before it could be read is
/// no answer.
const READING_TIME: Duration = Duration::from_millis(300);

/// How long nothing else may have been sent before a key that approves. Keys that are held down
/// repeat sooner than that, and so does text that is pasted where the terminal does not say so.
const QUIET_TIME: Duration = Duration::from_millis(150);

/// How long it is shown that somebody else has decided.
const DECIDED_TIME: Duration = Duration::from_millis(2500);

/// Has the terminal show a frame as a whole.
const BEGIN_UPDATE: &[u8] = b"\x1b[?2026h";
const END_UPDATE: &[u8] = b"\x1b[?2026l";

/// What is on the card: a gate, with the digest of what it is about.
type ShownGate = (MessageId, Digest);

/// How a key came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyArrival {
    /// Alone in what was read at once.
    Alone,
    AmongOthers,
}

/// What becomes of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CardNext {
    Stays,
    Closes,
}

pub(super) struct AnswerCard {
    /// What there is to answer, and what the person does with it.
    app: App,
    /// Whether it is on the screen.
    is_open: bool,
    /// What the terminal shows of it.
    terminal: Terminal<CrosstermBackend<FrameBytes>>,
    /// Where frames are drawn to.
    frame: FrameBytes,
    /// Whether the next frame begins with an empty screen.
    clears: bool,
    /// The number of the last frame.
    frame_number: u64,
    /// What was on the card last.
    shown: Option<ShownGate>,
    /// The first frame that showed it.
    first_frame: u64,
    /// Since when that frame is on the screen.
    readable_since: Option<Instant>,
    /// When the terminal sent something last.
    last_input: Option<Instant>,
    /// What the person has voted on since the card was opened.
    voted: Option<MessageId>,
    /// When the card closes by itself, because it is decided.
    closes_at: Option<Instant>,
}

impl AnswerCard {
    pub(super) fn new(config: TuiConfig, agent: ParticipantId, size: Size) -> io::Result<Self> {
        Self::with_app(App::new(config, size, now()), agent)
    }

    fn with_app(mut app: App, agent: ParticipantId) -> io::Result<Self> {
        app.purpose = ScreenPurpose::AnswersTo(agent);
        let frame = FrameBytes::default();
        Ok(Self {
            terminal: terminal_of(&frame, app.size)?,
            app,
            is_open: false,
            frame,
            clears: true,
            frame_number: 0,
            shown: None,
            first_frame: 0,
            readable_since: None,
            last_input: None,
            voted: None,
            closes_at: None,
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Opens the card.
    pub(super) fn open(&mut self) {
        self.app.begin_answers();
        self.is_open = true;
        self.shown = None;
        self.begin_reading();
        (self.voted, self.closes_at) = (None, None);
        self.clears = true;
    }

    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.app.begin_answers();
    }

    /// From the next frame on there is something else to read.
    fn begin_reading(&mut self) {
        self.first_frame = self.frame_number + 1;
        self.readable_since = None;
    }

    /// How many calls wait for the person's vote.
    pub(super) fn waiting(&self) -> usize {
        self.app.awaiting_my_vote().count()
    }

    pub(super) fn config(&self) -> &TuiConfig {
        &self.app.config
    }

    /// Whether the passing of time changes what is on the card.
    pub(super) fn changes_with_time(&self) -> bool {
        self.app.changes_with_time()
    }

    /// When the card closes by itself.
    pub(super) fn closes_at(&self) -> Option<Instant> {
        self.closes_at
    }

    /// Takes what happens in the session, or the time; returns what is to be done.
    pub(super) fn update(&mut self, input: AppInput) -> (Vec<AppEffect>, CardNext) {
        if let AppInput::Resize(size) = &input {
            self.app.size = *size;
            self.clears = true;
        }
        let mut effects = self.app.update(now(), input);
        self.clears |= effects.contains(&AppEffect::Redraw);
        for effect in &effects {
            if let AppEffect::Send(_, message) = effect {
                self.note_vote(message);
            }
        }
        let quit = effects.contains(&AppEffect::Quit);
        effects.retain(|effect| !matches!(effect, AppEffect::Quit | AppEffect::Redraw));
        let state = match quit || self.is_over() {
            true => CardNext::Closes,
            false => CardNext::Stays,
        };
        (effects, state)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is a vote")]
    fn note_vote(&mut self, message: &ClientMessage) {
        match message {
            ClientMessage::GateApprove(vote) => self.voted = Some(vote.gate.clone()),
            ClientMessage::GateReject(vote) => self.voted = Some(vote.gate.clone()),
            _ => {}
        }
    }

    /// Whether the card has been decided and nothing else waits: at once if the person decided it,
    /// and otherwise when there was time to read who did.
    fn is_over(&mut self) -> bool {
        let is_done = self.is_open
            && self.app.is_card_decided()
            && self.app.dialog.is_none()
            && self.app.waiting_cards().next().is_none();
        if !is_done {
            self.closes_at = None;
            return false;
        }
        let selected = &self.app.card_state.selected_gate;
        if self.voted.is_some() && self.voted == *selected {
            return true;
        }
        let closes_at = self
            .closes_at
            .get_or_insert_with(|| Instant::now() + DECIDED_TIME);
        Instant::now() >= *closes_at
    }

    /// Whether what is shown has been on the screen long enough to be read.
    pub(super) fn is_readable(&self, at: Instant) -> bool {
        self.readable_since
            .is_some_and(|since| at.saturating_duration_since(since) >= READING_TIME)
    }

    /// Takes a key. It counts once the card can have been read; one that approves must also have
    /// come alone.
    pub(super) fn press(
        &mut self,
        key: KeyEvent,
        arrival: KeyArrival,
        at: Instant,
    ) -> (Vec<AppEffect>, CardNext) {
        let quiet = self.note_input(at) && arrival == KeyArrival::Alone;
        if !self.is_readable(at) {
            return (Vec::new(), CardNext::Stays);
        }
        if self.app.is_approval(&key) && !quiet {
            let why = "that key came among others; press it again, alone, to approve";
            self.app.show_notice(NoticeLevel::Error, why);
            return (Vec::new(), CardNext::Stays);
        }
        self.update(AppInput::Key(key))
    }

    /// Takes pasted text, which goes into a dialog or nowhere.
    pub(super) fn paste(&mut self, text: String, at: Instant) {
        self.note_input(at);
        if self.app.dialog.is_some() {
            // Pasted text votes on nothing.
            let _ = self.app.update(now(), AppInput::Paste(text));
        }
    }

    /// Notes that something was sent; whether nothing else was just before.
    pub(super) fn note_input(&mut self, at: Instant) -> bool {
        let earlier = self.last_input.replace(at);
        earlier.is_none_or(|earlier| at.saturating_duration_since(earlier) >= QUIET_TIME)
    }

    /// Draws a frame; returns it as bytes, with its number.
    pub(super) fn draw(&mut self) -> io::Result<(Vec<u8>, u64)> {
        let mut bytes = BEGIN_UPDATE.to_vec();
        if std::mem::take(&mut self.clears) {
            self.terminal = terminal_of(&self.frame, self.app.size)?;
            bytes.extend(b"\x1b[0m\x1b[2J");
            bytes.extend(blank_rows(self.app.size));
        }
        let mut drawn = DrawnGates::default();
        let app = &self.app;
        self.terminal.draw(|frame| drawn = draw::draw(app, frame))?;
        bytes.extend(self.frame.take());
        bytes.extend(END_UPDATE);
        if drawn.card.is_some() && drawn.card != self.shown {
            self.begin_reading();
            self.shown.clone_from(&drawn.card);
        }
        self.frame_number += 1;
        self.app.record_drawn(drawn);
        Ok((bytes, self.frame_number))
    }

    /// Notes that the terminal has this frame and those before it.
    pub(super) fn frame_written(&mut self, number: u64, at: Instant) {
        if number >= self.first_frame {
            self.readable_since.get_or_insert(at);
        }
    }
}

/// What a frame consists of, until it is taken.
#[derive(Clone, Default)]
struct FrameBytes(Arc<Mutex<Vec<u8>>>);

impl FrameBytes {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl io::Write for FrameBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A blank in every cell. What a client has protected is not erased, but it is written over.
fn blank_rows(size: Size) -> Vec<u8> {
    let blanks = " ".repeat(usize::from(size.width));
    let rows = (1..=size.height).map(|row| format!("\x1b[{row};1H{blanks}"));
    rows.collect::<String>().into_bytes()
}

fn terminal_of(
    frame: &FrameBytes,
    size: Size,
) -> io::Result<Terminal<CrosstermBackend<FrameBytes>>> {
    let viewport = Viewport::Fixed(Rect::new(0, 0, size.width, size.height));
    let backend = CrosstermBackend::new(frame.clone());
    Terminal::with_options(backend, TerminalOptions { viewport })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::AppHarness;
    use crate::keys::KeyChord;
    use crossterm::event::KeyModifiers;
    use serde_json::Value;
    use std::num::NonZeroU16;

    /// A card, with a clock that the test advances.
    struct CardHarness {
        card: AnswerCard,
        now: Instant,
        sent: Vec<Value>,
        state: CardNext,
    }

    impl CardHarness {
        /// Opens a card over these commands of `bot`, for somebody with these roles.
        fn open(roles: &[&str], commands: &[&str]) -> Self {
            let mut harness = AppHarness::before_welcome(TuiConfig::default(), 80, 24);
            harness.welcome_with_gates(roles, commands);
            let mut card = AnswerCard::with_app(harness.app, agent("bot")).unwrap();
            card.open();
            Self {
                card,
                now: Instant::now(),
                sent: Vec::new(),
                state: CardNext::Stays,
            }
        }

        /// Draws a frame that reaches the terminal at once.
        fn draw(&mut self) {
            let (_, number) = self.card.draw().unwrap();
            self.card.frame_written(number, self.now);
        }

        fn wait(&mut self, time: Duration) {
            self.now += time;
        }

        fn read(&mut self) {
            self.draw();
            self.wait(READING_TIME);
        }

        fn press(&mut self, key: &str, arrival: KeyArrival) {
            let chord = KeyChord::parse(key).unwrap();
            let key = KeyEvent::new(chord.code(), KeyModifiers::NONE);
            let (effects, state) = self.card.press(key, arrival, self.now);
            self.state = state;
            for effect in effects {
                if let AppEffect::Send(_, message) = effect {
                    let mut sent = serde_json::to_value(&message).unwrap();
                    sent["kind"] = pvp_protocol::WireMessage::kind(&*message).into();
                    self.sent.push(sent);
                }
            }
        }

        fn votes(&self) -> Vec<String> {
            let votes = self.sent.iter().map(|vote| vote["kind"].as_str().unwrap());
            let votes = votes.filter(|kind| kind.starts_with("gate."));
            votes.map(str::to_owned).collect()
        }
    }

    fn agent(id: &str) -> ParticipantId {
        ParticipantId::parse(id).unwrap()
    }

    #[test]
    fn a_key_that_comes_alone_after_reading_approves_what_was_drawn() {
        let mut card = CardHarness::open(&["approver"], &["rm -rf build"]);
        card.read();
        card.press("a", KeyArrival::Alone);
        assert_eq!(card.votes(), ["gate.approve"]);
        let digest = AppHarness::digest("rm -rf build").to_string();
        assert_eq!(card.sent[0]["digest"], digest);
    }

    #[test]
    fn what_is_typed_before_the_card_can_be_read_does_nothing() {
        let mut card = CardHarness::open(&["approver"], &["rm -rf build"]);
        card.press("a", KeyArrival::Alone);
        let (_, number) = card.card.draw().unwrap();
        card.wait(Duration::from_secs(9));
        card.press("a", KeyArrival::Alone);
        assert_eq!(card.votes(), [""; 0], "the terminal has nothing of it yet");
        card.card.frame_written(number, card.now);
        card.wait(READING_TIME - Duration::from_millis(1));
        card.press("a", KeyArrival::Alone);
        card.press("r", KeyArrival::Alone);
        assert_eq!(
            (card.votes(), card.card.app.dialog.is_none()),
            (vec![], true)
        );
        card.wait(QUIET_TIME);
        card.press("a", KeyArrival::Alone);
        assert_eq!(card.votes(), ["gate.approve"]);
    }

    #[test]
    fn a_key_among_other_input_does_not_approve() {
        let mut card = CardHarness::open(&["approver"], &["rm -rf build"]);
        card.read();
        card.press("a", KeyArrival::AmongOthers);
        // A key that is held down.
        for _ in 0..100 {
            card.wait(Duration::from_millis(30));
            card.press("a", KeyArrival::Alone);
        }
        card.wait(QUIET_TIME);
        card.card.paste("a\na".to_owned(), card.now);
        card.press("a", KeyArrival::Alone);
        assert_eq!(card.votes(), [""; 0]);
        let notice = card.card.app.notice.as_ref().unwrap();
        assert!(notice.text.starts_with("that key came among others"));
        card.wait(QUIET_TIME);
        card.press("a", KeyArrival::Alone);
        assert_eq!(card.votes(), ["gate.approve"]);
    }

    #[test]
    fn the_next_card_has_to_be_read_too() {
        let mut card = CardHarness::open(&["approver"], &["touch one", "touch two"]);
        card.read();
        card.press("n", KeyArrival::Alone);
        card.draw();
        card.wait(QUIET_TIME);
        card.press("a", KeyArrival::Alone);
        assert_eq!(card.votes(), [""; 0]);
        card.wait(READING_TIME);
        card.press("a", KeyArrival::Alone);
        assert_eq!(card.sent[0]["gate"], "gate-1");
    }

    #[test]
    fn nothing_but_this_clients_calls_can_be_decided_and_only_one_at_a_time() {
        let mut card = CardHarness::open(&["driver", "approver", "admin"], &["touch one"]);
        card.card.app.purpose = ScreenPurpose::AnswersTo(agent("another"));
        card.card.open();
        card.read();
        for key in [
            "a", "A", "P", "D", "i", "!", "/", "?", "f1", "tab", "ctrl+q", "y",
        ] {
            card.press(key, KeyArrival::Alone);
            card.read();
        }
        assert_eq!(card.votes(), [""; 0]);
        card.card.app.purpose = ScreenPurpose::AnswersTo(agent("bot"));
        card.card.open();
        card.read();
        for key in [
            "A", "P", "D", "i", "!", "/", "?", "f1", "tab", "ctrl+q", "y", "enter",
        ] {
            if key != "enter" {
                card.press(key, KeyArrival::Alone);
                assert!(
                    card.card.app.dialog.is_none() && card.state == CardNext::Stays,
                    "{key}"
                );
            }
            card.read();
        }
        assert_eq!(card.votes(), [""; 0]);
        let text = crate::offscreen::buffer_text(&screen_of(&card.card.app));
        assert!(text.contains("a approve  r reject  e edit"), "{text}");
        assert!(
            !text.contains("prefix") && !text.contains("all  "),
            "{text}"
        );
    }

    fn screen_of(app: &App) -> ratatui::buffer::Buffer {
        let Size { width, height } = app.size;
        let backend = ratatui::backend::TestBackend::new(width, height);
        let mut terminal = Terminal::new(backend).unwrap();
        terminal.draw(|frame| drop(draw::draw(app, frame))).unwrap();
        terminal.backend().buffer().clone()
    }

    #[test]
    fn the_card_says_how_sure_it_is_that_exactly_this_runs() {
        let harness = CardHarness::open(&["approver"], &["rm -rf build"]);
        let text = crate::offscreen::buffer_text(&screen_of(&harness.card.app));
        let said = "degree   executed: PVP's executor runs exactly this";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn who_may_not_vote_is_told_so() {
        let mut card = CardHarness::open(&["observer"], &["rm -rf build"]);
        card.read();
        card.press("a", KeyArrival::Alone);
        card.wait(QUIET_TIME);
        card.press("r", KeyArrival::Alone);
        assert_eq!(card.votes(), [""; 0]);
        assert!(card.card.app.dialog.is_none());
        let text = crate::offscreen::buffer_text(&screen_of(&card.card.app));
        assert!(
            text.contains("your roles do not include approving"),
            "{text}"
        );
    }

    #[test]
    fn escape_returns_to_the_client() {
        let mut card = CardHarness::open(&["approver"], &["rm -rf build"]);
        card.read();
        card.press("r", KeyArrival::Alone);
        card.press("esc", KeyArrival::AmongOthers);
        assert_eq!(card.state, CardNext::Stays, "it closes the dialog");
        card.press("esc", KeyArrival::AmongOthers);
        assert_eq!((card.state, card.votes()), (CardNext::Closes, vec![]));
    }

    #[test]
    fn the_first_frame_writes_every_cell_and_others_only_what_changes() {
        let mut harness = CardHarness::open(&["approver"], &["rm -rf build"]);
        harness.card.open();
        let (frame, _) = harness.card.draw().unwrap();
        let rows = NonZeroU16::new(24).unwrap();
        let columns = NonZeroU16::new(80).unwrap();
        let mut terminal = vt100::Parser::new(rows, columns, 0);
        terminal.process("X".repeat(24 * 80).as_bytes());
        // A terminal does not erase what a client has protected.
        let frame = String::from_utf8(frame).unwrap().replace("\x1b[2J", "");
        terminal.process(frame.as_bytes());
        let shown = terminal.screen().contents();
        assert!(shown.contains("rm -rf build"), "{shown}");
        assert!(!shown.contains("XX"), "{shown}");
        let (frame, _) = harness.card.draw().unwrap();
        assert!(frame.len() < 24 * 80, "{}", frame.len());
    }
}
