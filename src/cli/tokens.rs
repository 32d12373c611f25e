//! `pvp tokens`: lists and revokes tokens.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use pvp_server::store::SqliteTokens;
use pvp_server::token::{TokenClaims, with_descendants};
use serde_json::json;

#[derive(Args)]
pub(crate) struct TokensArguments {
    #[command(subcommand)]
    command: TokensCommand,
}

#[derive(Subcommand)]
enum TokensCommand {
    /// Who holds a token, what it allows and until when; a JSON line each
    List {
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Take a token back; its connections end at once, and its votes at open gates are void
    Revoke {
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The token's id, as listed
        id: String,
    },
}

pub(crate) fn run(arguments: &TokensArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        TokensCommand::List { data } => {
            for row in open_token_table(data)?.list()? {
                let claims: TokenClaims = serde_json::from_str(&row.data)
                    .with_context(|| format!("reading token {}", row.id))?;
                super::print_json(json!({
                    "id": row.id,
                    "participant": claims.participant,
                    "name": claims.name,
                    "kind": claims.kind,
                    "roles": claims.roles,
                    "session": claims.session,
                    "created": row.created_at,
                    "expires": row.expires_at,
                    "revoked": row.revoked_at,
                }))?;
            }
        }
        TokensCommand::Revoke { data, id } => {
            let tokens = open_token_table(data)?;
            if !tokens.revoke(id, pvp_clock::now())? {
                bail!("there is no token `{id}`; see `pvp tokens list`");
            }
            for made_with_it in with_descendants(&tokens.list()?, id) {
                tokens.revoke(&made_with_it, pvp_clock::now())?;
            }
            super::print_line(format!("revoked {id}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn open_token_table(data: &std::path::Path) -> anyhow::Result<SqliteTokens> {
    if !data.join("pvp.sqlite3").exists() {
        bail!("{} is not a data directory", data.display());
    }
    SqliteTokens::open(data).context("opening the data directory")
}
