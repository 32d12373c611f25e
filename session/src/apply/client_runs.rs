//! Decides on calls of agent clients: what is asked of those that the client runs by itself, what is
//! kept of them, and what happens when the client is gone.

use pvp_protocol::payload::{
    ClientOrigin, Degree, GateOutcome, GateResolve, ResolutionCause, RunBy, ToolDefer, ToolPropose,
    ToolRenew,
};
use pvp_protocol::{Action, ClientReads, MessageId, ParticipantId, Refusal, RunMode};

use super::{Answer, AnswerResult, DecisionBuilder};
use crate::input::SubmittedMessage;
use crate::member::Member;
use crate::proposal::{Proposal, ProposalStage};

/// The longest name of a client, a version or an id in an origin, in bytes.
const MAX_ORIGIN_BYTES: usize = 256;

/// The most proposals that one message renews.
const MAX_RENEWED: usize = 256;

/// The longest time that a proposal waits for a client that went away, in seconds: a week.
const MAX_DEFER_SECONDS: u32 = 7 * 86_400;

impl DecisionBuilder<'_> {
    /// Checks what a proposal says about the client, and fills in what it leaves out: nothing of
    /// what an executor enforces is pretended for a client.
    pub(super) fn check_client_call(
        &self,
        propose: &mut ToolPropose,
        action: &Action,
    ) -> Result<(), Refusal> {
        if let Some(origin) = &propose.origin {
            check_origin(origin)?;
        }
        match propose.runs {
            RunBy::Executor => {
                // Without an executor of ours, only the agent's own word says what ran.
                let member = self.session.members.get(&propose.agent);
                let own_word = member.is_some_and(Member::is_published_agent);
                propose.degree = own_word.then_some(Degree::Hooked);
                Ok(())
            }
            RunBy::Client => {
                propose.degree = Some(match propose.degree {
                    None | Some(Degree::Hooked) => Degree::Hooked,
                    Some(Degree::Held) => Degree::Held,
                    Some(Degree::Executed) => {
                        return Err(Refusal::Malformed(
                            "what the client runs is `held` or `hooked`, not `executed`".to_owned(),
                        ));
                    }
                });
                check_client_action(action)
            }
        }
    }

    /// Why a read that the client runs by itself needs a vote; `None` if it needs none. Nothing of
    /// ours confines it, so it must be certain where the client works, and the session must want it.
    pub(super) fn client_read_question(&self, client: &ParticipantId) -> Option<&'static str> {
        match self.session.config.client_reads {
            ClientReads::Ask => Some("the client runs this read itself, without a sandbox"),
            ClientReads::Workspace if self.workspace_of(client).directory.is_none() => {
                Some("it is not known in which directory the client works")
            }
            ClientReads::Workspace => None,
        }
    }

    /// Accepts that a client is still there. What follows from its absence is decided when the
    /// server misses this message.
    pub(super) fn tool_renew(&self, by: &ParticipantId, renew: &ToolRenew) -> AnswerResult {
        if renew.tool_proposals.len() > MAX_RENEWED {
            return Err(Refusal::Malformed(format!(
                "`tool_proposals` has at most {MAX_RENEWED} ids"
            )));
        }
        for id in &renew.tool_proposals {
            let proposal = self.find_own_proposal(by, id)?;
            if proposal.is_some_and(|it| it.runs() == RunBy::Executor && !it.leased) {
                return Err(Refusal::InvalidState(format!(
                    "`{id}` has no lease; propose with `lease: true` for one"
                )));
            }
        }
        Ok(Answer::Accepted(None))
    }

    /// Lets a proposal wait for a client that goes away; with 0 seconds, the client is back.
    pub(super) fn tool_defer(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        defer: ToolDefer,
    ) -> AnswerResult {
        if defer.seconds > MAX_DEFER_SECONDS {
            return Err(Refusal::Malformed(format!(
                "`seconds` is at most {MAX_DEFER_SECONDS}, a week"
            )));
        }
        match self.find_own_proposal(by, &defer.tool_proposal)? {
            Some(proposal) if proposal.runs() == RunBy::Client => {
                Ok(self.relay(by, submitted, defer))
            }
            Some(proposal) => Err(Refusal::InvalidState(format!(
                "`{}` is run by an executor, which no client comes back for",
                proposal.id
            ))),
            None => Err(Refusal::AlreadyFinished(defer.tool_proposal)),
        }
    }

    /// An open proposal of this participant; `None` if it is over.
    fn find_own_proposal(
        &self,
        by: &ParticipantId,
        id: &MessageId,
    ) -> Result<Option<&Proposal>, Refusal> {
        let Some(proposal) = self.session.proposals.get(id) else {
            return match self.session.closed_proposals.get(id) {
                Some(_) => Ok(None),
                None => Err(Refusal::NoSuchProposal(id.clone())),
            };
        };
        if proposal.proposer != *by {
            return Err(Refusal::NotTheExecutor(proposal.proposer.clone()));
        }
        Ok(Some(proposal))
    }

    /// Ends a proposal whose client is gone: withdraws it while it waits, and closes it as unknown
    /// while it runs.
    pub(super) fn expire_lease(&mut self, id: &MessageId) -> Answer {
        let proposal = self.session.proposals.get(id);
        if let Some(proposal) = proposal.filter(|proposal| proposal.needs_lease()).cloned() {
            self.end_abandoned(&proposal);
        }
        Answer::Accepted(None)
    }

    /// Ends the proposals whose clients did not come back in time.
    pub(super) fn expire_deferred(&mut self) {
        let is_due = |proposal: &&Proposal| {
            let until = proposal.client_run.as_ref();
            let until = until.and_then(|run| run.deferred_until);
            until.is_some_and(|until| until <= self.at)
        };
        let due: Vec<_> = self.session.proposals().filter(is_due).cloned().collect();
        for proposal in due {
            self.end_abandoned(&proposal);
        }
    }

    fn end_abandoned(&mut self, proposal: &Proposal) {
        match &proposal.stage {
            ProposalStage::Gated(_) => {
                let resolve = GateResolve {
                    reason: Some("the client that asked is gone".to_owned()),
                    ..self.build_resolution(
                        &proposal.id,
                        GateOutcome::Cancelled,
                        ResolutionCause::Cancel,
                        None,
                    )
                };
                self.close_gate(resolve);
            }
            ProposalStage::Running(_) => {
                self.close_run_as_unknown(&proposal.id, "the client that ran it is gone");
            }
            ProposalStage::Assessed | ProposalStage::Cleared => {}
        }
    }
}

fn check_origin(origin: &ClientOrigin) -> Result<(), Refusal> {
    let ClientOrigin {
        client,
        version,
        session,
        call,
        subagent,
        fails_open: _,
    } = origin;
    let optional = [version, session, call, subagent].into_iter().flatten();
    let mut texts = optional.chain([client]);
    match client.is_empty() || texts.any(|text| text.len() > MAX_ORIGIN_BYTES) {
        true => Err(Refusal::Malformed(format!(
            "`origin` names a client, and each of its texts has at most {MAX_ORIGIN_BYTES} bytes"
        ))),
        false => Ok(()),
    }
}

/// Refuses what only an executor can do.
fn check_client_action(action: &Action) -> Result<(), Refusal> {
    let problem = if action.mode == RunMode::Pty {
        "a client cannot run a command in `pty` mode for others"
    } else if !action.secrets.is_empty() {
        "a client is given no secrets; leave `secrets` out"
    } else if action.timeout_seconds.is_some() {
        "nothing limits the time of what a client runs; leave `timeout` out"
    } else {
        return Ok(());
    };
    Err(Refusal::InvalidState(problem.to_owned()))
}
