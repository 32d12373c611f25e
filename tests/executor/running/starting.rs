//! Starting commands, and the errors when one does not start.

use std::path::PathBuf;

use pvp_agent::run::{self, ReaperPool, RunError, StopReason, SupervisedProcess};
use pvp_protocol::payload::OutputStream;

use crate::support::program::write_program;

use super::fixture::{CommandFixture, TestRun, generous_limits, reapers, stream_text};

#[tokio::test]
async fn output_and_exit_status_are_reported() {
    let fixture = CommandFixture::new();
    let (finish, out, err) = fixture
        .run_line("echo one; echo two >&2; pwd; exit 3")
        .await;
    let here = fixture.workspace.path().canonicalize().unwrap();
    assert_eq!(out, format!("one\n{}\n", here.display()));
    assert_eq!(err, "two\n");
    assert_eq!(
        (finish.exit_code, finish.signal, finish.stop_reason),
        (Some(3), None, None)
    );
    assert_eq!((finish.stdout.lines, finish.stderr.lines), (2, 1));
    let (finish, ..) = fixture.run_line("kill -9 $$").await;
    assert_eq!((finish.exit_code, finish.signal), (None, Some(9)));
}

#[tokio::test]
async fn a_missing_program_or_directory_is_named() {
    let fixture = CommandFixture::new();
    let mut spawn_spec = fixture.spawn_spec("true");
    spawn_spec.program = "/no/such/program".to_owned();
    let (finish, chunks) = fixture.run(&spawn_spec, generous_limits()).await;
    assert_eq!(finish.unwrap().exit_code, Some(127));
    let stderr = stream_text(&chunks, OutputStream::Stderr);
    assert!(stderr.contains("cannot run /no/such/program"), "{stderr}");
    let mut spawn_spec = fixture.spawn_spec("true");
    spawn_spec.directory = PathBuf::from("/no/such/place");
    let (_, chunks) = fixture.run(&spawn_spec, generous_limits()).await;
    let stderr = stream_text(&chunks, OutputStream::Stderr);
    assert!(stderr.contains("cannot work in /no/such/place"), "{stderr}");
}

#[tokio::test]
async fn a_run_reports_the_pid_of_its_command() {
    let fixture = CommandFixture::new();
    let mut running =
        TestRun::start(&fixture.spawn_spec("echo $$; exec cat"), generous_limits()).await;
    assert_eq!(
        running.pid.to_string(),
        running.wait_for_text("\n").await.trim()
    );
}

#[tokio::test]
async fn a_reaper_that_cannot_be_started_is_reported() {
    let fixture = CommandFixture::new();
    let (_stop_sender, stop_receiver) = run::stop_channel();
    let nothing = PathBuf::from("/no/such/reaper");
    let error = SupervisedProcess::start(
        &ReaperPool::on_demand(&nothing),
        &fixture.spawn_spec("true"),
        stop_receiver,
    )
    .await;
    assert!(matches!(error, Err(RunError::NotStarted(_))));
    // A program that is not a reaper reads the spawn spec and exits without output.
    let (_stop_sender, stop_receiver) = run::stop_channel();
    let other = fixture.workspace.path().join("other");
    write_program(&other, "#!/bin/sh\nread spawn_spec\n");
    let error = SupervisedProcess::start(
        &ReaperPool::on_demand(&other),
        &fixture.spawn_spec("true"),
        stop_receiver,
    )
    .await;
    assert!(matches!(error, Err(RunError::Lost(_))));
}

#[tokio::test]
async fn a_stop_requested_before_the_start_prevents_it() {
    let fixture = CommandFixture::new();
    let (stop_sender, stop_receiver) = run::stop_channel();
    stop_sender.stop("not any more");
    let error = SupervisedProcess::start(
        &reapers(),
        &fixture.spawn_spec("touch begun"),
        stop_receiver,
    )
    .await;
    let Err(RunError::StoppedBeforeStart(why)) = error else {
        panic!("it did not begin");
    };
    assert_eq!(why, "not any more");
    assert!(!fixture.workspace.path().join("begun").exists());
}

#[tokio::test]
async fn a_stop_request_counts_from_the_moment_the_run_began() {
    let fixture = CommandFixture::new();
    let (stop_sender, stop_receiver) = run::stop_channel();
    let run =
        SupervisedProcess::start(&reapers(), &fixture.spawn_spec("sleep 1000"), stop_receiver)
            .await;
    stop_sender.kill("enough");
    let (sender, _chunks) = tokio::sync::mpsc::channel(1);
    let secrets = std::collections::BTreeMap::new();
    let finish = run
        .unwrap()
        .stream_to_end(generous_limits(), &secrets, sender)
        .await;
    let finish = finish.unwrap();
    assert_eq!(
        finish.stop_reason,
        Some(StopReason::Requested("enough".to_owned()))
    );
    assert_eq!(finish.signal, Some(9));
}
