//! `pvp tokens`: through a link, through a data directory, and for the server started here.

use serde_json::{Value, json};

use crate::support::cli::CliEnv;
use crate::support::{TestServer, http_request};

/// The cells of a table by its header.
fn rows(table: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        let cells = line.split("  ").filter(|cell| !cell.is_empty());
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    table.lines().map(cells).collect()
}

#[tokio::test]
async fn tokens_are_listed_and_revoked_through_an_admins_link() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let ann = server.invite(
        "Ann",
        &["approver"],
        &["--session", "owl", "--expires", "1d"],
    );
    let admin = CliEnv::logged_in(&server.link(&server.admin(), None)).await;
    let anns = CliEnv::logged_in(&server.link(&ann, None)).await;
    let table = admin.run_ok(&["tokens", "list"]).await;
    let listed = rows(&table);
    assert_eq!(
        listed[0],
        [
            "ID",
            "NAME",
            "PARTICIPANT",
            "KIND",
            "ROLES",
            "SESSION",
            "CREATED",
            "EXPIRES",
            "LAST USED",
            "STATE"
        ]
    );
    assert_eq!(
        listed[2][1..],
        [
            "Ann",
            ann.participant.as_str(),
            "human",
            "approver",
            "owl",
            "just now",
            "in 1d",
            "just now",
            "valid"
        ]
    );
    // Every column begins at the same place in every line.
    let state = table.lines().next().unwrap().find("STATE").unwrap();
    assert!(
        table
            .lines()
            .all(|line| line[state..].starts_with(['S', 'v']))
    );

    // Only an admin lists and revokes.
    let refused = anns.run_refused(&["tokens", "list"]).await;
    assert_eq!(refused, "pvp: listing tokens requires an admin's token\n");
    let id = listed[2][0].as_str();
    anns.run_refused(&["tokens", "revoke", id]).await;
    assert_eq!(
        admin.run_ok(&["tokens", "revoke", id]).await,
        format!("revoked {id}\n")
    );
    let refused = anns.run_refused(&["whoami"]).await;
    assert!(refused.contains("was revoked"), "{refused}");
    for unknown in ["0123456789abcdef", "../sessions/owl", "é"] {
        admin.run_refused(&["tokens", "revoke", unknown]).await;
    }
    let table = admin.run_ok(&["tokens", "list"]).await;
    assert!(!table.contains(id) && table.contains("1 expired or revoked token is not shown"));
    let all = rows(&admin.run_ok(&["tokens", "list", "--all"]).await);
    assert_eq!(all[2].last().unwrap(), "revoked");
}

#[tokio::test]
async fn devices_are_listed_by_name_and_revoked_with_their_link() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("Ann", &["approver"], &[]);
    let bearer = format!("Bearer {}", ann.token);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
    ];
    let body = r#"{"name": "Firefox on \u202eLinux"}"#;
    let (status, made) =
        http_request(&server.address, "POST", "/api/devices", &headers, body).await;
    assert_eq!(status, 201, "{made}");
    let device: Value = serde_json::from_str(&made).unwrap();
    let id = device["id"].as_str().unwrap();
    let admin = CliEnv::logged_in(&server.link(&server.admin(), None)).await;
    let listed = rows(&admin.run_ok(&["tokens", "list"]).await);
    let row = listed.iter().find(|row| row[0] == id).unwrap();
    assert!(row[1].starts_with("Ann (Firefox on "), "{row:?}");
    assert!(!row[1].contains('\u{202e}'), "{row:?}");
    let link = ann.token.split('_').nth(1).unwrap();
    let data = server.data.to_str().unwrap();
    admin
        .run_ok(&["tokens", "revoke", link, "--data", data])
        .await;
    let listed = rows(&admin.run_ok(&["tokens", "list", "--all"]).await);
    let states = listed.iter().filter(|row| row[0] == id || row[0] == link);
    let states: Vec<_> = states.map(|row| row.last().unwrap().as_str()).collect();
    assert_eq!(states, ["revoked", "revoked"]);
}

#[tokio::test]
async fn the_same_is_listed_through_the_data_directory() {
    let server = TestServer::start(&[]).await;
    let cli = CliEnv::logged_in(&server.link(&server.admin(), None)).await;
    let data = server.data.to_str().unwrap();
    let by_link = cli.run_json_lines(&["tokens", "list", "--json"]).await;
    let without_use = |listed: &[Value]| {
        let mut listed = listed.to_vec();
        for token in &mut listed {
            token["last_used"] = Value::Null;
        }
        listed
    };
    let by_data = ["tokens", "list", "--json", "--data", data];
    let by_data = cli.run_json_lines(&by_data).await;
    assert_eq!(without_use(&by_link), without_use(&by_data));
    assert!(by_link[0]["last_used"].is_string(), "{by_link:?}");
    let mut keys: Vec<_> = by_link[0].as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(
        keys,
        [
            "created",
            "expires",
            "id",
            "kind",
            "last_used",
            "name",
            "participant",
            "revoked",
            "roles",
            "session",
            "state"
        ]
    );
}

#[tokio::test]
async fn the_last_use_survives_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &[]).await;
    let ann = server.invite("ann", &["observer"], &[]);
    let never = server.invite("bob", &["observer"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    cli.run_ok(&["whoami"]).await;
    assert!(server.stop().await.success());
    let list = ["tokens", "list", "--json", "--data"];
    let list = [&list[..], &[data.path().to_str().unwrap()]].concat();
    let listed = cli.run_json_lines(&list).await;
    let used = |participant: &str| {
        let token = listed.iter().find(|one| one["participant"] == participant);
        token.unwrap()["last_used"].clone()
    };
    assert!(used(&ann.participant).is_string());
    assert_eq!(used(&never.participant), Value::Null);
}

#[tokio::test]
async fn the_server_that_was_started_here_is_found_by_itself() {
    let cli = CliEnv::new();
    let mut up = cli.spawn(&["up", "--json", "--listen", "127.0.0.1:0", "--data", "data"]);
    let said = up.next_json().await;
    let names = |table: &str| -> Vec<String> {
        rows(table)[1..].iter().map(|row| row[1].clone()).collect()
    };
    let table = cli.run_ok(&["tokens", "list"]).await;
    assert_eq!(names(&table), ["admin", "dee", "agent"]);
    // Also below, and only there.
    let below = cli.workdir().join("src");
    std::fs::create_dir(&below).unwrap();
    let listed = cli.run_in(&below, &["tokens", "list"]).await.expect_ok(&[]);
    assert_eq!(names(&listed).len(), 3);
    cli.run_in(&cli.home(), &["tokens", "list"])
        .await
        .expect_refused(&[]);
    // A link that leads elsewhere counts more than a server that was started here.
    let other = TestServer::start(&[]).await;
    cli.log_in(&other.link(&other.admin(), None)).await;
    let table = cli.run_ok(&["tokens", "list"]).await;
    assert_eq!(names(&table), ["admin"]);
    assert!(said["link"].is_string());
}
