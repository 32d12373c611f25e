//! Wanted: more time, or less for others, by setting a clock.

use pvp_protocol::Timestamp;
use serde_json::{Value, json};

use crate::support::audit::export_log;
use crate::support::session::next_gate;
use crate::support::{TestClient, TestServer};

const SESSION: &str = "owl";

fn time_of(entry: &Value) -> Timestamp {
    Timestamp::parse(entry["ts"].as_str().unwrap()).unwrap()
}

/// The machine's clock was set back by an hour while the server was down, as far as the store knows.
fn pretend_clock_was_set_back(server: &TestServer) {
    let database = server.data.join("pvp.sqlite3");
    let store = rusqlite::Connection::open(database).unwrap();
    let hour = "UPDATE sessions SET updated_at = updated_at + 3600000";
    assert_eq!(store.execute(hour, []).unwrap(), 1);
}

#[tokio::test]
async fn a_clock_that_is_set_back_while_the_server_is_down_extends_nothing() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &[]).await;
    let config = json!({ "gate_timeout_seconds": 2 });
    server.create_session(SESSION, config).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    server.join(SESSION, &bot).await.sync().await;
    server.kill_9().await;
    let before = export_log(&server.data, SESSION);
    let last = time_of(before.last().unwrap());
    pretend_clock_was_set_back(&server);

    let server = TestServer::start_in(data.path(), &[]).await;
    let mut agent = server.join(SESSION, &bot).await;
    let mut ann: TestClient = server.join(SESSION, &ann).await;
    agent.propose("make").await;
    let (gate, _) = next_gate(&mut ann).await;
    // Its time passes, although the time of day is an hour before what was written last.
    let resolved = ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["gate"], gate.as_str());
    assert_eq!(resolved["payload"]["outcome"], "timed_out");
    let log = export_log(&server.data, SESSION);
    let new = &log[before.len()..];
    assert!(!new.is_empty());
    for entry in new {
        assert!(time_of(entry) >= last.plus_seconds(3600), "{entry}");
    }
    // An executor whose own clock says something else goes by the server's, so its grants are not
    // taken for expired, nor do they live longer.
    let welcome = agent
        .received
        .iter()
        .find(|it| it["type"] == "session.welcome");
    assert!(time_of(welcome.unwrap()) >= last.plus_seconds(3600));
}
