//! Starting commands, and the errors when one does not start.

use std::path::PathBuf;

use pvp_agent::run::{self, ReaperPool, RunError, StopReason, SupervisedProcess};
use pvp_protocol::payload::OutputStream;

use crate::support::program::write_program;

use super::fixture::{CommandFixture, TestRun, generous_bounds, reapers, stream_text};

#[tokio::test]
async fn what_a_command_prints_and_how_it_ends_is_told() {
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
    let (finish, pieces) = fixture.run(&spawn_spec, generous_bounds()).await;
    assert_eq!(finish.unwrap().exit_code, Some(127));
    let said = stream_text(&pieces, OutputStream::Stderr);
    assert!(said.contains("cannot run /no/such/program"), "{said}");
    let mut spawn_spec = fixture.spawn_spec("true");
    spawn_spec.directory = PathBuf::from("/no/such/place");
    let (_, pieces) = fixture.run(&spawn_spec, generous_bounds()).await;
    let said = stream_text(&pieces, OutputStream::Stderr);
    assert!(said.contains("cannot work in /no/such/place"), "{said}");
}

#[tokio::test]
async fn a_run_knows_the_process_that_is_its_command() {
    let fixture = CommandFixture::new();
    let mut running =
        TestRun::start(&fixture.spawn_spec("echo $$; exec cat"), generous_bounds()).await;
    assert_eq!(
        running.pid.to_string(),
        running.wait_for_text("\n").await.trim()
    );
}

#[tokio::test]
async fn a_reaper_that_cannot_be_started_is_told() {
    let fixture = CommandFixture::new();
    let (_stopper, asked) = run::stop_channel();
    let nothing = PathBuf::from("/no/such/reaper");
    let error = SupervisedProcess::start(
        &ReaperPool::on_demand(&nothing),
        &fixture.spawn_spec("true"),
        asked,
    )
    .await;
    assert!(matches!(error, Err(RunError::NotStarted(_))));
    // A program that is not a reaper reads the spawn spec and exits without output.
    let (_stopper, asked) = run::stop_channel();
    let other = fixture.workspace.path().join("other");
    write_program(&other, "#!/bin/sh\nread errand\n");
    let error = SupervisedProcess::start(
        &ReaperPool::on_demand(&other),
        &fixture.spawn_spec("true"),
        asked,
    )
    .await;
    assert!(matches!(error, Err(RunError::Lost(_))));
}

#[tokio::test]
async fn what_was_to_stop_before_it_began_does_not_begin() {
    let fixture = CommandFixture::new();
    let (stopper, asked) = run::stop_channel();
    stopper.stop("not any more");
    let error =
        SupervisedProcess::start(&reapers(), &fixture.spawn_spec("touch begun"), asked).await;
    let Err(RunError::StoppedBeforeStart(why)) = error else {
        panic!("it did not begin");
    };
    assert_eq!(why, "not any more");
    assert!(!fixture.workspace.path().join("begun").exists());
}

#[tokio::test]
async fn a_stop_request_counts_from_the_moment_the_run_began() {
    let fixture = CommandFixture::new();
    let (stopper, asked) = run::stop_channel();
    let run = SupervisedProcess::start(&reapers(), &fixture.spawn_spec("sleep 1000"), asked).await;
    stopper.kill("enough");
    let (sender, _pieces) = tokio::sync::mpsc::channel(1);
    let secrets = std::collections::BTreeMap::new();
    let finish = run
        .unwrap()
        .stream_to_end(generous_bounds(), &secrets, sender)
        .await;
    let finish = finish.unwrap();
    assert_eq!(
        finish.stop_reason,
        Some(StopReason::Requested("enough".to_owned()))
    );
    assert_eq!(finish.signal, Some(9));
}
