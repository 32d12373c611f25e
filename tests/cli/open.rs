//! `pvp open --admin`: whoever owns the data directory of a server comes into the page as an admin.

use std::fs::File;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;

use pvp_protocol::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::sharing::SharedServer;
use crate::support::TestServer;
use crate::support::cli::CliEnv;

/// Opens what `pvp open` printed, as a browser does, on another machine.
async fn open_elsewhere(opened: &Value) -> CliEnv {
    let browser = CliEnv::new();
    let link = opened["link"].as_str().unwrap();
    browser.run_ok(&["join", link]).await;
    browser
}

async fn who_is(cli: &CliEnv) -> Value {
    cli.run_json(&["whoami", "--json"]).await["me"].clone()
}

/// Seconds until somebody's login ends.
fn seconds_left(me: &Value) -> u64 {
    let expires = Timestamp::parse(me["expires"].as_str().unwrap()).unwrap();
    expires.millis_since(pvp_clock::now()) / 1000
}

#[tokio::test]
async fn the_owner_of_a_server_is_an_admin_in_the_browser_for_a_working_day() {
    let shared = SharedServer::start(&[]).await;
    let opened = shared.cli.run_json(&["open", "--admin", "--json"]).await;
    let browser = open_elsewhere(&opened).await;
    let me = who_is(&browser).await;
    assert_eq!(
        (&me["participant"], &me["roles"], &me["session"]),
        (&json!("admin"), &json!(["admin"]), &Value::Null)
    );
    let left = seconds_left(&me);
    assert!((7 * 3600..=8 * 3600).contains(&left), "{left}");
    let invite = ["invite", "--name", "Ann", "--role", "approver"];
    browser
        .run_ok(&[&invite[..], &["--session", "main"]].concat())
        .await;
    // The link works once, and the token behind it is in no file.
    let link = opened["link"].as_str().unwrap();
    let refused = CliEnv::new().run_refused(&["join", link]).await;
    assert!(refused.contains("opened already"), "{refused}");
    let listed = shared
        .cli
        .run_json_lines(&["tokens", "list", "--json"])
        .await;
    let admins: Vec<_> = listed
        .iter()
        .filter(|token| token["roles"] == json!(["admin"]))
        .collect();
    // The first start's, this one's, and that of the browser.
    assert_eq!(admins.len(), 3, "{admins:?}");
    // Whoever started the server is still what they were there.
    assert_eq!(
        who_is(&shared.cli).await["roles"],
        json!(["driver", "approver"])
    );
}

#[tokio::test]
async fn an_admin_of_a_browser_stays_one_for_as_long_as_was_said() {
    let shared = SharedServer::start(&[]).await;
    let arguments = ["open", "--admin", "--expires", "30m", "--json"];
    let opened = shared.cli.run_json(&arguments).await;
    let left = seconds_left(&who_is(&open_elsewhere(&opened).await).await);
    assert!((29 * 60..=30 * 60).contains(&left), "{left}");
    let refused = shared.cli.run(&["open", "--expires", "30m"]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("--admin"), "{refused:?}");
}

#[tokio::test]
async fn only_the_owner_of_the_data_becomes_an_admin() {
    // A link leads to a server whose data is elsewhere.
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, Some("owl"))).await;
    let refused = cli.run_refused(&["open", "--admin"]).await;
    assert!(
        refused.contains("--data") && refused.contains("without --admin"),
        "{refused}"
    );
    let refused = CliEnv::new()
        .run_refused(&["open", "--admin", "--data", "nowhere"])
        .await;
    assert!(refused.contains("nowhere"), "{refused}");
    // Whoever answers at the address of a server that has ended is somebody else.
    let SharedServer { cli, process, said } = SharedServer::start(&[]).await;
    process.signal("TERM");
    process.ended().await;
    let somebody_else = TcpListener::bind(said["listen"].as_str().unwrap()).unwrap();
    somebody_else.set_nonblocking(true).unwrap();
    let lock = Path::new(said["data"].as_str().unwrap()).join("pvp.lock");
    // That the data are in use, by a server that is being started, does not make it the server.
    for is_in_use in [false, true] {
        let lock = File::open(&lock).unwrap();
        if is_in_use {
            flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        }
        let refused = cli.run_refused(&["open", "--admin"]).await;
        assert!(
            refused.contains("is not running") && refused.contains("pvp up"),
            "{refused}"
        );
        let heard = somebody_else.accept().map(|_| ());
        assert_eq!(heard.unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
