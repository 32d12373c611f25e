//! What an allow rule, a key or a name gives away: more commands than were meant, the existence of
//! what is hidden, and text that is not what it looks like.

use serde_json::{Value, json};

use crate::support::cli::CliEnv;
use crate::support::{TestClient, TestServer};

/// A moment well before any rule must have expired.
fn in_an_hour() -> String {
    let now = pvp_clock::now();
    now.plus_seconds(3600).to_string()
}

/// Whether a proposal waits at a gate rather than being granted.
async fn is_asked_for(agent: &mut TestClient, line: &str, cwd: Option<&str>) -> bool {
    let mut proposal = agent.proposal(line);
    if let Some(cwd) = cwd {
        proposal["arguments"]["cwd"] = json!(cwd);
    }
    let proposal = agent.send("tool.propose", proposal).await;
    agent.expect_ack(&proposal).await;
    let decided = agent
        .wait(|message| {
            let payload = &message["payload"];
            payload["action_ref"] == *proposal
                || message["type"] == "tool.execute" && payload["tool_proposal"] == *proposal
        })
        .await;
    let asked = decided["type"] == "gate.request";
    let (kind, payload) = match asked {
        true => ("tool.cancel", json!({ "tool_proposal": proposal })),
        false => (
            "tool.result",
            json!({ "tool_proposal": proposal, "success": true, "duration_ms": 0 }),
        ),
    };
    agent.send_and_ack(kind, payload).await;
    asked
}

async fn session_with_approver() -> (TestServer, TestClient, TestClient) {
    let server = TestServer::start(&[]).await;
    let config = json!({ "gate_timeout_seconds": 0 });
    let agent = server.create_session_with_agent("owl", config).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let ann = server.join("owl", &ann).await;
    (server, agent, ann)
}

async fn allow(person: &mut TestClient, prefix: &[&str], directory: Option<&str>) -> Value {
    let mut payload = json!({ "prefix": prefix, "expires_at": in_an_hour() });
    if let Some(directory) = directory {
        payload["directory"] = json!(directory);
    }
    let id = person.send("policy.allow", payload).await;
    person.answer(&id).await
}

#[tokio::test]
async fn a_rule_that_lets_anything_run() {
    let (server, mut agent, mut ann) = session_with_approver().await;
    for prefix in [
        &["bash"][..],
        &["bash", "deploy.sh"],
        &["sh", "-c"],
        &["zsh"],
        &["python"],
        &["python3.11", "-m", "pytest"],
        &["perl", "-e"],
        &["node", "build.js"],
        &["ruby"],
        &["env", "A=1"],
        &["sudo", "npm"],
        &["doas"],
        &["xargs", "ls"],
        &["nohup", "make"],
        &["timeout", "5"],
        &["time"],
        &["ssh", "web"],
        &["npx", "jest"],
        &["npm", "exec"],
        &["docker", "run"],
        &["docker", "exec", "web"],
        &["kubectl", "exec"],
        &["uv", "run"],
        &["awk"],
        &["vim"],
        &["git", "-c"],
        &["find", "src", "-exec"],
        &["psql"],
        &["eval"],
    ] {
        let answer = allow(&mut ann, prefix, None).await;
        assert_eq!(answer["type"], "error", "{prefix:?}: {answer}");
        let problem = answer["payload"]["message"].as_str().unwrap();
        assert!(problem.contains(prefix[0]), "{problem}");
    }
    // A shorter prefix does not reach them either.
    for prefix in [&["npm"][..], &["docker"], &["find"], &["git"], &["make"]] {
        let answer = allow(&mut ann, prefix, Some("*")).await;
        assert_eq!(answer["type"], "session.ack", "{prefix:?}: {answer}");
    }
    for (line, asked) in [
        ("npm test", false),
        ("make all", false),
        ("git commit -m x", false),
        ("npm exec evil", true),
        ("docker run --rm evil", true),
        ("find . -name x -exec touch y +", true),
        ("git -c alias.x=y x", true),
        ("git bisect run evil", true),
    ] {
        assert_eq!(is_asked_for(&mut agent, line, None).await, asked, "{line}");
    }
    let entries = server.entries("owl");
    let rules = entries.iter().filter(|it| it["type"] == "policy.allow");
    assert_eq!(rules.count(), 5);
}

#[tokio::test]
async fn a_rule_for_one_directory_used_in_another() {
    let (server, mut agent, mut ann) = session_with_approver().await;
    allow(&mut ann, &["make", "here"], None).await;
    allow(&mut ann, &["make", "web"], Some("web")).await;
    allow(&mut ann, &["make", "all"], Some("*")).await;
    for (line, cwd, asked) in [
        ("make here", None, false),
        ("make here", Some("."), false),
        ("make here", Some("web"), true),
        ("make here", Some("/tmp"), true),
        // It may lead through a link to anywhere.
        ("make here", Some("link/.."), true),
        ("make web", Some("web"), false),
        ("make web", Some("./web/"), false),
        ("make web", Some("web/inner"), true),
        ("make web", Some("other"), true),
        ("make web", None, true),
        ("make all", None, false),
        ("make all", Some("/tmp"), false),
    ] {
        let found = is_asked_for(&mut agent, line, cwd).await;
        assert_eq!(found, asked, "{line} in {cwd:?}");
    }
    for directory in ["", "../other", "~", "a/../b", "a*", "a\u{202e}\nb"] {
        let answer = allow(&mut ann, &["make"], Some(directory)).await;
        assert_eq!(answer["type"], "error", "{directory:?}: {answer}");
    }
    let cli = CliEnv::logged_in(&server.link(&server.admin(), Some("owl"))).await;
    let told = cli.run_ok(&["tail"]).await;
    for part in [
        "allows `make here …` in the agent's directory for",
        "allows `make web …` in web for",
        "allows `make all …` anywhere for",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[tokio::test]
async fn to_learn_that_a_hidden_key_exists() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let people = ["ann", "bob", "mallory"].map(|name| server.invite(name, &["driver"], &[]));
    let [mut ann, mut bob, mut mallory] = [
        server.join("owl", &people[0]).await,
        server.join("owl", &people[1]).await,
        server.join("owl", &people[2]).await,
    ];
    let item = |key: &str, content: &str| json!({ "key": key, "content_type": "text", "content": content });
    let mut hidden = item("merger", "we buy them");
    hidden["visible_to"] = json!([bob.participant]);
    ann.send_and_ack("context.add", hidden.clone()).await;
    // The hidden key and one that does not exist get the same answers, in the same order.
    let mut answers = Vec::new();
    for key in ["merger", "nothing"] {
        let mut private = item(key, "a guess");
        private["visible_to"] = json!([]);
        let update = json!({ "key": key, "new_content": "x", "reason": "y" });
        let remove = json!({ "key": key, "reason": "y" });
        let mut seen = Vec::new();
        for (kind, payload) in [
            ("context.update", update.clone()),
            ("context.remove", remove.clone()),
            ("context.add", private),
            ("context.update", update),
            ("context.remove", remove.clone()),
            ("context.add", item(key, "a guess")),
            ("context.add", item(key, "another")),
            ("context.remove", remove),
        ] {
            let id = mallory.send(kind, payload).await;
            let answer = mallory.answer(&id).await;
            let problem = answer["payload"]["message"].as_str().unwrap_or_default();
            let problem = problem.replace(key, "KEY");
            seen.push(format!("{kind} {} {problem}", answer["type"]));
        }
        answers.push(seen);
    }
    assert_eq!(answers[0], answers[1]);
    // A key that everyone sees can be taken.
    ann.send_and_ack("context.add", item("plan", "ours")).await;
    let id = mallory.send("context.add", item("plan", "mine")).await;
    let refusal = mallory.expect_refusal(&id).await;
    assert!(refusal["message"].as_str().unwrap().contains("is taken"));
    // What is hidden is still there, for those who see it and for nobody else.
    let update = json!({ "key": "merger", "new_content": "we sell", "reason": "news" });
    bob.send_and_ack("context.update", update).await;
    let seen = |messages: &[Value]| {
        let shown = |it: &&Value| it["payload"]["new_content"] == "we sell";
        messages.iter().filter(shown).count()
    };
    ann.sync().await;
    mallory.sync().await;
    assert_eq!((seen(&ann.received), seen(&mallory.received)), (1, 0));
    let everything = serde_json::to_string(&mallory.received).unwrap();
    assert!(!everything.contains("we buy them"));
}

/// Reverses the text direction, hides text, and is a control character beyond ASCII.
const HIDDEN_CHARACTERS: &str = "\u{202e}\u{200b}\u{9b}31m\u{2066}\u{e0041}";

#[tokio::test]
async fn to_look_like_somebody_else_on_a_terminal() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let name = "ann\u{202e}\u{200b}\u{2066}nimda";
    server.invite(name, &["driver"], &[]);
    let admin = server.admin();
    let mut client = server.join("owl", &admin).await;
    let content = json!({ "key": "notes", "content_type": "text", "content": HIDDEN_CHARACTERS });
    client.send_and_ack("context.add", content).await;
    let cli = CliEnv::logged_in(&server.link(&admin, Some("owl"))).await;
    let data = server.data.to_str().unwrap();
    let line = format!("make a{HIDDEN_CHARACTERS}; cat b{HIDDEN_CHARACTERS}\nls");
    for arguments in [
        &["tokens", "list", "--data", data][..],
        &["tokens", "list", "--json", "--data", data],
        &["check", &line],
        &["check", "--json", &line],
        &["policy", "explain", &line],
        &["policy", "explain", "--json", &line],
        &["tail", "--json"],
        &["tail"],
        &["sessions", "--json"],
        &["whoami", "--json"],
    ] {
        let printed = cli.run(arguments).await.out;
        assert!(!printed.is_empty(), "{arguments:?}");
        let hidden = |c: &char| {
            c.is_control() && *c != '\n'
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
        };
        let found = printed.chars().find(hidden);
        assert_eq!(found, None, "{arguments:?}: {printed:?}");
    }
    // They are made visible, and JSON still means the same.
    let tokens = cli
        .run_json_lines(&["tokens", "list", "--json", "--data", data])
        .await;
    assert!(tokens.iter().any(|token| token["name"] == name));
    let messages = cli.run_json_lines(&["tail", "--json"]).await;
    let kept = |it: &Value| it["payload"]["content"] == HIDDEN_CHARACTERS;
    assert!(messages.iter().any(kept));
    let checked = cli.run(&["check", &line]).await.out;
    assert!(checked.contains(r"a\u{202e}\u{200b}\u{9b}31m"), "{checked}");
    assert!(checked.lines().all(|line| !line.starts_with("ls")));
}
