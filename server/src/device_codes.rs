//! Device codes: a person makes one for themselves, and it makes one more device of theirs, once.
//!
//! A browser keeps the addresses that it opened. So what opens the page carries one of these, which
//! is worth nothing afterwards, and not the token of a link.

use std::collections::HashMap;

use parking_lot::Mutex;
use pvp_protocol::{JoinCode, Refusal, Timestamp};
use sha2::{Digest as _, Sha256};

use crate::store::Hash;
use crate::token::Login;

/// How long a code can be used, in seconds.
const CODE_SECONDS: u64 = 3600;

/// Codes of one token that wait to be used. One more ends the oldest.
const MAX_CODES_OF_A_TOKEN: usize = 5;

/// Codes that wait to be used, of all tokens together.
const MAX_CODES: usize = 10_000;

/// The codes that wait to be used. They live an hour at most, so a restart may forget them.
#[derive(Default)]
pub(crate) struct DeviceCodes(Mutex<HashMap<Hash, WaitingCode>>);

/// A code that waits to be used.
pub(crate) struct WaitingCode {
    /// Whose it is.
    pub(crate) login: Login,
    created: Timestamp,
}

impl WaitingCode {
    fn expires(&self) -> Timestamp {
        self.created.plus_seconds(CODE_SECONDS)
    }
}

impl DeviceCodes {
    /// Makes a code for the holder of this token; returns when it expires, too.
    pub(crate) fn create(
        &self,
        login: &Login,
        now: Timestamp,
    ) -> Result<(JoinCode, Timestamp), Refusal> {
        let mut codes = self.0.lock();
        codes.retain(|_, code| code.expires() > now);
        let theirs = codes
            .iter()
            .filter(|(_, code)| code.login.token_id == login.token_id);
        let mut theirs: Vec<_> = theirs.map(|(hash, code)| (code.created, *hash)).collect();
        theirs.sort_unstable();
        let too_many = (theirs.len() + 1).saturating_sub(MAX_CODES_OF_A_TOKEN);
        for (_, oldest) in theirs.iter().take(too_many) {
            codes.remove(oldest);
        }
        if codes.len() >= MAX_CODES {
            return Err(Refusal::TooMany {
                what: "links of this server that wait to be opened; try again in an hour",
                limit: MAX_CODES as u64,
            });
        }
        let code = JoinCode::from_random(pvp_clock::random_bytes());
        let waiting = WaitingCode {
            login: login.clone(),
            created: now,
        };
        let expires = waiting.expires();
        codes.insert(hash_of(&code), waiting);
        Ok((code, expires))
    }

    /// Takes a code, so that nobody else can.
    pub(crate) fn take(&self, code: &JoinCode, now: Timestamp) -> Result<WaitingCode, Refusal> {
        let taken = self.0.lock().remove(&hash_of(code));
        taken.filter(|code| code.expires() > now).ok_or_else(|| {
            Refusal::Unauthorized(
                "this link was opened already, or is more than an hour old: each works once. \
                 `pvp open` makes another; so does whoever sent it"
                    .to_owned(),
            )
        })
    }

    /// Lets a code be used after all, of which no device came.
    pub(crate) fn put_back(&self, code: &JoinCode, waiting: WaitingCode) {
        self.0.lock().insert(hash_of(code), waiting);
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

fn hash_of(code: &JoinCode) -> Hash {
    Sha256::digest(code.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use pvp_protocol::ParticipantKind;

    use super::*;
    use crate::live_tokens::LiveTokens;
    use crate::token::{TokenClaims, new_participant_id};

    /// Who has the token with this id.
    fn login(token_id: &str) -> Login {
        Login {
            token_id: token_id.to_owned(),
            claims: TokenClaims {
                participant: new_participant_id(token_id),
                name: token_id.to_owned(),
                kind: ParticipantKind::Human,
                roles: Default::default(),
                capabilities: Default::default(),
                session: None,
                invited_by: None,
                invited_at: None,
                made_with: None,
                device: None,
            },
            created_at: pvp_clock::now(),
            expires_at: None,
            live: LiveTokens::default().get_or_insert(token_id),
        }
    }

    #[test]
    fn a_code_is_taken_once_and_within_an_hour() {
        let (codes, now) = (DeviceCodes::default(), pvp_clock::now());
        let (code, expires) = codes.create(&login("ann"), now).unwrap();
        let taken = codes.take(&code, now).unwrap();
        assert_eq!(taken.login.token_id, "ann");
        assert!(codes.take(&code, now).is_err());
        codes.put_back(&code, taken);
        assert!(codes.take(&code, expires).is_err(), "it has expired");
        assert!(codes.take(&code, now).is_err(), "and is gone");
    }

    #[test]
    fn whoever_makes_many_loses_only_their_own_oldest() {
        let (codes, now) = (DeviceCodes::default(), pvp_clock::now());
        let (of_ben, _) = codes.create(&login("ben"), now).unwrap();
        let of_ann: Vec<_> = (1..=MAX_CODES_OF_A_TOKEN as u64 + 1)
            .map(|second| {
                codes
                    .create(&login("ann"), now.plus_seconds(second))
                    .unwrap()
                    .0
            })
            .collect();
        assert!(codes.take(&of_ben, now).is_ok());
        let works: Vec<_> = of_ann
            .iter()
            .map(|code| codes.take(code, now).is_ok())
            .collect();
        let expected: Vec<_> = (0..works.len()).map(|place| place > 0).collect();
        assert_eq!(works, expected);
    }

    #[test]
    fn all_codes_together_are_bounded_until_they_expire() {
        let (codes, now) = (DeviceCodes::default(), pvp_clock::now());
        for number in 0..MAX_CODES {
            codes.create(&login(&number.to_string()), now).unwrap();
        }
        assert!(codes.create(&login("ann"), now).is_err());
        assert!(
            codes
                .create(&login("ann"), now.plus_seconds(CODE_SECONDS))
                .is_ok()
        );
        assert_eq!(codes.count(), 1);
    }
}
