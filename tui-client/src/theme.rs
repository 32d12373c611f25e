//! How things look. Colour only repeats what a word or a mark says already.

use pvp_protocol::Category;
use pvp_protocol::payload::OutputStream;
use ratatui::style::{Color, Modifier, Style};

/// Which colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Palette {
    #[default]
    Colour,
    /// Bright colours on the terminal's own ground, nothing dim.
    HighContrast,
    /// None at all; what matters is bold, underlined or reversed.
    None,
}

impl Palette {
    /// The palette of this name.
    pub fn named(name: &str) -> Option<Self> {
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
    pub(crate) palette: Palette,
    pub(crate) plain: Style,
    pub(crate) quiet: Style,
    pub(crate) strong: Style,
    pub(crate) title: Style,
    pub(crate) good: Style,
    pub(crate) warning: Style,
    pub(crate) bad: Style,
    pub(crate) person: Style,
    pub(crate) agent: Style,
    pub(crate) code: Style,
    pub(crate) stdout: Style,
    pub(crate) stderr: Style,
    pub(crate) focused: Style,
    pub(crate) unfocused: Style,
    pub(crate) selected: Style,
    pub(crate) found: Style,
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
        let quiet = match palette {
            Palette::Colour => plain.fg(Color::DarkGray),
            Palette::HighContrast => plain,
            Palette::None => plain.add_modifier(Modifier::DIM),
        };
        let reversed = plain.add_modifier(Modifier::REVERSED);
        Self {
            palette,
            plain,
            quiet,
            strong: bold,
            title: bold,
            good: colour(Color::Green, Color::LightGreen),
            warning: colour(Color::Yellow, Color::LightYellow).add_modifier(Modifier::BOLD),
            bad: colour(Color::Red, Color::LightRed).add_modifier(Modifier::BOLD),
            person: colour(Color::Blue, Color::LightBlue).add_modifier(Modifier::BOLD),
            agent: colour(Color::Magenta, Color::LightMagenta).add_modifier(Modifier::BOLD),
            code: colour(Color::Yellow, Color::LightYellow),
            stdout: colour(Color::Cyan, Color::LightCyan),
            stderr: colour(Color::Red, Color::LightRed),
            focused: match palette {
                Palette::Colour => plain.fg(Color::Cyan).add_modifier(Modifier::BOLD),
                Palette::HighContrast => bold.fg(Color::White),
                Palette::None => bold,
            },
            unfocused: quiet,
            selected: reversed,
            found: reversed,
            key: bold,
        }
    }

    pub(crate) fn stream(&self, stream: OutputStream) -> Style {
        match stream {
            OutputStream::Stdout => self.stdout,
            OutputStream::Stderr => self.stderr,
        }
    }

    pub(crate) fn category(&self, category: Category) -> Style {
        match category {
            Category::Read => self.good,
            Category::Write => self.warning,
            Category::Destructive | Category::Blocked => self.bad,
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
            theme.quiet,
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
