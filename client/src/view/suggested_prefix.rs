//! The prefix that an allow rule for commands like this one could use.

use pvp_protocol::{Action, Assessment, Category, Command, RunMode};

/// Maximum number of words in a suggested prefix: a command, its subcommand and that one's object.
const MAX_PREFIX_WORDS: usize = 3;

/// A prefix that an allow rule could use: a bare command name and the subcommands after it. Empty
/// if no rule could ever cover the command, or if splitting it into words takes a shell.
pub(super) fn suggested_prefix(action: &Action, assessment: Option<&Assessment>) -> Vec<String> {
    let is_plain_write = |assessment: &Assessment| {
        assessment.category == Category::Write && !assessment.runs_given_code
    };
    let can_be_allowed = assessment.is_some_and(is_plain_write)
        && action.env.is_empty()
        && action.mode != RunMode::Pty;
    let words: Vec<&str> = match &action.command {
        Command::Shell { line } if line.chars().all(is_unquoted_char) => line.split(' ').collect(),
        Command::Argv { command, args } => std::iter::once(command)
            .chain(args)
            .map(String::as_str)
            .collect(),
        Command::Shell { .. } | Command::LoginShell { .. } | Command::Tool { .. } => Vec::new(),
    };
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    match words.next() {
        Some(command) if can_be_allowed && is_bare_name(command) => {
            let subcommands = words.take_while(|word| is_subcommand(word));
            let words = std::iter::once(command).chain(subcommands);
            words.take(MAX_PREFIX_WORDS).map(str::to_owned).collect()
        }
        Some(_) | None => Vec::new(),
    }
}

/// Whether a shell passes the character on unchanged.
fn is_unquoted_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || " _-.+/:,@%".contains(c)
}

fn is_bare_name(word: &str) -> bool {
    word.len() <= 64
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.+".contains(c))
}

fn is_subcommand(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.len() <= 64
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shell(line: &str) -> Action {
        let line = line.to_owned();
        Action::new(Command::Shell { line })
    }

    fn assessed(category: &str) -> Assessment {
        let assessment = json!({
            "category": category, "risk": "low", "rule": "r", "reason": "", "profile": "none",
            "digest": "00".repeat(32), "policy": ""
        });
        serde_json::from_value(assessment).unwrap()
    }

    fn prefix(line: &str) -> String {
        suggested_prefix(&shell(line), Some(&assessed("write"))).join(" ")
    }

    #[test]
    fn a_prefix_is_the_command_and_its_subcommands() {
        for (line, expected) in [
            ("npm run build -- --watch", "npm run build"),
            ("git commit -m x", "git commit"),
            ("make", "make"),
            ("mkdir -p a/b", "mkdir"),
            ("touch notes.txt", "touch"),
            ("docker compose up web", "docker compose up"),
        ] {
            assert_eq!(prefix(line), expected);
        }
    }

    #[test]
    fn no_prefix_is_suggested_for_a_line_that_a_shell_would_change() {
        for line in [
            "npm i && rm x",
            "make\nrm x",
            "echo $HOME",
            "make 'a b'",
            "A=b make",
            "./run",
            "",
            "make\u{a0}x",
        ] {
            assert_eq!(prefix(line), "", "{line}");
        }
        let destructive = assessed("destructive");
        assert!(suggested_prefix(&shell("make"), Some(&destructive)).is_empty());
        assert!(suggested_prefix(&shell("make"), None).is_empty());
        let interpreter = Assessment {
            runs_given_code: true,
            ..assessed("write")
        };
        assert!(suggested_prefix(&shell("sh x.sh"), Some(&interpreter)).is_empty());
    }
}
