//! The styles of the screen. Colour never carries information that the text does not.

use pvp_protocol::Category;
use pvp_protocol::payload::OutputStream;
use ratatui::style::{Color, Modifier, Style};

/// Which colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Palette {
    #[default]
    Colour,
    /// Bright colours on the terminal's own background, nothing dim.
    HighContrast,
    /// No colours at all; what matters is bold, underlined or reversed.
    None,
}

impl Palette {
    /// The palette with this name in the settings.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "colour" | "color" | "default" => Some(Palette::Colour),
            "high-contrast" => Some(Palette::HighContrast),
            "none" => Some(Palette::None),
            _ => None,
        }
    }
}

/// A style for everything on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Theme {
    /// The palette that the styles are made from.
    pub(crate) palette: Palette,
    /// Ordinary text.
    pub(crate) plain: Style,
    /// Text of less importance, such as times and labels.
    pub(crate) muted: Style,
    /// Text that stands out, such as commands.
    pub(crate) strong: Style,
    /// Headings and the name of the session.
    pub(crate) title: Style,
    /// Something that succeeded or is safe.
    pub(crate) success: Style,
    /// Something to pay attention to.
    pub(crate) warning: Style,
    /// Something that failed or is dangerous.
    pub(crate) error: Style,
    /// Names of people.
    pub(crate) human: Style,
    /// Names of agents.
    pub(crate) agent: Style,
    /// Code in Markdown.
    pub(crate) code: Style,
    /// The label before a line of standard output.
    pub(crate) stdout: Style,
    /// The label before a line of standard error.
    pub(crate) stderr: Style,
    /// The frame and mark of the part with the focus.
    pub(crate) focused: Style,
    /// The frame of a part without the focus.
    pub(crate) unfocused: Style,
    /// The selected candidate, and labels that must be noticed.
    pub(crate) selected: Style,
    /// A match of a search.
    pub(crate) search_match: Style,
    /// Names of keys.
    pub(crate) key: Style,
}

impl Theme {
    pub(crate) fn new(palette: Palette) -> Self {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let colour = |normal: Color, bright: Color| match palette {
            Palette::Colour => plain.fg(normal),
            Palette::HighContrast => bold.fg(bright),
            Palette::None => plain,
        };
        let muted = match palette {
            Palette::Colour => plain.fg(Color::DarkGray),
            Palette::HighContrast => plain,
            Palette::None => plain.add_modifier(Modifier::DIM),
        };
        let reversed = plain.add_modifier(Modifier::REVERSED);
        Self {
            palette,
            plain,
            muted,
            strong: bold,
            title: bold,
            success: colour(Color::Green, Color::LightGreen),
            warning: colour(Color::Yellow, Color::LightYellow).add_modifier(Modifier::BOLD),
            error: colour(Color::Red, Color::LightRed).add_modifier(Modifier::BOLD),
            human: colour(Color::Blue, Color::LightBlue).add_modifier(Modifier::BOLD),
            agent: colour(Color::Magenta, Color::LightMagenta).add_modifier(Modifier::BOLD),
            code: colour(Color::Yellow, Color::LightYellow),
            stdout: colour(Color::Cyan, Color::LightCyan),
            stderr: colour(Color::Red, Color::LightRed),
            focused: match palette {
                Palette::Colour => plain.fg(Color::Cyan).add_modifier(Modifier::BOLD),
                Palette::HighContrast => bold.fg(Color::White),
                Palette::None => bold,
            },
            unfocused: muted,
            selected: reversed,
            search_match: reversed,
            key: bold,
        }
    }

    pub(crate) fn output_stream(&self, stream: OutputStream) -> Style {
        match stream {
            OutputStream::Stdout => self.stdout,
            OutputStream::Stderr => self.stderr,
        }
    }

    pub(crate) fn category(&self, category: Category) -> Style {
        match category {
            Category::Read => self.success,
            Category::Write => self.warning,
            Category::Destructive | Category::Blocked => self.error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_high_contrast_nothing_is_dim() {
        let theme = Theme::new(Palette::HighContrast);
        for style in [
            theme.muted,
            theme.unfocused,
            theme.stdout,
            theme.stderr,
            theme.focused,
        ] {
            assert_ne!(style.fg, Some(Color::DarkGray));
            assert!(!style.add_modifier.contains(Modifier::DIM));
        }
    }
}
