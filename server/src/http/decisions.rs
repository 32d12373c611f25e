//! The call made for hooks: propose, wait, hear the decision.
//!
//! The answer begins at once and consists of spaces while nothing is decided, so that both ends know
//! that the other is there, and of one JSON object in the end. While a proposer waits, the lease of
//! its proposal is renewed.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::header::CONTENT_TYPE;
use pvp_protocol::api::{
    AwaitedVotes, CommandStatus, DecisionState, ProposalDecision, ProposalRequest,
};
use pvp_protocol::payload::{GateResolve, ToolPropose};
use pvp_protocol::{
    Envelope, ExtraFields, JsonObject, MessageId, ParticipantId, Refusal, Risk, ServerMessage,
    SessionId,
};
use pvp_session::{ProposalRecord, ProposalStage, SubmittedMessage};
use tokio::time::Instant;

use super::extractors::{
    AuthorizedSession, Caller, JsonBody, PathMessageId, StrictQuery, parameters,
};
use super::messages::read_entries;
use super::send::HttpParticipant;
use super::{RefusalResponse, clamp_wait, commands, gates};
use crate::admission::{self, Principal};
use crate::directory::{SessionDirectory, log_unreadable};
use crate::token::Login;

/// How often a space is sent while nothing is decided.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

parameters! {
    DecisionParameters {
        /// Seconds to wait for a decision, at most 60; then the answer is `waiting`, and the same request goes on.
        wait: u64 = "integer",
    }
}

/// Proposes a call, or finds the one that was proposed under this id, and waits for its decision.
pub(super) async fn propose(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(query): StrictQuery<DecisionParameters>,
    JsonBody(request): JsonBody<ProposalRequest>,
) -> Result<Response, RefusalResponse> {
    let me = Caller(login).require_login()?;
    let id = request.id.clone();
    let principal = Principal::new(Some(me.clone()));
    let participant = HttpParticipant::find(&directory, &session, principal, None).await?;
    let propose = tool_propose(request, me.claims.participant.clone());
    let submitted = SubmittedMessage::new(id.clone(), propose);
    let repeated = match participant.charge_and_submit(submitted).await {
        Ok(ack) => ack.duplicate,
        // It is in the log, and the decision says so.
        Err(refused) if matches!(refused.refusal, Refusal::Blocked { .. }) => false,
        Err(refused) if matches!(refused.refusal, Refusal::AlreadyProposed(..)) => true,
        Err(refused) => return Err(refused),
    };
    respond(directory, session, me, id, repeated, query.wait).await
}

/// Waits for the decision on an earlier proposal of the caller.
pub(super) async fn decision(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    PathMessageId(proposal): PathMessageId,
    StrictQuery(query): StrictQuery<DecisionParameters>,
) -> Result<Response, RefusalResponse> {
    let me = Caller(login).require_login()?;
    respond(directory, session, me, proposal, true, query.wait).await
}

fn tool_propose(request: ProposalRequest, agent: ParticipantId) -> ToolPropose {
    ToolPropose {
        tool_name: request.tool_name,
        arguments: request.arguments,
        agent,
        risk_level: request.risk_level.unwrap_or(Risk::Safe),
        description: request.description,
        requires_approval: request.requires_approval,
        suggested_approvers: None,
        category: request.category,
        file_contents: request.file_contents,
        streaming: false,
        deleted_files: Vec::new(),
        runs: request.runs,
        degree: request.degree,
        origin: request.origin,
        lease: false,
        assessment: None,
        extra: ExtraFields::new(),
    }
}

/// One request that waits for a decision.
struct Waiter {
    /// Where the session is found.
    directory: Arc<SessionDirectory>,
    /// The session of the proposal.
    session: SessionId,
    /// Who waits.
    me: Login,
    /// What is waited for.
    proposal: MessageId,
    /// Whether the proposal was there before this request.
    repeated: bool,
    /// When to answer that nothing is decided yet.
    until: Instant,
}

/// Answers once it is decided; a refusal that is certain before has its own status.
async fn respond(
    directory: Arc<SessionDirectory>,
    session: SessionId,
    me: Login,
    proposal: MessageId,
    repeated: bool,
    wait: Option<u64>,
) -> Result<Response, RefusalResponse> {
    let slot = admission::count_request(&directory, Some(&me))?;
    let participant = me.claims.participant.clone();
    directory.http_access(&session, Some(participant)).await?;
    let waiter = Waiter {
        until: Instant::now() + clamp_wait(wait.unwrap_or(0)),
        directory,
        session,
        me,
        proposal,
        repeated,
    };
    // Reading it once finds out whether there is such a proposal, and whose it is.
    waiter.read_decision().await?;
    let body = stream::unfold(Some((waiter, slot)), async |state| {
        let (waiter, slot) = state?;
        let (bytes, state) = match waiter.next_step().await {
            Step::KeepAlive => (Bytes::from_static(b" "), Some((waiter, slot))),
            Step::Answer(bytes) => (bytes, None),
        };
        Some((Ok::<_, Infallible>(bytes), state))
    });
    let headers = [(CONTENT_TYPE, "application/json")];
    Ok((headers, Body::from_stream(body)).into_response())
}

/// What is sent next.
enum Step {
    KeepAlive,
    Answer(Bytes),
}

impl Waiter {
    async fn next_step(&self) -> Step {
        match self.wait().await {
            Ok(true) => Step::KeepAlive,
            Ok(false) => match self.read_decision().await {
                Ok(decision) => Step::Answer(json_bytes(&decision)),
                Err(refusal) => Step::Answer(refusal_bytes(refusal)),
            },
            Err(refusal) => Step::Answer(refusal_bytes(refusal)),
        }
    }

    /// Waits until it is decided, the time is up, or a sign of life is due; true for the last.
    async fn wait(&self) -> Result<bool, Refusal> {
        let me = Some(self.me.claims.participant.clone());
        let access = self.directory.http_access(&self.session, me).await?;
        let mut shutdown = self.directory.shutdown_signal();
        let keep_alive = Instant::now() + KEEP_ALIVE;
        self.renew_lease().await;
        loop {
            let mut notified = pin!(access.feed.notifier().notified());
            notified.as_mut().enable();
            if self.is_decided().await? || Instant::now() >= self.until {
                return Ok(false);
            }
            tokio::select! {
                () = notified => {}
                () = tokio::time::sleep_until(self.until) => {}
                () = tokio::time::sleep_until(keep_alive) => return Ok(true),
                _ = shutdown.wait_for(|stopping| *stopping) => {
                    return Err(Refusal::ReadFailed("the server is shutting down".to_owned()));
                }
                refusal = admission::wait_token_ended(Some(self.me.live.as_ref())) => {
                    return Err(refusal);
                }
            }
        }
    }

    async fn renew_lease(&self) {
        self.directory
            .renew_lease(&self.session, self.proposal.clone())
            .await;
    }

    async fn is_decided(&self) -> Result<bool, Refusal> {
        let id = self.proposal.clone();
        let waits = self.directory.query(&self.session, move |session| {
            let proposal = session.proposal(&id);
            proposal.is_some_and(|it| !matches!(it.stage, ProposalStage::Running(_)))
        });
        let waits = waits.await.ok_or_else(log_unreadable)?;
        Ok(!waits)
    }

    async fn read_decision(&self) -> Result<ProposalDecision, Refusal> {
        let (directory, session) = (&self.directory, &self.session);
        let unknown = || Refusal::NoSuchProposal(self.proposal.clone());
        let record = directory.find_proposal(session, &self.proposal).await?;
        let record = record.ok_or_else(unknown)?;
        let command = commands::read_record(directory, session, &record).await?;
        if command.proposer != self.me.claims.participant {
            let problem = "only who proposed it waits for the decision like this; read the gate";
            return Err(Refusal::Unauthorized(problem.to_owned()));
        }
        let said = ProposalEntries::read(directory, session, &record).await?;
        let (decision, reason) = match command.status {
            CommandStatus::Waiting => (DecisionState::Waiting, None),
            CommandStatus::Running => (DecisionState::Allowed, None),
            CommandStatus::Finished => {
                let why = "Not allowed: this call has run already; each call runs once.";
                (DecisionState::Denied, Some(why.to_owned()))
            }
            CommandStatus::Blocked => (DecisionState::Denied, Some(said.blocked_text())),
            CommandStatus::Rejected | CommandStatus::TimedOut | CommandStatus::Cancelled => {
                let reason = command.resolution.as_ref().map(GateResolve::denial_text);
                (DecisionState::Denied, reason)
            }
        };
        Ok(ProposalDecision {
            tool_proposal: record.id.clone(),
            decision,
            repeated: self.repeated,
            reason,
            category: command.category,
            arguments: said.arguments,
            awaits: self.awaited_votes(&record.id).await?,
            command,
        })
    }

    /// What the proposal waits for, if it waits.
    async fn awaited_votes(&self, id: &MessageId) -> Result<Option<AwaitedVotes>, Refusal> {
        let (me, id) = (self.me.claims.clone(), id.clone());
        let gate = self.directory.query(&self.session, move |session| {
            gates::find_open_gate(session, &id, Some(&me))
        });
        let gate = gate.await.ok_or_else(log_unreadable)?;
        Ok(gate.map(|gate| {
            let voted = |id: &ParticipantId| {
                let mut approvals = gate.open.approvals.iter();
                approvals.any(|approval| approval.participant == *id)
            };
            let voters = gate.open.request.voters.iter();
            AwaitedVotes {
                quorum: gate.open.request.quorum.to_string(),
                received: gate.received,
                required: gate.required,
                awaited: voters.filter(|id| !voted(id)).cloned().collect(),
                deadline: gate.open.request.deadline,
                handle: gate.handle.clone(),
            }
        }))
    }
}

/// What the log has of a proposal besides its record.
struct ProposalEntries {
    /// The arguments, as somebody edited them last.
    arguments: JsonObject,
    rule: String,
    reason: String,
}

impl ProposalEntries {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the index names only these two entries"
    )]
    async fn read(
        directory: &Arc<SessionDirectory>,
        session: &SessionId,
        record: &ProposalRecord,
    ) -> Result<Self, Refusal> {
        let seqs = record.seqs;
        let wanted = [Some(seqs.proposed), seqs.amended];
        let wanted: Vec<_> = wanted.into_iter().flatten().collect();
        let mut entries = read_entries(directory, session, wanted).await?;
        let mut take = |seq: Option<u64>| -> Option<Envelope> { entries.remove(&seq?) };
        let proposed = take(Some(seqs.proposed)).ok_or_else(log_unreadable)?;
        let (arguments, assessment) = match proposed.message {
            ServerMessage::ToolPropose(propose) => (propose.arguments, propose.assessment),
            _ => return Err(log_unreadable()),
        };
        let assessment = assessment.ok_or_else(log_unreadable)?;
        let arguments = match take(seqs.amended).map(|envelope| envelope.message) {
            Some(ServerMessage::GateAmend(amend)) => amend.arguments,
            Some(_) | None => arguments,
        };
        Ok(Self {
            arguments,
            rule: assessment.rule,
            reason: assessment.reason,
        })
    }

    fn blocked_text(&self) -> String {
        let Self { rule, reason, .. } = self;
        format!("Blocked by rule `{rule}`: {reason}. It never runs; do something else.")
    }
}

fn json_bytes(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// The status was sent before, so only the body says that it failed.
fn refusal_bytes(refusal: Refusal) -> Bytes {
    json_bytes(&RefusalResponse::from(refusal).report())
}
