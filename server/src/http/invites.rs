//! Invitations over HTTP, for admins.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::response::Json;
use http::{HeaderMap, StatusCode, Uri};
use pvp_protocol::{Refusal, Role};

use super::{Refused, caller};
use crate::clock;
use crate::house::House;
use crate::invite::{self, Invitation, Invite};
use crate::token::Login;

pub(super) async fn invite(
    State(house): State<Arc<House>>,
    headers: HeaderMap,
    uri: Uri,
    body: Result<Json<Invite>, JsonRejection>,
) -> Result<(StatusCode, Json<Invitation>), Refused> {
    let admin = admin(&house, &headers, &uri).await?;
    let Json(invite) = body.map_err(|error| Refusal::Malformed(error.body_text()))?;
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
        .map_err(|panic| Refusal::Unwritable(panic.to_string()))?;
    Ok((StatusCode::CREATED, Json(invitation?)))
}

pub(super) async fn revoke(
    State(house): State<Arc<House>>,
    Path(token): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<StatusCode, Refused> {
    let admin = admin(&house, &headers, &uri).await?;
    if admin.bearer.session.is_some() {
        let problem = "revoking takes an admin token that is not bound to a session";
        return Err(Refusal::Unauthorized(problem.to_owned()).into());
    }
    let store = house.store.clone();
    let revoked =
        tokio::task::spawn_blocking(move || store.tokens().revoke(&token, clock::now())).await;
    match revoked {
        Ok(Ok(true)) => Ok(StatusCode::NO_CONTENT),
        Ok(Ok(false)) => Ok(StatusCode::NOT_FOUND),
        Ok(Err(error)) => Err(Refusal::Unwritable(error.to_string()).into()),
        Err(panic) => Err(Refusal::Unwritable(panic.to_string()).into()),
    }
}

/// Inviting takes a token with the admin role, even where nobody needs to log in.
async fn admin(house: &Arc<House>, headers: &HeaderMap, uri: &Uri) -> Result<Login, Refused> {
    let login = caller(house, headers, uri).await?;
    login
        .filter(|login| login.bearer.roles.contains(&Role::Admin))
        .ok_or_else(|| {
            Refused(Refusal::Unauthorized(
                "inviting people takes an admin's token".to_owned(),
            ))
        })
}
