//! The state of the terminal screen and how keys, messages and the clock change it.
//!
//! This module is pure: it returns effects, and the event loop performs them.

mod answers;
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

use pvp_client::narrate;
use std::collections::{BTreeMap, BTreeSet};

use pvp_client::view::View;
use pvp_client::{RecordWarning, ShellResultQueue, fresh_id};
use pvp_protocol::payload::TerminalSize;
use pvp_protocol::{ClientMessage, Digest, MessageId, ParticipantId, Timestamp};
use ratatui::layout::Size;

pub(crate) use answers::ScreenPurpose;
pub(crate) use composer::{Composer, mention_name};
pub(crate) use gates::{CardState, CurrentCard, Preflight, PreflightItem};
pub(crate) use io_types::{AppEffect, AppInput, MadeInvitation, PendingRequestId};
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

/// Milliseconds between two presence updates. It is sent again because one may be lost.
const PRESENCE_INTERVAL_MS: u64 = 10_000;

/// Milliseconds that a notice stays on the screen.
const NOTICE_DURATION_MS: u64 = 8_000;

/// The state of the connection to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Connected,
    Reconnecting { reason: String, since: Timestamp },
    Closed { reason: String },
}

/// The part of the screen that receives keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    Composer,
    Card,
    Main,
}

/// What the main area of the screen shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MainContent {
    Stream,
    Page(TextPage),
    Pager(Pager),
    Preflight(Preflight),
    /// The screen of an interactive command.
    Terminal(MessageId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoticeLevel {
    Info,
    Success,
    Error,
}

/// A one-line message about the user's last action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) text: String,
    pub(crate) level: NoticeLevel,
    shown_at: Timestamp,
}

/// What a message that we sent was for, kept until the server answers it.
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
    /// Any other message, with the notice to show when the server accepts it.
    WithNotice {
        success_notice: &'static str,
    },
    /// Shows a notice only if the server refuses it.
    ErrorsOnly,
    /// Never shows a notice.
    Ignored,
}

/// A shell command of the user's own (`!command`) whose result has not arrived yet.
#[derive(Debug, Clone, PartialEq)]
struct ShellRun {
    proposal: MessageId,
    /// Whether its result goes to the agent as soon as it arrives.
    send_result: bool,
}

/// Which gates the last frame showed. A vote binds to exactly that.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DrawnGates {
    pub(crate) card: Option<(MessageId, Digest)>,
    /// Whether the end of the card's command was visible.
    pub(crate) command_end_visible: bool,
    /// The gate whose tool call was visible to its end on a page, with the digest it had then.
    pub(crate) read_call: Option<(MessageId, Digest)>,
    /// Gates whose rows in the preflight list were completely visible.
    pub(crate) fully_listed: Vec<MessageId>,
}

/// The whole state of the terminal screen.
pub(crate) struct App {
    /// What the user sees of the session, folded from the messages received so far.
    pub(crate) view: View,
    /// What the screen is for.
    pub(crate) purpose: ScreenPurpose,
    /// The settings of the screen.
    pub(crate) config: TuiConfig,
    /// The styles to draw with.
    pub(crate) theme: Theme,
    /// The time of the latest input.
    pub(crate) now: Timestamp,
    /// Columns and rows of the terminal.
    pub(crate) size: Size,
    /// The state of the connection to the server.
    pub(crate) connection: ConnectionState,
    /// The part of the screen that receives keys.
    pub(crate) focus: Focus,
    /// What the main area shows.
    pub(crate) main: MainContent,
    /// The open dialog, which receives keys before anything else.
    pub(crate) dialog: Option<Dialog>,
    /// The input line.
    pub(crate) composer: Composer,
    /// Selection, scrolling and pending votes of the gate cards.
    pub(crate) card_state: CardState,
    /// The scroll position, selection and search of the stream.
    pub(crate) stream_scroll: StreamScrollState,
    /// The terminal screens of interactive commands.
    pub(crate) pty_screens: PtyScreens,
    /// Results of the user's own commands that go to the agent with the next prompt.
    pub(crate) shell_results: ShellResultQueue,
    /// That the log is not the one that was seen before; it stays on the screen.
    pub(crate) record_warning: Option<RecordWarning>,
    /// The notice on the screen.
    pub(crate) notice: Option<Notice>,
    /// The agent that `/to` chose for prompts; `None` if the user chose none.
    pub(crate) prompt_target: Option<ParticipantId>,
    /// Whether the terminal has the window focus; `None` until the terminal reports it.
    terminal_focused: Option<bool>,
    /// The user's own commands whose results have not arrived yet, oldest first.
    shell_runs: Vec<ShellRun>,
    /// Messages that the server has not answered yet.
    pending_requests: BTreeMap<PendingRequestId, PendingRequest>,
    /// The id for the next message that we send.
    next_request_id: PendingRequestId,
    /// Open gates that already caused a notification.
    notified_gates: BTreeSet<MessageId>,
    /// Whether the user has asked to quit once; asking again quits at once.
    quit_requested: bool,
    /// Whether to quit as soon as the server has answered every message.
    quit_when_sent: bool,
    /// When we last sent a presence update; `None` if we never did.
    presence_sent_at: Option<Timestamp>,
    /// The draft that the others last received from us.
    shared_draft: String,
    /// The interactive command and the size that we sent it last.
    sent_pty_size: Option<(MessageId, TerminalSize)>,
    /// Effects collected by the current update.
    effects: Vec<AppEffect>,
}

impl App {
    pub(crate) fn new(config: TuiConfig, size: Size, now: Timestamp) -> Self {
        Self {
            view: View::default(),
            purpose: ScreenPurpose::Session,
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
            record_warning: None,
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

    /// Applies one input and returns the effects to perform.
    pub(crate) fn update(&mut self, now: Timestamp, input: AppInput) -> Vec<AppEffect> {
        self.now = now;
        if input.is_user_activity() {
            self.send_presence();
        }
        match input {
            AppInput::Key(key) => self.on_key(KeyChord::from_event(&key)),
            AppInput::Paste(text) => self.on_paste(&text),
            AppInput::Mouse(event) => self.on_mouse(event),
            AppInput::FocusChanged(focused) => self.terminal_focused = Some(focused),
            AppInput::Resize(size) => {
                self.size = size;
                self.send_pty_size();
            }
            AppInput::Message(envelope) => self.on_message(&envelope),
            AppInput::Connected { resumed } => self.on_connected(resumed),
            AppInput::RecordWarning(warning) => self.on_record_warning(warning),
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
        self.keep_focus_on_card();
        self.quit_if_all_sent();
        std::mem::take(&mut self.effects)
    }

    /// Deselects a decided card unless it has the focus.
    fn deselect_closed_card(&mut self) {
        if self.focus != Focus::Card && matches!(self.current_card(), Some(CurrentCard::Closed(_)))
        {
            self.card_state.selected_gate = None;
        }
    }

    /// Records what the last frame showed.
    pub(crate) fn record_drawn(&mut self, drawn: DrawnGates) {
        if let (Some((gate, digest)), true) = (&drawn.card, drawn.command_end_visible) {
            self.card_state.fully_seen.insert(gate.clone(), *digest);
        }
        if let Some((gate, digest)) = drawn.read_call {
            self.card_state.fully_seen.insert(gate, digest);
        }
        if let MainContent::Preflight(preflight) = &mut self.main {
            let choices = preflight.items.iter_mut();
            let shown = choices.filter(|choice| drawn.fully_listed.contains(&choice.gate));
            shown.for_each(|choice| choice.fully_shown = true);
        }
        self.card_state.last_drawn = drawn.card;
    }

    /// The scope that the next key belongs to.
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
            // The notice was about the previous key.
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

    /// Handles a key without a binding: it is text where text can be typed, and nothing elsewhere.
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

    #[expect(clippy::wildcard_enum_match_arm, reason = "the scope handles the rest")]
    fn run_action(&mut self, scope: KeyScope, action: KeyAction) {
        if self.purpose.is_answers() && !answers::is_offered(scope, action) {
            return;
        }
        match action {
            KeyAction::Quit => return self.request_quit(),
            KeyAction::FocusNext => return self.focus_next(),
            KeyAction::FocusPrevious => return self.focus_previous(),
            KeyAction::FocusCard => return self.focus_card(),
            KeyAction::Redraw => return self.effects.push(AppEffect::Redraw),
            KeyAction::Suspend => return self.effects.push(AppEffect::Suspend),
            KeyAction::Keys => return self.open_page(crate::pages::keys(self)),
            KeyAction::Compose if self.purpose.is_answers() => {
                return self.effects.push(AppEffect::Quit);
            }
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

    pub(crate) fn show_notice(&mut self, level: NoticeLevel, text: impl Into<String>) {
        let text = crate::text::one_line(&text.into());
        let shown_at = self.now;
        self.notice = Some(Notice {
            text,
            level,
            shown_at,
        });
    }

    fn send(
        &mut self,
        request: PendingRequest,
        message: impl Into<ClientMessage>,
    ) -> PendingRequestId {
        let request_id = self.next_request_id;
        self.next_request_id += 1;
        self.pending_requests.insert(request_id, request);
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

    /// Shows the stream again and focuses the composer.
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

    /// Number of messages that the server has not answered yet.
    pub(crate) fn unsent_count(&self) -> usize {
        let requests = self.pending_requests.values();
        requests
            .filter(|request| **request != PendingRequest::Ignored)
            .count()
    }

    /// Quits once every message is sent, or at once if the user asks again.
    fn request_quit(&mut self) {
        let waiting = self.unsent_count();
        if waiting == 0 || self.quit_requested {
            return self.effects.push(AppEffect::Quit);
        }
        self.quit_requested = true;
        self.quit_when_sent = true;
        let what = narrate::pluralize(waiting as u64, "message");
        self.show_notice(
            NoticeLevel::Error,
            format!("sending {what} before quitting; press again to quit now"),
        );
    }

    fn quit_if_all_sent(&mut self) {
        if self.quit_when_sent && self.unsent_count() == 0 {
            self.quit_when_sent = false;
            self.effects.push(AppEffect::Quit);
        }
    }

    /// Whether the passing of time alone changes what is on the screen.
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

/// A stand-in id for a message that the server has not given one yet.
fn provisional_message_id(request_id: PendingRequestId) -> MessageId {
    MessageId::parse(&format!("ticket-{request_id}")).unwrap_or_else(|_| fresh_id())
}
