//! `pvp cancel`: withdraws a command that waits, or stops one that runs.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use pvp_protocol::ExtraFields;
use pvp_protocol::api::CommandStatus;
use pvp_protocol::payload::ToolCancel;

use super::history::status_text;
use super::links::LinkArguments;
use super::proposal_handle::CommandHandle;
use super::{print_json, print_line};

#[derive(Args)]
pub(crate) struct CancelArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The command: its handle as `pvp gates` prints it, or its id as `pvp history` prints it
    #[arg(value_name = "HANDLE")]
    handle: String,
    /// Why; everyone in the session can read it
    #[arg(long)]
    reason: Option<String>,
    /// Print JSON: id, seq, duplicate
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &CancelArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api_client()?;
    let handle = CommandHandle::parse(&arguments.handle)?;
    let found = handle.find(&api, arguments.link.session_flag().as_ref())?;
    let short = found.tool_proposal.short();
    let outcome = match found.status {
        CommandStatus::Waiting => "withdrawn; it will not run",
        CommandStatus::Running => "asked to stop",
        CommandStatus::Blocked
        | CommandStatus::Rejected
        | CommandStatus::TimedOut
        | CommandStatus::Cancelled
        | CommandStatus::Finished => {
            bail!(
                "{short} has ended already: it is {}",
                status_text(found.status)
            )
        }
    };
    let cancel = ToolCancel {
        tool_proposal: found.tool_proposal.clone(),
        reason: arguments.reason.clone(),
        extra: ExtraFields::new(),
    };
    let ack = api.send_message(&found.session, cancel)?;
    if arguments.json {
        print_json(serde_json::to_string(&ack)?)?;
    } else {
        print_line(format!("{short} {outcome}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
