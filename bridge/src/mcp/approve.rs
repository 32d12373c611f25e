//! Decides about a call that the client itself would run, for Claude Code's permission prompt.
//!
//! Whatever goes wrong, the answer is a denial.

use pvp_agent::agent::Agent;
use pvp_client::fresh_id;
use pvp_protocol::JsonObject;
use pvp_protocol::payload::Degree;
use serde_json::{Value, json};

use super::followed_call::{self, FollowedCall};
use crate::bound_call::{BoundCall, CallNames};
use crate::supervisor::{AllowedCall, CallDecision, CallReport, SupervisedClient, Supervisor};

/// A call that the client wants to run with a tool of its own.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PromptedCall {
    pub(super) tool_name: String,
    pub(super) input: JsonObject,
    /// The client's id of the call.
    pub(super) call_id: String,
}

/// What the client may do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PromptAnswer {
    /// Run it with this input, which people may have edited.
    Allow { input: JsonObject },
    /// Not run it; its model reads why.
    Deny { message: String },
}

impl PromptAnswer {
    pub(super) fn deny(message: &str) -> Self {
        let message = message.to_owned();
        PromptAnswer::Deny { message }
    }

    /// The decision as Claude Code reads it.
    pub(super) fn to_json(&self) -> String {
        match self {
            PromptAnswer::Allow { input } => json!({"behavior": "allow", "updatedInput": input}),
            PromptAnswer::Deny { message } => json!({"behavior": "deny", "message": message}),
        }
        .to_string()
    }
}

/// Asks about the calls of one client.
pub(super) struct PermissionPrompts {
    supervisor: Supervisor,
    /// What this process calls the conversation; the client does not say.
    conversation: String,
}

impl PermissionPrompts {
    /// Asks over the connection of an agent, for the client that calls itself so.
    pub(super) fn new(agent: &Agent, client: String, version: Option<String>) -> Self {
        let client = SupervisedClient {
            name: client,
            version,
            workspace: agent.settings().workspace.clone(),
            degree: Degree::Hooked,
        };
        Self {
            supervisor: Supervisor::with_proposer(agent.proposer().clone(), client),
            conversation: fresh_id().to_string(),
        }
    }

    /// Answers a call of the `approve` tool.
    pub(super) async fn answer(
        &self,
        followed: &FollowedCall<'_>,
        arguments: &JsonObject,
    ) -> PromptAnswer {
        match PromptedCall::parse(arguments) {
            Ok(call) => self.decide(followed, &call).await,
            Err(why) => PromptAnswer::deny(&why),
        }
    }

    /// Asks people about a call, and waits until they have decided.
    async fn decide(&self, followed: &FollowedCall<'_>, call: &PromptedCall) -> PromptAnswer {
        let bound = BoundCall::new(&call.tool_name, &call.input, self.supervisor.place());
        let mut request = bound.request(CallNames {
            conversation: self.conversation.clone(),
            call_id: call.call_id.clone(),
            subagent: None,
        });
        // The client does not say where it works, so what its relative paths name is not known.
        request.must_ask = true;
        let pending = match followed.starting(self.supervisor.propose(request)).await {
            Ok(pending) => pending,
            Err(denial) => return PromptAnswer::deny(&denial.reason),
        };
        let gate = pending.gate_progress();
        // Dropping what waits withdraws it.
        let decided = followed.follow(None, Some(gate), pending.decision()).await;
        match decided {
            None => PromptAnswer::deny(followed_call::CANCELLED),
            Some(CallDecision::Denied(denial)) => PromptAnswer::deny(&denial.reason),
            Some(CallDecision::Allowed(allowed)) => allow(&bound, call, *allowed).await,
        }
    }
}

/// Allows a call in the form that was granted. The client never says how it ended.
async fn allow(bound: &BoundCall, call: &PromptedCall, allowed: AllowedCall) -> PromptAnswer {
    let input = match &allowed.edited {
        None => bound.granted_input(&bound.proposed().arguments),
        Some(edited) => bound.granted_input(edited),
    };
    let (decision, report) = match input {
        Ok(edited) => {
            let input = edited.unwrap_or_else(|| call.input.clone());
            let why = "the client ran it and does not say how it ended";
            (PromptAnswer::Allow { input }, CallReport::unknown(why))
        }
        Err(why) => {
            let why = format!("Not run: {why}.");
            (PromptAnswer::deny(&why), CallReport::not_run(why))
        }
    };
    allowed.finish(report).await;
    decision
}

impl PromptedCall {
    fn parse(arguments: &JsonObject) -> Result<Self, String> {
        let Some(Value::String(tool_name)) = arguments.get("tool_name") else {
            return Err("Nothing was allowed: `tool_name` must be a string.".to_owned());
        };
        let Some(Value::Object(input)) = arguments.get("input") else {
            return Err("Nothing was allowed: `input` must be an object.".to_owned());
        };
        let call_id = arguments.get("tool_use_id").and_then(Value::as_str);
        Ok(Self {
            tool_name: tool_name.clone(),
            input: input.clone(),
            // A call without an id is never the same as another.
            call_id: call_id.map_or_else(|| fresh_id().to_string(), str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn arguments_that_are_not_a_call_are_wrong() {
        for arguments in [
            json!({}),
            json!({"tool_name": "Bash"}),
            json!({"tool_name": 1, "input": {}}),
            json!({"tool_name": "Bash", "input": "ls"}),
        ] {
            let problem = PromptedCall::parse(&object(arguments)).unwrap_err();
            assert!(problem.starts_with("Nothing was allowed: `"), "{problem}");
        }
    }

    #[test]
    fn a_decision_is_what_claude_code_reads() {
        let input = object(json!({"command": "ls"}));
        assert_eq!(
            PromptAnswer::Allow { input }.to_json(),
            r#"{"behavior":"allow","updatedInput":{"command":"ls"}}"#
        );
        assert_eq!(
            PromptAnswer::deny("no").to_json(),
            r#"{"behavior":"deny","message":"no"}"#
        );
    }
}
