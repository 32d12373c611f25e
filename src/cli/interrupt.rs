//! `pvp interrupt`: stops what an agent is doing.

use std::process::ExitCode;

use clap::Args;
use pvp_protocol::payload::{InterruptRaise, InterruptUrgency};
use pvp_protocol::{ExtraFields, ParticipantId};

use super::links::LinkArguments;
use super::{print_json, print_line};

#[derive(Args)]
pub(crate) struct InterruptArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// What to tell the agent
    #[arg(default_value = "stop")]
    message: String,
    /// The agent to interrupt [default: every agent in the session]
    #[arg(long, value_name = "AGENT", value_parser = super::parse_participant_id)]
    to: Option<ParticipantId>,
    /// Let running commands finish
    #[arg(long)]
    pause: bool,
    /// Print JSON: id, seq, duplicate
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &InterruptArguments) -> anyhow::Result<ExitCode> {
    let (api, session) = arguments.link.api_and_session()?;
    let interrupt = InterruptRaise {
        target: arguments.to.clone(),
        urgency: match arguments.pause {
            true => InterruptUrgency::Pause,
            false => InterruptUrgency::Stop,
        },
        message: arguments.message.clone(),
        inject_context: None,
        inject_context_ref: None,
        extra: ExtraFields::new(),
    };
    let ack = api.send_message(&session, interrupt)?;
    match arguments.json {
        true => print_json(serde_json::to_string(&ack)?)?,
        false => {
            let who = arguments.to.as_ref().map(ParticipantId::as_str);
            print_line(format!("interrupted {}", who.unwrap_or("every agent")))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
