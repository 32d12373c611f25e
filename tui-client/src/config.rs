//! Settings of the terminal screen, read from a file that is refused unless all of it is valid.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, anyhow};
use pvp_protocol::suggestion::suggest_in;
use serde::Deserialize;
use toml::Spanned;

use crate::keys::Keymap;
use crate::theme::Palette;
use crate::time_zone::DisplayTimeZone;

/// How to get the attention of a user who is not looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotifyMethod {
    Bell,
    /// A notification (OSC 9), shown by iTerm2, WezTerm, Windows Terminal and others.
    Osc9,
    /// A notification (OSC 777), shown by urxvt, foot, Ghostty and others.
    Osc777,
}

/// When to notify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotifyWhen {
    /// Unless the terminal reports that it has the focus.
    #[default]
    Unfocused,
    Always,
    Never,
}

/// Where the result of `!command` goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShellResultRouting {
    /// It goes with the next prompt.
    #[default]
    Queue,
    /// The agent gets it at once, as with `!!command`.
    Send,
}

/// Settings of the terminal screen.
#[derive(Debug, Clone, PartialEq)]
pub struct TuiConfig {
    /// The colours to use.
    pub palette: Palette,
    /// How to notify when a gate waits for the user's vote; all of them are used.
    pub notify: Vec<NotifyMethod>,
    /// When to notify.
    pub notify_when: NotifyWhen,
    /// Whether to handle the mouse.
    pub mouse: bool,
    /// Where the result of `!command` goes.
    pub bang: ShellResultRouting,
    /// Whether others see what the user is typing.
    pub share_drafts: bool,
    /// Whether the input history is kept in a file.
    pub history: bool,
    /// The time zone in which times are shown.
    pub time_zone: DisplayTimeZone,
    /// Which key does what.
    pub(crate) keymap: Keymap,
}

impl Default for TuiConfig {
    fn default() -> Self {
        Self {
            palette: Palette::default(),
            notify: vec![NotifyMethod::Bell],
            notify_when: NotifyWhen::default(),
            mouse: false,
            bang: ShellResultRouting::default(),
            share_drafts: false,
            history: true,
            time_zone: DisplayTimeZone::default(),
            keymap: Keymap::default(),
        }
    }
}

/// The settings as the file has them. What is left out has its default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TuiConfigFile {
    /// Name of a palette, with its place in the file for error messages.
    theme: Option<Spanned<String>>,
    /// Replaces the default notification methods.
    notify: Option<Vec<NotifyMethod>>,
    /// When to notify.
    #[serde(default)]
    notify_when: NotifyWhen,
    /// Whether to handle the mouse.
    #[serde(default)]
    mouse: bool,
    /// Where the result of `!command` goes.
    #[serde(default)]
    bang: ShellResultRouting,
    /// Whether others see what the user is typing.
    #[serde(default)]
    share_drafts: bool,
    /// Whether the input history is kept in a file; true if left out.
    history: Option<bool>,
    /// Keys by the name of their action, such as `card.approve`.
    #[serde(default)]
    keys: BTreeMap<String, Spanned<Vec<String>>>,
}

impl TuiConfig {
    /// Reads the file, which must exist.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).map_err(|problem| anyhow!("{}: {problem}", path.display()))
    }

    /// Parses settings that are written as JSON.
    pub fn parse_json(text: &str) -> Result<Self, String> {
        let settings: toml::Table =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        Self::parse(&settings.to_string())
    }

    /// Parses settings; an error names its line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let line_of = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
        let file: TuiConfigFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(span.start));
            format!("line {line}: {}", suggest_in(error.message()))
        })?;
        let mut config = Self {
            notify_when: file.notify_when,
            mouse: file.mouse,
            bang: file.bang,
            share_drafts: file.share_drafts,
            history: file.history.unwrap_or(true),
            ..Self::default()
        };
        if let Some(methods) = file.notify {
            config.notify = methods;
        }
        if let Some(theme) = file.theme {
            let line = line_of(theme.span().start);
            config.palette = Palette::from_name(theme.get_ref()).ok_or_else(|| {
                format!(
                    "line {line}: `{}` is not a theme; choose colour, high-contrast or none",
                    theme.get_ref()
                )
            })?;
        }
        for (name, keys) in &file.keys {
            let line = line_of(keys.span().start);
            let bound = config.keymap.bind(name, keys.get_ref());
            bound.map_err(|problem| format!("line {line}: {problem}"))?;
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_overrides_the_defaults() {
        let text = "theme = \"high-contrast\"\nnotify = [\"osc9\", \"bell\"]\nnotify_when = \"always\"\nmouse = true\nbang = \"send\"\nshare_drafts = true\nhistory = false\n[keys]\n\"card.approve\" = [\"f5\"]\n";
        let mut keymap = Keymap::default();
        keymap.bind("card.approve", &["f5".to_owned()]).unwrap();
        let expected = TuiConfig {
            palette: Palette::HighContrast,
            notify: vec![NotifyMethod::Osc9, NotifyMethod::Bell],
            notify_when: NotifyWhen::Always,
            mouse: true,
            bang: ShellResultRouting::Send,
            share_drafts: true,
            history: false,
            time_zone: DisplayTimeZone::default(),
            keymap,
        };
        assert_eq!(TuiConfig::parse(text), Ok(expected));
        assert_eq!(TuiConfig::parse(""), Ok(TuiConfig::default()));
    }

    #[test]
    fn a_bad_file_is_refused_with_line_and_reason() {
        for (text, problem) in [
            (
                "mouse = 7",
                "line 1: invalid type: integer `7`, expected a boolean",
            ),
            ("\n\ncolour = 1", "line 3: unknown field `colour`"),
            (
                "mouse = true\ntheme = \"pink\"",
                "line 2: `pink` is not a theme; choose colour, high-contrast or none",
            ),
            (
                "[keys]\n\"card.approve\" = [\"r\"]",
                "line 2: `r` is already bound to Reject there",
            ),
            (
                "[keys]\n\n\"x.y\" = [\"r\"]",
                "line 3: there is no key binding `x.y`",
            ),
            ("theme", "line 1: "),
            (
                "mosue = true",
                "line 1: unknown field `mosue`; did you mean `mouse`?",
            ),
        ] {
            let refused = TuiConfig::parse(text).unwrap_err();
            assert!(refused.starts_with(problem), "{text:?}: {refused}");
        }
    }

    #[test]
    fn settings_may_be_json() {
        let json = r#"{"mouse": true, "keys": {"card.approve": ["w"]}}"#;
        let toml = "mouse = true\n[keys]\n\"card.approve\" = [\"w\"]\n";
        assert_eq!(TuiConfig::parse_json(json), TuiConfig::parse(toml));
        assert!(TuiConfig::parse_json("{").is_err());
        let refused = TuiConfig::parse_json(r#"{"mosue": true}"#).unwrap_err();
        assert!(refused.contains("did you mean `mouse`?"), "{refused}");
    }

    #[test]
    fn a_missing_file_is_named_in_the_error() {
        let refused = TuiConfig::read(Path::new("/nowhere/tui.toml")).unwrap_err();
        assert!(format!("{refused:#}").starts_with("reading /nowhere/tui.toml: "));
    }
}
