//! Searches the text itself where it may run more than its parsed commands show.

use pvp_protocol::{Category, Risk};

use super::{Assessor, MAX_WRAPPER_DEPTH, SpanVerdict, command_name};
use crate::paths::ResolvedPath;
use crate::source_text::SourceText;
use crate::syntax::{ParsedScript, SimpleCommand};
use crate::verdict::CommandVerdict;
use crate::wrappers;

impl Assessor<'_> {
    /// Assesses the text of here-documents as scripts, if a shell receives them.
    pub(super) fn assess_shell_input(
        &mut self,
        source: &str,
        script: &ParsedScript,
        directory: &ResolvedPath,
        depth: usize,
    ) -> Vec<SpanVerdict> {
        let is_shell = |command: &SimpleCommand| {
            let name = command_name(command).unwrap_or_default();
            let wrapper = self.table.wrappers.get(&name);
            command.has_here_document && wrapper.is_some_and(|wrapper| wrapper.shell)
        };
        if depth >= MAX_WRAPPER_DEPTH || !script.commands.iter().any(is_shell) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for span in &script.here_documents {
            let (verdicts, _) = self.assess_script(source.part(span.clone()), directory, depth + 1);
            let worst = verdicts.into_iter().map(|it| it.verdict);
            let worst = worst.reduce(CommandVerdict::max);
            found.extend(worst.map(|verdict| SpanVerdict {
                span: span.clone(),
                verdict: verdict.at_least_write("a shell"),
            }));
        }
        found
    }

    /// Applies the raw rules to text that may run more than its parsed commands show.
    pub(super) fn apply_raw_rules(
        &mut self,
        source: &str,
        script: &ParsedScript,
        span_verdicts: &mut Vec<SpanVerdict>,
    ) {
        let reads = span_verdicts
            .iter()
            .all(|it| it.verdict.category == Category::Read);
        let proven = script.doubts.is_empty() && reads && !span_verdicts.is_empty();
        if proven {
            return;
        }
        let receives_code = |(command, span_verdict): (&SimpleCommand, &SpanVerdict)| {
            let unknown = command
                .words
                .first()
                .is_none_or(|word| word.as_literal().is_none());
            // What a read receives is data to it.
            let is_read = span_verdict.verdict.category == Category::Read;
            let takes_data = is_read || self.has_inert_arguments(command);
            unknown && !command.words.is_empty()
                || self.interprets_stdin(command)
                || (command.has_here_document && !takes_data)
        };
        let mut commands = script.commands.iter().zip(span_verdicts.iter());
        let runs_code = self.runs_unseen_script || commands.any(receives_code);
        if script.opaque || runs_code {
            let span = 0..source.len();
            let nothing = CommandVerdict::new(Category::Read, Risk::Safe, "", "");
            // The text of a here-document is only data to a command that runs no code.
            let text = if runs_code { source } else { &script.code };
            let verdict = self.raised_by_raw_rules(nothing, text);
            if verdict.category > Category::Read {
                span_verdicts.push(SpanVerdict { span, verdict });
            }
        }
        for (command, span_verdict) in script.commands.iter().zip(span_verdicts.iter_mut()) {
            if span_verdict.verdict.category > Category::Read && !self.has_inert_arguments(command)
            {
                let text = script.code.part(command.span.clone());
                span_verdict.verdict = self.raised_by_raw_rules(span_verdict.verdict.clone(), text);
            }
        }
    }

    pub(super) fn raised_by_raw_rules(
        &mut self,
        verdict: CommandVerdict,
        text: &str,
    ) -> CommandVerdict {
        let found = self.table.matching_raw_rules(text);
        found.iter().fold(verdict, |verdict, raw| {
            self.matched_rules.insert(raw.data.id.get_ref().clone());
            verdict.max(raw.verdict())
        })
    }

    /// Whether this command runs what it receives on standard input.
    pub(super) fn interprets_stdin(&self, command: &SimpleCommand) -> bool {
        command_name(command).is_some_and(|name| self.table.stdin_interpreters.contains(&name))
    }

    /// Whether this command never runs its arguments.
    pub(super) fn has_inert_arguments(&self, command: &SimpleCommand) -> bool {
        command_name(command).is_some_and(|name| {
            let inert = self.table.inert_commands.contains(&name);
            inert && wrappers::wrapped_commands(self.table, &name, &command.words).is_none()
        })
    }
}
