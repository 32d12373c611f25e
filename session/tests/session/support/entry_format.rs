//! Formats entries as short lines, so that people can compare whole decisions.

use std::collections::BTreeMap;

use pvp_protocol::payload::{Approval, Content, ToolResultValue, Visibility};
use pvp_protocol::{
    Action, Assessment, Envelope, ExecutionLimits, MessageId, ParticipantId, QuorumRule, Role,
    ServerMessage, Timestamp, WireMessage,
};
use pvp_session::{Answer, Entry, Viewers};

use super::START_MS;

/// Gives generated ids readable names.
#[derive(Clone, Default)]
pub struct EntryFormatter {
    gates: BTreeMap<MessageId, String>,
}

pub fn format_answer(answer: &Answer) -> String {
    match answer {
        Answer::Accepted(Some(seq)) => format!("= accepted {seq}"),
        Answer::Accepted(None) => "= accepted".to_owned(),
        Answer::Duplicate(seq) => format!("= duplicate {seq}"),
        Answer::Refused(refusal) => format!("= refused {:?}: {refusal}", refusal.code()),
    }
}

impl EntryFormatter {
    /// Formats an entry as `3 system gate.request …`, with the audience unless it is everyone.
    pub fn format_entry(&mut self, entry: &Entry) -> String {
        let mut line = format!("{} {}", entry.seq(), self.format_envelope(&entry.envelope));
        match &entry.audience.who {
            Viewers::Everyone => {}
            Viewers::Approvers { and } => {
                line.push_str(&format!(" | approvers and {}", format_id_set(and)))
            }
            Viewers::Only(only) => line.push_str(&format!(" | only {}", format_id_set(only))),
        }
        if let Some(private) = &entry.grant_nonce {
            line.push_str(&format!(" | nonce for {}", private.to));
        }
        line
    }

    pub fn format_envelope(&mut self, envelope: &Envelope) -> String {
        if let ServerMessage::GateRequest(request) = &envelope.message {
            let name = format!("gate({})", request.action_ref);
            self.gates.insert(envelope.header.id.clone(), name);
        }
        let sender = envelope.header.sender.as_str();
        let kind = envelope.message.kind();
        let detail = self.payload_details(&envelope.message);
        let line = format!("{sender} {kind} {detail}");
        line.trim_end().to_owned()
    }

    fn gate_name(&self, id: &MessageId) -> String {
        self.gates
            .get(id)
            .cloned()
            .unwrap_or_else(|| id.to_string())
    }

    /// A gate that is named by its proposal, and by its request beside that.
    fn request_name(&self, gate: &MessageId, request: &Option<MessageId>) -> String {
        assert!(!self.gates.contains_key(gate), "`gate` is the proposal");
        self.gate_name(request.as_ref().unwrap_or(gate))
    }

    fn payload_details(&self, message: &ServerMessage) -> String {
        use ServerMessage as M;
        match message {
            M::SessionCreate(create) => create.name.clone().unwrap_or_default(),
            M::SessionLeave(leave) => leave.reason.clone().unwrap_or_default(),
            M::SessionEnd(end) => format!("{} {}", serialized_word(&end.final_state), end.reason),
            M::SessionConfigUpdate(update) => to_json(&update.changes),
            M::Announce(announce) => {
                let mut line = format!(
                    "{} {}",
                    serialized_word(&announce.kind),
                    format_roles(&announce.roles)
                );
                if let Some(capabilities) = &announce.capabilities {
                    line.push_str(&format!(" and {}", to_json(capabilities)));
                }
                line
            }
            M::RoleChange(change) => format!(
                "{} {} -> {}",
                change.participant,
                format_roles(&change.old_roles),
                format_roles(&change.new_roles)
            ),
            M::PresenceUpdate(presence) => {
                format!(
                    "{} {}",
                    presence.participant,
                    serialized_word(&presence.status)
                )
            }
            M::ContextAdd(add) => match &add.content {
                Some(Content::Text(text)) => format!("{} {text:.40}", add.key),
                Some(content) => format!("{} {}", add.key, to_json(content)),
                None => format!("{} by reference", add.key),
            },
            M::ContextUpdate(update) => update.key.clone(),
            M::ContextRemove(remove) => remove.key.clone(),
            M::SecretShare(share) => to_json(share),
            M::SecretRevoke(revoke) => format!("{} {}", revoke.key, revoke.reason),
            M::PromptDraft(draft) => draft.content.clone(),
            M::PromptSubmit(prompt) => format!("to {} {}", prompt.target_agent, prompt.content),
            M::PromptAmend(amend) => format!("{} {}", amend.original_prompt, amend.amendment),
            M::ThinkingStart(start) => match &start.visible_to {
                Visibility::Group(group) => serialized_word(group),
                Visibility::People(people) => format_ids(people),
            },
            M::ThinkingChunk(chunk) => chunk.text.clone(),
            M::ThinkingEnd(end) => end.summary.clone().unwrap_or_default(),
            M::ResponseStart(start) => format!("to {}", start.prompt_ref),
            M::ResponseChunk(chunk) => chunk.text.clone(),
            M::ResponseEnd(end) => serialized_word(&end.finish_reason),
            M::ToolPropose(propose) => {
                let action =
                    Action::from_arguments(&propose.tool_name, &propose.arguments).unwrap();
                format_assessment(&action, propose.assessment.as_ref())
            }
            M::ShellExec(exec) => format!(
                "`{}` {} on {} within {}s",
                exec.command,
                exec.assessment
                    .as_ref()
                    .map_or("?", |a| a.category.as_str()),
                exec.executor.as_ref().map_or("?", ParticipantId::as_str),
                exec.timeout_seconds.unwrap_or_default()
            ),
            M::GateRequest(request) => format!(
                "action_ref={} {} quorum={} voters={} deadline={} then {}",
                request.action_ref,
                request.category,
                format_quorum(&request.quorum),
                format_ids(&request.voters),
                format_time(request.deadline),
                serialized_word(&request.on_timeout)
            ),
            M::GateAmend(amend) => format!(
                "{} {} quorum={} voters={} deadline={}",
                self.gate_name(&amend.gate),
                format_assessment(
                    &Action::from_arguments("shell", &amend.arguments)
                        .or_else(|_| Action::from_arguments("tool", &amend.arguments))
                        .unwrap(),
                    amend.assessment.as_ref()
                ),
                amend.quorum.as_ref().map(format_quorum).unwrap_or_default(),
                format_ids(amend.voters.as_deref().unwrap_or_default()),
                format_time(amend.deadline)
            ),
            M::GateApprove(vote) => vote.gate.to_string(),
            M::GateReject(vote) => {
                format!("{} {}", vote.gate, vote.reason)
            }
            M::ToolApprove(vote) => vote.tool_proposal.to_string(),
            M::ToolReject(vote) => format!("{} {}", vote.tool_proposal, vote.reason),
            M::GateTimeout(timeout) => {
                let mut line = format!(
                    "{} {} {} of {}",
                    self.request_name(&timeout.gate, &timeout.gate_request),
                    serialized_word(&timeout.resolution),
                    timeout.approvals_received,
                    timeout.approvals_required
                );
                if let (Some(rule), Some(voters)) = (&timeout.quorum, &timeout.voters) {
                    line.push_str(&format!(
                        " quorum={} voters={} deadline={}",
                        format_quorum(rule),
                        format_ids(voters),
                        format_time(timeout.deadline)
                    ));
                }
                line
            }
            M::GateResolve(resolve) => {
                let mut line = format!(
                    "{} {} by {}",
                    resolve.tool_proposal,
                    serialized_word(&resolve.outcome),
                    serialized_word(&resolve.how)
                );
                for (name, value) in [
                    ("by", resolve.by.as_ref().map(ToString::to_string)),
                    ("reason", resolve.reason.clone()),
                    ("suggestion", resolve.suggestion.clone()),
                    ("rule", resolve.rule.as_ref().map(ToString::to_string)),
                    ("approvals", format_approvals(&resolve.approvals)),
                ] {
                    if let Some(value) = value {
                        line.push_str(&format!(" {name}={value}"));
                    }
                }
                line
            }
            M::ToolExecute(execute) => {
                let grant = &execute.grant;
                let terms = match (grant.profile, grant.limits) {
                    (Some(profile), Some(limits)) => {
                        let ExecutionLimits {
                            timeout_ms,
                            output_bytes,
                        } = limits;
                        let profile = serialized_word(&profile);
                        format!("profile={profile} {timeout_ms}ms {output_bytes}B")
                    }
                    (profile, limits) => {
                        assert_eq!((profile, limits), (None, None), "half of the terms");
                        format!("runs={}", grant.runs)
                    }
                };
                let mut line = format!(
                    "{} `{}` on {} cleared_by={} approved_by={} {terms} until {}",
                    execute.tool_proposal,
                    grant.action.command.summary(),
                    grant.executor,
                    serialized_word(&grant.cleared_by),
                    format_ids(&execute.approved_by),
                    format_time(Some(grant.expires_at))
                );
                if let Some(rule) = &grant.rule {
                    line.push_str(&format!(" rule={rule}"));
                }
                if let Some(driver) = &grant.driver {
                    line.push_str(&format!(" driver={driver}"));
                }
                line
            }
            M::ToolOutput(output) => format!(
                "{} {}@{} {:?}{}",
                output.tool_proposal,
                serialized_word(&output.stream),
                output.offset.unwrap_or_default(),
                shortened(&output.text),
                if output.complete { " complete" } else { "" }
            ),
            M::ToolResult(result) => {
                let mut line = format!(
                    "{} {} {}",
                    result.tool_proposal,
                    if result.success { "ok" } else { "failed" },
                    result
                        .outcome
                        .as_ref()
                        .map(serialized_word)
                        .unwrap_or_default()
                );
                if let Some(ToolResultValue::Other(value)) = &result.result {
                    line.push_str(&format!(" {value}"));
                }
                if let Some(body) = result.command() {
                    line.push_str(&format!(
                        " {:?} {:?} {:?}",
                        body.exit_code,
                        shortened(&body.stdout),
                        shortened(&body.stderr)
                    ));
                }
                if let Some(error) = &result.error {
                    line.push_str(&format!(" {error}"));
                }
                if result.attested {
                    line.push_str(" (attested)");
                }
                line
            }
            M::ToolDiscard(discard) => format!("{} {}", discard.tool_proposal, discard.trial),
            M::ToolCancel(cancel) => format!(
                "{} {}",
                cancel.tool_proposal,
                cancel.reason.clone().unwrap_or_default()
            ),
            M::ToolInput(input) => to_json(input),
            M::ToolDefer(defer) => format!("{} {}s", defer.tool_proposal, defer.seconds),
            M::PolicyAllow(allow) => {
                let allowed = match &allow.read_root {
                    Some(root) => format!("reading {root}"),
                    None => allow.prefix.join(" "),
                };
                format!("{allowed} until {}", format_time(Some(allow.expires_at)))
            }
            M::PolicyRevoke(revoke) => revoke.rule.to_string(),
            M::InterruptRaise(raise) => format!(
                "{} {}",
                serialized_word(&raise.urgency),
                raise.target.as_ref().map_or("all", ParticipantId::as_str)
            ),
            M::InterruptAcknowledge(done) => {
                format!("{} {}", done.interrupt, serialized_word(&done.action_taken))
            }
            M::Error(report) => format!("{:?} {}", report.code, report.message),
            M::SessionWelcome(_)
            | M::SessionAck(_)
            | M::OutputPage(_)
            | M::HeartbeatPing(_)
            | M::HeartbeatPong(_) => panic!("the session core never says {}", message.kind()),
        }
    }
}

fn format_assessment(action: &Action, assessment: Option<&Assessment>) -> String {
    let Some(assessment) = assessment else {
        return format!("`{}` without a verdict", action.command.summary());
    };
    let mut line = format!("`{}` {}", action.command.summary(), assessment.category);
    // Most tests propose `make`, and none of them is about its makefile.
    let is_unbound = |note: &&String| note.ends_with("can still be changed after the vote");
    for note in assessment.notes.iter().filter(|note| !is_unbound(note)) {
        line.push_str(&format!(" ({note})"));
    }
    line
}

/// `any:2`, `all`, `role:admin:1`, `specific:[ann,bob]`, `majority`.
pub fn format_quorum(rule: &QuorumRule) -> String {
    match rule {
        QuorumRule::Any { count } => format!("any:{count}"),
        QuorumRule::All => "all".to_owned(),
        QuorumRule::Role { role, count } => format!("role:{role}:{count}"),
        QuorumRule::Specific { participants } => format!("specific:{}", format_ids(participants)),
        QuorumRule::Majority => "majority".to_owned(),
    }
}

/// Formats a time as seconds since the start.
fn format_time(at: Option<Timestamp>) -> String {
    at.map_or("never".to_owned(), |at| {
        let ms = at.as_millis() - START_MS;
        if ms.is_multiple_of(1000) {
            format!("+{}", ms / 1000)
        } else {
            format!("+{}ms", ms)
        }
    })
}

fn format_approvals(approvals: &[Approval]) -> Option<String> {
    let ids: Vec<_> = approvals.iter().map(|a| a.participant.clone()).collect();
    (!ids.is_empty()).then(|| format_ids(&ids))
}

fn format_ids(ids: &[ParticipantId]) -> String {
    format_id_set(ids)
}

fn format_id_set<'a>(ids: impl IntoIterator<Item = &'a ParticipantId>) -> String {
    let names: Vec<_> = ids.into_iter().map(ParticipantId::as_str).collect();
    format!("[{}]", names.join(","))
}

fn format_roles(roles: &[Role]) -> String {
    let names: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
    format!("[{}]", names.join(","))
}

fn shortened(text: &str) -> String {
    if text.len() <= 40 {
        return text.to_owned();
    }
    let head: String = text.chars().take(8).collect();
    format!("{head}… {} bytes", text.len())
}

fn serialized_word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap();
    value.as_str().unwrap_or_default().to_owned()
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}
