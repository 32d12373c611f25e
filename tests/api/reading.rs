//! Reading a session: the same messages in the same order as on the socket, and no others.

use serde_json::{Value, json};

use crate::http::{Api, kept};
use crate::kit::Invited;
use crate::room::{ROOM, Room, Someone, approve, context, ids};

#[tokio::test]
async fn pages_put_together_are_what_the_socket_tells() {
    let mut room = Room::open(json!({})).await;
    let mut socket = room.server.join(ROOM, &room.eve.who).await;
    for number in 0..7 {
        let proposal = room.propose(&format!("touch {number}")).await;
        room.bob.api.vote(ROOM, &proposal, approve()).await.ok();
        room.print(&proposal, "stdout", "π ☃ \u{1f600} \"\\ \u{7}\n")
            .await;
        room.finish(&proposal, 0).await;
    }
    socket.settle().await;
    let told = kept(&socket.received);
    assert_eq!(told, room.log());
    for limit in [1, 2, 3, 7, 1000] {
        assert_eq!(room.eve.api.whole(ROOM, limit).await, told, "limit {limit}");
    }
    let path = format!("/api/sessions/{ROOM}/messages");
    let head = told.len() as u64;
    let page = |after: u64, upto: u64| {
        let messages = &told[after as usize..upto as usize];
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
            room.eve.api.get(&format!("{path}{query}")).await.ok(),
            expected,
            "{query}"
        );
    }
    for after in [head, head + 1, u64::MAX] {
        let page = room
            .eve
            .api
            .get(&format!("{path}?after={after}"))
            .await
            .ok();
        assert_eq!(page, json!({ "messages": [], "next": after, "head": head }));
    }
    // The published transcript is the same log in another wrapping.
    let transcript = room
        .eve
        .api
        .get(&format!("/sessions/{ROOM}/transcript"))
        .await
        .ok();
    assert_eq!(
        transcript,
        json!({ "sessionId": ROOM, "count": head, "messages": told })
    );
    let some = room
        .eve
        .api
        .get(&format!(
            "/sessions/{ROOM}/transcript?after=3&messages=tool.result"
        ))
        .await
        .ok();
    let results: Vec<_> = told[3..]
        .iter()
        .filter(|message| message["type"] == "tool.result")
        .collect();
    assert_eq!(
        some,
        json!({ "sessionId": ROOM, "count": 7, "messages": results })
    );
}

#[tokio::test]
async fn a_page_is_at_most_a_hundred_unless_asked_and_never_over_a_thousand() {
    let fast = [
        ("PVP_MESSAGES_PER_SECOND", "1000000"),
        ("PVP_MESSAGE_BURST", "1000000"),
    ];
    let mut room = Room::with(json!({}), &fast).await;
    let mut sent = Vec::new();
    for number in 0..1100 {
        sent.push(
            room.agent
                .send("context.add", context(&format!("k{number}")))
                .await,
        );
    }
    for id in &sent {
        room.agent.acked(id).await;
    }
    let path = format!("/api/sessions/{ROOM}/messages");
    let count = async |query: &str| {
        let page = room.eve.api.get(&format!("{path}{query}")).await.ok();
        (
            page["messages"].as_array().unwrap().len(),
            page["next"].as_u64().unwrap(),
        )
    };
    assert_eq!(count("").await, (100, 100));
    assert_eq!(count("?limit=5000").await, (1000, 1000));
    assert_eq!(room.eve.api.whole(ROOM, 400).await, room.log());
}

/// What someone sees of a word, in pages of one, of many, and as a watcher on the socket.
async fn sees(api: &Api, word: &str) -> Vec<String> {
    let small = api.whole(ROOM, 1).await;
    assert_eq!(small, api.whole(ROOM, 1000).await);
    let with_word = small
        .iter()
        .filter(|message| message.to_string().contains(word));
    with_word
        .map(|message| message["type"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn what_is_for_some_is_given_to_them_and_skipped_for_others() {
    let mut room = Room::open(json!({})).await;
    let to_bob = json!({ "key": "plum", "content_type": "text", "content": "c", "visible_to": [room.bob.id()] });
    room.ann.api.tell(ROOM, "context.add", to_bob).await.ok();
    let me = room.bot.id().to_owned();
    let start = json!({ "agent": me, "prompt_ref": "kiwi", "visible_to": "approvers_only" });
    room.agent.say("thinking.start", start).await;
    room.agent
        .say("thinking.chunk", json!({ "text": "kiwi" }))
        .await;
    let head = room
        .agent
        .say("thinking.end", json!({ "summary": "kiwi" }))
        .await;
    let thinking = ["thinking.start", "thinking.chunk", "thinking.end"];
    assert_eq!(sees(&room.ann.api, "plum").await, ["context.add"]);
    assert_eq!(sees(&room.bob.api, "plum").await, ["context.add"]);
    assert_eq!(sees(&room.ann.api, "kiwi").await, thinking);
    assert_eq!(sees(&room.bob.api, "kiwi").await, thinking);
    assert_eq!(sees(&room.bot.api, "kiwi").await, thinking);
    for who in [&room.eve, &room.bot] {
        assert_eq!(sees(&who.api, "plum").await, Vec::<String>::new());
    }
    assert_eq!(sees(&room.eve.api, "kiwi").await, Vec::<String>::new());
    // An approver who is not there, or left, is nobody's audience; who is named still is.
    let pat = Someone::invited(&room.server, "pat", &["approver"]).await;
    assert_eq!(sees(&pat.api, "kiwi").await, Vec::<String>::new());
    room.bob
        .api
        .tell(ROOM, "session.leave", json!({}))
        .await
        .ok();
    assert_eq!(sees(&room.bob.api, "kiwi").await, Vec::<String>::new());
    assert_eq!(sees(&room.bob.api, "plum").await, ["context.add"]);
    // An answer with nothing in it still says how far it looked.
    let path = format!("/api/sessions/{ROOM}/messages?limit=3&after={}", head - 3);
    let page = room.eve.api.get(&path).await.ok();
    assert_eq!(
        page,
        json!({ "messages": [], "next": head, "head": head + 1 })
    );
    let gone = [&room.eve.api, &pat.api];
    for api in gone {
        let transcript = api.get(&format!("/sessions/{ROOM}/transcript")).await;
        assert!(!transcript.text.contains("kiwi") && !transcript.text.contains("plum"));
    }
}

#[tokio::test]
async fn only_the_executors_token_reads_the_copy_that_may_be_acted_on() {
    const VALUE: &str = "s3cr3t-VALUE";
    let mut room = Room::open(json!({})).await;
    let share = json!({ "key": "API_KEY", "scope": [room.bot.id()], "value_ref": "env:API_KEY", "value": VALUE });
    room.ann.api.tell(ROOM, "secret.share", share).await.ok();
    let proposal = room.propose("touch a").await;
    room.bob.api.vote(ROOM, &proposal, approve()).await.ok();
    let own = room.agent.wait_for("tool.execute").await;
    let execute = |messages: Vec<Value>| {
        messages
            .into_iter()
            .find(|m| m["type"] == "tool.execute")
            .unwrap()
    };
    assert_eq!(execute(room.bot.api.whole(ROOM, 100).await), own);
    assert_eq!(
        own["payload"]["grant"]["secret_env"],
        json!({ "API_KEY": VALUE })
    );
    assert!(own["payload"]["grant"]["nonce"].is_string());
    let public = kept(&[own]).remove(0);
    let other = room.server.invite("spy", &["driver"], &["--kind", "agent"]);
    let other = Someone::from(&room.server, other).await;
    other.join(ROOM).await;
    let admin = Someone::from(&room.server, room.server.admin()).await;
    for who in [&room.ann, &room.bob, &room.eve, &other, &admin] {
        let messages = who.api.whole(ROOM, 100).await;
        assert!(!json!(messages).to_string().contains(VALUE));
        assert_eq!(execute(messages), public);
    }
    for path in ["history", "gates", "messages"] {
        let answer = room
            .eve
            .api
            .get(&format!("/api/sessions/{ROOM}/{path}"))
            .await;
        assert!(
            !answer.text.contains(VALUE) && !answer.text.contains("nonce"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_state_of_a_session_is_told_whole() {
    let mut room = Room::open(json!({ "shell_exec": "gated" })).await;
    let waiting = room.propose("touch a").await;
    let running = room.propose("ls -la").await;
    let state = room
        .eve
        .api
        .get(&format!("/api/sessions/{ROOM}"))
        .await
        .ok();
    let person = |who: &Invited, transport: &str| {
        let mut person = who.announce();
        person["transport"] = json!(transport);
        person["presence"] = json!("active");
        person
    };
    let names = [&room.ann, &room.bob, &room.eve].map(|one| person(&one.who, "http"));
    let mut people: Vec<_> = names
        .into_iter()
        .chain([person(&room.bot.who, "websocket")])
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
    let gates = room
        .eve
        .api
        .get(&format!("/api/sessions/{ROOM}/gates"))
        .await
        .ok();
    assert_eq!(state["gates"], gates["gates"]);
    assert_eq!(state["gates"][0]["request"]["action_ref"], waiting);
    let log = room.log();
    let execute = log
        .iter()
        .find(|entry| entry["type"] == "tool.execute")
        .unwrap();
    let expected = json!([{
        "tool_proposal": running, "executor": room.bot.id(), "command": "ls -la", "mode": "normal",
        "since": execute["ts"],
    }]);
    assert_eq!(state["running"], expected);
    assert_eq!(state["head"], log.len());
    assert_eq!(
        (&state["session"], &state["ended"], &state["paused"]),
        (&json!(ROOM), &json!(false), &Value::Null)
    );
    assert_eq!(state["config"], log[0]["payload"]["config"]);
    let end = json!({ "reason": "done", "final_state": "completed" });
    room.ann.api.tell(ROOM, "session.end", end).await.ok();
    let state = room
        .eve
        .api
        .get(&format!("/api/sessions/{ROOM}"))
        .await
        .ok();
    assert_eq!(
        (&state["ended"], &state["gates"]),
        (&json!(true), &json!([]))
    );
    let refused = room
        .ann
        .api
        .tell(ROOM, "context.add", context("k"))
        .await
        .refused(409);
    assert_eq!(
        refused.1,
        "session `room` has ended; nothing more can happen in it"
    );
    assert_eq!(ids(&room.eve.api.whole(ROOM, 100).await), ids(&room.log()));
}
