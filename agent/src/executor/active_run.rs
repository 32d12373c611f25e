//! A run that is under way or about to start, and what people send to it: stops and input.

use pvp_protocol::payload::{ClearedBy, GrantTerms, ToolInput};
use pvp_protocol::{MessageId, ParticipantId, RunMode, Sender};

use crate::reaper::PtySize;
use crate::run::{PtyInput, StopReceiver, StopSender, stop_channel};

/// Inputs that are buffered until an interactive command starts.
const MAX_EARLY_INPUTS: usize = 64;

pub(super) struct ActiveRun {
    /// The id of the grant.
    grant: MessageId,
    /// What cleared it.
    cleared_by: ClearedBy,
    /// Asks the run to stop.
    stop_sender: StopSender,
    /// The strongest stop requested so far.
    stop_level: StopLevel,
    /// How the command is run.
    mode: RunMode,
    /// The participant who may type; `None` if nobody may.
    driver: Option<ParticipantId>,
    /// What was typed, or where it goes.
    input: RunInput,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StopLevel {
    NotRequested,
    Stop,
    Kill,
}

enum RunInput {
    /// Input that arrived before the command started.
    Buffered(Vec<ToolInput>),
    Ready(Option<PtyInput>),
}

impl ActiveRun {
    pub(super) fn new(grant: &GrantTerms) -> (Self, StopReceiver) {
        let (stop_sender, stop_receiver) = stop_channel();
        let active_run = Self {
            grant: grant.id.clone(),
            cleared_by: grant.cleared_by,
            stop_sender,
            stop_level: StopLevel::NotRequested,
            mode: grant.action.mode,
            driver: grant.driver.clone(),
            input: RunInput::Buffered(Vec::new()),
        };
        (active_run, stop_receiver)
    }

    pub(super) fn grant(&self) -> &MessageId {
        &self.grant
    }

    /// Whether the command is only tried.
    pub(super) fn is_trial(&self) -> bool {
        self.cleared_by == ClearedBy::Tried
    }

    pub(super) fn mode(&self) -> RunMode {
        self.mode
    }

    /// Asks the run to end. Only the first reason counts.
    ///
    /// After an interrupt, the server also cancels each run, which must not weaken an emergency.
    pub(super) fn stop(&mut self, why: &str) {
        if self.stop_level < StopLevel::Stop {
            self.stop_level = StopLevel::Stop;
            self.stop_sender.stop(why);
        }
    }

    /// Kills the run at once.
    pub(super) fn kill(&mut self, why: &str) {
        if self.stop_level < StopLevel::Kill {
            self.stop_level = StopLevel::Kill;
            self.stop_sender.kill(why);
        }
    }

    pub(super) fn on_started(&mut self, pty_input: Option<PtyInput>) {
        if let RunInput::Buffered(early) =
            std::mem::replace(&mut self.input, RunInput::Ready(pty_input))
        {
            for input in &early {
                self.write_input(input);
            }
        }
    }

    /// Accepts keys and sizes only from the driver that the grant names; returns whether the sender
    /// is the driver. The server lets nobody else type either.
    pub(super) fn on_input(&mut self, sender: &Sender, input: &ToolInput) -> bool {
        let is_driver = match sender {
            Sender::Participant(by) => self.driver.as_ref() == Some(by),
            Sender::System => false,
        };
        if is_driver {
            self.write_input(input);
        }
        is_driver
    }

    fn write_input(&mut self, input: &ToolInput) {
        match &mut self.input {
            RunInput::Buffered(early) if early.len() < MAX_EARLY_INPUTS => {
                early.push(input.clone())
            }
            RunInput::Buffered(_) => {
                tracing::warn!("dropped input that arrived before the command began")
            }
            RunInput::Ready(None) => {}
            RunInput::Ready(Some(pty_input)) => {
                let size = input.resize.map(|size| PtySize {
                    columns: size.columns,
                    rows: size.rows,
                });
                let resized = size.map_or(Ok(()), |size| pty_input.resize(size));
                let keys = input.data.as_deref().unwrap_or_default();
                if let Err(error) = resized.and_then(|()| pty_input.write(keys.as_bytes())) {
                    tracing::warn!(%error, "input was not accepted");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_protocol::payload::RunBy;
    use pvp_protocol::{Action, Command, ExecutionLimits, SandboxProfile, Timestamp};
    use serde_json::json;

    fn pty_grant(driver: Option<ParticipantId>) -> GrantTerms {
        let line = "vi".to_owned();
        let action = Action {
            mode: RunMode::Pty,
            ..Action::new(Command::Shell { line })
        };
        GrantTerms {
            id: MessageId::parse("g1").unwrap(),
            executor: ParticipantId::parse("bot").unwrap(),
            digest: action.digest(),
            action,
            runs: RunBy::Executor,
            limits: Some(ExecutionLimits {
                timeout_ms: 0,
                output_bytes: 1000,
            }),
            profile: Some(SandboxProfile::None),
            expires_at: Timestamp::from_millis(0),
            cleared_by: ClearedBy::Quorum,
            approvals: Vec::new(),
            rule: None,
            allowed_by: None,
            driver,
            nonce: None,
            secret_env: None,
        }
    }

    #[test]
    fn only_the_driver_whom_the_grant_names_may_type() {
        let person = |name: &str| ParticipantId::parse(name).unwrap();
        let keys = json!({ "tool_proposal": "p1", "data": "rm -rf /\r" });
        let keys: ToolInput = serde_json::from_value(keys).unwrap();
        let (mut driven, _stop_receiver) = ActiveRun::new(&pty_grant(Some(person("dee"))));
        assert!(!driven.on_input(&Sender::Participant(person("ann")), &keys));
        assert!(!driven.on_input(&Sender::System, &keys));
        assert!(matches!(&driven.input, RunInput::Buffered(early) if early.is_empty()));
        assert!(driven.on_input(&Sender::Participant(person("dee")), &keys));
        assert!(matches!(&driven.input, RunInput::Buffered(early) if *early == [keys.clone()]));
        let (mut undriven, _stop_receiver) = ActiveRun::new(&pty_grant(None));
        assert!(!undriven.on_input(&Sender::Participant(person("dee")), &keys));
    }
}
