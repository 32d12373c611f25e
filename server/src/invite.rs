//! Creates invitations: a token and the link that carries it.

use pvp_protocol::api::{Invitation, InviteRequest};
use pvp_protocol::{KeyFingerprint, Refusal, Timestamp};

use crate::join::JoinCodeTerms;
use crate::store::TokenRow;
use crate::token::{self, Login, TokenClaims};

/// The longest lifetime of a token that expires, in seconds: ten years.
const MAX_TOKEN_SECONDS: u64 = 315_360_000;

/// What links to a server begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// `http://` or `https://` and the host, without a slash at the end.
    pub url: String,
    /// The only key that the server may have, for whoever opens a link; `None` trusts whom their
    /// machine trusts.
    pub fingerprint: Option<KeyFingerprint>,
}

impl ServerAddress {
    /// A link with these parameters. They follow `#`, so that a browser does not send them and no
    /// proxy logs them.
    pub fn link(&self, parameters: &str) -> String {
        let url = &self.url;
        match (self.fingerprint, parameters) {
            (None, "") => format!("{url}/"),
            (None, parameters) => format!("{url}/#{parameters}"),
            (Some(key), "") => format!("{url}/#fp={key}"),
            (Some(key), parameters) => format!("{url}/#{parameters}&fp={key}"),
        }
    }
}

/// Who makes a token.
pub enum Inviter<'a> {
    /// Whoever holds the data directory.
    Operator,
    /// The holder of a token.
    Participant(&'a Login),
    /// Whoever made a join code, which was made at this time.
    JoinCode(&'a JoinCodeTerms, Timestamp),
}

/// Creates a token and its link. The link works once the row is stored.
///
/// Whoever makes a token for themselves stays invited by whom they were, and gets no more time.
pub fn create_invitation(
    invite: InviteRequest,
    inviter: &Inviter<'_>,
    address: &ServerAddress,
    now: Timestamp,
) -> Result<(TokenRow, Invitation), Refusal> {
    let malformed = |problem: &str| Err(Refusal::Malformed(problem.to_owned()));
    check_name(&invite.name)?;
    if invite.roles.is_empty() {
        return malformed("an invitation needs at least one role");
    }
    check_lifetime(invite.expires_seconds)?;
    if invite
        .participant
        .as_ref()
        .is_some_and(|id| id.as_str() == "system")
    {
        return malformed("`system` is reserved for the server");
    }
    let mut expires = invite
        .expires_seconds
        .map(|seconds| now.plus_seconds(seconds));
    let participant = invite
        .participant
        .unwrap_or_else(|| token::new_participant_id(&invite.name));
    let (mut invited_by, mut invited_at, mut made_with) = (None, None, None);
    match inviter {
        Inviter::Operator => {}
        Inviter::Participant(login) if login.claims.participant == participant => {
            invited_by.clone_from(&login.claims.invited_by);
            invited_at = Some(login.claims.invited_at.unwrap_or(login.created_at));
            made_with = Some(login.token_id.clone());
            expires = expires.into_iter().chain(login.expires_at).min();
        }
        Inviter::Participant(login) => invited_by = Some(login.claims.participant.clone()),
        Inviter::JoinCode(terms, made_at) => {
            invited_by.clone_from(&terms.invited_by);
            invited_at = invited_by.as_ref().map(|_| *made_at);
        }
    }
    let claims = TokenClaims {
        participant,
        name: invite.name,
        kind: invite.kind,
        roles: invite.roles,
        capabilities: invite.capabilities,
        session: invite.session,
        invited_by,
        invited_at,
        made_with,
        device: None,
    };
    let (row, token) = token::create_token(&claims, now, expires);
    let link = match &claims.session {
        Some(session) => address.link(&format!("token={token}&session={session}")),
        None => address.link(&format!("token={token}")),
    };
    let invitation = Invitation {
        token,
        link,
        participant: claims.participant,
        roles: claims.roles,
        expires,
    };
    Ok((row, invitation))
}

/// Refuses a name that a list cannot show.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    let is_shown = !name.trim().is_empty() && !name.chars().any(char::is_control);
    match is_shown && name.chars().count() <= 128 {
        true => Ok(()),
        false => Err(Refusal::Malformed(
            "`name` has 1 to 128 characters and no control characters".to_owned(),
        )),
    }
}

/// Refuses a lifetime that no token can have.
pub(crate) fn check_lifetime(seconds: Option<u64>) -> Result<(), Refusal> {
    match seconds {
        None | Some(1..=MAX_TOKEN_SECONDS) => Ok(()),
        Some(_) => Err(Refusal::Malformed(
            "a token lives 1 second to 10 years".to_owned(),
        )),
    }
}
