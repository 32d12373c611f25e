//! Output of commands: exact, in order, and within its limit.

use std::time::Duration;

use pvp_agent::run::{OverflowAction, RunLimits, StopReason};
use pvp_protocol::payload::OutputStream;

use crate::support::session::wait_until;

use super::executor_process::ExecutorProcess;
use super::fixture::{CommandFixture, TestRun, generous_limits, is_alive, stream_text};

/// How much an executor's memory may grow during a run, however much the command prints.
const GROWTH_KIB: u64 = 32 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn output_is_cut_at_exactly_the_limit_and_the_command_is_killed() {
    let fixture = CommandFixture::new();
    let bounds = RunLimits {
        output_bytes: 1_000_003,
        ..generous_limits()
    };
    let line = "yes out & yes err >&2 & wait";
    let (finish, chunks) = fixture.run(&fixture.spawn_spec(line), bounds).await;
    let finish = finish.unwrap();
    let received: usize = chunks.iter().map(|chunk| chunk.text.len()).sum();
    assert_eq!(received, 1_000_003);
    assert_eq!(finish.stdout.bytes + finish.stderr.bytes, 1_000_003);
    assert_eq!(finish.stop_reason, Some(StopReason::OutputLimit));
    assert_eq!(fixture.live_commands(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn output_may_be_truncated_while_the_command_goes_on() {
    let fixture = CommandFixture::new();
    let bounds = RunLimits {
        output_bytes: 100_003,
        on_overflow: OverflowAction::Truncate,
        ..generous_limits()
    };
    let line = "seq 1 200000; echo done >&2; touch finished; exit 4";
    let (finish, chunks) = fixture.run(&fixture.spawn_spec(line), bounds).await;
    let finish = finish.unwrap();
    assert_eq!((finish.exit_code, finish.stop_reason), (Some(4), None));
    assert!(fixture.workspace.path().join("finished").exists());
    let whole: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(stream_text(&chunks, OutputStream::Stdout), whole[..100_003]);
    assert_eq!(stream_text(&chunks, OutputStream::Stderr), "");
    let (out, err) = (finish.stdout, finish.stderr);
    assert_eq!((out.bytes, out.truncated), (100_003, true));
    assert_eq!(out.bytes + out.dropped_bytes, whole.len() as u64);
    assert!(whole.starts_with(&out.head) && whole.ends_with(&out.tail) && out.tail.len() > 10_000);
    // The limit left no room for the last line, but the summary has it.
    assert_eq!(
        (err.bytes, err.truncated, err.tail.as_str()),
        (0, true, "done\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_would_print_10_gb_is_cut_in_flat_memory() {
    let fixture = CommandFixture::new();
    let bounds = RunLimits {
        output_bytes: 64 * 1024 * 1024 + 1,
        ..generous_limits()
    };
    let spawn_spec = fixture.spawn_spec("yes | head -c 10000000000");
    let found = ExecutorProcess::start(&spawn_spec, bounds)
        .measurement()
        .await;
    assert_eq!(found.delivered_bytes, 64 * 1024 * 1024 + 1);
    assert_eq!(found.stopped.as_deref(), Some("OutputLimit"));
    assert!(found.grown_kib < GROWTH_KIB, "{found:?}");
    assert_eq!(fixture.live_commands(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_output_takes_no_memory() {
    let fixture = CommandFixture::new();
    let bounds = RunLimits {
        output_bytes: 1001,
        on_overflow: OverflowAction::Truncate,
        ..generous_limits()
    };
    // Each invalid byte becomes three bytes.
    let spawn_spec = fixture.spawn_spec("head -c 100000000 /dev/zero | tr '\\0' '\\377'");
    let found = ExecutorProcess::start(&spawn_spec, bounds)
        .measurement()
        .await;
    assert_eq!(
        (found.delivered_bytes, found.dropped_bytes),
        (999, 300_000_000 - 999)
    );
    assert_eq!(found.stopped, None);
    assert!(found.grown_kib < GROWTH_KIB, "{found:?}");
}

/// Prints as fast as it can, at most 200 MB; records how much that was once the pipe is full.
const NONBLOCKING_PRINTER: &str = r#"exec perl -MFcntl -e '
    fcntl(STDOUT, F_SETFL, O_WRONLY | O_NONBLOCK);
    my ($printed, $waits) = (0, 0);
    while ($printed < 200_000_000 && $waits < 50) {
        my $some = syswrite(STDOUT, "x" x 4096);
        if (defined $some) { $printed += $some; $waits = 0 } else { select(undef, undef, undef, 0.01); $waits++ }
    }
    open(my $note, ">", "note"); print $note $printed; close $note;
    rename "note", "printed";
    sleep 1000 unless -e "go";
'"#;

/// Starts it without reading; returns how much it printed until the pipe was full.
async fn start_nonblocking_printer(fixture: &CommandFixture) -> (TestRun, u64) {
    let running = TestRun::start(&fixture.spawn_spec(NONBLOCKING_PRINTER), generous_limits()).await;
    let note = fixture.workspace.path().join("printed");
    wait_until("it cannot print any more", || note.exists()).await;
    let printed = std::fs::read_to_string(note).unwrap().parse().unwrap();
    (running, printed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_does_not_read_stalls_the_command() {
    let fixture = CommandFixture::new();
    std::fs::write(fixture.workspace.path().join("go"), "").unwrap();
    let (mut running, printed) = start_nonblocking_printer(&fixture).await;
    // The chunks of a channel, a buffer, and a pipe.
    assert!(printed < 2 * 1024 * 1024, "it printed {printed} bytes");
    // None of it is lost.
    let received = stream_text(&running.remaining_chunks().await, OutputStream::Stdout);
    assert_eq!(received.len() as u64, printed);
    assert_eq!(running.finish().await.unwrap().stdout.bytes, printed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_command_can_still_be_stopped() {
    let fixture = CommandFixture::new();
    let (running, _) = start_nonblocking_printer(&fixture).await;
    running.stop_sender.stop("enough");
    fixture.wait_until_empty().await;
    let finish = running.finish().await.unwrap();
    assert_eq!(
        finish.stop_reason,
        Some(StopReason::Requested("enough".to_owned()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_command_still_has_a_time_limit() {
    let fixture = CommandFixture::new();
    let bounds = RunLimits {
        timeout: Some(Duration::from_secs(2)),
        ..generous_limits()
    };
    let running = TestRun::start(&fixture.spawn_spec(NONBLOCKING_PRINTER), bounds).await;
    // Its output is not read until it has ended.
    wait_until("it is ended", || !is_alive(running.pid)).await;
    let finish = running.finish().await.unwrap();
    assert_eq!(finish.stop_reason, Some(StopReason::TimedOut));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_gone_ends_the_command() {
    let fixture = CommandFixture::new();
    let mut running = TestRun::start(&fixture.spawn_spec("yes"), generous_limits()).await;
    running.wait_for_text("y\n").await;
    running.chunks.close();
    let finish = running.finish().await.unwrap();
    let nobody = "nobody listens any more".to_owned();
    assert_eq!(finish.stop_reason, Some(StopReason::Requested(nobody)));
    assert_eq!(fixture.live_commands(), Vec::<String>::new());
}

#[tokio::test]
async fn invalid_bytes_are_replaced() {
    let fixture = CommandFixture::new();
    let (finish, out, _) = fixture
        .run_line("head -c 300000 /dev/urandom | tee raw")
        .await;
    let raw = std::fs::read(fixture.workspace.path().join("raw")).unwrap();
    assert_eq!(raw.len(), 300_000);
    assert!(out == String::from_utf8_lossy(&raw), "it is the same text");
    assert_eq!(finish.stdout.bytes, out.len() as u64);
}

#[tokio::test]
async fn a_character_written_in_parts_arrives_whole() {
    let fixture = CommandFixture::new();
    let line = r"printf 'a\xe2'; until [ -e go ]; do sleep 0.01; done; printf '\x98'; printf '\x95b\xf0\x9d'";
    let mut running = TestRun::start(&fixture.spawn_spec(line), generous_limits()).await;
    // Complete characters do not wait for incomplete ones.
    assert_eq!(running.chunks.recv().await.unwrap().text, "a");
    std::fs::write(fixture.workspace.path().join("go"), "").unwrap();
    let rest = stream_text(&running.remaining_chunks().await, OutputStream::Stdout);
    assert_eq!(rest, "\u{2615}b\u{fffd}");
}

#[tokio::test]
async fn both_streams_keep_their_own_offsets() {
    let fixture = CommandFixture::new();
    let line = "for n in {1..3000}; do echo out $n ☕; echo error $n >&2; done";
    let (finish, chunks) = fixture
        .run(&fixture.spawn_spec(line), generous_limits())
        .await;
    let finish = finish.unwrap();
    for (stream, word, end, bytes) in [
        (OutputStream::Stdout, "out", " ☕", finish.stdout.bytes),
        (OutputStream::Stderr, "error", "", finish.stderr.bytes),
    ] {
        let mut received = String::new();
        for chunk in chunks.iter().filter(|chunk| chunk.stream == stream) {
            assert_eq!(chunk.offset, received.len() as u64);
            assert!(!chunk.text.is_empty() && chunk.text.len() <= 32 * 1024);
            received += &chunk.text;
        }
        let whole: String = (1..=3000).map(|n| format!("{word} {n}{end}\n")).collect();
        assert!(received == whole, "{word}");
        assert_eq!(bytes, whole.len() as u64);
    }
}
