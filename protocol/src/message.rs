//! The two sets of messages: what a client may send, and what the server sends.

use serde::Serialize;

use crate::envelope::parse_error_text;
use crate::payload::*;

/// A message of either set, which knows its `type`.
pub trait WireMessage: Serialize {
    /// The envelope's `type`.
    fn kind(&self) -> &'static str;
}

/// Defines an enum with one variant for each type of message.
macro_rules! message_enum {
    ($(#[$doc:meta])* $name:ident { $($variant:ident($payload:ty) = $kind:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            $($variant($payload),)*
        }

        impl $name {
            /// Every type of message in this enum.
            pub const KINDS: &'static [&'static str] = &[$($kind),*];

            /// Parses a payload; `None` if this enum has no such type of message.
            pub fn parse_payload(kind: &str, payload: &str) -> Option<Result<Self, String>> {
                match kind {
                    $($kind => Some(parse_object(payload).map($name::$variant)),)*
                    _ => None,
                }
            }
        }

        impl WireMessage for $name {
            fn kind(&self) -> &'static str {
                match self { $($name::$variant(_) => $kind,)* }
            }
        }

        /// Serialises the payload alone; the type is a field of the envelope.
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $($name::$variant(payload) => payload.serialize(serializer),)* }
            }
        }

        $(impl From<$payload> for $name {
            fn from(payload: $payload) -> Self {
                $name::$variant(payload)
            }
        })*

        #[cfg(feature = "generate")]
        impl $name {
            /// Each type of message with its payload's schema.
            pub fn schemas(generator: &mut schemars::SchemaGenerator) -> Vec<(&'static str, schemars::Schema)> {
                vec![$(($kind, generator.subschema_for::<$payload>())),*]
            }

            /// Each type of message with the TypeScript name of its payload.
            pub fn typescript_payload_names(config: &ts_rs::Config) -> Vec<(&'static str, String)> {
                vec![$(($kind, <$payload as ts_rs::TS>::name(config))),*]
            }

            /// Visits every payload type, for generating TypeScript.
            pub fn visit_types(visitor: &mut impl ts_rs::TypeVisitor) {
                $(visitor.visit::<$payload>();)*
            }
        }
    };
}

/// Parses a JSON object. Serde's derived types would also accept an array of the field values.
fn parse_object<T: serde::de::DeserializeOwned>(payload: &str) -> Result<T, String> {
    if !payload.trim_start().starts_with('{') {
        return Err("`payload` must be an object".to_owned());
    }
    serde_json::from_str(payload).map_err(|error| {
        // Tracking the path is slow, so it happens only on this second parse, after a failure.
        let mut reader = serde_json::Deserializer::from_str(payload);
        match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(error) if error.path().iter().len() > 0 => {
                format!("`{}`: {}", error.path(), parse_error_text(error.inner()))
            }
            Err(_) | Ok(_) => parse_error_text(&error),
        }
    })
}

message_enum! {
    /// The messages a client may send. `tool.execute` is not one of them.
    ClientMessage {
        SessionCreate(SessionCreate) = "session.create",
        SessionJoin(SessionJoin) = "session.join",
        SessionLeave(SessionLeave) = "session.leave",
        SessionEnd(SessionEnd) = "session.end",
        SessionConfigUpdate(SessionConfigUpdate) = "session.config_update",
        Announce(Announce) = "participant.announce",
        RoleChange(RoleChange) = "participant.role_change",
        HeartbeatPing(HeartbeatPing) = "heartbeat.ping",
        HeartbeatPong(HeartbeatPong) = "heartbeat.pong",
        PresenceUpdate(PresenceUpdate) = "presence.update",
        ContextAdd(ContextAdd) = "context.add",
        ContextUpdate(ContextUpdate) = "context.update",
        ContextRemove(ContextRemove) = "context.remove",
        SecretShare(SecretShare) = "secret.share",
        SecretRevoke(SecretRevoke) = "secret.revoke",
        PromptDraft(PromptDraft) = "prompt.draft",
        PromptSubmit(PromptSubmit) = "prompt.submit",
        PromptAmend(PromptAmend) = "prompt.amend",
        ThinkingStart(ThinkingStart) = "thinking.start",
        ThinkingChunk(ThinkingChunk) = "thinking.chunk",
        ThinkingEnd(ThinkingEnd) = "thinking.end",
        ResponseStart(ResponseStart) = "response.start",
        ResponseChunk(ResponseChunk) = "response.chunk",
        ResponseEnd(ResponseEnd) = "response.end",
        ToolPropose(ToolPropose) = "tool.propose",
        ToolApprove(ToolApprove) = "tool.approve",
        ToolReject(ToolReject) = "tool.reject",
        ToolOutput(ToolOutput) = "tool.output",
        ToolResult(ToolResult) = "tool.result",
        GateApprove(GateApprove) = "gate.approve",
        GateReject(GateReject) = "gate.reject",
        InterruptRaise(InterruptRaise) = "interrupt.raise",
        InterruptAcknowledge(InterruptAcknowledge) = "interrupt.acknowledge",
        ForkCreate(ForkCreate) = "fork.create",
        ForkSwitch(ForkSwitch) = "fork.switch",
        MergePropose(MergePropose) = "merge.propose",
        MergeExecute(MergeExecute) = "merge.execute",
        Error(ErrorReport) = "error",
        GateAmend(GateAmend) = "gate.amend",
        ToolDiscard(ToolDiscard) = "tool.discard",
        ToolCancel(ToolCancel) = "tool.cancel",
        ToolInput(ToolInput) = "tool.input",
        ToolRenew(ToolRenew) = "tool.renew",
        ToolDefer(ToolDefer) = "tool.defer",
        ShellExec(ShellExec) = "shell.exec",
        PolicyAllow(PolicyAllow) = "policy.allow",
        PolicyRevoke(PolicyRevoke) = "policy.revoke",
        OutputRead(OutputRead) = "output.read",
    }
}

message_enum! {
    /// The messages the server sends: those it relays, and those only the server may send.
    ServerMessage {
        SessionCreate(SessionCreate) = "session.create",
        SessionLeave(SessionLeave) = "session.leave",
        SessionEnd(SessionEnd) = "session.end",
        SessionConfigUpdate(SessionConfigUpdate) = "session.config_update",
        SessionWelcome(SessionWelcome) = "session.welcome",
        SessionAck(SessionAck) = "session.ack",
        Announce(Announce) = "participant.announce",
        RoleChange(RoleChange) = "participant.role_change",
        HeartbeatPing(HeartbeatPing) = "heartbeat.ping",
        HeartbeatPong(HeartbeatPong) = "heartbeat.pong",
        PresenceUpdate(PresenceUpdate) = "presence.update",
        ContextAdd(ContextAdd) = "context.add",
        ContextUpdate(ContextUpdate) = "context.update",
        ContextRemove(ContextRemove) = "context.remove",
        SecretShare(SecretShare) = "secret.share",
        SecretRevoke(SecretRevoke) = "secret.revoke",
        PromptDraft(PromptDraft) = "prompt.draft",
        PromptSubmit(PromptSubmit) = "prompt.submit",
        PromptAmend(PromptAmend) = "prompt.amend",
        ThinkingStart(ThinkingStart) = "thinking.start",
        ThinkingChunk(ThinkingChunk) = "thinking.chunk",
        ThinkingEnd(ThinkingEnd) = "thinking.end",
        ResponseStart(ResponseStart) = "response.start",
        ResponseChunk(ResponseChunk) = "response.chunk",
        ResponseEnd(ResponseEnd) = "response.end",
        ToolPropose(ToolPropose) = "tool.propose",
        ToolApprove(ToolApprove) = "tool.approve",
        ToolReject(ToolReject) = "tool.reject",
        ToolExecute(ToolExecute) = "tool.execute",
        ToolOutput(ToolOutput) = "tool.output",
        ToolResult(ToolResult) = "tool.result",
        GateRequest(GateRequest) = "gate.request",
        GateApprove(GateApprove) = "gate.approve",
        GateReject(GateReject) = "gate.reject",
        GateTimeout(GateTimeout) = "gate.timeout",
        GateResolve(GateResolve) = "gate.resolve",
        GateAmend(GateAmend) = "gate.amend",
        InterruptRaise(InterruptRaise) = "interrupt.raise",
        InterruptAcknowledge(InterruptAcknowledge) = "interrupt.acknowledge",
        ToolDiscard(ToolDiscard) = "tool.discard",
        ToolCancel(ToolCancel) = "tool.cancel",
        ToolInput(ToolInput) = "tool.input",
        ToolDefer(ToolDefer) = "tool.defer",
        ShellExec(ShellExec) = "shell.exec",
        PolicyAllow(PolicyAllow) = "policy.allow",
        PolicyRevoke(PolicyRevoke) = "policy.revoke",
        OutputPage(OutputPage) = "output.page",
        Error(ErrorReport) = "error",
    }
}

/// Whether a type of message is one of the 41 in the published protocol.
pub fn is_published(kind: &str) -> bool {
    const EXTENSIONS: [&str; 14] = [
        "session.welcome",
        "session.ack",
        "gate.resolve",
        "gate.amend",
        "tool.discard",
        "tool.cancel",
        "tool.input",
        "tool.renew",
        "tool.defer",
        "shell.exec",
        "policy.allow",
        "policy.revoke",
        "output.read",
        "output.page",
    ];
    let known = ClientMessage::KINDS.contains(&kind) || ServerMessage::KINDS.contains(&kind);
    known && !EXTENSIONS.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all_41_published_types_are_in_a_message_enum() {
        let all: BTreeSet<_> = ClientMessage::KINDS
            .iter()
            .chain(ServerMessage::KINDS)
            .collect();
        assert_eq!(all.iter().filter(|kind| is_published(kind)).count(), 41);
        assert_eq!(all.len(), 55);
    }

    #[test]
    fn clients_cannot_parse_server_only_messages() {
        for kind in [
            "tool.execute",
            "gate.request",
            "gate.resolve",
            "gate.timeout",
            "session.welcome",
            "session.ack",
        ] {
            assert!(ClientMessage::parse_payload(kind, "{}").is_none(), "{kind}");
        }
    }
}
