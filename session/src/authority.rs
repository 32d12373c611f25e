//! Checks who may send which message. Roles and capabilities are enforced only here.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "most messages name nobody, so that nothing is to be checked of them"
)]

use pvp_protocol::{Capability, ClientMessage, ParticipantId, Refusal};

use crate::member::Member;

/// What a message requires of its sender.
enum Requirement {
    /// Being in the session.
    Joined,
    Capability(Capability),
    /// Being an agent.
    Agent,
    /// Being a person with this capability.
    Person(Capability),
    /// Being the executor, driver or proposer, which is checked where the state is known.
    DependsOnState,
}

fn requirement(message: &ClientMessage) -> Requirement {
    use ClientMessage as M;
    match message {
        M::SessionLeave(_)
        | M::Announce(_)
        | M::PresenceUpdate(_)
        | M::HeartbeatPing(_)
        | M::HeartbeatPong(_)
        | M::OutputRead(_)
        | M::SessionCreate(_)
        | M::SessionJoin(_) => Requirement::Joined,
        M::SessionEnd(_) => Requirement::Capability(Capability::EndSession),
        M::SessionConfigUpdate(_) | M::RoleChange(_) => {
            Requirement::Capability(Capability::ManageParticipants)
        }
        M::ContextAdd(_) | M::ContextUpdate(_) | M::ContextRemove(_) | M::SecretShare(_) => {
            Requirement::Capability(Capability::AddContext)
        }
        M::PromptDraft(_) | M::PromptSubmit(_) | M::PromptAmend(_) => {
            Requirement::Capability(Capability::Prompt)
        }
        M::ThinkingStart(_)
        | M::ThinkingChunk(_)
        | M::ThinkingEnd(_)
        | M::ResponseStart(_)
        | M::ResponseChunk(_)
        | M::ResponseEnd(_)
        | M::ToolPropose(_)
        | M::InterruptAcknowledge(_)
        | M::Error(_) => Requirement::Agent,
        M::ToolApprove(_)
        | M::ToolReject(_)
        | M::GateApprove(_)
        | M::GateReject(_)
        | M::GateAmend(_)
        | M::PolicyAllow(_)
        | M::PolicyRevoke(_) => Requirement::Person(Capability::Approve),
        M::InterruptRaise(_) => Requirement::Capability(Capability::Interrupt),
        M::ForkCreate(_) | M::ForkSwitch(_) | M::MergePropose(_) | M::MergeExecute(_) => {
            Requirement::Capability(Capability::Fork)
        }
        M::ShellExec(_) => Requirement::Person(Capability::Exec),
        M::ToolOutput(_)
        | M::ToolResult(_)
        | M::ToolDiscard(_)
        | M::ToolCancel(_)
        | M::ToolInput(_)
        | M::ToolRenew(_)
        | M::ToolDefer(_)
        | M::SecretRevoke(_) => Requirement::DependsOnState,
    }
}

/// Checks that this member may send this message. What depends on the state is checked elsewhere.
pub(crate) fn authorize(
    by: &ParticipantId,
    member: &Member,
    message: &ClientMessage,
) -> Result<(), Refusal> {
    match requirement(message) {
        Requirement::Joined | Requirement::DependsOnState => {}
        Requirement::Capability(capability) => require_capability(member, capability)?,
        Requirement::Agent if member.is_human() => {
            return Err(Refusal::Unauthorized(
                "only agents may send this".to_owned(),
            ));
        }
        Requirement::Agent => {}
        Requirement::Person(Capability::Approve) if !member.is_human() => {
            return Err(Refusal::AgentsDoNotVote);
        }
        Requirement::Person(_) if !member.is_human() => {
            return Err(Refusal::Unauthorized(
                "only people may send this".to_owned(),
            ));
        }
        Requirement::Person(capability) => require_capability(member, capability)?,
    }
    check_sender_fields(by, message)
}

/// Checks that this member has the capability.
pub(crate) fn require_capability(member: &Member, capability: Capability) -> Result<(), Refusal> {
    if member.has_capability(capability) {
        Ok(())
    } else {
        Err(Refusal::MissingCapability(capability))
    }
}

/// Checks that fields which name the acting participant name the sender.
fn check_sender_fields(by: &ParticipantId, message: &ClientMessage) -> Result<(), Refusal> {
    use ClientMessage as M;
    let (field, claimed) = match message {
        M::ToolApprove(vote) => ("approver", &vote.approver),
        M::GateApprove(vote) => ("approver", &vote.approver),
        M::ToolReject(vote) => ("rejector", &vote.rejector),
        M::GateReject(vote) => ("rejector", &vote.rejector),
        M::RoleChange(change) => ("changed_by", &change.changed_by),
        M::ToolPropose(proposal) => ("agent", &proposal.agent),
        M::ThinkingStart(start) => ("agent", &start.agent),
        M::ResponseStart(start) => ("agent", &start.agent),
        M::InterruptAcknowledge(acknowledgement) => ("by", &acknowledgement.by),
        M::Announce(announce) => ("id", &announce.id),
        M::PresenceUpdate(presence) => ("participant", &presence.participant),
        _ => return Ok(()),
    };
    if claimed == by {
        return Ok(());
    }
    Err(Refusal::IdentityMismatch {
        field,
        claimed: claimed.to_string(),
        actual: by.clone(),
    })
}
