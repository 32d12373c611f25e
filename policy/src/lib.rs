//! Assesses how dangerous a command is, and why. A command that is not certain to be a read is a
//! write.

#![deny(clippy::string_slice)]

mod assess;
mod checks;
mod deleted_files;
mod environment;
mod explain;
mod guarded_paths;
mod held_files;
mod lex;
mod line_breaks;
mod load;
mod named_files;
mod named_words;
mod normalize;
mod parse;
mod paths;
mod public_variables;
mod quorum;
mod read_rules;
mod rule_file;
mod rule_table;
mod secret_files;
mod source_text;
mod syntax;
mod tool_rules;
mod tools;
mod trial;
mod verdict;
mod web_address;
mod word;
mod wrappers;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use pvp_protocol::{
    Action, Assessment, Category, Command, ExecutionLimits, PartAssessment, ParticipantId,
    QuorumRule, Risk, RunMode, SandboxProfile,
};

pub use environment::{changes_meaning, is_known_locale};
pub use explain::{ExampleFailure, ExpectedWord, Explanation, RuleInfo, RuleKind};
pub use load::PolicyError;
pub use named_files::{FilePresence, NamedFile, NamedFiles};
pub use named_words::{NamedWord, brace_expansions};
pub use paths::{ReadRootProblem, Workspace, check_read_root};
pub use quorum::RuleQuorums;
pub use rule_table::RuleOrigin;
pub use secret_files::{EntryKind, is_secret_entry, public_file_patterns, secret_file_patterns};
pub use tools::{FileUse, file_use, is_secret_path, patched_paths, searches_content};

use assess::{Actor, Assessor};
use paths::ResolvedPath;
use rule_table::RuleTable;
use verdict::CommandVerdict;
use word::ShellWord;

/// The longest command line that may be a read.
const MAX_READ_LINE_BYTES: usize = 8 * 1024;

/// The most read roots that are offered for one command.
const MAX_OFFERED_READ_ROOTS: usize = 4;

/// The rule of a command whose parts only read, but that has a doubt as a whole.
const DOUBT_RULE: &str = "default.doubt";

/// A set of rules that assesses actions. The same action always gets the same assessment.
#[derive(Debug, Clone)]
pub struct Policy {
    table: Arc<RuleTable>,
}

impl Policy {
    /// The rules that are built into the program.
    pub fn built_in() -> Self {
        static BUILT_IN: OnceLock<Arc<RuleTable>> = OnceLock::new();
        let table = BUILT_IN.get_or_init(|| {
            let table = built_in_table().expect("the built-in rules are checked by a test");
            Arc::new(table)
        });
        Self {
            table: Arc::clone(table),
        }
    }

    /// The built-in rules and a user's rule file, whose examples are checked here.
    pub fn with_user_file(text: &str, file_name: &str) -> Result<Self, PolicyError> {
        let mut table = built_in_table()?;
        let source = load::RuleSource {
            file: file_name,
            text,
        };
        load::add_file(&mut table, source, RuleOrigin::User)?;
        let policy = Self {
            table: Arc::new(table),
        };
        policy.check_user_examples(source)?;
        Ok(policy)
    }

    /// Compiles every pattern now. Otherwise each is compiled when a command first needs it.
    pub fn compile_patterns(&self) {
        self.table.compile_all();
    }

    /// The hash of the rules, recorded in every assessment.
    pub fn hash(&self) -> &str {
        &self.table.hash
    }

    /// The limits of runs by category, where a user's file sets them.
    pub fn limits(&self) -> &BTreeMap<Category, ExecutionLimits> {
        &self.table.limits
    }

    /// The quorum of a gate for an action. It satisfies every rule that matches any part of the
    /// action and sets one. `usual` is the session's own, and `electorate` are those who may approve
    /// when the gate opens.
    pub fn quorum(
        &self,
        action: &Action,
        workspace: &Workspace,
        usual: QuorumRule,
        electorate: &[ParticipantId],
    ) -> QuorumRule {
        if self.table.quorums.is_empty() {
            return usual;
        }
        let quorums = self.explain(action, workspace).quorums;
        quorums.combine(usual, electorate)
    }

    /// The program among these words, if any, that runs code which its arguments or its input give:
    /// an interpreter, a wrapper, or a command such as `git -c`.
    pub fn runs_given_code<'a>(&self, words: &'a [String]) -> Option<&'a str> {
        wrappers::runs_given_code(&self.table, words).then(|| words[0].as_str())
    }

    /// Assesses an action.
    pub fn assess(&self, action: &Action, workspace: &Workspace) -> Assessment {
        self.explain(action, workspace).assessment
    }

    /// The directories that would make an action a read if they were read roots too; none if it is
    /// one already, or if more than its paths keeps it from being one.
    pub fn needed_read_roots(&self, action: &Action, workspace: &Workspace) -> Vec<String> {
        let mut workspace = workspace.clone();
        let mut needed = Vec::new();
        while needed.len() <= MAX_OFFERED_READ_ROOTS {
            let (explanation, outside_paths) = self.explain_guarded(action, &workspace);
            if explanation.assessment.category == Category::Read {
                return needed;
            }
            let Some(root) = outside_paths.first().and_then(paths::read_root_for) else {
                break;
            };
            workspace.read_roots.push(root.clone());
            needed.push(root);
        }
        Vec::new()
    }

    /// Assesses an action and lists every rule that matched. A fault in the assessment means that
    /// people are asked.
    pub fn explain(&self, action: &Action, workspace: &Workspace) -> Explanation {
        self.explain_guarded(action, workspace).0
    }

    /// An explanation, and the paths outside the workspace that would be read.
    fn explain_guarded(
        &self,
        action: &Action,
        workspace: &Workspace,
    ) -> (Explanation, Vec<ResolvedPath>) {
        let assess = AssertUnwindSafe(|| self.explain_with_outside_paths(action, workspace));
        catch_unwind(assess).unwrap_or_else(|_| (self.explain_fault(action), Vec::new()))
    }

    /// What is said of an action whose assessment failed.
    fn explain_fault(&self, action: &Action) -> Explanation {
        let assessment = Assessment {
            category: Category::Write,
            risk: Risk::High,
            rule: "default.fault".to_owned(),
            reason: "the assessment failed, which is a fault in PVP; look at the command closely"
                .to_owned(),
            sensitive_read: false,
            parts: Vec::new(),
            notes: Vec::new(),
            needed_read_roots: Vec::new(),
            runs_given_code: false,
            profile: SandboxProfile::None,
            digest: action.digest(),
            policy: self.hash().to_owned(),
        };
        Explanation {
            assessment,
            steps: 0,
            matched_rules: Vec::new(),
            quorums: RuleQuorums::of_all_rules(&self.table),
            read_commands: Vec::new(),
            named_words: Vec::new(),
        }
    }

    fn explain_with_outside_paths(
        &self,
        action: &Action,
        workspace: &Workspace,
    ) -> (Explanation, Vec<ResolvedPath>) {
        #[cfg(test)]
        tests::panic_if_asked(action);
        let actor = Actor::of(&action.command);
        let mut assessor = Assessor::new(&self.table, workspace, actor);
        let shown = self.collect_verdicts(action, workspace, &mut assessor);
        let doubts = doubts(action, &shown, &assessor);
        let decision = decide(&assessor, &doubts);
        let quorums = RuleQuorums::new(&self.table, &assessor, &decision);
        let profile = match decision.category {
            Category::Read => match &action.command {
                Command::Tool { .. } => decision.profile,
                Command::Shell { .. } | Command::Argv { .. } | Command::LoginShell { .. } => {
                    assess::required_profile(&assessor.span_verdicts)
                }
            },
            Category::Write | Category::Destructive | Category::Blocked => SandboxProfile::None,
        };
        let mut notes: Vec<String> = assessor.notes.iter().cloned().collect();
        // The first doubt is already the reason. If a rule decided, the doubts had no effect.
        if decision.rule == DOUBT_RULE {
            let others = doubts.iter().skip(1);
            notes.extend(others.map(|doubt| format!("not a read: {doubt}")));
        }
        let assessment = Assessment {
            category: decision.category,
            risk: decision.risk,
            rule: decision.rule,
            reason: decision.reason,
            sensitive_read: decision.sensitive_read && doubts.is_empty(),
            parts: part_assessments(&assessor, &shown),
            notes,
            needed_read_roots: Vec::new(),
            runs_given_code: false,
            profile,
            digest: action.digest(),
            policy: self.hash().to_owned(),
        };
        let explanation = Explanation {
            assessment,
            steps: assessor.steps,
            matched_rules: assessor.matched_rules.into_iter().collect(),
            quorums,
            read_commands: assessor.read_commands,
            named_words: assessor.named_words.words,
        };
        (explanation, assessor.outside_paths)
    }

    /// The files in the workspace that an action runs: programs by their path, scripts of
    /// interpreters, and what `make` and package managers take their commands from. Only what the
    /// words say is found; whether the files exist is for the caller to see.
    pub fn named_files(&self, action: &Action, workspace: &Workspace) -> NamedFiles {
        let find = AssertUnwindSafe(|| named_files::find(&self.table, action, workspace));
        catch_unwind(find).unwrap_or(NamedFiles {
            files: Vec::new(),
            incomplete: true,
        })
    }

    /// The files in the workspace that an action deletes by name, as paths from there.
    pub fn deleted_files(&self, action: &Action, workspace: &Workspace) -> Vec<String> {
        let find = AssertUnwindSafe(|| deleted_files::find(action, workspace));
        catch_unwind(find).unwrap_or_default()
    }

    /// Collects verdicts in the assessor and returns the text that their spans refer to.
    fn collect_verdicts(
        &self,
        action: &Action,
        workspace: &Workspace,
        assessor: &mut Assessor<'_>,
    ) -> String {
        let directory = workspace.resolve_cwd(action.cwd.as_deref());
        match &action.command {
            Command::Shell { line } | Command::LoginShell { line } => {
                assessor.assess_line(line, &directory);
                line.clone()
            }
            Command::Argv { command, args } => {
                let words = std::iter::once(command).chain(args);
                let words = words.map(|word| ShellWord::literal(word)).collect();
                let shown = action.command.summary();
                assessor.assess_argv(words, &directory, &shown);
                shown
            }
            Command::Tool { .. } => tools::assess(&self.table, action, workspace, assessor),
        }
    }
}

fn built_in_table() -> Result<RuleTable, PolicyError> {
    let mut table = RuleTable::default();
    for (file, text) in load::BUILT_IN {
        load::add_file(
            &mut table,
            load::RuleSource { file, text },
            RuleOrigin::BuiltIn,
        )?;
    }
    Ok(table)
}

/// The most severe verdict, which is never a read if there is a doubt.
fn decide(assessor: &Assessor<'_>, doubts: &[String]) -> CommandVerdict {
    let verdicts = assessor
        .span_verdicts
        .iter()
        .map(|span_verdict| span_verdict.verdict.clone());
    let worst = verdicts.reduce(CommandVerdict::max);
    let doubt = |reason: &str| CommandVerdict::write(Risk::Medium, DOUBT_RULE, reason);
    match (worst, doubts.first()) {
        (Some(worst), Some(reason)) if worst.category == Category::Read => doubt(reason),
        (Some(worst), Some(_) | None) => worst,
        (None, Some(reason)) => doubt(reason),
        (None, None) => doubt("there is no command"),
    }
}

/// Everything that prevents an action from being a read, whatever its command is.
fn doubts(action: &Action, shown: &str, assessor: &Assessor<'_>) -> Vec<String> {
    let mut doubts = assessor.doubts.clone();
    if shown.len() > MAX_READ_LINE_BYTES {
        doubts.push("too long to check".to_owned());
    }
    if assess::needs_network_in_part(&assessor.span_verdicts) {
        let reason = "one part needs the network and another does not; propose them one by one";
        doubts.push(reason.to_owned());
    }
    if shown.chars().any(is_invisible) {
        doubts.push("contains invisible characters".to_owned());
    }
    match action.mode {
        RunMode::Normal | RunMode::Slow => {}
        RunMode::Background => doubts.push("keeps running in the background".to_owned()),
        RunMode::Pty => doubts.push("lets a person type into it".to_owned()),
    }
    for (name, value) in &action.env {
        if !environment::is_harmless(name, value) {
            doubts.push(environment::variable_verdict(name).reason);
        }
    }
    if !action.secrets.is_empty() {
        doubts.push(format!("receives {}", secrets_text(&action.secrets)));
    }
    if action
        .cwd
        .as_deref()
        .is_some_and(|cwd| cwd.chars().any(is_invisible))
    {
        doubts.push("its directory contains invisible characters".to_owned());
    }
    if matches!(action.command, Command::LoginShell { .. })
        && !shown.chars().all(is_same_in_every_shell)
    {
        doubts.push("login shells differ in what these characters mean".to_owned());
    }
    doubts
}

/// The secrets that a command receives, by name.
fn secrets_text(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [one] => format!("the secret {one}"),
        _ => format!("the secrets {}", quoted.join(", ")),
    }
}

/// Characters that hide something from the person who reviews the command.
fn is_invisible(c: char) -> bool {
    let invisible = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffd}' | '\u{e0000}'..='\u{e007f}'
    );
    let blank = c.is_whitespace() && !matches!(c, ' ' | '\t' | '\n');
    blank || invisible || (c.is_control() && !matches!(c, '\t' | '\n'))
}

/// Characters that mean the same in every login shell, including fish and zsh.
fn is_same_in_every_shell(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:@%+, \"'|&;=".contains(c)
}

/// The assessments of the parts, if there are several. A part that was interpreted in several ways
/// is listed once, with its most severe verdict.
fn part_assessments(assessor: &Assessor<'_>, shown: &str) -> Vec<PartAssessment> {
    if assessor.span_verdicts.len() < 2 {
        return Vec::new();
    }
    let mut span_verdicts = assessor.span_verdicts.clone();
    span_verdicts.sort_by_key(|span_verdict| {
        let verdict = &span_verdict.verdict;
        let severity = Reverse((verdict.category, verdict.risk));
        (span_verdict.span.start, span_verdict.span.end, severity)
    });
    span_verdicts.dedup_by(|later, earlier| {
        let same = later.span == earlier.span;
        if same {
            earlier.verdict = earlier.verdict.clone().max(later.verdict.clone());
        }
        same
    });
    if span_verdicts.len() < 2 {
        return Vec::new();
    }
    let verdict = |span_verdict: assess::SpanVerdict| PartAssessment {
        start: span_verdict.span.start,
        end: span_verdict.span.end,
        text: shown.get(span_verdict.span).unwrap_or_default().to_owned(),
        category: span_verdict.verdict.category,
        rule: span_verdict.verdict.rule,
        reason: span_verdict.verdict.reason,
        sensitive_read: span_verdict.verdict.sensitive_read,
    };
    span_verdicts.into_iter().map(verdict).collect()
}

/// Characters that no shell interprets or removes.
fn is_inert(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:=@%+, ".contains(c)
}

/// The words of an action, if it is one simple command in which a shell would expand nothing.
pub fn plain_words(action: &Action) -> Option<Vec<String>> {
    match &action.command {
        Command::Shell { line }
            if line.len() <= MAX_READ_LINE_BYTES && line.chars().all(is_inert) =>
        {
            let scans = lex::single_command_words(line)?;
            // `time` is a keyword of the shell, not a program.
            scans.first().filter(|scan| scan.word.text() != "time")?;
            scans.iter().map(|scan| scan.word.as_literal()).collect()
        }
        Command::Argv { command, args } => {
            Some(std::iter::once(command).chain(args).cloned().collect())
        }
        // A login shell may have aliases and functions, so its words may mean something else.
        Command::Shell { .. } | Command::LoginShell { .. } | Command::Tool { .. } => None,
    }
}

#[cfg(test)]
mod tests;
