//! `pvp tokens`: lists and revokes tokens.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use pvp_server::store::TokenTable;
use pvp_server::token::TokenClaims;
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
    /// Take a token back; its live connections end within seconds
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
                super::print_line(json!({
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
            if !open_token_table(data)?.revoke(id, pvp_clock::now())? {
                bail!("there is no token `{id}`; see `pvp tokens list`");
            }
            super::print_line(format!("revoked {id}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn open_token_table(data: &std::path::Path) -> anyhow::Result<TokenTable> {
    if !data.join("pvp.sqlite3").exists() {
        bail!("{} is not a data directory", data.display());
    }
    TokenTable::open(data).context("opening the data directory")
}
