//! Votes and edits that do not count and change nothing.

use serde_json::{Value, json};

use crate::fixture::{ApiFixture, SESSION, amend_body, approve_vote, reject_vote};

const INVALID_MESSAGE: &str = "INVALID_MESSAGE";
const INVALID_STATE: &str = "INVALID_STATE";
const UNAUTHORIZED: &str = "UNAUTHORIZED";

fn refusal(code: &str, message: &str) -> (String, String) {
    (code.to_owned(), message.to_owned())
}

#[tokio::test]
async fn a_vote_that_does_not_count_changes_nothing() {
    let mut fixture =
        ApiFixture::new(json!({ "default_gate_quorum": { "type": "any", "count": 2 } })).await;
    let proposal = fixture.propose("touch a").await;
    let own = json!({ "id": "own", "type": "shell.exec", "payload": { "command": "rm -r a" } });
    fixture
        .ann
        .api
        .send_envelope(SESSION, own)
        .await
        .expect_ok();
    let before = fixture.log();
    let lacks = "you need the capability `approve`; ask an admin for a role that has it";
    let changed = "the command was edited since you saw it; look again and vote with its digest";
    let both = json!({ "vote": "reject", "reason": "r", "comment": "c" });
    let stale = json!({ "vote": "approve", "digest": "0".repeat(64) });
    let long = json!({ "vote": "approve", "comment": "c".repeat(4097) });
    for (user, gate, ballot, status, code, sentence) in [
        (
            &fixture.bot,
            proposal.as_str(),
            approve_vote(),
            403,
            UNAUTHORIZED,
            "agents do not vote; a person has to decide",
        ),
        (
            &fixture.eve,
            &proposal,
            approve_vote(),
            403,
            UNAUTHORIZED,
            lacks,
        ),
        (
            &fixture.eve,
            &proposal,
            reject_vote("r"),
            403,
            UNAUTHORIZED,
            lacks,
        ),
        (
            &fixture.ann,
            "own",
            approve_vote(),
            403,
            UNAUTHORIZED,
            "you cannot vote on your own command",
        ),
        (
            &fixture.ann,
            &proposal,
            json!({ "vote": "reject" }),
            400,
            INVALID_MESSAGE,
            "a rejection needs a `reason`; the agent reads it",
        ),
        (
            &fixture.ann,
            &proposal,
            json!({ "vote": "approve", "reason": "r" }),
            400,
            INVALID_MESSAGE,
            "an approval has a `comment`, not a `reason`",
        ),
        (
            &fixture.ann,
            &proposal,
            both,
            400,
            INVALID_MESSAGE,
            "a rejection has a `reason`, not a `comment`",
        ),
        (&fixture.ann, &proposal, stale, 409, INVALID_STATE, changed),
        (
            &fixture.ann,
            &proposal,
            long,
            400,
            INVALID_MESSAGE,
            "`comment` is at most 4096 bytes",
        ),
    ] {
        let answer = user.api.vote(SESSION, gate, ballot.clone()).await;
        assert_eq!(
            answer.expect_refusal(status),
            refusal(code, sentence),
            "{ballot}"
        );
        assert_eq!(fixture.log(), before, "{ballot}");
    }
    for ballot in [
        json!({}),
        json!({ "vote": "perhaps" }),
        json!({ "vote": "approve", "digest": "00" }),
        json!({ "vote": "approve", "id": "not an id" }),
        json!({ "vote": "approve", "approver": fixture.bob.id() }),
    ] {
        assert_eq!(
            fixture
                .ann
                .api
                .vote(SESSION, &proposal, ballot)
                .await
                .expect_refusal(400)
                .0,
            INVALID_MESSAGE
        );
        assert_eq!(fixture.log(), before);
    }
}

#[tokio::test]
async fn after_an_edit_only_votes_on_the_edited_command_count() {
    let mut fixture = ApiFixture::new(json!({ "four_eyes": true })).await;
    let proposal = fixture.propose("touch a").await;
    let first = fixture.gate(&proposal).await["open"]["assessment"]["digest"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/api/sessions/{SESSION}/gates/{proposal}/amend");
    // Edits without the right to edit, of gates that do not exist, and without a change.
    let before = fixture.log();
    let changed = "the command was edited since you saw it; look again and vote with its digest";
    let wrong = fixture
        .ann
        .api
        .post(&path, amend_body("touch b", &"0".repeat(64)))
        .await;
    assert_eq!(wrong.expect_refusal(409), refusal(INVALID_STATE, changed));
    assert_eq!(
        fixture
            .eve
            .api
            .post(&path, amend_body("touch b", &first))
            .await
            .status,
        403
    );
    assert_eq!(fixture.log(), before);

    let mut wanted = amend_body("touch b", &first);
    wanted["reason"] = json!("better");
    wanted["id"] = json!("edit-1");
    let edited = fixture
        .ann
        .api
        .post(&path, wanted.clone())
        .await
        .expect_ok();
    let gate = &edited["gate"]["open"];
    assert_eq!(
        gate["action"],
        json!({ "command": { "form": "shell", "line": "touch b" }, "mode": "normal" })
    );
    assert_eq!(gate["amended_by"], fixture.ann.id());
    assert_eq!(
        gate["may_vote"], false,
        "who edits does not vote with four eyes"
    );
    let second = gate["assessment"]["digest"].clone();
    assert_ne!(second, json!(first));
    // The same edit again returns the one that was made.
    let again = fixture.ann.api.post(&path, wanted).await.expect_ok();
    assert_eq!(
        again["ack"],
        json!({ "id": "edit-1", "seq": edited["ack"]["seq"], "duplicate": true })
    );

    let before = fixture.log();
    for ballot in [
        approve_vote(),
        reject_vote("r"),
        json!({ "vote": "approve", "digest": first }),
    ] {
        let answer = fixture.bob.api.vote(SESSION, &proposal, ballot).await;
        assert_eq!(answer.expect_refusal(409), refusal(INVALID_STATE, changed));
    }
    let answer = fixture
        .ann
        .api
        .vote(
            SESSION,
            &proposal,
            json!({ "vote": "approve", "digest": second }),
        )
        .await;
    let sentence = "you edited this command, so you cannot vote on it: the session has `four_eyes`";
    assert_eq!(answer.expect_refusal(403), refusal(UNAUTHORIZED, sentence));
    assert_eq!(fixture.log(), before);
    let ballot = json!({ "vote": "approve", "digest": second });
    assert_eq!(
        fixture
            .bob
            .api
            .vote(SESSION, &proposal, ballot)
            .await
            .expect_ok()["gate"]["status"],
        "approved"
    );
    let execute = fixture.agent.wait_for("tool.execute").await;
    assert_eq!(
        execute["payload"]["grant"]["action"]["command"]["line"],
        "touch b"
    );
}

#[tokio::test]
async fn a_closed_gate_accepts_no_vote_and_no_edit() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let proposal = fixture.propose("touch a").await;
    let digest = fixture.gate(&proposal).await["open"]["assessment"]["digest"]
        .as_str()
        .unwrap()
        .to_owned();
    let vote = json!({ "vote": "reject", "reason": "not today", "id": "vote-1" });
    let closed = fixture
        .bob
        .api
        .vote(SESSION, &proposal, vote.clone())
        .await
        .expect_ok();
    assert_eq!(closed["gate"]["status"], "rejected");
    let before = fixture.log();
    let sentence = "the gate is closed: the proposal is rejected";
    for ballot in [approve_vote(), reject_vote("r")] {
        let answer = fixture.ann.api.vote(SESSION, &proposal, ballot).await;
        assert_eq!(answer.expect_refusal(409), refusal(INVALID_STATE, sentence));
    }
    let path = format!("/api/sessions/{SESSION}/gates/{proposal}/amend");
    let answer = fixture
        .ann
        .api
        .post(&path, amend_body("touch b", &digest))
        .await;
    assert_eq!(answer.expect_refusal(409), refusal(INVALID_STATE, sentence));
    // Repeating the vote that closed the gate still returns that vote.
    let again = fixture
        .bob
        .api
        .vote(SESSION, &proposal, vote)
        .await
        .expect_ok();
    assert_eq!(
        again["ack"],
        json!({ "id": "vote-1", "seq": closed["ack"]["seq"], "duplicate": true })
    );
    assert_eq!(again["gate"], closed["gate"]);
    assert_eq!(fixture.log(), before);
}

#[tokio::test]
async fn an_edit_may_not_be_nested_deeper_than_a_message() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let proposal = fixture.propose("touch a").await;
    let digest = fixture.gate(&proposal).await["open"]["assessment"]["digest"].clone();
    let nested = |levels: usize| {
        let value: Value =
            serde_json::from_str(&("[".repeat(levels) + &"]".repeat(levels))).unwrap();
        let mut edit = amend_body("touch b", digest.as_str().unwrap());
        edit["arguments"]["more"] = value;
        edit
    };
    let path = format!("/api/sessions/{SESSION}/gates/{proposal}/amend");
    let before = fixture.log();
    // In the log it is three levels deeper: envelope, payload, arguments.
    let sentence = fixture
        .ann
        .api
        .post(&path, nested(62))
        .await
        .expect_refusal(400);
    assert_eq!(
        sentence,
        refusal(INVALID_MESSAGE, "JSON is nested deeper than 63 levels")
    );
    assert_eq!(fixture.log(), before);
    assert_eq!(
        fixture.ann.api.post(&path, nested(61)).await.expect_ok()["gate"]["status"],
        "open"
    );
    fixture.agent.sync().await;
}
