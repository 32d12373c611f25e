//! The hash chain, as a client checks it.

use pvp_protocol::{SessionId, Timestamp, hex};
use pvp_server::store::{Checkpoint, Hash, chain_hash, genesis_hash};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::fixture::{ApiFixture, ApiUser, SESSION, approve_vote, context_payload};

/// A page of messages, each byte for byte.
#[derive(Deserialize)]
struct RawPage {
    messages: Vec<Box<RawValue>>,
}

async fn chain(user: &ApiUser, query: &str) -> Value {
    let path = format!("/api/sessions/{SESSION}/chain{query}");
    user.api.get(&path).await.expect_ok()
}

/// The bytes of the messages that a user may see, by sequence number.
async fn bodies(user: &ApiUser) -> Vec<(u64, String)> {
    let path = format!("/api/sessions/{SESSION}/messages?limit=1000");
    let page = user.api.get(&path).await.text;
    let page: RawPage = serde_json::from_str(&page).unwrap();
    let numbered = |raw: Box<RawValue>| {
        let message: Value = serde_json::from_str(raw.get()).unwrap();
        (message["seq"].as_u64().unwrap(), raw.get().to_owned())
    };
    page.messages.into_iter().map(numbered).collect()
}

fn hash_of(field: &Value) -> Hash {
    hex::decode(field.as_str().unwrap()).unwrap()
}

/// The entries without meta, after checking every other one against the messages.
async fn unchecked_entries(user: &ApiUser, page: &Value) -> Vec<u64> {
    let bodies = bodies(user).await;
    let mut previous = genesis_hash(&SessionId::parse(SESSION).unwrap());
    let mut unchecked = Vec::new();
    for (number, entry) in (1..).zip(page["entries"].as_array().unwrap()) {
        assert_eq!(entry["seq"], number);
        let hash = hash_of(&entry["hash"]);
        match entry.get("meta").and_then(Value::as_str) {
            None => unchecked.push(number),
            Some(meta) => {
                let (_, body) = bodies.iter().find(|(seq, _)| *seq == number).unwrap();
                let computed = chain_hash(&previous, meta.as_bytes(), body.as_bytes());
                assert_eq!(computed, hash, "entry {number}");
            }
        }
        previous = hash;
    }
    unchecked
}

fn checkpoint(page: &Value) -> Checkpoint {
    let checkpoint = &page["checkpoint"];
    let at: Timestamp = serde_json::from_value(checkpoint["at"].clone()).unwrap();
    let signature = checkpoint["signature"].as_str().unwrap();
    let (first, second) = signature.split_at(64);
    let halves: [Hash; 2] = [first, second].map(|half| hex::decode(half).unwrap());
    Checkpoint {
        seq: checkpoint["seq"].as_u64().unwrap(),
        hash: hash_of(&checkpoint["hash"]),
        at,
        snapshot: checkpoint.get("snapshot").map(hash_of),
        key: hash_of(&checkpoint["key"]),
        signature: halves.concat().try_into().unwrap(),
    }
}

#[tokio::test]
async fn a_reader_can_check_the_chain_and_its_signature() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let proposal = fixture.propose("touch a").await;
    let vote = format!("/api/sessions/{SESSION}/gates/{proposal}/vote");
    fixture
        .bob
        .api
        .post(&vote, approve_vote())
        .await
        .expect_ok();
    let log = fixture.log();
    let grant = log.iter().find(|entry| entry["type"] == "tool.execute");
    let grant = grant.unwrap()["seq"].as_u64().unwrap();

    let during = chain(&fixture.bob, "").await;
    assert_eq!(
        unchecked_entries(&fixture.bob, &during).await,
        [grant],
        "a grant that can be used is known by its hash alone"
    );
    assert!(!during.to_string().contains("nonce"), "{during}");

    fixture.send_result(&proposal, 0).await;
    let after = chain(&fixture.bob, "").await;
    assert_eq!(unchecked_entries(&fixture.bob, &after).await, [0_u64; 0]);
    let signed = checkpoint(&after);
    assert!(signed.is_signed(&SessionId::parse(SESSION).unwrap()));
    let head = after["entries"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (signed.seq, signed.hash),
        (after["head"].as_u64().unwrap(), hash_of(&head["hash"]))
    );
    let path = format!("/api/sessions/{SESSION}/head");
    let known = fixture.bob.api.get(&path).await.expect_ok();
    assert_eq!(hash_of(&known["key"]), signed.key);
    assert_eq!(hash_of(&known["head"]["hash"]), signed.hash);
}

#[tokio::test]
async fn what_a_reader_may_not_see_is_there_by_its_hash() {
    let fixture = ApiFixture::new(json!({})).await;
    let mut private = context_payload("plum");
    private["visible_to"] = json!([fixture.bob.id()]);
    let sent = fixture
        .ann
        .api
        .send_message(SESSION, "context.add", private);
    let seq = sent.await.expect_ok()["seq"].as_u64().unwrap();
    let sees = async |user: &ApiUser| unchecked_entries(user, &chain(user, "").await).await;
    assert_eq!(sees(&fixture.bob).await, [0_u64; 0]);
    assert_eq!(sees(&fixture.eve).await, [seq]);
}

#[tokio::test]
async fn the_chain_comes_in_pages_without_gaps() {
    let fixture = ApiFixture::new(json!({})).await;
    let whole = chain(&fixture.eve, "").await;
    let mut entries = Vec::new();
    let mut after = 0;
    while after < whole["head"].as_u64().unwrap() {
        let page = chain(&fixture.eve, &format!("?after={after}&limit=2")).await;
        after = page["next"].as_u64().unwrap();
        assert!(checkpoint(&page).seq <= after);
        entries.extend(page["entries"].as_array().unwrap().clone());
    }
    assert_eq!(json!(entries), whole["entries"]);
    let end = chain(&fixture.eve, &format!("?after={}", u64::MAX)).await;
    assert_eq!(
        (&end["entries"], &end["next"]),
        (&json!([]), &json!(u64::MAX))
    );
}
