//! Interactive commands: a pseudo-terminal with input and a size.

use pvp_agent::reaper::{PtySize, SpawnSpec};
use pvp_agent::run::{PtyInput, PtyInputError, ReaperPool, StopReason};
use pvp_protocol::SandboxProfile;

use crate::support::program::write_program;
use crate::support::session::wait_until;

use super::fixture::{CommandFixture, TestRun, generous_limits, pvp_path};

const TERMINAL_SIZE: PtySize = PtySize {
    columns: 100,
    rows: 30,
};

fn pty_spec(fixture: &CommandFixture, line: &str) -> SpawnSpec {
    SpawnSpec {
        terminal: Some(TERMINAL_SIZE),
        ..fixture.spawn_spec(line)
    }
}

async fn start_pty(fixture: &CommandFixture, line: &str) -> (TestRun, PtyInput) {
    let running = TestRun::start(&pty_spec(fixture, line), generous_limits()).await;
    let pty_input = running.pty_input.clone().unwrap();
    (running, pty_input)
}

/// Waits until a program runs in the foreground of its terminal, where input reaches it.
async fn wait_for_foreground(fixture: &CommandFixture, program: &str) {
    let is_in_front = |(pid, line): &(String, String)| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(") ").next().unwrap_or_default();
        let fields: Vec<_> = fields.split(' ').collect();
        // State, parent, process group, session, terminal, and the terminal's foreground process
        // group.
        let [state, _, group, _, _, foreground, ..] = fields[..] else {
            return false;
        };
        line.trim() == program && state != "T" && group == foreground
    };
    wait_until("it is in the foreground", || {
        fixture.live_processes().iter().any(is_in_front)
    })
    .await;
}

#[tokio::test]
async fn a_command_without_a_terminal_has_none() {
    let fixture = CommandFixture::new();
    let (_, out, _) = fixture.run_line("tty; [ -t 1 ] || echo a pipe; cat").await;
    assert_eq!(out, "not a tty\na pipe\n");
    let running = TestRun::start(&fixture.spawn_spec("true"), generous_limits()).await;
    assert!(running.pty_input.is_none());
}

#[tokio::test]
async fn a_terminal_is_the_commands_own_on_all_three_streams() {
    let fixture = CommandFixture::new();
    let line =
        "tty; for n in 0 1 2; do [ -t $n ] && echo $n; done; echo here >/dev/tty; echo err >&2";
    let (mut running, _) = start_pty(&fixture, line).await;
    let output = running.remaining_chunks().await;
    let output: String = output.iter().map(|chunk| chunk.text.as_str()).collect();
    let (device, rest) = output.split_once("\r\n").unwrap();
    assert!(device.starts_with("/dev/pts/"), "{output}");
    assert_eq!(rest, "0\r\n1\r\n2\r\nhere\r\nerr\r\n");
    let finish = running.finish().await.unwrap();
    assert_eq!((finish.exit_code, finish.stderr.bytes), (Some(0), 0));
    assert_eq!(finish.stdout.bytes, output.len() as u64);
}

/// Bash would make the terminal its controlling terminal by itself.
#[tokio::test]
async fn a_program_that_is_no_shell_has_its_terminal_too() {
    let fixture = CommandFixture::new();
    let mut spawn_spec = pty_spec(&fixture, "");
    spawn_spec.program = "perl".to_owned();
    let line = r#"$| = 1; $SIG{INT} = sub { print "interrupted\n"; exit 6 }; open(my $tty, "+<", "/dev/tty") or die "no terminal"; print "ready\n"; <$tty>"#;
    spawn_spec.arguments = ["-e", line].map(str::to_owned).into();
    let mut running = TestRun::start(&spawn_spec, generous_limits()).await;
    running.wait_for_text("ready").await;
    running.pty_input.as_ref().unwrap().write(b"\x03").unwrap();
    running.wait_for_text("interrupted").await;
    assert_eq!(running.finish().await.unwrap().exit_code, Some(6));
}

#[tokio::test]
async fn control_c_works_where_the_executor_ignores_it() {
    let fixture = CommandFixture::new();
    let ignores_sigint = fixture.workspace.path().join("deaf");
    let line = format!("trap '' INT HUP TSTP; exec {} \"$@\"", pvp_path().display());
    write_program(&ignores_sigint, format!("#!/bin/bash\n{line}\n"));
    let spawn_spec = pty_spec(&fixture, "echo ready; exec sleep 1000");
    let mut running = TestRun::start_with_reapers(
        &ReaperPool::on_demand(&ignores_sigint),
        &spawn_spec,
        generous_limits(),
    )
    .await;
    running.wait_for_text("ready").await;
    running.pty_input.as_ref().unwrap().write(b"\x03").unwrap();
    assert_eq!(running.finish().await.unwrap().signal, Some(2));
}

#[tokio::test]
async fn a_confined_command_keeps_its_own_terminal_and_no_other() {
    let fixture = CommandFixture::new();
    let (mut other, _) = start_pty(&fixture, "tty; exec sleep 1000").await;
    let device = other.wait_for_text("\r\n").await;
    let line = format!(
        "stty size </dev/tty; echo tty >/dev/tty; echo name >$(tty); echo other >{}; echo end",
        device.trim()
    );
    let mut spawn_spec = pty_spec(&fixture, &line);
    spawn_spec.sandbox.profile = SandboxProfile::Workspace;
    let mut running = TestRun::start(&spawn_spec, generous_limits()).await;
    let output = running.wait_for_text("end\r\n").await;
    assert!(output.starts_with("30 100\r\ntty\r\nname\r\n"), "{output}");
    assert!(output.contains("Permission denied"), "{output}");
    other.stop_sender.kill("enough");
    assert_eq!(other.remaining_chunks().await, []);
}

#[tokio::test]
async fn a_program_is_notified_when_its_terminal_is_resized() {
    let fixture = CommandFixture::new();
    let line = "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.01; done";
    let (mut running, pty_input) = start_pty(&fixture, line).await;
    assert_eq!(running.wait_for_text("\n").await, "30 100\r\n");
    let wider = PtySize {
        columns: 132,
        rows: 43,
    };
    pty_input.resize(wider).unwrap();
    assert_eq!(running.wait_for_text("\n").await, "43 132\r\n");
    assert_eq!(running.finish().await.unwrap().exit_code, Some(0));
    assert_eq!(pty_input.resize(wider), Err(PtyInputError::Gone));
}

#[tokio::test]
async fn keys_reach_the_program() {
    let fixture = CommandFixture::new();
    let line = r#"stty -echo; read -p 'your name? ' name; echo "hello $name""#;
    let (mut running, pty_input) = start_pty(&fixture, line).await;
    running.wait_for_text("your name? ").await;
    pty_input.write("Zoë ☕\r".as_bytes()).unwrap();
    assert_eq!(running.wait_for_text("\n").await, "hello Zoë ☕\r\n");
    assert_eq!(running.finish().await.unwrap().exit_code, Some(0));
    assert_eq!(pty_input.write(b"more"), Err(PtyInputError::Gone));
}

#[tokio::test]
async fn control_c_interrupts_the_foreground_program() {
    let fixture = CommandFixture::new();
    // The shell outlives what it runs, as at any prompt.
    let line = "trap 'echo interrupted' INT; stty -echo; echo ready; sleep 1000; echo $?";
    let (mut running, pty_input) = start_pty(&fixture, line).await;
    running.wait_for_text("ready").await;
    wait_for_foreground(&fixture, "sleep 1000").await;
    pty_input.write(b"\x03").unwrap();
    let output = running.wait_for_text("130").await;
    assert!(output.contains("interrupted"), "{output}");
    let finish = running.finish().await.unwrap();
    assert_eq!((finish.exit_code, finish.stop_reason), (Some(0), None));
    assert_eq!(fixture.live_commands(), Vec::<String>::new());
}

#[tokio::test]
async fn a_shell_has_job_control() {
    let fixture = CommandFixture::new();
    let (mut running, pty_input) = start_pty(&fixture, "exec bash --norc --noprofile -i").await;
    pty_input.write(b"PS1='ready> '\r").unwrap();
    running.wait_for_text("\nready> ").await;
    pty_input.write(b"sleep 1000 && echo not this\r").unwrap();
    running.wait_for_text("not this").await;
    // Ctrl-Z stops the program and gives the terminal back to the shell.
    wait_for_foreground(&fixture, "sleep 1000").await;
    pty_input.write(b"\x1a").unwrap();
    running.wait_for_text("Stopped").await;
    running.wait_for_text("ready> ").await;
    pty_input.write(b"fg\r").unwrap();
    running.wait_for_text("sleep 1000").await;
    // The shell prints the program's name before it continues it.
    wait_for_foreground(&fixture, "sleep 1000").await;
    pty_input.write(b"\x03").unwrap();
    running.wait_for_text("ready> ").await;
    pty_input.write(b"exit 5\r").unwrap();
    assert_eq!(running.finish().await.unwrap().exit_code, Some(5));
    assert_eq!(fixture.live_commands(), Vec::<String>::new());
}

#[tokio::test]
async fn all_output_before_the_end_is_delivered() {
    let fixture = CommandFixture::new();
    let (mut running, _) = start_pty(&fixture, "stty -onlcr; seq 1 20000; touch finished").await;
    // Also to a reader who starts only after the command is gone.
    let finished = fixture.workspace.path().join("finished");
    wait_until("it is finished", || finished.exists()).await;
    fixture.wait_until_empty().await;
    let output = running.remaining_chunks().await;
    let output: String = output.iter().map(|chunk| chunk.text.as_str()).collect();
    let whole: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(output, whole);
}

#[tokio::test]
async fn characters_from_a_terminal_arrive_whole() {
    let fixture = CommandFixture::new();
    let line = r"stty -onlcr; for i in {1..2000}; do printf '\xe2'; printf '\x98\x95'; done";
    let (mut running, _) = start_pty(&fixture, line).await;
    let output = running.remaining_chunks().await;
    let output: String = output.iter().map(|chunk| chunk.text.as_str()).collect();
    assert_eq!(output, "☕".repeat(2000));
}

#[tokio::test]
async fn the_pending_input_of_a_program_that_does_not_read_is_bounded() {
    let fixture = CommandFixture::new();
    let line =
        "stty raw -echo; echo ready; until [ -e go ]; do sleep 0.01; done; head -c 200000 | wc -c";
    let (mut running, pty_input) = start_pty(&fixture, line).await;
    running.wait_for_text("ready").await;
    let mut pressed = 0;
    while pty_input.write(&[b'x'; 1000]).is_ok() {
        pressed += 1000;
        assert!(pressed < 1_000_000, "there is an end to it");
        tokio::task::yield_now().await;
    }
    assert_eq!(pty_input.write(&[b'x'; 1000]), Err(PtyInputError::Full));
    // No key is lost once the program reads.
    std::fs::write(fixture.workspace.path().join("go"), "").unwrap();
    while pressed < 200_000 {
        match pty_input.write(&[b'x'; 1000]) {
            Ok(()) => pressed += 1000,
            Err(PtyInputError::Full) => tokio::task::yield_now().await,
            Err(PtyInputError::Gone) => panic!("it still reads"),
        }
    }
    running.wait_for_text("200000").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interactive_command_that_is_stopped_leaves_nothing_behind() {
    for cgroup in [true, false] {
        let fixture = CommandFixture::new();
        let mut spawn_spec = pty_spec(
            &fixture,
            "trap '' TERM HUP INT; (setsid sleep 1000 &); (trap '' HUP; sleep 1000) & echo ready; sleep 1000; wait",
        );
        spawn_spec.cgroup = cgroup;
        let mut running = TestRun::start(&spawn_spec, generous_limits()).await;
        running.wait_for_text("ready").await;
        running.stop_sender.stop("enough");
        let finish = running.finish().await.unwrap();
        assert_eq!(
            finish.stop_reason,
            Some(StopReason::Requested("enough".to_owned()))
        );
        assert_eq!(fixture.live_commands(), Vec::<String>::new());
    }
}
