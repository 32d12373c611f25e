//! `pvp mcp`: joins a session for an agent client that speaks MCP on standard input and output.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pvp_bridge::mcp::{self, McpOptions};
use tokio::net::UnixStream;

use super::agent_flags::{
    AgentLinkArguments, ExecutorArguments, no_trials_notice, until_shutdown, wait_until_left,
};
use super::{print_warning, server};

#[derive(Args)]
pub(crate) struct McpArguments {
    #[command(flatten)]
    link: AgentLinkArguments,
    #[command(flatten)]
    executor: ExecutorArguments,
    /// Pass everything on to the `pvp` that listens at this socket, which started the agent
    #[arg(long, value_name = "SOCKET", hide = true, conflicts_with_all = ["link", "link_file"])]
    relay: Option<PathBuf>,
}

pub(crate) fn run(arguments: &McpArguments) -> anyhow::Result<ExitCode> {
    if let Some(socket) = &arguments.relay {
        return relay(socket);
    }
    if arguments.link.link.as_deref() == Some("-") {
        bail!("standard input belongs to the client; give the link with --link-file or PVP_LINK");
    }
    let link = arguments.link.read_link()?;
    server::init_tracing("warn");
    let runtime = super::runtime()?;
    let served = runtime.block_on(async {
        let agent = arguments.executor.join(link, &arguments.link).await?;
        if let Some(notice) = no_trials_notice(&agent) {
            print_warning(notice);
        }
        let over = agent.stopped();
        let served = until_shutdown(mcp::serve(agent, McpOptions::default())).await?;
        wait_until_left(over).await;
        served.transpose()
    });
    // A thread may still wait for input, which nobody needs any more.
    runtime.shutdown_background();
    served?;
    Ok(ExitCode::SUCCESS)
}

/// Passes bytes on in both directions, until one side closes.
fn relay(socket: &Path) -> anyhow::Result<ExitCode> {
    let runtime = super::runtime()?;
    let relayed = runtime.block_on(async {
        let stream = UnixStream::connect(socket).await.with_context(|| {
            format!(
                "nobody listens at {}; is the agent that asked for this still under PVP?",
                socket.display()
            )
        })?;
        let (mut from_pvp, mut to_pvp) = stream.into_split();
        let (mut input, mut output) = (tokio::io::stdin(), tokio::io::stdout());
        tokio::select! {
            copied = tokio::io::copy(&mut input, &mut to_pvp) => copied.map(drop),
            copied = tokio::io::copy(&mut from_pvp, &mut output) => copied.map(drop),
        }
        .context("passing on what was said")
    });
    // A thread may still wait for input, which nobody needs any more.
    runtime.shutdown_background();
    relayed?;
    Ok(ExitCode::SUCCESS)
}
