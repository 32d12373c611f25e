//! Tokens over HTTP: whose one is, and invitations for admins to give.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Json;
use http::StatusCode;
use pvp_protocol::api::{Invitation, InviteRequest, WhoAmI};
use pvp_protocol::{Refusal, Role};

use super::Refused;
use super::asking::{Asked, Body, Caller, NoParameters};
use crate::clock;
use crate::house::House;
use crate::invite;
use crate::token::Login;

pub(super) async fn me(
    caller: Caller,
    Asked(NoParameters {}): Asked<NoParameters>,
) -> Result<Json<WhoAmI>, Refused> {
    let login = caller.login()?;
    Ok(Json(WhoAmI {
        participant: login.bearer.participant,
        name: login.bearer.name,
        kind: login.bearer.kind,
        roles: login.bearer.roles,
        session: login.bearer.session,
        expires: login.expires_at,
    }))
}

pub(super) async fn invite(
    State(house): State<Arc<House>>,
    caller: Caller,
    Asked(NoParameters {}): Asked<NoParameters>,
    Body(invite): Body<InviteRequest>,
) -> Result<(StatusCode, Json<Invitation>), Refused> {
    let admin = admin(caller)?;
    if let Some(bound) = &admin.bearer.session
        && invite.session.as_ref() != Some(bound)
    {
        let problem = format!("your token is for `{bound}`, so you may invite to it alone");
        return Err(Refusal::Unauthorized(problem).into());
    }
    let base = house.base_url();
    let store = house.store.clone();
    let made = tokio::task::spawn_blocking(move || {
        invite::make(store.tokens(), invite, &base, clock::now())
    });
    let invitation = made
        .await
        .map_err(|panic| Refusal::WriteFailed(panic.to_string()))?;
    Ok((StatusCode::CREATED, Json(invitation?)))
}

pub(super) async fn revoke(
    State(house): State<Arc<House>>,
    caller: Caller,
    token: Result<Path<String>, PathRejection>,
    Asked(NoParameters {}): Asked<NoParameters>,
) -> Result<StatusCode, Refused> {
    let admin = admin(caller)?;
    let Path(token) = token.map_err(|error| Refusal::Malformed(error.body_text()))?;
    if admin.bearer.session.is_some() {
        let problem = "revoking takes an admin token that is not bound to a session";
        return Err(Refusal::Unauthorized(problem.to_owned()).into());
    }
    let store = house.store.clone();
    let revoked =
        tokio::task::spawn_blocking(move || store.tokens().revoke(&token, clock::now())).await;
    match revoked {
        Ok(Ok(true)) => Ok(StatusCode::NO_CONTENT),
        Ok(Ok(false)) => Err(Refused {
            status: StatusCode::NOT_FOUND,
            ..Refused::from(Refusal::Malformed("there is no such token".to_owned()))
        }),
        Ok(Err(error)) => Err(Refusal::WriteFailed(error.to_string()).into()),
        Err(panic) => Err(Refusal::WriteFailed(panic.to_string()).into()),
    }
}

/// Inviting takes a token with the admin role, even where nobody needs to log in.
fn admin(caller: Caller) -> Result<Login, Refused> {
    let login = caller.login()?;
    if login.bearer.roles.contains(&Role::Admin) {
        return Ok(login);
    }
    let problem = "inviting people takes an admin's token".to_owned();
    Err(Refusal::Unauthorized(problem).into())
}
