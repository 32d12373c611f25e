//! The envelope around every message, parsed from JSON and serialised to it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::suggestion::suggest_in;
use crate::{
    ClientMessage, ForkId, JsonObject, Limits, MessageId, ParticipantId, Refusal, ServerMessage,
    SessionId, Timestamp, UniqueFields, VERSION, WireMessage, check_config_fields, json_depth,
};

/// Who a message is from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sender {
    /// The server, `system` on the wire.
    System,
    Participant(ParticipantId),
}

impl Sender {
    /// The sender name of the server.
    pub const SYSTEM: &'static str = "system";

    /// The name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Sender::System => Self::SYSTEM,
            Sender::Participant(id) => id.as_str(),
        }
    }
}

impl std::fmt::Display for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Sender {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Sender {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = ParticipantId::deserialize(deserializer)?;
        let system = id.as_str() == Self::SYSTEM;
        Ok(if system {
            Sender::System
        } else {
            Sender::Participant(id)
        })
    }
}

/// The envelope fields that name a message and what it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvelopeHeader {
    /// The message's own id, chosen by its sender.
    pub id: MessageId,
    /// The session it belongs to.
    pub session: SessionId,
    /// Who sent it.
    pub sender: Sender,
    /// The message that this one answers or continues (`ref` on the wire), if any.
    pub reference: Option<MessageId>,
    /// Earlier messages that led to this one; relayed but not interpreted.
    pub causal_refs: Vec<MessageId>,
    /// The fork it belongs to; `None` for the main history.
    pub fork: Option<ForkId>,
}

/// A message with its envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope<M = ServerMessage> {
    /// Ids, sender and references.
    pub header: EnvelopeHeader,
    /// The server's time (`ts` on the wire).
    pub at: Timestamp,
    /// The sequence number in the session's log; `None` for ephemeral messages.
    pub seq: Option<u64>,
    /// The type and its payload.
    pub message: M,
}

/// Why a text is not a valid message, with the message's id if that could be parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageParseError {
    pub refusal: Refusal,
    pub related_to: Option<MessageId>,
}

/// An envelope as it is on the wire, with its payload not yet parsed.
#[derive(Deserialize)]
struct RawEnvelope<'a> {
    /// The protocol version.
    v: u64,
    /// The message's own id.
    id: MessageId,
    /// When it was sent; a client may leave it out, and the server replaces it.
    #[serde(default)]
    ts: Option<Timestamp>,
    /// The session it belongs to.
    session: SessionId,
    /// Who sent it.
    sender: Sender,
    /// The type of message, such as `tool.propose`.
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    /// The payload, unparsed.
    #[serde(borrow)]
    payload: &'a RawValue,
    /// The message that this one answers or continues.
    #[serde(rename = "ref", default)]
    reference: Option<MessageId>,
    /// The sequence number, set by the server.
    #[serde(default)]
    seq: Option<u64>,
    /// Earlier messages that led to this one.
    #[serde(default)]
    causal_refs: Option<Vec<MessageId>>,
    /// The fork it belongs to.
    #[serde(default)]
    fork: Option<ForkId>,
}

/// The most earlier messages that one message may name in `causal_refs`.
const MAX_CAUSAL_REFS: usize = 64;

impl RawEnvelope<'_> {
    fn into_header(self) -> EnvelopeHeader {
        EnvelopeHeader {
            id: self.id,
            session: self.session,
            sender: self.sender,
            reference: self.reference,
            causal_refs: self.causal_refs.unwrap_or_default(),
            fork: self.fork,
        }
    }
}

/// Parses a client's message. The transport limits its size; nesting and form are checked here.
pub fn parse_client_message(
    text: &str,
    limits: &Limits,
) -> Result<(EnvelopeHeader, ClientMessage), MessageParseError> {
    let raw = parse_raw_envelope(text, limits)?;
    let kind = raw.kind.clone();
    let parsed = match check_settings(&kind, raw.payload.get()) {
        Ok(()) => ClientMessage::parse_payload(&kind, raw.payload.get()),
        Err(problem) => Some(Err(problem)),
    };
    let message = match parsed {
        Some(Ok(message)) => message,
        Some(Err(error)) => {
            let problem = format!("`{kind}`: {error}");
            return Err(MessageParseError {
                refusal: Refusal::Malformed(problem),
                related_to: Some(raw.id),
            });
        }
        None => {
            let kind = kind.chars().take(64).collect();
            return Err(MessageParseError {
                refusal: Refusal::NotAClientMessage(kind),
                related_to: Some(raw.id),
            });
        }
    };
    if raw
        .causal_refs
        .as_ref()
        .is_some_and(|refs| refs.len() > MAX_CAUSAL_REFS)
    {
        let problem = format!("`causal_refs` has more than {MAX_CAUSAL_REFS} ids");
        return Err(MessageParseError {
            refusal: Refusal::Malformed(problem),
            related_to: Some(raw.id),
        });
    }
    Ok((raw.into_header(), message))
}

/// Refuses unknown session settings in the messages that have settings. What is wrong with their
/// form otherwise is found when the message is parsed.
fn check_settings(kind: &str, payload: &str) -> Result<(), String> {
    let field = match kind {
        "session.create" => "config",
        "session.config_update" => "changes",
        _ => return Ok(()),
    };
    let Ok(mut plain) = serde_json::from_str::<JsonObject>(payload) else {
        return Ok(());
    };
    // It is an object, so what is wrong with it now is that something is given twice.
    serde_json::from_str::<UniqueFields>(payload).map_err(|error| error.to_string())?;
    let settings = plain.remove(field);
    match settings {
        Some(Value::Object(settings)) => check_config_fields(&settings),
        Some(_) | None => Ok(()),
    }
}

/// Parses a server's message; `None` if this version does not know its type.
pub fn parse_server_message(
    text: &str,
    limits: &Limits,
) -> Result<Option<Envelope>, MessageParseError> {
    let raw = parse_raw_envelope(text, limits)?;
    let Some(message) = ServerMessage::parse_payload(&raw.kind, raw.payload.get()) else {
        return Ok(None);
    };
    let related_to = Some(raw.id.clone());
    let message = message.map_err(|error| MessageParseError {
        refusal: Refusal::Malformed(format!("`{}`: {error}", raw.kind)),
        related_to,
    })?;
    let (at, seq) = (raw.ts.unwrap_or_default(), raw.seq);
    Ok(Some(Envelope {
        header: raw.into_header(),
        at,
        seq,
        message,
    }))
}

fn parse_raw_envelope<'a>(
    text: &'a str,
    limits: &Limits,
) -> Result<RawEnvelope<'a>, MessageParseError> {
    let malformed = |problem: String| MessageParseError {
        refusal: Refusal::Malformed(problem),
        related_to: None,
    };
    if json_depth::nesting_depth(text, limits.json_depth) > limits.json_depth {
        return Err(malformed(format!(
            "JSON is nested deeper than {} levels",
            limits.json_depth
        )));
    }
    if !text.trim_start().starts_with('{') {
        return Err(malformed("a message is one JSON object".to_owned()));
    }
    let raw: RawEnvelope<'a> = serde_json::from_str(text).map_err(|error| MessageParseError {
        refusal: Refusal::Malformed(format!("not a PVP message: {}", parse_error_text(&error))),
        related_to: parse_id_only(text),
    })?;
    if raw.v != u64::from(VERSION) {
        return Err(MessageParseError {
            refusal: Refusal::Malformed(format!("`v` is {}; this server speaks version 1", raw.v)),
            related_to: Some(raw.id),
        });
    }
    Ok(raw)
}

/// The id of a message whose envelope is invalid, so that the error can name it to its sender.
fn parse_id_only(text: &str) -> Option<MessageId> {
    #[derive(Deserialize)]
    struct IdOnlyEnvelope {
        id: MessageId,
    }
    serde_json::from_str::<IdOnlyEnvelope>(text)
        .ok()
        .map(|only| only.id)
}

/// The text of a parse error without its line and column, which do not help in a one-line message.
pub(crate) fn parse_error_text(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or(&text);
    let text = suggest_in(text);
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

impl<M: WireMessage> Serialize for Envelope<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("v", &VERSION)?;
        map.serialize_entry("id", &self.header.id)?;
        map.serialize_entry("ts", &self.at)?;
        map.serialize_entry("session", &self.header.session)?;
        map.serialize_entry("sender", &self.header.sender)?;
        map.serialize_entry("type", self.message.kind())?;
        map.serialize_entry("payload", &self.message)?;
        if let Some(reference) = &self.header.reference {
            map.serialize_entry("ref", reference)?;
        }
        if let Some(seq) = self.seq {
            map.serialize_entry("seq", &seq)?;
        }
        if !self.header.causal_refs.is_empty() {
            map.serialize_entry("causal_refs", &self.header.causal_refs)?;
        }
        if let Some(fork) = &self.header.fork {
            map.serialize_entry("fork", fork)?;
        }
        map.end()
    }
}

impl<M: WireMessage> Envelope<M> {
    /// The bytes that are stored, hashed and sent: one serialisation for all three.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an envelope is plain data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        parse_client_message(text, &Limits::default())
            .unwrap_err()
            .refusal
            .to_string()
    }

    #[test]
    fn a_text_that_is_not_a_message_is_refused_with_a_reason() {
        for (text, part) in [
            ("null", "one JSON object"),
            ("[]", "one JSON object"),
            ("", "one JSON object"),
            ("{}", "missing field"),
            (&"[".repeat(10_000), "nested deeper than 64"),
            (
                r#"{"v":2,"id":"a","session":"s","sender":"x","type":"heartbeat.ping","payload":{}}"#,
                "version 1",
            ),
            (
                r#"{"v":1,"id":"a","session":"s","sender":"x","type":"heartbeat.ping","payload":null}"#,
                "must be an object",
            ),
            (
                r#"{"v":1,"id":"a","session":"s","sender":"x","type":"heartbeat.ping","payload":[]}"#,
                "must be an object",
            ),
            (
                r#"{"v":1,"id":"../a","session":"s","sender":"x","type":"heartbeat.ping","payload":{}}"#,
                "'.'",
            ),
            (
                r#"{"v":1,"id":"a","session":"s","sender":"x","type":"tool.execute","payload":{}}"#,
                "clients cannot send `tool.execute`",
            ),
            (
                r#"{"v":1,"id":"a","session":"s","sender":"x","type":"gate.approve","payload":{"gate":"g"}}"#,
                "missing field `approver`",
            ),
        ] {
            assert!(problem(text).contains(part), "{text}: {}", problem(text));
        }
    }

    #[test]
    fn the_id_of_an_invalid_message_is_reported_if_it_can_be_parsed() {
        let bad = r#"{"v":1,"id":"m7","session":"s"}"#;
        let error = parse_client_message(bad, &Limits::default()).unwrap_err();
        assert_eq!(error.related_to, Some(MessageId::parse("m7").unwrap()));
    }

    #[test]
    fn an_error_names_the_path_of_the_wrong_value() {
        let text = r#"{"v":1,"id":"a","session":"s","sender":"x","type":"session.join",
            "payload":{"participant":{"id":"x","name":7,"type":"human","roles":[],"transport":"websocket"},"supported_versions":[1]}}"#;
        assert_eq!(
            problem(text),
            "`session.join`: `participant.name`: invalid type: integer `7`, expected a string"
        );
    }
}
