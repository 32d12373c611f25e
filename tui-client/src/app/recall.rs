//! What was sent before: brought back one after the other, or found by a part of it.

use super::compose::{Composer, edit};
use super::{App, Effect, Tone};
use crate::editor::Editor;
use crate::history::{Past, newest};
use crate::keys::Act;

/// What was sent, and where in it we are.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Recall {
    /// Oldest first.
    entries: Vec<String>,
    /// How far back we are, and what was typed before.
    at: Option<(usize, String)>,
    pub(crate) search: Option<Search>,
}

/// Looking for something by a part of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Search {
    pub(crate) needle: Editor,
    /// Which entry has it.
    found: Option<usize>,
    /// What was typed before.
    typed: Editor,
}

impl Search {
    /// Whether nothing has what is looked for.
    pub(crate) fn failed(&self) -> bool {
        self.found.is_none() && !self.needle.is_empty()
    }
}

impl Recall {
    pub(crate) fn entries(&self) -> &[String] {
        &self.entries
    }

    /// Puts what earlier screens kept before what this one did.
    fn prepend(&mut self, past: Vec<String>) {
        let own = std::mem::replace(&mut self.entries, past);
        self.entries.extend(own);
        self.entries = newest(std::mem::take(&mut self.entries));
    }

    /// Remembers a text; false if it is the latest already.
    pub(super) fn remember(&mut self, text: String) -> bool {
        if self.entries.last() == Some(&text) || text.trim().is_empty() {
            return false;
        }
        self.entries.push(text);
        self.entries = newest(std::mem::take(&mut self.entries));
        true
    }

    pub(super) fn forget_place(&mut self) {
        self.at = None;
        self.search = None;
    }

    /// The nearest entry before a place, or after it, that has what is looked for. Capitals count
    /// only if there are some in what is looked for.
    fn find(&self, needle: &str, from: usize, back: bool) -> Option<usize> {
        let exact = needle.chars().any(char::is_uppercase);
        let has = |&place: &usize| match exact {
            true => self.entries[place].contains(needle),
            false => self.entries[place].to_lowercase().contains(needle),
        };
        match back {
            true => (0..from.min(self.entries.len())).rev().find(has),
            false => (from..self.entries.len()).find(has),
        }
    }
}

impl Composer {
    pub(super) fn earlier(&mut self) {
        if self.editor.up() {
            return;
        }
        let recall = &mut self.recall;
        let back = recall.at.as_ref().map_or(1, |(back, _)| back + 1);
        let Some(place) = recall.entries.len().checked_sub(back) else {
            return;
        };
        let typed = match recall.at.take() {
            Some((_, typed)) => typed,
            None => self.editor.text().to_owned(),
        };
        recall.at = Some((back, typed));
        self.editor = Editor::new(&recall.entries[place]);
    }

    pub(super) fn later(&mut self) {
        if self.editor.down() {
            return;
        }
        let recall = &mut self.recall;
        let Some((back, typed)) = recall.at.take() else {
            return;
        };
        let next = back
            .checked_sub(1)
            .filter(|next| *next > 0)
            .and_then(|next| Some((next, recall.entries.len().checked_sub(next)?)));
        match next {
            Some((next, place)) => {
                self.editor = Editor::new(&recall.entries[place]);
                recall.at = Some((next, typed));
            }
            None => self.editor = Editor::new(&typed),
        }
    }

    pub(super) fn begin_search(&mut self) {
        self.offer = None;
        self.recall.at = None;
        self.recall.search = Some(Search {
            typed: self.editor.clone(),
            ..Search::default()
        });
    }

    /// Types into what is looked for; the newest that has it is shown.
    pub(super) fn search_for(&mut self, text: &str) {
        if let Some(search) = &mut self.recall.search {
            search.needle.insert(&text.replace('\n', " "));
            self.search_again();
        }
    }

    fn search_again(&mut self) {
        let Some(search) = &self.recall.search else {
            return;
        };
        let needle = search.needle.text();
        let newest = match needle.is_empty() {
            true => None,
            false => self.recall.find(needle, usize::MAX, true),
        };
        self.show_found(newest);
    }

    /// Shows an entry, or what was typed if there is none.
    fn show_found(&mut self, found: Option<usize>) {
        if let Some(search) = &mut self.recall.search {
            search.found = found;
            self.editor = match found {
                Some(place) => Editor::new(&self.recall.entries[place]),
                None => search.typed.clone(),
            };
        }
    }

    /// Goes on to the next that has it; false if there is none.
    fn search_on(&mut self, back: bool) -> bool {
        let Some(search) = &self.recall.search else {
            return false;
        };
        let from = match (search.found, back) {
            (Some(place), true) => place,
            (Some(place), false) => place + 1,
            (None, _) => usize::MAX,
        };
        let found = self.recall.find(search.needle.text(), from, back);
        if found.is_some() {
            self.show_found(found);
        }
        found.is_some()
    }
}

impl App {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a pane minds its own keys")]
    pub(super) fn act_recall(&mut self, act: Act) {
        let composer = &mut self.composer;
        match act {
            Act::Earlier | Act::Later => {
                let back = act == Act::Earlier;
                if !composer.search_on(back) {
                    let way = if back { "earlier" } else { "later" };
                    self.tell(Tone::Plain, format!("nothing {way} has it"));
                }
            }
            Act::Confirm => composer.recall.search = None,
            Act::Cancel => {
                composer.show_found(None);
                composer.recall.search = None;
            }
            act => {
                if let Some(search) = &mut composer.recall.search {
                    edit(&mut search.needle, act);
                    composer.search_again();
                }
            }
        }
    }

    /// Remembers what was sent, here and for the next time; not what begins with a space.
    pub(super) fn sent(&mut self, text: String) {
        let private = text.starts_with(' ');
        if !private && self.composer.recall.remember(text.clone()) && self.config.history {
            self.effects.push(Effect::Keep(text));
        }
    }

    /// What the file had.
    pub(super) fn past(&mut self, past: Past) {
        self.composer.recall.prepend(past.entries);
        if let Some(problem) = past.problem {
            self.tell(Tone::Bad, problem);
        }
    }
}
