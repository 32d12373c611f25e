//! `pvp tail`: prints what happens in a session.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pvp_client::ApiClient;
use pvp_protocol::api::MessagePage;
use pvp_protocol::{Limits, SessionId, parse_server_message};
use serde_json::Value;

use super::links::LinkArguments;
use super::log_line::LogLines;
use super::{print_error, print_json, print_line};

/// Messages per request.
const PAGE_SIZE: u64 = 500;

/// How long one request waits for the next message.
const LONG_POLL: Duration = Duration::from_secs(30);

/// How long to wait before retrying a request that the server did not answer.
const RETRY_DELAY: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(crate) struct TailArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Keep running, and print new events
    #[arg(long, short)]
    follow: bool,
    /// Print the last N events first
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N")]
    lines: u64,
    /// Begin after this sequence number instead of with the last events
    #[arg(long, value_name = "SEQ", conflicts_with = "lines")]
    after: Option<u64>,
    /// Print JSON, one message per line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &TailArguments) -> anyhow::Result<ExitCode> {
    let (api, session) = arguments.link.api_and_session()?;
    // First, because the server may refuse a session whose log was altered.
    super::check_record(&api, &session, 0);
    let head = api.session(&session)?.head;
    let mut after = arguments
        .after
        .unwrap_or_else(|| head.saturating_sub(arguments.lines));
    let mut lines = LogLines::default();
    if !arguments.json {
        read_context(&api, &session, after, &mut lines)?;
    }
    // The server may have been down, and come back with another log.
    let (mut check_again, mut received) = (false, 0);
    loop {
        let wait = match arguments.follow {
            true => LONG_POLL,
            false => Duration::ZERO,
        };
        let Some(page) = fetch_page(&api, &session, after, wait)? else {
            check_again = true;
            continue;
        };
        if std::mem::take(&mut check_again) || page.head < received {
            super::check_record(&api, &session, received);
        }
        for message in page.messages {
            let seq = message.get("seq").and_then(Value::as_u64);
            received = received.max(seq.unwrap_or_default());
            print_message(&Value::Object(message), arguments.json, &mut lines)?;
        }
        after = page.next;
        if !arguments.follow && after >= page.head {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Reads the messages before the first line, so that the lines can name what they are about.
fn read_context(
    api: &ApiClient,
    session: &SessionId,
    after: u64,
    lines: &mut LogLines,
) -> anyhow::Result<()> {
    let first = after.saturating_sub(PAGE_SIZE);
    if first == after {
        return Ok(());
    }
    let page = api.messages(session, first, after - first, Duration::ZERO)?;
    let limits = message_limits();
    for message in page.messages {
        let is_before = message.get("seq").and_then(Value::as_u64) <= Some(after);
        let text = Value::Object(message).to_string();
        if let (true, Ok(Some(envelope))) = (is_before, parse_server_message(&text, &limits)) {
            lines.skip(&envelope);
        }
    }
    Ok(())
}

fn message_limits() -> Limits {
    Limits {
        json_depth: 128,
        ..Limits::default()
    }
}

/// Fetches the next messages; `None` after a transient failure, when the caller should try again.
fn fetch_page(
    api: &ApiClient,
    session: &SessionId,
    after: u64,
    wait: Duration,
) -> anyhow::Result<Option<MessagePage>> {
    match api.messages(session, after, PAGE_SIZE, wait) {
        Ok(page) => Ok(Some(page)),
        Err(error) if error.is_transient() && !wait.is_zero() => {
            print_error(&error.into());
            std::thread::sleep(RETRY_DELAY);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn print_message(message: &Value, json: bool, lines: &mut LogLines) -> anyhow::Result<()> {
    let text = message.to_string();
    if json {
        return print_json(text);
    }
    match parse_server_message(&text, &message_limits()) {
        Ok(Some(envelope)) => print_line(lines.line(&envelope)),
        // A newer server may send message types that this version does not know.
        Ok(None) | Err(_) => print_line(format!("{:>6}  {}", message["seq"], message["type"])),
    }
}
