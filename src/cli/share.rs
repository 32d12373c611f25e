//! How a join code is shown to whoever sends it on: one line, and a QR code on a terminal.

use std::io::IsTerminal;

use anyhow::Context;
use pvp_protocol::api::CreatedJoinCode;
use qrcode::{Color, EcLevel, QrCode};

use super::{print_bytes, print_line};

/// Light modules around a QR code, without which cameras do not find it.
const QUIET_ZONE: usize = 2;

/// The line to send: what the other person runs.
pub(super) fn join_command(created: &CreatedJoinCode) -> String {
    let target = match created.link.strip_prefix("http://") {
        Some(rest) => rest.replacen("/#join=", "/", 1),
        None => created.link.clone(),
    };
    // A shell takes brackets, which an IPv6 address has, for a pattern.
    match target.contains('[') {
        true => format!("pvp join '{target}'"),
        false => format!("pvp join {target}"),
    }
}

/// Prints a join code as a line to send, and as a QR code at a terminal or if it is asked for.
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
    if qr || std::io::stdout().is_terminal() {
        print_qr(&created.link)?;
    }
    Ok(())
}

/// Prints a text as a QR code.
pub(super) fn print_qr(text: &str) -> anyhow::Result<()> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L)
        .context("the link is too long for a QR code")?;
    let colors = std::io::stdout().is_terminal();
    print_bytes(draw_qr(&code, colors).as_bytes())
}

/// Draws two rows of modules in each line. With colours it is black on white on every terminal;
/// without, it is meant for a dark background.
fn draw_qr(code: &QrCode, colors: bool) -> String {
    let (modules, width) = (code.to_colors(), code.width());
    let is_dark = |x: usize, y: usize| {
        let inside = |at: usize| at.checked_sub(QUIET_ZONE).filter(|at| *at < width);
        match (inside(x), inside(y)) {
            (Some(x), Some(y)) => modules[y * width + x] == Color::Dark,
            _ => false,
        }
    };
    let size = width + 2 * QUIET_ZONE;
    let mut drawn = String::new();
    for y in (0..size).step_by(2) {
        let line: String = (0..size)
            .map(
                |x| match (is_dark(x, y) ^ colors, is_dark(x, y + 1) ^ colors) {
                    (false, false) => '█',
                    (false, true) => '▀',
                    (true, false) => '▄',
                    (true, true) => ' ',
                },
            )
            .collect();
        drawn += &match colors {
            true => format!("  \x1b[30;107m{line}\x1b[0m\n"),
            false => format!("  {line}\n"),
        };
    }
    drawn
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
        ] {
            assert_eq!(join_command(&created(link)), command);
        }
    }

    #[test]
    fn a_qr_code_is_drawn_with_its_margin() {
        let code = QrCode::with_error_correction_level("http://h/", EcLevel::L).unwrap();
        let drawn = draw_qr(&code, false);
        let lines: Vec<Vec<char>> = drawn.lines().map(|line| line.chars().collect()).collect();
        assert_eq!(lines.len(), (code.width() + 2 * QUIET_ZONE).div_ceil(2));
        let size = code.width() + 2 * QUIET_ZONE;
        assert!(lines.iter().all(|line| line.len() == 2 + size));
        // The margin is light, and the finder pattern in the corner begins with a dark row.
        assert!(lines[0][2..].iter().all(|c| *c == '█'));
        let corner: String = lines[1][2..12].iter().collect();
        assert_eq!(corner, "██ ▄▄▄▄▄ █");
        assert!(draw_qr(&code, true).starts_with("  \x1b[30;107m "));
    }
}
