//! What is told, and what becomes of what was said.

use pvp_client::ShellResult;
use pvp_client::view::{CommandOrigin, View};
use pvp_protocol::api::Invitation;
use pvp_protocol::payload::{PresenceStatus, PresenceUpdate};
use pvp_protocol::{Envelope, ExtraFields, MessageId, RunMode, ServerMessage};

use super::{App, Bang, Effect, Errand, Focus, Link, PRESENT_MS, Ticket, Tone, ticket_name};
use crate::config::CallWhen;

/// Commands of one's own that are waited for at a time.
const BANGS: usize = 64;

impl App {
    pub(super) fn up(&mut self, resumed: bool) {
        if !resumed {
            self.view = View::default();
            self.panes.clear();
            self.reading.follow();
            self.cards.selected = None;
            if self.focus == Focus::Card {
                self.focus = Focus::Composer;
            }
        }
        let back = matches!(self.link, Link::Down { .. });
        self.link = Link::Up;
        if back {
            self.tell(Tone::Good, "connected again");
        }
    }

    /// Says that somebody is here whom the others take for idle: reading and typing send nothing.
    pub(super) fn say_present(&mut self) {
        let Some(me) = self.me().filter(|_| self.link == Link::Up) else {
            return;
        };
        let mine = self.view.people.get(&me).map(|person| person.presence);
        let idle = mine.is_some_and(|presence| presence != PresenceStatus::Active);
        let said = self.said_present;
        let just_now = said.is_some_and(|at| self.now.millis_since(at) < PRESENT_MS);
        if !idle || just_now {
            return;
        }
        self.said_present = Some(self.now);
        let message = PresenceUpdate {
            participant: me,
            status: PresenceStatus::Active,
            last_active: self.now,
            extra: ExtraFields::new(),
        };
        self.send(Errand::Silent, message);
    }

    pub(super) fn told(&mut self, envelope: &Envelope) {
        self.feed_panes(envelope);
        let arriving = self.view.me.is_none();
        self.view.fold(envelope);
        if arriving {
            // Whoever comes in looks.
            let open = self.view.gates.iter().map(|card| card.gate.clone());
            self.called.extend(open);
        }
        self.offer_keys(envelope);
        self.reading.forget_dropped(&self.view);
        self.after_fold();
    }

    /// Says that an interactive command takes my keys, when it begins.
    fn offer_keys(&mut self, envelope: &Envelope) {
        if let ServerMessage::ToolExecute(execute) = &envelope.message
            && self.may_type_into(&execute.tool_proposal)
        {
            self.tell(
                Tone::Plain,
                "an interactive command takes your keys; /open shows its screen",
            );
        }
    }

    /// Looks at the view after it changed: results that arrived, gates that came and went.
    fn after_fold(&mut self) {
        self.collect_results();
        let open: Vec<_> = self
            .view
            .gates
            .iter()
            .map(|card| card.gate.clone())
            .collect();
        self.called.retain(|gate| open.contains(gate));
        self.cards.seen_whole.retain(|gate, _| open.contains(gate));
        self.cards.under_way.retain(|gate, _| open.contains(gate));
        self.call();
    }

    /// Calls once for each gate that waits for a vote of mine.
    fn call(&mut self) {
        let waiting: Vec<_> = self
            .view
            .awaiting_my_vote()
            .map(|card| card.gate.clone())
            .collect();
        let fresh = waiting
            .into_iter()
            .filter(|gate| self.called.insert(gate.clone()));
        let any = fresh.count() > 0;
        let wanted = match self.config.notify_when {
            CallWhen::Always => true,
            CallWhen::Never => false,
            CallWhen::Unfocused => self.looking != Some(true),
        };
        if any && wanted {
            self.effects.push(Effect::Call);
        }
    }

    pub(super) fn answered(&mut self, ticket: Ticket, answer: Result<MessageId, String>) {
        let Some(errand) = self.errands.remove(&ticket) else {
            return;
        };
        match (errand, answer) {
            (Errand::Silent, _) | (Errand::Quiet, Ok(_)) => {}
            (Errand::Plain { done }, Ok(_)) => self.tell(Tone::Good, done),
            (Errand::Vote { gate, done }, Ok(_)) => {
                self.cards.under_way.remove(&gate);
                self.tell(Tone::Good, done);
            }
            (Errand::Prompt { .. }, Ok(_)) => self.results.prompt_accepted(&ticket_name(ticket)),
            (Errand::Shell { send, .. }, Ok(id)) => self.started(id, send),
            (Errand::Plain { .. } | Errand::Quiet, Err(why)) => self.tell(Tone::Bad, why),
            (Errand::Vote { gate, .. }, Err(why)) => {
                self.cards.under_way.remove(&gate);
                self.tell(Tone::Bad, format!("not counted: {why}"));
            }
            (Errand::Prompt { text }, Err(why)) => {
                self.results.prompt_failed(&ticket_name(ticket));
                self.composer.give_back(&text);
                self.tell(Tone::Bad, format!("not sent: {why}"));
            }
            (Errand::Shell { line, send }, Err(why)) => {
                let mark = if send { "!!" } else { "!" };
                self.composer.give_back(&format!("{mark}{line}"));
                self.tell(Tone::Bad, format!("not run: {why}"));
            }
        }
    }

    fn started(&mut self, id: MessageId, send: bool) {
        self.bangs.push(Bang { id, send });
        if self.bangs.len() > BANGS {
            self.bangs.remove(0);
        }
        self.tell(Tone::Plain, "bang exec started");
        self.collect_results();
    }

    /// Results of one's own commands, as they arrive.
    fn collect_results(&mut self) {
        let view = &self.view;
        let over = |bang: &Bang| {
            let proposal = view.proposal(&bang.id);
            proposal.is_some_and(|it| it.origin == CommandOrigin::Person && it.state.is_over())
        };
        let (done, running) = std::mem::take(&mut self.bangs).into_iter().partition(over);
        self.bangs = running;
        for bang in done {
            self.collect(&bang);
        }
    }

    fn collect(&mut self, bang: &Bang) {
        let proposal = self.view.proposal(&bang.id);
        let Some(result) = proposal.and_then(ShellResult::from_proposal) else {
            return self.tell(Tone::Bad, "bang exec did not run");
        };
        let tone = if result.exit_code == Some(0) {
            Tone::Good
        } else {
            Tone::Bad
        };
        let code = result
            .exit_code
            .map_or("none".to_owned(), |code| code.to_string());
        self.tell(tone, format!("bang exec done (exit {code})"));
        if let Some(lost) = self.results.push(result) {
            let lost = lost.command_preview;
            self.tell(
                Tone::Bad,
                format!("too many results wait; the oldest is dropped: {lost}"),
            );
        }
        if bang.send {
            self.prompt("");
        }
    }

    pub(super) fn invited(&mut self, invitation: Result<Box<Invitation>, String>) {
        match invitation {
            Ok(invitation) => self.open_page(crate::pages::invitation(&invitation)),
            Err(why) => self.tell(Tone::Bad, why),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a pane minds its own output"
    )]
    fn feed_panes(&mut self, envelope: &Envelope) {
        match &envelope.message {
            ServerMessage::ToolOutput(output) => {
                let proposal = self.view.proposal(&output.tool_proposal);
                let again = envelope.seq.is_some_and(|seq| seq <= self.view.head);
                let interactive = proposal.is_some_and(|it| it.requested.mode == RunMode::Pty);
                if interactive && !again {
                    self.panes.feed(&output.tool_proposal, &output.text);
                }
            }
            ServerMessage::ToolInput(input) => {
                if let Some(size) = input.resize {
                    self.panes.resize(&input.tool_proposal, size);
                }
            }
            _ => {}
        }
    }
}
