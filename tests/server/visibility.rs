//! Entries that a participant may not see never reach them: live, in history, after a resume or
//! over HTTP; secret values reach only the executor.

use std::path::Path;

use crate::support::{TestClient, TestServer, TestUser};
use serde_json::{Value, json};

/// Whether any received message contains this word.
fn has_received(client: &TestClient, word: &str) -> bool {
    client
        .received
        .iter()
        .any(|message| message.to_string().contains(word))
}

/// Whether a user finds a word by joining with history, by resuming, and in the transcript.
async fn finds_by_each_route(
    server: &TestServer,
    session: &str,
    user: &TestUser,
    word: &str,
) -> [bool; 3] {
    let mut found = [false; 3];
    for (way, join) in [json!({ "history": 1000 }), json!({ "after": 1 })]
        .into_iter()
        .enumerate()
    {
        let mut client = server.connect(user).await;
        client.join(session, user, join).await;
        client.sync().await;
        found[way] = has_received(&client, word);
    }
    let transcript = server.transcript(session, user).await;
    found[2] = transcript
        .iter()
        .any(|message| message.to_string().contains(word));
    found
}

const EVERYWHERE: [bool; 3] = [true; 3];
const NOWHERE: [bool; 3] = [false; 3];

struct VisibilityFixture {
    server: TestServer,
    ann: TestUser,
    bob: TestUser,
    eve: TestUser,
    bot: TestUser,
}

impl VisibilityFixture {
    async fn new(session: &str) -> Self {
        let server = TestServer::start(&[]).await;
        server.create_session(session, json!({})).await;
        Self {
            ann: server.invite("ann", &["driver", "approver", "admin"], &[]),
            bob: server.invite("bob", &["navigator"], &[]),
            eve: server.invite("eve", &["driver"], &[]),
            bot: server.invite("bot", &["driver"], &["--kind", "agent"]),
            server,
        }
    }
}

#[tokio::test]
async fn restricted_context_is_visible_only_to_those_it_names() {
    let fixture = VisibilityFixture::new("context").await;
    let server = &fixture.server;
    let mut ann = server.join("context", &fixture.ann).await;
    let mut bob = server.join("context", &fixture.bob).await;
    let mut eve = server.join("context", &fixture.eve).await;
    let add = json!({ "key": "plum-key", "content_type": "text", "content": "plum-one", "visible_to": [fixture.bob.participant] });
    ann.send_and_ack("context.add", add).await;
    let update = json!({ "key": "plum-key", "new_content": "plum-two", "reason": "r" });
    bob.send_and_ack("context.update", update).await;
    // For Eve it does not exist: she can neither change it nor learn of it.
    for (kind, payload) in [
        (
            "context.update",
            json!({ "key": "plum-key", "new_content": "x", "reason": "r" }),
        ),
        (
            "context.remove",
            json!({ "key": "plum-key", "reason": "r" }),
        ),
    ] {
        let id = eve.send(kind, payload).await;
        let error = eve.expect_refusal(&id).await;
        assert_eq!(error["code"], "INVALID_STATE");
        assert_eq!(error["message"], "there is no context `plum-key`");
    }
    eve.received.clear();
    eve.sync().await;
    assert!(!has_received(&eve, "plum"));
    bob.sync().await;
    assert!(has_received(&bob, "plum-one") && has_received(&bob, "plum-two"));
    for word in ["plum-one", "plum-two"] {
        assert_eq!(
            finds_by_each_route(server, "context", &fixture.ann, word).await,
            EVERYWHERE
        );
        assert_eq!(
            finds_by_each_route(server, "context", &fixture.bob, word).await,
            EVERYWHERE
        );
        assert_eq!(
            finds_by_each_route(server, "context", &fixture.eve, word).await,
            NOWHERE
        );
    }

    // A higher role does not reveal what was addressed to others.
    let me = &fixture.ann.participant;
    let promote = json!({ "participant": fixture.eve.participant, "old_roles": ["driver"], "new_roles": ["admin"], "changed_by": me });
    ann.send_and_ack("participant.role_change", promote).await;
    let add =
        json!({ "key": "plum-three", "content_type": "text", "content": "c", "visible_to": [] });
    ann.send_and_ack("context.add", add).await;
    eve.sync().await;
    assert!(!has_received(&eve, "plum"));
    assert_eq!(
        finds_by_each_route(server, "context", &fixture.eve, "plum").await,
        NOWHERE
    );
    bob.sync().await;
    assert!(
        !has_received(&bob, "plum-three"),
        "an empty list is nobody but the sender"
    );
    assert_eq!(
        finds_by_each_route(server, "context", &fixture.ann, "plum-three").await,
        EVERYWHERE
    );
    ann.send_and_ack(
        "context.remove",
        json!({ "key": "plum-key", "reason": "plum-gone" }),
    )
    .await;
    eve.sync().await;
    assert!(!has_received(&eve, "plum"));
}

#[tokio::test]
async fn thinking_is_visible_only_to_those_its_start_names() {
    let fixture = VisibilityFixture::new("thinking").await;
    let server = &fixture.server;
    let mut ann = server.join("thinking", &fixture.ann).await;
    let mut bob = server.join("thinking", &fixture.bob).await;
    let mut eve = server.join("thinking", &fixture.eve).await;
    let mut bot = server.join("thinking", &fixture.bot).await;
    for (visible_to, word) in [
        (json!("approvers_only"), "fig"),
        (json!([fixture.ann.participant]), "kiwi"),
        (json!("all"), "lime"),
    ] {
        let me = bot.participant.clone();
        bot.send_and_ack(
            "thinking.start",
            json!({ "agent": me, "prompt_ref": format!("{word}-start"), "visible_to": visible_to }),
        )
        .await;
        bot.send_and_ack("thinking.chunk", json!({ "text": format!("{word}-chunk") }))
            .await;
        bot.send_and_ack("thinking.end", json!({ "summary": format!("{word}-end") }))
            .await;
    }
    for client in [&mut ann, &mut bob, &mut eve] {
        client.sync().await;
    }
    for part in ["start", "chunk", "end"] {
        let word = |fruit: &str| format!("{fruit}-{part}");
        let receives = |client: &TestClient| {
            ["fig", "kiwi", "lime"].map(|fruit| has_received(client, &word(fruit)))
        };
        assert_eq!(receives(&ann), [true, true, true]);
        assert_eq!(receives(&bob), [true, false, true]);
        assert_eq!(receives(&eve), [false, false, true]);
    }
    assert_eq!(
        finds_by_each_route(server, "thinking", &fixture.bob, "fig-").await,
        EVERYWHERE
    );
    assert_eq!(
        finds_by_each_route(server, "thinking", &fixture.bob, "kiwi-").await,
        NOWHERE
    );
    assert_eq!(
        finds_by_each_route(server, "thinking", &fixture.eve, "fig-").await,
        NOWHERE
    );
    assert_eq!(
        finds_by_each_route(server, "thinking", &fixture.eve, "kiwi-").await,
        NOWHERE
    );
    assert_eq!(
        finds_by_each_route(server, "thinking", &fixture.eve, "lime-").await,
        EVERYWHERE
    );
    assert_eq!(
        finds_by_each_route(server, "thinking", &fixture.bot, "kiwi-").await,
        EVERYWHERE
    );

    // A participant who loses the right to approve stops seeing it at once, everywhere.
    let me = ann.participant.clone();
    let demote = json!({ "participant": fixture.bob.participant, "old_roles": ["navigator"], "new_roles": ["observer"], "changed_by": me });
    ann.send_and_ack("participant.role_change", demote).await;
    let me = bot.participant.clone();
    bot.send_and_ack(
        "thinking.start",
        json!({ "agent": me, "prompt_ref": "pear-start", "visible_to": "approvers_only" }),
    )
    .await;
    bot.send_and_ack("thinking.chunk", json!({ "text": "pear-chunk" }))
        .await;
    bob.sync().await;
    ann.sync().await;
    assert!(has_received(&ann, "pear-chunk"));
    assert!(!has_received(&bob, "pear"));
    for word in ["fig-", "pear-"] {
        assert_eq!(
            finds_by_each_route(server, "thinking", &fixture.bob, word).await,
            NOWHERE
        );
    }
    // An agent with the approver role is not an approver.
    let spy = server.invite("spy", &["approver"], &["--kind", "agent"]);
    assert_eq!(
        finds_by_each_route(server, "thinking", &spy, "pear-").await,
        NOWHERE
    );
}

/// The files of a data directory that contain this word.
fn files_containing(directory: &Path, word: &str) -> Vec<String> {
    let (found, files) = search_files(directory, word);
    assert!(files > 0, "there is something to look at");
    found
}

/// The files below a directory that contain this word, and how many files there are.
fn search_files(directory: &Path, word: &str) -> (Vec<String>, usize) {
    let mut found = Vec::new();
    let mut files = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let (found_below, files_below) = search_files(&path, word);
            found.extend(found_below);
            files += files_below;
            continue;
        }
        files += 1;
        let bytes = std::fs::read(&path).unwrap();
        if bytes
            .windows(word.len())
            .any(|part| part == word.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    (found, files)
}

const VALUE: &str = "s3cr3t-VALUE-nobody-may-read";

#[tokio::test]
async fn a_secret_value_reaches_the_executor_and_nothing_else() {
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("stderr.log");
    let store = data.path().join("store");
    let environment = [("PVP_LOG", "trace")];
    let file = std::fs::File::create(&log).unwrap();
    let server = TestServer::start_with(&store, "127.0.0.1:0", &[], &environment, Some(file)).await;
    server.create_session("secrets", json!({})).await;
    let owner = server.invite("ann", &["driver", "approver"], &[]);
    let scoped = server.invite("bob", &["observer"], &[]);
    let other = server.invite("eve", &["admin"], &[]);
    let executor = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut ann = server.join("secrets", &owner).await;
    let mut bob = server.join("secrets", &scoped).await;
    let mut eve = server.join("secrets", &other).await;
    let mut bot = server.join("secrets", &executor).await;

    let scope = json!([executor.participant, scoped.participant]);
    let share =
        json!({ "key": "API_KEY", "scope": scope, "value_ref": "env:API_KEY", "value": VALUE });
    ann.send_and_ack("secret.share", share.clone()).await;
    // Refused, misplaced and misspelt values are not stored or logged either.
    let mut bad = share.clone();
    bad["key"] = json!("not a name");
    let mut misplaced = share.clone();
    misplaced["scope"] = json!(VALUE);
    let mut number = share.clone();
    number["value"] = json!(918_273_645);
    for payload in [bad, misplaced, number] {
        let id = ann.send("secret.share", payload).await;
        assert_eq!(ann.expect_refusal(&id).await["code"], "INVALID_MESSAGE");
    }
    let id = eve.send("secret.share", share.clone()).await;
    assert_eq!(
        eve.expect_refusal(&id).await["message"],
        "the key `API_KEY` is taken"
    );

    let run = async |ann: &mut TestClient, bot: &mut TestClient| {
        let mut propose = bot.proposal("touch a");
        propose["arguments"]["secrets"] = json!(["API_KEY"]);
        let proposal = bot.send("tool.propose", propose).await;
        bot.expect_ack(&proposal).await;
        ann.approve(&proposal).await;
        let fits = |message: &Value| {
            message["type"] == "tool.execute"
                && message["payload"]["tool_proposal"] == proposal.as_str()
        };
        let execute = bot.wait(fits).await;
        (proposal, execute["payload"]["grant"]["secret_env"].clone())
    };
    let (proposal, env) = run(&mut ann, &mut bot).await;
    assert_eq!(env, json!({ "API_KEY": VALUE }));
    let stars = "*".repeat(VALUE.len());
    let output = json!({ "tool_proposal": proposal, "stream": "stdout", "text": format!("a {VALUE} b {VALUE}\n"), "complete": true });
    bot.send_and_ack("tool.output", output).await;
    let received = eve.wait_for("tool.output").await;
    assert_eq!(
        received["payload"]["text"],
        format!("a {stars} b {stars}\n")
    );
    let result = json!({ "tool_proposal": proposal, "success": false, "error": format!("no {VALUE}"), "duration_ms": 1,
        "result": { "exitCode": 1, "stdout": format!("<{VALUE}>"), "stderr": format!("{VALUE}{VALUE}") } });
    bot.send_and_ack("tool.result", result).await;
    let received = eve.wait_for("tool.result").await;
    assert_eq!(received["payload"]["error"], format!("no {stars}"));
    assert_eq!(
        received["payload"]["result"]["stdout"],
        format!("<{stars}>")
    );
    assert_eq!(
        received["payload"]["result"]["stderr"],
        format!("{stars}{stars}")
    );

    // Shared again without the executor: the value in memory follows the scope.
    let narrower =
        json!({ "key": "API_KEY", "scope": [scoped.participant], "value_ref": "env:API_KEY" });
    ann.send_and_ack("secret.share", narrower).await;
    let (_, env) = run(&mut ann, &mut bot).await;
    assert_eq!(env, Value::Null);
    let mut again = share.clone();
    again["scope"] = json!([executor.participant]);
    ann.send_and_ack("secret.share", again).await;
    let (proposal, env) = run(&mut ann, &mut bot).await;
    assert_eq!(env, json!({ "API_KEY": VALUE }));
    // Revoked while a command that has it runs: the value stays masked.
    ann.send_and_ack("secret.revoke", json!({ "key": "API_KEY", "reason": "r" }))
        .await;
    let output =
        json!({ "tool_proposal": proposal, "stream": "stderr", "text": VALUE, "complete": true });
    bot.send_and_ack("tool.output", output).await;
    let (_, env) = run(&mut ann, &mut bot).await;
    assert_eq!(env, Value::Null);

    for client in [&mut ann, &mut bob, &mut eve, &mut bot] {
        client.sync().await;
    }
    let name = "\"key\":\"API_KEY\"";
    for client in [&ann, &bob, &eve] {
        assert!(has_received(client, name), "the name is for everyone");
    }
    for user in [&other, &scoped] {
        assert_eq!(
            finds_by_each_route(&server, "secrets", user, name).await,
            EVERYWHERE
        );
    }
    for client in [&ann, &bob, &eve] {
        // The errors for Ann's own bad messages quote no value either, except the number.
        assert!(!has_received(client, VALUE) || client.participant == ann.participant);
    }
    let told_to_ann = ann
        .received
        .iter()
        .filter(|message| message["type"] != "error");
    assert!(
        !told_to_ann
            .clone()
            .any(|message| message.to_string().contains(VALUE))
    );
    for message in &mut bot.received {
        if message["type"] == "tool.execute" {
            message["payload"]["grant"]["secret_env"] = Value::Null;
        }
    }
    assert!(!has_received(&bot, VALUE), "only in the private copy");
    for user in [&owner, &scoped, &other] {
        assert_eq!(
            finds_by_each_route(&server, "secrets", user, VALUE).await,
            NOWHERE
        );
    }
    let [.., over_http] = finds_by_each_route(&server, "secrets", &executor, VALUE).await;
    assert!(!over_http);
    let data_flag = store.to_str().unwrap();
    for word in [VALUE, "918273645"] {
        assert_eq!(files_containing(&store, word), Vec::<String>::new());
        let (_, export, _) = crate::support::run_pvp(&["audit", "export", "--data", data_flag]);
        assert!(export.contains("API_KEY") && !export.contains(word));
        let (_, account, _) = crate::support::run_pvp(&[
            "audit",
            "show",
            "--data",
            data_flag,
            "--session",
            "secrets",
        ]);
        assert!(account.contains("bot") && !account.contains(word));
        let logged = std::fs::read_to_string(&log).unwrap();
        assert!(logged.contains("refused") && !logged.contains(word));
    }
}

#[tokio::test]
async fn tokens_are_in_no_file_and_in_no_log_line() {
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("stderr.log");
    let store = data.path().join("store");
    let environment = [("PVP_LOG", "trace")];
    let file = std::fs::File::create(&log).unwrap();
    let server = TestServer::start_with(&store, "127.0.0.1:0", &[], &environment, Some(file)).await;
    server.create_session("tokens", json!({})).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let wrong = format!("{}0", &ann.token[..ann.token.len() - 1]);
    let wrong = if wrong == ann.token {
        format!("{}1", &ann.token[..ann.token.len() - 1])
    } else {
        wrong
    };
    // In the header, the query and the message; valid and invalid; on sockets and over HTTP.
    server.join("tokens", &ann).await;
    for token in [&ann.token, &wrong] {
        let path = format!("/ws?token={token}");
        if let Ok(mut client) =
            TestClient::try_connect(&server.address, &path, &[], &ann.participant).await
        {
            client.join("tokens", &ann, json!({})).await;
            client.sync().await;
        }
        let path = format!("/sessions/tokens/transcript?token={token}");
        crate::support::http_get(&server.address, &path, &[]).await;
        crate::support::http_get(&server.address, &path, &[("Origin", "http://evil.example")])
            .await;
        let mut client = TestClient::connect(&server.address, None, &ann.participant).await;
        client.session = "tokens".to_owned();
        let join =
            json!({ "participant": ann.announce(), "supported_versions": [1], "token": token });
        let id = client.send("session.join", join).await;
        client
            .wait(|message| {
                message["ref"] == id.as_str() || message["payload"]["related_to"] == id.as_str()
            })
            .await;
    }
    // A token in a message that has no field for it is not quoted in any log line.
    let mut client = server.join("tokens", &ann).await;
    let id = client
        .send(
            "presence.update",
            json!({ "participant": ann.participant, "status": ann.token, "last_active": 7 }),
        )
        .await;
    client.expect_refusal(&id).await;
    client.sync().await;
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(logged.contains("refused"), "the log was looked at");
    for token in [&ann.token, &server.admin().token, &wrong] {
        let secret = token.rsplit('_').next().unwrap();
        assert_eq!(files_containing(&store, secret), Vec::<String>::new());
        let line = logged.lines().find(|line| line.contains(secret));
        assert_eq!(line, None);
    }
}
