//! Issues and verifies login tokens.
//!
//! A token is opaque and has a 256-bit secret; only its hash is stored. Its claims say who
//! holds it and which roles and capabilities they may have at most.

use std::collections::BTreeSet;
use std::sync::Arc;

use pvp_protocol::api::{TokenListItem, TokenState};
use pvp_protocol::token_text::TOKEN_PREFIX;
use pvp_protocol::{
    Capability, ParticipantId, ParticipantKind, Role, SessionId, Timestamp, capabilities_of, hex,
};
use pvp_session::{Ceiling, Identity, InvitedBy};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::live_tokens::{LiveToken, LiveTokens};
use crate::store::{Hash, Store, StoreError, TokenEnd, TokenRow};

/// Random bytes of a secret's id.
const ID_BYTES: usize = 8;

/// How many tokens may be made one with the other: one that is made with the last of them is not
/// valid.
const MAX_GENERATIONS: usize = 16;

/// What a token says about its holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenClaims {
    /// The participant who holds it.
    pub participant: ParticipantId,
    /// The participant's name, as others see it.
    pub name: String,
    /// Whether the holder is a human or an agent.
    pub kind: ParticipantKind,
    /// The roles that the holder may take in a session.
    pub roles: BTreeSet<Role>,
    /// Capabilities that the holder may have beyond those of the roles.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub capabilities: BTreeSet<Capability>,
    /// The only session that the token is valid for; `None` means every session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The participant who made the token; `None` if the server's operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invited_by: Option<ParticipantId>,
    /// When the holder was invited, if that was before this token was made: they made it themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invited_at: Option<Timestamp>,
    /// The token with which the holder made this one for themselves. It ends with that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_with: Option<String>,
    /// The name of the device that it was made for; `None` if it is that of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

impl TokenClaims {
    /// The claims of a stored token.
    pub fn from_row(row: &TokenRow) -> Result<Self, StoreError> {
        serde_json::from_str(&row.data)
            .map_err(|error| StoreError::Damaged(format!("token {}: {error}", row.id)))
    }

    /// The most that a request of the holder may do.
    pub fn ceiling(&self) -> Ceiling {
        Ceiling {
            kind: self.kind,
            roles: self.roles.clone(),
            capabilities: self.capabilities.clone(),
        }
    }

    /// The holder's identity in a session, with the most roles and capabilities they may have.
    fn identity(&self, created_at: Timestamp) -> Identity {
        Identity {
            participant: self.participant.clone(),
            name: Some(self.name.clone()),
            kind: self.kind,
            roles: self.roles.clone(),
            capabilities: self.capabilities.clone(),
            invited_by: self.invited_by.clone().map(|participant| InvitedBy {
                participant,
                at: self.invited_at.unwrap_or(created_at),
            }),
        }
    }

    /// Whether the holder may create sessions: the token is not bound to one, and has the role
    /// driver or admin.
    pub fn may_create_sessions(&self) -> bool {
        self.session.is_none()
            && (self.roles.contains(&Role::Driver) || self.roles.contains(&Role::Admin))
    }

    /// Whether the holder could vote on somebody else's proposal.
    pub fn may_vote(&self) -> bool {
        let roles: Vec<_> = self.roles.iter().copied().collect();
        self.kind == ParticipantKind::Human
            && capabilities_of(self.kind, &roles, &self.capabilities).contains(&Capability::Approve)
    }

    /// Whether the token allows whatever the other one does.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.roles.is_superset(&other.roles)
            && self.capabilities.is_superset(&other.capabilities)
            && (self.session.is_none() || self.session == other.session)
    }

    /// Whether the token is valid for this session.
    pub fn allows_session(&self, session: &SessionId) -> bool {
        self.session.as_ref().is_none_or(|bound| bound == session)
    }
}

/// A verified token.
#[derive(Debug, Clone)]
pub struct Login {
    pub token_id: String,
    pub claims: TokenClaims,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// Tells whether the token has ended since.
    pub(crate) live: Arc<LiveToken>,
}

impl Login {
    /// The token whose quotas are used up: a device has those of its link, or devices would multiply
    /// them.
    pub(crate) fn quota_token(&self) -> &str {
        let link = self.claims.made_with.as_deref();
        link.filter(|_| self.claims.device.is_some())
            .unwrap_or(&self.token_id)
    }

    /// The holder's identity in a session.
    pub(crate) fn identity(&self) -> Identity {
        self.claims.identity(self.created_at)
    }
}

/// Why a token is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("this is not a PVP token; ask for an invitation")]
    Unknown,
    #[error("the token has expired; ask for a new invitation")]
    Expired,
    #[error("the token was revoked; ask for a new invitation")]
    Revoked,
    #[error("tokens cannot be read at the moment ({0})")]
    Store(#[from] StoreError),
}

/// A token and those that its holder made with it, and so on, by id.
pub fn with_descendants(tokens: &[TokenRow], id: &str) -> Vec<String> {
    let claims: Vec<_> = tokens
        .iter()
        .filter_map(|row| Some((&row.id, TokenClaims::from_row(row).ok()?)))
        .collect();
    let mut family = vec![id.to_owned()];
    let mut next = 0;
    while let Some(parent) = family.get(next).cloned() {
        let made = claims
            .iter()
            .filter(|(_, claims)| claims.made_with.as_ref() == Some(&parent));
        let made: Vec<_> = made.map(|(id, _)| (*id).clone()).collect();
        family.extend(made);
        next += 1;
    }
    family
}

/// A stored token, as lists show it.
pub fn list_item(row: &TokenRow, now: Timestamp) -> Result<TokenListItem, StoreError> {
    let claims = TokenClaims::from_row(row)?;
    Ok(TokenListItem {
        id: row.id.clone(),
        participant: claims.participant,
        name: claims.name,
        kind: claims.kind,
        roles: claims.roles,
        session: claims.session,
        invited_by: claims.invited_by,
        device: claims.device,
        made_with: claims.made_with,
        created: row.created_at,
        expires: row.expires_at,
        revoked: row.revoked_at,
        last_used: row.used_at,
        state: match row.end_before(now) {
            None => TokenState::Valid,
            Some((_, TokenEnd::Expired)) => TokenState::Expired,
            Some((_, TokenEnd::Revoked)) => TokenState::Revoked,
        },
    })
}

/// Makes a participant id from the readable part of a name and a random suffix, so that no two are
/// the same.
pub fn new_participant_id(name: &str) -> ParticipantId {
    let slug: String = name
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let slug = slug
        .split('-')
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-");
    let slug: String = if slug.is_empty() {
        "guest".to_owned()
    } else {
        slug
    };
    let short: String = slug.chars().take(40).collect();
    let suffix = hex::encode(&pvp_clock::random_bytes::<4>());
    ParticipantId::parse(&format!("{short}-{suffix}")).expect("made of letters, digits and dashes")
}

/// Creates a token: the row to store, which has only its hash, and the only copy of its text.
pub fn create_token(
    claims: &TokenClaims,
    now: Timestamp,
    expires_at: Option<Timestamp>,
) -> (TokenRow, String) {
    let (id, hash, text) = create_secret();
    let row = TokenRow {
        id,
        hash,
        data: serde_json::to_string(claims).expect("token claims are plain data"),
        created_at: now,
        expires_at,
        revoked_at: None,
        used_at: None,
    };
    (row, text)
}

/// Makes a secret: the id by which it is found, the hash to store, and the only copy of its text.
pub(crate) fn create_secret() -> (String, Hash, String) {
    let id = hex::encode(&pvp_clock::random_bytes::<ID_BYTES>());
    let secret = pvp_clock::random_bytes::<32>();
    let text = format!("{TOKEN_PREFIX}{id}_{}", hex::encode(&secret));
    (id, Sha256::digest(secret).into(), text)
}

/// Checks the text of a token and returns the holder's login.
pub(crate) async fn verify(
    store: &dyn Store,
    live_tokens: &LiveTokens,
    text: &str,
    now: Timestamp,
) -> Result<Login, TokenError> {
    let (id, secret) = parse_secret(text).ok_or(TokenError::Unknown)?;
    let live = live_tokens.get_or_insert(id);
    let row = store.find_token(id).await?.ok_or(TokenError::Unknown)?;
    let hash: [u8; 32] = Sha256::digest(secret).into();
    if !bool::from(hash.ct_eq(&row.hash)) {
        return Err(TokenError::Unknown);
    }
    login(store, row, live, now).await
}

/// The login of the holder of a token that somebody has entrusted something with, by its id. The
/// caller must have checked that it is for them.
pub(crate) async fn login_with(
    store: &dyn Store,
    live_tokens: &LiveTokens,
    token_id: &str,
    now: Timestamp,
) -> Result<Login, TokenError> {
    let live = live_tokens.get_or_insert(token_id);
    let row = store.find_token(token_id).await?;
    login(store, row.ok_or(TokenError::Unknown)?, live, now).await
}

async fn login(
    store: &dyn Store,
    row: TokenRow,
    live: Arc<LiveToken>,
    now: Timestamp,
) -> Result<Login, TokenError> {
    let claims = check_valid(store, &row, now).await?;
    Ok(Login {
        token_id: row.id,
        claims,
        created_at: row.created_at,
        expires_at: row.expires_at,
        live,
    })
}

/// What a token that is valid says about its holder.
pub(crate) async fn valid_claims(
    store: &dyn Store,
    token_id: &str,
    now: Timestamp,
) -> Result<TokenClaims, TokenError> {
    let row = store.find_token(token_id).await?;
    check_valid(store, &row.ok_or(TokenError::Unknown)?, now).await
}

/// Checks that a token that was verified before is still valid.
pub(crate) async fn recheck(
    store: &dyn Store,
    token_id: &str,
    now: Timestamp,
) -> Result<(), TokenError> {
    valid_claims(store, token_id, now).await.map(drop)
}

/// The claims of a token that is valid, and was made with one that still is, and so on.
async fn check_valid(
    store: &dyn Store,
    row: &TokenRow,
    now: Timestamp,
) -> Result<TokenClaims, TokenError> {
    check_not_ended(row, now)?;
    // A row that is damaged is no reason to send its holder away for good.
    let claims = TokenClaims::from_row(row)?;
    let mut parent = claims.made_with.clone();
    for _ in 0..MAX_GENERATIONS {
        let Some(id) = parent else { return Ok(claims) };
        let row = store.find_token(&id).await?.ok_or(TokenError::Revoked)?;
        check_not_ended(&row, now)?;
        parent = TokenClaims::from_row(&row)?.made_with;
    }
    Err(TokenError::Revoked)
}

fn check_not_ended(row: &TokenRow, now: Timestamp) -> Result<(), TokenError> {
    match row.end_before(now) {
        None => Ok(()),
        Some((_, TokenEnd::Revoked)) => Err(TokenError::Revoked),
        Some((_, TokenEnd::Expired)) => Err(TokenError::Expired),
    }
}

/// The id and the secret in a text of the form that [`create_secret`] gives it. Strangers send such
/// texts, too.
pub(crate) fn parse_secret(text: &str) -> Option<(&str, [u8; 32])> {
    let (id, secret) = text.strip_prefix(TOKEN_PREFIX)?.split_once('_')?;
    hex::decode::<ID_BYTES>(id)?;
    Some((id, hex::decode(secret)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryStore;

    fn sample_claims() -> TokenClaims {
        TokenClaims {
            participant: new_participant_id("Ann O'Neil"),
            name: "Ann O'Neil".to_owned(),
            kind: ParticipantKind::Human,
            roles: [Role::Driver].into(),
            capabilities: BTreeSet::new(),
            session: None,
            invited_by: None,
            invited_at: None,
            made_with: None,
            device: None,
        }
    }

    async fn store_token(
        store: &MemoryStore,
        claims: &TokenClaims,
        now: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> String {
        let (row, token) = create_token(claims, now, expires_at);
        store.insert_token(row).await.unwrap();
        token
    }

    #[tokio::test]
    async fn a_token_says_who_holds_it_until_it_expires_or_is_revoked() {
        let store = MemoryStore::default();
        let now = pvp_clock::now();
        let expires = Some(now.plus_seconds(60));
        let token = store_token(&store, &sample_claims(), now, expires).await;
        let login = verify(&store, &LiveTokens::default(), &token, now)
            .await
            .unwrap();
        assert_eq!(login.claims.name, "Ann O'Neil");
        assert!(login.claims.participant.as_str().starts_with("ann-o-neil-"));
        assert!(matches!(
            verify(&store, &LiveTokens::default(), &token, now.plus_seconds(60)).await,
            Err(TokenError::Expired)
        ));
        assert!(store.revoke_token(&login.token_id, now).await.unwrap());
        assert!(matches!(
            verify(&store, &LiveTokens::default(), &token, now).await,
            Err(TokenError::Revoked)
        ));
    }

    #[tokio::test]
    async fn a_token_is_valid_only_as_long_as_the_one_it_was_made_with() {
        let store = MemoryStore::default();
        let now = pvp_clock::now();
        let verified = async |text: &str| {
            let live_tokens = LiveTokens::default();
            verify(&store, &live_tokens, text, now).await
        };
        let mut newest = store_token(&store, &sample_claims(), now, None).await;
        let first = verified(&newest).await.unwrap().token_id;
        for generation in 0..=MAX_GENERATIONS {
            let made_with = verified(&newest).await.unwrap().token_id;
            let claims = TokenClaims {
                made_with: Some(made_with),
                ..sample_claims()
            };
            newest = store_token(&store, &claims, now, None).await;
            let is_valid = verified(&newest).await.is_ok();
            assert_eq!(is_valid, generation + 1 < MAX_GENERATIONS, "{generation}");
            if !is_valid {
                break;
            }
        }
        let claims = TokenClaims {
            made_with: Some(first.clone()),
            ..sample_claims()
        };
        let child = store_token(&store, &claims, now, None).await;
        assert!(verified(&child).await.is_ok());
        assert!(store.revoke_token(&first, now).await.unwrap());
        let refused = verified(&child).await;
        assert!(matches!(refused, Err(TokenError::Revoked)), "{refused:?}");
    }

    #[tokio::test]
    async fn nothing_but_the_whole_token_is_accepted() {
        let store = MemoryStore::default();
        let now = pvp_clock::now();
        let token = store_token(&store, &sample_claims(), now, None).await;
        let flipped = if token.ends_with('0') { "1" } else { "0" };
        let mut other = token.clone();
        other.replace_range(token.len() - 1.., flipped);
        for wrong in [
            "",
            "pvp",
            "pvp__",
            &other,
            &token[..token.len() - 1],
            &format!("{token}_x"),
            &token.to_uppercase(),
        ] {
            assert!(
                matches!(
                    verify(&store, &LiveTokens::default(), wrong, now).await,
                    Err(TokenError::Unknown)
                ),
                "{wrong}"
            );
        }
    }

    #[test]
    fn an_id_has_the_length_and_the_digits_of_those_that_are_made() {
        let (id, _, text) = create_secret();
        assert_eq!(parse_secret(&text).map(|(id, _)| id), Some(id.as_str()));
        let secret = "ab".repeat(32);
        for id in [
            "",
            "0123456789abcde",
            "0123456789abcdef0",
            "0123456789abcdeg",
            &"a".repeat(200_000),
        ] {
            assert_eq!(parse_secret(&format!("{TOKEN_PREFIX}{id}_{secret}")), None);
        }
    }

    #[tokio::test]
    async fn tokens_that_the_store_does_not_know_leave_nothing_in_memory() {
        let (store, live_tokens) = (MemoryStore::default(), LiveTokens::default());
        let now = pvp_clock::now();
        let known = store_token(&store, &sample_claims(), now, None).await;
        let (known_id, _) = parse_secret(&known).unwrap();
        let guesses = (0..1000).map(|_| create_secret().2);
        // Nor does the right id with a wrong secret.
        let guesses = guesses.chain([format!("{TOKEN_PREFIX}{known_id}_{}", "ab".repeat(32))]);
        for guess in guesses {
            let verified = verify(&store, &live_tokens, &guess, now).await;
            assert!(matches!(verified, Err(TokenError::Unknown)), "{guess}");
            assert_eq!(live_tokens.count(), 0);
        }
        let login = verify(&store, &live_tokens, &known, now).await.unwrap();
        assert_eq!(live_tokens.count(), 1);
        drop(login);
        assert_eq!(live_tokens.count(), 0);
    }

    #[test]
    fn a_token_is_recognised_in_text() {
        let (_, token) = create_token(&sample_claims(), pvp_clock::now(), None);
        let found = pvp_protocol::token_text::find_token(&token);
        assert_eq!(found, Some(TOKEN_PREFIX.len()..token.len()));
    }

    #[test]
    fn the_store_has_only_the_hash() {
        let (row, token) = create_token(&sample_claims(), pvp_clock::now(), None);
        let secret = token.rsplit('_').next().unwrap();
        assert!(!row.data.contains(secret));
        assert_ne!(hex::encode(&row.hash), secret);
    }
}
