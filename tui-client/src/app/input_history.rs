//! The input history: recalls texts sent before, one by one or by searching.

use super::composer::{Composer, apply_edit};
use super::{App, AppEffect, NoticeLevel};
use crate::editor::Editor;
use crate::history::{LoadedHistory, keep_newest};
use crate::keys::KeyAction;

/// The texts sent before, and the position in them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct InputHistory {
    /// Oldest first.
    entries: Vec<String>,
    /// How many entries back from the newest, and the text typed before recalling; `None` while not
    /// recalling.
    position: Option<(usize, String)>,
    pub(crate) search: Option<HistorySearch>,
}

/// A search for entries that contain a text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HistorySearch {
    pub(crate) needle: Editor,
    /// Index of the entry that is shown.
    match_index: Option<usize>,
    /// The input before the search, restored when the search is cancelled.
    original_text: Editor,
}

impl HistorySearch {
    /// Whether no entry contains the search text.
    pub(crate) fn has_no_match(&self) -> bool {
        self.match_index.is_none() && !self.needle.is_empty()
    }
}

impl InputHistory {
    pub(crate) fn entries(&self) -> &[String] {
        &self.entries
    }

    /// Adds the entries of earlier runs before those of this one.
    fn prepend(&mut self, older: Vec<String>) {
        let own = std::mem::replace(&mut self.entries, older);
        self.entries.extend(own);
        self.entries = keep_newest(std::mem::take(&mut self.entries));
    }

    /// Adds a text; false if it is blank or equals the newest entry.
    pub(super) fn push(&mut self, text: String) -> bool {
        if self.entries.last() == Some(&text) || text.trim().is_empty() {
            return false;
        }
        self.entries.push(text);
        self.entries = keep_newest(std::mem::take(&mut self.entries));
        true
    }

    pub(super) fn reset_position(&mut self) {
        self.position = None;
        self.search = None;
    }

    /// The entry nearest to index `from`, before it or from it on, that contains the needle. Case
    /// matters only if the needle has capitals.
    fn find_entry(&self, needle: &str, from: usize, backwards: bool) -> Option<usize> {
        let exact = needle.chars().any(char::is_uppercase);
        let matches = |&index: &usize| match exact {
            true => self.entries[index].contains(needle),
            false => self.entries[index].to_lowercase().contains(needle),
        };
        match backwards {
            true => (0..from.min(self.entries.len())).rev().find(matches),
            false => (from..self.entries.len()).find(matches),
        }
    }
}

impl Composer {
    pub(super) fn recall_previous(&mut self) {
        if self.editor.move_up() {
            return;
        }
        let recall = &mut self.history;
        let back = recall.position.as_ref().map_or(1, |(back, _)| back + 1);
        let Some(index) = recall.entries.len().checked_sub(back) else {
            return;
        };
        let typed = match recall.position.take() {
            Some((_, typed)) => typed,
            None => self.editor.text().to_owned(),
        };
        recall.position = Some((back, typed));
        self.editor = Editor::new(&recall.entries[index]);
    }

    pub(super) fn recall_next(&mut self) {
        if self.editor.move_down() {
            return;
        }
        let recall = &mut self.history;
        let Some((back, typed)) = recall.position.take() else {
            return;
        };
        let next = back
            .checked_sub(1)
            .filter(|next| *next > 0)
            .and_then(|next| Some((next, recall.entries.len().checked_sub(next)?)));
        match next {
            Some((next, index)) => {
                self.editor = Editor::new(&recall.entries[index]);
                recall.position = Some((next, typed));
            }
            None => self.editor = Editor::new(&typed),
        }
    }

    pub(super) fn begin_search(&mut self) {
        self.completion = None;
        self.history.position = None;
        self.history.search = Some(HistorySearch {
            original_text: self.editor.clone(),
            ..HistorySearch::default()
        });
    }

    /// Adds to the search text and shows the newest entry that contains it.
    pub(super) fn type_search_text(&mut self, text: &str) {
        if let Some(search) = &mut self.history.search {
            search.needle.insert(&text.replace('\n', " "));
            self.rerun_search();
        }
    }

    fn rerun_search(&mut self) {
        let Some(search) = &self.history.search else {
            return;
        };
        let needle = search.needle.text();
        let newest = match needle.is_empty() {
            true => None,
            false => self.history.find_entry(needle, usize::MAX, true),
        };
        self.show_match(newest);
    }

    /// Shows the found entry, or the original input if there is none.
    fn show_match(&mut self, found: Option<usize>) {
        if let Some(search) = &mut self.history.search {
            search.match_index = found;
            self.editor = match found {
                Some(index) => Editor::new(&self.history.entries[index]),
                None => search.original_text.clone(),
            };
        }
    }

    /// Moves on to the next match; false if there is none.
    fn find_next_match(&mut self, backwards: bool) -> bool {
        let Some(search) = &self.history.search else {
            return false;
        };
        let from = match (search.match_index, backwards) {
            (Some(index), true) => index,
            (Some(index), false) => index + 1,
            (None, _) => usize::MAX,
        };
        let found = self
            .history
            .find_entry(search.needle.text(), from, backwards);
        if found.is_some() {
            self.show_match(found);
        }
        found.is_some()
    }
}

impl App {
    #[expect(clippy::wildcard_enum_match_arm, reason = "handles only its own keys")]
    pub(super) fn on_history_search_action(&mut self, action: KeyAction) {
        let composer = &mut self.composer;
        match action {
            KeyAction::Earlier | KeyAction::Later => {
                let backwards = action == KeyAction::Earlier;
                if !composer.find_next_match(backwards) {
                    let way = if backwards { "earlier" } else { "later" };
                    self.show_notice(NoticeLevel::Info, format!("no {way} match"));
                }
            }
            KeyAction::Confirm => composer.history.search = None,
            KeyAction::Cancel => {
                composer.show_match(None);
                composer.history.search = None;
            }
            action => {
                if let Some(search) = &mut composer.history.search {
                    apply_edit(&mut search.needle, action);
                    composer.rerun_search();
                }
            }
        }
    }

    /// Adds a sent text to the history and to its file, unless it begins with a space.
    pub(super) fn record_sent_text(&mut self, text: String) {
        let private = text.starts_with(' ');
        if !private && self.composer.history.push(text.clone()) && self.config.history {
            self.effects.push(AppEffect::AppendHistory(text));
        }
    }

    pub(super) fn on_history_loaded(&mut self, loaded: LoadedHistory) {
        self.composer.history.prepend(loaded.entries);
        if let Some(problem) = loaded.problem {
            self.show_notice(NoticeLevel::Error, problem);
        }
    }
}
