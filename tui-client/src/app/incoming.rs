//! Handles what the server sends: messages, and the answers to requests.

use pvp_client::view::{CommandOrigin, View};
use pvp_client::{RecordWarning, ShellResult};
use pvp_protocol::payload::{PresenceStatus, PresenceUpdate};
use pvp_protocol::{Envelope, ExtraFields, MessageId, RunMode, ServerMessage};

use super::{
    App, AppEffect, ConnectionState, Focus, NoticeLevel, PRESENCE_INTERVAL_MS, PendingRequest,
    PendingRequestId, ShellRun, provisional_message_id,
};
use crate::app::MadeInvitation;
use crate::config::NotifyWhen;
use crate::text::one_line;

/// The most own commands that we wait for at a time; beyond that the oldest is forgotten.
const MAX_SHELL_RUNS: usize = 64;

impl App {
    pub(super) fn on_connected(&mut self, resumed: bool) {
        if !resumed {
            self.view = View::default();
            self.pty_screens.clear();
            self.stream_scroll.follow_newest();
            self.card_state.selected_gate = None;
            if self.focus == Focus::Card {
                self.focus = Focus::Composer;
            }
        }
        let was_disconnected = matches!(self.connection, ConnectionState::Reconnecting { .. });
        self.connection = ConnectionState::Connected;
        if was_disconnected {
            self.show_notice(NoticeLevel::Success, "reconnected");
        }
    }

    /// Reports the user as active if the others see them as idle: reading and typing send nothing.
    pub(super) fn send_presence(&mut self) {
        let Some(me) = self
            .my_id()
            .filter(|_| self.connection == ConnectionState::Connected)
        else {
            return;
        };
        let mine = self.view.people.get(&me).map(|person| person.presence);
        let idle = mine.is_some_and(|presence| presence != PresenceStatus::Active);
        let sent = self.presence_sent_at;
        let just_now = sent.is_some_and(|at| self.now.millis_since(at) < PRESENCE_INTERVAL_MS);
        if !idle || just_now {
            return;
        }
        self.presence_sent_at = Some(self.now);
        let message = PresenceUpdate {
            participant: me,
            status: PresenceStatus::Active,
            last_active: self.now,
            extra: ExtraFields::new(),
        };
        self.send(PendingRequest::Ignored, message);
    }

    pub(super) fn on_message(&mut self, envelope: &Envelope) {
        self.feed_pty_screens(envelope);
        let joining = self.view.me.is_none();
        self.view.fold(envelope);
        if joining {
            // Someone who just joined is looking at the screen and needs no notification.
            let open = self.view.gates.iter().map(|card| card.gate.clone());
            self.notified_gates.extend(open);
        }
        self.announce_interactive_command(envelope);
        self.stream_scroll.skip_dropped_items(&self.view);
        self.after_view_update();
    }

    /// Shows what is odd about the session's log: for good if it was cut or rewritten.
    pub(super) fn on_record_warning(&mut self, warning: RecordWarning) {
        if warning.is_grave() {
            self.record_warning = Some(warning);
        } else {
            self.show_notice(NoticeLevel::Error, one_line(&warning.to_string()));
        }
    }

    /// Shows a notice when an interactive command starts that takes the user's keys.
    fn announce_interactive_command(&mut self, envelope: &Envelope) {
        if let ServerMessage::ToolExecute(execute) = &envelope.message
            && self.is_driver_of(&execute.tool_proposal)
        {
            self.show_notice(
                NoticeLevel::Info,
                "an interactive command is waiting for your input; /open shows it",
            );
        }
    }

    /// Follows up on a changed view: collects results, forgets closed gates, notifies of new ones.
    fn after_view_update(&mut self) {
        self.collect_shell_results();
        let open: Vec<_> = self
            .view
            .gates
            .iter()
            .map(|card| card.gate.clone())
            .collect();
        self.notified_gates.retain(|gate| open.contains(gate));
        self.card_state
            .fully_seen
            .retain(|gate, _| open.contains(gate));
        self.card_state
            .pending_votes
            .retain(|gate, _| open.contains(gate));
        self.notify_new_gates();
    }

    /// Notifies once for each gate that waits for the user's vote.
    fn notify_new_gates(&mut self) {
        let waiting: Vec<_> = self
            .awaiting_my_vote()
            .map(|card| card.gate.clone())
            .collect();
        let fresh = waiting
            .into_iter()
            .filter(|gate| self.notified_gates.insert(gate.clone()));
        let any = fresh.count() > 0;
        let wanted = match self.config.notify_when {
            NotifyWhen::Always => true,
            NotifyWhen::Never => false,
            NotifyWhen::Unfocused => self.terminal_focused != Some(true),
        };
        if any && wanted {
            self.effects.push(AppEffect::Notify);
        }
    }

    pub(super) fn on_request_done(
        &mut self,
        request_id: PendingRequestId,
        answer: Result<MessageId, String>,
    ) {
        let Some(request) = self.pending_requests.remove(&request_id) else {
            return;
        };
        match (request, answer) {
            (PendingRequest::Ignored, _) | (PendingRequest::ErrorsOnly, Ok(_)) => {}
            (
                PendingRequest::WithNotice {
                    success_notice: done,
                },
                Ok(_),
            ) => self.show_notice(NoticeLevel::Success, done),
            (
                PendingRequest::Vote {
                    gate,
                    success_notice: done,
                },
                Ok(_),
            ) => {
                self.card_state.pending_votes.remove(&gate);
                self.show_notice(NoticeLevel::Success, done);
            }
            (PendingRequest::Prompt { .. }, Ok(_)) => self
                .shell_results
                .prompt_accepted(&provisional_message_id(request_id)),
            (
                PendingRequest::Shell {
                    send_result: send, ..
                },
                Ok(id),
            ) => self.on_shell_started(id, send),
            (PendingRequest::WithNotice { .. } | PendingRequest::ErrorsOnly, Err(why)) => {
                self.show_notice(NoticeLevel::Error, why)
            }
            (PendingRequest::Vote { gate, .. }, Err(why)) => {
                self.card_state.pending_votes.remove(&gate);
                self.show_notice(NoticeLevel::Error, format!("your vote was refused: {why}"));
            }
            (PendingRequest::Prompt { text }, Err(why)) => {
                self.shell_results
                    .prompt_failed(&provisional_message_id(request_id));
                self.composer.restore_text(&text);
                self.show_notice(NoticeLevel::Error, format!("not sent: {why}"));
            }
            (
                PendingRequest::Shell {
                    line,
                    send_result: send,
                },
                Err(why),
            ) => {
                let mark = if send { "!!" } else { "!" };
                self.composer.restore_text(&format!("{mark}{line}"));
                self.show_notice(NoticeLevel::Error, format!("not run: {why}"));
            }
        }
    }

    fn on_shell_started(&mut self, id: MessageId, send_result: bool) {
        self.shell_runs.push(ShellRun {
            proposal: id,
            send_result,
        });
        if self.shell_runs.len() > MAX_SHELL_RUNS {
            self.shell_runs.remove(0);
        }
        self.show_notice(NoticeLevel::Info, "your command is running");
        self.collect_shell_results();
    }

    /// Collects the results of the user's own commands that have finished.
    fn collect_shell_results(&mut self) {
        let view = &self.view;
        let over = |run: &ShellRun| {
            let proposal = view.proposal(&run.proposal);
            proposal.is_some_and(|it| it.origin == CommandOrigin::Person && it.state.is_over())
        };
        let (done, running) = std::mem::take(&mut self.shell_runs)
            .into_iter()
            .partition(over);
        self.shell_runs = running;
        for run in done {
            self.collect_shell_result(&run);
        }
    }

    fn collect_shell_result(&mut self, run: &ShellRun) {
        let proposal = self.view.proposal(&run.proposal);
        let Some(result) = proposal.and_then(ShellResult::from_proposal) else {
            return self.show_notice(NoticeLevel::Error, "your command did not run");
        };
        let level = if result.exit_code == Some(0) {
            NoticeLevel::Success
        } else {
            NoticeLevel::Error
        };
        let code = result
            .exit_code
            .map_or("none".to_owned(), |code| code.to_string());
        self.show_notice(level, format!("your command finished (exit {code})"));
        if let Some(lost) = self.shell_results.push(result) {
            let lost = lost.command_preview;
            self.show_notice(
                NoticeLevel::Error,
                format!("too many results; the oldest was dropped: {lost}"),
            );
        }
        if run.send_result {
            self.send_prompt("");
        }
    }

    pub(super) fn on_invitation_created(&mut self, made: Result<Box<MadeInvitation>, String>) {
        match made {
            Ok(made) => self.open_page(crate::pages::invitation(self, &made)),
            Err(why) => self.show_notice(NoticeLevel::Error, why),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other messages do not reach a screen"
    )]
    fn feed_pty_screens(&mut self, envelope: &Envelope) {
        match &envelope.message {
            ServerMessage::ToolOutput(output) => {
                let proposal = self.view.proposal(&output.tool_proposal);
                let again = envelope.seq.is_some_and(|seq| seq <= self.view.head);
                let interactive = proposal.is_some_and(|it| it.requested.mode == RunMode::Pty);
                if interactive && !again {
                    self.pty_screens.feed(&output.tool_proposal, &output.text);
                }
            }
            ServerMessage::ToolInput(input) => {
                if let Some(size) = input.resize {
                    self.pty_screens.resize(&input.tool_proposal, size);
                }
            }
            _ => {}
        }
    }
}
