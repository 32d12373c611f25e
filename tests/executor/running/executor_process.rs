//! An executor in its own process, which tests kill and measure. The process is this test program
//! again.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use pvp_agent::reaper::SpawnSpec;
use pvp_agent::run::{self, OverflowAction, RunLimits, StdioChunk, SupervisedProcess};
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::support::TEST_TIMEOUT;
use crate::support::skip::skip;

use super::fixture::reapers;

/// The environment variable that holds its task as JSON.
const TASK_VARIABLE: &str = "PVP_TEST_TASK";

/// Precedes the measurement in its output.
const RESULT_PREFIX: &str = "found: ";

#[derive(Serialize, Deserialize)]
struct ExecutorTask {
    spawn_spec: SpawnSpec,
    output_bytes: u64,
    truncate: bool,
    timeout: Option<Duration>,
}

/// The measurement of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunMeasurement {
    /// Bytes of all chunks.
    pub(crate) delivered_bytes: u64,
    /// Bytes over the limit, which were dropped.
    pub(crate) dropped_bytes: u64,
    pub(crate) stopped: Option<String>,
    /// Peak memory of the process above what it used before the run.
    pub(crate) grown_kib: u64,
}

pub(crate) struct ExecutorProcess(Child);

impl ExecutorProcess {
    pub(crate) fn start(spawn_spec: &SpawnSpec, bounds: RunLimits) -> Self {
        let task = ExecutorTask {
            spawn_spec: spawn_spec.clone(),
            output_bytes: bounds.output_bytes,
            truncate: bounds.on_overflow == OverflowAction::Truncate,
            timeout: bounds.timeout,
        };
        let executor = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture"])
            .arg(test_path("in_a_process_of_its_own"))
            .env(TASK_VARIABLE, serde_json::to_string(&task).unwrap())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        Self(executor.unwrap())
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub(crate) async fn kill(&mut self) {
        self.0.kill().await.unwrap();
    }

    pub(crate) async fn measurement(self) -> RunMeasurement {
        let output = tokio::time::timeout(TEST_TIMEOUT, self.0.wait_with_output()).await;
        let output = String::from_utf8(output.expect("it ends").unwrap().stdout).unwrap();
        let found = output
            .lines()
            .find_map(|line| Some(line.split_once(RESULT_PREFIX)?.1));
        serde_json::from_str(found.unwrap_or_else(|| panic!("{output}"))).unwrap()
    }
}

/// The name by which this program's `--exact` finds a test of this module.
fn test_path(test: &str) -> String {
    let (_program, module) = module_path!().split_once("::").unwrap();
    format!("{module}::{test}")
}

#[tokio::test]
#[ignore = "another test starts it"]
async fn in_a_process_of_its_own() {
    let Ok(task) = std::env::var(TASK_VARIABLE) else {
        return skip("another test starts it");
    };
    let task: ExecutorTask = serde_json::from_str(&task).unwrap();
    let bounds = RunLimits {
        timeout: task.timeout,
        output_bytes: task.output_bytes,
        on_overflow: if task.truncate {
            OverflowAction::Truncate
        } else {
            OverflowAction::Kill
        },
    };
    let (_stop_sender, stop_receiver) = run::stop_channel();
    let run = SupervisedProcess::start(&reapers(), &task.spawn_spec, stop_receiver)
        .await
        .unwrap();
    let before = memory_kib("VmRSS:");
    let (sender, mut chunks) = mpsc::channel::<StdioChunk>(16);
    let gather = async {
        let mut received = 0;
        while let Some(chunk) = chunks.recv().await {
            received += chunk.text.len() as u64;
        }
        received
    };
    let secrets = BTreeMap::new();
    let (finish, delivered_bytes) =
        tokio::join!(run.stream_to_end(bounds, &secrets, sender), gather);
    let finish = finish.unwrap();
    let found = RunMeasurement {
        delivered_bytes,
        dropped_bytes: finish.stdout.dropped_bytes + finish.stderr.dropped_bytes,
        stopped: finish.stop_reason.map(|stopped| format!("{stopped:?}")),
        grown_kib: memory_kib("VmHWM:").saturating_sub(before),
    };
    println!("{RESULT_PREFIX}{}", serde_json::to_string(&found).unwrap());
}

fn memory_kib(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}
