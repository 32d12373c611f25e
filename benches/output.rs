//! Output throughput from a command to a viewer: a real command below its reaper, a real executor,
//! the server's durable log and one viewer; compared with a bare loop that reads the same command's
//! pipe, encodes JSON and writes it to SQLite as durably.
//!
//! Settings: OUTPUT_MIB=128 OUTPUT_ROUNDS=3

#![allow(clippy::print_stdout, reason = "it prints its figures")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench that cannot go on ends"
)]

mod support;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pvp_agent::agent::{Agent, AgentInput};
use pvp_agent::executor::ExecutorSettings;
use pvp_agent::proposer::ProposalEvent;
use pvp_client::{ApiClient, Link};
use pvp_protocol::api::{CreateSessionRequest, Invitation, InviteRequest};
use pvp_protocol::{ParticipantKind, Role, SessionId};
use serde_json::json;
use support::{BenchClient, BenchRole, MeasuredProcess, env_number, target_result};

/// Bytes of a chunk of output, as an executor sends it.
const CHUNK_BYTES: usize = 32 * 1024;

/// Chunks that an executor has in flight; the bare loop makes as many durable at a time.
const IN_FLIGHT: i64 = 48;

/// How much each process's memory may grow, whatever the amount of output.
const GROWTH_KIB: u64 = 16 * 1024;

/// The file that is printed for the measurement; a short one warms everything up.
const LONG_LOG: &str = "long.log";
const SHORT_LOG: &str = "short.log";

fn main() {
    if std::env::var("BENCH_PART").is_ok_and(|part| part == "executor") {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        return runtime.block_on(executor());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(measure());
}

async fn measure() {
    let (size, rounds) = (
        env_number("OUTPUT_MIB", 128),
        env_number("OUTPUT_ROUNDS", 3),
    );
    let workspace = tempfile::tempdir().unwrap();
    write_log(&workspace.path().join(LONG_LOG), size * 1024 * 1024);
    write_log(&workspace.path().join(SHORT_LOG), 8 * 1024 * 1024);
    let mut fixture = OutputFixture::open(workspace.path()).await;
    let memory = |fixture: &OutputFixture, line| {
        [&fixture.server, &fixture.executor].map(|it| it.memory_kib(line))
    };

    run_bare_loop(workspace.path(), SHORT_LOG);
    fixture.stream_log(SHORT_LOG).await;
    let before = memory(&fixture, "VmRSS");
    println!("`cat` of {size} MiB                      MiB/s, {rounds} rounds");
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    // In turns, so that other load affects both.
    for _ in 0..rounds {
        floor.push(size as f64 / run_bare_loop(workspace.path(), LONG_LOG).as_secs_f64());
        ours.push(size as f64 / fixture.stream_log(LONG_LOG).await.as_secs_f64());
    }
    let after = memory(&fixture, "VmHWM");
    let ratio = median(&mut ours) / median(&mut floor);
    report("bare: pipe → JSON → SQLite", &mut floor);
    report("pipe → log → viewer", &mut ours);
    println!(
        "bar: at least 0.5 of the bare loop: {ratio:.2} {}",
        target_result(ratio >= 0.5)
    );
    for (name, at) in [("server", 0), ("executor", 1)] {
        let grown = after[at].saturating_sub(before[at]);
        println!(
            "bar: memory of the {name} flat: +{:.1} MiB at most {}",
            grown as f64 / 1024.0,
            target_result(grown <= GROWTH_KIB)
        );
    }
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn report(name: &str, rates: &mut [f64]) {
    let median = median(rates);
    let (least, most) = (rates[0], rates[rates.len() - 1]);
    println!("{name:<36} {median:>8.1}   ({least:.1} to {most:.1})");
}

/// Writes lines such as a build prints.
fn write_log(path: &Path, size: usize) {
    let mut text = String::with_capacity(size + 100);
    let mut number = 0;
    while text.len() < size {
        number += 1;
        text += &format!(
            "[{number:>8}] Compiling \"module-{}\" ✓ in {} ms\n",
            number % 97,
            number % 1009
        );
    }
    std::fs::write(path, text).unwrap();
}

/// The minimum of work: the same chunks, as JSON, written as durably.
fn run_bare_loop(workspace: &Path, log: &str) -> Duration {
    let data = tempfile::tempdir().unwrap();
    let store = rusqlite::Connection::open(data.path().join("bare.db")).unwrap();
    store.pragma_update(None, "journal_mode", "WAL").unwrap();
    store.pragma_update(None, "synchronous", "FULL").unwrap();
    store
        .execute(
            "CREATE TABLE entry (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)",
            (),
        )
        .unwrap();
    let mut insert = store
        .prepare("INSERT INTO entry (seq, body) VALUES (?1, ?2)")
        .unwrap();
    let begun = Instant::now();
    let mut command = Command::new("cat");
    let mut command = command
        .arg(log)
        .current_dir(workspace)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = command.stdout.take().unwrap();
    let (mut chunk, mut seq) = (Vec::with_capacity(CHUNK_BYTES), 0);
    store.execute_batch("BEGIN").unwrap();
    while pipe
        .by_ref()
        .take(CHUNK_BYTES as u64)
        .read_to_end(&mut chunk)
        .unwrap()
        > 0
    {
        let text = String::from_utf8_lossy(&chunk);
        let body = json!({ "type": "tool.output", "payload": { "stream": "stdout", "text": text, "offset": seq } });
        seq += 1;
        insert
            .execute((seq, serde_json::to_vec(&body).unwrap()))
            .unwrap();
        if seq % IN_FLIGHT == 0 {
            store.execute_batch("COMMIT; BEGIN").unwrap();
        }
        chunk.clear();
    }
    store.execute_batch("COMMIT").unwrap();
    assert!(command.wait().unwrap().success());
    begun.elapsed()
}

/// A server, an executor in a session, and a person who watches.
struct OutputFixture {
    /// The server process.
    server: MeasuredProcess,
    /// The executor process.
    executor: MeasuredProcess,
    /// The client of the person who watches.
    viewer: BenchClient,
    /// The agent's participant id.
    bot: String,
    /// Prompts sent so far; makes their ids unique.
    prompts: usize,
    /// The data directory, removed when dropped.
    _data: tempfile::TempDir,
}

impl OutputFixture {
    async fn open(workspace: &Path) -> Self {
        let data = tempfile::tempdir().unwrap();
        let server = MeasuredProcess::start_server_with_login(&data.path().join("server"));
        let admin = Link::parse(server.admin_link.as_ref().unwrap()).unwrap();
        let made = tokio::task::spawn_blocking(move || {
            let api = ApiClient::new(admin);
            let session = api
                .create_session(&CreateSessionRequest::default())
                .unwrap()
                .session;
            let bot = invite(&api, &session, ParticipantKind::Agent);
            let person = invite(&api, &session, ParticipantKind::Human);
            (session, bot, person)
        });
        let (session, bot, person) = made.await.unwrap();
        let state = data.path().join("executor");
        let executor = MeasuredProcess::respawn_self(
            "executor",
            &[
                ("BENCH_LINK", &bot.link),
                ("BENCH_WORKSPACE", workspace.to_str().unwrap()),
                ("BENCH_STATE", state.to_str().unwrap()),
            ],
        );
        let token = format!("Authorization: Bearer {}\r\n", person.token);
        let mut viewer = BenchClient::connect_with(&server.address, &token)
            .await
            .unwrap();
        let (name, more) = (person.participant.to_string(), json!({ "history": 0 }));
        viewer
            .join_session(session.as_str(), &name, BenchRole::Driver, more)
            .await;
        Self {
            server,
            executor,
            viewer,
            bot: bot.participant.to_string(),
            prompts: 0,
            _data: data,
        }
    }

    /// Runs a command that prints a file; waits until its output and result have arrived.
    async fn stream_log(&mut self, log: &str) -> Duration {
        let begun = Instant::now();
        self.prompts += 1;
        let prompt = json!({
            "content": format!("cat {log}"), "target_agent": self.bot,
            "contributors": [self.viewer.name], "context_keys": [],
        });
        let id = format!("prompt-{}", self.prompts);
        self.viewer.send("prompt.submit", &id, &prompt).await;
        let result = self.viewer.wait_for_type("tool.result").await;
        let took = begun.elapsed();
        let shown = result["payload"]["streams"]["stdout"]["bytes"].as_u64();
        assert_eq!(result["payload"]["success"], true, "{result}");
        assert_eq!(result["payload"]["truncated"], false, "{result}");
        assert!(shown.is_some_and(|bytes| bytes > 0), "{result}");
        took
    }
}

fn invite(api: &ApiClient, session: &SessionId, kind: ParticipantKind) -> Invitation {
    let invite = InviteRequest {
        name: "bench".to_owned(),
        roles: [Role::Driver].into(),
        kind,
        capabilities: Default::default(),
        session: Some(session.clone()),
        expires_seconds: Some(3600),
        participant: None,
    };
    api.invite(&invite).unwrap()
}

/// The executor process: runs the granted commands one after another.
async fn executor() {
    let setting = |name: &str| std::env::var(name).unwrap();
    let link = Link::parse(&setting("BENCH_LINK")).unwrap();
    let (workspace, state) = (setting("BENCH_WORKSPACE"), setting("BENCH_STATE"));
    let mut settings = ExecutorSettings::new(workspace.into(), state.into());
    settings.program = PathBuf::from(env!("CARGO_BIN_EXE_pvp"));
    let mut agent = Agent::connect(link, settings).await.unwrap();
    println!("ready");
    while let Some(request) = agent.next_input().await {
        let AgentInput::Prompt { prompt, .. } = request else {
            continue;
        };
        let proposal = agent.propose_shell(&prompt.content).await.unwrap();
        let outcome = proposal.outcome().await;
        assert!(
            matches!(outcome, Some(ProposalEvent::Finished(_))),
            "{outcome:?}"
        );
    }
}
