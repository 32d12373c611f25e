//! Creates invitations: a token and the link that carries it.

use pvp_protocol::api::{Invitation, InviteRequest};
use pvp_protocol::{Refusal, Timestamp};

use crate::store::TokenTable;
use crate::token::{self, TokenClaims};

/// The longest lifetime of a token that expires, in seconds: ten years.
const MAX_TOKEN_SECONDS: u64 = 315_360_000;

/// Creates a token and its link.
pub fn create_invitation(
    table: &TokenTable,
    invite: InviteRequest,
    base_url: &str,
    now: Timestamp,
) -> Result<Invitation, Refusal> {
    let malformed = |problem: &str| Err(Refusal::Malformed(problem.to_owned()));
    if invite.name.trim().is_empty()
        || invite.name.chars().count() > 128
        || invite.name.chars().any(char::is_control)
    {
        return malformed("`name` has 1 to 128 characters and no control characters");
    }
    if invite.roles.is_empty() {
        return malformed("an invitation needs at least one role");
    }
    if invite
        .expires_seconds
        .is_some_and(|seconds| seconds == 0 || seconds > MAX_TOKEN_SECONDS)
    {
        return malformed("a token lives 1 second to 10 years");
    }
    if invite
        .participant
        .as_ref()
        .is_some_and(|id| id.as_str() == "system")
    {
        return malformed("nobody but the server is `system`");
    }
    let expires = invite
        .expires_seconds
        .map(|seconds| now.plus_seconds(seconds));
    let claims = TokenClaims {
        participant: invite
            .participant
            .unwrap_or_else(|| token::new_participant_id(&invite.name)),
        name: invite.name,
        kind: invite.kind,
        roles: invite.roles,
        capabilities: invite.capabilities,
        session: invite.session,
    };
    let token = token::issue(table, &claims, expires)
        .map_err(|error| Refusal::WriteFailed(error.to_string()))?;
    let link = match &claims.session {
        Some(session) => format!("{base_url}/?token={token}&session={session}"),
        None => format!("{base_url}/?token={token}"),
    };
    Ok(Invitation {
        token,
        link,
        participant: claims.participant,
        roles: claims.roles,
        expires,
    })
}
