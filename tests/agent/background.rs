//! Jobs in the background: told of at once, heard to their end, and stopped as a whole.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::kit::Client;
use crate::kit::room::{approve_next, output, printed, result_of, room, room_with, said, until};
use crate::kit::worker::Worker;

/// Prints, and goes on when it is let.
const PATIENT: &str = r#"
    step = [
        { shell = "echo hello; until [ -e go ]; do sleep 0.01; done; echo bye", mode = "background" },
        { expect = { outcome = "started" } },
        { say = "it goes on" },
        { wait = "prompt" },
    ]
"#;

/// Where the output of a job is kept.
fn file_of(worker: &Worker, job: &str) -> PathBuf {
    let agent = &worker.who.participant;
    let state = worker.desk.home().join(".local/state/pvp/agents");
    state.join(agent).join(format!("{job}.log"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

async fn cancel(person: &mut Client, job: &str, reason: &str) {
    let cancel = json!({ "tool_proposal": job, "reason": reason });
    person.say("tool.cancel", cancel).await;
}

#[tokio::test]
async fn a_job_is_told_of_at_once_and_its_output_goes_on() {
    let (server, mut ann) = room(json!({})).await;
    let mut worker = Worker::scripted_with(&server, "owl", PATIENT, &[]).await;
    let job = approve_next(&mut ann).await;
    printed(&mut ann, "hello\n").await;
    said(&mut ann, "it goes on").await;
    let words = worker
        .going
        .line_with("It was started in the background")
        .await;
    let file = file_of(&worker, &job);
    assert!(words.contains(&format!("ref \"{job}\"")), "{words}");
    // The account of it is cut to a length, the file's name perhaps too.
    let place = format!("Its output goes to {}", file.parent().unwrap().display());
    assert!(words.contains(&place), "{words}");
    let pid = words.split("as process ").nth(1).unwrap();
    let pid: u32 = pid.split(',').next().unwrap().parse().unwrap();
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert_eq!(cwd, worker.workspace());
    until("its output is kept", || read(&file) == "hello\n").await;
    std::fs::write(worker.workspace().join("go"), "").unwrap();
    let result = result_of(&mut ann, &job).await;
    assert_eq!(
        (&result["success"], &result["result"]["exitCode"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(result["output_file"], file.to_str().unwrap());
    assert_eq!(read(&file), "hello\nbye\n[background process completed]\n");
    assert_eq!(output(&ann.received, &job, "stdout"), "hello\nbye\n");
}

#[tokio::test]
async fn the_last_line_of_a_jobs_file_says_how_it_ended() {
    for (how, last) in [
        ("exit 3", "[background process failed: exit code 3]\n"),
        (
            "printf there; exit 0",
            "there\n[background process completed]\n",
        ),
        (
            "kill -9 $$",
            "[background process failed: ended by a signal]\n",
        ),
    ] {
        let (server, mut ann) = room(json!({})).await;
        let script = format!(
            "[[step]]\nshell = 'echo hello; {how}'\nmode = 'background'\n[[step]]\nwait = 'prompt'\n"
        );
        let worker = Worker::scripted_with(&server, "owl", &script, &[]).await;
        let job = approve_next(&mut ann).await;
        let result = result_of(&mut ann, &job).await;
        assert_eq!(result["success"], last.contains("completed"), "{how}");
        assert_eq!(read(&file_of(&worker, &job)), format!("hello\n{last}"));
    }
}

#[tokio::test]
async fn a_job_too_many_is_refused_with_a_sentence() {
    let (server, mut ann) = room(json!({})).await;
    let script = r#"
        step = [
            { shell = "echo first; sleep 1000", mode = "background" },
            { expect = { outcome = "started" } },
            { shell = "touch second", mode = "background" },
            { expect = { outcome = "stopped", contains = "which is the most; stop one first" } },
            { say = "no room" },
            { wait = "prompt" },
        ]
    "#;
    let worker = Worker::scripted_with(&server, "owl", script, &["--jobs", "1"]).await;
    approve_next(&mut ann).await;
    printed(&mut ann, "first").await;
    let second = approve_next(&mut ann).await;
    let result = result_of(&mut ann, &second).await;
    assert_eq!(
        result["error"],
        "1 background job is running here, which is the most; stop one first"
    );
    said(&mut ann, "no room").await;
    assert!(!worker.workspace().join("second").exists());
}

#[tokio::test]
async fn a_person_stops_a_job_with_everything_that_it_started() {
    let (server, mut ann) = room(json!({})).await;
    let script = r#"
        step = [
            { shell = "trap '' TERM; (trap '' TERM; setsid sleep 1000 &); setsid bash -c 'trap \"\" TERM; sleep 1000; echo' & echo up; sleep 1000; sleep 1000", mode = "background" },
            { expect = { outcome = "started" } },
            { wait = "prompt" },
        ]
    "#;
    let worker = Worker::scripted_with(&server, "owl", script, &[]).await;
    let job = approve_next(&mut ann).await;
    printed(&mut ann, "up").await;
    assert!(worker.at_work().len() >= 3, "{:?}", worker.at_work());
    cancel(&mut ann, &job, "enough").await;
    let result = result_of(&mut ann, &job).await;
    assert_eq!(
        (&result["success"], &result["error"]),
        (&json!(false), &json!("stopped: enough"))
    );
    assert_eq!(worker.at_work(), Vec::<String>::new());
    let file = read(&file_of(&worker, &job));
    let last = "\n[background process failed: stopped: enough]\n";
    assert!(file.starts_with("up\n") && file.ends_with(last), "{file}");
}

#[tokio::test]
async fn a_job_that_prints_more_than_is_recorded_goes_on() {
    let settings = [("PVP_BACKGROUND_OUTPUT_BYTES", "1024")];
    let (server, mut ann) = room_with(&settings, json!({})).await;
    let script = r#"
        step = [
            { shell = "for i in $(seq 100); do echo a line of the job, $i; done; until [ -e go ]; do sleep 0.01; done; echo the end", mode = "background" },
            { wait = "prompt" },
        ]
    "#;
    let worker = Worker::scripted_with(&server, "owl", script, &[]).await;
    let job = approve_next(&mut ann).await;
    let lines: String = (1..=100)
        .map(|i| format!("a line of the job, {i}\n"))
        .collect();
    let file = file_of(&worker, &job);
    until("all of it is kept", || {
        std::fs::read_to_string(&file).is_ok_and(|text| text == lines)
    })
    .await;
    std::fs::write(worker.workspace().join("go"), "").unwrap();
    let result = result_of(&mut ann, &job).await;
    assert_eq!(
        (&result["success"], &result["truncated"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(output(&ann.received, &job, "stdout"), lines[..1024]);
    assert_eq!(
        read(&file),
        format!("{lines}the end\n[background process completed]\n")
    );
}

#[tokio::test]
async fn one_byte_too_many_is_told_as_cut_and_not_one_less() {
    let settings = [("PVP_BACKGROUND_OUTPUT_BYTES", "1024")];
    let (server, mut ann) = room_with(&settings, json!({})).await;
    let script = r#"
        step = [
            { shell = "printf %01024d 0", mode = "background", together = true },
            { shell = "printf %01025d 0", mode = "background" },
            { wait = "prompt" },
        ]
    "#;
    let _worker = Worker::scripted_with(&server, "owl", script, &[]).await;
    for cut in [false, true] {
        let job = approve_next(&mut ann).await;
        assert_eq!(result_of(&mut ann, &job).await["truncated"], cut);
        assert_eq!(output(&ann.received, &job, "stdout"), "0".repeat(1024));
    }
}
