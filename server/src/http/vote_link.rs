//! Routes of vote links: they show one card, and vote on it when they are told to.
//!
//! The secret is taken from the `Authorization` header only, never from an address, which ends up in
//! histories and logs. It opens nothing but these two routes.

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::response::Json;
use http::header::AUTHORIZATION;
use http::request::Parts;
use pvp_protocol::api::{GateUpdateResponse, VoteLinkCard, VoteRequest};
use pvp_protocol::{ClientMessage, Refusal};
use serde_json::json;

use super::extractors::{JsonBody, NoParameters, StrictQuery};
use super::{RefusalResponse, gates};
use crate::admission;
use crate::directory::{ConnectionSlot, SessionDirectory};
use crate::notifier::{self, VoteLink};
use crate::token;

/// The link whose secret a request has.
pub(super) struct PresentedLink(VoteLink);

impl FromRequestParts<Arc<SessionDirectory>> for PresentedLink {
    type Rejection = RefusalResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        directory: &Arc<SessionDirectory>,
    ) -> Result<Self, RefusalResponse> {
        let header = parts.headers.get(AUTHORIZATION);
        let header = header.and_then(|value| value.to_str().ok());
        let secret = header.and_then(|value| value.strip_prefix("Bearer "));
        let missing = || {
            let problem = "send the secret of the vote link as `Authorization: Bearer`";
            RefusalResponse::unauthenticated(Refusal::Unauthorized(problem.to_owned()))
        };
        let secret = secret.ok_or_else(missing)?.trim();
        let link = notifier::find_vote_link(directory, secret).await;
        let link = link.map_err(RefusalResponse::unauthenticated)?;
        if let Some(slot) = parts.extensions.get::<Arc<ConnectionSlot>>() {
            let (id, _) = token::parse_secret(secret).ok_or_else(missing)?;
            slot.begin_vote_link_request(id)?;
        }
        Ok(Self(link))
    }
}

/// Shows the card. However often it is asked for, nothing is voted.
pub(super) async fn show(
    State(directory): State<Arc<SessionDirectory>>,
    PresentedLink(link): PresentedLink,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<Json<VoteLinkCard>, RefusalResponse> {
    let claims = link.login.claims.clone();
    let gate = gates::gate_state(&directory, &link.session, link.gate, Some(claims.clone()));
    Ok(Json(VoteLinkCard {
        gate: gate.await?,
        participant: claims.participant,
        name: claims.name,
        session_name: link.session_name,
    }))
}

/// Votes as the person whom the link was sent to, on the command that it is bound to.
pub(super) async fn vote(
    State(directory): State<Arc<SessionDirectory>>,
    PresentedLink(link): PresentedLink,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(vote): JsonBody<VoteRequest>,
) -> Result<Json<GateUpdateResponse>, RefusalResponse> {
    match vote.digest {
        Some(digest) if digest == link.digest => {}
        Some(_) => return Err(Refusal::CommandChanged.into()),
        None => {
            let problem = "a vote by a link needs the `digest` of the command that was shown";
            return Err(Refusal::Malformed(problem.to_owned()).into());
        }
    }
    let by = link.login.claims.participant.clone();
    let message = gates::vote_message(link.gate.clone(), by, &vote)?;
    let (session, gate) = (&link.session, link.gate);
    gates::submit_and_read_gate(
        &directory,
        session,
        link.login,
        gate,
        vote.id,
        by_link(message),
    )
    .await
}

/// The record says how the vote was given.
fn by_link(mut message: ClientMessage) -> ClientMessage {
    if let Some(extra) = admission::extra_of_vote(&mut message) {
        extra.insert(admission::VIA.to_owned(), json!("vote_link"));
    }
    message
}
