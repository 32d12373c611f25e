//! Which key does what: one table that the screen, the settings and the manual share.

mod chord;
mod table;

pub(crate) use chord::Chord;
pub use table::TABLE;

/// Where a key is pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Wherever keys are for the screen, in questions too.
    Always,
    /// Wherever nothing more particular is meant, and nothing is asked.
    Anywhere,
    /// Wherever text is typed.
    Text,
    Composer,
    /// Looking for what was sent before.
    Recall,
    /// A gate card that has the focus.
    Card,
    Stream,
    /// A question with a text for an answer.
    Dialog,
    /// The list of what would be approved.
    Preflight,
    /// Pages and the pager.
    Page,
    /// The screen of an interactive command.
    Terminal,
}

impl Scope {
    /// As settings and the manual call it.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Always => "always",
            Scope::Anywhere => "anywhere",
            Scope::Text => "text",
            Scope::Composer => "composer",
            Scope::Recall => "recall",
            Scope::Card => "card",
            Scope::Stream => "stream",
            Scope::Dialog => "dialog",
            Scope::Preflight => "preflight",
            Scope::Page => "page",
            Scope::Terminal => "terminal",
        }
    }

    /// Where a key is looked up, the first that knows it.
    fn chain(self) -> &'static [Scope] {
        use Scope::{
            Always, Anywhere, Card, Composer, Dialog, Page, Preflight, Recall, Stream, Terminal,
            Text,
        };
        match self {
            Always => &[Always],
            Anywhere => &[Anywhere, Always],
            Text => &[Text, Anywhere, Always],
            Composer => &[Composer, Text, Anywhere, Always],
            Recall => &[Recall, Text, Always],
            Card => &[Card, Anywhere, Always],
            Stream => &[Stream, Anywhere, Always],
            Dialog => &[Dialog, Text, Always],
            Preflight => &[Preflight, Always],
            Page => &[Page, Anywhere, Always],
            // Everything else is for the command.
            Terminal => &[Terminal],
        }
    }

    /// Whether characters are typed there, so that they can mean nothing else.
    pub(crate) fn takes_text(self) -> bool {
        match self {
            Scope::Always
            | Scope::Anywhere
            | Scope::Text
            | Scope::Composer
            | Scope::Recall
            | Scope::Dialog
            | Scope::Terminal => true,
            Scope::Card | Scope::Stream | Scope::Preflight | Scope::Page => false,
        }
    }
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    Quit,
    FocusNext,
    FocusPrevious,
    FocusCard,
    Redraw,
    Suspend,
    Keys,
    ScrollUp,
    ScrollDown,
    // text
    Left,
    Right,
    WordLeft,
    WordRight,
    LineStart,
    LineEnd,
    Backspace,
    Delete,
    DeleteWord,
    DeleteToStart,
    DeleteToEnd,
    NewLine,
    // composer
    Send,
    Complete,
    Earlier,
    Later,
    Recall,
    Leave,
    Clear,
    // card
    Approve,
    Reject,
    Edit,
    AllowPrefix,
    ApproveAll,
    Explain,
    // lists and pages
    Up,
    Down,
    PageUp,
    PageDown,
    Top,
    Bottom,
    Open,
    Fold,
    Search,
    FindNext,
    FindPrevious,
    Copy,
    CopyOutput,
    Toggle,
    Confirm,
    Cancel,
    // shortcuts into the composer
    Compose,
    Shell,
    Slash,
    Interrupt,
}

/// One row of the table.
pub struct Binding {
    pub scope: Scope,
    pub act: Act,
    /// As settings call it, after the scope.
    pub name: &'static str,
    pub keys: &'static [&'static str],
    pub help: &'static str,
}

/// The table with one's own settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keymap {
    acts: Vec<(Scope, Chord, Act)>,
}

impl Default for Keymap {
    fn default() -> Self {
        let bindings = TABLE.iter().flat_map(|binding| {
            let keys = binding.keys.iter().filter_map(|key| Chord::parse(key).ok());
            keys.map(|chord| (binding.scope, chord, binding.act))
        });
        let acts = bindings.collect();
        Self { acts }
    }
}

impl Keymap {
    /// What a key asks for here.
    pub(crate) fn find(&self, scope: Scope, chord: Chord) -> Option<Act> {
        let mut chain = scope.chain().iter();
        chain.find_map(|&scope| self.bound(scope, chord))
    }

    fn bound(&self, scope: Scope, chord: Chord) -> Option<Act> {
        let mut acts = self.acts.iter();
        let found = acts.find(|(at, key, _)| (*at, *key) == (scope, chord));
        found.map(|(_, _, act)| *act)
    }

    /// Gives an act these keys and no others.
    pub(crate) fn bind(&mut self, name: &str, keys: &[String]) -> Result<(), String> {
        let named = |binding: &&Binding| {
            let (scope, act) = name.split_once('.').unwrap_or_default();
            binding.scope.name() == scope && binding.name == act
        };
        let binding = TABLE.iter().find(named);
        let binding = binding.ok_or_else(|| {
            format!("nothing is called `{name}`; the keys page (`?`) lists the names")
        })?;
        let scope = binding.scope;
        self.acts
            .retain(|(at, _, act)| (*at, *act) != (scope, binding.act));
        for key in keys {
            let chord = Chord::parse(key)?;
            if scope.takes_text() && chord.types() {
                return Err(format!(
                    "`{key}` is typed there, so it cannot do anything else"
                ));
            }
            if let Some(other) = self.bound(scope, chord) {
                return Err(format!("`{key}` already means {other:?} there"));
            }
            self.acts.push((scope, chord, binding.act));
        }
        Ok(())
    }

    /// The keys of an act, as they are written.
    pub(crate) fn keys_of(&self, scope: Scope, act: Act) -> Vec<String> {
        let bound = self.acts.iter();
        let bound = bound.filter(|(at, _, bound)| (*at, *bound) == (scope, act));
        bound.map(|(_, chord, _)| chord.to_string()).collect()
    }

    /// The first key of an act, for a hint.
    pub(crate) fn hint(&self, scope: Scope, act: Act) -> String {
        self.keys_of(scope, act)
            .into_iter()
            .next()
            .unwrap_or_default()
    }
}

/// The table as the manual shows it.
pub fn manual() -> String {
    let mut page = "| where | key | does | name in the settings |\n|---|---|---|---|\n".to_owned();
    for binding in TABLE {
        let keys: Vec<_> = binding.keys.iter().map(|key| format!("`{key}`")).collect();
        let scope = binding.scope.name();
        page += &format!(
            "| {scope} | {} | {} | `{scope}.{}` |\n",
            keys.join(" "),
            binding.help,
            binding.name
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn chord(text: &str) -> Chord {
        Chord::parse(text).unwrap()
    }

    #[test]
    fn every_row_of_the_table_is_good_and_no_key_means_two_things() {
        let mut seen = BTreeSet::new();
        let mut names = BTreeSet::new();
        for binding in TABLE {
            assert!(
                names.insert((binding.scope, binding.name)),
                "{}",
                binding.name
            );
            for key in binding.keys {
                let chord = chord(key);
                assert_eq!(chord.to_string(), *key);
                assert!(
                    seen.insert((binding.scope, *key)),
                    "{key} in {:?}",
                    binding.scope
                );
                let typed = binding.scope.takes_text() && chord.types();
                assert!(!typed, "{key} is typed in {:?}", binding.scope);
            }
        }
    }

    #[test]
    fn no_gate_key_means_anything_where_text_is_typed() {
        let keymap = Keymap::default();
        for binding in TABLE.iter().filter(|binding| binding.scope == Scope::Card) {
            for key in binding.keys.iter().map(|key| chord(key)) {
                for scope in [
                    Scope::Composer,
                    Scope::Dialog,
                    Scope::Terminal,
                    Scope::Stream,
                ] {
                    let decides = matches!(
                        keymap.find(scope, key),
                        Some(Act::Approve | Act::Reject | Act::Edit | Act::ApproveAll)
                    );
                    assert!(!decides, "{key} in {scope:?}");
                }
            }
        }
    }

    #[test]
    fn the_screen_is_left_and_drawn_again_from_everywhere_but_a_command_of_ones_own() {
        let keymap = Keymap::default();
        let scopes: BTreeSet<_> = TABLE.iter().map(|binding| binding.scope).collect();
        for scope in scopes {
            let ours = scope != Scope::Terminal;
            let suspend = ours.then_some(Act::Suspend);
            let redraw = ours.then_some(Act::Redraw);
            assert_eq!(keymap.find(scope, chord("ctrl+z")), suspend, "{scope:?}");
            assert_eq!(keymap.find(scope, chord("ctrl+l")), redraw, "{scope:?}");
        }
    }

    #[test]
    fn own_keys_take_the_place_of_the_usual_ones() {
        let mut keymap = Keymap::default();
        keymap.bind("card.approve", &["f5".to_owned()]).unwrap();
        assert_eq!(keymap.find(Scope::Card, chord("a")), None);
        assert_eq!(keymap.find(Scope::Card, chord("f5")), Some(Act::Approve));
        assert_eq!(keymap.hint(Scope::Card, Act::Approve), "f5");
    }

    #[test]
    fn settings_that_cannot_be_are_refused() {
        for (name, key, reason) in [
            (
                "card.aprove",
                "a",
                "nothing is called `card.aprove`; the keys page (`?`) lists the names",
            ),
            ("card.approve", "r", "`r` already means Reject there"),
            (
                "card.approve",
                "hyper+x",
                "`hyper+x` is not a key; write such as a, A, f5, ctrl+x, alt+enter, shift+tab",
            ),
            (
                "composer.send",
                "s",
                "`s` is typed there, so it cannot do anything else",
            ),
        ] {
            let bound = Keymap::default().bind(name, &[key.to_owned()]);
            assert_eq!(bound, Err(reason.to_owned()));
        }
    }
}
