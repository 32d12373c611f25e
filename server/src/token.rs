//! Issues and verifies login tokens.
//!
//! A token is opaque and has a 256-bit secret; only its hash is stored. Its claims say who
//! holds it and which roles and capabilities they may have at most.

use std::collections::BTreeSet;

use pvp_protocol::{
    Capability, ParticipantId, ParticipantKind, Role, SessionId, Timestamp, capabilities_of, hex,
};
use pvp_session::Identity;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::store::{StoreError, TokenRow, TokenTable};

const PREFIX: &str = "pvp";

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
}

impl TokenClaims {
    /// The holder's identity in a session, with the most roles and capabilities they may have.
    pub fn identity(&self) -> Identity {
        Identity {
            participant: self.participant.clone(),
            name: Some(self.name.clone()),
            kind: self.kind,
            roles: self.roles.clone(),
            capabilities: self.capabilities.clone(),
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
    pub expires_at: Option<Timestamp>,
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

/// Creates a token and stores its hash. The returned text is the only copy of the token.
pub fn issue(
    table: &TokenTable,
    claims: &TokenClaims,
    expires_at: Option<Timestamp>,
) -> Result<String, StoreError> {
    let id = hex::encode(&pvp_clock::random_bytes::<8>());
    let secret = pvp_clock::random_bytes::<32>();
    table.insert(&TokenRow {
        id: id.clone(),
        hash: Sha256::digest(secret).into(),
        data: serde_json::to_string(claims).expect("token claims are plain data"),
        created_at: pvp_clock::now(),
        expires_at,
        revoked_at: None,
    })?;
    Ok(format!("{PREFIX}_{id}_{}", hex::encode(&secret)))
}

/// Checks the text of a token and returns the holder's login.
pub fn verify(table: &TokenTable, text: &str, now: Timestamp) -> Result<Login, TokenError> {
    let (id, secret) = parse_token(text).ok_or(TokenError::Unknown)?;
    let row = table.find(id)?.ok_or(TokenError::Unknown)?;
    let hash: [u8; 32] = Sha256::digest(secret).into();
    if !bool::from(hash.ct_eq(&row.hash)) {
        return Err(TokenError::Unknown);
    }
    check_valid(&row, now)?;
    let claims = serde_json::from_str(&row.data).map_err(|_| TokenError::Unknown)?;
    Ok(Login {
        token_id: row.id,
        claims,
        expires_at: row.expires_at,
    })
}

/// Checks that a token that was verified before is still valid.
pub fn recheck(table: &TokenTable, token_id: &str, now: Timestamp) -> Result<(), TokenError> {
    check_valid(&table.find(token_id)?.ok_or(TokenError::Unknown)?, now)
}

fn check_valid(row: &TokenRow, now: Timestamp) -> Result<(), TokenError> {
    if row.revoked_at.is_some() {
        return Err(TokenError::Revoked);
    }
    if row.expires_at.is_some_and(|expires| expires <= now) {
        return Err(TokenError::Expired);
    }
    Ok(())
}

fn parse_token(text: &str) -> Option<(&str, [u8; 32])> {
    let mut parts = text.split('_');
    let (prefix, id, secret) = (parts.next()?, parts.next()?, parts.next()?);
    if prefix != PREFIX || parts.next().is_some() {
        return None;
    }
    Some((id, hex::decode(secret)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_claims() -> TokenClaims {
        TokenClaims {
            participant: new_participant_id("Ann O'Neil"),
            name: "Ann O'Neil".to_owned(),
            kind: ParticipantKind::Human,
            roles: [Role::Driver].into(),
            capabilities: BTreeSet::new(),
            session: None,
        }
    }

    #[test]
    fn a_token_says_who_holds_it_until_it_expires_or_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let table = TokenTable::open(dir.path()).unwrap();
        let now = pvp_clock::now();
        let token = issue(&table, &sample_claims(), Some(now.plus_seconds(60))).unwrap();
        let login = verify(&table, &token, now).unwrap();
        assert_eq!(login.claims.name, "Ann O'Neil");
        assert!(login.claims.participant.as_str().starts_with("ann-o-neil-"));
        assert!(matches!(
            verify(&table, &token, now.plus_seconds(60)),
            Err(TokenError::Expired)
        ));
        assert!(table.revoke(&login.token_id, now).unwrap());
        assert!(matches!(
            verify(&table, &token, now),
            Err(TokenError::Revoked)
        ));
    }

    #[test]
    fn nothing_but_the_whole_token_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let table = TokenTable::open(dir.path()).unwrap();
        let token = issue(&table, &sample_claims(), None).unwrap();
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
                    verify(&table, wrong, pvp_clock::now()),
                    Err(TokenError::Unknown)
                ),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_store_has_only_the_hash() {
        let dir = tempfile::tempdir().unwrap();
        let table = TokenTable::open(dir.path()).unwrap();
        let token = issue(&table, &sample_claims(), None).unwrap();
        let secret = token.rsplit('_').next().unwrap();
        let row = &table.list().unwrap()[0];
        assert!(!row.data.contains(secret));
        assert_ne!(hex::encode(&row.hash), secret);
    }
}
