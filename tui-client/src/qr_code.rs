//! Draws a text as a QR code made of block characters.

use qrcode::{Color, EcLevel, QrCode};

/// Light modules around a QR code, without which cameras do not find it.
const QUIET_ZONE: usize = 2;

/// What the characters of a QR code are drawn on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QrBackground {
    /// White, with black characters.
    Light,
    /// That of a dark terminal, with light characters.
    Dark,
}

/// The lines of a QR code, two rows of modules in each; `None` if the text is too long for one.
pub fn draw(text: &str, background: QrBackground) -> Option<Vec<String>> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    let (modules, width) = (code.to_colors(), code.width());
    let is_dark = |x: usize, y: usize| {
        let inside = |at: usize| at.checked_sub(QUIET_ZONE).filter(|at| *at < width);
        match (inside(x), inside(y)) {
            (Some(x), Some(y)) => modules[y * width + x] == Color::Dark,
            _ => false,
        }
    };
    let size = width + 2 * QUIET_ZONE;
    let is_filled = |x, y| is_dark(x, y) == (background == QrBackground::Light);
    let line = |y: usize| {
        (0..size)
            .map(|x| match (is_filled(x, y), is_filled(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            })
            .collect()
    };
    Some((0..size).step_by(2).map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qr_code_is_drawn_with_its_margin() {
        let lines = draw("http://h/", QrBackground::Dark).unwrap();
        let lines: Vec<Vec<char>> = lines.iter().map(|line| line.chars().collect()).collect();
        let size = lines[0].len();
        assert_eq!(lines.len(), size.div_ceil(2));
        assert!(lines.iter().all(|line| line.len() == size));
        // The margin is light, and the finder pattern in the corner begins with a dark row.
        assert!(lines[0].iter().all(|c| *c == '█'));
        let corner: String = lines[1][..10].iter().collect();
        assert_eq!(corner, "██ ▄▄▄▄▄ █");
        let on_light = draw("http://h/", QrBackground::Light).unwrap();
        assert!(on_light[0].chars().all(|c| c == ' '));
        assert!(draw(&"x".repeat(5000), QrBackground::Light).is_none());
    }
}
