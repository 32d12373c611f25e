//! Join codes: made by whoever may invite, and exchanged once for a token.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use parking_lot::Mutex;
use pvp_protocol::api::{CreatedJoinCode, InviteRequest, JoinCodeListItem, JoinCodeRequest};
use pvp_protocol::{JoinCode, ParticipantId, ParticipantKind, Refusal, Role, SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::invite::{self, Inviter, ServerAddress};
use crate::store::{Hash, JoinCodeRow, StoreError};

/// How long a code can be used, unless its maker says otherwise, in seconds.
pub const DEFAULT_CODE_SECONDS: u64 = 3600;

/// The longest that a code can be used, in seconds: a day.
const MAX_CODE_SECONDS: u64 = 86_400;

/// How many codes may wait to be used at a time.
pub const MAX_OUTSTANDING_CODES: usize = 100;

/// How long a code is remembered after it has expired, in seconds, so that whoever tries it is told
/// what became of it: a week.
const REMEMBERED_SECONDS: u64 = 7 * 86_400;

/// Wrong codes that one address may try in a period.
const MAX_FAILURES: u32 = 30;

/// How long wrong codes are counted, in seconds.
const FAILURE_PERIOD_SECONDS: u64 = 60;

/// Addresses whose wrong codes are counted.
const MAX_ADDRESSES: usize = 4096;

/// What the token of a join code will allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinCodeTerms {
    /// The roles of the token.
    pub roles: BTreeSet<Role>,
    /// The only session of the token; `None` means every session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The participant who made the code; `None` if the server's operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invited_by: Option<ParticipantId>,
    /// The token that the code was made with. It ends with that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_with: Option<String>,
    /// How long the token will be valid, in seconds; `None` means for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<u64>,
}

impl JoinCodeTerms {
    /// The terms of a stored code.
    pub fn from_row(row: &JoinCodeRow) -> Result<Self, StoreError> {
        serde_json::from_str(&row.data)
            .map_err(|error| StoreError::Damaged(format!("join code {}: {error}", row.id)))
    }

    /// The invitation of whoever uses the code under this name.
    pub(crate) fn invite_request(&self, name: String) -> InviteRequest {
        InviteRequest {
            name,
            roles: self.roles.clone(),
            kind: ParticipantKind::Human,
            capabilities: BTreeSet::new(),
            session: self.session.clone(),
            expires_seconds: self.expires_seconds,
            participant: None,
        }
    }
}

/// Creates a code. It works once the row is stored.
pub fn create_join_code(
    request: JoinCodeRequest,
    inviter: &Inviter<'_>,
    address: &ServerAddress,
    now: Timestamp,
) -> Result<(JoinCodeRow, CreatedJoinCode), Refusal> {
    check_request(&request)?;
    let (invited_by, made_with) = match inviter {
        Inviter::Participant(login) => (
            Some(login.claims.participant.clone()),
            Some(login.token_id.clone()),
        ),
        Inviter::Operator | Inviter::JoinCode(..) => (None, None),
    };
    let code = JoinCode::from_random(pvp_clock::random_bytes());
    let expires = now.plus_seconds(request.code_seconds.unwrap_or(DEFAULT_CODE_SECONDS));
    let (id, hash) = id_and_hash(&code);
    let terms = JoinCodeTerms {
        roles: request.roles,
        session: request.session,
        invited_by,
        made_with,
        expires_seconds: request.expires_seconds,
    };
    let row = JoinCodeRow {
        id: id.clone(),
        hash,
        data: serde_json::to_string(&terms).expect("the terms are plain data"),
        created_at: now,
        expires_at: expires,
        ended_at: None,
        token: None,
    };
    let created = CreatedJoinCode {
        id,
        link: address.link(&format!("join={code}")),
        code: code.to_string(),
        roles: terms.roles,
        session: terms.session,
        expires,
    };
    Ok((row, created))
}

fn check_request(request: &JoinCodeRequest) -> Result<(), Refusal> {
    let malformed = |problem: &str| Err(Refusal::Malformed(problem.to_owned()));
    if request.roles.is_empty() {
        return malformed("a join code needs at least one role");
    }
    if request.roles.contains(&Role::Admin) {
        return malformed("a join code never makes an admin; send an admin a link");
    }
    let seconds = request.code_seconds.unwrap_or(DEFAULT_CODE_SECONDS);
    if !(1..=MAX_CODE_SECONDS).contains(&seconds) {
        return malformed("a join code is valid for 1 second to 1 day");
    }
    invite::check_lifetime(request.expires_seconds)?;
    Ok(())
}

/// How many codes may wait to be used when this inviter makes one more. Whoever may invite to one
/// session cannot use up the places of the others.
pub fn outstanding_limit(inviter: &Inviter<'_>) -> usize {
    match inviter {
        Inviter::Participant(login) if login.claims.session.is_some() => MAX_OUTSTANDING_CODES / 2,
        Inviter::Participant(_) => MAX_OUTSTANDING_CODES,
        Inviter::Operator | Inviter::JoinCode(..) => MAX_OUTSTANDING_CODES * 2,
    }
}

/// Before this time a code must have expired to be forgotten.
pub fn forget_before(now: Timestamp) -> Timestamp {
    now.minus_seconds(REMEMBERED_SECONDS)
}

/// The refusal of a code when too many wait to be used.
pub fn too_many_codes(limit: usize) -> Refusal {
    Refusal::TooMany {
        what: "unused join codes; revoke some with `pvp tokens revoke`",
        limit: limit as u64,
    }
}

/// A stored code, as lists show it.
pub fn list_item(row: &JoinCodeRow) -> Result<JoinCodeListItem, StoreError> {
    let terms = JoinCodeTerms::from_row(row)?;
    Ok(JoinCodeListItem {
        id: row.id.clone(),
        roles: terms.roles,
        session: terms.session,
        created: row.created_at,
        expires: row.expires_at,
    })
}

/// The name under which a code is stored, and its hash. The name is a part of the hash, which tells
/// nobody the code.
pub(crate) fn id_and_hash(code: &JoinCode) -> (String, Hash) {
    let hash: Hash = Sha256::digest(code.as_bytes()).into();
    let id = pvp_protocol::hex::encode(&hash[..8]);
    (id, hash)
}

/// Whether a row is that of the code with this hash.
pub(crate) fn matches(row: &JoinCodeRow, hash: &Hash) -> bool {
    bool::from(row.hash.ct_eq(hash))
}

/// Why a code that exists cannot be used; `None` if it can.
pub(crate) fn problem_of(row: &JoinCodeRow, now: Timestamp) -> Option<Refusal> {
    let problem = match (&row.token, row.ended_at) {
        (Some(_), _) => {
            "this join code was used already, and works only once. If it was not you who used it, \
             tell whoever sent it: they find the stranger with `pvp tokens list` and remove them \
             with `pvp tokens revoke ID`. Ask them for another code"
        }
        (None, Some(_)) => "this join code was revoked; ask whoever sent it for another",
        (None, None) if row.expires_at <= now => {
            "this join code has expired; ask whoever sent it for another"
        }
        (None, None) => return None,
    };
    Some(Refusal::Unauthorized(problem.to_owned()))
}

/// The refusal of a code that is not in the store.
pub(crate) fn unknown_code() -> Refusal {
    Refusal::Unauthorized(
        "this server does not know this join code; check that it was copied whole, or ask whoever sent it for another"
            .to_owned(),
    )
}

/// Counts the wrong codes of each address.
#[derive(Default)]
pub(crate) struct FailedJoins(Mutex<HashMap<IpAddr, FailureCount>>);

#[derive(Clone, Copy)]
struct FailureCount {
    failures: u32,
    since: Timestamp,
}

impl FailureCount {
    fn is_over(&self, now: Timestamp) -> bool {
        now.millis_since(self.since) >= FAILURE_PERIOD_SECONDS * 1000
    }
}

impl FailedJoins {
    /// Refuses an address that has tried too many wrong codes of late.
    pub(crate) fn check(&self, address: IpAddr, now: Timestamp) -> Result<(), Refusal> {
        let counts = self.0.lock();
        let count = counts.get(&address).filter(|count| !count.is_over(now));
        match count.is_some_and(|count| count.failures >= MAX_FAILURES) {
            true => Err(Refusal::TooMany {
                what: "wrong join codes from your address in a minute; wait a minute and try again",
                limit: u64::from(MAX_FAILURES),
            }),
            false => Ok(()),
        }
    }

    /// Counts a wrong code.
    pub(crate) fn record(&self, address: IpAddr, now: Timestamp) {
        let mut counts = self.0.lock();
        if counts.len() >= MAX_ADDRESSES && !counts.contains_key(&address) {
            counts.retain(|_, count| !count.is_over(now));
            if counts.len() >= MAX_ADDRESSES {
                // So many addresses at once are one attacker, who gains nothing by being forgotten.
                counts.clear();
            }
        }
        let fresh = FailureCount {
            failures: 0,
            since: now,
        };
        let count = counts.entry(address).or_insert(fresh);
        if count.is_over(now) {
            *count = fresh;
        }
        count.failures += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(roles: &[Role], code_seconds: Option<u64>) -> JoinCodeRequest {
        JoinCodeRequest {
            roles: roles.iter().copied().collect(),
            session: None,
            code_seconds,
            expires_seconds: None,
        }
    }

    fn address() -> ServerAddress {
        ServerAddress {
            url: "http://h".to_owned(),
            fingerprint: None,
        }
    }

    #[test]
    fn a_code_for_a_token_that_cannot_be_made_is_refused() {
        for seconds in [0, 99_999_999_999] {
            let request = JoinCodeRequest {
                expires_seconds: Some(seconds),
                ..request(&[Role::Approver], None)
            };
            let now = pvp_clock::now();
            let created = create_join_code(request, &Inviter::Operator, &address(), now);
            assert!(matches!(created, Err(Refusal::Malformed(_))), "{seconds}");
        }
    }

    #[test]
    fn a_code_is_not_stored_and_never_makes_an_admin() {
        let now = pvp_clock::now();
        let create = |request| create_join_code(request, &Inviter::Operator, &address(), now);
        let (row, created) = create(request(&[Role::Approver], None)).unwrap();
        assert_eq!(created.link, format!("http://h/#join={}", created.code));
        assert_eq!(row.expires_at, now.plus_seconds(DEFAULT_CODE_SECONDS));
        assert!(!format!("{row:?}").contains(&created.code));
        let (id, hash) = id_and_hash(&JoinCode::parse(&created.code).unwrap());
        assert_eq!((&id, matches(&row, &hash)), (&created.id, true));
        for bad in [
            request(&[], None),
            request(&[Role::Admin], None),
            request(&[Role::Approver, Role::Admin], None),
            request(&[Role::Approver], Some(0)),
            request(&[Role::Approver], Some(MAX_CODE_SECONDS + 1)),
        ] {
            assert!(create(bad.clone()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_address_tries_only_so_many_wrong_codes_in_a_minute() {
        let (failed, now) = (FailedJoins::default(), pvp_clock::now());
        let [eve, ann] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().unwrap());
        for _ in 0..MAX_FAILURES {
            assert!(failed.check(eve, now).is_ok());
            failed.record(eve, now);
        }
        assert!(failed.check(eve, now).is_err());
        assert!(failed.check(ann, now).is_ok());
        let later = now.plus_seconds(FAILURE_PERIOD_SECONDS);
        assert!(failed.check(eve, later).is_ok());
        failed.record(eve, later);
        assert!(failed.check(eve, later).is_ok(), "the count begins again");
    }

    #[test]
    fn very_many_addresses_take_no_more_memory() {
        let (failed, now) = (FailedJoins::default(), pvp_clock::now());
        for number in 0..3 * MAX_ADDRESSES as u32 {
            failed.record(IpAddr::V4(number.into()), now);
        }
        assert!(failed.0.lock().len() <= MAX_ADDRESSES);
    }
}
