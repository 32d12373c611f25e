//! One entry as a line that a person can read.

use pvp_protocol::ServerMessage;
use pvp_protocol::payload::GateResolve;
use pvp_server::store::Record;
use pvp_session::Entry;

/// Longest text of a message that is shown.
const SHOWN: usize = 160;

/// What an entry says.
pub(super) fn of(record: &Record) -> String {
    let entry = match Entry::read(&record.meta, &record.body) {
        Ok(entry) => entry,
        Err(error) => return format!("{:>6}  unreadable: {error}", record.seq),
    };
    let envelope = &entry.envelope;
    let what = what(&envelope.message);
    let line = format!(
        "{:>6}  {}  {}: {what}",
        record.seq, envelope.at, envelope.heading.sender
    );
    plain(&line)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rest is shown as it stands"
)]
fn what(message: &ServerMessage) -> String {
    use ServerMessage as M;
    match message {
        M::SessionCreate(create) => {
            format!(
                "created the session {}",
                create.name.as_deref().unwrap_or_default()
            )
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
        M::GateApprove(vote) => format!("approved {}", vote.gate),
        M::ToolApprove(vote) => format!("approved {}", vote.tool_proposal),
        M::GateReject(vote) => format!("rejected {}: {}", vote.gate, vote.reason),
        M::ToolReject(vote) => format!("rejected {}: {}", vote.tool_proposal, vote.reason),
        M::GateAmend(amend) => format!("edited the command of {}", amend.gate),
        M::GateTimeout(timeout) => {
            format!("deadline of {}: {:?}", timeout.gate, timeout.resolution)
        }
        M::GateResolve(GateResolve {
            outcome,
            how,
            tool_proposal,
            ..
        }) => {
            format!("closed the gate of {tool_proposal}: {outcome:?} by {how:?}")
        }
        M::ToolExecute(execute) => {
            let people: Vec<_> = execute.approved_by.iter().map(|id| id.as_str()).collect();
            format!(
                "granted {} to {} ({:?}, approved by {}): {}",
                execute.tool_proposal,
                execute.grant.executor,
                execute.grant.cleared_by,
                if people.is_empty() {
                    "nobody".to_owned()
                } else {
                    people.join(", ")
                },
                execute.grant.action.command.summary()
            )
        }
        M::ToolOutput(output) => format!(
            "{:?} of {}: {}",
            output.stream, output.tool_proposal, output.text
        ),
        M::ToolResult(result) => {
            let code = result.result.as_ref().and_then(|body| body.exit_code);
            let code =
                code.map_or_else(|| "no exit code".to_owned(), |code| format!("exit {code}"));
            let error = result.error.as_deref().unwrap_or_default();
            format!("{} finished: {code} {error}", result.tool_proposal)
        }
        other => {
            use pvp_protocol::Vocabulary;
            let payload = serde_json::to_string(other).unwrap_or_default();
            format!("{} {payload}", other.kind())
        }
    }
}

/// Nothing that a command printed reaches the terminal as anything but text.
fn plain(line: &str) -> String {
    let mut shown: String = line
        .chars()
        .map(|c| if c.is_control() { '\u{b7}' } else { c })
        .filter(|c| !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}'))
        .take(SHOWN + 1)
        .collect();
    if shown.chars().count() > SHOWN {
        shown.pop();
        shown.push('…');
    }
    shown
}
