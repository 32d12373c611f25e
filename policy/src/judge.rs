//! The verdict on a whole line: every part, what it runs, where it writes.

mod reading;

use std::collections::BTreeSet;
use std::ops::Range;

use pvp_protocol::{Category, Profile, Risk};

use crate::breaks::{self, Reading};
use crate::canon;
use crate::environment::{is_harmless, variable_opinion};
use crate::opinion::Opinion;
use crate::place::{Path, Place, Root};
use crate::table::Table;
use crate::unwrap::{self, Inner};
use crate::walk::{self, Function, Part, Redirect, Script};
use crate::word::Word;

/// Wrappers around wrappers that are opened.
const MAX_UNWRAPPED: usize = 8;

/// Commands that are judged for one line, inner ones included.
const MAX_JUDGED: usize = 160;

/// Bytes that are parsed for one line, scripts inside it included.
const MAX_PARSED: usize = 80 * 1024;

/// The opinion on one stretch of the line.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    pub(crate) span: Range<usize>,
    pub(crate) opinion: Opinion,
}

/// Collects opinions on one action.
pub(crate) struct Judge<'a> {
    table: &'a Table,
    place: &'a Place,
    pub(crate) findings: Vec<Finding>,
    pub(crate) doubts: Vec<String>,
    pub(crate) notes: BTreeSet<String>,
    /// Every rule that matched anywhere.
    pub(crate) matched: BTreeSet<String>,
    judged: usize,
    parsed: usize,
    /// What was done to come to the verdict, the same on every machine.
    pub(crate) steps: u32,
    /// Something runs a script that is not in its arguments.
    unseen: bool,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(table: &'a Table, place: &'a Place) -> Self {
        Self {
            table,
            place,
            findings: Vec::new(),
            doubts: Vec::new(),
            notes: BTreeSet::new(),
            matched: BTreeSet::new(),
            judged: 0,
            parsed: 0,
            steps: 0,
            unseen: false,
        }
    }

    /// Judges a line that a shell would run in `base`.
    pub(crate) fn line(&mut self, source: &str, base: &Path) {
        let (findings, doubts) = self.script(source, base, 0);
        self.findings = findings;
        self.doubts = doubts;
    }

    /// Judges words that are run without a shell.
    pub(crate) fn words(&mut self, mut words: Vec<Word>, base: &Path, shown: &str) {
        if words.len() > walk::MOST_WORDS {
            words.truncate(walk::MOST_WORDS);
            self.doubts
                .push("has more words than can be overseen".to_owned());
        }
        let part = Part {
            words,
            assignments: Vec::new(),
            span: 0..shown.len(),
            bases: vec![base.clone()],
            here_document: false,
        };
        let mut opinion = self.part(&part, 0);
        if opinion.category > Category::Read && !self.is_inert(&part) {
            opinion = self.raised_by_raw(opinion, shown);
        }
        let span = part.span;
        self.findings.push(Finding { span, opinion });
    }

    fn script(&mut self, source: &str, base: &Path, depth: usize) -> (Vec<Finding>, Vec<String>) {
        self.parsed += source.len();
        if depth > 0 && self.parsed > MAX_PARSED {
            let reason = "more scripts inside scripts than can be overseen";
            let opinion = Opinion::write(Risk::High, "default.too-much", reason);
            let span = 0..source.len();
            // The raw patterns have seen this text as a part of the whole line.
            self.unseen = true;
            return (vec![Finding { span, opinion }], vec![reason.to_owned()]);
        }
        let mut all = (Vec::new(), Vec::new());
        for reading in breaks::readings(source) {
            let (findings, doubts) = self.reading(&reading, base, depth);
            all.0.extend(findings);
            all.1.extend(doubts);
        }
        all
    }

    fn reading(
        &mut self,
        reading: &Reading,
        base: &Path,
        depth: usize,
    ) -> (Vec<Finding>, Vec<String>) {
        let source = reading.text.as_str();
        let mut script = walk::script(source, base);
        self.steps += script.steps;
        if reading.is_changed() {
            let why = "has backslashes around line breaks";
            script.doubts.push(why.to_owned());
        }
        let mut findings: Vec<Finding> = Vec::new();
        for part in &script.parts {
            let opinion = self.part(part, depth);
            findings.push(Finding {
                span: part.span.clone(),
                opinion,
            });
        }
        for redirect in &script.redirects {
            if let Some(opinion) = self.redirect(redirect) {
                let span = redirect.span.clone();
                findings.push(Finding { span, opinion });
            }
        }
        findings.extend(endless(source, &script));
        self.raw(source, &script, &mut findings);
        for finding in &mut findings {
            finding.span = reading.original(&finding.span);
        }
        (findings, script.doubts)
    }

    /// Patterns over the text itself, where it may hold more than its parts have shown.
    fn raw(&mut self, source: &str, script: &Script, findings: &mut Vec<Finding>) {
        let reads = findings
            .iter()
            .all(|it| it.opinion.category == Category::Read);
        let proven = script.doubts.is_empty() && reads && !findings.is_empty();
        if proven {
            return;
        }
        let fed = |part: &Part| {
            let unknown = part
                .words
                .first()
                .is_none_or(|word| word.as_literal().is_none());
            unknown && !part.words.is_empty()
                || self.takes_code(part)
                || (part.here_document && !self.is_inert(part))
        };
        if script.opaque || self.unseen || script.parts.iter().any(fed) {
            let span = 0..source.len();
            let nothing = Opinion::new(Category::Read, Risk::Safe, "", "");
            let opinion = self.raised_by_raw(nothing, source);
            if opinion.category > Category::Read {
                findings.push(Finding { span, opinion });
            }
        }
        for (part, finding) in script.parts.iter().zip(findings.iter_mut()) {
            if finding.opinion.category > Category::Read && !self.is_inert(part) {
                let text = &source[part.span.clone()];
                finding.opinion = self.raised_by_raw(finding.opinion.clone(), text);
            }
        }
    }

    fn raised_by_raw(&mut self, opinion: Opinion, text: &str) -> Opinion {
        let found = self.table.found_in(text);
        found.iter().fold(opinion, |opinion, raw| {
            self.matched.insert(raw.data.id.get_ref().clone());
            opinion.max(raw.opinion())
        })
    }

    /// Whether what comes through a pipe is code for this command.
    fn takes_code(&self, part: &Part) -> bool {
        command_name(part).is_some_and(|name| self.table.takes_code.contains(&name))
    }

    /// Whether the arguments are only ever data for this command.
    fn is_inert(&self, part: &Part) -> bool {
        command_name(part).is_some_and(|name| {
            let inert = self.table.inert.contains(&name);
            inert && unwrap::inner(self.table, &name, &part.words).is_none()
        })
    }

    fn part(&mut self, part: &Part, depth: usize) -> Opinion {
        self.judged += 1;
        self.steps += 1;
        if self.judged > MAX_JUDGED {
            return Opinion::write(
                Risk::Medium,
                "default.too-much",
                "more than can be overseen",
            );
        }
        let Some(first) = part.words.first() else {
            let reason = "sets variables of the shell";
            return Opinion::write(Risk::Low, "default.assignment", reason);
        };
        let name = command_name(part).unwrap_or_default();
        let mut opinions = self.matching(&name, &part.words[1..], &part.bases);
        opinions.extend(self.by_wrapper(&name, part, depth));
        opinions.extend(self.by_braces(part, depth));
        opinions.extend(self.assignments(part));
        let severe = opinions.into_iter().reduce(Opinion::max);
        let lowered = severe
            .as_ref()
            .is_none_or(|it| it.category <= Category::Write);
        let read = if lowered {
            self.read(first, part, severe.is_some())
        } else {
            Err(None)
        };
        match (severe, read) {
            (_, Ok(read)) => read,
            (Some(severe), Err(Some(path))) => severe.max(path),
            (Some(severe), Err(None)) => severe,
            (None, Err(Some(reason))) => reason,
            (None, Err(None)) => self.unknown(&name, first),
        }
    }

    /// What the rules for a name say of these words.
    fn matching(&mut self, name: &str, words: &[Word], bases: &[Path]) -> Vec<Opinion> {
        let table = self.table;
        let forms = canon::arguments(words, bases);
        let rules: Vec<_> = forms
            .iter()
            .flat_map(|arguments| table.matching(name, arguments))
            .collect();
        let ids = rules.iter().map(|rule| rule.data.id.get_ref().clone());
        self.matched.extend(ids);
        rules.iter().map(|rule| rule.opinion()).collect()
    }

    fn by_wrapper(&mut self, name: &str, part: &Part, depth: usize) -> Option<Opinion> {
        let found = unwrap::inner(self.table, name, &part.words)?;
        if depth >= MAX_UNWRAPPED {
            let reason = "too many commands that run commands";
            return Some(Opinion::write(Risk::High, "default.too-deep", reason));
        }
        let raises = self
            .table
            .wrappers
            .get(name)
            .is_some_and(|wrapper| wrapper.raises);
        let inner = found
            .iter()
            .filter_map(|inner| self.inner(inner, part, depth + 1))
            .map(|opinion| opinion.at_least_write(name))
            .reduce(Opinion::max)?;
        Some(if raises { inner.raised() } else { inner })
    }

    fn inner(&mut self, inner: &Inner, part: &Part, depth: usize) -> Option<Opinion> {
        match inner {
            Inner::Words(words) => {
                let inner = Part {
                    words: words.clone(),
                    assignments: Vec::new(),
                    ..part.clone()
                };
                (!words.is_empty()).then(|| self.part(&inner, depth))
            }
            Inner::Script(text) => {
                let base = part
                    .bases
                    .first()
                    .cloned()
                    .unwrap_or(Path::new(Root::Unknown));
                let (findings, doubts) = self.script(text, &base, depth);
                let doubt = doubts
                    .first()
                    .map(|doubt| Opinion::write(Risk::Medium, "default.write", doubt));
                let opinions = findings.into_iter().map(|finding| finding.opinion);
                opinions.chain(doubt).reduce(Opinion::max)
            }
            Inner::Unseen => {
                self.unseen = true;
                let reason = "runs a script that is not in the command";
                Some(Opinion::write(
                    Risk::Medium,
                    "default.unseen-script",
                    reason,
                ))
            }
        }
    }

    /// Braces may hold a whole command.
    fn by_braces(&mut self, part: &Part, depth: usize) -> Option<Opinion> {
        let braced = |word: &Word| word.braces && word.text().len() < 1024;
        if depth >= MAX_UNWRAPPED || !part.words.iter().any(braced) {
            return None;
        }
        let texts: Vec<String> = part.words.iter().map(Word::text).collect();
        let words = texts
            .iter()
            .flat_map(|text| canon::expand_braces(text))
            .take(256);
        let words: Vec<Word> = words.map(|text| Word::literal(&text)).collect();
        let expanded = Part {
            words,
            ..part.clone()
        };
        let opinion = self.part(&expanded, depth + 1);
        Some(opinion.at_least_write("{…}"))
    }

    fn assignments(&mut self, part: &Part) -> Option<Opinion> {
        let unsure = |(name, value): &&(String, Word)| {
            !value
                .as_literal()
                .is_some_and(|value| is_harmless(name, &value))
        };
        let (name, _) = part.assignments.iter().find(unsure)?;
        self.notes.insert(format!("sets `{name}` for the command"));
        Some(variable_opinion(name))
    }

    fn redirect(&mut self, redirect: &Redirect) -> Option<Opinion> {
        let target = redirect.target.as_literal();
        let target = target.as_deref();
        match redirect.operator.as_str() {
            "<<<" => None,
            "<" => self
                .near(
                    std::slice::from_ref(&redirect.target),
                    &redirect.bases,
                    false,
                )
                .err(),
            ">&" | "<&" | ">&-" | "<&-"
                if target.is_some_and(|to| to == "-" || to.bytes().all(|b| b.is_ascii_digit())) =>
            {
                None
            }
            _ if matches!(target, Some("/dev/null" | "/dev/stdout" | "/dev/stderr")) => None,
            _ => Some(self.output(redirect)),
        }
    }

    fn output(&mut self, redirect: &Redirect) -> Opinion {
        let target = std::slice::from_ref(&redirect.target);
        let opinions = self.matching(">", target, &redirect.bases);
        let reason = format!("writes to `{}`", redirect.target.text());
        let write = Opinion::write(Risk::Low, "default.redirect", &reason);
        opinions.into_iter().fold(write, Opinion::max)
    }

    fn unknown(&self, name: &str, first: &Word) -> Opinion {
        let reason = match first.as_literal() {
            None => "what it runs is computed by the shell".to_owned(),
            Some(text) if text.contains('/') => format!("`{text}` is run by its path"),
            Some(_) if self.table.knows(name) => {
                format!("this use of `{name}` is not known to only read")
            }
            Some(_) => format!("nothing is known about `{name}`, so it may change things"),
        };
        Opinion::write(Risk::Medium, "default.write", &reason)
    }
}

/// The name a command goes by, without its directory.
fn command_name(part: &Part) -> Option<String> {
    let text = part.words.first()?.text();
    let name = text.rsplit('/').next().unwrap_or(&text);
    Some(name.strip_suffix(".exe").unwrap_or(name).to_owned())
}

/// A function that starts itself more than once, or in the background, never ends.
fn endless(source: &str, script: &Script) -> Option<Finding> {
    let calls = |function: &Function| {
        let inside = |part: &&Part| {
            function.body.contains(&part.span.start)
                && command_name(part).as_ref() == Some(&function.name)
        };
        script.parts.iter().filter(inside).count()
    };
    let background = |function: &Function| source[function.body.clone()].contains('&');
    let bomb = script
        .functions
        .iter()
        .find(|function| calls(function) > 1 || (calls(function) == 1 && background(function)))?;
    let reason = "a function that keeps starting itself";
    Some(Finding {
        span: bomb.body.clone(),
        opinion: Opinion::new(
            Category::Blocked,
            Risk::Critical,
            "blocked.fork-bomb",
            reason,
        ),
    })
}

/// The sandbox that all reads among the findings need.
pub(crate) fn profile(findings: &[Finding]) -> Profile {
    let profiles = findings.iter().map(|finding| finding.opinion.profile);
    profiles.max().unwrap_or(Profile::None)
}
