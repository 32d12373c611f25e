//! The key bindings: one table that the screen, the settings and the manual share.

mod chord;
mod default_bindings;

pub(crate) use chord::KeyChord;
pub use default_bindings::DEFAULT_BINDINGS;

/// The part of the screen in which a key binding applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyScope {
    /// Everywhere, dialogs included, except in the screen of an interactive command.
    Always,
    /// Everywhere except in dialogs, history search, the preflight list and interactive commands,
    /// unless a narrower scope binds the key.
    Anywhere,
    /// Wherever text can be typed.
    Text,
    Composer,
    /// The search in the input history.
    Recall,
    /// The gate card, while it has the focus.
    Card,
    Stream,
    /// A dialog that asks for a text.
    Dialog,
    /// The list of commands to approve together.
    Preflight,
    /// Pages and the pager.
    Page,
    /// The screen of an interactive command.
    Terminal,
}

impl KeyScope {
    /// The scope's name in the settings and the manual.
    pub fn name(self) -> &'static str {
        match self {
            KeyScope::Always => "always",
            KeyScope::Anywhere => "anywhere",
            KeyScope::Text => "text",
            KeyScope::Composer => "composer",
            KeyScope::Recall => "recall",
            KeyScope::Card => "card",
            KeyScope::Stream => "stream",
            KeyScope::Dialog => "dialog",
            KeyScope::Preflight => "preflight",
            KeyScope::Page => "page",
            KeyScope::Terminal => "terminal",
        }
    }

    /// The scopes in which a key is looked up; the first that binds it wins.
    fn lookup_order(self) -> &'static [KeyScope] {
        use KeyScope::{
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
            // Every other key goes to the command.
            Terminal => &[Terminal],
        }
    }

    /// Whether characters can be typed there, so that they cannot be bound to actions.
    pub(crate) fn accepts_text(self) -> bool {
        match self {
            KeyScope::Always
            | KeyScope::Anywhere
            | KeyScope::Text
            | KeyScope::Composer
            | KeyScope::Recall
            | KeyScope::Dialog
            | KeyScope::Terminal => true,
            KeyScope::Card | KeyScope::Stream | KeyScope::Preflight | KeyScope::Page => false,
        }
    }
}

/// What a key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyAction {
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
    AllowReading,
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
pub struct KeyBinding {
    pub scope: KeyScope,
    pub action: KeyAction,
    /// The action's name in the settings, after the scope.
    pub name: &'static str,
    pub keys: &'static [&'static str],
    pub help: &'static str,
}

/// The default bindings with the user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keymap {
    bindings: Vec<(KeyScope, KeyChord, KeyAction)>,
}

impl Default for Keymap {
    fn default() -> Self {
        let bindings = DEFAULT_BINDINGS.iter().flat_map(|binding| {
            let keys = binding
                .keys
                .iter()
                .filter_map(|key| KeyChord::parse(key).ok());
            keys.map(|chord| (binding.scope, chord, binding.action))
        });
        let bindings = bindings.collect();
        Self { bindings }
    }
}

impl Keymap {
    /// What a key does in a scope.
    pub(crate) fn action_for(&self, scope: KeyScope, chord: KeyChord) -> Option<KeyAction> {
        let mut chain = scope.lookup_order().iter();
        chain.find_map(|&scope| self.bound_action(scope, chord))
    }

    fn bound_action(&self, scope: KeyScope, chord: KeyChord) -> Option<KeyAction> {
        let mut bindings = self.bindings.iter();
        let found = bindings.find(|(at, key, _)| (*at, *key) == (scope, chord));
        found.map(|(_, _, action)| *action)
    }

    /// Binds an action to these keys and no others.
    pub(crate) fn bind(&mut self, name: &str, keys: &[String]) -> Result<(), String> {
        let named = |binding: &&KeyBinding| {
            let (scope, action) = name.split_once('.').unwrap_or_default();
            binding.scope.name() == scope && binding.name == action
        };
        let binding = DEFAULT_BINDINGS.iter().find(named);
        let binding = binding.ok_or_else(|| {
            format!("there is no key binding `{name}`; the keys page (`?`) lists the names")
        })?;
        let scope = binding.scope;
        self.bindings
            .retain(|(at, _, action)| (*at, *action) != (scope, binding.action));
        for key in keys {
            let chord = KeyChord::parse(key)?;
            if scope.accepts_text() && chord.is_text() {
                return Err(format!(
                    "`{key}` is a character that is typed there, so it cannot be bound"
                ));
            }
            if let Some(other) = self.bound_action(scope, chord) {
                return Err(format!("`{key}` is already bound to {other:?} there"));
            }
            self.bindings.push((scope, chord, binding.action));
        }
        Ok(())
    }

    /// The keys of an action, as text.
    pub(crate) fn keys_of(&self, scope: KeyScope, action: KeyAction) -> Vec<String> {
        let bound = self.bindings.iter();
        let bound = bound.filter(|(at, _, bound)| (*at, *bound) == (scope, action));
        bound.map(|(_, chord, _)| chord.to_string()).collect()
    }

    /// The first key of an action, for a hint; empty if it has none.
    pub(crate) fn first_key(&self, scope: KeyScope, action: KeyAction) -> String {
        self.keys_of(scope, action)
            .into_iter()
            .next()
            .unwrap_or_default()
    }
}

/// The table of key bindings, in Markdown, for the manual.
pub fn manual_table() -> String {
    let mut page = "| where | key | does | name in the settings |\n|---|---|---|---|\n".to_owned();
    for binding in DEFAULT_BINDINGS {
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

    fn chord(text: &str) -> KeyChord {
        KeyChord::parse(text).unwrap()
    }

    #[test]
    fn every_default_binding_is_valid_and_no_key_means_two_things() {
        let mut seen = BTreeSet::new();
        let mut names = BTreeSet::new();
        for binding in DEFAULT_BINDINGS {
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
                let typed = binding.scope.accepts_text() && chord.is_text();
                assert!(!typed, "{key} is typed in {:?}", binding.scope);
            }
        }
    }

    #[test]
    fn no_gate_key_means_anything_where_text_is_typed() {
        let keymap = Keymap::default();
        for binding in DEFAULT_BINDINGS
            .iter()
            .filter(|binding| binding.scope == KeyScope::Card)
        {
            for key in binding.keys.iter().map(|key| chord(key)) {
                for scope in [
                    KeyScope::Composer,
                    KeyScope::Dialog,
                    KeyScope::Terminal,
                    KeyScope::Stream,
                ] {
                    let decides = matches!(
                        keymap.action_for(scope, key),
                        Some(
                            KeyAction::Approve
                                | KeyAction::Reject
                                | KeyAction::Edit
                                | KeyAction::ApproveAll
                        )
                    );
                    assert!(!decides, "{key} in {scope:?}");
                }
            }
        }
    }

    #[test]
    fn suspend_and_redraw_work_everywhere_except_in_an_interactive_command() {
        let keymap = Keymap::default();
        let scopes: BTreeSet<_> = DEFAULT_BINDINGS
            .iter()
            .map(|binding| binding.scope)
            .collect();
        for scope in scopes {
            let ours = scope != KeyScope::Terminal;
            let suspend = ours.then_some(KeyAction::Suspend);
            let redraw = ours.then_some(KeyAction::Redraw);
            assert_eq!(
                keymap.action_for(scope, chord("ctrl+z")),
                suspend,
                "{scope:?}"
            );
            assert_eq!(
                keymap.action_for(scope, chord("ctrl+l")),
                redraw,
                "{scope:?}"
            );
        }
    }

    #[test]
    fn the_users_keys_replace_the_default_ones() {
        let mut keymap = Keymap::default();
        keymap.bind("card.approve", &["f5".to_owned()]).unwrap();
        assert_eq!(keymap.action_for(KeyScope::Card, chord("a")), None);
        assert_eq!(
            keymap.action_for(KeyScope::Card, chord("f5")),
            Some(KeyAction::Approve)
        );
        assert_eq!(keymap.first_key(KeyScope::Card, KeyAction::Approve), "f5");
    }

    #[test]
    fn invalid_key_settings_are_refused() {
        for (name, key, reason) in [
            (
                "card.aprove",
                "a",
                "there is no key binding `card.aprove`; the keys page (`?`) lists the names",
            ),
            ("card.approve", "r", "`r` is already bound to Reject there"),
            (
                "card.approve",
                "hyper+x",
                "`hyper+x` is not a key; write such as a, A, f5, ctrl+x, alt+enter, shift+tab",
            ),
            (
                "composer.send",
                "s",
                "`s` is a character that is typed there, so it cannot be bound",
            ),
        ] {
            let bound = Keymap::default().bind(name, &[key.to_owned()]);
            assert_eq!(bound, Err(reason.to_owned()));
        }
    }
}
