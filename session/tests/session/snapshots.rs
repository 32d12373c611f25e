//! Snapshots: what they keep, and which are refused. That they keep everything is checked after every
//! decision of every other test.

use pvp_policy::Policy;
use pvp_protocol::{Digest, Limits, ParticipantId, SessionId, Timestamp, parse_client_message};
use pvp_session::{
    Answer, DecisionContext, Input, Session, SnapshotError, Stamped, SubmittedMessage,
};
use serde_json::{Value, json};

use crate::support::{SessionFixture, message_id};

#[test]
fn a_session_goes_on_from_its_snapshot_as_from_its_log() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "touch a");
    let (id, seq) = (fixture.session.id().clone(), fixture.session.head());
    let snapshot = fixture.session.to_snapshot();
    fixture.session = Session::from_snapshot(&id, seq, &snapshot).unwrap();
    let open = fixture.session.find_proposal(&message_id("p1")).unwrap();
    assert_eq!(open.closed, None);
    // The fixture compares with a session that was replayed from the start.
    let vote = json!({ "tool_proposal": "p1", "approver": "ann" });
    fixture.sends("ann", "tool.approve", vote);
    assert_eq!(fixture.session.running().count(), 1);
}

#[test]
fn a_snapshot_of_something_else_is_refused() {
    let fixture = SessionFixture::team(json!({}));
    let (id, seq) = (fixture.session.id(), fixture.session.head());
    let snapshot = fixture.session.to_snapshot();
    let other = SessionId::parse("other").unwrap();
    let load = |id: &SessionId, seq, bytes: &[u8]| Session::from_snapshot(id, seq, bytes);
    let misplaced = Err(SnapshotError::Misplaced);
    assert_eq!(load(&other, seq, &snapshot), misplaced);
    assert_eq!(load(id, seq + 1, &snapshot), misplaced);
    let mut value: Value = serde_json::from_slice(&snapshot).unwrap();
    value["build"] = json!("0.0.0");
    let other_build = serde_json::to_vec(&value).unwrap();
    assert_eq!(
        load(id, seq, &other_build),
        Err(SnapshotError::OtherVersion)
    );
    for end in 0..snapshot.len() {
        let cut = load(id, seq, &snapshot[..end]);
        assert!(
            matches!(cut, Err(SnapshotError::Unreadable(_))),
            "cut at {end}"
        );
    }
}

#[test]
fn closed_proposals_are_remembered_in_full_for_a_while_and_then_by_id() {
    let mut fixture = SessionFixture::team(json!({}));
    for number in 0..300 {
        fixture.proposes(&format!("p{number}"), "rm -rf /");
    }
    assert!(fixture.session.find_proposal(&message_id("p299")).is_some());
    assert_eq!(fixture.session.find_proposal(&message_id("p0")), None);
    let vote = json!({ "tool_proposal": "p0", "approver": "ann" });
    let late = fixture.sends("ann", "tool.approve", vote);
    assert_eq!(
        late,
        ["= refused InvalidState: the gate is closed: the proposal is closed"]
    );
}

/// An agent can make two ids with the same short hash. The open proposal must stay decidable even
/// if the other one is closed.
#[test]
fn an_open_proposal_is_not_taken_for_a_closed_one_with_the_same_hash() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "touch a");
    let session = &fixture.session;
    let mut value: Value = serde_json::from_slice(&session.to_snapshot()).unwrap();
    let digest = Digest::of(&[b"p1"]);
    let hash = data_encoding::BASE64.encode(&digest.as_bytes()[..8]);
    value["session"]["closed_proposals"]["ids"] = hash.into();
    let patched = serde_json::to_vec(&value).unwrap();
    let collided = Session::from_snapshot(session.id(), session.head(), &patched).unwrap();
    assert_ne!(&collided, session);

    let policy = Policy::built_in();
    let context = DecisionContext {
        policy: &policy,
        settings: &fixture.settings,
    };
    let reject = json!({ "gate": "p1", "rejector": "ann", "reason": "no" });
    let cancel = json!({ "tool_proposal": "p1" });
    for (by, kind, payload) in [
        ("ann", "gate.reject", reject),
        ("bot", "tool.cancel", cancel),
    ] {
        let envelope = json!({ "v": 1, "id": "fresh-1", "session": session.id(), "sender": by,
            "type": kind, "payload": payload });
        let (header, message) =
            parse_client_message(&envelope.to_string(), &Limits::default()).unwrap();
        let input = Input::Submit {
            by: ParticipantId::parse(by).unwrap(),
            ceiling: None,
            submitted: SubmittedMessage::new(header.id, message),
        };
        let stamped = Stamped {
            at: Timestamp::default(),
            seed: [7; 32],
            input,
        };
        let decision = collided.clone().apply(context, stamped);
        assert!(
            matches!(decision.answer, Answer::Accepted(_)),
            "{decision:?}"
        );
    }
    // What the deadline does must not end the process either.
    let mut late = collided;
    let due = late.next_deadline().unwrap();
    let tick = Stamped {
        at: due,
        seed: [8; 32],
        input: Input::Tick,
    };
    assert!(!late.apply(context, tick).entries.is_empty());
    assert_eq!(late.open_gates().len(), 0);
}
