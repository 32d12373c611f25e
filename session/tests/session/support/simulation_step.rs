//! The steps of a simulation, one JSON line each, so that a failing run can be saved and replayed.

use pvp_protocol::payload::{Announce, SessionCreate};
use pvp_protocol::{ConfigChanges, SessionConfig, Timestamp};
use pvp_session::{AttendanceChange, Input, SessionSettings, SubmittedMessage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{client_message, identity, message_id, participant_id};

/// One event of a session or its store.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum SimulationStep {
    /// Always the first step: creates the session with the server's settings.
    Create {
        by: String,
        id: String,
        #[serde(default)]
        open: bool,
        #[serde(default)]
        config: ConfigChanges,
    },
    Join {
        id: String,
        announce: Announce,
    },
    Say {
        by: String,
        id: String,
        #[serde(rename = "type")]
        kind: String,
        payload: Value,
        #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
        reference: Option<String>,
    },
    Quiet {
        who: String,
    },
    Back {
        who: String,
    },
    Tick,
    /// The client of a proposal has not been heard of for the length of a lease.
    LeaseEnds {
        proposal: String,
    },
    /// Advances the time by `ms` milliseconds.
    Wait {
        ms: u64,
    },
    /// The oldest `batches` batches become durable and are published.
    Durable {
        batches: usize,
    },
    /// Appending fails or the process dies, so everything that is not durable is lost.
    Lost,
    /// In transcripts written by hand: how the answer to the last message begins.
    Expect {
        answer: String,
    },
}

impl SimulationStep {
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap()
    }

    pub fn from_json(line: &str) -> Self {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    pub fn say(by: &str, id: &str, kind: &str, payload: Value) -> Self {
        Self::Say {
            by: by.to_owned(),
            id: id.to_owned(),
            kind: kind.to_owned(),
            payload,
            reference: None,
        }
    }

    /// The input of this step to the session, if it has one.
    pub fn input(&self, now: Timestamp) -> Option<Input> {
        Some(match self {
            SimulationStep::Create {
                by,
                id: name,
                config,
                ..
            } => Input::Create {
                by: participant_id(by),
                id: message_id(name),
                create: SessionCreate {
                    name: None,
                    config: SessionConfig::default().with_changes(config),
                    extra: Default::default(),
                },
            },
            SimulationStep::Join { id: name, announce } => Input::Join {
                identity: identity(announce),
                announce: announce.clone(),
                id: message_id(name),
            },
            SimulationStep::Say {
                by,
                id: name,
                kind,
                payload,
                reference,
            } => Input::Submit {
                by: participant_id(by),
                ceiling: None,
                submitted: SubmittedMessage {
                    reference: reference.as_deref().map(message_id),
                    ..SubmittedMessage::new(message_id(name), client_message(kind, payload))
                },
            },
            SimulationStep::Quiet { who } | SimulationStep::Back { who } => Input::Attendance {
                participant: participant_id(who),
                attendance: if matches!(self, SimulationStep::Quiet { .. }) {
                    AttendanceChange::TimedOut
                } else {
                    AttendanceChange::Back
                },
                last_active: now,
            },
            SimulationStep::Tick => Input::Tick,
            SimulationStep::LeaseEnds { proposal } => Input::LeaseExpired {
                proposal: message_id(proposal),
            },
            SimulationStep::Wait { .. }
            | SimulationStep::Durable { .. }
            | SimulationStep::Lost
            | SimulationStep::Expect { .. } => {
                return None;
            }
        })
    }

    /// The server's settings that the first step asks for.
    pub fn settings(&self) -> SessionSettings {
        let open = matches!(self, SimulationStep::Create { open: true, .. });
        SessionSettings {
            open_mode: open,
            ..SessionSettings::default()
        }
    }
}
