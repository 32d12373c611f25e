//! A screen that is only for answers: it shows what waits of one agent, over the screen of its
//! client, and offers nothing else.

use crossterm::event::KeyEvent;
use pvp_client::view::GateCard;
use pvp_protocol::ParticipantId;

use super::{App, CurrentCard, Focus, MainContent};
use crate::keys::{KeyAction, KeyChord, KeyScope};

/// What the screen is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScreenPurpose {
    /// Everything in a session.
    Session,
    /// Answers to what this agent proposes.
    AnswersTo(ParticipantId),
}

impl ScreenPurpose {
    pub(crate) fn is_answers(&self) -> bool {
        match self {
            ScreenPurpose::Session => false,
            ScreenPurpose::AnswersTo(_) => true,
        }
    }
}

/// Whether a screen for answers does this. It decides one call at a time, about which everything was
/// read; rules and lists are for the screen of the session.
pub(super) fn is_offered(scope: KeyScope, action: KeyAction) -> bool {
    const ON_CARD: [KeyAction; 10] = [
        KeyAction::Approve,
        KeyAction::Reject,
        KeyAction::Edit,
        KeyAction::Explain,
        KeyAction::Up,
        KeyAction::Down,
        KeyAction::PageUp,
        KeyAction::PageDown,
        KeyAction::Compose,
        KeyAction::Redraw,
    ];
    const ON_PAGE: [KeyAction; 11] = [
        KeyAction::Up,
        KeyAction::Down,
        KeyAction::PageUp,
        KeyAction::PageDown,
        KeyAction::Top,
        KeyAction::Bottom,
        KeyAction::Search,
        KeyAction::FindNext,
        KeyAction::FindPrevious,
        KeyAction::Cancel,
        KeyAction::Redraw,
    ];
    const NOT_IN_DIALOG: [KeyAction; 2] = [KeyAction::Quit, KeyAction::Suspend];
    match scope {
        KeyScope::Card => ON_CARD.contains(&action),
        KeyScope::Dialog => !NOT_IN_DIALOG.contains(&action),
        KeyScope::Page => ON_PAGE.contains(&action),
        KeyScope::Always
        | KeyScope::Anywhere
        | KeyScope::Text
        | KeyScope::Composer
        | KeyScope::Recall
        | KeyScope::Stream
        | KeyScope::Preflight
        | KeyScope::Terminal => false,
    }
}

impl App {
    /// The open cards that this screen is about, oldest first.
    pub(crate) fn waiting_cards(&self) -> impl Iterator<Item = &GateCard> {
        self.view.gates.iter().filter(|card| self.is_about(card))
    }

    /// Those of them that wait for the user's vote.
    pub(crate) fn awaiting_my_vote(&self) -> impl Iterator<Item = &GateCard> {
        let mine = self.view.awaiting_my_vote();
        mine.filter(|card| self.is_about(card))
    }

    fn is_about(&self, card: &GateCard) -> bool {
        match &self.purpose {
            ScreenPurpose::Session => true,
            ScreenPurpose::AnswersTo(agent) => card.requested.proposer.as_ref() == Some(agent),
        }
    }

    /// On a screen for answers there is nothing else to focus.
    pub(super) fn keep_focus_on_card(&mut self) {
        if !self.purpose.is_answers() {
            return;
        }
        self.focus = match self.main {
            MainContent::Stream => Focus::Card,
            MainContent::Page(_)
            | MainContent::Pager(_)
            | MainContent::Preflight(_)
            | MainContent::Terminal(_) => Focus::Main,
        };
        if self.card_state.selected_gate.is_none()
            && let Some(gate) = self.current_gate()
        {
            self.select_card(gate);
        }
    }

    /// Begins anew with the oldest card, for somebody who has just opened the screen.
    pub(crate) fn begin_answers(&mut self) {
        self.main = MainContent::Stream;
        self.dialog = None;
        self.notice = None;
        self.card_state.selected_gate = None;
        self.card_state.scroll_rows = 0;
        self.card_state.last_drawn = None;
        self.keep_focus_on_card();
    }

    /// Whether this key approves the card that is shown.
    pub(crate) fn is_approval(&self, key: &KeyEvent) -> bool {
        let scope = self.key_scope();
        let action = self
            .config
            .keymap
            .action_for(scope, KeyChord::from_event(key));
        scope == KeyScope::Card && action == Some(KeyAction::Approve)
    }

    /// Whether the card that is shown was decided meanwhile.
    pub(crate) fn is_card_decided(&self) -> bool {
        matches!(self.current_card(), Some(CurrentCard::Closed(_)))
    }
}
