//! The second person of the tour: a participant with their own token and connection, whose votes
//! are scripted.

use std::collections::BTreeMap;

use pvp_client::{ConnectOptions, Connection, ConnectionEvents, Link};
use pvp_protocol::payload::{GateApprove, GateReject};
use pvp_protocol::{
    Digest, Envelope, ExtraFields, MessageId, ParticipantId, Sender, ServerMessage,
};

/// Votes until it is dropped.
pub(super) struct SecondPerson {
    voting: tokio::task::JoinHandle<()>,
}

impl Drop for SecondPerson {
    fn drop(&mut self) {
        self.voting.abort();
    }
}

impl SecondPerson {
    /// Joins, and from then on approves what the other person has approved, exactly as it was
    /// proposed. What was edited is rejected: nobody agreed on that with a script.
    pub(super) async fn join(link: Link, other: ParticipantId) -> anyhow::Result<Self> {
        // The past asks for no vote.
        let options = ConnectOptions {
            history: Some(0),
            ..ConnectOptions::default()
        };
        let (connection, events) = Connection::open(link, options).await?;
        let script = VoteScript {
            other,
            gates: BTreeMap::new(),
        };
        let voting = tokio::spawn(vote(connection, events, script));
        Ok(Self { voting })
    }
}

async fn vote(connection: Connection, mut events: ConnectionEvents, mut script: VoteScript) {
    while let Some(envelope) = events.next_message().await {
        let me = connection.participant().clone();
        let sent = match script.decide(&envelope) {
            None => continue,
            Some(ScriptedVote::Approve { gate, digest }) => {
                let vote = GateApprove {
                    gate,
                    approver: me,
                    comment: Some("agreed".to_owned()),
                    digest: Some(digest),
                    gate_request: None,
                    extra: ExtraFields::new(),
                };
                connection.send(vote).await
            }
            Some(ScriptedVote::Reject { gate, digest }) => {
                let vote = GateReject {
                    gate,
                    rejector: me,
                    reason: "I agreed to the command as it was proposed".to_owned(),
                    digest: Some(digest),
                    gate_request: None,
                    extra: ExtraFields::new(),
                };
                connection.send(vote).await
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ScriptedVote {
    Approve { gate: MessageId, digest: Digest },
    Reject { gate: MessageId, digest: Digest },
}

/// What the second person votes, and when.
struct VoteScript {
    other: ParticipantId,
    /// The digest of what waits at each gate that opened since joining, by the proposal's id too.
    gates: BTreeMap<MessageId, Digest>,
}

impl VoteScript {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other messages ask for no vote"
    )]
    fn decide(&mut self, envelope: &Envelope) -> Option<ScriptedVote> {
        match &envelope.message {
            ServerMessage::GateRequest(request) => {
                let proposal = request.action_ref.clone();
                self.gates.insert(proposal, request.digest);
                self.gates
                    .insert(envelope.header.id.clone(), request.digest);
                None
            }
            ServerMessage::GateAmend(amend) => {
                let digest = amend.assessment.as_ref()?.digest;
                self.gates.contains_key(&amend.gate).then(|| {
                    let gate = amend.gate.clone();
                    ScriptedVote::Reject { gate, digest }
                })
            }
            ServerMessage::GateApprove(vote) => {
                self.second(envelope, &vote.gate, vote.digest.as_ref())
            }
            ServerMessage::ToolApprove(vote) => {
                self.second(envelope, &vote.tool_proposal, vote.digest.as_ref())
            }
            _ => None,
        }
    }

    /// Approves what the other person has approved, if it is what was proposed.
    fn second(
        &self,
        envelope: &Envelope,
        gate: &MessageId,
        shown: Option<&Digest>,
    ) -> Option<ScriptedVote> {
        let digest = *self.gates.get(gate)?;
        let by_other = envelope.header.sender == Sender::Participant(self.other.clone());
        let same = shown.is_none_or(|shown| *shown == digest);
        let gate = gate.clone();
        (by_other && same).then_some(ScriptedVote::Approve { gate, digest })
    }
}
