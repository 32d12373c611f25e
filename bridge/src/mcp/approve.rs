//! Decides about a call that the client itself would run, for Claude Code's permission prompt.
//!
//! Whatever goes wrong, the answer is a denial.

use pvp_agent::agent::Agent;
use pvp_agent::brain::{ProposalResult, ResultTextLimits};
use pvp_agent::proposer::{ProposalEvent, ProposalHandle, ProposeError};
use pvp_protocol::{Action, Command, JsonObject, ToolCategory};
use serde_json::{Value, json};

use super::followed_call::{self, FollowedCall};

/// A call that the client wants to run with a tool of its own.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClientCall {
    pub(super) tool_name: String,
    pub(super) input: JsonObject,
}

/// What the client may do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Decision {
    /// Run it with this input, which people may have edited.
    Allow { input: JsonObject },
    /// Not run it; its model reads why.
    Deny { message: String },
}

impl Decision {
    pub(super) fn deny(message: &str) -> Self {
        let message = message.to_owned();
        Decision::Deny { message }
    }

    /// The decision as Claude Code reads it.
    pub(super) fn to_json(&self) -> String {
        match self {
            Decision::Allow { input } => json!({"behavior": "allow", "updatedInput": input}),
            Decision::Deny { message } => json!({"behavior": "deny", "message": message}),
        }
        .to_string()
    }
}

/// Answers a call of the `approve` tool.
pub(super) async fn answer(followed: &FollowedCall<'_>, arguments: &JsonObject) -> Decision {
    match ClientCall::parse(arguments) {
        Ok(call) => decide(followed, &call).await,
        Err(why) => Decision::deny(&why),
    }
}

impl ClientCall {
    fn parse(arguments: &JsonObject) -> Result<Self, String> {
        let Some(Value::String(tool_name)) = arguments.get("tool_name") else {
            return Err("Nothing was allowed: `tool_name` must be a string.".to_owned());
        };
        let Some(Value::Object(input)) = arguments.get("input") else {
            return Err("Nothing was allowed: `input` must be an object.".to_owned());
        };
        Ok(Self {
            tool_name: tool_name.clone(),
            input: input.clone(),
        })
    }

    /// What the call is for, where its tool has an argument for that.
    fn purpose(&self) -> &str {
        let description = self.input.get("description").and_then(Value::as_str);
        description.unwrap_or_default()
    }

    fn category(&self) -> ToolCategory {
        match self.tool_name.as_str() {
            "Bash" => ToolCategory::ShellExecute,
            "Read" | "Glob" | "Grep" | "LS" => ToolCategory::FileRead,
            "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => ToolCategory::FileWrite,
            "WebFetch" | "WebSearch" => ToolCategory::NetworkRequest,
            _ => ToolCategory::ExternalApi,
        }
    }

    /// The input of the call as it was granted.
    fn granted_input(&self, action: Action) -> Option<JsonObject> {
        match action.command {
            Command::Tool { name, arguments } if name == self.tool_name => Some(arguments),
            Command::Shell { line } => {
                let mut input = self.input.clone();
                input.insert("command".to_owned(), line.into());
                Some(input)
            }
            Command::Tool { .. } | Command::Argv { .. } | Command::LoginShell { .. } => None,
        }
    }
}

/// Asks people about a call, and waits until they have decided.
async fn decide(followed: &FollowedCall<'_>, call: &ClientCall) -> Decision {
    let proposed = followed.starting(propose(followed.agent, call)).await;
    let handle = match proposed {
        Ok(handle) => handle,
        Err(ProposeError::Blocked { rule, reason }) => {
            return denied(&ProposalResult::Blocked { rule, reason });
        }
        Err(error) => {
            let why = error.to_string();
            return denied(&ProposalResult::Refused { why });
        }
    };
    let (proposal, gate) = (handle.id.clone(), handle.gate_progress());
    let decided = followed.follow(Some(&proposal), Some(gate), decision(call, handle));
    let cancelled = || Decision::deny(followed_call::CANCELLED);
    decided.await.unwrap_or_else(cancelled)
}

// FIXME(runs-client): the session takes this for a call that the agent's executor runs. The executor
// has no such tool, so the log says that it failed, whatever the client did; and `Bash` is proposed
// as a tool of that name, because the executor would run a `shell` a second time.
async fn propose(agent: &Agent, call: &ClientCall) -> Result<ProposalHandle, ProposeError> {
    let proposer = agent.proposer();
    let input = call.input.clone();
    proposer
        .propose_tool(&call.tool_name, call.category(), input, call.purpose())
        .await
}

async fn decision(call: &ClientCall, mut handle: ProposalHandle) -> Decision {
    while let Some(event) = handle.next().await {
        match event {
            ProposalEvent::Granted { action, .. } => {
                return match call.granted_input(*action) {
                    Some(input) => Decision::Allow { input },
                    None => Decision::deny("Not allowed: what was granted is another tool's call."),
                };
            }
            ProposalEvent::NotRun(resolve) => return denied(&ProposalResult::NotApproved(resolve)),
            ProposalEvent::Finished(result) => {
                let edit = None;
                return denied(&ProposalResult::Ran { result, edit });
            }
            ProposalEvent::Lost => break,
            ProposalEvent::Assessed(_)
            | ProposalEvent::GateOpened { .. }
            | ProposalEvent::Edited { .. }
            | ProposalEvent::Started { .. }
            | ProposalEvent::Output { .. }
            | ProposalEvent::CancelRequested { .. } => {}
        }
    }
    let why = "the session is over".to_owned();
    denied(&ProposalResult::Refused { why })
}

/// The denial that says why a proposal came to nothing.
fn denied(proposal_result: &ProposalResult) -> Decision {
    let result = proposal_result.to_call_result(None, ResultTextLimits::default());
    Decision::deny(&result.text)
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
            let problem = ClientCall::parse(&object(arguments)).unwrap_err();
            assert!(problem.starts_with("Nothing was allowed: `"), "{problem}");
        }
    }

    #[test]
    fn what_was_granted_becomes_the_input_of_the_same_tool() {
        let call = ClientCall {
            tool_name: "Bash".to_owned(),
            input: object(json!({"command": "make", "timeout": 1})),
        };
        let line = "make -n".to_owned();
        let shell = Action::new(Command::Shell { line });
        let expected = object(json!({"command": "make -n", "timeout": 1}));
        assert_eq!(call.granted_input(shell), Some(expected));
        let tool = |name: &str| Action::from_tool_call(name, &object(json!({"command": "x"})));
        let expected = object(json!({"command": "x"}));
        assert_eq!(call.granted_input(tool("Bash")), Some(expected));
        assert_eq!(call.granted_input(tool("Write")), None);
    }

    #[test]
    fn a_decision_is_what_claude_code_reads() {
        let input = object(json!({"command": "ls"}));
        assert_eq!(
            Decision::Allow { input }.to_json(),
            r#"{"behavior":"allow","updatedInput":{"command":"ls"}}"#
        );
        assert_eq!(
            Decision::deny("no").to_json(),
            r#"{"behavior":"deny","message":"no"}"#
        );
    }
}
