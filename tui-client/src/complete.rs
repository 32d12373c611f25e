//! Completion: slash commands and their words, programs and past commands after `!`, agents
//! after `@`.

use crate::app::{App, COMMANDS, squeezed};

/// Candidates that are offered at a time.
const OFFERED: usize = 50;

/// What could stand where one types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Where in the text the candidates stand.
    start: usize,
    pub(crate) candidates: Vec<String>,
    /// The one that is in the text.
    pub(crate) chosen: usize,
}

impl Offer {
    /// What all candidates begin with, or the only one.
    pub(crate) fn first(&mut self) -> (usize, String) {
        let text = match self.candidates.as_slice() {
            [only] => format!("{only} "),
            several => {
                self.chosen = several.len();
                common(several)
            }
        };
        (self.start, text)
    }

    /// The next candidate, round and round.
    pub(crate) fn next(&mut self) -> (usize, String) {
        self.chosen = match self.chosen + 1 {
            next if next < self.candidates.len() => next,
            _ => 0,
        };
        (self.start, self.candidates[self.chosen].clone())
    }

    /// Itself, if there is something to choose.
    pub(crate) fn several(self) -> Option<Self> {
        (self.candidates.len() > 1).then_some(self)
    }
}

fn common(candidates: &[String]) -> String {
    let mut shared = candidates.first().cloned().unwrap_or_default();
    for candidate in candidates {
        while !candidate.starts_with(&shared) {
            shared.pop();
        }
    }
    shared
}

/// Whether the text is of a kind that is completed.
pub(crate) fn wanted(text: &str) -> bool {
    text.starts_with(['!', '/', '@'])
}

/// What could stand at the cursor.
pub(crate) fn offer(app: &App) -> Option<Offer> {
    let before = app.composer.editor.before();
    if let Some(typed) = before
        .strip_prefix("!!")
        .or_else(|| before.strip_prefix('!'))
    {
        return shell(app, typed, before.len() - typed.len());
    }
    let start = before.rfind(' ').map_or(0, |at| at + 1);
    let candidates: Vec<String> = if let Some(line) = before.strip_prefix('/') {
        match line.split_once(' ') {
            None => COMMANDS.iter().map(|it| format!("/{}", it.name)).collect(),
            Some((name, _)) => words_after(app, name),
        }
    } else if before.starts_with('@') && start == 0 {
        let agents = app.view.agents();
        agents
            .map(|agent| format!("@{}", squeezed(&agent.name)))
            .collect()
    } else {
        return None;
    };
    matching(candidates, &before[start..], start)
}

/// Words that may follow a slash command.
fn words_after(app: &App, name: &str) -> Vec<String> {
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Vec::new();
    };
    let mut words: Vec<String> = command.words.iter().map(|&word| word.to_owned()).collect();
    if command.args.contains("PERSON") {
        words.extend(app.view.present().map(|person| person.id.to_string()));
    }
    if command.args.contains("AGENT") {
        words.extend(app.view.agents().map(|agent| agent.id.to_string()));
    }
    words
}

/// Past commands that begin like this, and programs where a program's name stands.
fn shell(app: &App, typed: &str, from: usize) -> Option<Offer> {
    let past = app.composer.recall.entries().iter().rev();
    let past = past.filter_map(|line| line.strip_prefix("!!").or_else(|| line.strip_prefix('!')));
    let past: Vec<_> = past.map(str::to_owned).collect();
    if !typed.is_empty()
        && let Some(offer) = matching(past, typed, from)
    {
        return Some(offer);
    }
    let start = typed
        .rfind([' ', '|', ';', '&', '('])
        .map_or(0, |at| at + 1);
    let is_command = typed[..start].trim_end().ends_with(['|', ';', '&', '(']) || start == 0;
    let word = &typed[start..];
    if !is_command || word.is_empty() {
        return None;
    }
    matching(app.composer.programs.clone(), word, from + start)
}

fn matching(mut candidates: Vec<String>, typed: &str, start: usize) -> Option<Offer> {
    candidates.retain(|candidate| candidate.starts_with(typed) && candidate != typed);
    let mut seen = std::collections::BTreeSet::new();
    candidates.retain(|candidate| seen.insert(candidate.clone()));
    candidates.truncate(OFFERED);
    let chosen = candidates.len();
    (chosen > 0).then_some(Offer {
        start,
        candidates,
        chosen,
    })
}
