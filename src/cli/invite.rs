//! `pvp invite`: creates a token and its link.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pvp_protocol::api::{Invitation, InviteRequest};
use pvp_protocol::{ParticipantId, ParticipantKind, Role};
use pvp_server::invite::{Inviter, create_invitation};
use pvp_server::store::SqliteTokens;

use super::links::LinkArguments;

#[derive(Args)]
pub(crate) struct InviteArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Invite through the server's data directory on this machine, instead of an admin's link
    #[arg(long, value_name = "DIR", conflicts_with = "link")]
    data: Option<PathBuf>,
    /// Where links point to, for --data
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:3000",
        requires = "data"
    )]
    url: String,
    /// Who is invited
    #[arg(long)]
    name: String,
    /// The most they may be; may be given several times
    #[arg(long = "role", required = true, value_name = "ROLE")]
    roles: Vec<Role>,
    /// human or agent
    #[arg(long, default_value = "human", value_parser = parse_kind)]
    kind: ParticipantKind,
    /// For every session, also if the link names one
    #[arg(long, conflicts_with = "session")]
    everywhere: bool,
    /// How long it holds, such as 30m, 2h or 7d; for ever if not given
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    expires: Option<u64>,
    /// Another token for someone who is known already, by participant id
    #[arg(long, value_parser = super::parse_participant_id, value_name = "ID")]
    participant: Option<ParticipantId>,
    /// Print JSON: token, link, participant, roles, expires
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: InviteArguments) -> anyhow::Result<ExitCode> {
    let invite = |session| InviteRequest {
        name: arguments.name.clone(),
        roles: arguments.roles.iter().copied().collect(),
        kind: arguments.kind,
        capabilities: Default::default(),
        session,
        expires_seconds: arguments.expires,
        participant: arguments.participant.clone(),
    };
    let invitation = match &arguments.data {
        Some(data) => {
            if !data.join("pvp.sqlite3").exists() {
                bail!(
                    "{} is not a data directory; start `pvp server --data` there first",
                    data.display()
                );
            }
            let tokens = SqliteTokens::open(data).context("opening the data directory")?;
            let base = arguments.url.trim_end_matches('/');
            let invite = invite(arguments.link.session_flag());
            let (row, invitation) =
                create_invitation(invite, &Inviter::Operator, base, pvp_clock::now())
                    .map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
            tokens.insert(&row)?;
            invitation
        }
        None => {
            let api = arguments.link.api_client()?;
            let session = match arguments.everywhere {
                true => None,
                false => arguments.link.named_session(api.link()),
            };
            api.invite(&invite(session))?
        }
    };
    print_invitation(&invitation, arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

fn print_invitation(invitation: &Invitation, json: bool) -> anyhow::Result<()> {
    if json {
        return super::print_json(serde_json::to_string(invitation)?);
    }
    super::print_line(format!("participant  {}", invitation.participant))?;
    let roles: Vec<_> = invitation.roles.iter().map(|role| role.as_str()).collect();
    super::print_line(format!("roles        {}", roles.join(", ")))?;
    match invitation.expires {
        Some(expires) => super::print_line(format!("expires      {expires}"))?,
        None => super::print_line("expires      never")?,
    }
    super::print_line(format!("link         {}", invitation.link))
}

fn parse_kind(text: &str) -> Result<ParticipantKind, String> {
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
