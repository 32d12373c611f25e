//! `pvp open`: prints a link that opens the page in a browser, once.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::{ApiClient, Link};
use pvp_protocol::api::{CreatedDeviceCode, DeviceCodeRequest, InviteRequest};
use pvp_protocol::{ParticipantId, ParticipantKind, Role, SessionId};
use pvp_server::invite::{Inviter, create_invitation};

use super::administration::Administration;
use super::links::LinkArguments;
use super::local_server::LocalServer;
use super::{invite, print_json, print_line, share};

/// How long an admin's browser is let in, in seconds, unless told otherwise: a working day.
const ADMIN_SECONDS: u64 = 8 * 3600;

/// How long the server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct OpenArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Let the browser in as an admin, who invites people, revokes tokens and changes settings: for
    /// whoever owns the server's data directory, which takes the place of a link
    #[arg(long, conflicts_with_all = ["link", "link_file"])]
    admin: bool,
    /// The data directory of a running server on this machine [default: that of the server started
    /// in this directory]
    #[arg(long, value_name = "DIR", requires = "admin")]
    data: Option<PathBuf>,
    /// How long the browser stays an admin's, such as 30m, 2h or 7d [default: 8h]
    #[arg(long, value_parser = invite::parse_duration, value_name = "TIME", requires = "admin")]
    expires: Option<u64>,
    /// Print a QR code too, for a phone
    #[arg(long, conflicts_with = "json")]
    qr: bool,
    /// Print JSON: link, expires
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &OpenArguments) -> anyhow::Result<ExitCode> {
    let created = match arguments.admin {
        true => arguments.open_as_admin()?,
        false => arguments.open_as_oneself()?,
    };
    match arguments.json {
        true => print_json(serde_json::to_string(&created)?)?,
        false => arguments.print(&created)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl OpenArguments {
    fn open_as_oneself(&self) -> anyhow::Result<CreatedDeviceCode> {
        let api = self.link.api_client()?;
        let session = self.link.named_session(api.link());
        Ok(api.create_device_code(&DeviceCodeRequest { session })?)
    }

    fn open_as_admin(&self) -> anyhow::Result<CreatedDeviceCode> {
        match Administration::find(&self.link, self.data.as_deref())? {
            Administration::Data { server, session } => {
                let session = self.link.session_flag().or(session);
                admin_code(&server, session, self.expires.unwrap_or(ADMIN_SECONDS))
            }
            Administration::Link(api) => bail!(
                "--admin works where the server keeps its data, and the link in use leads to {}; name the data directory with --data, or open the page with an admin's link and without --admin",
                api.link().base_url()
            ),
        }
    }

    fn print(&self, created: &CreatedDeviceCode) -> anyhow::Result<()> {
        let worth = match (self.admin, self.expires) {
            (false, _) => "is as good as your link",
            (true, None) => "makes an admin of the browser for 8 hours",
            (true, Some(_)) => "makes an admin of the browser for the time that you gave",
        };
        print_line(format!(
            "Open this in a browser. It works once, within an hour, and {worth}:"
        ))?;
        print_line(format!("\n    {}\n", created.link))?;
        match self.qr {
            true => share::print_qr(&created.link),
            false => Ok(()),
        }
    }
}

/// Makes a code for the browser of an admin. The token that it comes from is known to nobody once
/// this returns: it is written nowhere, and the server keeps its hash.
fn admin_code(
    server: &LocalServer,
    session: Option<SessionId>,
    expires_seconds: u64,
) -> anyhow::Result<CreatedDeviceCode> {
    // Otherwise, whoever answers at its address may be somebody else, who would get the token.
    if !server.listens() {
        bail!(
            "the server of {} is not running; start it with `pvp up` first",
            server.data.display()
        );
    }
    let invite = InviteRequest {
        name: "admin".to_owned(),
        roles: [Role::Admin].into(),
        kind: ParticipantKind::Human,
        capabilities: Default::default(),
        session: None,
        expires_seconds: Some(expires_seconds),
        // The same as that of the link which the first start prints.
        participant: Some(ParticipantId::parse("admin").context("a plain word")?),
    };
    let now = pvp_clock::now();
    let invited = create_invitation(invite, &Inviter::Operator, &server.local_address, now);
    let (row, invitation) = invited.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
    let tokens = server.tokens()?;
    tokens.insert(&row)?;
    let link = Link::parse(&invitation.link).context("the server's own link")?;
    let api = ApiClient::with_timeout(link, ANSWER_TIMEOUT);
    let created = api.create_device_code(&DeviceCodeRequest { session });
    if created.is_err() {
        // Nobody has it.
        tokens.revoke(&row.id, now)?;
    }
    Ok(created?)
}
