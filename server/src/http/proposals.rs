//! Finds proposals by their id, or by the end of it that people read and type.
//!
//! Agents choose the ids of their proposals, so an agent can make one whose short id is that of
//! another that a person has read. A short id is therefore compared with all proposals, also with
//! closed ones, and refused if it could mean more than one.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use pvp_protocol::api::{NamedProposal, NamedProposals};
use pvp_protocol::{MessageId, Refusal, SHORT_ID_LENGTH, SessionId};
use pvp_session::ProposalRecord;

use super::RefusalResponse;
use super::commands::command_status;
use super::extractors::{Caller, StrictQuery, parameters};
use crate::admission;
use crate::directory::SessionDirectory;

/// The most proposals that one answer lists.
const MAX_NAMED: usize = 20;

parameters! {
    FindParameters {
        /// The id of a proposal or its gate, or the end of it: at least the last 6 characters.
        id: String = "string",
        /// Only proposals of this session.
        session: SessionId = "string",
    }
}

pub(super) async fn find(
    State(directory): State<Arc<SessionDirectory>>,
    Caller(login): Caller,
    StrictQuery(query): StrictQuery<FindParameters>,
) -> Result<Json<NamedProposals>, RefusalResponse> {
    let _slot = admission::count_request(&directory, login.as_ref())?;
    let Some(text) = query.id.filter(|text| !text.is_empty()) else {
        let problem = "`id` is missing; give the id of a proposal, or the end of it";
        return Err(Refusal::Malformed(problem.to_owned()).into());
    };
    // The store searches no session that the token does not open, so that none of them can crowd
    // out those that it does.
    let bound = login
        .as_ref()
        .and_then(|login| login.claims.session.clone());
    if let Some(session) = &query.session {
        admission::check_session(login.as_ref(), session)?;
        // A session that does not exist must be an error, not an empty list.
        let me = login.as_ref().map(|login| login.claims.participant.clone());
        directory.http_access(session, me).await?;
    }
    let session = query.session.or(bound);
    let found = directory.proposals_named(session.as_ref(), &text, MAX_NAMED + 1);
    let mut found = found.await?;
    let more = found.len() > MAX_NAMED;
    found.truncate(MAX_NAMED);
    let proposals = found.into_iter().map(describe).collect();
    Ok(Json(NamedProposals { proposals, more }))
}

fn describe((session, proposal): (SessionId, ProposalRecord)) -> NamedProposal {
    NamedProposal {
        session,
        status: command_status(&proposal),
        seq: proposal.seqs.proposed,
        tool_proposal: proposal.id,
        gate: proposal.gate,
    }
}

/// The whole id that a path means: it may have a short id in its place.
pub(super) async fn whole_id(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    id: MessageId,
) -> Result<MessageId, Refusal> {
    if id.as_str().len() != SHORT_ID_LENGTH {
        return Ok(id);
    }
    let found = directory.proposals_named(Some(session), id.as_str(), 2);
    let found = found.await?;
    match found.as_slice() {
        [] => Ok(id),
        [(_, only)] => Ok(only.id.clone()),
        [(_, one), (_, other), ..] => Err(Refusal::Malformed(format!(
            "`{id}` could be {} or {}; use the whole id, or that of the gate",
            one.id, other.id
        ))),
    }
}
