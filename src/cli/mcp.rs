//! `pvp mcp`: joins a session for an agent client that speaks MCP on standard input and output.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use pvp_bridge::mcp::{self, McpOptions};

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
    /// Serve with the tools of the agent whose client this program was started by, which `pvp run`
    /// started
    #[arg(long, value_name = "DIR", hide = true, conflicts_with_all = ["link", "link_file"])]
    relay: Option<PathBuf>,
}

pub(crate) fn run(arguments: &McpArguments) -> anyhow::Result<ExitCode> {
    if let Some(directory) = &arguments.relay {
        let runtime = super::runtime()?;
        let relayed = runtime.block_on(mcp::relay_stdio(directory));
        runtime.shutdown_background();
        relayed?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.link.link.as_deref() == Some("-") {
        bail!("standard input belongs to the client; give the link with --link-file or PVP_LINK");
    }
    let link = arguments.link.read_link()?;
    server::init_tracing("warn");
    let runtime = super::runtime()?;
    let served = runtime.block_on(async {
        let joined = arguments.executor.join(link, &arguments.link).await?;
        let agent = joined.agent;
        if let Some(notice) = no_trials_notice(&agent) {
            print_warning(notice);
        }
        let over = agent.stopped();
        let served = until_shutdown(mcp::serve(agent, McpOptions::default())).await?;
        wait_until_left(over).await;
        drop(joined.identity);
        served.transpose()
    });
    // A thread may still wait for input, which nobody needs any more.
    runtime.shutdown_background();
    served?;
    Ok(ExitCode::SUCCESS)
}
