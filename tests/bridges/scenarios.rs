//! What every client must do, and the run through all of it.

mod decisions;
mod doctor;
mod failures;
mod hostile;
mod terminal;
mod tools;

use std::io::Write;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::clients::{Client, StartedBy};
use crate::results::{self, Cell};

pub use doctor::BROKEN;

/// Clients that run at the same time. Most of the time they wait for people, leases and servers.
static SLOTS: Semaphore = Semaphore::const_new(8);

/// Ends a scenario that would otherwise hang; none passes because of it.
const TIME_LIMIT: Duration = Duration::from_secs(240);

/// Runs only the scenarios that are named here, with commas between them.
const ONLY: &str = "PVP_TEST_SCENARIOS";

/// Something that a client must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    Approve,
    Reject,
    Edit,
    Blocked,
    Quorum,
    Parallel,
    ReadUnasked,
    FileChange,
    McpCall,
    Subagent,
    Interrupt,
    ServerDownBefore,
    ServerDownDuring,
    ClientKilled,
    AskerKilled,
    HostileRepository,
    OwnTerminal,
    Doctor,
}

impl Scenario {
    pub const ALL: [Self; 18] = [
        Self::Approve,
        Self::Reject,
        Self::Edit,
        Self::Blocked,
        Self::Quorum,
        Self::Parallel,
        Self::ReadUnasked,
        Self::FileChange,
        Self::McpCall,
        Self::Subagent,
        Self::Interrupt,
        Self::ServerDownBefore,
        Self::ServerDownDuring,
        Self::ClientKilled,
        Self::AskerKilled,
        Self::HostileRepository,
        Self::OwnTerminal,
        Self::Doctor,
    ];

    /// What is tried on the routes that are not the first of a client. The rest is the same there, or
    /// is not about the route.
    const OF_OTHER_ROUTES: [Self; 13] = [
        Self::Approve,
        Self::Reject,
        Self::Edit,
        Self::Blocked,
        Self::Parallel,
        Self::ReadUnasked,
        Self::FileChange,
        Self::Interrupt,
        Self::ServerDownBefore,
        Self::ServerDownDuring,
        Self::ClientKilled,
        Self::AskerKilled,
        Self::HostileRepository,
    ];

    /// Everything that is tried with a client.
    pub fn all_of(client: &Client) -> &'static [Self] {
        match client.started_by {
            StartedBy::Run => &Self::ALL,
            StartedBy::Deferred(_)
            | StartedBy::Headless
            | StartedBy::AcpAgent
            | StartedBy::Editor
            | StartedBy::Installed => &Self::OF_OTHER_ROUTES,
        }
    }

    /// Its name on the command line of a run.
    pub fn name(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Edit => "edit",
            Self::Blocked => "blocked",
            Self::Quorum => "quorum",
            Self::Parallel => "parallel",
            Self::ReadUnasked => "read-unasked",
            Self::FileChange => "file-change",
            Self::McpCall => "mcp-call",
            Self::Subagent => "subagent",
            Self::Interrupt => "interrupt",
            Self::ServerDownBefore => "server-down-before",
            Self::ServerDownDuring => "server-down-during",
            Self::ClientKilled => "client-killed",
            Self::AskerKilled => "asker-killed",
            Self::HostileRepository => "hostile-repository",
            Self::OwnTerminal => "own-terminal",
            Self::Doctor => "doctor",
        }
    }

    /// What is true of a client that passes it.
    pub fn promise(self) -> &'static str {
        match self {
            Self::Approve => "runs what was approved; output and exit code are recorded",
            Self::Reject => "does not run what was rejected; the model reads the reason",
            Self::Edit => "runs what people edited, not what it proposed",
            Self::Blocked => "does not run what a rule blocks; nobody is asked",
            Self::Quorum => "waits for the second of two approvals",
            Self::Parallel => "of two calls in one answer, each gets its own decision",
            Self::ReadUnasked => "reads in its directory unasked and recorded; elsewhere it asks",
            Self::FileChange => "changes a file only if that change was approved",
            Self::McpCall => "asks about the calls of other MCP servers",
            Self::Subagent => "asks about the calls of its subagents",
            Self::Interrupt => "stops what runs when people interrupt it, and goes no further",
            Self::ServerDownBefore => "runs nothing when the server is away",
            Self::ServerDownDuring => "runs nothing when the server goes away while it waits",
            Self::ClientKilled => "killed: what waits is withdrawn, what runs ends as unknown",
            Self::AskerKilled => "runs nothing when what asks for it is killed",
            Self::HostileRepository => {
                "a repository's settings change nothing and run nothing: they are left out, or it is not started"
            }
            Self::OwnTerminal => "in its own terminal, a person there approves and rejects",
            Self::Doctor => "`pvp doctor`: does not run what is denied; the model reads the reason",
        }
    }

    async fn play(self, client: &'static Client) {
        match self {
            Self::Approve => decisions::approve(client).await,
            Self::Reject => decisions::reject(client).await,
            Self::Edit => decisions::edit(client).await,
            Self::Blocked => decisions::blocked(client).await,
            Self::Quorum => decisions::quorum(client).await,
            Self::Parallel => decisions::parallel(client).await,
            Self::ReadUnasked => tools::read_unasked(client).await,
            Self::FileChange => tools::file_change(client).await,
            Self::McpCall => tools::mcp_call(client).await,
            Self::Subagent => tools::subagent(client).await,
            Self::Interrupt => failures::interrupt(client).await,
            Self::ServerDownBefore => failures::server_down_before(client).await,
            Self::ServerDownDuring => failures::server_down_during(client).await,
            Self::ClientKilled => failures::client_killed(client).await,
            Self::AskerKilled => failures::asker_killed(client).await,
            Self::HostileRepository => hostile::hostile_repository(client).await,
            Self::OwnTerminal => terminal::own_terminal(client).await,
            Self::Doctor => doctor::doctor(client).await,
        }
    }
}

/// Runs every scenario with a client, and fails if one does.
pub async fn run_all(client: &'static Client) {
    let wanted = std::env::var(ONLY).ok();
    let is_wanted = |scenario: &Scenario| match &wanted {
        Some(names) => names.split(',').any(|name| name == scenario.name()),
        None => true,
    };
    let mut cells = Vec::new();
    let mut plays = JoinSet::new();
    // Those that wait longest begin first.
    let scenarios = Scenario::all_of(client).iter().copied();
    for scenario in scenarios.rev().filter(is_wanted) {
        match client.reason_against(scenario) {
            Some(reason) => cells.push((scenario, Cell::Cannot(reason))),
            None => {
                plays.spawn(async move { (scenario, play(client, scenario).await) });
            }
        }
    }
    let mut failed = Vec::new();
    while let Some(played) = plays.join_next().await {
        match played.unwrap() {
            (scenario, Ok(())) => {
                let note = client.note_on(scenario);
                cells.push((scenario, note.map_or(Cell::Passed, Cell::PassedWith)));
            }
            (scenario, Err(why)) => failed.push(format!("{}: {why}", scenario.name())),
        }
    }
    assert!(failed.is_empty(), "{}:\n{}", client.key, failed.join("\n"));
    if wanted.is_none() {
        results::add(client, cells);
    }
}

/// Plays a scenario; says why it failed.
async fn play(client: &'static Client, scenario: Scenario) -> Result<(), String> {
    let _slot = SLOTS.acquire().await.unwrap();
    let begun = std::time::Instant::now();
    let playing = tokio::spawn(async move {
        let mut playing = Box::pin(scenario.play(client));
        tokio::select! {
            () = &mut playing => {}
            // The panic has the stage print what has happened on it.
            () = tokio::time::sleep(TIME_LIMIT) => panic!("it did not end within {TIME_LIMIT:?}"),
        }
    });
    let ended = match playing.await {
        Ok(()) => Ok(()),
        Err(error) => {
            let panic = error.into_panic();
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            Err(text.unwrap_or_default())
        }
    };
    let how = match &ended {
        Ok(()) => format!("passed after {} s", begun.elapsed().as_secs()),
        Err(why) => format!("FAILED: {why}"),
    };
    // Not `eprintln!`, which libtest hides unless the test fails.
    let _ = writeln!(
        std::io::stderr(),
        "{} {}: {how}",
        client.key,
        scenario.name()
    );
    ended
}
