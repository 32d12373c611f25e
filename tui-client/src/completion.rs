//! Completes slash commands and their arguments, shell commands after `!`, and agents after `@`.

use crate::app::{App, SLASH_COMMANDS, mention_name};

/// The most candidates that are offered at a time.
const MAX_CANDIDATES: usize = 50;

/// The candidates for the text before the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputCompletion {
    /// Offset in the text where a candidate begins.
    start: usize,
    pub(crate) candidates: Vec<String>,
    /// Index of the candidate that is in the text; the number of candidates if none is.
    pub(crate) selected: usize,
}

impl InputCompletion {
    /// The only candidate, or what all candidates begin with.
    pub(crate) fn common_prefix(&mut self) -> (usize, String) {
        let text = match self.candidates.as_slice() {
            [only] => format!("{only} "),
            several => {
                self.selected = several.len();
                longest_common_prefix(several)
            }
        };
        (self.start, text)
    }

    /// The next candidate; after the last comes the first.
    pub(crate) fn next_candidate(&mut self) -> (usize, String) {
        self.selected = match self.selected + 1 {
            next if next < self.candidates.len() => next,
            _ => 0,
        };
        (self.start, self.candidates[self.selected].clone())
    }

    /// `self` if there are several candidates.
    pub(crate) fn if_ambiguous(self) -> Option<Self> {
        (self.candidates.len() > 1).then_some(self)
    }
}

fn longest_common_prefix(candidates: &[String]) -> String {
    let mut shared = candidates.first().cloned().unwrap_or_default();
    for candidate in candidates {
        while !candidate.starts_with(&shared) {
            shared.pop();
        }
    }
    shared
}

/// Whether completion applies to this text.
pub(crate) fn is_completable(text: &str) -> bool {
    text.starts_with(['!', '/', '@'])
}

/// The completion for the text before the cursor.
pub(crate) fn complete_at_cursor(app: &App) -> Option<InputCompletion> {
    let before = app.composer.editor.before_cursor();
    if let Some(typed) = before
        .strip_prefix("!!")
        .or_else(|| before.strip_prefix('!'))
    {
        return complete_shell_command(app, typed, before.len() - typed.len());
    }
    let start = before.rfind(' ').map_or(0, |at| at + 1);
    let candidates: Vec<String> = if let Some(line) = before.strip_prefix('/') {
        match line.split_once(' ') {
            None => SLASH_COMMANDS
                .iter()
                .map(|it| format!("/{}", it.name))
                .collect(),
            Some((name, _)) => argument_candidates(app, name),
        }
    } else if before.starts_with('@') && start == 0 {
        let agents = app.view.agents();
        agents
            .map(|agent| format!("@{}", mention_name(&agent.name)))
            .collect()
    } else {
        return None;
    };
    completion_for(candidates, &before[start..], start)
}

/// The arguments that completion offers for a slash command.
fn argument_candidates(app: &App, name: &str) -> Vec<String> {
    let Some(command) = SLASH_COMMANDS.iter().find(|command| command.name == name) else {
        return Vec::new();
    };
    let mut words: Vec<String> = command
        .argument_candidates
        .iter()
        .map(|&word| word.to_owned())
        .collect();
    if command.args.contains("PERSON") {
        words.extend(app.view.present().map(|person| person.id.to_string()));
    }
    if command.args.contains("AGENT") {
        words.extend(app.view.agents().map(|agent| agent.id.to_string()));
    }
    words
}

/// Completes from past commands that begin with the typed text, else from program names if the
/// cursor is where a program's name goes.
fn complete_shell_command(app: &App, typed: &str, from: usize) -> Option<InputCompletion> {
    let past = app.composer.history.entries().iter().rev();
    let past = past.filter_map(|line| line.strip_prefix("!!").or_else(|| line.strip_prefix('!')));
    let past: Vec<_> = past.map(str::to_owned).collect();
    if !typed.is_empty()
        && let Some(completion) = completion_for(past, typed, from)
    {
        return Some(completion);
    }
    let start = typed
        .rfind([' ', '|', ';', '&', '('])
        .map_or(0, |at| at + 1);
    let is_command = typed[..start].trim_end().ends_with(['|', ';', '&', '(']) || start == 0;
    let word = &typed[start..];
    if !is_command || word.is_empty() {
        return None;
    }
    completion_for(app.composer.program_names.clone(), word, from + start)
}

fn completion_for(
    mut candidates: Vec<String>,
    typed: &str,
    start: usize,
) -> Option<InputCompletion> {
    candidates.retain(|candidate| candidate.starts_with(typed) && candidate != typed);
    let mut seen = std::collections::BTreeSet::new();
    candidates.retain(|candidate| seen.insert(candidate.clone()));
    candidates.truncate(MAX_CANDIDATES);
    let chosen = candidates.len();
    (chosen > 0).then_some(InputCompletion {
        start,
        candidates,
        selected: chosen,
    })
}
