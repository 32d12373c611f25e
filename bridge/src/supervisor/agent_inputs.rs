//! Turns what people ask of an agent into what they ask of a client.

use pvp_agent::agent::{AgentInput, AgentInputs, Requester};
use pvp_agent::proposer::{PersonRequest, PersonRequestKind};
use pvp_protocol::MessageId;
use tokio::sync::mpsc;

/// Requests that may wait to be read; further ones wait in the agent's own queue.
const MAX_REQUESTS: usize = 16;

/// What people ask, from the inputs of an agent; nothing if somebody else reads those.
pub(crate) fn person_requests(inputs: Option<AgentInputs>) -> mpsc::Receiver<PersonRequest> {
    let (requests, receiver) = mpsc::channel(MAX_REQUESTS);
    if let Some(mut inputs) = inputs {
        tokio::spawn(async move {
            while let Some(input) = inputs.next().await {
                if let Some(request) = person_request(input)
                    && requests.send(request).await.is_err()
                {
                    return;
                }
            }
        });
    }
    receiver
}

fn person_request(input: AgentInput) -> Option<PersonRequest> {
    let request = |id: MessageId, by: Requester, kind| PersonRequest {
        id,
        by: by.id,
        name: by.name,
        kind,
    };
    match input {
        // What was typed into the client itself is there already.
        AgentInput::Prompt { prompt, .. } if prompt.origin.is_some() => None,
        AgentInput::Prompt { id, by, prompt, .. } => {
            Some(request(id, by, PersonRequestKind::Prompt(prompt)))
        }
        AgentInput::Amend { id, by, amend } => {
            Some(request(id, by, PersonRequestKind::Amend(amend)))
        }
        AgentInput::Interrupt { id, by, interrupt } => {
            Some(request(id, by, PersonRequestKind::Interrupt(interrupt)))
        }
        // The client has a memory of its own.
        AgentInput::Recap(_) => None,
    }
}
