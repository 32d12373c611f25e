//! `pvp notify`: channels and preferences of a person without a browser.

use serde_json::{Value, json};

use crate::support::cli::CliEnv;
use crate::support::http_receiver::HttpReceiver;
use crate::support::{TestServer, TestUser};

async fn start() -> (TestServer, TestUser, CliEnv) {
    let settings = "trusted_hosts = [\"127.0.0.1\"]";
    let server = TestServer::start_with_env(&[], &[("PVP_NOTIFICATIONS", settings)]).await;
    let ann = server.invite("Ann", &["approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    (server, ann, cli)
}

#[tokio::test]
async fn a_channel_is_added_tried_listed_and_removed() {
    let mut receiver = HttpReceiver::start().await;
    let (_server, _, cli) = start().await;
    let nothing = cli.run_ok(&["notify"]).await;
    assert_eq!(
        nothing,
        "you have no channels; add one with `pvp notify add`, or open the page\n\
         events:        opened, escalated, closing\n\
         sessions:      all that you may vote in\n\
         quiet hours:   none\n\
         show command:  false\n\
         vote links:    false\n\
         allowed kinds: push, webhook, ntfy, slack, discord\n"
    );
    let url = receiver.url("/secret-path");
    let arguments = ["notify", "add", "webhook", "-", "--label", "my hook"];
    let added = cli.run_with_stdin(&arguments, &format!("{url}\n")).await;
    let added = added.expect_ok(&arguments);
    let id = added.split(' ').nth(2).unwrap();
    let (first, second) = added.split_once('\n').unwrap();
    let address = &receiver.address;
    assert_eq!(
        first,
        format!("added webhook {id} to http://{address}/…; try it: pvp notify test {id}")
    );
    let secret = second.strip_prefix("its signing secret, shown only this once: whsec_");
    assert!(secret.is_some_and(|rest| rest.len() > 40), "{second}");
    let unused = cli.run_ok(&["notify", "list"]).await;
    let row = unused.lines().nth(1).unwrap();
    assert_eq!(
        row,
        format!("{id}  webhook  my hook  http://{address}/…  not used yet")
    );
    assert_eq!(cli.run_ok(&["notify", "test", id]).await, "it arrived\n");
    assert_eq!(receiver.next().await.json()["event"], "test");
    receiver.answer_next(500);
    let failed = cli.run(&["notify", "test", id]).await;
    assert_eq!(
        (failed.code, failed.err.as_str()),
        (Some(1), "pvp: it did not arrive: it answered 500\n")
    );
    let listed = cli.run_ok(&["notify", "list"]).await;
    assert!(listed.contains("failed: it answered 500"), "{listed}");
    assert!(
        !listed.contains("secret-path") && !listed.contains("whsec"),
        "{listed}"
    );
    let removed = cli.run_ok(&["notify", "remove", id]).await;
    assert_eq!(removed, format!("removed {id}\n"));
    let again = cli.run_refused(&["notify", "remove", id]).await;
    assert!(again.contains("you have no such channel"), "{again}");
    let hostile = cli
        .run_refused(&["notify", "remove", "../../tokens/x"])
        .await;
    assert!(hostile.contains("is not the id of a channel"), "{hostile}");
}

#[tokio::test]
async fn preferences_are_changed_one_by_one() {
    let (_server, _, cli) = start().await;
    let settings = async |arguments: &[&str]| -> Value {
        let all = [&["notify", "settings", "--json"], arguments].concat();
        serde_json::from_str(&cli.run_ok(&all).await).unwrap()
    };
    let changed = settings(&["--events", "opened,closing", "--show-command", "true"]).await;
    assert_eq!(changed["events"], json!(["opened", "closing"]));
    assert_eq!(changed["show_command"], true);
    let changed = settings(&["--sessions", "owl,fox"]).await;
    assert_eq!(changed["sessions"], json!(["fox", "owl"]));
    assert_eq!(changed["events"], json!(["opened", "closing"]), "as before");
    let zone = "Europe/Berlin";
    let changed = settings(&["--quiet", "22:00-07:00", "--time-zone", zone]).await;
    let hours = json!({ "from": "22:00", "to": "07:00", "time_zone": zone });
    assert_eq!(changed["quiet_hours"], hours);
    let shown = cli.run_ok(&["notify", "settings"]).await;
    assert!(
        shown.contains("quiet hours:   22:00-07:00 Europe/Berlin\n"),
        "{shown}"
    );
    let changed = settings(&["--quiet", "none", "--sessions", "all", "--events", "none"]).await;
    assert_eq!(changed["quiet_hours"], Value::Null);
    assert_eq!(changed["sessions"], Value::Null);
    assert_eq!(changed["events"], json!([]));
    for (arguments, problem) in [
        (
            &["--quiet", "22"][..],
            "--quiet is hours such as 22:00-07:00, or `none`",
        ),
        (
            &["--quiet", "26:00-07:00", "--time-zone", "UTC"],
            "`26:00` is not a time of day",
        ),
        (
            &["--quiet", "22:00-07:00", "--time-zone", "Moon"],
            "there is no time zone `Moon`",
        ),
        (
            &["--events", "none,opened"],
            "--events is `none`, or names events",
        ),
        (&["--vote-links", "true"], "does not allow vote links"),
        (&["--sessions", "a b"], "--sessions"),
    ] {
        let refused = cli
            .run_refused(&[&["notify", "settings"], arguments].concat())
            .await;
        assert!(refused.contains(problem), "{refused}");
    }
}

#[tokio::test]
async fn what_is_refused_says_what_to_do() {
    let (server, _, cli) = start().await;
    for (arguments, problem) in [
        (
            &["webhook", "http://10.0.0.1/x"][..],
            "must begin with https://",
        ),
        (
            &["webhook", "https://10.0.0.1/x"],
            "ask the operator of the server to trust it",
        ),
        (
            &["email", "ann@example.com"],
            "does not allow channels of kind email",
        ),
        (
            &["ntfy", "https://127.0.0.1/a/b"],
            "the topic of an ntfy server",
        ),
        (
            &["slack", "https://x", "--secret-file", "/nonexistent"],
            "reading the secret in /nonexistent",
        ),
    ] {
        let refused = cli
            .run_refused(&[&["notify", "add"], arguments].concat())
            .await;
        assert!(refused.contains(problem), "{refused}");
    }
    let eve = server.invite("Eve", &["observer"], &[]);
    let eves = CliEnv::logged_in(&server.link(&eve, None)).await;
    let refused = eves
        .run_refused(&["notify", "add", "ntfy", "https://127.0.0.1/topic"])
        .await;
    assert!(
        refused.contains("your token does not let you vote"),
        "{refused}"
    );
}
