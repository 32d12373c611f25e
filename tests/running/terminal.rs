//! Interactive commands: a terminal of their own, with keys and a size.

use pvp_agent::reaper::{PtySize, SpawnSpec};
use pvp_agent::run::{PtyInput, PtyInputError, ReaperPool, StopReason};
use pvp_protocol::SandboxProfile;

use crate::place::{Place, Running, ample, program, until, write_program};

const SIZE: PtySize = PtySize {
    columns: 100,
    rows: 30,
};

fn interactive(place: &Place, line: &str) -> SpawnSpec {
    SpawnSpec {
        terminal: Some(SIZE),
        ..place.errand(line)
    }
}

async fn start(place: &Place, line: &str) -> (Running, PtyInput) {
    let running = Running::start(&interactive(place, line), ample()).await;
    let keyboard = running.keyboard.clone().unwrap();
    (running, keyboard)
}

/// Waits until a program goes on in the foreground of its terminal, where keys reach it.
async fn in_front(place: &Place, program: &str) {
    let is_in_front = |(pid, line): &(String, String)| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(") ").next().unwrap_or_default();
        let fields: Vec<_> = fields.split(' ').collect();
        // State, parent, group, session, terminal, and the group in the foreground of that.
        let [state, _, group, _, _, foreground, ..] = fields[..] else {
            return false;
        };
        line.trim() == program && state != "T" && group == foreground
    };
    until("it is in the foreground", || {
        place.processes().iter().any(is_in_front)
    })
    .await;
}

#[tokio::test]
async fn a_command_without_a_terminal_has_none() {
    let place = Place::new();
    let (_, out, _) = place.line("tty; [ -t 1 ] || echo a pipe; cat").await;
    assert_eq!(out, "not a tty\na pipe\n");
    let running = Running::start(&place.errand("true"), ample()).await;
    assert!(running.keyboard.is_none());
}

#[tokio::test]
async fn a_terminal_is_the_commands_own_on_all_three_streams() {
    let place = Place::new();
    let line =
        "tty; for n in 0 1 2; do [ -t $n ] && echo $n; done; echo here >/dev/tty; echo err >&2";
    let (mut running, _) = start(&place, line).await;
    let said = running.rest().await;
    let said: String = said.iter().map(|piece| piece.text.as_str()).collect();
    let (device, rest) = said.split_once("\r\n").unwrap();
    assert!(device.starts_with("/dev/pts/"), "{said}");
    assert_eq!(rest, "0\r\n1\r\n2\r\nhere\r\nerr\r\n");
    let finish = running.finish().await.unwrap();
    assert_eq!((finish.exit_code, finish.stderr.bytes), (Some(0), 0));
    assert_eq!(finish.stdout.bytes, said.len() as u64);
}

/// Bash would take the terminal for its own by itself.
#[tokio::test]
async fn a_program_that_is_no_shell_has_its_terminal_too() {
    let place = Place::new();
    let mut errand = interactive(&place, "");
    errand.program = "perl".to_owned();
    let line = r#"$| = 1; $SIG{INT} = sub { print "interrupted\n"; exit 6 }; open(my $tty, "+<", "/dev/tty") or die "no terminal"; print "ready\n"; <$tty>"#;
    errand.arguments = ["-e", line].map(str::to_owned).into();
    let mut running = Running::start(&errand, ample()).await;
    running.says("ready").await;
    running.keyboard.as_ref().unwrap().write(b"\x03").unwrap();
    running.says("interrupted").await;
    assert_eq!(running.finish().await.unwrap().exit_code, Some(6));
}

#[tokio::test]
async fn control_c_works_where_the_executor_ignores_it() {
    let place = Place::new();
    let deaf = place.workspace.path().join("deaf");
    let line = format!("trap '' INT HUP TSTP; exec {} \"$@\"", program().display());
    write_program(&deaf, &format!("#!/bin/bash\n{line}\n"));
    let errand = interactive(&place, "echo ready; exec sleep 1000");
    let mut running = Running::start_below(&ReaperPool::on_demand(&deaf), &errand, ample()).await;
    running.says("ready").await;
    running.keyboard.as_ref().unwrap().write(b"\x03").unwrap();
    assert_eq!(running.finish().await.unwrap().signal, Some(2));
}

#[tokio::test]
async fn a_confined_command_keeps_its_own_terminal_and_no_other() {
    let place = Place::new();
    let (mut other, _) = start(&place, "tty; exec sleep 1000").await;
    let device = other.says("\r\n").await;
    let line = format!(
        "stty size </dev/tty; echo tty >/dev/tty; echo name >$(tty); echo other >{}; echo end",
        device.trim()
    );
    let mut errand = interactive(&place, &line);
    errand.confinement.profile = SandboxProfile::Workspace;
    let mut running = Running::start(&errand, ample()).await;
    let said = running.says("end\r\n").await;
    assert!(said.starts_with("30 100\r\ntty\r\nname\r\n"), "{said}");
    assert!(said.contains("Permission denied"), "{said}");
    other.stopper.kill("enough");
    assert_eq!(other.rest().await, []);
}

#[tokio::test]
async fn a_terminal_has_a_size_and_a_program_is_told_when_it_changes() {
    let place = Place::new();
    let line = "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.01; done";
    let (mut running, keyboard) = start(&place, line).await;
    assert_eq!(running.says("\n").await, "30 100\r\n");
    let wider = PtySize {
        columns: 132,
        rows: 43,
    };
    keyboard.resize(wider).unwrap();
    assert_eq!(running.says("\n").await, "43 132\r\n");
    assert_eq!(running.finish().await.unwrap().exit_code, Some(0));
    assert_eq!(keyboard.resize(wider), Err(PtyInputError::Gone));
}

#[tokio::test]
async fn keys_reach_the_program() {
    let place = Place::new();
    let line = r#"stty -echo; read -p 'your name? ' name; echo "hello $name""#;
    let (mut running, keyboard) = start(&place, line).await;
    running.says("your name? ").await;
    keyboard.write("Zoë ☕\r".as_bytes()).unwrap();
    assert_eq!(running.says("\n").await, "hello Zoë ☕\r\n");
    assert_eq!(running.finish().await.unwrap().exit_code, Some(0));
    assert_eq!(keyboard.write(b"more"), Err(PtyInputError::Gone));
}

#[tokio::test]
async fn control_c_interrupts_what_runs_in_the_foreground() {
    let place = Place::new();
    // The shell outlives what it runs, as at any prompt.
    let line = "trap 'echo interrupted' INT; stty -echo; echo ready; sleep 1000; echo $?";
    let (mut running, keyboard) = start(&place, line).await;
    running.says("ready").await;
    in_front(&place, "sleep 1000").await;
    keyboard.write(b"\x03").unwrap();
    let said = running.says("130").await;
    assert!(said.contains("interrupted"), "{said}");
    let finish = running.finish().await.unwrap();
    assert_eq!((finish.exit_code, finish.stop_reason), (Some(0), None));
    assert_eq!(place.alive(), Vec::<String>::new());
}

#[tokio::test]
async fn a_shell_has_job_control() {
    let place = Place::new();
    let (mut running, keyboard) = start(&place, "exec bash --norc --noprofile -i").await;
    keyboard.write(b"PS1='ready> '\r").unwrap();
    running.says("\nready> ").await;
    keyboard.write(b"sleep 1000 && echo not this\r").unwrap();
    running.says("not this").await;
    // Ctrl-Z stops the program and gives the terminal back to the shell.
    in_front(&place, "sleep 1000").await;
    keyboard.write(b"\x1a").unwrap();
    running.says("Stopped").await;
    running.says("ready> ").await;
    keyboard.write(b"fg\r").unwrap();
    running.says("sleep 1000").await;
    // The shell names the program before it lets it go on.
    in_front(&place, "sleep 1000").await;
    keyboard.write(b"\x03").unwrap();
    running.says("ready> ").await;
    keyboard.write(b"exit 5\r").unwrap();
    assert_eq!(running.finish().await.unwrap().exit_code, Some(5));
    assert_eq!(place.alive(), Vec::<String>::new());
}

#[tokio::test]
async fn everything_that_was_shown_before_the_end_is_told() {
    let place = Place::new();
    let (mut running, _) = start(&place, "stty -onlcr; seq 1 20000; touch finished").await;
    // Also to someone who takes it only when nothing is left of the command.
    let finished = place.workspace.path().join("finished");
    until("it is finished", || finished.exists()).await;
    place.is_quiet().await;
    let said = running.rest().await;
    let said: String = said.iter().map(|piece| piece.text.as_str()).collect();
    let whole: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(said, whole);
}

#[tokio::test]
async fn characters_arrive_whole_from_a_screen() {
    let place = Place::new();
    let line = r"stty -onlcr; for i in {1..2000}; do printf '\xe2'; printf '\x98\x95'; done";
    let (mut running, _) = start(&place, line).await;
    let said = running.rest().await;
    let said: String = said.iter().map(|piece| piece.text.as_str()).collect();
    assert_eq!(said, "☕".repeat(2000));
}

#[tokio::test]
async fn a_program_that_does_not_read_its_keys_takes_a_bounded_number_of_them() {
    let place = Place::new();
    let line =
        "stty raw -echo; echo ready; until [ -e go ]; do sleep 0.01; done; head -c 200000 | wc -c";
    let (mut running, keyboard) = start(&place, line).await;
    running.says("ready").await;
    let mut pressed = 0;
    while keyboard.write(&[b'x'; 1000]).is_ok() {
        pressed += 1000;
        assert!(pressed < 1_000_000, "there is an end to it");
        tokio::task::yield_now().await;
    }
    assert_eq!(keyboard.write(&[b'x'; 1000]), Err(PtyInputError::Full));
    // None of them is lost once it reads.
    std::fs::write(place.workspace.path().join("go"), "").unwrap();
    while pressed < 200_000 {
        match keyboard.write(&[b'x'; 1000]) {
            Ok(()) => pressed += 1000,
            Err(PtyInputError::Full) => tokio::task::yield_now().await,
            Err(PtyInputError::Gone) => panic!("it still reads"),
        }
    }
    running.says("200000").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interactive_command_that_is_stopped_leaves_nothing_behind() {
    for cgroup in [true, false] {
        let place = Place::new();
        let mut errand = interactive(
            &place,
            "trap '' TERM HUP INT; (setsid sleep 1000 &); (trap '' HUP; sleep 1000) & echo ready; sleep 1000; wait",
        );
        errand.cgroup = cgroup;
        let mut running = Running::start(&errand, ample()).await;
        running.says("ready").await;
        running.stopper.stop("enough");
        let finish = running.finish().await.unwrap();
        assert_eq!(
            finish.stop_reason,
            Some(StopReason::Requested("enough".to_owned()))
        );
        assert_eq!(place.alive(), Vec::<String>::new());
    }
}
