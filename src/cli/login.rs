//! `pvp login`, `pvp logout`, `pvp whoami`

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::{Api, Link};
use pvp_protocol::api::WhoAmI;
use serde_json::json;

use super::links::{self, LinkArguments};
use super::{one_line, say};

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
    let me = Api::new(link.clone()).me()?;
    let path = match arguments.everywhere {
        true => links::everywhere()?,
        false => links::here()?,
    };
    links::remember(&path, &link)?;
    say(format!("you are {} on {link}", describe(&me)))?;
    say(format!("remembered in {}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn logout(arguments: &LogoutArguments) -> anyhow::Result<ExitCode> {
    let path = match arguments.everywhere {
        true => links::everywhere()?,
        false => links::here()?,
    };
    if !links::forget(&path)? {
        bail!("nothing is remembered in {}", path.display());
    }
    say(format!("forgot {}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn whoami(arguments: &WhoamiArguments) -> anyhow::Result<ExitCode> {
    let (link, source) = arguments.link.find()?;
    let me = Api::new(link.clone())
        .me()
        .with_context(|| format!("the link {source}"))?;
    if arguments.json {
        say(json!({ "me": me, "server": link.base(), "source": source.to_string() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    say(format!("{} on {link}", describe(&me)))?;
    say(format!("link {source}"))?;
    if let Some(expires) = me.expires {
        say(format!("expires {expires}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(me: &WhoAmI) -> String {
    let roles: Vec<_> = me.roles.iter().map(|role| role.as_str()).collect();
    format!(
        "{} ({}; {})",
        me.participant,
        one_line(&me.name),
        roles.join(", ")
    )
}
