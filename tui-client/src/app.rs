//! What the screen knows, and what a key, a message or the clock makes of it. Pure: effects are
//! left to whoever runs it.

mod composer;
mod dialogs;
mod gates;
mod incoming;
mod input_history;
mod io_types;
mod mouse;
mod navigation;
mod pty_input;
mod slash;

use std::collections::{BTreeMap, BTreeSet};

use pvp_client::view::View;
use pvp_client::{ShellResultQueue, fresh_id};
use pvp_protocol::payload::TerminalSize;
use pvp_protocol::{ClientMessage, Digest, MessageId, ParticipantId, Timestamp};
use ratatui::layout::Size;

pub(crate) use composer::{Composer, mention_name};
pub(crate) use gates::{CardState, CurrentCard, Preflight, PreflightItem};
pub(crate) use io_types::{AppEffect, AppInput, PendingRequestId};
pub(crate) use navigation::{StreamPosition, StreamScrollState};
pub(crate) use slash::SLASH_COMMANDS;
pub use slash::manual_table as slash_manual;

use crate::config::TuiConfig;
use crate::dialog::Dialog;
use crate::keys::{KeyAction, KeyChord, KeyScope};
use crate::pager::Pager;
use crate::pty_screen::PtyScreens;
use crate::text_page::TextPage;
use crate::theme::Theme;

/// Milliseconds between two words that somebody is here after all; the first may be lost.
const PRESENCE_INTERVAL_MS: u64 = 10_000;

/// Milliseconds that a notice stays.
const NOTICE_DURATION_MS: u64 = 8_000;

/// How the connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Connected,
    Reconnecting { reason: String, since: Timestamp },
    Closed { reason: String },
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
pub(crate) enum MainContent {
    Stream,
    Page(TextPage),
    Pager(Pager),
    Preflight(Preflight),
    /// The screen of an interactive command.
    Terminal(MessageId),
}

/// How a notice is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoticeLevel {
    Info,
    Success,
    Error,
}

/// A line about what one just did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) text: String,
    pub(crate) level: NoticeLevel,
    shown_at: Timestamp,
}

/// What a message of ours was for.
#[derive(Debug, Clone, PartialEq)]
enum PendingRequest {
    Vote {
        gate: MessageId,
        success_notice: &'static str,
    },
    Prompt {
        text: String,
    },
    Shell {
        line: String,
        send_result: bool,
    },
    /// Anything else, and what to say when it was taken.
    WithNotice {
        success_notice: &'static str,
    },
    /// Worth a word only if it was refused.
    ErrorsOnly,
    /// Not worth a word.
    Ignored,
}

/// A command of one's own that runs.
#[derive(Debug, Clone, PartialEq)]
struct ShellRun {
    proposal: MessageId,
    /// Whether its result goes to the agent at once.
    send_result: bool,
}

/// What a drawing showed, which is what a vote binds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DrawnGates {
    pub(crate) card: Option<(MessageId, Digest)>,
    /// Whether the end of the card's command was on the screen.
    pub(crate) command_end_visible: bool,
    /// Rows of the preflight list that were there whole.
    pub(crate) fully_listed: Vec<MessageId>,
}

/// The screen.
pub(crate) struct App {
    pub(crate) view: View,
    pub(crate) config: TuiConfig,
    pub(crate) theme: Theme,
    pub(crate) now: Timestamp,
    pub(crate) size: Size,
    pub(crate) connection: ConnectionState,
    pub(crate) focus: Focus,
    pub(crate) main: MainContent,
    pub(crate) dialog: Option<Dialog>,
    pub(crate) composer: Composer,
    pub(crate) card_state: CardState,
    pub(crate) stream_scroll: StreamScrollState,
    pub(crate) pty_screens: PtyScreens,
    pub(crate) shell_results: ShellResultQueue,
    pub(crate) notice: Option<Notice>,
    /// Whom prompts go to, if that was said.
    pub(crate) prompt_target: Option<ParticipantId>,
    /// Whether the terminal has the focus; unknown until it says so.
    terminal_focused: Option<bool>,
    shell_runs: Vec<ShellRun>,
    pending_requests: BTreeMap<PendingRequestId, PendingRequest>,
    next_request_id: PendingRequestId,
    /// Gates that someone was called for.
    notified_gates: BTreeSet<MessageId>,
    quit_requested: bool,
    /// Whether to quit as soon as everything is sent.
    quit_when_sent: bool,
    /// When it was last said that somebody is here.
    presence_sent_at: Option<Timestamp>,
    shared_draft: String,
    /// The size that an interactive command was told last.
    sent_pty_size: Option<(MessageId, TerminalSize)>,
    effects: Vec<AppEffect>,
}

impl App {
    pub(crate) fn new(config: TuiConfig, size: Size, now: Timestamp) -> Self {
        Self {
            view: View::default(),
            theme: Theme::new(config.palette),
            config,
            now,
            size,
            connection: ConnectionState::Connected,
            focus: Focus::Composer,
            main: MainContent::Stream,
            dialog: None,
            composer: Composer::default(),
            card_state: CardState::default(),
            stream_scroll: StreamScrollState::default(),
            pty_screens: PtyScreens::default(),
            shell_results: ShellResultQueue::default(),
            notice: None,
            prompt_target: None,
            terminal_focused: None,
            shell_runs: Vec::new(),
            pending_requests: BTreeMap::new(),
            next_request_id: 0,
            notified_gates: BTreeSet::new(),
            quit_requested: false,
            quit_when_sent: false,
            presence_sent_at: None,
            shared_draft: String::new(),
            sent_pty_size: None,
            effects: Vec::new(),
        }
    }

    /// Takes what happened; gives what is to be done.
    pub(crate) fn update(&mut self, now: Timestamp, input: AppInput) -> Vec<AppEffect> {
        self.now = now;
        if input.is_user_activity() {
            self.send_presence();
        }
        match input {
            AppInput::Key(key) => self.on_key(KeyChord::from_event(&key)),
            AppInput::Paste(text) => self.on_paste(&text),
            AppInput::Mouse(event) => self.on_mouse(event),
            AppInput::FocusChanged(looking) => self.terminal_focused = Some(looking),
            AppInput::Resize(size) => {
                self.size = size;
                self.send_pty_size();
            }
            AppInput::Message(envelope) => self.on_message(&envelope),
            AppInput::Connected { resumed } => self.on_connected(resumed),
            AppInput::Disconnected { reason } => {
                let since = self.now;
                self.connection = ConnectionState::Reconnecting { reason, since };
            }
            AppInput::Closed { reason } => self.connection = ConnectionState::Closed { reason },
            AppInput::RequestDone(request_id, answer) => self.on_request_done(request_id, answer),
            AppInput::OutputFetched(page) => self.on_output_fetched(page),
            AppInput::OutputSearched(page) => self.on_output_searched(page),
            AppInput::InvitationCreated(invitation) => self.on_invitation_created(invitation),
            AppInput::HistoryLoaded(loaded) => self.on_history_loaded(loaded),
            AppInput::ProgramsListed(programs) => self.composer.program_names = programs,
            AppInput::Tick => self.on_tick(),
        }
        self.deselect_closed_card();
        self.quit_if_all_sent();
        std::mem::take(&mut self.effects)
    }

    /// A card that is decided stays only while one looks at it.
    fn deselect_closed_card(&mut self) {
        if self.focus != Focus::Card && matches!(self.current_card(), Some(CurrentCard::Closed(_)))
        {
            self.card_state.selected_gate = None;
        }
    }

    /// Notes what was drawn.
    pub(crate) fn record_drawn(&mut self, drawn: DrawnGates) {
        if let (Some((gate, digest)), true) = (&drawn.card, drawn.command_end_visible) {
            self.card_state.fully_seen.insert(gate.clone(), *digest);
        }
        if let MainContent::Preflight(preflight) = &mut self.main {
            let choices = preflight.items.iter_mut();
            let shown = choices.filter(|choice| drawn.fully_listed.contains(&choice.gate));
            shown.for_each(|choice| choice.fully_shown = true);
        }
        self.card_state.last_drawn = drawn.card;
    }

    /// Where a key would go.
    pub(crate) fn key_scope(&self) -> KeyScope {
        if self.dialog.is_some() {
            return KeyScope::Dialog;
        }
        match (self.focus, &self.main) {
            (Focus::Composer, _) if self.composer.history.search.is_some() => KeyScope::Recall,
            (Focus::Composer, _) => KeyScope::Composer,
            (Focus::Card, _) => KeyScope::Card,
            (Focus::Main, MainContent::Stream) => KeyScope::Stream,
            (Focus::Main, MainContent::Page(_) | MainContent::Pager(_)) => KeyScope::Page,
            (Focus::Main, MainContent::Preflight(_)) => KeyScope::Preflight,
            (Focus::Main, MainContent::Terminal(proposal)) => match self.is_driver_of(proposal) {
                true => KeyScope::Terminal,
                false => KeyScope::Page,
            },
        }
    }

    fn on_key(&mut self, chord: KeyChord) {
        let scope = self.key_scope();
        let action = self.config.keymap.action_for(scope, chord);
        if !scope.accepts_text() {
            // What was said about the key before is not about this one.
            self.notice = None;
        }
        if action != Some(KeyAction::Clear) && action != Some(KeyAction::Quit) {
            self.quit_requested = false;
            self.quit_when_sent = false;
        }
        match action {
            Some(action) => self.run_action(scope, action),
            None => self.on_unbound_key(scope, chord),
        }
    }

    /// A key that the table does not know: text where text is typed, else nothing.
    fn on_unbound_key(&mut self, scope: KeyScope, chord: KeyChord) {
        match scope {
            KeyScope::Composer | KeyScope::Recall => {
                if let Some(character) = chord.typed_char() {
                    self.composer.insert_typed(&character.to_string());
                }
            }
            KeyScope::Dialog => {
                if let (Some(c), Some(dialog)) = (chord.typed_char(), &mut self.dialog) {
                    dialog.editor_mut().insert(&c.to_string());
                }
            }
            KeyScope::Terminal => self.send_key_to_pty(chord),
            KeyScope::Always
            | KeyScope::Anywhere
            | KeyScope::Text
            | KeyScope::Card
            | KeyScope::Stream
            | KeyScope::Preflight
            | KeyScope::Page => {}
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what is left is for the pane"
    )]
    fn run_action(&mut self, scope: KeyScope, action: KeyAction) {
        match action {
            KeyAction::Quit => return self.request_quit(),
            KeyAction::FocusNext => return self.focus_next(),
            KeyAction::FocusPrevious => return self.focus_previous(),
            KeyAction::FocusCard => return self.focus_card(),
            KeyAction::Redraw => return self.effects.push(AppEffect::Redraw),
            KeyAction::Suspend => return self.effects.push(AppEffect::Suspend),
            KeyAction::Keys => return self.open_page(crate::pages::keys(self)),
            KeyAction::Compose => return self.focus = Focus::Composer,
            KeyAction::Shell => return self.start_composing("!"),
            KeyAction::Slash => return self.start_composing("/"),
            KeyAction::Interrupt => return self.open_interrupt_dialog(),
            KeyAction::ScrollUp => return self.scroll_stream(-(self.main_rows() as isize)),
            KeyAction::ScrollDown => return self.scroll_stream(self.main_rows() as isize),
            _ => {}
        }
        match scope {
            KeyScope::Composer => self.on_composer_action(action),
            KeyScope::Recall => self.on_history_search_action(action),
            KeyScope::Card => self.on_card_action(action),
            KeyScope::Stream => self.on_stream_action(action),
            KeyScope::Dialog => self.on_dialog_action(action),
            KeyScope::Preflight => self.on_preflight_action(action),
            KeyScope::Page | KeyScope::Terminal => self.on_page_action(action),
            KeyScope::Always | KeyScope::Anywhere | KeyScope::Text => {}
        }
    }

    pub(crate) fn show_notice(&mut self, tone: NoticeLevel, text: impl Into<String>) {
        let text = crate::text::one_line(&text.into());
        let at = self.now;
        self.notice = Some(Notice {
            text,
            level: tone,
            shown_at: at,
        });
    }

    fn send(
        &mut self,
        errand: PendingRequest,
        message: impl Into<ClientMessage>,
    ) -> PendingRequestId {
        let request_id = self.next_request_id;
        self.next_request_id += 1;
        self.pending_requests.insert(request_id, errand);
        let message = Box::new(message.into());
        self.effects.push(AppEffect::Send(request_id, message));
        request_id
    }

    fn open_page(&mut self, page: TextPage) {
        self.show_main(MainContent::Page(page));
    }

    fn show_main(&mut self, main: MainContent) {
        self.main = main;
        self.focus = Focus::Main;
    }

    /// Back to the stream, and to typing.
    fn close_main(&mut self) {
        self.main = MainContent::Stream;
        self.focus = Focus::Composer;
    }

    fn focus_next(&mut self) {
        match self.focus {
            Focus::Composer if self.current_card().is_some() => self.focus_card(),
            Focus::Composer | Focus::Card => self.focus = Focus::Main,
            Focus::Main => self.focus = Focus::Composer,
        }
    }

    fn focus_previous(&mut self) {
        match self.focus {
            Focus::Main if self.current_card().is_some() => self.focus_card(),
            Focus::Main | Focus::Card => self.focus = Focus::Composer,
            Focus::Composer => self.focus = Focus::Main,
        }
    }

    /// Messages that the server has not taken yet.
    pub(crate) fn unsent_count(&self) -> usize {
        let errands = self.pending_requests.values();
        errands
            .filter(|errand| **errand != PendingRequest::Ignored)
            .count()
    }

    /// Quits once nothing would be lost by it, or when asked again.
    fn request_quit(&mut self) {
        let waiting = self.unsent_count();
        if waiting == 0 || self.quit_requested {
            return self.effects.push(AppEffect::Quit);
        }
        self.quit_requested = true;
        self.quit_when_sent = true;
        let what = crate::wording::pluralize(waiting as u64, "message");
        self.show_notice(
            NoticeLevel::Error,
            format!("{what} of yours not sent yet; it quits after that, or once more to quit now"),
        );
    }

    fn quit_if_all_sent(&mut self) {
        if self.quit_when_sent && self.unsent_count() == 0 {
            self.quit_when_sent = false;
            self.effects.push(AppEffect::Quit);
        }
    }

    /// Whether the clock alone changes what is on the screen.
    pub(crate) fn changes_with_time(&self) -> bool {
        let counting = self.view.next_deadline().is_some() || self.view.running().next().is_some();
        counting || self.notice.is_some() || self.connection != ConnectionState::Connected
    }

    fn on_tick(&mut self) {
        let expired = |notice: &Notice| self.now.millis_since(notice.shown_at) > NOTICE_DURATION_MS;
        if self.notice.as_ref().is_some_and(expired) {
            self.notice = None;
        }
        self.share_draft();
        self.send_pty_size();
        self.poll_pager();
    }
}

/// A name for a message before it has one.
fn provisional_message_id(request_id: PendingRequestId) -> MessageId {
    MessageId::parse(&format!("ticket-{request_id}")).unwrap_or_else(|_| fresh_id())
}
