//! Decides which actions may be tried in the read sandbox before anybody is asked.
//!
//! Only what nothing is known about is worth a trial: a rule that says what a command does would only
//! be confirmed by it. The sandbox contains what is tried, so this is no judgement of its danger.

use pvp_protocol::{Action, Category, Command, Risk, RunMode};

use crate::paths::Workspace;
use crate::{MAX_READ_LINE_BYTES, Policy, is_invisible};

/// Rules that say that nothing is known, or that code runs which the policy does not judge.
const UNKNOWN_RULES: &[&str] = &[
    "default.arguments",
    "default.assignment",
    "default.doubt",
    "default.unseen-script",
    "default.wrapped",
    "default.write",
    "text.interpreter-file",
    "text.perl",
];

/// The note on a doubt, which says that nothing is known for certain.
const DOUBT_NOTE: &str = "not a read: ";

impl Policy {
    /// Whether an action may be tried in the sandbox for reads: it is a write only because nothing
    /// says that it is a read.
    pub fn may_try(&self, action: &Action, workspace: &Workspace) -> bool {
        let shown = match &action.command {
            Command::Shell { .. } | Command::Argv { .. } => action.command.summary(),
            Command::LoginShell { .. } | Command::Tool { .. } => return false,
        };
        let plain = shown.len() <= MAX_READ_LINE_BYTES && !shown.chars().any(is_invisible);
        if !plain
            || action.mode != RunMode::Normal
            || !action.env.is_empty()
            || !action.secrets.is_empty()
        {
            return false;
        }
        let explanation = self.explain(action, workspace);
        let assessment = &explanation.assessment;
        let is_read_rule = |rule: &String| rule.starts_with("read.");
        let may_match =
            |rule: &String| UNKNOWN_RULES.contains(&rule.as_str()) || is_read_rule(rule);
        assessment.category == Category::Write
            && assessment.risk <= Risk::Medium
            && UNKNOWN_RULES.contains(&assessment.rule.as_str())
            && assessment.parts.iter().all(|part| may_match(&part.rule))
            && explanation.matched_rules.iter().all(may_match)
            && assessment
                .notes
                .iter()
                .all(|note| note.starts_with(DOUBT_NOTE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_try(line: &str) -> bool {
        let line = line.to_owned();
        let action = Action::new(Command::Shell { line });
        let workspace = Workspace {
            directory: Some("/work/project".to_owned()),
            ..Workspace::default()
        };
        Policy::built_in().may_try(&action, &workspace)
    }

    #[test]
    fn what_nothing_is_known_about_may_be_tried() {
        for line in [
            "python3 -c 'print(1)'",
            "python3 <<'E'\nprint(1)\nE",
            "perl -e 'print 1'",
            "node -e 'console.log(1)'",
            "ls | python3 -c 'import sys; print(len(sys.stdin.read()))'",
            "python3 -c 'print(1)' 2>/dev/null",
            "unheard-of --help",
            "unheard-of --version | head -1",
            "timeout 5 python3 -c 'print(1)'",
            "./report.sh",
        ] {
            assert!(may_try(line), "{line}");
        }
    }

    #[test]
    fn what_a_rule_knows_to_do_something_is_not_tried() {
        for line in [
            "ls",
            "touch z; echo done",
            "python3 -c 'print(1)'; touch z",
            "timeout 5 touch z",
            "bash -c 'touch z; unheard-of'",
            "unheard-of > out",
            "curl http://example.com",
            "unheard-of | curl -d @- http://example.com",
            "rm -rf build; unheard-of",
            "python3 -c 'import os; os.system(\"rm -rf /\")'",
            "sudo unheard-of",
            "cat .env | unheard-of",
            "git commit -m x",
            "npm install",
            "make",
            "X=1 unheard-of",
            "unheard-of\u{200b}",
        ] {
            assert!(!may_try(line), "{line}");
        }
    }

    #[test]
    fn only_plain_runs_without_additions_are_tried() {
        let workspace = Workspace::default();
        let policy = Policy::built_in();
        let command = Command::Shell {
            line: "unheard-of".to_owned(),
        };
        let action = Action::new(command);
        assert!(policy.may_try(&action, &workspace));
        for mode in [RunMode::Slow, RunMode::Background, RunMode::Pty] {
            let changed = Action {
                mode,
                ..action.clone()
            };
            assert!(!policy.may_try(&changed, &workspace), "{mode:?}");
        }
        let mut with_variable = action.clone();
        with_variable.env.insert("A".to_owned(), "1".to_owned());
        assert!(!policy.may_try(&with_variable, &workspace));
        let mut with_secret = action.clone();
        with_secret.secrets.push("TOKEN".to_owned());
        assert!(!policy.may_try(&with_secret, &workspace));
        let own = Action::new(Command::LoginShell {
            line: "unheard-of".to_owned(),
        });
        assert!(!policy.may_try(&own, &workspace));
    }
}
