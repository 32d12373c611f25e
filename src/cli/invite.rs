//! `pvp invite`: creates a token and its link, or a join code.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use pvp_protocol::api::{CreatedJoinCode, Invitation, InviteRequest, JoinCodeRequest};
use pvp_protocol::{ParticipantId, ParticipantKind, Refusal, Role, SessionId};
use pvp_server::invite::{Inviter, create_invitation};
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
    /// A role to allow; may be given several times [default with --code: approver]
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
    /// Print a QR code too
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

    /// The address that links to a server on this machine begin with.
    fn base_url<'a>(&'a self, server: &'a LocalServer) -> &'a str {
        let url = self.url.as_deref().unwrap_or(&server.url);
        url.trim_end_matches('/')
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
                let (base_url, now) = (self.base_url(server), pvp_clock::now());
                let created = create_invitation(request, &Inviter::Operator, base_url, now);
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
                let (base_url, now) = (self.base_url(server), pvp_clock::now());
                let created = join::create_join_code(request, &Inviter::Operator, base_url, now);
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
            true => share::print_qr(&invitation.link),
            false => Ok(()),
        }
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
