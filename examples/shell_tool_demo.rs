//! The agent's shell tool as a library: it proposes a read, a write, a destructive command and a
//! blocked one, and streams the output.
//!
//! Set `PVP_LINK` to an agent's link, such as the one that `pvp up` prints, and approve from another shell with
//! `pvp gates` and `pvp approve`:
//!
//!     read -rs PVP_LINK && export PVP_LINK   # paste it: http://127.0.0.1:3000/?token=…&session=main
//!     cargo run --example shell_tool_demo

#![allow(clippy::print_stdout, reason = "an example prints what it does")]

use anyhow::Context;
use pvp_agent::agent::Agent;
use pvp_agent::executor::ExecutorSettings;
use pvp_agent::proposer::{ProposalEvent, ProposeError};
use pvp_client::Link;
use pvp_protocol::payload::OutputStream;

fn main() -> anyhow::Result<std::process::ExitCode> {
    // Each command runs under a helper process, which is this same program with a subcommand.
    if let Some(code) = pvp_agent::run_internal_subcommand() {
        return Ok(code);
    }
    let link = std::env::var("PVP_LINK").context("set PVP_LINK to an agent's link")?;
    tokio::runtime::Runtime::new()?.block_on(run(Link::parse(&link)?))?;
    Ok(std::process::ExitCode::SUCCESS)
}

async fn run(link: Link) -> anyhow::Result<()> {
    let workspace = std::env::current_dir()?;
    // Not in the workspace, where commands could change it.
    let state = pvp_client::user_directories::state_directory()?.join("agents/example");
    let agent = Agent::connect(link, ExecutorSettings::new(workspace, state)).await?;
    println!("{} in {}", agent.participant(), agent.session());
    for line in [
        "ls -la",
        "echo 'buy milk' > shopping-list.txt",
        "for n in 1 2 3; do echo tick $n; sleep 0.2; done",
        "rm -rf shopping-list.txt",
        "rm -rf /",
    ] {
        println!("\n$ {line}");
        match agent.propose_shell(line).await {
            Err(ProposeError::Blocked { rule, reason }) => {
                println!("  not even sent: {reason} [{rule}]");
            }
            Err(error) => println!("  refused: {error}"),
            Ok(mut proposal) => {
                while let Some(event) = proposal.next().await {
                    print_event(&event);
                }
            }
        }
    }
    Ok(())
}

fn print_event(event: &ProposalEvent) {
    match event {
        ProposalEvent::Assessed(assessment) => {
            println!("  {}: {}", assessment.category, assessment.reason)
        }
        ProposalEvent::GateOpened { quorum } => println!("  waits for {quorum}"),
        ProposalEvent::Edited { command, .. } => println!("  edited: {command}"),
        ProposalEvent::Granted { approved_by, .. } => {
            println!("  runs, approved by {}", approved_by.len())
        }
        ProposalEvent::Started { pid, .. } => println!("  as process {pid}"),
        ProposalEvent::Output { stream, text } => {
            let mark = match stream {
                OutputStream::Stdout => "|",
                OutputStream::Stderr => "!",
            };
            for line in text.lines() {
                println!("  {mark} {line}");
            }
        }
        ProposalEvent::CancelRequested { .. } => println!("  is being stopped"),
        ProposalEvent::Finished(result) => {
            let code = result.exit_code();
            println!(
                "  ended: exit {code:?} {}",
                result.error.as_deref().unwrap_or_default()
            );
        }
        ProposalEvent::NotRun(resolve) => println!(
            "  not run: {:?} {}",
            resolve.outcome,
            resolve.reason.as_deref().unwrap_or_default()
        ),
        ProposalEvent::Lost => println!("  over, nobody knows how"),
    }
}
