//! `pvp tokens`: lists and revokes tokens.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use pvp_protocol::api::{JoinCodeListItem, TokenList, TokenListItem, TokenState};
use pvp_protocol::{Role, SessionId, Timestamp};
use pvp_server::join;
use pvp_server::token::{self, with_descendants};
use serde_json::json;

use super::administration::Administration;
use super::links::LinkArguments;
use super::local_server::LocalServer;
use super::{one_line, print_json, print_line};

#[derive(Args)]
pub(crate) struct TokensArguments {
    #[command(subcommand)]
    command: TokensCommand,
}

#[derive(Subcommand)]
enum TokensCommand {
    /// List who holds a token, what it allows, when it was last used and when it expires
    List {
        #[command(flatten)]
        place: PlaceArguments,
        /// Include expired and revoked tokens
        #[arg(long, short)]
        all: bool,
        /// Print JSON, one token per line
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token or a join code; the token's connections end at once, and its votes at open
    /// gates are void
    Revoke {
        #[command(flatten)]
        place: PlaceArguments,
        /// The id, as `pvp tokens list` shows it
        id: String,
    },
}

/// Whose tokens.
#[derive(Args)]
struct PlaceArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The data directory of a server on this machine, to use instead of an admin's link [default:
    /// that of the server started in this directory]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["link", "link_file"])]
    data: Option<PathBuf>,
}

impl PlaceArguments {
    fn find(&self) -> anyhow::Result<Administration> {
        Administration::find(&self.link, self.data.as_deref())
    }
}

pub(crate) fn run(arguments: &TokensArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        TokensCommand::List { place, all, json } => {
            let list = match place.find()? {
                Administration::Link(api) => api.list_tokens()?,
                Administration::Data { server, .. } => read_list(&server)?,
            };
            match json {
                true => print_json_lines(&list)?,
                false => print_table(&list, *all)?,
            }
        }
        TokensCommand::Revoke { place, id } => {
            match place.find()? {
                Administration::Link(api) => api.revoke_token(id)?,
                Administration::Data { server, .. } => revoke(&server, id)?,
            }
            print_line(format!("revoked {id}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn read_list(server: &LocalServer) -> anyhow::Result<TokenList> {
    let (store, now) = (server.tokens()?, pvp_clock::now());
    let tokens = store.list()?;
    let tokens = tokens.iter().map(|row| token::list_item(row, now));
    let codes = store.outstanding_join_codes(now)?;
    let codes = codes.iter().map(join::list_item);
    Ok(TokenList {
        tokens: tokens.collect::<Result<_, _>>()?,
        codes: codes.collect::<Result<_, _>>()?,
    })
}

fn revoke(server: &LocalServer, id: &str) -> anyhow::Result<()> {
    let (store, now) = (server.tokens()?, pvp_clock::now());
    if store.revoke_join_code(id, now)? {
        return Ok(());
    }
    if !store.revoke(id, now)? {
        bail!("there is no token `{id}` that could be revoked; see `pvp tokens list --all`");
    }
    for made_with_it in with_descendants(&store.list()?, id) {
        store.revoke(&made_with_it, now)?;
    }
    Ok(())
}

fn print_json_lines(list: &TokenList) -> anyhow::Result<()> {
    for token in &list.tokens {
        print_json(serde_json::to_string(token)?)?;
    }
    for code in &list.codes {
        print_json(json!({
            "join_code": code.id,
            "roles": code.roles,
            "session": code.session,
            "created": code.created,
            "expires": code.expires,
        }))?;
    }
    Ok(())
}

fn print_table(list: &TokenList, all: bool) -> anyhow::Result<()> {
    let now = pvp_clock::now();
    let shown = |token: &&TokenListItem| all || token.state == TokenState::Valid;
    let tokens: Vec<_> = list.tokens.iter().filter(shown).collect();
    let header = [
        "ID",
        "NAME",
        "PARTICIPANT",
        "KIND",
        "ROLES",
        "SESSION",
        "CREATED",
        "EXPIRES",
        "LAST USED",
        "STATE",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(tokens.iter().map(|token| token_row(token, now)));
    for line in align(&rows) {
        print_line(line)?;
    }
    match list.tokens.len() - tokens.len() {
        0 => {}
        1 => print_line("1 expired or revoked token is not shown; add --all")?,
        hidden => print_line(format!(
            "{hidden} expired or revoked tokens are not shown; add --all"
        ))?,
    }
    print_codes(&list.codes, now)
}

fn print_codes(codes: &[JoinCodeListItem], now: Timestamp) -> anyhow::Result<()> {
    if codes.is_empty() {
        return Ok(());
    }
    print_line("\nJoin codes that nobody has used yet:")?;
    let header = ["ID", "ROLES", "SESSION", "EXPIRES"];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(codes.iter().map(|code| {
        let (roles, session) = (role_names(&code.roles), session_name(code.session.as_ref()));
        [code.id.clone(), roles, session, until(code.expires, now)]
    }));
    for line in align(&rows) {
        print_line(line)?;
    }
    Ok(())
}

fn token_row(token: &TokenListItem, now: Timestamp) -> [String; 10] {
    let never = || "never".to_owned();
    [
        token.id.clone(),
        shown_name(token),
        token.participant.to_string(),
        token.kind.to_string(),
        role_names(&token.roles),
        session_name(token.session.as_ref()),
        since(token.created, now),
        token.expires.map_or_else(never, |at| until(at, now)),
        token.last_used.map_or_else(never, |at| since(at, now)),
        token.state.to_string(),
    ]
}

/// The name of the holder, and the device if the token is only for one.
fn shown_name(token: &TokenListItem) -> String {
    match &token.device {
        Some(device) => format!("{} ({})", one_line(&token.name), one_line(device)),
        None => one_line(&token.name),
    }
}

fn role_names<'a>(roles: impl IntoIterator<Item = &'a Role>) -> String {
    let names: Vec<_> = roles.into_iter().map(|role| role.as_str()).collect();
    names.join(",")
}

fn session_name(session: Option<&SessionId>) -> String {
    session.map_or_else(|| "all".to_owned(), SessionId::to_string)
}

fn since(at: Timestamp, now: Timestamp) -> String {
    match now.millis_since(at) {
        0..60_000 => "just now".to_owned(),
        millis => format!("{} ago", span(millis)),
    }
}

fn until(at: Timestamp, now: Timestamp) -> String {
    match at.millis_since(now) {
        0 => since(at, now),
        millis @ ..60_000 => format!("in {}", span(millis)),
        // What was just made for a day expires in a day, not in 23 hours.
        millis => format!("in {}", span(millis + 30_000)),
    }
}

/// A span of time in its largest whole unit.
fn span(millis: u64) -> String {
    match millis / 1000 {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Lines in which each column is as wide as its widest cell.
pub(super) fn align<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["ID", "NAME"], ["1", "é"], ["222", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(align(&rows), ["ID   NAME", "1    é", "222"]);
    }

    #[test]
    fn times_are_told_in_their_largest_unit() {
        let now = Timestamp::from_millis(10_000_000_000);
        for (seconds, past, future) in [
            (30, "just now", "in 30s"),
            (60, "1m ago", "in 1m"),
            (7199, "1h ago", "in 2h"),
            (86_400 * 3, "3d ago", "in 3d"),
        ] {
            assert_eq!(since(now.minus_seconds(seconds), now), past);
            assert_eq!(until(now.plus_seconds(seconds), now), future);
        }
        assert_eq!(until(now.minus_seconds(120), now), "2m ago");
    }
}
