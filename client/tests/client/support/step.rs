//! The steps of a story, one JSON line each.

use pvp_protocol::payload::{Announce, PresenceStatus, SessionCreate};
use pvp_protocol::{ConfigChanges, SessionConfig, Timestamp};
use pvp_session::{AttendanceChange, Input, SessionSettings, SubmittedMessage};
use serde::Deserialize;
use serde_json::Value;

use super::{client_message, id, identity, participant_id};

/// Marks a placeholder in a payload for the digest of a proposal at that moment.
const DIGEST_PLACEHOLDER: &str = "$digest:";

/// One thing that happens to a session or to its viewer.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case", deny_unknown_fields)]
pub enum StoryStep {
    /// Always the first step: how server and session are set up, and who the viewer is.
    Create {
        by: String,
        id: String,
        viewer: String,
        #[serde(default)]
        name: Option<String>,
        #[serde(default)]
        open: bool,
        #[serde(default)]
        config: ConfigChanges,
    },
    /// Someone joins. From the viewer's join on, messages are delivered to them; `after` resumes.
    Join {
        id: String,
        announce: Announce,
        #[serde(default)]
        after: Option<u64>,
        #[serde(default)]
        history: Option<u64>,
    },
    /// A participant sends a message.
    Say {
        by: String,
        id: String,
        #[serde(rename = "type")]
        kind: String,
        payload: Value,
        #[serde(rename = "ref", default)]
        reference: Option<String>,
    },
    /// A participant times out.
    Quiet { who: String },
    /// A participant who timed out is active again.
    Back { who: String },
    /// The session checks its deadlines.
    Tick,
    /// The client of a proposal has not been heard of for the length of a lease.
    LeaseEnds { proposal: String },
    /// Time passes.
    Wait { ms: u64 },
    /// The server notices that someone's presence changed.
    Presence { who: String, status: PresenceStatus },
    /// The server pings the viewer.
    Ping,
    /// The viewer's connection is lost.
    Drop,
    /// The answer to the last message must begin with this text.
    Expect { answer: String },
}

impl StoryStep {
    pub fn parse(line: &str) -> Self {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The viewer and the server's settings of a `Create` step; `None` for other steps.
    pub fn viewer_and_settings(&self) -> Option<(&str, SessionSettings)> {
        let StoryStep::Create { viewer, open, .. } = self else {
            return None;
        };
        let working_directory = Some("/work/demo".to_owned());
        let settings = SessionSettings {
            open_mode: *open,
            working_directory,
            ..SessionSettings::default()
        };
        Some((viewer, settings))
    }

    /// The input to the session core; `None` for steps that do not concern it.
    pub fn to_input(&self, now: Timestamp, digest: impl Fn(&str) -> String) -> Option<Input> {
        Some(match self {
            StoryStep::Create {
                by,
                id: name,
                name: title,
                config,
                ..
            } => Input::Create {
                by: participant_id(by),
                id: id(name),
                create: SessionCreate {
                    name: title.clone(),
                    config: SessionConfig::default().with_changes(config),
                    extra: Default::default(),
                },
            },
            StoryStep::Join {
                id: name, announce, ..
            } => Input::Join {
                identity: identity(announce),
                announce: announce.clone(),
                id: id(name),
            },
            StoryStep::Say {
                by,
                id: name,
                kind,
                payload,
                reference,
            } => Input::Submit {
                by: participant_id(by),
                ceiling: None,
                submitted: SubmittedMessage {
                    reference: reference.as_deref().map(id),
                    ..SubmittedMessage::new(
                        id(name),
                        client_message(kind, &fill_digest(payload, &digest)),
                    )
                },
            },
            StoryStep::Quiet { who } => attendance_input(who, AttendanceChange::TimedOut, now),
            StoryStep::Back { who } => attendance_input(who, AttendanceChange::Back, now),
            StoryStep::Tick => Input::Tick,
            StoryStep::LeaseEnds { proposal } => Input::LeaseExpired {
                proposal: id(proposal),
            },
            StoryStep::Wait { .. }
            | StoryStep::Presence { .. }
            | StoryStep::Ping
            | StoryStep::Drop
            | StoryStep::Expect { .. } => return None,
        })
    }
}

fn attendance_input(who: &str, attendance: AttendanceChange, last_active: Timestamp) -> Input {
    let participant = participant_id(who);
    Input::Attendance {
        participant,
        attendance,
        last_active,
    }
}

/// The payload with `"digest": "$digest:p1"` filled in.
fn fill_digest(payload: &Value, digest: impl Fn(&str) -> String) -> Value {
    let mut payload = payload.clone();
    let placeholder = payload["digest"]
        .as_str()
        .and_then(|text| text.strip_prefix(DIGEST_PLACEHOLDER));
    if let Some(proposal) = placeholder {
        payload["digest"] = digest(proposal).into();
    }
    payload
}
