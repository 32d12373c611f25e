//! Notifies a user who is not looking, by the bell or a desktop notification.
//!
//! The text is fixed: nothing that others wrote is part of it.

use std::io::{self, Write};

use crate::config::NotifyMethod;

/// Notifies by each of the methods that `waiting` commands wait for the user's vote.
pub(crate) fn send_notifications(
    out: &mut impl Write,
    methods: &[NotifyMethod],
    waiting: usize,
) -> io::Result<()> {
    let text = match waiting {
        1 => "a command is waiting for your vote".to_owned(),
        several => format!("{several} commands are waiting for your vote"),
    };
    for method in methods {
        match method {
            NotifyMethod::Bell => out.write_all(b"\x07")?,
            NotifyMethod::Osc9 => write!(out, "\x1b]9;PVP: {text}\x1b\\")?,
            NotifyMethod::Osc777 => write!(out, "\x1b]777;notify;PVP;{text}\x1b\\")?,
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_writes_what_terminals_expect() {
        let mut out = Vec::new();
        send_notifications(
            &mut out,
            &[NotifyMethod::Bell, NotifyMethod::Osc9, NotifyMethod::Osc777],
            2,
        )
        .unwrap();
        let expected = "\x07\x1b]9;PVP: 2 commands are waiting for your vote\x1b\\\x1b]777;notify;PVP;2 commands are waiting for your vote\x1b\\";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        send_notifications(&mut out, &[NotifyMethod::Osc9], 1).unwrap();
        assert_eq!(out, b"\x1b]9;PVP: a command is waiting for your vote\x1b\\");
    }
}
