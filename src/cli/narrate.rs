//! One entry as a line that a person can read.

use pvp_protocol::payload::{
    ClearedBy, FinishReason, GateOutcome, GateResolve, OutputStream, ResponseEnd,
};
use pvp_protocol::{Envelope, MessageId, ServerMessage};

/// Longest text of a message that is shown.
const MAX_LINE_CHARS: usize = 160;

/// What an entry says.
pub(super) fn entry_line(envelope: &Envelope) -> String {
    let action = describe(&envelope.message);
    let seq = envelope.seq.map(|seq| seq.to_string()).unwrap_or_default();
    let line = format!(
        "{seq:>6}  {}  {}: {action}",
        envelope.at, envelope.heading.sender
    );
    shown_line(&line)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rest is shown as it stands"
)]
fn describe(message: &ServerMessage) -> String {
    use ServerMessage as M;
    match message {
        M::SessionCreate(create) => {
            let name = create.name.as_ref().map(|name| format!(" {name}"));
            format!("created the session{}", name.unwrap_or_default())
        }
        M::SessionEnd(end) => format!("ended the session: {}", end.reason),
        M::SessionLeave(_) => "left".to_owned(),
        M::Announce(announce) => {
            let roles: Vec<_> = announce.roles.iter().map(|role| role.as_str()).collect();
            format!("joined as {} ({})", announce.name, roles.join(", "))
        }
        M::RoleChange(change) => {
            format!("made {} {:?}", change.participant, change.new_roles)
        }
        M::SessionConfigUpdate(update) => format!("changed the configuration: {}", update.reason),
        M::PresenceUpdate(presence) => {
            format!("{} is {:?}", presence.participant, presence.status)
        }
        M::PromptSubmit(prompt) => format!("asked {}: {}", prompt.target_agent, prompt.content),
        M::PromptAmend(amend) => format!("changed a prompt: {}", amend.amendment),
        M::ThinkingStart(_) => "thinks".to_owned(),
        M::ThinkingChunk(chunk) => format!("thinks: {}", chunk.text.trim()),
        M::ThinkingEnd(_) => "has thought".to_owned(),
        M::ResponseStart(_) => "answers".to_owned(),
        M::ResponseChunk(chunk) => format!("says: {}", chunk.text.trim()),
        M::ResponseEnd(end) => response_end_text(end),
        M::InterruptRaise(raise) => {
            let whom = raise.target.as_ref().map_or("everyone", |it| it.as_str());
            format!(
                "interrupted {whom} ({:?}): {}",
                raise.urgency, raise.message
            )
        }
        M::InterruptAcknowledge(acknowledge) => {
            format!("acknowledged an interrupt: {:?}", acknowledge.action_taken)
        }
        M::ToolCancel(cancel) => {
            with_proposal("cancelled", &cancel.tool_proposal, cancel.reason.as_deref())
        }
        M::ToolInput(input) => {
            let keys = input.data.as_deref().unwrap_or("a new size");
            format!("typed into {}: {keys}", short_id(&input.tool_proposal))
        }
        M::ToolPropose(propose) => {
            let category = propose.assessment.as_ref().map(|a| a.category.as_str());
            let command = propose
                .arguments
                .get("full_command")
                .map(ToString::to_string);
            let command = command.unwrap_or_else(|| format!("{:?}", propose.arguments));
            format!("proposed [{}] {command}", category.unwrap_or("?"))
        }
        M::ShellExec(exec) => format!("ran their own command: {}", exec.command),
        M::GateRequest(request) => format!("asked for approval: {}", request.message),
        M::GateApprove(vote) => with_proposal("approved", &vote.gate, vote.comment.as_deref()),
        M::ToolApprove(vote) => {
            with_proposal("approved", &vote.tool_proposal, vote.comment.as_deref())
        }
        M::GateReject(vote) => with_proposal("rejected", &vote.gate, Some(&vote.reason)),
        M::ToolReject(vote) => with_proposal("rejected", &vote.tool_proposal, Some(&vote.reason)),
        M::GateAmend(amend) => {
            let command = amend.arguments.get("full_command").map(ToString::to_string);
            let command = command.unwrap_or_default();
            with_proposal("edited the command of", &amend.gate, Some(&command))
        }
        M::GateTimeout(timeout) => {
            let resolution = format!("{:?}", timeout.resolution).to_lowercase();
            with_proposal("the time is up for", &timeout.gate, Some(&resolution))
        }
        M::GateResolve(resolve) => resolution_text(resolve),
        M::ToolExecute(execute) => {
            let people: Vec<_> = execute.approved_by.iter().map(|id| id.as_str()).collect();
            let why = match (execute.grant.cleared_by, people.as_slice()) {
                (ClearedBy::Read, _) => "a read".to_owned(),
                (ClearedBy::AllowRule, _) => "a rule allows it".to_owned(),
                (ClearedBy::Direct, _) => "a person's own".to_owned(),
                (ClearedBy::Clock, _) => "approved by the clock".to_owned(),
                (ClearedBy::Quorum, people) => format!("approved by {}", people.join(", ")),
            };
            format!(
                "granted {} to {} ({why}): {}",
                short_id(&execute.tool_proposal),
                execute.grant.executor,
                execute.grant.action.command.summary()
            )
        }
        M::ToolOutput(output) => {
            let stream = match output.stream {
                OutputStream::Stdout => "out",
                OutputStream::Stderr => "err",
            };
            let end = if output.complete { " (end)" } else { "" };
            format!(
                "{} {stream}| {}{end}",
                short_id(&output.tool_proposal),
                output.text.trim_end()
            )
        }
        M::ToolResult(result) => {
            let code = result.result.as_ref().and_then(|body| body.exit_code);
            let code =
                code.map_or_else(|| "no exit code".to_owned(), |code| format!("exit {code}"));
            let error = result.error.as_deref().unwrap_or_default();
            format!("{} ended: {code} {error}", short_id(&result.tool_proposal))
        }
        other => {
            use pvp_protocol::WireMessage;
            let payload = serde_json::to_string(other).unwrap_or_default();
            format!("{} {payload}", other.kind())
        }
    }
}

fn response_end_text(end: &ResponseEnd) -> String {
    let how = match end.finish_reason {
        FinishReason::Complete => "has answered",
        FinishReason::ToolUse => "goes on",
        FinishReason::Interrupted => "was interrupted",
        FinishReason::Error => "could not go on",
        FinishReason::MaxTokens => "was cut off",
    };
    match &end.usage {
        None => how.to_owned(),
        Some(usage) => format!(
            "{how} ({} tokens in, {} out)",
            usage.input_tokens, usage.output_tokens
        ),
    }
}

/// The end of an id, which is what tells ids of one session apart.
fn short_id(id: &MessageId) -> &str {
    let id = id.as_str();
    &id[id.len().saturating_sub(6)..]
}

fn with_proposal(action: &str, gate: &MessageId, comment: Option<&str>) -> String {
    match comment.filter(|comment| !comment.is_empty()) {
        Some(comment) => format!("{action} {}: {comment}", short_id(gate)),
        None => format!("{action} {}", short_id(gate)),
    }
}

fn resolution_text(resolve: &GateResolve) -> String {
    let outcome = match resolve.outcome {
        GateOutcome::Approved => "approved",
        GateOutcome::Rejected => "rejected",
        GateOutcome::TimedOut => "timed out",
        GateOutcome::Cancelled => "cancelled",
    };
    let who: Vec<_> = match &resolve.by {
        Some(by) => vec![by.as_str()],
        None => resolve
            .approvals
            .iter()
            .map(|one| one.participant.as_str())
            .collect(),
    };
    let by = if who.is_empty() {
        String::new()
    } else {
        format!(" by {}", who.join(", "))
    };
    format!("{} was {outcome}{by}", short_id(&resolve.tool_proposal))
}

/// Nothing that a command printed reaches the terminal as anything but text.
fn shown_line(line: &str) -> String {
    let line = super::one_line(line);
    let mut shown: String = line.chars().take(MAX_LINE_CHARS + 1).collect();
    if shown.chars().count() > MAX_LINE_CHARS {
        shown.pop();
        shown.push('…');
    }
    shown
}
