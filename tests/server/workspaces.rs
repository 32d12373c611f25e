//! The directory that each session has for itself, below the server's data directory.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer, TestUser, http_request};

/// The directory that a session was told of when it was created.
fn told_directory(server: &TestServer, session: &str) -> PathBuf {
    let entry = server.entries(session).swap_remove(1);
    assert_eq!(entry["payload"]["key"], "session:working_directory");
    PathBuf::from(entry["payload"]["content"].as_str().unwrap())
}

/// The names of what is in the directory of all sessions' directories.
fn workspaces(server: &TestServer) -> BTreeSet<String> {
    let entries = std::fs::read_dir(server.data.join("workspaces"));
    let names = entries.into_iter().flatten().map(|entry| {
        let name = entry.unwrap().file_name();
        name.to_str().unwrap().to_owned()
    });
    names.collect()
}

fn claimed(id: &str) -> TestUser {
    TestUser {
        token: String::new(),
        participant: id.to_owned(),
        roles: vec!["driver".to_owned()],
        agent: false,
    }
}

/// Sends a request as the admin.
async fn request(server: &TestServer, method: &str, path: &str, body: Value) -> (u16, String) {
    let bearer = format!("Bearer {}", server.admin().token);
    let headers = [("Authorization", bearer.as_str())];
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    http_request(&server.address, method, path, &headers, &body).await
}

async fn create(server: &TestServer, session: &str) -> (u16, String) {
    request(
        server,
        "POST",
        "/api/sessions",
        json!({ "session": session }),
    )
    .await
}

#[tokio::test]
async fn every_session_is_told_of_a_directory_of_its_own() {
    let server = TestServer::start(&[]).await;
    let long = "s".repeat(128);
    let ids = [
        "owl", "fox", "Owl", "a..", "a...b", "con", "a:b", "x.git", "0", &long,
    ];
    for id in ids {
        assert_eq!(create(&server, id).await.0, 201, "{id}");
    }
    let root = server.data.canonicalize().unwrap().join("workspaces");
    let mut seen = BTreeSet::new();
    for id in ids {
        let directory = told_directory(&server, id);
        assert!(directory.symlink_metadata().unwrap().is_dir(), "{id}");
        let directory = directory.canonicalize().unwrap();
        let mode = directory.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{id}");
        assert_eq!(directory.parent(), Some(root.as_path()), "{id}");
        assert_ne!(directory, std::env::current_dir().unwrap());
        let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(seen.insert(name), "{id} shares its directory");
    }
    assert_eq!(workspaces(&server), seen);
    let mode = root.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // Ids that are paths, and sessions that are refused, leave nothing behind.
    for id in ["..", "../x", "/etc", ".git", "a/b", "a\\b", "a\u{0}", ""] {
        assert_eq!(create(&server, id).await.0, 400, "{id:?}");
    }
    for number in 0..3 {
        let config = json!({ "max_participants": 0 });
        let body = json!({ "session": format!("refused-{number}"), "config": config });
        assert_eq!(request(&server, "POST", "/api/sessions", body).await.0, 400);
    }
    assert_eq!(create(&server, "owl").await.0, 409);
    assert_eq!(workspaces(&server), seen);
}

#[tokio::test]
async fn on_an_open_server_joining_makes_the_directory_too() {
    let server = TestServer::start(&["--open"]).await;
    for (id, session) in [("ann", "owl"), ("bob", "owl"), ("cat", "fox")] {
        let mut client = TestClient::connect(&server.address, None, id).await;
        client.join(session, &claimed(id), json!({})).await;
    }
    assert_eq!(workspaces(&server).len(), 2);
    assert_ne!(
        told_directory(&server, "owl"),
        told_directory(&server, "fox")
    );
    assert!(told_directory(&server, "owl").is_dir());
    // A join that is refused creates the session, and so keeps the directory.
    let mut eve = TestClient::connect(&server.address, None, "eve").await;
    eve.session = "hen".to_owned();
    let mut announce = claimed("eve").announce();
    announce["name"] = json!("");
    let join = json!({ "participant": announce, "supported_versions": [1] });
    let id = eve.send("session.join", join).await;
    eve.wait(|message| {
        message["type"] == "error" && message["payload"]["related_to"] == id.as_str()
    })
    .await;
    assert!(told_directory(&server, "hen").is_dir());
}

#[tokio::test]
async fn a_restart_keeps_directories_and_what_is_in_them() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &["--open"]).await;
    let mut ann = TestClient::connect(&server.address, None, "ann").await;
    ann.join("owl", &claimed("ann"), json!({})).await;
    let directory = told_directory(&server, "owl");
    std::fs::write(directory.join("file"), "x").unwrap();
    assert!(server.stop().await.success());
    let server = TestServer::start_in(data.path(), &["--open"]).await;
    let mut bob = TestClient::connect(&server.address, None, "bob").await;
    bob.join("owl", &claimed("bob"), json!({})).await;
    let told = bob
        .wait(|message| message["payload"]["key"] == "session:working_directory")
        .await;
    assert_eq!(told["payload"]["content"], directory.to_str().unwrap());
    assert!(directory.join("file").exists());
    assert_eq!(workspaces(&server).len(), 1);
}

#[tokio::test]
async fn a_directory_for_every_session_is_used_as_it_is_and_sessions_keep_theirs() {
    let data = tempfile::tempdir().unwrap();
    let shared = tempfile::tempdir().unwrap();
    let config = json!({ "working_directory": shared.path() }).to_string();
    let server = TestServer::start_in(data.path(), &["--open", "--config", &config]).await;
    let join = async |server: &TestServer, id: &str, session: &str| {
        let mut client = TestClient::connect(&server.address, None, id).await;
        client.join(session, &claimed(id), json!({})).await;
    };
    join(&server, "ann", "owl").await;
    join(&server, "ann", "fox").await;
    assert_eq!(told_directory(&server, "owl"), shared.path());
    assert_eq!(told_directory(&server, "fox"), shared.path());
    assert!(!data.path().join("workspaces").exists());
    assert!(server.stop().await.success());
    // A session that was told of another directory gets none of its own later.
    let server = TestServer::start_in(data.path(), &["--open"]).await;
    join(&server, "bob", "owl").await;
    assert!(workspaces(&server).is_empty());
    join(&server, "bob", "hen").await;
    assert_eq!(workspaces(&server).len(), 1);
}

#[tokio::test]
async fn a_session_whose_directory_cannot_be_made_is_not_created() {
    let server = TestServer::start(&[]).await;
    let root = server.data.join("workspaces");
    std::fs::write(&root, "in the way").unwrap();
    let (status, problem) = create(&server, "owl").await;
    assert_eq!(status, 503, "{problem}");
    assert!(
        problem.contains("cannot make the session's working directory"),
        "{problem}"
    );
    assert_eq!(
        request(&server, "GET", "/api/sessions/owl", Value::Null)
            .await
            .0,
        404
    );
    std::fs::remove_file(&root).unwrap();
    assert_eq!(create(&server, "owl").await.0, 201);
    assert!(told_directory(&server, "owl").is_dir());
}

async fn end_session(server: &TestServer, session: &str) {
    let mut admin = server.join(session, &server.admin()).await;
    let end = json!({ "reason": "done", "final_state": "completed" });
    admin.send_and_ack("session.end", end).await;
}

#[tokio::test]
async fn deleting_a_session_removes_its_directory_and_nothing_else() {
    let server = TestServer::start(&[]).await;
    for session in ["owl", "fox"] {
        assert_eq!(create(&server, session).await.0, 201);
    }
    let (owl, fox) = (
        told_directory(&server, "owl"),
        told_directory(&server, "fox"),
    );
    let victims = tempfile::tempdir().unwrap();
    let victim = victims.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    std::fs::create_dir_all(owl.join("a/b")).unwrap();
    symlink(victims.path(), owl.join("a/b/directory")).unwrap();
    symlink(&victim, owl.join("file")).unwrap();
    symlink(&server.data, owl.join("data")).unwrap();
    symlink(&fox, owl.join("other")).unwrap();
    // Not before it has ended.
    assert_eq!(
        request(&server, "DELETE", "/api/sessions/owl", Value::Null)
            .await
            .0,
        409
    );
    assert!(owl.is_dir());
    end_session(&server, "owl").await;
    assert!(owl.is_dir(), "the results are still there to be looked at");
    assert_eq!(
        request(&server, "DELETE", "/api/sessions/owl", Value::Null)
            .await
            .0,
        200
    );
    assert!(owl.symlink_metadata().is_err());
    assert_eq!(workspaces(&server).len(), 1);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    assert!(fox.is_dir() && server.data.join("pvp.sqlite3").exists());
    // It does not come back with another attempt to create it.
    assert_ne!(create(&server, "owl").await.0, 201);
    assert!(owl.symlink_metadata().is_err());
}

/// Runs git as a user without any settings.
fn git(directory: &Path, arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home.path())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap()
}

#[tokio::test]
async fn with_git_init_the_directory_is_a_repository_with_an_author() {
    // What the administrator has set for themselves does not reach the repository.
    let templates = tempfile::tempdir().unwrap();
    std::fs::create_dir(templates.path().join("hooks")).unwrap();
    std::fs::write(
        templates.path().join("hooks/pre-commit"),
        "#!/bin/sh\nexit 1\n",
    )
    .unwrap();
    let environment = [
        ("GIT_TEMPLATE_DIR", templates.path().to_str().unwrap()),
        ("GIT_DIR", "/nonexistent/repository"),
    ];
    let server = TestServer::start_with_env(&["--git-init"], &environment).await;
    assert_eq!(create(&server, "owl:1").await.0, 201);
    let directory = told_directory(&server, "owl:1");
    assert!(directory.join(".git").is_dir());
    assert!(!directory.join(".git/hooks").exists());
    let commit = git(&directory, &["commit", "--allow-empty", "-m", "first"]);
    assert!(commit.status.success(), "{commit:?}");
    let log = git(&directory, &["log", "--format=%an <%ae> %D"]);
    let log = String::from_utf8(log.stdout).unwrap();
    assert_eq!(
        log.trim(),
        "PVP session owl:1 <session@pvp.invalid> HEAD -> main"
    );
    // Without it, there is no repository.
    let server = TestServer::start(&[]).await;
    assert_eq!(create(&server, "owl").await.0, 201);
    assert_eq!(
        std::fs::read_dir(told_directory(&server, "owl"))
            .unwrap()
            .count(),
        0
    );
}

#[tokio::test]
async fn git_init_without_git_or_without_own_directories_is_refused_at_the_start() {
    let data = tempfile::tempdir().unwrap();
    let start = |flags: &[&str], path: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_pvp"))
            .args(["server", "--listen", "127.0.0.1:0", "--git-init", "--data"])
            .arg(data.path())
            .args(flags)
            .env("PATH", path)
            .env("XDG_STATE_HOME", data.path())
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    // A relative PATH would find a program that somebody left where the server is started.
    for path in ["/nonexistent", ".", ""] {
        let said = start(&[], path);
        assert!(
            said.contains("`git_init` needs git, and there is none in PATH"),
            "{said}"
        );
    }
    let path = std::env::var("PATH").unwrap();
    let said = start(&["--config", r#"{"working_directory": "/srv"}"#], &path);
    assert!(
        said.contains("leave out `git_init` or `working_directory`"),
        "{said}"
    );
}
