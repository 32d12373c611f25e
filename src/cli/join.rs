//! `pvp join`: uses a join code or a link, remembers it, and opens the screen.

use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::{ApiClient, ApiError, Link};
use pvp_protocol::api::{RedeemCodeRequest, RedeemDeviceCodeRequest, WhoAmI};
use pvp_protocol::{JoinCode, ParticipantKind};

use super::login::identity_text;
use super::{link_argument, links, print_line, print_warning};

#[derive(Args)]
pub(crate) struct JoinArguments {
    /// The code, as HOST:PORT/CODE, or the link that you were sent; `-` reads it from standard input
    /// [default: asks for it]
    #[arg(value_name = "CODE|LINK")]
    target: Option<String>,
    /// The name that others see [default: your user name]
    #[arg(long)]
    name: Option<String>,
    /// Replace the link saved for this directory
    #[arg(long)]
    replace: bool,
    /// Do not open the screen
    #[arg(long)]
    no_screen: bool,
}

/// What somebody was sent.
enum JoinTarget {
    /// A server's address, without a token, and a code.
    Code(Link, JoinCode),
    /// A server's address, without a token, and the code of a link that `pvp open` printed.
    DeviceCode(Link, JoinCode),
    /// A link with a token.
    Link(Link),
}

pub(crate) fn run(arguments: &JoinArguments) -> anyhow::Result<ExitCode> {
    let target = read_target(arguments.target.as_deref())?;
    if !arguments.replace {
        check_not_joined(&target)?;
    }
    let (link, by_code) = match target {
        JoinTarget::Link(link) => (link, false),
        JoinTarget::Code(server, code) => {
            let link = redeem(&server, &code, arguments.name.as_deref())?;
            (link, true)
        }
        JoinTarget::DeviceCode(server, code) => (redeem_device_code(&server, &code)?, true),
    };
    // A code works once, so its link is saved before anything can fail.
    let path = links::directory_link_path(ParticipantKind::Human)?;
    links::save_link(&path, &link)?;
    let api = ApiClient::new(link.clone());
    let me = api.whoami().context("the link was saved, but")?;
    if me.kind == ParticipantKind::Agent {
        check_agent_link(&link, &path, by_code, arguments.replace)?;
    }
    let link = settle_link(link, &me)?;
    print_joined(&api, &link, &me)?;
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if is_terminal && !arguments.no_screen && me.kind == ParticipantKind::Human {
        return open_screen();
    }
    print_line(match me.kind {
        ParticipantKind::Human => "Next, here: pvp tui, pvp gates, pvp tail --follow",
        ParticipantKind::Agent => "Next, here: pvp agent --model MODEL",
    })?;
    Ok(ExitCode::SUCCESS)
}

fn read_target(argument: Option<&str>) -> anyhow::Result<JoinTarget> {
    match argument {
        Some("-") | None => {
            if argument.is_none() && std::io::stdin().is_terminal() {
                let mut stderr = std::io::stderr();
                write!(stderr, "Paste the code or the link: ")
                    .and_then(|()| stderr.flush())
                    .context("writing to standard error")?;
            }
            parse_target(&link_argument::first_line_of_stdin()?)
        }
        // A link with a token does not stay on the command line.
        Some(text) if text.contains("token=") || link_argument::is_hidden(text) => {
            link_argument::from_argument(text).map(JoinTarget::Link)
        }
        Some(text) => parse_target(text),
    }
}

/// Parses `HOST:PORT/CODE`, a link with a code, or a link with a token; also with the `pvp join`
/// that it was sent with.
fn parse_target(text: &str) -> anyhow::Result<JoinTarget> {
    let text = text.trim();
    let text = text.strip_prefix("pvp join ").unwrap_or(text).trim();
    let text = text.trim_matches('\'');
    if text.contains("token=") {
        return Ok(JoinTarget::Link(Link::parse(text)?));
    }
    let device = text.split_once("#device=");
    let split = device
        .or_else(|| text.split_once("#join="))
        .or_else(|| text.split_once("?join="))
        .or_else(|| text.rsplit_once('/'));
    let Some((server, code)) = split.filter(|(server, _)| !server.is_empty()) else {
        bail!(
            "the address is missing: a code is sent as HOST:PORT/CODE, such as 192.168.1.5:3000/7QK2M-R8T4X-0B6FJ-ZN3WG; copy the whole line"
        );
    };
    let server = match server.contains("://") {
        true => server.to_owned(),
        false => format!("http://{server}"),
    };
    let (code, parameters) = code.split_once('&').unwrap_or((code, ""));
    let code = JoinCode::parse(code).context("copy the whole line that you were sent")?;
    // The server's fingerprint may follow, and a session.
    let server = Link::parse(&format!("{server}#{parameters}"))?;
    Ok(match device {
        Some(_) => JoinTarget::DeviceCode(server, code),
        None => JoinTarget::Code(server, code),
    })
}

/// Refuses to replace a link that works: whoever tries a code in the directory where they started
/// the server would lose their own.
fn check_not_joined(target: &JoinTarget) -> anyhow::Result<()> {
    let path = links::directory_link_path(ParticipantKind::Human)?;
    let Ok(saved) = link_argument::from_file(&path) else {
        return Ok(());
    };
    let same = matches!(target, JoinTarget::Link(link) if link.token() == saved.token());
    if same {
        return Ok(());
    }
    let server = saved.base_url();
    match ApiClient::new(saved.clone()).whoami() {
        Ok(me) => bail!(
            "you are already {} on {server} in this directory; join in another directory, or replace that link with --replace",
            identity_text(&me),
        ),
        // Its server does not accept it any more.
        Err(ApiError::Refused(_)) => Ok(()),
        // A server that is stopped accepts the link again once it runs.
        Err(_) => bail!(
            "this directory remembers a link to {server}, which does not answer now; join in another directory, or replace that link with --replace"
        ),
    }
}

/// Refuses to save a link as the agent's if it came for a code, which is always a person's, or if it
/// would replace another: the agent that is started here next runs what that server grants.
fn check_agent_link(link: &Link, saved: &Path, by_code: bool, replace: bool) -> anyhow::Result<()> {
    let problem = match by_code {
        true => {
            "the server answered the code with an agent's link, which no PVP server does; nothing was saved"
        }
        false if replace => return Ok(()),
        false => {
            let path = links::directory_link_path(ParticipantKind::Agent)?;
            let other = link_argument::from_file(&path).ok();
            if other.is_none_or(|other| other.token() == link.token()) {
                return Ok(());
            }
            "this is an agent's link, and this directory remembers another one; join in another directory, or replace that link with --replace"
        }
    };
    links::remove_link(saved)?;
    bail!(problem)
}

/// Exchanges a code for a link of one's own.
fn redeem(server: &Link, code: &JoinCode, name: Option<&str>) -> anyhow::Result<Link> {
    let own_name = || {
        let user = std::env::var("USER").ok();
        user.filter(|user| !user.trim().is_empty())
    };
    let name = name.map(str::to_owned).or_else(own_name);
    let request = RedeemCodeRequest {
        code: code.to_string(),
        name: name.unwrap_or_else(|| "guest".to_owned()),
    };
    let joined = ApiClient::new(server.clone()).join(&request);
    let invitation = joined.map_err(not_used)?;
    // The address is the one that was reached, whatever the server calls itself.
    let link = server.clone().without_session();
    link.with_token(&invitation.token)
        .context("the server's answer")
}

/// Makes this machine another device of the person who made the link.
fn redeem_device_code(server: &Link, code: &JoinCode) -> anyhow::Result<Link> {
    let host = rustix::system::uname();
    let request = RedeemDeviceCodeRequest {
        code: code.to_string(),
        name: format!("pvp on {}", host.nodename().to_string_lossy()),
    };
    let joined = ApiClient::new(server.clone()).redeem_device_code(&request);
    let device = joined.map_err(not_used)?;
    let link = server.clone().with_token(&device.token);
    link.context("the server's answer")
}

/// Says that a code still works, if it was not tried.
fn not_used(error: ApiError) -> anyhow::Error {
    let is_untried = matches!(
        error,
        ApiError::Unreachable { .. } | ApiError::Untrusted { .. }
    );
    let error = anyhow::Error::from(error);
    match is_untried {
        true => error.context("the code was not used"),
        false => error,
    }
}

/// The link with the session that its token is for, saved where it belongs.
fn settle_link(link: Link, me: &WhoAmI) -> anyhow::Result<Link> {
    let settled = match (&me.session, link.session()) {
        (Some(session), None) => link.clone().with_session(session.clone()),
        (Some(_), Some(_)) | (None, _) => link.clone(),
    };
    let human = links::directory_link_path(ParticipantKind::Human)?;
    let path = links::directory_link_path(me.kind)?;
    if settled != link || path != human {
        links::save_link(&path, &settled)?;
    }
    if path != human {
        links::remove_link(&human)?;
    }
    Ok(settled)
}

fn print_joined(api: &ApiClient, link: &Link, me: &WhoAmI) -> anyhow::Result<()> {
    print_line(format!("You joined {link} as {}.", identity_text(me)))?;
    print_line("The link is saved for this directory.")?;
    if link.base_url().starts_with("http://") && !is_this_machine(link) {
        print_warning(
            "this server is reached without TLS: others on the network can read what you and it send",
        );
    }
    let gates = api.list_gates(None, std::time::Duration::ZERO)?.gates;
    print_line(match gates.len() {
        0 => "No command waits for a decision.".to_owned(),
        1 => "1 command waits for a decision.".to_owned(),
        many => format!("{many} commands wait for a decision."),
    })
}

fn is_this_machine(link: &Link) -> bool {
    let host = link.base_url().trim_start_matches("http://");
    ["127.", "localhost", "[::1]"]
        .iter()
        .any(|own| host.starts_with(own))
}

/// Becomes `pvp tui`; returns only if that fails.
fn open_screen() -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("finding this program")?;
    let error = Command::new(program).arg0("pvp").arg("tui").exec();
    Err(error).context("opening the screen; run `pvp tui`")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "7QK2M-R8T4X-0B6FJ-ZN3WG";

    fn parsed(text: &str) -> Result<(String, String), String> {
        match parse_target(text) {
            Ok(JoinTarget::Code(server, code)) => {
                Ok((server.base_url().to_owned(), code.to_string()))
            }
            Ok(JoinTarget::DeviceCode(server, code)) => {
                Ok((server.reveal(), format!("own {code}")))
            }
            Ok(JoinTarget::Link(link)) => Ok((link.reveal(), String::new())),
            Err(error) => Err(format!("{error:#}")),
        }
    }

    #[test]
    fn a_code_is_understood_in_every_form_in_which_it_is_sent() {
        for (text, server) in [
            (format!("192.0.2.7:3000/{CODE}"), "http://192.0.2.7:3000"),
            (
                format!("pvp join 192.0.2.7:3000/{CODE}\n"),
                "http://192.0.2.7:3000",
            ),
            (format!("pvp join '[::1]:3000/{CODE}'"), "http://[::1]:3000"),
            (format!("http://h:1/#join={CODE}"), "http://h:1"),
            (
                format!("https://pvp.example/team/#join={CODE}&x=1"),
                "https://pvp.example/team",
            ),
            (
                format!("https://pvp.example/{}", CODE.to_lowercase()),
                "https://pvp.example",
            ),
        ] {
            let expected = (server.to_owned(), CODE.to_owned());
            assert_eq!(parsed(&text), Ok(expected), "{text}");
        }
        let own = format!("https://h:1/#device={CODE}&session=owl");
        let expected = ("https://h:1/#session=owl".to_owned(), format!("own {CODE}"));
        assert_eq!(parsed(&own), Ok(expected));
        let link = "http://h/#token=pvp_ab&session=owl";
        assert_eq!(parsed(link), Ok((link.to_owned(), String::new())));
    }

    #[test]
    fn what_is_no_code_says_what_one_looks_like() {
        for (text, part) in [
            ("", "HOST:PORT/CODE"),
            (CODE, "HOST:PORT/CODE"),
            ("/", "HOST:PORT/CODE"),
            ("h:3000/", "copy the whole line"),
            ("h:3000/7QK2M", "copy the whole line"),
            ("h:3000/é", "copy the whole line"),
            (&format!("a b/{CODE}"), "names no host"),
            (&format!("ftp://h/{CODE}"), "begins with http"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
