//! Routes for tokens: whose token this is, inviting, listing, revoking, and joining with a code.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::response::Json;
use http::StatusCode;
use pvp_protocol::api::{
    CreatedJoinCode, Invitation, InviteRequest, JoinCodeRequest, RedeemCodeRequest, TokenList,
    WhoAmI,
};
use pvp_protocol::{Refusal, Role, SessionId};

use super::RefusalResponse;
use super::extractors::{Caller, JsonBody, NoParameters, StrictQuery};
use crate::directory::{ConnectionSlot, SessionDirectory};
use crate::invite::Inviter;
use crate::token::Login;

pub(super) async fn whoami(
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<Json<WhoAmI>, RefusalResponse> {
    let login = caller.require_login()?;
    Ok(Json(WhoAmI {
        participant: login.claims.participant,
        name: login.claims.name,
        kind: login.claims.kind,
        roles: login.claims.roles,
        session: login.claims.session,
        expires: login.expires_at,
    }))
}

pub(super) async fn create_invite(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(invite): JsonBody<InviteRequest>,
) -> Result<(StatusCode, Json<Invitation>), RefusalResponse> {
    let admin = require_admin(caller, "inviting people")?;
    check_invites_to(&admin, invite.session.as_ref())?;
    if let Some(participant) = &invite.participant
        && *participant != admin.claims.participant
        && directory.is_known_participant(participant).await?
    {
        return Err(Refusal::Unauthorized(format!(
            "`{participant}` exists already; only they, or the server's operator with `pvp invite --data`, may make a token for them"
        ))
        .into());
    }
    directory
        .check_invitations_by(&admin.claims.participant)
        .await?;
    let invitation = directory
        .invite(invite, &Inviter::Participant(&admin))
        .await?;
    Ok((StatusCode::CREATED, Json(invitation)))
}

pub(super) async fn create_join_code(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(request): JsonBody<JoinCodeRequest>,
) -> Result<(StatusCode, Json<CreatedJoinCode>), RefusalResponse> {
    let admin = require_admin(caller, "inviting people")?;
    check_invites_to(&admin, request.session.as_ref())?;
    directory
        .check_invitations_by(&admin.claims.participant)
        .await?;
    let created = directory
        .create_join_code(request, &Inviter::Participant(&admin))
        .await?;
    Ok((StatusCode::CREATED, Json(created)))
}

/// Anyone may ask; the code is what counts.
pub(super) async fn redeem_join_code(
    State(directory): State<Arc<SessionDirectory>>,
    slot: Option<Extension<Arc<ConnectionSlot>>>,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(request): JsonBody<RedeemCodeRequest>,
) -> Result<(StatusCode, Json<Invitation>), RefusalResponse> {
    let invitation = directory
        .redeem_join_code(request, address_of(slot))
        .await?;
    Ok((StatusCode::CREATED, Json(invitation)))
}

/// What the connections of tests are counted as, which have no place in the table.
const UNKNOWN_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Where a connection comes from.
pub(super) fn address_of(slot: Option<Extension<Arc<ConnectionSlot>>>) -> IpAddr {
    slot.map_or(UNKNOWN_ADDRESS, |Extension(slot)| slot.address())
}

pub(super) async fn list_tokens(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<Json<TokenList>, RefusalResponse> {
    let admin = require_admin(caller, "listing tokens")?;
    let listed = directory.list_tokens(admin.claims.session.as_ref()).await;
    Ok(Json(listed.map_err(Refusal::from)?))
}

/// Refuses an admin of one session who invites to another.
fn check_invites_to(admin: &Login, session: Option<&SessionId>) -> Result<(), Refusal> {
    match &admin.claims.session {
        Some(bound) if session != Some(bound) => Err(Refusal::Unauthorized(format!(
            "your token is for session `{bound}`, so you may invite only to it"
        ))),
        Some(_) | None => Ok(()),
    }
}

pub(super) async fn revoke_token(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    token: Result<Path<String>, PathRejection>,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<StatusCode, RefusalResponse> {
    let admin = require_admin(caller, "revoking a token")?;
    let Path(token) = token.map_err(|error| Refusal::Malformed(error.body_text()))?;
    if admin.claims.session.is_some() {
        let problem = "revoking requires an admin's token that is not bound to a session";
        return Err(Refusal::Unauthorized(problem.to_owned()).into());
    }
    match directory.revoke_token(&token).await {
        Ok(true) => Ok(StatusCode::NO_CONTENT),
        Ok(false) => Err(RefusalResponse::not_found("there is no such token")),
        Err(error) => Err(Refusal::WriteFailed(error.to_string()).into()),
    }
}

/// Requires a token with the admin role, even on a server without login.
pub(super) fn require_admin(caller: Caller, what: &str) -> Result<Login, RefusalResponse> {
    let login = caller.require_login()?;
    if login.claims.roles.contains(&Role::Admin) {
        return Ok(login);
    }
    let problem = format!("{what} requires an admin's token");
    Err(Refusal::Unauthorized(problem).into())
}
