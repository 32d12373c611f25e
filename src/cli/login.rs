//! `pvp login`, `pvp logout` and `pvp whoami`: manage the saved link.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::{ApiClient, Link};
use pvp_protocol::api::WhoAmI;
use serde_json::json;

use super::links::{self, LinkArguments};
use super::{one_line, print_line};

#[derive(Args)]
pub(crate) struct LoginArguments {
    /// The link, as `pvp invite` printed it
    #[arg(value_name = "LINK", env = "PVP_LINK", hide_env_values = true)]
    link: String,
    /// Remember it for every directory, not only for this one and those below
    #[arg(long)]
    everywhere: bool,
}

#[derive(Args)]
pub(crate) struct LogoutArguments {
    /// Forget the link for every directory
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
    let link = Link::parse(&arguments.link)?;
    if link.token().is_none() {
        bail!("the link has no token; ask for an invitation");
    }
    let me = ApiClient::new(link.clone()).whoami()?;
    let path = match arguments.everywhere {
        true => links::user_link_path()?,
        false => links::directory_link_path()?,
    };
    links::save_link(&path, &link)?;
    print_line(format!("you are {} on {link}", identity_text(&me)))?;
    print_line(format!("remembered in {}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn logout(arguments: &LogoutArguments) -> anyhow::Result<ExitCode> {
    let path = match arguments.everywhere {
        true => links::user_link_path()?,
        false => links::directory_link_path()?,
    };
    if !links::remove_link(&path)? {
        bail!("nothing is remembered in {}", path.display());
    }
    print_line(format!("forgot {}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn whoami(arguments: &WhoamiArguments) -> anyhow::Result<ExitCode> {
    let (link, source) = arguments.link.resolve_link()?;
    let me = ApiClient::new(link.clone())
        .whoami()
        .with_context(|| format!("the link {source}"))?;
    if arguments.json {
        print_line(json!({ "me": me, "server": link.base_url(), "source": source.to_string() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    print_line(format!("{} on {link}", identity_text(&me)))?;
    print_line(format!("link {source}"))?;
    if let Some(expires) = me.expires {
        print_line(format!("expires {expires}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn identity_text(me: &WhoAmI) -> String {
    let roles: Vec<_> = me.roles.iter().map(|role| role.as_str()).collect();
    format!(
        "{} ({}; {})",
        me.participant,
        one_line(&me.name),
        roles.join(", ")
    )
}
