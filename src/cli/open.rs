//! `pvp open`: prints a link that opens the page in a browser, once.

use std::process::ExitCode;

use clap::Args;
use pvp_protocol::api::{CreatedDeviceCode, DeviceCodeRequest};

use super::links::LinkArguments;
use super::{print_json, print_line, share};

#[derive(Args)]
pub(crate) struct OpenArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Print a QR code too, for a phone
    #[arg(long, conflicts_with = "json")]
    qr: bool,
    /// Print JSON: link, expires
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &OpenArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api_client()?;
    let session = arguments.link.named_session(api.link());
    let created = api.create_device_code(&DeviceCodeRequest { session })?;
    match arguments.json {
        true => print_json(serde_json::to_string(&created)?)?,
        false => arguments.print(&created)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl OpenArguments {
    fn print(&self, created: &CreatedDeviceCode) -> anyhow::Result<()> {
        print_line(
            "Open this in a browser. It works once, within an hour, and is as good as your link:",
        )?;
        print_line(format!("\n    {}\n", created.link))?;
        match self.qr {
            true => share::print_qr(&created.link),
            false => Ok(()),
        }
    }
}
