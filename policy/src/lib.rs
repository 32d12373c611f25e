//! How dangerous a command is, and why. Anything that is not certain is a write.

mod breaks;
mod canon;
mod checks;
mod data;
mod environment;
mod explain;
mod judge;
mod lex;
mod load;
mod opinion;
mod parse;
mod place;
mod reads;
mod secret;
mod table;
mod unwrap;
mod walk;
mod word;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use pvp_protocol::{
    Action, Assessment, Category, Command, ExecutionLimits, Mode, PartVerdict, Profile, QuorumRule,
    Risk,
};

pub use explain::{ExampleFailure, Explanation, RuleInfo, RuleKind};
pub use load::PolicyError;
pub use place::Place;
pub use table::Origin;

use judge::Judge;
use opinion::Opinion;
use table::Table;
use word::Word;

/// Longest command line that may be a read.
const MAX_LINE: usize = 8 * 1024;

/// The rule of a command whose parts only read, but which is not certain as a whole.
const DOUBT: &str = "default.doubt";

/// A set of rules that gives verdicts; the same action always gets the same one.
#[derive(Debug, Clone)]
pub struct Policy {
    table: Arc<Table>,
}

impl Policy {
    /// The rules that come with the program.
    pub fn built_in() -> Self {
        static BUILT_IN: OnceLock<Arc<Table>> = OnceLock::new();
        let table = BUILT_IN.get_or_init(|| {
            let table = built_in_table().expect("the built-in rules are checked by a test");
            Arc::new(table)
        });
        Self {
            table: Arc::clone(table),
        }
    }

    /// The built-in rules with a user's file on top; its examples are checked here.
    pub fn with_user_file(text: &str, file_name: &str) -> Result<Self, PolicyError> {
        let mut table = built_in_table()?;
        let source = load::Source {
            file: file_name,
            text,
        };
        load::add(&mut table, source, Origin::User)?;
        let policy = Self {
            table: Arc::new(table),
        };
        policy.check_user_examples(source)?;
        Ok(policy)
    }

    /// Compiles every pattern at once; without it, each is compiled when a command first needs it.
    pub fn prepare(&self) {
        self.table.compile_all();
    }

    /// Names the rule set; recorded with every verdict.
    pub fn hash(&self) -> &str {
        &self.table.hash
    }

    /// What runs of a category may use, where a user's file says so.
    pub fn limits(&self) -> &BTreeMap<Category, ExecutionLimits> {
        &self.table.limits
    }

    /// How a gate is decided that this rule opened, where a user's file says so.
    pub fn quorum_for(&self, rule: &str) -> Option<&QuorumRule> {
        self.table.quorums.get(rule)
    }

    /// The verdict on an action, with its reason.
    pub fn assess(&self, action: &Action, place: &Place) -> Assessment {
        self.explain(action, place).assessment
    }

    /// The verdict, and every rule that matched on the way to it.
    pub fn explain(&self, action: &Action, place: &Place) -> Explanation {
        let mut judge = Judge::new(&self.table, place);
        let shown = self.judge(action, place, &mut judge);
        let doubts = doubts(action, &shown, &judge);
        let decision = decide(&judge, &doubts);
        let profile = match decision.category {
            Category::Read => judge::profile(&judge.findings),
            Category::Write | Category::Destructive | Category::Blocked => Profile::None,
        };
        let mut notes: Vec<String> = judge.notes.iter().cloned().collect();
        // The first doubt is the reason; where a rule decided, doubts changed nothing.
        if decision.rule == DOUBT {
            let others = doubts.iter().skip(1);
            notes.extend(others.map(|doubt| format!("not a read: {doubt}")));
        }
        let assessment = Assessment {
            category: decision.category,
            risk: decision.risk,
            rule: decision.rule,
            reason: decision.reason,
            parts: parts(&judge, &shown),
            notes,
            profile,
            digest: action.digest(),
            policy: self.hash().to_owned(),
        };
        Explanation {
            assessment,
            steps: judge.steps,
            matched: judge.matched.into_iter().collect(),
        }
    }

    /// Fills the judge, and answers with the text that spans refer to.
    fn judge(&self, action: &Action, place: &Place, judge: &mut Judge<'_>) -> String {
        let base = place.start(action.cwd.as_deref());
        match &action.command {
            Command::Shell { line } | Command::LoginShell { line } => {
                judge.line(line, &base);
                line.clone()
            }
            Command::Argv { command, args } => {
                let words = std::iter::once(command).chain(args);
                let words = words.map(|word| Word::literal(word)).collect();
                let shown = action.command.summary();
                judge.words(words, &base, &shown);
                shown
            }
            Command::Tool { .. } => {
                let reason = "tools other than the shell are never run without asking";
                let opinion = Opinion::write(Risk::Medium, "tool.not-shell", reason);
                judge.findings.push(judge::Finding {
                    span: 0..0,
                    opinion,
                });
                String::new()
            }
        }
    }
}

fn built_in_table() -> Result<Table, PolicyError> {
    let mut table = Table::default();
    for (file, text) in load::BUILT_IN {
        load::add(&mut table, load::Source { file, text }, Origin::BuiltIn)?;
    }
    Ok(table)
}

/// The most severe opinion; never a read where there is a doubt.
fn decide(judge: &Judge<'_>, doubts: &[String]) -> Opinion {
    let opinions = judge.findings.iter().map(|finding| finding.opinion.clone());
    let worst = opinions.reduce(Opinion::max);
    let doubt = |reason: &str| Opinion::write(Risk::Medium, DOUBT, reason);
    match (worst, doubts.first()) {
        (Some(worst), Some(reason)) if worst.category == Category::Read => doubt(reason),
        (Some(worst), Some(_) | None) => worst,
        (None, Some(reason)) => doubt(reason),
        (None, None) => doubt("there is no command"),
    }
}

/// Everything that keeps an action from being a read, whatever its command is.
fn doubts(action: &Action, shown: &str, judge: &Judge<'_>) -> Vec<String> {
    let mut doubts = judge.doubts.clone();
    if shown.len() > MAX_LINE {
        doubts.push("longer than can be overseen".to_owned());
    }
    if shown.chars().any(is_odd) {
        doubts.push("holds characters that do not show".to_owned());
    }
    match action.mode {
        Mode::Normal | Mode::Slow => {}
        Mode::Background => doubts.push("goes on in the background".to_owned()),
        Mode::Pty => doubts.push("takes keys from a person".to_owned()),
    }
    for (name, value) in &action.env {
        if !environment::is_harmless(name, value) {
            doubts.push(environment::variable_opinion(name).reason);
        }
    }
    if action
        .cwd
        .as_deref()
        .is_some_and(|cwd| cwd.chars().any(is_odd))
    {
        doubts.push("its directory holds characters that do not show".to_owned());
    }
    if matches!(action.command, Command::LoginShell { .. }) && !shown.chars().all(is_same_anywhere)
    {
        doubts.push("login shells differ in what these characters mean".to_owned());
    }
    doubts
}

/// Characters that hide something from the one who looks.
fn is_odd(c: char) -> bool {
    let invisible = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffd}' | '\u{e0000}'..='\u{e007f}'
    );
    let blank = c.is_whitespace() && !matches!(c, ' ' | '\t' | '\n');
    blank || invisible || (c.is_control() && !matches!(c, '\t' | '\n'))
}

/// Characters that every login shell, fish and zsh among them, takes in the same way.
fn is_same_anywhere(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:@%+, \"'|&;=".contains(c)
}

/// The verdicts of the parts, where there is more than one. A part that was read in several ways is
/// told once, at its worst.
fn parts(judge: &Judge<'_>, shown: &str) -> Vec<PartVerdict> {
    let mut findings: Vec<_> = judge.findings.iter().collect();
    findings.sort_by_key(|finding| {
        let opinion = &finding.opinion;
        let severity = Reverse((opinion.category, opinion.risk));
        (finding.span.start, finding.span.end, severity)
    });
    findings.dedup_by(|later, earlier| later.span == earlier.span);
    if findings.len() < 2 {
        return Vec::new();
    }
    let verdict = |finding: &judge::Finding| PartVerdict {
        start: finding.span.start,
        end: finding.span.end,
        text: shown
            .get(finding.span.clone())
            .unwrap_or_default()
            .to_owned(),
        category: finding.opinion.category,
        rule: finding.opinion.rule.clone(),
        reason: finding.opinion.reason.clone(),
    };
    findings.into_iter().map(verdict).collect()
}

/// Characters that no shell acts on, not even to take them away.
fn is_inert(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:=@%+, ".contains(c)
}

/// The words of an action that is one simple command without anything a shell would expand.
pub fn words(action: &Action) -> Option<Vec<String>> {
    match &action.command {
        Command::Shell { line } if line.len() <= MAX_LINE && line.chars().all(is_inert) => {
            let scans = lex::single(line)?;
            scans.iter().map(|scan| scan.word.as_literal()).collect()
        }
        Command::Argv { command, args } => {
            Some(std::iter::once(command).chain(args).cloned().collect())
        }
        // A login shell may have aliases and functions, so its words mean what it says they mean.
        Command::Shell { .. } | Command::LoginShell { .. } | Command::Tool { .. } => None,
    }
}

#[cfg(test)]
mod tests;
