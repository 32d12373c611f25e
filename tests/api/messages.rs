//! Reading a session over HTTP: the same messages in the same order as on the socket, and no
//! others.

use serde_json::{Value, json};

use crate::fixture::{ApiFixture, ApiUser, SESSION, approve_vote, context_payload, message_ids};
use crate::http_client::{HttpTestClient, log_entries};
use crate::support::TestUser;

#[tokio::test]
async fn all_pages_together_equal_what_the_socket_delivers() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let mut socket = fixture.server.join(SESSION, &fixture.eve.user).await;
    for number in 0..7 {
        let proposal = fixture.propose(&format!("touch {number}")).await;
        fixture
            .bob
            .api
            .vote(SESSION, &proposal, approve_vote())
            .await
            .expect_ok();
        fixture
            .send_output(&proposal, "stdout", "π ☃ \u{1f600} \"\\ \u{7}\n")
            .await;
        fixture.send_result(&proposal, 0).await;
    }
    socket.sync().await;
    let received = log_entries(&socket.received);
    assert_eq!(received, fixture.log());
    for limit in [1, 2, 3, 7, 1000] {
        assert_eq!(
            fixture.eve.api.read_whole_log(SESSION, limit).await,
            received,
            "limit {limit}"
        );
    }
    let path = format!("/api/sessions/{SESSION}/messages");
    let head = received.len() as u64;
    let page = |after: u64, upto: u64| {
        let messages = &received[after as usize..upto as usize];
        json!({ "messages": messages, "next": upto, "head": head })
    };
    for (query, expected) in [
        ("", page(0, head)),
        ("?after=5&limit=2", page(5, 7)),
        ("?limit=0", page(0, 1)),
        ("?limit=18446744073709551615", page(0, head)),
        ("?after=0&limit=1&wait=60", page(0, 1)),
    ] {
        assert_eq!(
            fixture
                .eve
                .api
                .get(&format!("{path}{query}"))
                .await
                .expect_ok(),
            expected,
            "{query}"
        );
    }
    for after in [head, head + 1, u64::MAX] {
        let page = fixture
            .eve
            .api
            .get(&format!("{path}?after={after}"))
            .await
            .expect_ok();
        assert_eq!(page, json!({ "messages": [], "next": after, "head": head }));
    }
    // The published transcript is the same log in another format.
    let transcript = fixture
        .eve
        .api
        .get(&format!("/sessions/{SESSION}/transcript"))
        .await
        .expect_ok();
    assert_eq!(
        transcript,
        json!({ "sessionId": SESSION, "count": head, "messages": received })
    );
    let some = fixture
        .eve
        .api
        .get(&format!(
            "/sessions/{SESSION}/transcript?after=3&messages=tool.result"
        ))
        .await
        .expect_ok();
    let results: Vec<_> = received[3..]
        .iter()
        .filter(|message| message["type"] == "tool.result")
        .collect();
    assert_eq!(
        some,
        json!({ "sessionId": SESSION, "count": 7, "messages": results })
    );
}

#[tokio::test]
async fn a_page_has_100_messages_by_default_and_at_most_1000() {
    let fast = [
        ("PVP_MESSAGES_PER_SECOND", "1000000"),
        ("PVP_MESSAGE_BURST", "1000000"),
    ];
    let mut fixture = ApiFixture::with_env(json!({}), &fast).await;
    let mut sent = Vec::new();
    for number in 0..1100 {
        sent.push(
            fixture
                .agent
                .send("context.add", context_payload(&format!("k{number}")))
                .await,
        );
    }
    for id in &sent {
        fixture.agent.expect_ack(id).await;
    }
    let path = format!("/api/sessions/{SESSION}/messages");
    let count = async |query: &str| {
        let page = fixture
            .eve
            .api
            .get(&format!("{path}{query}"))
            .await
            .expect_ok();
        (
            page["messages"].as_array().unwrap().len(),
            page["next"].as_u64().unwrap(),
        )
    };
    assert_eq!(count("").await, (100, 100));
    assert_eq!(count("?limit=5000").await, (1000, 1000));
    assert_eq!(
        fixture.eve.api.read_whole_log(SESSION, 400).await,
        fixture.log()
    );
}

/// The types of the messages that contain a word, read in pages of one, of many, and on the socket.
async fn types_containing(api: &HttpTestClient, word: &str) -> Vec<String> {
    let small = api.read_whole_log(SESSION, 1).await;
    assert_eq!(small, api.read_whole_log(SESSION, 1000).await);
    let with_word = small
        .iter()
        .filter(|message| message.to_string().contains(word));
    with_word
        .map(|message| message["type"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn restricted_entries_are_returned_to_their_audience_and_skipped_for_others() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let to_bob = json!({ "key": "plum", "content_type": "text", "content": "c", "visible_to": [fixture.bob.id()] });
    fixture
        .ann
        .api
        .send_message(SESSION, "context.add", to_bob)
        .await
        .expect_ok();
    let me = fixture.bot.id().to_owned();
    let start = json!({ "agent": me, "prompt_ref": "kiwi", "visible_to": "approvers_only" });
    fixture.agent.send_and_ack("thinking.start", start).await;
    fixture
        .agent
        .send_and_ack("thinking.chunk", json!({ "text": "kiwi" }))
        .await;
    let head = fixture
        .agent
        .send_and_ack("thinking.end", json!({ "summary": "kiwi" }))
        .await;
    let thinking = ["thinking.start", "thinking.chunk", "thinking.end"];
    assert_eq!(
        types_containing(&fixture.ann.api, "plum").await,
        ["context.add"]
    );
    assert_eq!(
        types_containing(&fixture.bob.api, "plum").await,
        ["context.add"]
    );
    assert_eq!(types_containing(&fixture.ann.api, "kiwi").await, thinking);
    assert_eq!(types_containing(&fixture.bob.api, "kiwi").await, thinking);
    assert_eq!(types_containing(&fixture.bot.api, "kiwi").await, thinking);
    for user in [&fixture.eve, &fixture.bot] {
        assert_eq!(
            types_containing(&user.api, "plum").await,
            Vec::<String>::new()
        );
    }
    assert_eq!(
        types_containing(&fixture.eve.api, "kiwi").await,
        Vec::<String>::new()
    );
    // An approver who is absent or has left does not see what is for approvers; one who is named
    // still does.
    let pat = ApiUser::invite(&fixture.server, "pat", &["approver"]).await;
    assert_eq!(
        types_containing(&pat.api, "kiwi").await,
        Vec::<String>::new()
    );
    fixture
        .bob
        .api
        .send_message(SESSION, "session.leave", json!({}))
        .await
        .expect_ok();
    assert_eq!(
        types_containing(&fixture.bob.api, "kiwi").await,
        Vec::<String>::new()
    );
    assert_eq!(
        types_containing(&fixture.bob.api, "plum").await,
        ["context.add"]
    );
    // An empty page still says how far it read.
    let path = format!(
        "/api/sessions/{SESSION}/messages?limit=3&after={}",
        head - 3
    );
    let page = fixture.eve.api.get(&path).await.expect_ok();
    assert_eq!(
        page,
        json!({ "messages": [], "next": head, "head": head + 1 })
    );
    let gone = [&fixture.eve.api, &pat.api];
    for api in gone {
        let transcript = api.get(&format!("/sessions/{SESSION}/transcript")).await;
        assert!(!transcript.text.contains("kiwi") && !transcript.text.contains("plum"));
    }
}

#[tokio::test]
async fn only_the_executors_token_reads_the_executors_copy() {
    const VALUE: &str = "s3cr3t-VALUE";
    let mut fixture = ApiFixture::new(json!({})).await;
    let share = json!({ "key": "API_KEY", "scope": [fixture.bot.id()], "value_ref": "env:API_KEY", "value": VALUE });
    fixture
        .ann
        .api
        .send_message(SESSION, "secret.share", share)
        .await
        .expect_ok();
    let mut propose = fixture.agent.proposal("touch a");
    propose["arguments"]["secrets"] = json!(["API_KEY"]);
    let proposal = fixture.agent.send("tool.propose", propose).await;
    fixture.agent.expect_ack(&proposal).await;
    fixture
        .bob
        .api
        .vote(SESSION, &proposal, approve_vote())
        .await
        .expect_ok();
    let own = fixture.agent.wait_for("tool.execute").await;
    let execute = |messages: Vec<Value>| {
        messages
            .into_iter()
            .find(|m| m["type"] == "tool.execute")
            .unwrap()
    };
    assert_eq!(
        execute(fixture.bot.api.read_whole_log(SESSION, 100).await),
        own
    );
    assert_eq!(
        own["payload"]["grant"]["secret_env"],
        json!({ "API_KEY": VALUE })
    );
    assert!(own["payload"]["grant"]["nonce"].is_string());
    let public = log_entries(&[own]).remove(0);
    let other = fixture
        .server
        .invite("spy", &["driver"], &["--kind", "agent"]);
    let other = ApiUser::with_user(&fixture.server, other).await;
    other.join(SESSION).await;
    let admin = ApiUser::with_user(&fixture.server, fixture.server.admin()).await;
    for user in [&fixture.ann, &fixture.bob, &fixture.eve, &other, &admin] {
        let messages = user.api.read_whole_log(SESSION, 100).await;
        assert!(!json!(messages).to_string().contains(VALUE));
        assert_eq!(execute(messages), public);
    }
    for path in ["history", "gates", "messages"] {
        let answer = fixture
            .eve
            .api
            .get(&format!("/api/sessions/{SESSION}/{path}"))
            .await;
        assert!(
            !answer.text.contains(VALUE) && !answer.text.contains("nonce"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_state_of_a_session_is_complete() {
    let mut fixture = ApiFixture::new(json!({ "shell_exec": "gated" })).await;
    let waiting = fixture.propose("touch a").await;
    let running = fixture.propose("ls -la").await;
    let state = fixture
        .eve
        .api
        .get(&format!("/api/sessions/{SESSION}"))
        .await
        .expect_ok();
    let person = |user: &TestUser, transport: &str| {
        let mut person = user.announce();
        person["transport"] = json!(transport);
        person["presence"] = json!("active");
        person
    };
    let names = [&fixture.ann, &fixture.bob, &fixture.eve].map(|one| person(&one.user, "http"));
    let mut people: Vec<_> = names
        .into_iter()
        .chain([person(&fixture.bot.user, "websocket")])
        .collect();
    for person in &mut people {
        let name = person["id"]
            .as_str()
            .unwrap()
            .split('-')
            .next()
            .unwrap()
            .to_owned();
        person["name"] = json!(name);
    }
    people.sort_by_key(|person| person["id"].to_string());
    assert_eq!(state["people"], json!(people));
    let gates = fixture
        .eve
        .api
        .get(&format!("/api/sessions/{SESSION}/gates"))
        .await
        .expect_ok();
    assert_eq!(state["gates"], gates["gates"]);
    assert_eq!(state["gates"][0]["request"]["action_ref"], waiting);
    let log = fixture.log();
    let execute = log
        .iter()
        .find(|entry| entry["type"] == "tool.execute")
        .unwrap();
    let expected = json!([{
        "tool_proposal": running, "executor": fixture.bot.id(), "command": "ls -la", "mode": "normal",
        "since": execute["ts"],
    }]);
    assert_eq!(state["running"], expected);
    assert_eq!(state["head"], log.len());
    assert_eq!(
        (&state["session"], &state["ended"], &state["paused"]),
        (&json!(SESSION), &json!(false), &Value::Null)
    );
    assert_eq!(state["config"], log[0]["payload"]["config"]);
    let end = json!({ "reason": "done", "final_state": "completed" });
    fixture
        .ann
        .api
        .send_message(SESSION, "session.end", end)
        .await
        .expect_ok();
    let state = fixture
        .eve
        .api
        .get(&format!("/api/sessions/{SESSION}"))
        .await
        .expect_ok();
    assert_eq!(
        (&state["ended"], &state["gates"]),
        (&json!(true), &json!([]))
    );
    let refused = fixture
        .ann
        .api
        .send_message(SESSION, "context.add", context_payload("k"))
        .await
        .expect_refusal(409);
    assert_eq!(
        refused.1,
        "session `room` has ended; nothing more can happen in it"
    );
    assert_eq!(
        message_ids(&fixture.eve.api.read_whole_log(SESSION, 100).await),
        message_ids(&fixture.log())
    );
}
