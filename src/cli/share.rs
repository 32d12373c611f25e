//! How a join code is shown to whoever sends it on: one line, a link for a browser, and a QR code on a
//! terminal.

use std::io::IsTerminal;

use anyhow::Context;
use pvp_protocol::api::CreatedJoinCode;
use pvp_tui::qr_code::{self, QrBackground};
use rustix::termios::tcgetwinsize;

use super::local_server::is_local_url;
use super::{print_bytes, print_line};

/// What stands before each line of a QR code.
const QR_INDENT: &str = "  ";

/// What a person compares with what a browser shows, before they go on in spite of its warning.
pub(super) fn certificate_text(fingerprint: &str) -> String {
    format!("certificate fingerprint (SHA-256): {fingerprint}")
}

/// The line to send: what the other person runs.
pub(super) fn join_command(created: &CreatedJoinCode) -> String {
    let target = match created.link.strip_prefix("http://") {
        Some(rest) => rest.replacen("/#join=", "/", 1),
        None => created.link.clone(),
    };
    // A shell takes brackets, which an IPv6 address has, for a pattern, and what follows `&` for
    // another command.
    match target.contains(['[', '&']) {
        true => format!("pvp join '{target}'"),
        false => format!("pvp join {target}"),
    }
}

/// Prints a join code as a line to send, and as a link for a browser. A terminal shows the link as a QR
/// code too, unless nobody else reaches it; so does whatever is asked for one.
pub(super) fn print_join_code(created: &CreatedJoinCode, qr: bool) -> anyhow::Result<()> {
    let roles: Vec<_> = created.roles.iter().map(|role| role.as_str()).collect();
    let minutes = created
        .expires
        .millis_since(pvp_clock::now())
        .div_ceil(60_000);
    let time = match minutes {
        0..=1 => "a minute".to_owned(),
        60 => "an hour".to_owned(),
        minutes if minutes % 60 == 0 => format!("{} hours", minutes / 60),
        minutes => format!("{minutes} minutes"),
    };
    let session = match &created.session {
        Some(session) => format!("session `{session}`"),
        None => "every session".to_owned(),
    };
    print_line(format!(
        "Send this line to one person. It works once, within {time}, and lets them into {session} as {}:",
        roles.join(" and ")
    ))?;
    print_line(format!("\n    {}\n", join_command(created)))?;
    let is_local = is_local_url(&created.link);
    let place = match is_local {
        true => "In a browser",
        false => "In a browser or on a phone",
    };
    print_line(format!("{place}: {}\n", created.link))?;
    match qr {
        true => print_qr(&created.link),
        false if is_local || !std::io::stdout().is_terminal() => Ok(()),
        false => print_qr_if_it_fits(&created.link),
    }
}

/// Prints a text as a QR code, or how large the terminal has to be for it.
fn print_qr_if_it_fits(text: &str) -> anyhow::Result<()> {
    let lines = qr_lines(text, QrBackground::Light)?;
    let columns = lines.first().map_or(0, |line| line.chars().count()) + QR_INDENT.len();
    let size = tcgetwinsize(std::io::stdout()).context("reading the terminal's size")?;
    // A terminal may not know its size; whoever looks at it does.
    let is_known = size.ws_col > 0 && size.ws_row > 0;
    let fits = usize::from(size.ws_col) >= columns && usize::from(size.ws_row) > lines.len();
    match fits || !is_known {
        true => print_qr(text),
        false => print_line(format!(
            "Its QR code needs a terminal of {columns} columns and {} lines: `pvp invite --code` prints another.\n",
            lines.len() + 1
        )),
    }
}

/// Prints a text as a QR code: black on white on a terminal, and otherwise for a dark background.
pub(super) fn print_qr(text: &str) -> anyhow::Result<()> {
    let (background, before, after) = match std::io::stdout().is_terminal() {
        true => (QrBackground::Light, "\x1b[30;107m", "\x1b[0m"),
        false => (QrBackground::Dark, "", ""),
    };
    let lines = qr_lines(text, background)?;
    let drawn: String = lines
        .iter()
        .map(|line| format!("{QR_INDENT}{before}{line}{after}\n"))
        .collect();
    print_bytes(drawn.as_bytes())
}

fn qr_lines(text: &str, background: QrBackground) -> anyhow::Result<Vec<String>> {
    qr_code::draw(text, background).context("the link is too long for a QR code")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn created(link: &str) -> CreatedJoinCode {
        CreatedJoinCode {
            id: String::new(),
            code: String::new(),
            link: link.to_owned(),
            roles: Default::default(),
            session: None,
            expires: pvp_clock::now(),
        }
    }

    #[test]
    fn the_line_to_send_is_short_and_survives_a_shell() {
        for (link, command) in [
            (
                "http://192.0.2.7:3000/#join=A-B",
                "pvp join 192.0.2.7:3000/A-B",
            ),
            (
                "https://pvp.example.org/#join=A-B",
                "pvp join https://pvp.example.org/#join=A-B",
            ),
            ("http://[::1]:3000/#join=A-B", "pvp join '[::1]:3000/A-B'"),
            (
                "https://192.0.2.7:3000/#join=A-B&fp=X",
                "pvp join 'https://192.0.2.7:3000/#join=A-B&fp=X'",
            ),
        ] {
            assert_eq!(join_command(&created(link)), command);
        }
    }
}
