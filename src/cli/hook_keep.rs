//! `pvp hook keep`: stays in the session for a client whose hooks are installed, as long as the
//! client's process lives.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use pvp_bridge::client_processes::ProcessName;
use pvp_bridge::hooks::HookClient;
use pvp_bridge::keeper::Keeper;
use tokio::signal::unix::{SignalKind, signal};

use super::hook_identity::KeeperSaid;
use super::supervision::{self, Supervision, SupervisionArguments};
use super::{one_line, server};

/// How often it is looked whether the client's process lives.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// How long leaving the session may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(client: HookClient, process: ProcessName) -> anyhow::Result<ExitCode> {
    let runtime = super::runtime()?;
    let joined = join(client).and_then(|supervision| {
        let keeper = runtime.block_on(supervision.keep())?;
        Ok((supervision, keeper))
    });
    let (supervision, keeper) = match joined {
        Ok(joined) => joined,
        Err(error) => {
            let why = one_line(&format!("{error:#}"));
            say(&KeeperSaid::Failed(why))?;
            return Ok(ExitCode::FAILURE);
        }
    };
    keeper.watch_processes(u32::try_from(process.pid).unwrap_or(0));
    say(&KeeperSaid::Files(supervision.files.directory().to_owned()))?;
    let stayed = runtime.block_on(stay(keeper, process));
    runtime.shutdown_background();
    stayed?;
    Ok(ExitCode::SUCCESS)
}

fn join(client: HookClient) -> anyhow::Result<Supervision> {
    let supervision = SupervisionArguments::default().find_existing(client.name())?;
    supervision
        .files
        .begin(&supervision.settings)
        .context("keeping what is known about the client")?;
    if let Ok(log) = supervision::open_log(supervision.files.directory()) {
        server::init_tracing_to_file("warn", log);
    }
    Ok(supervision)
}

fn say(said: &KeeperSaid) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", serde_json::to_string(said)?)?;
    Ok(stdout.flush()?)
}

/// Stays until the client has ended, or the session is over for it.
async fn stay(keeper: Keeper, process: ProcessName) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("watching for signals")?;
    let stopped = keeper.stopped();
    let ended = async {
        while process.is_alive() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    tokio::select! {
        () = ended => {}
        _ = stopped => {}
        _ = terminate.recv() => {}
    }
    // If this takes too long, the leases end what is open.
    let _ = tokio::time::timeout(LEAVE_TIMEOUT, keeper.leave("the client has ended")).await;
    Ok(())
}
