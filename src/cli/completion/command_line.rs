//! Finds out which kind of value the last word of a command line is.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command};
use pvp_protocol::SessionId;

/// The values that only the server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Gate,
    Session,
    Agent,
    Participant,
    Rule,
}

/// What is asked for, and of whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompletionRequest {
    pub(super) kind: ValueKind,
    /// The beginning of the word that is not the value, such as `--session=`.
    pub(super) kept: String,
    /// The value as far as it is typed.
    pub(super) typed: String,
    /// The session that the line names.
    pub(super) session: Option<SessionId>,
    /// The file with a link that the line names.
    pub(super) link_file: Option<PathBuf>,
}

impl CompletionRequest {
    /// The request of a line: the words after the program's name and the word that is being typed.
    pub(super) fn parse(program: &Command, words: &[String], last: &str) -> Option<Self> {
        let mut line = ParsedLine::new(program);
        for word in words {
            line.add(word);
        }
        let (argument, kept, typed) = line.wanted(last)?;
        Some(Self {
            kind: value_kind(&line.path, argument)?,
            kept,
            typed,
            session: line.session,
            link_file: line.link_file,
        })
    }
}

/// The kind of an argument's value, by the names of its command and its own.
fn value_kind(path: &[&str], argument: &Arg) -> Option<ValueKind> {
    match (path, argument.get_id().as_str()) {
        (_, "session") => Some(ValueKind::Session),
        (["sessions" | "session", ..], "id") => Some(ValueKind::Session),
        (["cancel"], _) | (_, "gate" | "handle") => Some(ValueKind::Gate),
        (_, "executor") | (["send" | "interrupt"], "to") => Some(ValueKind::Agent),
        (["connect" | "tui" | "agent"], "participant") => Some(ValueKind::Participant),
        (["rules", ..], "rule") => Some(ValueKind::Rule),
        _ => None,
    }
}

/// A command line, read as clap reads it.
struct ParsedLine<'a> {
    /// The subcommand that the words so far name.
    command: &'a Command,
    /// The names of the subcommands.
    path: Vec<&'a str>,
    /// How many positional arguments were seen.
    positionals: usize,
    /// The option whose value comes next.
    pending: Option<&'a Arg>,
    /// Whether `--` was seen.
    options_ended: bool,
    /// The session that the line names.
    session: Option<SessionId>,
    /// The file with the link that the line names.
    link_file: Option<PathBuf>,
}

impl<'a> ParsedLine<'a> {
    fn new(program: &'a Command) -> Self {
        Self {
            command: program,
            path: Vec::new(),
            positionals: 0,
            pending: None,
            options_ended: false,
            session: None,
            link_file: None,
        }
    }

    fn add(&mut self, word: &str) {
        if let Some(option) = self.pending.take() {
            self.note_value(option, word);
        } else if self.options_ended {
            self.positionals += 1;
        } else if word == "--" {
            self.options_ended = true;
        } else if let Some((name, value)) = option_with_value(word) {
            if let Some(option) = self.long_option(name) {
                self.note_value(option, value);
            }
        } else if let Some(name) = word.strip_prefix("--") {
            self.pending = self
                .long_option(name)
                .filter(|option| takes_next_word(option));
        } else if word.starts_with('-') && word.len() > 1 {
            self.pending = self
                .short_option(word)
                .filter(|option| takes_next_word(option));
        } else if self.positionals == 0
            && let Some(subcommand) = self.command.find_subcommand(word)
        {
            self.command = subcommand;
            self.path.push(subcommand.get_name());
        } else {
            self.positionals += 1;
        }
    }

    /// The argument that the last word belongs to, what of the word is not its value, and its value.
    fn wanted(&self, last: &str) -> Option<(&'a Arg, String, String)> {
        if let Some(option) = self.pending {
            return Some((option, String::new(), last.to_owned()));
        }
        if !self.options_ended && last.starts_with('-') {
            let (name, value) = option_with_value(last)?;
            let kept = last.len() - value.len();
            return Some((
                self.long_option(name)?,
                last[..kept].to_owned(),
                value.to_owned(),
            ));
        }
        let positional = self.command.get_positionals().nth(self.positionals)?;
        Some((positional, String::new(), last.to_owned()))
    }

    fn note_value(&mut self, option: &Arg, value: &str) {
        match option.get_id().as_str() {
            "session" => self.session = SessionId::parse(value).ok(),
            "link_file" => self.link_file = Some(PathBuf::from(value)),
            _ => {}
        }
    }

    fn long_option(&self, name: &str) -> Option<&'a Arg> {
        let mut options = self.command.get_arguments();
        options.find(|option| option.get_long() == Some(name))
    }

    /// The option of the last letter of a word such as `-fn`.
    fn short_option(&self, word: &str) -> Option<&'a Arg> {
        let letter = word.chars().last();
        let mut options = self.command.get_arguments();
        options.find(|option| option.get_short() == letter)
    }
}

/// The name and the value of a word such as `--session=main`.
fn option_with_value(word: &str) -> Option<(&str, &str)> {
    word.strip_prefix("--")?.split_once('=')
}

fn takes_next_word(option: &Arg) -> bool {
    let takes_values = matches!(option.get_action(), ArgAction::Set | ArgAction::Append);
    takes_values && !option.is_require_equals_set()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Option<CompletionRequest> {
        let mut program = crate::CliArguments::command();
        program.build();
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let last = words.pop().unwrap();
        CompletionRequest::parse(&program, &words, &last)
    }

    fn kind(line: &str) -> Option<ValueKind> {
        parse(line).map(|request| request.kind)
    }

    #[test]
    fn the_kind_of_a_value_is_known_by_its_place() {
        for (line, expected) in [
            ("approve ", Some(ValueKind::Gate)),
            ("approve --comment fine ab", Some(ValueKind::Gate)),
            ("reject ab", Some(ValueKind::Gate)),
            ("reject ab why", None),
            ("amend ", Some(ValueKind::Gate)),
            ("show --files ", Some(ValueKind::Gate)),
            ("approve -- ", Some(ValueKind::Gate)),
            ("approve --comment ", None),
            ("approve --session ", Some(ValueKind::Session)),
            ("tail --session=bl", Some(ValueKind::Session)),
            ("sessions archive ", Some(ValueKind::Session)),
            ("sessions delete --archived f ", Some(ValueKind::Session)),
            ("exec --executor ", Some(ValueKind::Agent)),
            ("send --to ", Some(ValueKind::Agent)),
            ("rules revoke ", Some(ValueKind::Rule)),
            ("rules allow ", None),
            ("approve -", None),
            ("ap", None),
            ("", None),
            ("nonsense ", None),
            ("gates --watch ", None),
        ] {
            assert_eq!(kind(line), expected, "{line}");
        }
    }

    #[test]
    fn the_session_and_the_link_of_the_line_are_used() {
        let request = parse("rules --session owl --link-file=f revoke ab").unwrap();
        assert_eq!(request.session, SessionId::parse("owl").ok());
        assert_eq!(request.link_file, Some(PathBuf::from("f")));
        assert_eq!((request.kept.as_str(), request.typed.as_str()), ("", "ab"));
        let request = parse("tail --session=bl").unwrap();
        assert_eq!(
            (request.kept.as_str(), request.typed.as_str()),
            ("--session=", "bl")
        );
    }
}
