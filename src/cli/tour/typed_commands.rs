//! Runs the `pvp` commands that are typed into the tour's own terminal.

use std::io::{BufRead, IsTerminal, Read};
use std::process::Stdio;

use anyhow::Context;
use tokio::sync::mpsc;

use crate::cli::shell_words;

/// Bytes of the longest line that is read.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// The lines of standard input, one at a time.
pub(super) struct TypedCommands {
    lines: mpsc::Receiver<String>,
    /// Asks for the next line. While a command runs, the terminal is its own.
    ready: std::sync::mpsc::Sender<()>,
    is_open: bool,
}

/// What a typed line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TypedLine {
    Nothing,
    Quit,
    /// The arguments of a `pvp` command.
    Command(Vec<String>),
    /// It cannot be run; the text says what can.
    NotUnderstood(&'static str),
}

impl TypedCommands {
    pub(super) fn listen() -> Self {
        let (sender, lines) = mpsc::channel(1);
        let (ready, asked) = std::sync::mpsc::channel();
        // A thread that nobody waits for: a read from a terminal ends only with a line.
        std::thread::spawn(move || {
            let mut stdin = std::io::stdin().lock();
            while asked.recv().is_ok() {
                let mut line = Vec::new();
                let read = (&mut stdin)
                    .take(MAX_LINE_BYTES)
                    .read_until(b'\n', &mut line);
                let line = String::from_utf8_lossy(&line).into_owned();
                if !read.is_ok_and(|bytes| bytes > 0) || sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        let is_open = ready.send(()).is_ok();
        Self {
            lines,
            ready,
            is_open,
        }
    }

    /// The next line. Never returns once standard input has ended. Cancel safe.
    pub(super) async fn next(&mut self) -> TypedLine {
        if self.is_open
            && let Some(line) = self.lines.recv().await
        {
            return parse(&line);
        }
        self.is_open = false;
        std::future::pending().await
    }

    /// Lets the next line be read.
    pub(super) fn resume(&mut self) {
        self.is_open &= self.ready.send(()).is_ok();
    }
}

fn parse(line: &str) -> TypedLine {
    let line = line.trim();
    if let Some(command) = line.strip_prefix('!') {
        return TypedLine::Command(vec![
            "exec".to_owned(),
            "--".to_owned(),
            command.trim_start_matches('!').trim().to_owned(),
        ]);
    }
    let Some(split) = shell_words::split(line) else {
        return TypedLine::NotUnderstood("A quote is not closed. Type the command again.");
    };
    let mut words = split.words;
    match words.first().map(String::as_str) {
        None => TypedLine::Nothing,
        Some("quit" | "exit") => TypedLine::Quit,
        Some(program) if program == "pvp" || program.ends_with("/pvp") => {
            words.remove(0);
            TypedLine::Command(words)
        }
        Some(_) => TypedLine::NotUnderstood(
            "Type a `pvp` command as shown above, `!` and a shell command, or `quit`.",
        ),
    }
}

/// Runs this program with arguments, and waits for it.
pub(super) async fn run(arguments: &[String]) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    // The next lines of a pipe are for the tour, not for the command.
    let stdin = match std::io::stdin().is_terminal() {
        true => Stdio::inherit(),
        false => Stdio::null(),
    };
    // How it ends is on the screen, and what it did is in the log.
    let _ = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(stdin)
        .kill_on_drop(true)
        .status()
        .await
        .context("running the command")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_of_this_program_or_is_not_run() {
        let command = |words: &[&str]| {
            TypedLine::Command(words.iter().map(|word| (*word).to_owned()).collect())
        };
        assert_eq!(parse("pvp approve a@b\n"), command(&["approve", "a@b"]));
        assert_eq!(
            parse("./target/debug/pvp reject a 'not now'"),
            command(&["reject", "a", "not now"])
        );
        assert_eq!(parse("!ls -l"), command(&["exec", "--", "ls -l"]));
        assert_eq!(parse("  \n"), TypedLine::Nothing);
        assert_eq!(parse("quit\n"), TypedLine::Quit);
        for line in ["rm -rf x", "pvp reject a 'not", "notpvp gates"] {
            assert!(matches!(parse(line), TypedLine::NotUnderstood(_)), "{line}");
        }
    }
}
