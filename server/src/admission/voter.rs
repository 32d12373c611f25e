//! Whether the holder of a token may vote on a gate, and is told of it.

use pvp_protocol::{Approvers, Role};
use pvp_session::{Gate, Member, Session};

use crate::token::TokenClaims;

/// Whether a vote on this gate, which these people decide, would be taken with this token.
pub(crate) fn may_vote(
    session: &Session,
    gate: &Gate,
    approvers: &Approvers,
    me: &TokenClaims,
) -> bool {
    match session.member(&me.participant) {
        Some(member) if !member.left => {
            approvers.eligible.contains(&me.participant)
                && session.may_vote(&me.participant, &me.ceiling())
        }
        away => {
            let edited = gate.amended_by.as_ref() == Some(&me.participant);
            !(edited && session.config().four_eyes) && may_vote_after_joining(away, gate, me)
        }
    }
}

/// Whether somebody is told of a gate on which they may vote: not those who left the session. Those
/// whose connections are lost did not, and that they hear of it is what notifications are for.
pub(crate) fn is_told(
    session: &Session,
    gate: &Gate,
    approvers: &Approvers,
    me: &TokenClaims,
) -> bool {
    let has_left = session.member(&me.participant).is_some_and(|it| it.left);
    me.allows_session(session.id())
        && !has_left
        && !gate.approvals.contains_key(&me.participant)
        && may_vote(session, gate, approvers, me)
}

/// A vote from someone who has not joined makes them join: with the roles of the token, or with those
/// that an admin has given them here before.
fn may_vote_after_joining(known: Option<&Member>, gate: &Gate, me: &TokenClaims) -> bool {
    let (may_vote, is_admin) = match known.filter(|member| member.roles_set_by_admin) {
        Some(member) => {
            let back = Member {
                left: false,
                ..member.clone()
            };
            let Ok(bounded) = back.bounded_by(&me.ceiling()) else {
                return false;
            };
            (bounded.may_vote(), bounded.has_role(Role::Admin))
        }
        None => (me.may_vote(), me.roles.contains(&Role::Admin)),
    };
    may_vote && (is_admin || !gate.escalated)
}
