//! Steps of a story, one JSON line each, so that a failing random run can be kept and replayed.

use pvp_protocol::payload::{Announce, SessionCreate};
use pvp_protocol::{ConfigChanges, SessionConfig, Timestamp};
use pvp_session::{Attendance, Input, Said, Settings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{id, identity, message, person};

/// One thing that happens to a session or to its store.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// Always the first: how the server and the session are set up.
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
    /// Time goes on by so many milliseconds.
    Wait {
        ms: u64,
    },
    /// The oldest so many batches become durable, and are told.
    Durable {
        batches: usize,
    },
    /// Appending fails, or the process dies: what is not durable did not happen.
    Lost,
    /// In stories made by hand: how the answer to the last message begins.
    Expect {
        answer: String,
    },
}

impl Step {
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap()
    }

    pub fn read(line: &str) -> Self {
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

    /// What this step tells the session, if it does.
    pub fn input(&self, now: Timestamp) -> Option<Input> {
        Some(match self {
            Step::Create {
                by,
                id: name,
                config,
                ..
            } => Input::Create {
                by: person(by),
                id: id(name),
                create: SessionCreate {
                    name: None,
                    config: SessionConfig::default().with(config),
                    extra: Default::default(),
                },
            },
            Step::Join { id: name, announce } => Input::Join {
                identity: identity(announce),
                announce: announce.clone(),
                id: id(name),
            },
            Step::Say {
                by,
                id: name,
                kind,
                payload,
                reference,
            } => Input::Say {
                by: person(by),
                said: Said {
                    reference: reference.as_deref().map(id),
                    ..Said::new(id(name), message(kind, payload))
                },
            },
            Step::Quiet { who } | Step::Back { who } => Input::Attendance {
                participant: person(who),
                attendance: if matches!(self, Step::Quiet { .. }) {
                    Attendance::TimedOut
                } else {
                    Attendance::Back
                },
                last_active: now,
            },
            Step::Tick => Input::Tick,
            Step::Wait { .. } | Step::Durable { .. } | Step::Lost | Step::Expect { .. } => {
                return None;
            }
        })
    }

    /// The server's settings that a first step asks for.
    pub fn settings(&self) -> Settings {
        let open = matches!(self, Step::Create { open: true, .. });
        Settings {
            open,
            ..Settings::default()
        }
    }
}
