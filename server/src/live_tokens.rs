//! The tokens in use, so that one that was revoked or has expired stops working everywhere at once.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pvp_protocol::{ParticipantId, SessionId, Timestamp};
use pvp_session::Ceiling;
use tokio::sync::watch;

use crate::store::{TokenEnd, TokenRow};
use crate::token::TokenClaims;

/// The tokens in use, by id.
type TokensById = Mutex<HashMap<String, Weak<LiveToken>>>;

/// A token that somebody logs in with, or claims to.
#[derive(Debug)]
pub(crate) struct LiveToken {
    id: String,
    /// Where it is found for as long as somebody uses it.
    found_in: Weak<TokensById>,
    /// Why it is no longer valid; `None` while it is.
    ended: watch::Sender<Option<TokenEnd>>,
}

impl LiveToken {
    /// Why it is no longer valid; `None` while it is.
    pub(crate) fn ended(&self) -> Option<TokenEnd> {
        *self.ended.borrow()
    }

    /// Waits until it is revoked or expires.
    pub(crate) async fn wait_ended(&self) -> TokenEnd {
        let mut ended = self.ended.subscribe();
        let end = ended.wait_for(Option::is_some).await;
        // The sender is part of this token, so that it cannot be gone.
        end.ok().and_then(|end| *end).unwrap_or(TokenEnd::Revoked)
    }
}

impl Drop for LiveToken {
    fn drop(&mut self) {
        let Some(tokens) = self.found_in.upgrade() else {
            return;
        };
        let mut by_id = tokens.lock();
        // Somebody may have begun to use another one of the same id.
        let is_unused = |token: &Weak<LiveToken>| token.strong_count() == 0;
        if by_id.get(&self.id).is_some_and(is_unused) {
            by_id.remove(&self.id);
        }
    }
}

/// The tokens in use. There are never more than the requests and connections that use them: whoever
/// sends ids that nobody has leaves nothing behind.
#[derive(Default)]
pub(crate) struct LiveTokens(Arc<TokensById>);

impl LiveTokens {
    /// The token with this id, which is in use from now on. To be called before the store is asked
    /// whether it is valid, so that an end in between is not missed.
    pub(crate) fn get_or_insert(&self, id: &str) -> Arc<LiveToken> {
        let mut by_id = self.0.lock();
        if let Some(live) = by_id.get(id).and_then(Weak::upgrade) {
            return live;
        }
        let live = Arc::new(LiveToken {
            id: id.to_owned(),
            found_in: Arc::downgrade(&self.0),
            ended: watch::channel(None).0,
        });
        by_id.insert(id.to_owned(), Arc::downgrade(&live));
        live
    }

    /// Ends whatever uses this token.
    pub(crate) fn end(&self, id: &str, end: TokenEnd) {
        // The lock must not be held when the last use of a token ends.
        let removed = self.0.lock().remove(id);
        if let Some(live) = removed.and_then(|token| token.upgrade()) {
            live.ended.send_replace(Some(end));
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// What the valid tokens of a participant allow in a session, all together; `None` if there are
/// none.
pub(crate) fn remaining_ceiling<'a>(
    tokens: impl IntoIterator<Item = (&'a TokenRow, &'a TokenClaims)>,
    ended: &TokenClaims,
    session: &SessionId,
    now: Timestamp,
) -> Option<Ceiling> {
    let valid = tokens.into_iter().filter(|(row, claims)| {
        row.end_before(now).is_none()
            && claims.participant == ended.participant
            && claims.kind == ended.kind
            && claims.allows_session(session)
    });
    valid.fold(None, |ceiling, (_, claims)| {
        let mut ceiling = ceiling.unwrap_or_else(|| Ceiling {
            kind: claims.kind,
            roles: BTreeSet::new(),
            capabilities: BTreeSet::new(),
        });
        ceiling.roles.extend(&claims.roles);
        ceiling.capabilities.extend(&claims.capabilities);
        Some(ceiling)
    })
}

/// A token that has ended, as the sessions are told of it.
#[derive(Debug, Clone)]
pub(crate) struct EndedToken {
    pub(crate) claims: TokenClaims,
    /// What the participant's other tokens allow; `None` if there are none.
    pub(crate) remaining: Option<Ceiling>,
    pub(crate) end: TokenEnd,
}

/// The rows whose claims can be read, with them.
pub(crate) fn with_claims(rows: &[TokenRow]) -> Vec<(&TokenRow, TokenClaims)> {
    let claims = |row| TokenClaims::from_row(row).ok();
    rows.iter()
        .filter_map(|row| Some((row, claims(row)?)))
        .collect()
}

/// The participants among `voters`, with the time of their earliest approval, whose tokens have
/// ended since.
pub(crate) fn ended_since(
    tokens: &[(&TokenRow, TokenClaims)],
    voters: &HashMap<ParticipantId, Timestamp>,
    session: &SessionId,
    now: Timestamp,
) -> Vec<EndedToken> {
    let mut ended: Vec<EndedToken> = Vec::new();
    for (row, claims) in tokens {
        let Some((at, end)) = row.end_before(now) else {
            continue;
        };
        let Some(voted_at) = voters.get(&claims.participant) else {
            continue;
        };
        let known = |other: &EndedToken| other.claims.participant == claims.participant;
        if !claims.allows_session(session) || ended.iter().any(known) {
            continue;
        }
        let pairs = tokens.iter().map(|(row, claims)| (*row, claims));
        let remaining = remaining_ceiling(pairs, claims, session, now);
        // Another process may have had another idea of the time when it revoked the token.
        if *voted_at <= at || remaining.is_none() {
            let claims = claims.clone();
            ended.push(EndedToken {
                claims,
                remaining,
                end,
            });
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_that_ends_ends_for_everyone_who_uses_it_and_nobody_else() {
        let tokens = LiveTokens::default();
        let (one, same, other) = (
            tokens.get_or_insert("a"),
            tokens.get_or_insert("a"),
            tokens.get_or_insert("b"),
        );
        tokens.end("a", TokenEnd::Expired);
        tokens.end("unknown", TokenEnd::Revoked);
        assert_eq!(one.wait_ended().await, TokenEnd::Expired);
        assert_eq!(same.ended(), Some(TokenEnd::Expired));
        assert_eq!(other.ended(), None);
        assert_eq!(tokens.get_or_insert("a").ended(), None, "a new login");
    }

    #[test]
    fn tokens_that_nobody_uses_take_no_memory() {
        let tokens = LiveTokens::default();
        let kept = tokens.get_or_insert("kept");
        let used: Vec<_> = (0..1000)
            .map(|number| tokens.get_or_insert(&number.to_string()))
            .collect();
        assert_eq!(tokens.count(), 1001);
        drop(used);
        assert_eq!(tokens.count(), 1);
        tokens.end("kept", TokenEnd::Revoked);
        assert_eq!(kept.ended(), Some(TokenEnd::Revoked));
    }

    #[test]
    fn a_token_that_ended_makes_nobody_forget_the_next_of_its_id() {
        let tokens = LiveTokens::default();
        let old = tokens.get_or_insert("a");
        tokens.end("a", TokenEnd::Expired);
        let again = tokens.get_or_insert("a");
        drop(old);
        assert_eq!(tokens.count(), 1);
        tokens.end("a", TokenEnd::Revoked);
        assert_eq!(again.ended(), Some(TokenEnd::Revoked));
    }
}
