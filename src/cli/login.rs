//! `pvp login`, `pvp logout` and `pvp whoami`: manage the saved link.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::{ApiClient, Link};
use pvp_protocol::api::WhoAmI;
use pvp_protocol::{ParticipantKind, Role};
use serde_json::json;

use super::links::{self, LinkArguments};
use super::{link_argument, one_line, print_json, print_line};

#[derive(Args)]
pub(crate) struct LoginArguments {
    /// The link, as `pvp invite` printed it [default: $PVP_LINK, or the first line of standard input].
    /// Other users of this machine can see arguments, so leave it out and paste the link when asked
    #[arg(value_name = "LINK")]
    link: Option<String>,
    /// Read the link from this file
    #[arg(long, value_name = "FILE", conflicts_with = "link")]
    link_file: Option<PathBuf>,
    /// Save the link for all directories, not only for this one and those below it
    #[arg(long)]
    everywhere: bool,
}

#[derive(Args)]
pub(crate) struct LogoutArguments {
    /// Delete the link saved for all directories
    #[arg(long)]
    everywhere: bool,
}

#[derive(Args)]
pub(crate) struct WhoamiArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn login(arguments: &LoginArguments) -> anyhow::Result<ExitCode> {
    let link = arguments.read_link()?;
    if link.token().is_none() {
        bail!("the link has no token; use `pvp join` for a code, or ask for an invitation");
    }
    let me = ApiClient::new(link.clone()).whoami()?;
    let path = saved_link_path(arguments.everywhere, me.kind)?;
    links::save_link(&path, &link)?;
    print_line(format!("you are {} on {link}", identity_text(&me)))?;
    print_line(format!("saved in {}", path.display()))?;
    if let Some(file) = &arguments.link_file
        && links::remove_former_link(file)?
    {
        print_line(format!(
            "removed {}; if an agent worked there, it may have read the link: revoke its token",
            file.display()
        ))?;
    }
    if me.session.is_none() && me.roles.contains(&Role::Admin) {
        super::print_warning(
            "this is an administrator's link to every session: whoever reads it owns the server. \
             For everyday use, invite yourself with `pvp invite` and fewer roles, and remember that link",
        );
    }
    Ok(ExitCode::SUCCESS)
}

impl LoginArguments {
    fn read_link(&self) -> anyhow::Result<Link> {
        if let Some(text) = &self.link {
            return link_argument::from_argument(text);
        }
        if let Some(path) = &self.link_file {
            return link_argument::from_file(path);
        }
        if let Some(link) = links::link_from_variable("PVP_LINK")? {
            return Ok(link);
        }
        if std::io::stdin().is_terminal() {
            let mut stderr = std::io::stderr();
            write!(stderr, "Paste the link: ").context("writing to standard error")?;
            stderr.flush().context("writing to standard error")?;
        }
        link_argument::from_stdin()
    }
}

fn saved_link_path(everywhere: bool, holder: ParticipantKind) -> anyhow::Result<PathBuf> {
    match everywhere {
        true => links::user_link_path(holder),
        false => links::directory_link_path(holder),
    }
}

pub(crate) fn logout(arguments: &LogoutArguments) -> anyhow::Result<ExitCode> {
    let mut forgotten = Vec::new();
    for holder in [ParticipantKind::Human, ParticipantKind::Agent] {
        let path = saved_link_path(arguments.everywhere, holder)?;
        if links::remove_link(&path)? {
            forgotten.push(path);
        }
    }
    if forgotten.is_empty() {
        let path = saved_link_path(arguments.everywhere, ParticipantKind::Human)?;
        bail!("no link is saved in {}", path.display());
    }
    for path in forgotten {
        print_line(format!("forgot {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn whoami(arguments: &WhoamiArguments) -> anyhow::Result<ExitCode> {
    let (link, source) = arguments.link.resolve_link()?;
    let me = ApiClient::new(link.clone())
        .whoami()
        .with_context(|| format!("the link {source}"))?;
    if arguments.json {
        print_json(json!({ "me": me, "server": link.base_url(), "source": source.to_string() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    print_line(format!("{} on {link}", identity_text(&me)))?;
    print_line(format!("link {source}"))?;
    if let Some(expires) = me.expires {
        print_line(format!("expires {expires}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn identity_text(me: &WhoAmI) -> String {
    let roles: Vec<_> = me.roles.iter().map(|role| role.as_str()).collect();
    format!(
        "{} ({}; {})",
        me.participant,
        one_line(&me.name),
        roles.join(", ")
    )
}
