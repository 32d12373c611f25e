//! Decides who is let in: who a caller is, what they may do now, and what it costs them.
//!
//! Sockets and HTTP requests ask the same questions here, so that they get the same answers.

mod message;
mod principal;
mod voter;

use std::sync::Arc;

use pvp_protocol::{Refusal, SessionId};

pub(crate) use message::{
    AdmittedMessage, Allowance, Charge, MessageRefusal, ParsedMessage, VIA, admit_message,
    check_size, decides_something, extra_of_vote, large_message_permit, max_message_bytes, too_big,
};
pub(crate) use principal::{Principal, Speaker};
pub(crate) use voter::{is_told, may_vote};

use crate::directory::{ConnectionSlot, RequestSlot, SessionDirectory};
use crate::live_tokens::LiveToken;
use crate::store::TokenEnd;
use crate::token::{self, Login, TokenError};

/// The login of a token's holder.
pub(crate) async fn authenticate(
    directory: &Arc<SessionDirectory>,
    token: String,
) -> Result<Login, Refusal> {
    let (store, live_tokens) = (directory.store.as_ref(), &directory.live_tokens);
    let now = pvp_clock::now();
    let verified = token::verify(store, live_tokens, &token, now).await;
    let login = verified.map_err(token_refusal)?;
    directory.token_uses.record(&login.token_id, now);
    Ok(login)
}

/// Checks that a token that was accepted is still valid. A failure of the store must not disconnect
/// anybody, so it counts as valid.
async fn recheck(directory: &Arc<SessionDirectory>, login: &Login) -> Result<(), Refusal> {
    check_live(login)?;
    let (store, now) = (directory.store.as_ref(), pvp_clock::now());
    match token::recheck(store, &login.token_id, now).await {
        Ok(()) | Err(TokenError::Store(_)) => {
            directory.token_uses.record(&login.token_id, now);
            Ok(())
        }
        Err(error @ (TokenError::Unknown | TokenError::Expired | TokenError::Revoked)) => {
            Err(token_refusal(error))
        }
    }
}

/// Refuses a token that has ended since the login.
pub(crate) fn check_live(login: &Login) -> Result<(), Refusal> {
    login
        .live
        .ended()
        .map_or(Ok(()), |end| Err(token_ended(end)))
}

/// The refusal of a token that was valid when its holder logged in.
pub(crate) fn token_ended(end: TokenEnd) -> Refusal {
    token_refusal(match end {
        TokenEnd::Revoked => TokenError::Revoked,
        TokenEnd::Expired => TokenError::Expired,
    })
}

/// Waits until a token ends, and returns the refusal; waits for ever without one.
pub(crate) async fn wait_token_ended(live: Option<&LiveToken>) -> Refusal {
    match live {
        Some(live) => token_ended(live.wait_ended().await),
        None => std::future::pending().await,
    }
}

fn token_refusal(error: TokenError) -> Refusal {
    match error {
        TokenError::Unknown | TokenError::Expired | TokenError::Revoked => {
            Refusal::Unauthorized(error.to_string())
        }
        TokenError::Store(error) => Refusal::ReadFailed(error.to_string()),
    }
}

/// The refusal of a caller without a token, on a server with login.
pub(crate) fn login_required() -> Refusal {
    let problem = "there is no token; send one as `Authorization: Bearer` or `?token=`";
    Refusal::Unauthorized(problem.to_owned())
}

/// The refusal of a caller without a token where even a server without login needs one.
pub(crate) fn token_required() -> Refusal {
    Refusal::Unauthorized("this requires a token; ask for an invitation".to_owned())
}

/// Checks that the caller's token is valid for this session.
pub(crate) fn check_session(login: Option<&Login>, session: &SessionId) -> Result<(), Refusal> {
    if login.is_none_or(|login| login.claims.allows_session(session)) {
        return Ok(());
    }
    let problem = "this token is for another session".to_owned();
    Err(Refusal::Unauthorized(problem))
}

/// Checks that the holder of a token may create sessions.
pub(crate) fn check_may_create(login: &Login) -> Result<(), Refusal> {
    if login.claims.may_create_sessions() {
        return Ok(());
    }
    let problem = "creating a session requires a token with the role driver or admin that is not bound to a session";
    Err(Refusal::Unauthorized(problem.to_owned()))
}

/// Counts a connection that joins towards the token of its caller.
pub(crate) fn count_connection(
    slot: &ConnectionSlot,
    principal: &Principal,
) -> Result<(), Refusal> {
    let login = principal.login();
    slot.attach(login.map(|login| login.token_id.as_str()))
}

/// Counts a request that may wait towards the token of its caller.
pub(crate) fn count_request(
    directory: &Arc<SessionDirectory>,
    login: Option<&Login>,
) -> Result<Option<RequestSlot>, Refusal> {
    let slot = login.map(|login| directory.acquire_request_slot(&login.token_id));
    slot.transpose()
}
