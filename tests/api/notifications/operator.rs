//! Webhooks of the operator: every gate of every session, whoever may vote.

use data_encoding::BASE64;
use serde_json::json;

use super::kinds::check_signature;
use super::told;
use crate::fixture::{ApiFixture, SESSION};
use crate::support::http_receiver::HttpReceiver;

#[tokio::test]
async fn the_operators_webhooks_are_told_of_every_gate() {
    let (mut signed, mut chat) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    let secret = format!("whsec_{}", BASE64.encode(&[9; 32]));
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let settings = format!(
        "hooks = [{{ url = \"{}\", secret_file = \"{}\" }}, {{ kind = \"slack\", url = \"{}\", show_command = true }}]",
        signed.url("/all"),
        file.display(),
        chat.url("/room"),
    );
    let mut fixture = ApiFixture::with_env(json!({}), &[("PVP_NOTIFICATIONS", &settings)]).await;
    fixture.propose("touch secret-file").await;
    let request = signed.next().await;
    check_signature(&request, &secret);
    assert_eq!(told(&request).0, "opened");
    assert_eq!(request.json()["title"], "A command waits for a vote");
    assert!(!request.text().contains("secret-file"));
    let text = chat.next().await.json()["text"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(text.contains("`touch secret-file`"), "{text}");
    fixture.server.create_session("other", json!({})).await;
    let bot = fixture.bot.user.clone();
    let mut agent = fixture.server.join("other", &bot).await;
    agent.propose("touch b").await;
    let sessions = [
        signed.next().await.json()["session"].clone(),
        json!(SESSION),
    ];
    assert_eq!(sessions, [json!("other"), json!(SESSION)]);
}

#[tokio::test]
async fn a_server_whose_secrets_cannot_be_read_does_not_start() {
    let settings = "hooks = [{ url = \"http://127.0.0.1:1/\", secret_file = \"/nonexistent\" }]";
    let data = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_pvp"))
        .args(["server", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path())
        .env("PVP_NOTIFICATIONS", settings)
        .env("XDG_STATE_HOME", data.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let problem = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        problem.contains("reading the secret in /nonexistent"),
        "{problem}"
    );
}
