//! `pvp create`, `pvp sessions`, `pvp invite`

use serde_json::{Value, json};

use crate::support::cli::CliEnv;
use crate::support::{TestServer, run_pvp};

/// The admin's CLI environment.
async fn admin_cli(server: &TestServer) -> CliEnv {
    CliEnv::logged_in(&server.link(&server.admin(), None)).await
}

#[tokio::test]
async fn sessions_are_made_and_listed_until_they_end() {
    let server = TestServer::start(&[]).await;
    let cli = admin_cli(&server).await;
    assert_eq!(cli.run_ok(&["sessions"]).await, "no sessions\n");
    assert_eq!(
        cli.run_json(&["sessions", "--json"]).await,
        json!({ "sessions": [], "more": false })
    );
    let config = r#"{"default_gate_quorum":{"type":"any","count":2}}"#;
    let create = ["create", "owl", "--name", "Blue owl", "--config", config];
    assert_eq!(cli.run_ok(&create).await, "created owl\n");
    let created = &server.entries("owl")[0]["payload"];
    assert_eq!(created["name"], "Blue owl");
    assert_eq!(
        created["config"]["default_gate_quorum"],
        json!({ "type": "any", "count": 2 })
    );
    let made = cli.run_json(&["create", "--json"]).await;
    let fresh = made["session"].as_str().unwrap();
    assert_eq!(made, json!({ "session": fresh, "seq": 1 }));

    let list = cli.run_json(&["sessions", "--json"]).await;
    let names = |list: &Value| -> Vec<String> {
        let sessions = list["sessions"].as_array().unwrap().iter();
        let name = |one: &Value| one["session"].as_str().unwrap().to_owned();
        sessions.map(name).collect()
    };
    assert_eq!(names(&list), [fresh, "owl"]);
    let owl = &list["sessions"][1];
    let line = format!(
        "owl                       open             2 messages  {}  Blue owl",
        owl["updated_at"].as_str().unwrap()
    );
    assert_eq!(cli.run_ok(&["sessions"]).await.lines().last(), Some(&*line));
    let one = cli.run_ok(&["sessions", "-n", "1"]).await;
    assert!(one.starts_with(fresh), "{one}");
    assert!(
        one.ends_with("\n… older sessions are not shown; show more with -n\n"),
        "{one}"
    );

    let end = r#"{"reason":"done","final_state":"completed"}"#;
    let end = [
        "send",
        "--session",
        "owl",
        "--type",
        "session.end",
        "--payload",
        end,
    ];
    cli.run_ok(&end).await;
    assert_eq!(names(&cli.run_json(&["sessions", "--json"]).await), [fresh]);
    let all = cli.run_json(&["sessions", "--json", "--all"]).await;
    assert_eq!(names(&all), [fresh, "owl"]);
    let all = cli.run_ok(&["sessions", "-a"]).await;
    assert!(all.lines().last().unwrap().contains("  ended "), "{all}");
}

#[tokio::test]
async fn a_session_that_cannot_be_made_is_refused_and_nothing_is_made() {
    let server = TestServer::start(&[]).await;
    let cli = admin_cli(&server).await;
    cli.run_ok(&["create", "owl"]).await;
    let before = server.entries("owl");
    for (arguments, said) in [
        (
            &["create", "owl"][..],
            "pvp: session `owl` exists already; join it, or create one with another id\n",
        ),
        (
            &["create", "cat", "--config", "{"],
            "pvp: --config: this is not a JSON object: EOF while parsing",
        ),
        (
            &["create", "cat", "--config", "[]"],
            "pvp: --config: reading []; give a TOML file, or JSON in quotes",
        ),
        (
            &["create", "cat", "--config", r#"{"quorum":2}"#],
            "pvp: --config: there is no session setting `quorum`; did you mean `default_gate_quorum`?\n",
        ),
        (
            &["create", "cat", "--approvals", "destructiv=2"],
            "error: invalid value 'destructiv=2' for '--approvals <N>': there is no kind of command `destructiv`; did you mean `destructive`?",
        ),
        (
            &["create", "cat", "--config", r#"{"max_participants":"x"}"#],
            "pvp: --config: ",
        ),
        (
            &[
                "create",
                "cat",
                "--config",
                r#"{"default_gate_quorum":{"type":"any","count":0}}"#,
            ],
            "pvp: ",
        ),
        (
            &["create", ".."],
            "error: invalid value '..' for '[ID]': an id has '.' at position 0",
        ),
    ] {
        let complaint = cli.run_refused(arguments).await;
        assert!(complaint.starts_with(said), "{arguments:?}: {complaint}");
    }
    let list = cli.run_json(&["sessions", "--json", "--all"]).await;
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(server.entries("owl"), before);

    // An observer cannot create a session, nor can a user who is invited to one session.
    let eve = server.invite("eve", &["observer"], &[]);
    let bob = server.invite("bob", &["driver"], &["--session", "owl"]);
    for user in [eve, bob] {
        let cli = CliEnv::logged_in(&server.link(&user, None)).await;
        let complaint = cli.run_refused(&["create", "cat"]).await;
        assert!(complaint.starts_with("pvp: "), "{complaint}");
    }
    let list = cli.run_json(&["sessions", "--json", "--all"]).await;
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
}

/// What `pvp whoami` prints for an invited user.
async fn whoami(link: &str) -> Value {
    let cli = CliEnv::logged_in(link).await;
    cli.run_json(&["whoami", "--json"]).await["me"].clone()
}

#[tokio::test]
async fn an_invitation_grants_what_it_says() {
    let server = TestServer::start(&[]).await;
    let cli = admin_cli(&server).await;
    cli.run_ok(&["create", "owl"]).await;
    cli.run_ok(&["create", "cat"]).await;
    let output = cli
        .run_json(&[
            "invite", "--json", "--name", "Ann", "--role", "approver", "--role", "driver",
        ])
        .await;
    let participant = output["participant"].clone();
    assert_eq!(
        output,
        json!({
            "token": output["token"], "participant": participant, "roles": ["driver", "approver"],
            "expires": null,
            "link": format!("http://{}/#token={}", server.address, output["token"].as_str().unwrap()),
        })
    );
    assert_eq!(
        whoami(output["link"].as_str().unwrap()).await,
        json!({ "participant": participant, "name": "Ann", "kind": "human", "roles": ["driver", "approver"] })
    );

    let text = cli
        .run_ok(&[
            "invite",
            "--name",
            "bot",
            "--kind",
            "agent",
            "--role",
            "driver",
            "--session",
            "cat",
            "--expires",
            "2h",
        ])
        .await;
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let names: Vec<_> = words.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["participant", "roles", "expires", "link"]);
    assert!(words[3][1].ends_with("&session=cat"), "{text}");
    assert_eq!(
        whoami(words[3][1]).await,
        json!({ "participant": words[0][1], "name": "bot", "kind": "agent", "roles": ["driver"], "session": "cat", "expires": words[2][1] })
    );

    // Another device of a known participant.
    let name = participant.as_str().unwrap();
    let again = [
        "invite",
        "--json",
        "--name",
        "Ann",
        "--role",
        "approver",
        "--participant",
        name,
    ];
    let refused = cli.run(&again).await;
    assert!(refused.err.contains("exists already"), "{refused:?}");
    let data = server.data.to_str().unwrap();
    let by_operator = [&again[..], &["--data", data]].concat();
    assert_eq!(cli.run_json(&by_operator).await["participant"], participant);
}

#[tokio::test]
async fn an_invitation_is_for_the_session_of_the_link_unless_it_is_for_everywhere() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let cli = CliEnv::logged_in(&server.link(&server.admin(), Some("owl"))).await;
    let invite = ["invite", "--json", "--name", "Ann", "--role", "approver"];
    let bound = cli.run_json(&invite).await;
    assert_eq!(
        whoami(bound["link"].as_str().unwrap()).await["session"],
        "owl"
    );
    let free = cli
        .run_json(&[&invite[..], &["--everywhere"]].concat())
        .await;
    assert_eq!(
        whoami(free["link"].as_str().unwrap()).await["session"],
        Value::Null
    );
    let both = [&invite[..], &["--everywhere", "--session", "owl"]].concat();
    let output = cli.run_refused(&both).await;
    assert!(
        output.contains("--everywhere") && output.contains("--session"),
        "{output}"
    );
}

#[tokio::test]
async fn an_invitation_through_the_data_directory_needs_no_link() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let (cli, data) = (CliEnv::new(), server.data.to_str().unwrap());
    let url = format!("http://{}/", server.address);
    let invite = [
        "invite", "--json", "--data", data, "--url", &url, "--name", "Ann", "--role", "approver",
    ];
    let free = cli.run_json(&invite).await;
    assert_eq!(whoami(free["link"].as_str().unwrap()).await["name"], "Ann");
    let bound = cli
        .run_json(&[&invite[..], &["--session", "owl"]].concat())
        .await;
    assert_eq!(
        whoami(bound["link"].as_str().unwrap()).await["session"],
        "owl"
    );
    let output = cli
        .run_refused(&[&invite[..], &["--link", "http://h/?token=t"]].concat())
        .await;
    assert!(
        output.contains("--data") && output.contains("--link"),
        "{output}"
    );
    // A saved link or a variable does not interfere.
    let link = server.link(&server.admin(), None);
    cli.log_in(&link).await;
    cli.run_json(&invite).await;
}

#[tokio::test]
async fn only_admins_invite_and_a_refused_invitation_creates_no_token() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["approver", "driver"], &[]);
    let data = server.data.to_str().unwrap();
    let tokens = || run_pvp(&["tokens", "list", "--data", data]).1;
    let before = tokens();
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    let invite = |name| ["invite", "--name", name, "--role", "admin"];
    let output = cli.run_refused(&invite("Eve")).await;
    assert!(output.starts_with("pvp: "), "{output}");
    let cli = admin_cli(&server).await;
    for name in ["", "a\u{1b}[2J", &"x".repeat(200)] {
        let output = cli.run_refused(&invite(name)).await;
        assert_eq!(
            output,
            "pvp: `name` has 1 to 128 characters and no control characters\n"
        );
    }
    assert_eq!(tokens(), before);
}

#[tokio::test]
async fn the_number_of_approvals_is_a_flag_and_can_be_changed_by_an_admin() {
    let server = TestServer::start(&[]).await;
    let cli = admin_cli(&server).await;
    let create = [
        "create",
        "owl",
        "--approvals",
        "2,destructive=3",
        "--approvers",
        "role:approver",
    ];
    cli.run_ok(&create).await;
    let show = ["session", "show", "--session", "owl"];
    let shown = cli.run_ok(&show).await;
    assert!(shown.starts_with("# session owl\n"), "{shown}");
    for line in [
        "default_gate_quorum = { count = 2, role = \"approver\", type = \"role\" }  # 2 approvals by approvers",
        "quorum_by_category = { destructive = { count = 3, role = \"approver\", type = \"role\" } }  # destructive: 3 approvals by approvers",
        "gate_timeout_seconds = 300",
        "solo = false",
    ] {
        assert!(shown.lines().any(|one| one == line), "{line}: {shown}");
    }
    // What is printed can be given back.
    let file = cli.workdir().join("session.toml");
    std::fs::write(&file, &shown).unwrap();
    cli.run_ok(&["create", "elk", "--config", "session.toml"])
        .await;
    let again = cli.run_ok(&["session", "show", "--session", "elk"]).await;
    assert_eq!(again.replace("# session elk", "# session owl"), shown);

    let set = ["session", "set", "--session", "owl", "--approvals", "1"];
    let more = ["gate_timeout_seconds=60", "solo=true", "--json"];
    let after = cli.run_json(&[&set[..], &more].concat()).await;
    assert_eq!(
        after["default_gate_quorum"],
        json!({"type": "any", "count": 1})
    );
    assert_eq!(after["quorum_by_category"], json!({}));
    assert_eq!(after["gate_timeout_seconds"], 60);
    assert_eq!(after["solo"], true);
    let entries = server.entries("owl");
    assert_eq!(entries.last().unwrap()["type"], "session.config_update");
}

#[tokio::test]
async fn settings_that_are_not_understood_or_not_allowed_change_nothing() {
    let server = TestServer::start(&[]).await;
    let cli = admin_cli(&server).await;
    cli.run_ok(&["create", "owl"]).await;
    let before = server.entries("owl");
    for (arguments, said) in [
        (
            &["quorm=2"][..],
            "pvp: there is no session setting `quorm`; did you mean `default_gate_quorum`?\n",
        ),
        (
            &["gate_timeout_seconds=soon"],
            "pvp: `gate_timeout_seconds` is \"soon\": invalid type",
        ),
        (&["solo=true", "four_eyes=true"], "pvp: `solo` lets people"),
        (&[], "pvp: there is nothing to change"),
        (
            &["--config", r#"{"sol":true}"#],
            "pvp: there is no session setting `sol`",
        ),
    ] {
        let set = ["session", "set", "--session", "owl"];
        let complaint = cli.run_refused(&[&set[..], arguments].concat()).await;
        assert!(complaint.starts_with(said), "{arguments:?}: {complaint}");
    }
    let driver = server.invite("dan", &["driver", "approver"], &[]);
    let driver = CliEnv::logged_in(&server.link(&driver, Some("owl"))).await;
    let complaint = driver.run_refused(&["session", "set", "solo=true"]).await;
    assert!(
        complaint.starts_with("pvp: only an admin may change the settings of owl; "),
        "{complaint}"
    );
    let after = server.entries("owl");
    let updates = |entries: &[Value]| {
        let update = |entry: &&Value| entry["type"] == "session.config_update";
        entries.iter().filter(update).count()
    };
    assert_eq!(updates(&after), updates(&before));
}
