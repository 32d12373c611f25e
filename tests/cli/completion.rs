//! Completion in a shell: values that only the server knows.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::json;

use super::gates::{gate_handle, only_open_gate};
use crate::support::cli::CliEnv;
use crate::support::{TEST_TIMEOUT, TestServer};

/// What bash would offer for a line, with the cursor at its end.
async fn complete(cli: &CliEnv, line: &str) -> Vec<String> {
    let script = format!(
        "source <({pvp} completions bash)\n\
         COMP_LINE=$1 COMP_POINT=${{#1}}\n\
         read -ra COMP_WORDS <<< \"$1\"\n\
         [[ $1 == *' ' ]] && COMP_WORDS+=('')\n\
         COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\n\
         _pvp_with_values pvp \"${{COMP_WORDS[COMP_CWORD]##*[@:=]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        pvp = env!("CARGO_BIN_EXE_pvp")
    );
    let mut bash = cli.program("bash");
    bash.args(["-c", &script, "bash", line]);
    let output = bash.output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn bash_completes_gates_sessions_agents_and_rules() {
    let server = TestServer::start(&[]).await;
    let mut agent = server
        .create_session_with_agent("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    server.create_session("fox", json!({})).await;
    let ann = server.invite("ann", &["driver", "approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, Some("owl"))).await;
    agent.propose("make").await;
    agent.wait_for("gate.request").await;
    let handle = gate_handle(&only_open_gate(&cli).await);
    for command in ["approve", "reject", "amend", "show"] {
        assert_eq!(complete(&cli, &format!("pvp {command} ")).await, [&*handle]);
    }
    let (short, digest) = handle.split_once('@').unwrap();
    assert_eq!(
        complete(&cli, &format!("pvp approve {}", &short[..3])).await,
        [&*handle]
    );
    // bash completes what follows the `@`.
    assert_eq!(
        complete(&cli, &format!("pvp approve {short}@{}", &digest[..2])).await,
        [digest]
    );
    assert_eq!(complete(&cli, "pvp tail --session ").await, ["fox", "owl"]);
    assert_eq!(complete(&cli, "pvp tail --session=f").await, ["fox"]);
    assert_eq!(complete(&cli, "pvp sessions archive o").await, ["owl"]);
    let agents = complete(&cli, "pvp send --to ").await;
    assert!(
        agents.len() == 1 && agents[0].starts_with("bot"),
        "{agents:?}"
    );
    let allowed = cli.run_json(&["rules", "--json", "allow", "touch"]).await;
    assert_eq!(
        complete(&cli, "pvp rules revoke ").await,
        [allowed["id"].as_str().unwrap()]
    );
    // What clap knows is completed as before, and so is what nobody knows.
    assert_eq!(complete(&cli, "pvp appr").await, ["approve"]);
    assert!(
        complete(&cli, "pvp approve --comm")
            .await
            .contains(&"--comment".to_owned())
    );
    let nothing = complete(&cli, "pvp approve 'not closed").await;
    assert!(!nothing.contains(&handle), "{nothing:?}");
}

#[tokio::test]
async fn completion_is_silent_and_quick_without_a_server() {
    let cli = CliEnv::new();
    let complete = ["complete", "--", "pvp approve "];
    assert_eq!(cli.run_ok(&complete).await, "");
    // It accepts connections, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let link = format!("http://{}/?token=pvp_x", silent.local_addr().unwrap());
    let began = Instant::now();
    let output = cli.run_with_link(&link, &complete).await;
    assert_eq!(output.expect_ok(&complete), "");
    // The limit is 1.5 seconds; the rest is for a busy machine.
    assert!(began.elapsed() < Duration::from_secs(15));
    for line in [
        "",
        "pvp",
        "pvp ",
        "'",
        "pvp approve --",
        "pvp é ",
        "\u{1b}[2J ",
    ] {
        assert_eq!(cli.run_ok(&["complete", "--", line]).await, "", "{line:?}");
    }
}

#[tokio::test]
async fn the_tab_key_of_a_real_bash_completes_a_handle() {
    let server = TestServer::start(&[]).await;
    let mut agent = server
        .create_session_with_agent("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let ann = server.invite("ann", &["approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    agent.propose("make").await;
    agent.wait_for("gate.request").await;
    let handle = gate_handle(&only_open_gate(&cli).await);
    let script = cli.run_ok(&["completions", "bash"]).await;
    std::fs::write(cli.workdir().join("script"), script).unwrap();

    let pair = portable_pty::native_pty_system()
        .openpty(portable_pty::PtySize::default())
        .unwrap();
    let mut command = portable_pty::CommandBuilder::new("bash");
    command.args(["--norc", "--noprofile", "-i"]);
    command.env("HOME", cli.home());
    command.env("PS1", "$ ");
    command.cwd(cli.workdir());
    let mut child = pair.slave.spawn_command(command).unwrap();
    let mut reader = pair.master.try_clone_reader().unwrap();
    let mut writer = pair.master.take_writer().unwrap();
    writer
        .write_all(b"source ./script; echo lo''aded\n")
        .unwrap();
    let expected = format!("pvp approve {handle}");
    drop(pair.slave);
    let size = |cells| std::num::NonZero::new(cells).unwrap();
    let story = tokio::task::spawn_blocking(move || {
        let mut screen = vt100::Parser::new(size(24), size(80), 0);
        let mut typed = false;
        let mut buffer = [0; 4096];
        while !screen.screen().contents().contains(&expected) {
            let count = reader.read(&mut buffer).unwrap_or_default();
            assert!(count > 0, "bash ended: {}", screen.screen().contents());
            screen.process(&buffer[..count]);
            if !typed && screen.screen().contents().contains("loaded") {
                typed = true;
                writer.write_all(b"pvp approve \t").unwrap();
            }
        }
    });
    let ended = tokio::time::timeout(TEST_TIMEOUT, story).await;
    // Without its shell, the terminal ends, and so does whoever reads it.
    child.kill().unwrap();
    child.wait().unwrap();
    ended.expect("the handle appears").unwrap();
}
