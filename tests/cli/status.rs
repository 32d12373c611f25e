//! `pvp` alone: what it says in each state.

use std::time::{Duration, Instant};

use serde_json::json;

use super::gates::gate_handle;
use crate::support::TestServer;
use crate::support::cli::CliEnv;

/// What `pvp` alone prints, with `pvp` for the path of the program, and `ADDRESS` for an address.
async fn status(cli: &CliEnv, address: &str) -> String {
    let text = cli.run_ok(&[]).await;
    text.replace(env!("CARGO_BIN_EXE_pvp"), "pvp")
        .replace(address, "ADDRESS")
}

#[tokio::test]
async fn a_new_directory_is_told_how_to_start() {
    let cli = CliEnv::new();
    assert_eq!(
        status(&cli, "no address").await,
        "This directory is not connected to a server.\n\
         \n  pvp demo       see how it works, with a scripted agent\n  \
         pvp up         start a server with a session for this directory\n  \
         pvp join CODE  join a session that somebody shared with you\n  \
         pvp --help     all commands\n"
    );
    // Help is still there.
    assert!(cli.run_ok(&["--help"]).await.contains("Usage: pvp"));
}

#[tokio::test]
async fn what_is_waiting_is_counted_and_the_next_command_is_named() {
    let server = TestServer::start(&[]).await;
    let mut agent = server
        .create_session_with_agent("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let ann = server.invite("ann", &["driver", "approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    let head = "You       ann (driver, approver)\n\
                Server    http://ADDRESS\n\
                Sessions  owl\n";
    assert_eq!(
        status(&cli, &server.address).await,
        format!(
            "{head}Waiting   nothing\n\
             \n  pvp tui            watch and decide on one screen\n  \
             pvp send 'TEXT'    ask the agent something\n  \
             pvp gates --watch  wait for the next decision\n  \
             pvp --help         all commands\n"
        )
    );
    agent.propose("make").await;
    agent.wait_for("gate.request").await;
    let gate = super::gates::only_open_gate(&cli).await;
    let handle = gate_handle(&gate);
    assert_eq!(
        status(&cli, &server.address).await,
        format!(
            "{head}Waiting   1 command, for you to decide\n\
             \n  pvp gates               list what is waiting\n  \
             pvp show {handle}  read the first one\n  \
             pvp tui                 decide on one screen\n  \
             pvp --help              all commands\n"
        )
    );
    cli.run_ok(&["show", &handle]).await;
    // Somebody who may not vote is not asked to.
    let eve = server.invite("eve", &["observer"], &[]);
    let watching = CliEnv::logged_in(&server.link(&eve, None)).await;
    let text = status(&watching, &server.address).await;
    assert!(
        text.contains("Waiting   1 command, none of them for you\n") && !text.contains("pvp show"),
        "{text}"
    );
    // An agent's link is for the agent.
    let bot = server.invite("bot2", &["driver"], &["--kind", "agent"]);
    let agents = CliEnv::logged_in(&server.link(&bot, Some("owl"))).await;
    let text = status(&agents, &server.address).await;
    assert!(text.contains("You       bot2 (agent, driver)\n"), "{text}");
    assert!(text.contains("  pvp agent --model MODEL"), "{text}");
}

#[tokio::test]
async fn a_server_that_is_down_or_says_no_is_named_without_an_error() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    let address = server.address.clone();
    let wrong = server.link(&ann, None).replace("token=pvp_", "token=pvp_0");
    let text = cli.run_with_link(&wrong, &[]).await.expect_ok(&[]);
    assert!(
        text.contains("it does not accept the saved link: "),
        "{text}"
    );
    assert!(text.contains(" login"), "{text}");
    assert!(server.stop().await.success());
    assert_eq!(
        status(&cli, &address).await,
        "Server    http://ADDRESS is not reachable: Connection refused (os error 111)\n\
         \n  pvp login   save another link\n  \
         pvp up      start a server with a session for this directory\n  \
         pvp --help  all commands\n"
    );
    std::fs::write(cli.link_file(&cli.workdir()), "nonsense\n").unwrap();
    let text = cli.run_ok(&[]).await;
    assert!(
        text.starts_with("The link for this directory cannot be used: "),
        "{text}"
    );
}

#[tokio::test]
async fn a_stopped_server_of_this_directory_is_started_again_with_up() {
    let cli = CliEnv::new();
    let mut up = cli.spawn(&["up", "--json", "--listen", "127.0.0.1:0"]);
    up.next_json().await;
    let text = status(&cli, "no address").await;
    // The agent's link is saved here too.
    assert!(
        text.contains("  pvp agent --model MODEL  start an agent here\n"),
        "{text}"
    );
    up.signal("INT");
    up.ended().await;
    let text = status(&cli, "no address").await;
    assert!(
        text.contains("  pvp up      start the server of this directory again\n"),
        "{text}"
    );
}

#[tokio::test]
async fn a_server_that_never_answers_does_not_hold_anyone_up() {
    // It accepts connections, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let link = format!("http://{}/?token=pvp_x", silent.local_addr().unwrap());
    let cli = CliEnv::new();
    let began = Instant::now();
    let text = cli.run_with_link(&link, &[]).await.expect_ok(&[]);
    assert!(text.contains(" is not reachable: "), "{text}");
    // The limit is five seconds; the rest is for a busy machine.
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn instructions_say_pvp_where_a_shell_finds_it() {
    let cli = CliEnv::new();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_pvp"));
    let bin = cli.workdir().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(program, bin.join("pvp")).unwrap();
    let path = bin.display().to_string();
    let text = cli.run_with_env(&[], &[("PATH", &path)]).await;
    assert!(text.out.contains("\n  pvp up "), "{text:?}");
    // Another program of that name is not this one.
    std::fs::remove_file(bin.join("pvp")).unwrap();
    std::fs::copy("/bin/true", bin.join("pvp")).unwrap();
    let text = cli.run_with_env(&[], &[("PATH", &path)]).await;
    let own = format!("\n  {} up ", program.display());
    assert!(text.out.contains(&own), "{text:?}");
}
