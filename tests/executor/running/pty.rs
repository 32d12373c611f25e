//! Interactive commands: a pseudo-terminal with input and a size.

use pvp_agent::reaper::{PtySize, SpawnSpec};
use pvp_agent::run::{PtyInput, PtyInputError, ReaperPool, StopReason};
use pvp_protocol::SandboxProfile;

use crate::support::program::write_program;
use crate::support::session::wait_until;

use super::fixture::{CommandFixture, TestRun, generous_bounds, pvp_path};

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
    let running = TestRun::start(&pty_spec(fixture, line), generous_bounds()).await;
    let keyboard = running.keyboard.clone().unwrap();
    (running, keyboard)
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
    let running = TestRun::start(&fixture.spawn_spec("true"), generous_bounds()).await;
    assert!(running.keyboard.is_none());
}

#[tokio::test]
async fn a_terminal_is_the_commands_own_on_all_three_streams() {
    let fixture = CommandFixture::new();
    let line =
        "tty; for n in 0 1 2; do [ -t $n ] && echo $n; done; echo here >/dev/tty; echo err >&2";
    let (mut running, _) = start_pty(&fixture, line).await;
    let said = running.remaining_pieces().await;
    let said: String = said.iter().map(|piece| piece.text.as_str()).collect();
    let (device, rest) = said.split_once("\r\n").unwrap();
    assert!(device.starts_with("/dev/pts/"), "{said}");
    assert_eq!(rest, "0\r\n1\r\n2\r\nhere\r\nerr\r\n");
    let finish = running.finish().await.unwrap();
    assert_eq!((finish.exit_code, finish.stderr.bytes), (Some(0), 0));
    assert_eq!(finish.stdout.bytes, said.len() as u64);
}

/// Bash would make the terminal its controlling terminal by itself.
#[tokio::test]
async fn a_program_that_is_no_shell_has_its_terminal_too() {
    let fixture = CommandFixture::new();
    let mut spawn_spec = pty_spec(&fixture, "");
    spawn_spec.program = "perl".to_owned();
    let line = r#"$| = 1; $SIG{INT} = sub { print "interrupted\n"; exit 6 }; open(my $tty, "+<", "/dev/tty") or die "no terminal"; print "ready\n"; <$tty>"#;
    spawn_spec.arguments = ["-e", line].map(str::to_owned).into();
    let mut running = TestRun::start(&spawn_spec, generous_bounds()).await;
    running.wait_for_text("ready").await;
    running.keyboard.as_ref().unwrap().write(b"\x03").unwrap();
    running.wait_for_text("interrupted").await;
    assert_eq!(running.finish().await.unwrap().exit_code, Some(6));
}

#[tokio::test]
async fn control_c_works_where_the_executor_ignores_it() {
    let fixture = CommandFixture::new();
    let deaf = fixture.workspace.path().join("deaf");
    let line = format!("trap '' INT HUP TSTP; exec {} \"$@\"", pvp_path().display());
    write_program(&deaf, &format!("#!/bin/bash\n{line}\n"));
    let spawn_spec = pty_spec(&fixture, "echo ready; exec sleep 1000");
    let mut running = TestRun::start_with_reapers(
        &ReaperPool::on_demand(&deaf),
        &spawn_spec,
        generous_bounds(),
    )
    .await;
    running.wait_for_text("ready").await;
    running.keyboard.as_ref().unwrap().write(b"\x03").unwrap();
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
    spawn_spec.confinement.profile = SandboxProfile::Workspace;
    let mut running = TestRun::start(&spawn_spec, generous_bounds()).await;
    let said = running.wait_for_text("end\r\n").await;
    assert!(said.starts_with("30 100\r\ntty\r\nname\r\n"), "{said}");
    assert!(said.contains("Permission denied"), "{said}");
    other.stopper.kill("enough");
    assert_eq!(other.remaining_pieces().await, []);
}

#[tokio::test]
async fn a_terminal_has_a_size_and_a_program_is_told_when_it_changes() {
    let fixture = CommandFixture::new();
    let line = "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.01; done";
    let (mut running, keyboard) = start_pty(&fixture, line).await;
    assert_eq!(running.wait_for_text("\n").await, "30 100\r\n");
    let wider = PtySize {
        columns: 132,
        rows: 43,
    };
    keyboard.resize(wider).unwrap();
    assert_eq!(running.wait_for_text("\n").await, "43 132\r\n");
    assert_eq!(running.finish().await.unwrap().exit_code, Some(0));
    assert_eq!(keyboard.resize(wider), Err(PtyInputError::Gone));
}

#[tokio::test]
async fn keys_reach_the_program() {
    let fixture = CommandFixture::new();
    let line = r#"stty -echo; read -p 'your name? ' name; echo "hello $name""#;
    let (mut running, keyboard) = start_pty(&fixture, line).await;
    running.wait_for_text("your name? ").await;
    keyboard.write("Zoë ☕\r".as_bytes()).unwrap();
    assert_eq!(running.wait_for_text("\n").await, "hello Zoë ☕\r\n");
    assert_eq!(running.finish().await.unwrap().exit_code, Some(0));
    assert_eq!(keyboard.write(b"more"), Err(PtyInputError::Gone));
}

#[tokio::test]
async fn control_c_interrupts_what_runs_in_the_foreground() {
    let fixture = CommandFixture::new();
    // The shell outlives what it runs, as at any prompt.
    let line = "trap 'echo interrupted' INT; stty -echo; echo ready; sleep 1000; echo $?";
    let (mut running, keyboard) = start_pty(&fixture, line).await;
    running.wait_for_text("ready").await;
    wait_for_foreground(&fixture, "sleep 1000").await;
    keyboard.write(b"\x03").unwrap();
    let said = running.wait_for_text("130").await;
    assert!(said.contains("interrupted"), "{said}");
    let finish = running.finish().await.unwrap();
    assert_eq!((finish.exit_code, finish.stop_reason), (Some(0), None));
    assert_eq!(fixture.live_commands(), Vec::<String>::new());
}

#[tokio::test]
async fn a_shell_has_job_control() {
    let fixture = CommandFixture::new();
    let (mut running, keyboard) = start_pty(&fixture, "exec bash --norc --noprofile -i").await;
    keyboard.write(b"PS1='ready> '\r").unwrap();
    running.wait_for_text("\nready> ").await;
    keyboard.write(b"sleep 1000 && echo not this\r").unwrap();
    running.wait_for_text("not this").await;
    // Ctrl-Z stops the program and gives the terminal back to the shell.
    wait_for_foreground(&fixture, "sleep 1000").await;
    keyboard.write(b"\x1a").unwrap();
    running.wait_for_text("Stopped").await;
    running.wait_for_text("ready> ").await;
    keyboard.write(b"fg\r").unwrap();
    running.wait_for_text("sleep 1000").await;
    // The shell prints the program's name before it continues it.
    wait_for_foreground(&fixture, "sleep 1000").await;
    keyboard.write(b"\x03").unwrap();
    running.wait_for_text("ready> ").await;
    keyboard.write(b"exit 5\r").unwrap();
    assert_eq!(running.finish().await.unwrap().exit_code, Some(5));
    assert_eq!(fixture.live_commands(), Vec::<String>::new());
}

#[tokio::test]
async fn everything_that_was_shown_before_the_end_is_told() {
    let fixture = CommandFixture::new();
    let (mut running, _) = start_pty(&fixture, "stty -onlcr; seq 1 20000; touch finished").await;
    // Also to a reader who starts only after the command is gone.
    let finished = fixture.workspace.path().join("finished");
    wait_until("it is finished", || finished.exists()).await;
    fixture.wait_until_empty().await;
    let said = running.remaining_pieces().await;
    let said: String = said.iter().map(|piece| piece.text.as_str()).collect();
    let whole: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(said, whole);
}

#[tokio::test]
async fn characters_arrive_whole_from_a_screen() {
    let fixture = CommandFixture::new();
    let line = r"stty -onlcr; for i in {1..2000}; do printf '\xe2'; printf '\x98\x95'; done";
    let (mut running, _) = start_pty(&fixture, line).await;
    let said = running.remaining_pieces().await;
    let said: String = said.iter().map(|piece| piece.text.as_str()).collect();
    assert_eq!(said, "☕".repeat(2000));
}

#[tokio::test]
async fn a_program_that_does_not_read_its_keys_takes_a_bounded_number_of_them() {
    let fixture = CommandFixture::new();
    let line =
        "stty raw -echo; echo ready; until [ -e go ]; do sleep 0.01; done; head -c 200000 | wc -c";
    let (mut running, keyboard) = start_pty(&fixture, line).await;
    running.wait_for_text("ready").await;
    let mut pressed = 0;
    while keyboard.write(&[b'x'; 1000]).is_ok() {
        pressed += 1000;
        assert!(pressed < 1_000_000, "there is an end to it");
        tokio::task::yield_now().await;
    }
    assert_eq!(keyboard.write(&[b'x'; 1000]), Err(PtyInputError::Full));
    // No key is lost once the program reads.
    std::fs::write(fixture.workspace.path().join("go"), "").unwrap();
    while pressed < 200_000 {
        match keyboard.write(&[b'x'; 1000]) {
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
        let mut running = TestRun::start(&spawn_spec, generous_bounds()).await;
        running.wait_for_text("ready").await;
        running.stopper.stop("enough");
        let finish = running.finish().await.unwrap();
        assert_eq!(
            finish.stop_reason,
            Some(StopReason::Requested("enough".to_owned()))
        );
        assert_eq!(fixture.live_commands(), Vec::<String>::new());
    }
}
