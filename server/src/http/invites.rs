//! Routes for tokens: whose token this is, inviting, and revoking.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Json;
use http::StatusCode;
use pvp_protocol::api::{Invitation, InviteRequest, WhoAmI};
use pvp_protocol::{Refusal, Role};

use super::RefusalResponse;
use super::extractors::{Caller, JsonBody, NoParameters, StrictQuery};
use crate::directory::SessionDirectory;
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
    if let Some(bound) = &admin.claims.session
        && invite.session.as_ref() != Some(bound)
    {
        let problem = format!("your token is for `{bound}`, so you may invite to it alone");
        return Err(Refusal::Unauthorized(problem).into());
    }
    if let Some(participant) = &invite.participant
        && *participant != admin.claims.participant
        && directory.is_known_participant(participant).await?
    {
        return Err(Refusal::Unauthorized(format!(
            "`{participant}` is somebody already; only they, or the server's operator with `pvp invite --data`, may make a token for them"
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

pub(super) async fn revoke_token(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    token: Result<Path<String>, PathRejection>,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<StatusCode, RefusalResponse> {
    let admin = require_admin(caller, "revoking a token")?;
    let Path(token) = token.map_err(|error| Refusal::Malformed(error.body_text()))?;
    if admin.claims.session.is_some() {
        let problem = "revoking takes an admin token that is not bound to a session";
        return Err(Refusal::Unauthorized(problem.to_owned()).into());
    }
    match directory.revoke_token(&token).await {
        Ok(true) => Ok(StatusCode::NO_CONTENT),
        Ok(false) => Err(RefusalResponse {
            status: StatusCode::NOT_FOUND,
            ..RefusalResponse::from(Refusal::Malformed("there is no such token".to_owned()))
        }),
        Err(error) => Err(Refusal::WriteFailed(error.to_string()).into()),
    }
}

/// Requires a token with the admin role, even on a server without login.
pub(super) fn require_admin(caller: Caller, what: &str) -> Result<Login, RefusalResponse> {
    let login = caller.require_login()?;
    if login.claims.roles.contains(&Role::Admin) {
        return Ok(login);
    }
    let problem = format!("{what} takes an admin's token");
    Err(Refusal::Unauthorized(problem).into())
}
