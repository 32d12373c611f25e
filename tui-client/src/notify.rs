//! Calling someone who is not looking. Nothing that others wrote is part of it.

use std::io::{self, Write};

use crate::config::Call;

/// Rings the bell or shows a notification, in the ways that are wanted.
pub(crate) fn call(out: &mut impl Write, calls: &[Call], waiting: usize) -> io::Result<()> {
    let words = match waiting {
        1 => "a command waits for your vote".to_owned(),
        several => format!("{several} commands wait for your vote"),
    };
    for call in calls {
        match call {
            Call::Bell => out.write_all(b"\x07")?,
            Call::Osc9 => write!(out, "\x1b]9;PVP: {words}\x1b\\")?,
            Call::Osc777 => write!(out, "\x1b]777;notify;PVP;{words}\x1b\\")?,
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_says_it_as_terminals_expect() {
        let mut out = Vec::new();
        call(&mut out, &[Call::Bell, Call::Osc9, Call::Osc777], 2).unwrap();
        let said = "\x07\x1b]9;PVP: 2 commands wait for your vote\x1b\\\x1b]777;notify;PVP;2 commands wait for your vote\x1b\\";
        assert_eq!(String::from_utf8(out).unwrap(), said);
        let mut out = Vec::new();
        call(&mut out, &[Call::Osc9], 1).unwrap();
        assert_eq!(out, b"\x1b]9;PVP: a command waits for your vote\x1b\\");
    }
}
