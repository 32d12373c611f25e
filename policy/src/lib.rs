//! How dangerous a command is, and why. Anything that is not certain is a write.

mod reads;
mod table;

use pvp_protocol::{Action, Assessment, Category, Command, Mode, Profile, Risk};

/// Longest command line that is looked into; anything longer is never a read.
const MAX_LINE: usize = 8 * 1024;

/// Where a command would run, as far as its executor has said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The executor's working directory; relative paths are below it.
    pub workspace: Option<String>,
}

/// A set of rules that gives verdicts; the same action always gets the same one.
#[derive(Debug)]
pub struct Policy {
    table: table::Table,
}

/// One opinion, before it is bound to an action.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Opinion {
    category: Category,
    risk: Risk,
    rule: &'static str,
    reason: String,
}

impl Opinion {
    fn new(category: Category, risk: Risk, rule: &'static str, reason: &str) -> Self {
        Self {
            category,
            risk,
            rule,
            reason: reason.to_owned(),
        }
    }
}

impl Policy {
    /// The rules that come with the program.
    pub fn built_in() -> Self {
        Self {
            table: table::Table::built_in(),
        }
    }

    /// Names the rule set; recorded with every verdict.
    pub fn hash(&self) -> &str {
        self.table.hash()
    }

    /// The verdict on an action, with its reason.
    pub fn assess(&self, action: &Action, _place: &Place) -> Assessment {
        let opinion = self.opinion(action);
        Assessment {
            category: opinion.category,
            risk: opinion.risk,
            rule: opinion.rule.to_owned(),
            reason: opinion.reason,
            parts: Vec::new(),
            notes: Vec::new(),
            profile: if opinion.category == Category::Read {
                Profile::Read
            } else {
                Profile::None
            },
            digest: action.digest(),
            policy: self.hash().to_owned(),
        }
    }

    fn opinion(&self, action: &Action) -> Opinion {
        let Some(line) = raw_line(&action.command) else {
            return Opinion::new(
                Category::Write,
                Risk::Medium,
                "tool.not-shell",
                "tools other than the shell are never run without asking",
            );
        };
        let milder = if may_be_read(action) {
            reads::read(action)
        } else {
            None
        };
        let base = milder.unwrap_or_else(|| {
            Opinion::new(
                Category::Write,
                Risk::Medium,
                "default.write",
                "nothing is certain about this command, so it may change things",
            )
        });
        let raised = self.table.worst(&line);
        match raised {
            Some(raised) if raised.category > base.category => raised,
            Some(_) | None => base,
        }
    }
}

/// Additions to the environment, other modes and odd texts are never reads.
fn may_be_read(action: &Action) -> bool {
    action.env.is_empty() && action.mode == Mode::Normal
}

/// What the raw patterns look at.
fn raw_line(command: &Command) -> Option<String> {
    match command {
        Command::Shell { line } | Command::LoginShell { line } => Some(line.clone()),
        Command::Argv { command, args } => {
            let words: Vec<&str> = std::iter::once(command)
                .chain(args)
                .map(String::as_str)
                .collect();
            Some(words.join(" "))
        }
        Command::Tool { .. } => None,
    }
}

/// The words of an action that is one simple command without anything a shell would expand.
pub fn words(action: &Action) -> Option<Vec<String>> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+, ".contains(c);
    match &action.command {
        Command::Shell { line } if line.len() <= MAX_LINE && line.chars().all(plain) => {
            let words: Vec<_> = line.split_ascii_whitespace().map(str::to_owned).collect();
            // `NAME=value command` is an assignment, not a command word.
            words.first().filter(|first| !first.contains('='))?;
            Some(words)
        }
        Command::Argv { command, args } => {
            Some(std::iter::once(command).chain(args).cloned().collect())
        }
        // A login shell may have aliases and functions, so its words mean what it says they mean.
        Command::Shell { .. } | Command::LoginShell { .. } | Command::Tool { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(line: &str) -> Category {
        let action = Action::plain(Command::Shell {
            line: line.to_owned(),
        });
        Policy::built_in()
            .assess(&action, &Place::default())
            .category
    }

    #[test]
    fn plain_reads_are_reads() {
        for line in [
            "ls",
            "ls -la src",
            "pwd",
            "cat README.md",
            "head -n 5 a.txt",
            "git status",
            "wc -l a b",
        ] {
            assert_eq!(verdict(line), Category::Read, "{line}");
        }
    }

    #[test]
    fn anything_uncertain_is_a_write() {
        for line in [
            "",
            " ",
            "ls; rm x",
            "ls && ls",
            "ls | cat",
            "echo $(id)",
            "cat <a",
            "ls > b",
            "./ls",
            "/bin/ls",
            "$X",
            "LS=1 ls",
            "ls --color-of-unknown",
            "cat a\nrm b",
            "make",
            "npm install",
            "git commit -m x",
            "git status --unknown-flag",
            "head -c5x a",
            "env ls",
            "sudo ls",
            "ls\u{a0}-l",
            "cat ~/x",
            "ls *",
        ] {
            assert_eq!(verdict(line), Category::Write, "{line:?}");
        }
        assert_eq!(
            verdict(&format!("ls {}", "a".repeat(9000))),
            Category::Write
        );
    }

    #[test]
    fn destruction_and_catastrophe_are_seen_anywhere_in_the_line() {
        for line in [
            "rm -rf build",
            "ls; rm -fr x",
            "killall node",
            "git reset --hard",
            "git push --force",
        ] {
            assert_eq!(verdict(line), Category::Destructive, "{line}");
        }
        for line in [
            "rm -rf /",
            "sudo rm -rf /*",
            "rm -rf ~",
            "mkfs.ext4 /dev/sda1",
            "dd if=a of=/dev/sda",
            "shutdown now",
            ":(){ :|:& };:",
            "echo x > /dev/sda",
        ] {
            assert_eq!(verdict(line), Category::Blocked, "{line}");
        }
    }

    #[test]
    fn environment_and_modes_are_never_reads() {
        let ls = Action::plain(Command::Shell {
            line: "ls".to_owned(),
        });
        let policy = Policy::built_in();
        let category = |action: &Action| policy.assess(action, &Place::default()).category;
        assert_eq!(category(&ls), Category::Read);
        let env = [("LD_PRELOAD".to_owned(), "x".to_owned())].into();
        assert_eq!(category(&Action { env, ..ls.clone() }), Category::Write);
        assert_eq!(
            category(&Action {
                mode: Mode::Background,
                ..ls.clone()
            }),
            Category::Write
        );
        let login = Command::LoginShell {
            line: "ls".to_owned(),
        };
        assert_eq!(
            category(&Action {
                command: login,
                ..ls
            }),
            Category::Write
        );
    }

    #[test]
    fn argv_is_judged_word_by_word_without_a_shell() {
        let argv = |command: &str, args: &[&str]| {
            Action::plain(Command::Argv {
                command: command.to_owned(),
                args: args.iter().map(|&arg| arg.to_owned()).collect(),
            })
        };
        let policy = Policy::built_in();
        let category = |action: &Action| policy.assess(action, &Place::default()).category;
        assert_eq!(category(&argv("ls", &["a b", "; x"])), Category::Read);
        assert_eq!(category(&argv("rm", &["-rf", "x"])), Category::Destructive);
        assert_eq!(category(&argv("ls -la", &[])), Category::Write);
    }
}
