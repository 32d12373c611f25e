//! Handles the gate cards: which card is current, and what its keys do.
//!
//! A vote is only sent for a command that was completely on the screen when the key was pressed.

use pvp_client::narrate;
use std::collections::BTreeMap;

use pvp_client::view::{ClosedGateCard, GateCard, PrefixOffer, VoteEligibility};
use pvp_protocol::payload::GateApprove;
use pvp_protocol::{Digest, ExtraFields, MessageId, ParticipantId};

use super::{App, AppEffect, Focus, MainContent, NoticeLevel, PendingRequest};
use crate::dialog::{Dialog, GateVersion};
use crate::keys::KeyAction;

/// What the screen knows about the gate cards beyond the view.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CardState {
    /// The selected card; it stays selected when its gate closes.
    pub(crate) selected_gate: Option<MessageId>,
    /// Number of rows scrolled off the top of the card.
    pub(crate) scroll_rows: usize,
    /// The gate and digest that the last frame showed.
    pub(crate) last_drawn: Option<(MessageId, Digest)>,
    /// Gates whose command was visible to its end, with the digest it had then.
    pub(crate) fully_seen: BTreeMap<MessageId, Digest>,
    /// Votes that the server has not answered yet, with the text to show meanwhile.
    pub(crate) pending_votes: BTreeMap<MessageId, &'static str>,
}

/// The card that the card keys act on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CurrentCard<'a> {
    Open(&'a GateCard),
    /// Decided meanwhile; its voting keys do nothing.
    Closed(&'a ClosedGateCard),
}

/// The preflight list: commands to approve together.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Preflight {
    pub(crate) items: Vec<PreflightItem>,
    pub(crate) cursor: usize,
}

/// One command of a preflight list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PreflightItem {
    pub(crate) gate: MessageId,
    pub(crate) digest: Digest,
    pub(crate) marked: bool,
    /// Whether the whole command fits on the screen. If not, it cannot be marked.
    pub(crate) fits_screen: bool,
    /// Whether a frame has shown the whole command.
    pub(crate) fully_shown: bool,
}

impl App {
    /// The current card: the selected one, else the oldest that waits for the user's vote, else the
    /// oldest.
    pub(crate) fn current_card(&self) -> Option<CurrentCard<'_>> {
        if let Some(selected) = &self.card_state.selected_gate {
            if let Some(card) = self.view.card(selected) {
                return Some(CurrentCard::Open(card));
            }
            let mut closed = self.view.resolved.iter().rev();
            if let Some(resolved) = closed.find(|resolved| resolved.gate == *selected) {
                return Some(CurrentCard::Closed(resolved));
            }
            // Someone who selected a card must not find another one under their keys.
            if self.focus == Focus::Card {
                return None;
            }
        }
        let mine = self.awaiting_my_vote().next();
        mine.or(self.waiting_cards().next()).map(CurrentCard::Open)
    }

    pub(super) fn current_gate(&self) -> Option<MessageId> {
        self.current_card().map(|current| match current {
            CurrentCard::Open(card) => card.gate.clone(),
            CurrentCard::Closed(resolved) => resolved.gate.clone(),
        })
    }

    /// Focuses the current card and selects it, so that it stays current when others arrive.
    pub(super) fn focus_card(&mut self) {
        match self.current_gate() {
            Some(gate) => {
                self.select_card(gate);
                self.focus = Focus::Card;
            }
            None => self.show_notice(NoticeLevel::Info, "no command is waiting for a decision"),
        }
    }

    /// Shows the stream, and focuses this card.
    pub(super) fn open_card(&mut self, gate: MessageId) {
        self.main = MainContent::Stream;
        self.select_card(gate);
        self.focus = Focus::Card;
    }

    pub(super) fn select_card(&mut self, gate: MessageId) {
        if self.card_state.selected_gate.as_ref() != Some(&gate) {
            self.card_state.scroll_rows = 0;
        }
        self.card_state.selected_gate = Some(gate);
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "handles only its own keys")]
    pub(super) fn on_card_action(&mut self, action: KeyAction) {
        match action {
            KeyAction::Up => self.move_card_selection(-1),
            KeyAction::Down => self.move_card_selection(1),
            KeyAction::PageDown => self.card_state.scroll_rows += self.card_page_rows(),
            KeyAction::PageUp => {
                self.card_state.scroll_rows = self
                    .card_state
                    .scroll_rows
                    .saturating_sub(self.card_page_rows());
            }
            KeyAction::Copy => self.copy_card(),
            KeyAction::Explain => self.open_explanation(),
            KeyAction::ApproveAll => self.open_preflight(),
            KeyAction::Approve => self.approve_current_card(),
            KeyAction::Reject => {
                self.open_card_dialog(|gate_version, _| Dialog::reject(gate_version))
            }
            KeyAction::Edit => self.open_edit_dialog(),
            KeyAction::AllowPrefix => self.open_allow_dialog(),
            KeyAction::AllowReading => self.open_allow_reading_dialog(),
            _ => {}
        }
    }

    /// Selects the next open card in the direction of `step`.
    fn move_card_selection(&mut self, step: isize) {
        let gates: Vec<_> = self.waiting_cards().map(|card| card.gate.clone()).collect();
        if gates.is_empty() {
            self.card_state.selected_gate = None;
            self.focus = Focus::Composer;
            return self.show_notice(NoticeLevel::Info, "no command is waiting for a decision");
        }
        let current = self.current_gate();
        let index = gates.iter().position(|gate| Some(gate) == current.as_ref());
        let next = match index {
            Some(index) => index.saturating_add_signed(step).min(gates.len() - 1),
            None if step < 0 => gates.len() - 1,
            None => 0,
        };
        if let Some(gate) = gates.into_iter().nth(next) {
            self.select_card(gate);
        }
    }

    fn copy_card(&mut self) {
        let command = match self.current_card() {
            Some(CurrentCard::Open(card)) => card.requested.command.clone(),
            Some(CurrentCard::Closed(resolved)) => resolved.command.clone(),
            None => return,
        };
        self.copy_to_clipboard(command, "the command");
    }

    pub(super) fn copy_to_clipboard(&mut self, text: String, what: &str) {
        self.effects.push(AppEffect::Copy(text));
        self.show_notice(NoticeLevel::Success, format!("copied {what}"));
    }

    /// The current card if it is open and the last frame showed it is.
    fn card_as_drawn(&mut self) -> Option<GateCard> {
        let card = match self.current_card() {
            Some(CurrentCard::Open(card)) => card.clone(),
            Some(CurrentCard::Closed(_)) => {
                self.show_notice(NoticeLevel::Error, "this one is already decided");
                return None;
            }
            None => return None,
        };
        if self.card_state.last_drawn != Some((card.gate.clone(), card.digest)) {
            self.show_notice(
                NoticeLevel::Error,
                "the command changed just now; look again",
            );
            return None;
        }
        Some(card)
    }

    fn open_explanation(&mut self) {
        if let Some(CurrentCard::Open(card)) = self.current_card() {
            let page = crate::pages::explanation(card, &self.view, &self.theme);
            self.open_page(page);
        }
    }

    fn approve_current_card(&mut self) {
        let Some(card) = self.card_as_drawn() else {
            return;
        };
        if !card.standing.may_vote() {
            return self.show_notice(NoticeLevel::Error, card.standing.description());
        }
        if card.standing == VoteEligibility::Approved {
            return self.show_notice(NoticeLevel::Info, "you had approved this already");
        }
        if let Some(pending) = self.card_state.pending_votes.get(&card.gate) {
            return self.show_notice(NoticeLevel::Info, *pending);
        }
        if self.card_state.fully_seen.get(&card.gate) != Some(&card.digest) {
            let notice = match card.requested.call {
                Some(_) => "read all of it first (x), to its end",
                None => "scroll to the end of the command first (space)",
            };
            return self.show_notice(NoticeLevel::Error, notice);
        }
        self.send_approval(&card.gate, card.digest);
    }

    pub(crate) fn send_approval(&mut self, gate: &MessageId, digest: Digest) {
        let Some(approver) = self.my_id() else { return };
        let success_notice = "approved";
        self.card_state
            .pending_votes
            .insert(gate.clone(), "sending your approval");
        let request = PendingRequest::Vote {
            gate: gate.clone(),
            success_notice,
        };
        let message = GateApprove {
            gate: gate.clone(),
            approver,
            comment: None,
            digest: Some(digest),
            gate_request: None,
            extra: ExtraFields::new(),
        };
        self.send(request, message);
    }

    pub(super) fn my_id(&self) -> Option<ParticipantId> {
        self.view.me.as_ref().map(|me| me.participant.clone())
    }

    /// Opens a dialog about the card that is shown.
    fn open_card_dialog(&mut self, make_dialog: impl Fn(GateVersion, &GateCard) -> Dialog) {
        let Some(card) = self.card_as_drawn() else {
            return;
        };
        if !card.standing.may_vote() {
            return self.show_notice(NoticeLevel::Error, card.standing.description());
        }
        let gate_version = GateVersion {
            gate: card.gate.clone(),
            digest: card.digest,
        };
        self.dialog = Some(make_dialog(gate_version, &card));
    }

    fn open_edit_dialog(&mut self) {
        let Some(card) = self.card_as_drawn() else {
            return;
        };
        if card.requested.amend_arguments("").is_none() {
            return self.show_notice(NoticeLevel::Error, "only shell commands can be edited");
        }
        if card.requested.cut_bytes > 0 {
            return self.show_notice(NoticeLevel::Error, "this command is too long to edit here");
        }
        let gate_version = GateVersion {
            gate: card.gate.clone(),
            digest: card.digest,
        };
        self.dialog = Some(Dialog::edit(gate_version, &card.requested.command));
    }

    fn open_allow_dialog(&mut self) {
        let Some(card) = self.card_as_drawn() else {
            return;
        };
        if !self.view.may_approve() {
            return self.show_notice(NoticeLevel::Error, "your roles do not include approving");
        }
        let effect = match card.allow_prefix {
            PrefixOffer::NotPossible if card.requested.prefix.is_empty() => {
                let why = "an allow rule cannot cover this command";
                return self.show_notice(NoticeLevel::Error, why);
            }
            PrefixOffer::NotPossible => {
                let why = "one person cannot make an allow rule in this session";
                return self.show_notice(NoticeLevel::Error, why);
            }
            PrefixOffer::AlsoApproves => "this one runs at once".to_owned(),
            PrefixOffer::LaterOnly => {
                let missing = u64::from(card.missing_approvals());
                let missing = narrate::pluralize(missing, "approval");
                format!("this one still needs {missing}")
            }
        };
        let requested = &card.requested;
        let prefix = requested.prefix.join(" ");
        self.dialog = Some(Dialog::allow(&prefix, requested.cwd.as_deref(), effect));
    }

    fn open_allow_reading_dialog(&mut self) {
        let Some(card) = self.card_as_drawn() else {
            return;
        };
        if !self.view.may_approve() {
            return self.show_notice(NoticeLevel::Error, "your roles do not include approving");
        }
        let roots = card.requested.needed_read_roots();
        if roots.is_empty() {
            return self.show_notice(
                NoticeLevel::Error,
                "allowing a directory would not let this command run",
            );
        }
        self.dialog = Some(Dialog::allow_reading(roots));
    }

    /// Opens the list of everything that waits for the user's vote, to approve it together.
    fn open_preflight(&mut self) {
        if self.awaiting_my_vote().next().is_none() {
            return self.show_notice(NoticeLevel::Info, "no command is waiting for your vote");
        }
        // The list has more rows than the stream had; `main_rows` counts them once it is shown.
        self.show_main(MainContent::Preflight(Preflight::default()));
        let columns = usize::from(self.size.width).saturating_sub(8).max(1);
        let room = self.main_rows();
        let choice = |card: &GateCard| {
            let rows = crate::gate_card::command_rows(&card.requested, &self.theme, columns).len();
            let fits = rows + 3 <= room;
            PreflightItem {
                gate: card.gate.clone(),
                digest: card.digest,
                marked: fits,
                fits_screen: fits,
                fully_shown: false,
            }
        };
        let rows = self.awaiting_my_vote().map(choice).collect();
        self.main = MainContent::Preflight(Preflight {
            items: rows,
            cursor: 0,
        });
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "handles only its own keys")]
    pub(super) fn on_preflight_action(&mut self, action: KeyAction) {
        let MainContent::Preflight(preflight) = &mut self.main else {
            return;
        };
        let last = preflight.items.len().saturating_sub(1);
        match action {
            KeyAction::Up => preflight.cursor = preflight.cursor.saturating_sub(1),
            KeyAction::Down => preflight.cursor = (preflight.cursor + 1).min(last),
            KeyAction::Toggle => {
                if let Some(row) = preflight.items.get_mut(preflight.cursor) {
                    row.marked = row.fits_screen && !row.marked;
                }
            }
            KeyAction::Cancel => {
                self.close_main();
                self.show_notice(NoticeLevel::Info, "nothing was approved");
            }
            KeyAction::Confirm => self.confirm_preflight(),
            _ => {}
        }
    }

    fn confirm_preflight(&mut self) {
        let MainContent::Preflight(preflight) = &self.main else {
            return;
        };
        let marked = preflight.items.iter().filter(|choice| choice.marked);
        let seen: Vec<_> = marked.map(|choice| choice.fully_shown).collect();
        if seen.is_empty() {
            self.show_notice(
                NoticeLevel::Error,
                "nothing is selected; esc closes the list",
            );
        } else if seen.contains(&false) {
            self.show_notice(
                NoticeLevel::Error,
                "scroll to the end of the list first (down)",
            );
        } else {
            self.approve_marked();
        }
    }

    /// Sends a vote for each marked command that is still as the list showed it.
    fn approve_marked(&mut self) {
        let MainContent::Preflight(preflight) =
            std::mem::replace(&mut self.main, MainContent::Stream)
        else {
            return;
        };
        self.close_main();
        let marked = preflight.items.into_iter().filter(|row| row.marked);
        let (unchanged, changed): (Vec<_>, Vec<_>) = marked.partition(|row| {
            let card = self.view.card(&row.gate);
            card.is_some_and(|card| card.digest == row.digest && card.standing.may_vote())
        });
        for row in &unchanged {
            self.send_approval(&row.gate, row.digest);
        }
        let mut text = format!(
            "approved {}",
            narrate::pluralize(unchanged.len() as u64, "command")
        );
        if !changed.is_empty() {
            text += &format!("; {} changed or closed in the meantime", changed.len());
        }
        self.show_notice(NoticeLevel::Success, text);
    }
}
