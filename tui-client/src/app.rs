//! What the screen knows, and what a key, a message or the clock makes of it. Pure: effects are
//! left to whoever runs it.

mod answering;
mod compose;
mod driving;
mod exchange;
mod gates;
mod mouse;
mod reading;
mod recall;
mod slash;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use pvp_client::view::View;
use pvp_client::{ShellResultQueue, fresh_id};
use pvp_protocol::payload::TerminalSize;
use pvp_protocol::{ClientMessage, Digest, MessageId, ParticipantId, Timestamp};
use ratatui::layout::Size;

pub(crate) use compose::{Composer, squeezed};
pub(crate) use exchange::{Effect, Input, Ticket};
pub(crate) use gates::{Cards, Choice, Current, Preflight};
pub(crate) use reading::{Place, Reading};
pub(crate) use slash::COMMANDS;
pub use slash::manual as slash_manual;

use crate::config::Config;
use crate::dialog::Dialog;
use crate::keys::{Act, Chord, Scope};
use crate::page::Page;
use crate::pager::Pager;
use crate::pane::Panes;
use crate::theme::Theme;

/// Milliseconds between two words that somebody is here after all; the first may be lost.
const PRESENT_MS: u64 = 10_000;

/// Milliseconds that a notice stays.
const NOTICE_MS: u64 = 8_000;

/// How the connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    Down { why: String, since: Timestamp },
    Over { why: String },
}

/// Where keys go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    Composer,
    Card,
    Main,
}

/// What the large part of the screen shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Main {
    Stream,
    Page(Page),
    Pager(Pager),
    Preflight(Preflight),
    /// The screen of an interactive command.
    Terminal(MessageId),
}

/// How a notice is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Bad,
}

/// A line about what one just did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) text: String,
    pub(crate) tone: Tone,
    at: Timestamp,
}

/// What a message of ours was for.
#[derive(Debug, Clone, PartialEq)]
enum Errand {
    Vote {
        gate: MessageId,
        done: &'static str,
    },
    Prompt {
        text: String,
    },
    Shell {
        line: String,
        send: bool,
    },
    /// Anything else, and what to say when it was taken.
    Plain {
        done: &'static str,
    },
    /// Worth a word only if it was refused.
    Quiet,
    /// Not worth a word.
    Silent,
}

/// A command of one's own that runs.
#[derive(Debug, Clone, PartialEq)]
struct Bang {
    id: MessageId,
    /// Whether its result goes to the agent at once.
    send: bool,
}

/// What a drawing showed, which is what a vote binds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Drawn {
    pub(crate) card: Option<(MessageId, Digest)>,
    /// Whether the end of the card's command was on the screen.
    pub(crate) whole: bool,
    /// Rows of the preflight list that were there whole.
    pub(crate) listed: Vec<MessageId>,
}

/// The screen.
pub(crate) struct App {
    pub(crate) view: View,
    pub(crate) config: Config,
    pub(crate) theme: Theme,
    pub(crate) now: Timestamp,
    pub(crate) size: Size,
    pub(crate) link: Link,
    pub(crate) focus: Focus,
    pub(crate) main: Main,
    pub(crate) dialog: Option<Dialog>,
    pub(crate) composer: Composer,
    pub(crate) cards: Cards,
    pub(crate) reading: Reading,
    pub(crate) panes: Panes,
    pub(crate) results: ShellResultQueue,
    pub(crate) notice: Option<Notice>,
    /// Whom prompts go to, if that was said.
    pub(crate) target: Option<ParticipantId>,
    /// Whether the terminal has the focus; unknown until it says so.
    looking: Option<bool>,
    bangs: Vec<Bang>,
    errands: BTreeMap<Ticket, Errand>,
    next_ticket: Ticket,
    /// Gates that someone was called for.
    called: BTreeSet<MessageId>,
    quitting: bool,
    /// Whether to quit as soon as everything is sent.
    leaving: bool,
    /// When it was last said that somebody is here.
    said_present: Option<Timestamp>,
    shared_draft: String,
    /// The size that an interactive command was told last.
    told_size: Option<(MessageId, TerminalSize)>,
    effects: Vec<Effect>,
}

impl App {
    pub(crate) fn new(config: Config, size: Size, now: Timestamp) -> Self {
        Self {
            view: View::default(),
            theme: Theme::new(config.palette),
            config,
            now,
            size,
            link: Link::Up,
            focus: Focus::Composer,
            main: Main::Stream,
            dialog: None,
            composer: Composer::default(),
            cards: Cards::default(),
            reading: Reading::default(),
            panes: Panes::default(),
            results: ShellResultQueue::default(),
            notice: None,
            target: None,
            looking: None,
            bangs: Vec::new(),
            errands: BTreeMap::new(),
            next_ticket: 0,
            called: BTreeSet::new(),
            quitting: false,
            leaving: false,
            said_present: None,
            shared_draft: String::new(),
            told_size: None,
            effects: Vec::new(),
        }
    }

    /// Takes what happened; gives what is to be done.
    pub(crate) fn update(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        self.now = now;
        if input.is_a_persons() {
            self.say_present();
        }
        match input {
            Input::Key(key) => self.key(Chord::of(&key)),
            Input::Paste(text) => self.paste(&text),
            Input::Mouse(event) => self.mouse(event),
            Input::Focus(looking) => self.looking = Some(looking),
            Input::Resize(size) => {
                self.size = size;
                self.resize_pane();
            }
            Input::Told(envelope) => self.told(&envelope),
            Input::Up { resumed } => self.up(resumed),
            Input::Down { why } => {
                let since = self.now;
                self.link = Link::Down { why, since };
            }
            Input::Over { why } => self.link = Link::Over { why },
            Input::Answered(ticket, answer) => self.answered(ticket, answer),
            Input::Fetched(page) => self.fetched(page),
            Input::Found(page) => self.found(page),
            Input::Invited(invitation) => self.invited(invitation),
            Input::Past(past) => self.past(past),
            Input::Programs(programs) => self.composer.programs = programs,
            Input::Tick => self.tick(),
        }
        self.let_go();
        self.leave_if_all_is_sent();
        std::mem::take(&mut self.effects)
    }

    /// A card that is decided stays only while one looks at it.
    fn let_go(&mut self) {
        if self.focus != Focus::Card && matches!(self.current(), Some(Current::Closed(_))) {
            self.cards.selected = None;
        }
    }

    /// Notes what was drawn.
    pub(crate) fn drawn(&mut self, drawn: Drawn) {
        if let (Some((gate, digest)), true) = (&drawn.card, drawn.whole) {
            self.cards.seen_whole.insert(gate.clone(), *digest);
        }
        if let Main::Preflight(preflight) = &mut self.main {
            let choices = preflight.rows.iter_mut();
            let shown = choices.filter(|choice| drawn.listed.contains(&choice.gate));
            shown.for_each(|choice| choice.seen = true);
        }
        self.cards.drawn = drawn.card;
    }

    /// Where a key would go.
    pub(crate) fn scope(&self) -> Scope {
        if self.dialog.is_some() {
            return Scope::Dialog;
        }
        match (self.focus, &self.main) {
            (Focus::Composer, _) if self.composer.recall.search.is_some() => Scope::Recall,
            (Focus::Composer, _) => Scope::Composer,
            (Focus::Card, _) => Scope::Card,
            (Focus::Main, Main::Stream) => Scope::Stream,
            (Focus::Main, Main::Page(_) | Main::Pager(_)) => Scope::Page,
            (Focus::Main, Main::Preflight(_)) => Scope::Preflight,
            (Focus::Main, Main::Terminal(proposal)) => match self.may_type_into(proposal) {
                true => Scope::Terminal,
                false => Scope::Page,
            },
        }
    }

    fn key(&mut self, chord: Chord) {
        let scope = self.scope();
        let act = self.config.keymap.find(scope, chord);
        if !scope.takes_text() {
            // What was said about the key before is not about this one.
            self.notice = None;
        }
        if act != Some(Act::Clear) && act != Some(Act::Quit) {
            self.quitting = false;
            self.leaving = false;
        }
        match act {
            Some(act) => self.act(scope, act),
            None => self.typed(scope, chord),
        }
    }

    /// A key that the table does not know: text where text is typed, else nothing.
    fn typed(&mut self, scope: Scope, chord: Chord) {
        match scope {
            Scope::Composer | Scope::Recall => {
                if let Some(c) = chord.typed() {
                    self.composer.type_in(&c.to_string());
                }
            }
            Scope::Dialog => {
                if let (Some(c), Some(dialog)) = (chord.typed(), &mut self.dialog) {
                    dialog.editor_mut().insert(&c.to_string());
                }
            }
            Scope::Terminal => self.type_into_pane(chord),
            Scope::Always
            | Scope::Anywhere
            | Scope::Text
            | Scope::Card
            | Scope::Stream
            | Scope::Preflight
            | Scope::Page => {}
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what is left is for the pane"
    )]
    fn act(&mut self, scope: Scope, act: Act) {
        match act {
            Act::Quit => return self.quit(),
            Act::FocusNext => return self.focus_next(),
            Act::FocusPrevious => return self.focus_previous(),
            Act::FocusCard => return self.focus_card(),
            Act::Redraw => return self.effects.push(Effect::Redraw),
            Act::Suspend => return self.effects.push(Effect::Suspend),
            Act::Keys => return self.open_page(crate::pages::keys(self)),
            Act::Compose => return self.focus = Focus::Composer,
            Act::Shell => return self.compose_with("!"),
            Act::Slash => return self.compose_with("/"),
            Act::Interrupt => return self.ask_interrupt(),
            Act::ScrollUp => return self.scroll_stream(-(self.main_rows() as isize)),
            Act::ScrollDown => return self.scroll_stream(self.main_rows() as isize),
            _ => {}
        }
        match scope {
            Scope::Composer => self.act_composer(act),
            Scope::Recall => self.act_recall(act),
            Scope::Card => self.act_card(act),
            Scope::Stream => self.act_stream(act),
            Scope::Dialog => self.act_dialog(act),
            Scope::Preflight => self.act_preflight(act),
            Scope::Page | Scope::Terminal => self.act_page(act),
            Scope::Always | Scope::Anywhere | Scope::Text => {}
        }
    }

    pub(crate) fn tell(&mut self, tone: Tone, text: impl Into<String>) {
        let text = crate::text::one_line(&text.into());
        let at = self.now;
        self.notice = Some(Notice { text, tone, at });
    }

    fn send(&mut self, errand: Errand, message: impl Into<ClientMessage>) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.errands.insert(ticket, errand);
        let message = Box::new(message.into());
        self.effects.push(Effect::Send(ticket, message));
        ticket
    }

    fn open_page(&mut self, page: Page) {
        self.show(Main::Page(page));
    }

    fn show(&mut self, main: Main) {
        self.main = main;
        self.focus = Focus::Main;
    }

    /// Back to the stream, and to typing.
    fn close_main(&mut self) {
        self.main = Main::Stream;
        self.focus = Focus::Composer;
    }

    fn focus_next(&mut self) {
        match self.focus {
            Focus::Composer if self.current().is_some() => self.focus_card(),
            Focus::Composer | Focus::Card => self.focus = Focus::Main,
            Focus::Main => self.focus = Focus::Composer,
        }
    }

    fn focus_previous(&mut self) {
        match self.focus {
            Focus::Main if self.current().is_some() => self.focus_card(),
            Focus::Main | Focus::Card => self.focus = Focus::Composer,
            Focus::Composer => self.focus = Focus::Main,
        }
    }

    /// Messages that the server has not taken yet.
    pub(crate) fn under_way(&self) -> usize {
        let errands = self.errands.values();
        errands.filter(|errand| **errand != Errand::Silent).count()
    }

    /// Quits once nothing would be lost by it, or when asked again.
    fn quit(&mut self) {
        let waiting = self.under_way();
        if waiting == 0 || self.quitting {
            return self.effects.push(Effect::Quit);
        }
        self.quitting = true;
        self.leaving = true;
        let what = crate::words::count(waiting as u64, "message");
        self.tell(
            Tone::Bad,
            format!("{what} of yours not sent yet; it quits after that, or once more to quit now"),
        );
    }

    fn leave_if_all_is_sent(&mut self) {
        if self.leaving && self.under_way() == 0 {
            self.leaving = false;
            self.effects.push(Effect::Quit);
        }
    }

    /// Whether the clock alone changes what is on the screen.
    pub(crate) fn is_timely(&self) -> bool {
        let counting = self.view.next_deadline().is_some() || self.view.running().next().is_some();
        counting || self.notice.is_some() || self.link != Link::Up
    }

    fn tick(&mut self) {
        let old = |notice: &Notice| self.now.millis_since(notice.at) > NOTICE_MS;
        if self.notice.as_ref().is_some_and(old) {
            self.notice = None;
        }
        self.share_draft();
        self.resize_pane();
        self.read_on();
    }
}

/// A name for a message before it has one.
fn ticket_name(ticket: Ticket) -> MessageId {
    MessageId::parse(&format!("ticket-{ticket}")).unwrap_or_else(|_| fresh_id())
}
