//! `pvp invite`: creates a token and its link, or a join code.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pvp_client::{ApiClient, Link};
use pvp_protocol::api::{
    CreatedJoinCode, DeviceCodeRequest, Invitation, InviteRequest, JoinCodeRequest,
};
use pvp_protocol::{ParticipantId, ParticipantKind, Refusal, Role, SessionId};
use pvp_server::invite::{Inviter, ServerAddress, create_invitation};
use pvp_server::join;

use super::administration::Administration;
use super::links::LinkArguments;
use super::local_server::LocalServer;
use super::share;

#[derive(Args)]
pub(crate) struct InviteArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The data directory of a server on this machine, to use instead of an admin's link [default:
    /// that of the server started in this directory]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["link", "link_file"])]
    data: Option<PathBuf>,
    /// The URL that the link begins with [default: that of the server]
    #[arg(long, value_name = "URL", conflicts_with_all = ["link", "link_file"])]
    url: Option<String>,
    /// The name that others see
    #[arg(long, required_unless_present = "code")]
    name: Option<String>,
    /// A role to allow, observer for a read-only link; may be given several times [default with
    /// --code: approver]
    #[arg(long = "role", required_unless_present = "code", value_name = "ROLE")]
    roles: Vec<Role>,
    /// Whom to invite: human or agent
    #[arg(long, default_value = "human", value_parser = parse_kind)]
    kind: ParticipantKind,
    /// Allow every session of the server
    #[arg(long, conflicts_with = "session")]
    everywhere: bool,
    /// How long the token is valid, such as 30m, 2h or 7d [default: until it is revoked]
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    expires: Option<u64>,
    /// Make another token for this participant, who has one already
    #[arg(long, value_parser = super::parse_participant_id, value_name = "ID")]
    participant: Option<ParticipantId>,
    /// Print a command to send, `pvp join CODE`, that works once, within an hour
    #[arg(long, conflicts_with_all = ["name", "kind", "participant"])]
    code: bool,
    /// Print a link for a browser too, which works once, within an hour, and its QR code
    #[arg(long, conflicts_with = "json")]
    qr: bool,
    /// Print JSON: token, link, participant, roles, expires; with --code: id, code, link, roles,
    /// session, expires
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: InviteArguments) -> anyhow::Result<ExitCode> {
    let administration = Administration::find(&arguments.link, arguments.data.as_deref())?;
    match arguments.code {
        true => arguments.print_code(&arguments.create_code(&administration)?)?,
        false => arguments.print_invitation(&arguments.invite(&administration)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl InviteArguments {
    /// The only session of the token.
    fn session(&self, administration: &Administration) -> Option<SessionId> {
        if self.everywhere {
            return None;
        }
        match administration {
            Administration::Link(api) => self.link.named_session(api.link()),
            Administration::Data { session, .. } => {
                self.link.session_flag().or_else(|| session.clone())
            }
        }
    }

    /// What links to a server on this machine begin with. Another address than the server's own may
    /// be that of a proxy, which has another key.
    fn address(&self, server: &LocalServer) -> ServerAddress {
        match self.url.as_deref().map(|url| url.trim_end_matches('/')) {
            Some(url) if url != server.address.url => ServerAddress {
                url: url.to_owned(),
                fingerprint: None,
            },
            Some(_) | None => server.address.clone(),
        }
    }

    fn invite(&self, administration: &Administration) -> anyhow::Result<Invitation> {
        let request = InviteRequest {
            name: self.name.clone().unwrap_or_default(),
            roles: self.roles.iter().copied().collect(),
            kind: self.kind,
            capabilities: Default::default(),
            session: self.session(administration),
            expires_seconds: self.expires,
            participant: self.participant.clone(),
        };
        match administration {
            Administration::Link(api) => Ok(api.invite(&request)?),
            Administration::Data { server, .. } => {
                let (address, now) = (self.address(server), pvp_clock::now());
                let created = create_invitation(request, &Inviter::Operator, &address, now);
                let (row, invitation) = created.map_err(refused)?;
                server.tokens()?.insert(&row)?;
                Ok(invitation)
            }
        }
    }

    fn create_code(&self, administration: &Administration) -> anyhow::Result<CreatedJoinCode> {
        let roles = match self.roles.as_slice() {
            [] => [Role::Approver].into(),
            roles => roles.iter().copied().collect(),
        };
        let request = JoinCodeRequest {
            roles,
            session: self.session(administration),
            code_seconds: None,
            expires_seconds: self.expires,
        };
        match administration {
            Administration::Link(api) => Ok(api.create_join_code(&request)?),
            Administration::Data { server, .. } => {
                let (address, now) = (self.address(server), pvp_clock::now());
                let created = join::create_join_code(request, &Inviter::Operator, &address, now);
                let (row, created) = created.map_err(refused)?;
                let limit = join::outstanding_limit(&Inviter::Operator);
                let forget = join::forget_before(now);
                match server.tokens()?.insert_join_code(&row, limit, forget)? {
                    true => Ok(created),
                    false => Err(refused(join::too_many_codes(limit))),
                }
            }
        }
    }

    fn print_code(&self, created: &CreatedJoinCode) -> anyhow::Result<()> {
        match self.json {
            true => super::print_json(serde_json::to_string(created)?),
            false => share::print_join_code(created, self.qr),
        }
    }

    fn print_invitation(&self, invitation: &Invitation) -> anyhow::Result<()> {
        if self.json {
            return super::print_json(serde_json::to_string(invitation)?);
        }
        super::print_line(format!("participant  {}", invitation.participant))?;
        let roles: Vec<_> = invitation.roles.iter().map(|role| role.as_str()).collect();
        super::print_line(format!("roles        {}", roles.join(", ")))?;
        match invitation.expires {
            Some(expires) => super::print_line(format!("expires      {expires}"))?,
            None => super::print_line("expires      never")?,
        }
        super::print_line(format!("link         {}", invitation.link))?;
        match self.qr {
            true => self.print_page_link(invitation),
            false => Ok(()),
        }
    }

    /// Prints what a browser opens, which keeps it: it works once. An agent has no use for it.
    fn print_page_link(&self, invitation: &Invitation) -> anyhow::Result<()> {
        if self.kind == ParticipantKind::Agent {
            return share::print_qr(&invitation.link);
        }
        let link = Link::parse(&invitation.link).context("the link of the invitation")?;
        let session = link.session().cloned();
        let request = DeviceCodeRequest { session };
        let page = ApiClient::new(link).create_device_code(&request);
        let page = page.context("the link was made, but none for a browser; try `pvp open`")?;
        super::print_line(format!("browser      {} (once, within an hour)", page.link))?;
        share::print_qr(&page.link)
    }
}

fn refused(refusal: Refusal) -> anyhow::Error {
    anyhow::anyhow!("{refusal}")
}

pub(super) fn parse_kind(text: &str) -> Result<ParticipantKind, String> {
    match text {
        "human" => Ok(ParticipantKind::Human),
        "agent" => Ok(ParticipantKind::Agent),
        _ => Err(format!("`{text}` is neither human nor agent")),
    }
}

/// Parses `90s`, `30m`, `2h` or `7d` into seconds.
pub(super) fn parse_duration(text: &str) -> Result<u64, String> {
    let problem = || format!("`{text}` is not a time; write it as 90s, 30m, 2h or 7d");
    let unit = match text.bytes().last() {
        Some(b's') => 1,
        Some(b'm') => 60,
        Some(b'h') => 3600,
        Some(b'd') => 86_400,
        Some(_) | None => return Err(problem()),
    };
    let number = &text[..text.len() - 1];
    let number: u64 = number.parse().map_err(|_| problem())?;
    number
        .checked_mul(unit)
        .filter(|seconds| *seconds > 0)
        .ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::parse_duration;

    #[test]
    fn durations_are_parsed_with_their_unit() {
        assert_eq!(parse_duration("2h"), Ok(7200));
        assert_eq!(parse_duration("90s"), Ok(90));
        for bad in [
            "",
            "h",
            "2",
            "-1h",
            "0h",
            "2w",
            "99999999999999999999d",
            "é",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
