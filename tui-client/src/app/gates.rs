//! Deciding: which card is meant, and what its keys do. Nothing is decided that was not on the
//! screen, whole, when the key was pressed.

use std::collections::BTreeMap;

use pvp_client::view::{ClosedGateCard, GateCard, VoteEligibility};
use pvp_protocol::payload::GateApprove;
use pvp_protocol::{Digest, ExtraFields, MessageId, ParticipantId};

use super::{App, Effect, Errand, Focus, Main, Tone};
use crate::dialog::{Dialog, Matter};
use crate::keys::Act;

/// What is known about the cards beyond the view.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cards {
    /// The card that was chosen; it stays chosen when it closes.
    pub(crate) selected: Option<MessageId>,
    /// Rows of the card that are scrolled away.
    pub(crate) scroll: usize,
    /// What the last drawing showed.
    pub(crate) drawn: Option<(MessageId, Digest)>,
    /// Commands whose end was on the screen.
    pub(crate) seen_whole: BTreeMap<MessageId, Digest>,
    /// Votes that are not answered yet.
    pub(crate) under_way: BTreeMap<MessageId, &'static str>,
}

/// The card that is meant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Current<'a> {
    Open(&'a GateCard),
    /// It was decided meanwhile; its keys are dead.
    Closed(&'a ClosedGateCard),
}

/// What would be approved together.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Preflight {
    pub(crate) rows: Vec<Choice>,
    pub(crate) cursor: usize,
}

/// One command of a preflight list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub(crate) gate: MessageId,
    pub(crate) digest: Digest,
    pub(crate) marked: bool,
    /// Whether all of it can be on the screen.
    pub(crate) fits: bool,
    /// Whether all of it was.
    pub(crate) seen: bool,
}

impl App {
    /// The card that is meant: the chosen one, else the oldest that waits for me, else the oldest.
    pub(crate) fn current(&self) -> Option<Current<'_>> {
        if let Some(selected) = &self.cards.selected {
            if let Some(card) = self.view.card(selected) {
                return Some(Current::Open(card));
            }
            let mut closed = self.view.resolved.iter().rev();
            if let Some(resolved) = closed.find(|resolved| resolved.gate == *selected) {
                return Some(Current::Closed(resolved));
            }
            // Another card does not slip under the fingers of someone who had chosen this one.
            if self.focus == Focus::Card {
                return None;
            }
        }
        let mine = self.view.awaiting_my_vote().next();
        mine.or(self.view.gates.first()).map(Current::Open)
    }

    fn current_gate(&self) -> Option<MessageId> {
        self.current().map(|current| match current {
            Current::Open(card) => card.gate.clone(),
            Current::Closed(resolved) => resolved.gate.clone(),
        })
    }

    /// Gives the card the focus, and keeps it the chosen one whatever arrives.
    pub(super) fn focus_card(&mut self) {
        match self.current_gate() {
            Some(gate) => {
                self.select(gate);
                self.focus = Focus::Card;
            }
            None => self.tell(Tone::Plain, "nothing waits for a decision"),
        }
    }

    /// Gives this card the focus.
    pub(super) fn open_card(&mut self, gate: MessageId) {
        self.main = Main::Stream;
        self.select(gate);
        self.focus = Focus::Card;
    }

    fn select(&mut self, gate: MessageId) {
        if self.cards.selected.as_ref() != Some(&gate) {
            self.cards.scroll = 0;
        }
        self.cards.selected = Some(gate);
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "a pane minds its own keys")]
    pub(super) fn act_card(&mut self, act: Act) {
        match act {
            Act::Up => self.select_by(-1),
            Act::Down => self.select_by(1),
            Act::PageDown => self.cards.scroll += self.card_page(),
            Act::PageUp => {
                self.cards.scroll = self.cards.scroll.saturating_sub(self.card_page());
            }
            Act::Copy => self.copy_card(),
            Act::Explain => self.explain(),
            Act::ApproveAll => self.preflight(),
            Act::Approve => self.approve(),
            Act::Reject => self.ask(|matter, _| Dialog::reject(matter)),
            Act::Edit => self.edit(),
            Act::AllowPrefix => self.ask_allow(),
            _ => {}
        }
    }

    /// The next open card in either direction, beginning at the chosen one.
    fn select_by(&mut self, step: isize) {
        let gates: Vec<_> = self
            .view
            .gates
            .iter()
            .map(|card| card.gate.clone())
            .collect();
        if gates.is_empty() {
            self.cards.selected = None;
            self.focus = Focus::Composer;
            return self.tell(Tone::Plain, "nothing waits for a decision");
        }
        let current = self.current_gate();
        let place = gates.iter().position(|gate| Some(gate) == current.as_ref());
        let next = match place {
            Some(place) => place.saturating_add_signed(step).min(gates.len() - 1),
            None if step < 0 => gates.len() - 1,
            None => 0,
        };
        if let Some(gate) = gates.into_iter().nth(next) {
            self.select(gate);
        }
    }

    fn copy_card(&mut self) {
        let command = match self.current() {
            Some(Current::Open(card)) => card.requested.command.clone(),
            Some(Current::Closed(resolved)) => resolved.command.clone(),
            None => return,
        };
        self.copy(command, "the command");
    }

    pub(super) fn copy(&mut self, text: String, what: &str) {
        self.effects.push(Effect::Copy(text));
        self.tell(Tone::Good, format!("copied {what}"));
    }

    /// The open card, if it is what was drawn last.
    fn shown_card(&mut self) -> Option<GateCard> {
        let card = match self.current() {
            Some(Current::Open(card)) => card.clone(),
            Some(Current::Closed(_)) => {
                self.tell(Tone::Bad, "it is decided already");
                return None;
            }
            None => return None,
        };
        if self.cards.drawn != Some((card.gate.clone(), card.digest)) {
            self.tell(Tone::Bad, "the command changed just now; look again");
            return None;
        }
        Some(card)
    }

    fn explain(&mut self) {
        if let Some(Current::Open(card)) = self.current() {
            let page = crate::pages::explain(card, &self.view, &self.theme);
            self.open_page(page);
        }
    }

    fn approve(&mut self) {
        let Some(card) = self.shown_card() else {
            return;
        };
        if !card.standing.may_vote() {
            return self.tell(Tone::Bad, card.standing.description());
        }
        if self.cards.under_way.contains_key(&card.gate)
            || card.standing == VoteEligibility::Approved
        {
            return self.tell(Tone::Plain, "you have voted already");
        }
        if self.cards.seen_whole.get(&card.gate) != Some(&card.digest) {
            return self.tell(Tone::Bad, "read the command to its end first (space)");
        }
        self.vote(&card.gate, card.digest);
    }

    pub(crate) fn vote(&mut self, gate: &MessageId, digest: Digest) {
        let Some(approver) = self.me() else { return };
        let done = "your approval counts";
        self.cards
            .under_way
            .insert(gate.clone(), "your approval is under way");
        let errand = Errand::Vote {
            gate: gate.clone(),
            done,
        };
        let message = GateApprove {
            gate: gate.clone(),
            approver,
            comment: None,
            digest: Some(digest),
            extra: ExtraFields::new(),
        };
        self.send(errand, message);
    }

    pub(super) fn me(&self) -> Option<ParticipantId> {
        self.view.me.as_ref().map(|me| me.participant.clone())
    }

    /// Opens a question about the card that is shown.
    fn ask(&mut self, question: impl Fn(Matter, &GateCard) -> Dialog) {
        let Some(card) = self.shown_card() else {
            return;
        };
        if !card.standing.may_vote() {
            return self.tell(Tone::Bad, card.standing.description());
        }
        let matter = Matter {
            gate: card.gate.clone(),
            digest: card.digest,
        };
        self.dialog = Some(question(matter, &card));
    }

    fn edit(&mut self) {
        let Some(card) = self.shown_card() else {
            return;
        };
        if card.requested.amend_arguments("").is_none() {
            return self.tell(Tone::Bad, "this is not a command line that can be edited");
        }
        if card.requested.cut_bytes > 0 {
            return self.tell(Tone::Bad, "it is too long to be edited here");
        }
        let matter = Matter {
            gate: card.gate.clone(),
            digest: card.digest,
        };
        self.dialog = Some(Dialog::edit(matter, &card.requested.command));
    }

    fn ask_allow(&mut self) {
        let Some(card) = self.shown_card() else {
            return;
        };
        if !self.view.may_approve() {
            return self.tell(Tone::Bad, "your roles do not approve");
        }
        if card.requested.prefix.is_empty() {
            return self.tell(Tone::Bad, "no prefix could allow a command like this one");
        }
        self.dialog = Some(Dialog::allow(&card.requested.prefix.join(" ")));
    }

    /// A list of everything that waits for me, to be approved together.
    fn preflight(&mut self) {
        if self.view.awaiting_my_vote().next().is_none() {
            return self.tell(Tone::Plain, "nothing waits for your vote");
        }
        // The list has more room than the stream had, which is seen only once it is there.
        self.show(Main::Preflight(Preflight::default()));
        let columns = usize::from(self.size.width).saturating_sub(8).max(1);
        let room = self.main_rows();
        let choice = |card: &GateCard| {
            let rows = crate::card::command(&card.requested, &self.theme, columns).len();
            let fits = rows + 3 <= room;
            Choice {
                gate: card.gate.clone(),
                digest: card.digest,
                marked: fits,
                fits,
                seen: false,
            }
        };
        let rows = self.view.awaiting_my_vote().map(choice).collect();
        self.main = Main::Preflight(Preflight { rows, cursor: 0 });
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "a pane minds its own keys")]
    pub(super) fn act_preflight(&mut self, act: Act) {
        let Main::Preflight(preflight) = &mut self.main else {
            return;
        };
        let last = preflight.rows.len().saturating_sub(1);
        match act {
            Act::Up => preflight.cursor = preflight.cursor.saturating_sub(1),
            Act::Down => preflight.cursor = (preflight.cursor + 1).min(last),
            Act::Toggle => {
                if let Some(row) = preflight.rows.get_mut(preflight.cursor) {
                    row.marked = row.fits && !row.marked;
                }
            }
            Act::Cancel => {
                self.close_main();
                self.tell(Tone::Plain, "nothing was approved");
            }
            Act::Confirm => self.confirm_preflight(),
            _ => {}
        }
    }

    fn confirm_preflight(&mut self) {
        let Main::Preflight(preflight) = &self.main else {
            return;
        };
        let marked = preflight.rows.iter().filter(|choice| choice.marked);
        let seen: Vec<_> = marked.map(|choice| choice.seen).collect();
        if seen.is_empty() {
            self.tell(Tone::Bad, "nothing is marked; esc leaves");
        } else if seen.contains(&false) {
            self.tell(Tone::Bad, "read the list to its end first (down)");
        } else {
            self.approve_marked();
        }
    }

    /// One vote for each that is marked and still as it was in the list.
    fn approve_marked(&mut self) {
        let Main::Preflight(preflight) = std::mem::replace(&mut self.main, Main::Stream) else {
            return;
        };
        self.close_main();
        let marked = preflight.rows.into_iter().filter(|row| row.marked);
        let (still, changed): (Vec<_>, Vec<_>) = marked.partition(|row| {
            let card = self.view.card(&row.gate);
            card.is_some_and(|card| card.digest == row.digest && card.standing.may_vote())
        });
        for row in &still {
            self.vote(&row.gate, row.digest);
        }
        let mut text = format!(
            "approved {}",
            crate::words::count(still.len() as u64, "command")
        );
        if !changed.is_empty() {
            text += &format!("; {} changed or decided meanwhile", changed.len());
        }
        self.tell(Tone::Good, text);
    }
}
