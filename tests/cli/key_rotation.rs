//! `pvp server rotate-key`, and what `pvp audit verify` says afterwards.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::audit::{assert_checkpointed, export_log};
use crate::support::{TestServer, run_pvp};

/// Writes a few entries to a session and stops the server. Returns the admin's token, which the
/// first start prints.
async fn write_entries(data: &Path, session: &str, admin: Option<String>) -> Option<String> {
    let mut server = TestServer::start_in(data, &[]).await;
    let admin = admin.or(server.admin_token.take());
    server.admin_token = admin.clone();
    let dee = server.invite(&format!("dee-{session}"), &["driver"], &[]);
    server.create_session(session, json!({})).await;
    let mut dee = server.join(session, &dee).await;
    let note = json!({ "key": "note", "content_type": "text", "content": "x" });
    dee.send_and_ack("context.add", note).await;
    assert!(server.stop().await.success());
    admin
}

/// Lets somebody join the first session.
async fn join_and_stop(data: &Path, name: &str) {
    let server = TestServer::start_in(data, &[]).await;
    let user = server.invite(name, &["driver"], &[]);
    server.join("early", &user).await.sync().await;
    assert!(server.stop().await.success());
}

fn public_key(data: &Path) -> String {
    let text = std::fs::read_to_string(data.join("server.pub")).unwrap();
    text.trim_end().to_owned()
}

fn verify_json(arguments: &[&str]) -> (bool, Value) {
    let (good, output, problem) = run_pvp(&[&["audit", "verify", "--json"], arguments].concat());
    let report: Value = serde_json::from_str(&output).expect(&problem);
    assert_eq!(report["intact"], good);
    (good, report)
}

#[tokio::test]
async fn a_rotated_server_goes_on_and_its_record_verifies_with_the_keys_that_were_kept() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().to_str().unwrap();
    let admin = write_entries(data.path(), "early", None).await;
    // Stopping again leaves a second checkpoint.
    join_and_stop(data.path(), "amy").await;
    let old = public_key(data.path());
    let (good, output, problem) = run_pvp(&["server", "rotate-key", "--data", path]);
    assert!(good, "{problem}");
    let new = public_key(data.path());
    assert_ne!(old, new);
    for part in [
        format!("old public key: {old}, retired at 20"),
        format!("new public key: {new}\n"),
        "The old secret key was\noverwritten and removed".to_owned(),
        "Keep the new public key elsewhere".to_owned(),
        format!("pvp audit verify --data {path} --key {old} --key {new}\n"),
    ] {
        assert!(output.contains(&part), "{part} is not in\n{output}");
    }

    // The server works on both the earlier session and another one.
    join_and_stop(data.path(), "eve").await;
    write_entries(data.path(), "late", admin).await;
    assert_checkpointed(data.path());
    assert!(export_log(data.path(), "early").len() > 3);

    let file = data.path().join("export.jsonl");
    let file = file.to_str().unwrap();
    assert!(run_pvp(&["audit", "export", "--data", path, "--out", file]).0);
    let ranges = |report: &Value| -> Vec<(Value, bool, bool)> {
        let keys = report["keys"].as_array().unwrap().iter();
        keys.map(|one| {
            let bounds = (one["from"].is_string(), one["until"].is_string());
            (one["key"].clone(), bounds.0, bounds.1)
        })
        .collect()
    };
    for place in [["--data", path], ["--export", file]] {
        for pins in [&[][..], &["--key", &old], &["--key", &old, "--key", &new]] {
            let (good, report) = verify_json(&[&place[..], pins].concat());
            assert!(good, "{report}");
            assert_eq!(report["key"], *new);
            assert_eq!(report["key_finding"], Value::Null);
            let expected = [(json!(old), true, true), (json!(new), true, false)];
            assert_eq!(ranges(&report), expected);
        }
        let pinned = [&place[..], &["--key", &old]].concat();
        let (_, report) = verify_json(&pinned);
        assert_eq!(report["keys"][0]["source"], "as given");
        assert_eq!(
            report["keys"][1]["source"],
            "certified by the key before it"
        );
        let until = report["keys"][0]["until"].as_str().unwrap();
        let (_, text, _) = run_pvp(&[&["audit", "verify"], &pinned[..]].concat());
        assert!(text.contains(&format!("key {old} from 20")), "{text}");
        assert!(
            text.contains(&format!(" until {until} (as given)\n")),
            "{text}"
        );
        assert!(
            text.contains(&format!("key {new} from {until} (certified")),
            "{text}"
        );

        // The key was retired, so a range that says otherwise does not make it valid for longer.
        let forever = format!("{old}@..");
        assert!(verify_json(&[&place[..], &["--key", &forever]].concat()).0);
        let (good, report) = verify_json(&[&place[..], &["--key", &new]].concat());
        assert!(!good, "{report}");
        let found = format!("its checkpoint was signed with an unknown key, {old}");
        assert!(report.to_string().contains(&found), "{report}");
        let never = format!("{old}@..2020-01-01T00:00:00Z");
        let (good, report) = verify_json(&[&place[..], &["--key", &never]].concat());
        assert!(!good, "{report}");
        assert!(report["key_finding"].is_string(), "{report}");
        let backwards = ["--key", &new, "--key", &old];
        let (good, _, problem) = run_pvp(&[&["audit", "verify"], &place[..], &backwards].concat());
        assert!(
            !good && problem.contains("give the oldest key first"),
            "{problem}"
        );
    }
}

#[tokio::test]
async fn a_finding_about_the_keys_alone_fails_the_audit() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().to_str().unwrap();
    write_entries(data.path(), "owl", None).await;
    let keys = data.path().join("server.keys");
    let stranger = format!("{{\"key\":\"{}\"}}\n", "0a".repeat(32));
    let whole = std::fs::read_to_string(&keys).unwrap();
    std::fs::write(&keys, format!("{whole}{stranger}")).unwrap();
    let (good, output, _) = run_pvp(&["audit", "verify", "--data", path]);
    assert!(!good, "{output}");
    let why = "key 2 of the history: the key has no certificate of the key before it";
    assert!(
        output.contains(&format!("keys: NOT INTACT: {why}\n")),
        "{output}"
    );
    assert!(
        output.contains(&format!("first finding: {why}\n")),
        "{output}"
    );
    let (_, report) = verify_json(&["--data", path]);
    assert_eq!(report["key_finding"], why);
}

#[tokio::test]
async fn a_running_server_refuses_the_rotation_and_is_not_disturbed() {
    let server = TestServer::start(&[]).await;
    let path = server.data.to_str().unwrap();
    let before = public_key(&server.data);
    let (good, output, problem) = run_pvp(&["server", "rotate-key", "--data", path]);
    assert!(!good, "{output}");
    assert!(
        problem.contains("is in use by another pvp server; stop it"),
        "{problem}"
    );
    assert_eq!(public_key(&server.data), before);
    server.create_session("owl", json!({})).await;
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn a_rotation_in_json_names_both_keys() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().to_str().unwrap();
    write_entries(data.path(), "owl", None).await;
    let old = public_key(data.path());
    let (good, output, problem) = run_pvp(&["server", "rotate-key", "--json", "--data", path]);
    assert!(good, "{problem}");
    let rotation: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(rotation["old"], *old);
    assert_eq!(rotation["new"], *public_key(data.path()));
    assert!(
        rotation["at"].as_str().unwrap().ends_with('Z'),
        "{rotation}"
    );
}
