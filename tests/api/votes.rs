//! Votes and edits that do not count, and that they change nothing.

use serde_json::{Value, json};

use crate::room::{ROOM, Room, approve, edit, reject};

const INVALID_MESSAGE: &str = "INVALID_MESSAGE";
const INVALID_STATE: &str = "INVALID_STATE";
const UNAUTHORIZED: &str = "UNAUTHORIZED";

fn said(code: &str, message: &str) -> (String, String) {
    (code.to_owned(), message.to_owned())
}

#[tokio::test]
async fn a_vote_that_does_not_count_changes_nothing() {
    let mut room =
        Room::open(json!({ "default_gate_quorum": { "type": "any", "count": 2 } })).await;
    let proposal = room.propose("touch a").await;
    let own = json!({ "id": "own", "type": "shell.exec", "payload": { "command": "rm -r a" } });
    room.ann.api.send(ROOM, own).await.ok();
    let before = room.log();
    let lacks = "you need the capability `approve`; ask an admin for a role that has it";
    let changed = "the command was edited since you saw it; look again and vote with its digest";
    let both = json!({ "vote": "reject", "reason": "r", "comment": "c" });
    let stale = json!({ "vote": "approve", "digest": "0".repeat(64) });
    let long = json!({ "vote": "approve", "comment": "c".repeat(4097) });
    for (who, gate, ballot, status, code, sentence) in [
        (
            &room.bot,
            proposal.as_str(),
            approve(),
            403,
            UNAUTHORIZED,
            "agents do not vote; a person has to decide",
        ),
        (&room.eve, &proposal, approve(), 403, UNAUTHORIZED, lacks),
        (&room.eve, &proposal, reject("r"), 403, UNAUTHORIZED, lacks),
        (
            &room.ann,
            "own",
            approve(),
            403,
            UNAUTHORIZED,
            "a proposer does not vote on its own proposal",
        ),
        (
            &room.ann,
            &proposal,
            json!({ "vote": "reject" }),
            400,
            INVALID_MESSAGE,
            "a rejection needs a `reason`; the agent reads it",
        ),
        (
            &room.ann,
            &proposal,
            json!({ "vote": "approve", "reason": "r" }),
            400,
            INVALID_MESSAGE,
            "an approval has a `comment`, not a `reason`",
        ),
        (
            &room.ann,
            &proposal,
            both,
            400,
            INVALID_MESSAGE,
            "a rejection has a `reason`, not a `comment`",
        ),
        (&room.ann, &proposal, stale, 409, INVALID_STATE, changed),
        (
            &room.ann,
            &proposal,
            long,
            400,
            INVALID_MESSAGE,
            "`comment` is at most 4096 bytes",
        ),
    ] {
        let answer = who.api.vote(ROOM, gate, ballot.clone()).await;
        assert_eq!(answer.refused(status), said(code, sentence), "{ballot}");
        assert_eq!(room.log(), before, "{ballot}");
    }
    for ballot in [
        json!({}),
        json!({ "vote": "perhaps" }),
        json!({ "vote": "approve", "digest": "00" }),
        json!({ "vote": "approve", "id": "not an id" }),
        json!({ "vote": "approve", "approver": room.bob.id() }),
    ] {
        assert_eq!(
            room.ann
                .api
                .vote(ROOM, &proposal, ballot)
                .await
                .refused(400)
                .0,
            INVALID_MESSAGE
        );
        assert_eq!(room.log(), before);
    }
}

#[tokio::test]
async fn after_an_edit_only_a_vote_on_what_it_says_counts() {
    let mut room = Room::open(json!({ "four_eyes": true })).await;
    let proposal = room.propose("touch a").await;
    let first = room.gate(&proposal).await["open"]["assessment"]["digest"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/api/sessions/{ROOM}/gates/{proposal}/amend");
    // Who may not edit, edits of what is not there, and edits of nothing.
    let before = room.log();
    let changed = "the command was edited since you saw it; look again and vote with its digest";
    let wrong = room
        .ann
        .api
        .post(&path, edit("touch b", &"0".repeat(64)))
        .await;
    assert_eq!(wrong.refused(409), said(INVALID_STATE, changed));
    assert_eq!(
        room.eve
            .api
            .post(&path, edit("touch b", &first))
            .await
            .status,
        403
    );
    assert_eq!(room.log(), before);

    let mut wanted = edit("touch b", &first);
    wanted["reason"] = json!("better");
    wanted["id"] = json!("edit-1");
    let edited = room.ann.api.post(&path, wanted.clone()).await.ok();
    let gate = &edited["gate"]["open"];
    assert_eq!(
        gate["action"],
        json!({ "command": { "form": "shell", "line": "touch b" }, "mode": "normal" })
    );
    assert_eq!(gate["amended_by"], room.ann.id());
    assert_eq!(
        gate["may_vote"], false,
        "who edits does not vote with four eyes"
    );
    let second = gate["assessment"]["digest"].clone();
    assert_ne!(second, json!(first));
    // Asked for once more, the edit is the one that was made.
    let again = room.ann.api.post(&path, wanted).await.ok();
    assert_eq!(
        again["ack"],
        json!({ "id": "edit-1", "seq": edited["ack"]["seq"], "duplicate": true })
    );

    let before = room.log();
    for ballot in [
        approve(),
        reject("r"),
        json!({ "vote": "approve", "digest": first }),
    ] {
        let answer = room.bob.api.vote(ROOM, &proposal, ballot).await;
        assert_eq!(answer.refused(409), said(INVALID_STATE, changed));
    }
    let answer = room
        .ann
        .api
        .vote(
            ROOM,
            &proposal,
            json!({ "vote": "approve", "digest": second }),
        )
        .await;
    let sentence = "with four eyes, who edited a command does not vote on it";
    assert_eq!(answer.refused(403), said(UNAUTHORIZED, sentence));
    assert_eq!(room.log(), before);
    let ballot = json!({ "vote": "approve", "digest": second });
    assert_eq!(
        room.bob.api.vote(ROOM, &proposal, ballot).await.ok()["gate"]["status"],
        "approved"
    );
    let execute = room.agent.wait_for("tool.execute").await;
    assert_eq!(
        execute["payload"]["grant"]["action"]["command"]["line"],
        "touch b"
    );
}

#[tokio::test]
async fn a_closed_gate_takes_no_vote_and_no_edit() {
    let mut room = Room::open(json!({})).await;
    let proposal = room.propose("touch a").await;
    let digest = room.gate(&proposal).await["open"]["assessment"]["digest"]
        .as_str()
        .unwrap()
        .to_owned();
    let vote = json!({ "vote": "reject", "reason": "not today", "id": "vote-1" });
    let closed = room.bob.api.vote(ROOM, &proposal, vote.clone()).await.ok();
    assert_eq!(closed["gate"]["status"], "rejected");
    let before = room.log();
    let sentence = "the gate is closed: the proposal is rejected";
    for ballot in [approve(), reject("r")] {
        let answer = room.ann.api.vote(ROOM, &proposal, ballot).await;
        assert_eq!(answer.refused(409), said(INVALID_STATE, sentence));
    }
    let path = format!("/api/sessions/{ROOM}/gates/{proposal}/amend");
    let answer = room.ann.api.post(&path, edit("touch b", &digest)).await;
    assert_eq!(answer.refused(409), said(INVALID_STATE, sentence));
    // The vote that closed it, repeated, is still the vote that was cast.
    let again = room.bob.api.vote(ROOM, &proposal, vote).await.ok();
    assert_eq!(
        again["ack"],
        json!({ "id": "vote-1", "seq": closed["ack"]["seq"], "duplicate": true })
    );
    assert_eq!(again["gate"], closed["gate"]);
    assert_eq!(room.log(), before);
}

#[tokio::test]
async fn an_edit_is_not_deeper_than_a_message_may_be() {
    let mut room = Room::open(json!({})).await;
    let proposal = room.propose("touch a").await;
    let digest = room.gate(&proposal).await["open"]["assessment"]["digest"].clone();
    let nested = |levels: usize| {
        let value: Value =
            serde_json::from_str(&("[".repeat(levels) + &"]".repeat(levels))).unwrap();
        let mut edit = edit("touch b", digest.as_str().unwrap());
        edit["arguments"]["more"] = value;
        edit
    };
    let path = format!("/api/sessions/{ROOM}/gates/{proposal}/amend");
    let before = room.log();
    // In the record it is three levels down: envelope, payload, arguments.
    let sentence = room.ann.api.post(&path, nested(62)).await.refused(400);
    assert_eq!(
        sentence,
        said(INVALID_MESSAGE, "JSON is nested deeper than 63 levels")
    );
    assert_eq!(room.log(), before);
    assert_eq!(
        room.ann.api.post(&path, nested(61)).await.ok()["gate"]["status"],
        "open"
    );
    room.agent.settle().await;
}
