//! Checks that a `sed` script only prints.

use crate::read_rules::CheckedArguments;
use crate::source_text::SourceText;
use crate::word::ShellWord;

/// Every script must parse to its end without `w`, `e`, `r` or anything unknown.
pub(super) fn check(checked: &mut CheckedArguments) -> Result<(), String> {
    let mut scripts: Vec<ShellWord> = checked.values(&["e", "expression"]).cloned().collect();
    if scripts.is_empty() {
        scripts.extend(checked.operands.first().cloned());
    }
    for script in &scripts {
        let text = script.as_literal().ok_or("its script is not known")?;
        let mut parser = SedParser { rest: &text };
        if parser.script().is_none() || !parser.rest.is_empty() {
            return Err(format!("sed script `{text}` may write or run something"));
        }
    }
    if scripts.is_empty() {
        return Err("there is no script".to_owned());
    }
    Ok(())
}

struct SedParser<'a> {
    rest: &'a str,
}

impl SedParser<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = self.rest.part(c.len_utf8()..);
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip(&mut self, set: &str) {
        self.rest = self.rest.trim_start_matches(|c| set.contains(c));
    }

    fn digits(&mut self) -> bool {
        let before = self.rest.len();
        self.rest = self.rest.trim_start_matches(|c: char| c.is_ascii_digit());
        self.rest.len() < before
    }

    fn script(&mut self) -> Option<()> {
        loop {
            self.skip(" \t\n;{}");
            if self.rest.is_empty() {
                return Some(());
            }
            self.addresses()?;
            self.skip(" \t!");
            if self.peek() == Some('{') {
                continue;
            }
            self.command()?;
            self.skip(" \t");
            match self.peek() {
                None | Some(';' | '\n' | '}' | '{') => {}
                Some(_) => return None,
            }
        }
    }

    fn addresses(&mut self) -> Option<()> {
        if self.address()? {
            self.skip(" ");
            if self.peek() == Some(',') {
                self.next();
                self.skip(" +~");
                self.address()?.then_some(())?;
            }
        }
        Some(())
    }

    /// Skips an address. Returns whether there was one, and `None` if it does not end.
    fn address(&mut self) -> Option<bool> {
        match self.peek() {
            Some('$') => {
                self.next();
                Some(true)
            }
            Some('/') => {
                self.next();
                self.skip_past('/')?;
                self.skip("IM");
                Some(true)
            }
            Some(c) if c.is_ascii_digit() => {
                self.digits();
                if self.peek() == Some('~') {
                    self.next();
                    self.digits();
                }
                Some(true)
            }
            Some(_) | None => Some(false),
        }
    }

    /// Skips to the next delimiter that is not escaped. A delimiter in brackets ends the pattern in
    /// some versions of sed and not in others, so it is refused.
    fn skip_past(&mut self, delimiter: char) -> Option<()> {
        let mut bracket = false;
        loop {
            match self.next()? {
                '\\' => {
                    self.next()?;
                }
                '[' => {
                    bracket |= !self.rest.starts_with(':');
                    self.bracket(bracket)?;
                }
                ']' => bracket = false,
                '\n' => return None,
                c if c == delimiter && bracket => return None,
                c if c == delimiter => return Some(()),
                _ => {}
            }
        }
    }

    /// Skips the start of a bracket expression, unless versions of sed differ on its meaning.
    fn bracket(&mut self, open: bool) -> Option<()> {
        if self.rest.starts_with(':') {
            let end = self.rest.part(1..).find(":]")? + 3;
            let name = self.rest.part(1..end - 2);
            self.rest = self.rest.part(end..);
            return (open && name.bytes().all(|b| b.is_ascii_alphabetic())).then_some(());
        }
        self.rest = self.rest.strip_prefix('^').unwrap_or(self.rest);
        (!self.rest.starts_with([']', '.', '='])).then_some(())
    }

    fn command(&mut self) -> Option<()> {
        match self.next()? {
            'p' | 'P' | '=' | 'd' | 'D' | 'n' | 'N' | 'g' | 'G' | 'h' | 'H' | 'x' | 'F' | 'z' => {
                Some(())
            }
            'q' | 'Q' | 'l' => {
                self.skip(" ");
                self.digits();
                Some(())
            }
            's' => self.substitution(),
            'y' => {
                let delimiter = self.delimiter()?;
                self.skip_past(delimiter)?;
                self.skip_past(delimiter)
            }
            _ => None,
        }
    }

    fn delimiter(&mut self) -> Option<char> {
        self.next().filter(|c| "/|#,:@!%_+~=^".contains(*c))
    }

    fn substitution(&mut self) -> Option<()> {
        let delimiter = self.delimiter()?;
        self.skip_past(delimiter)?;
        self.replacement(delimiter)?;
        self.skip("gpiI0123456789");
        Some(())
    }

    /// Skips a replacement, in which brackets have no meaning.
    fn replacement(&mut self, delimiter: char) -> Option<()> {
        loop {
            match self.next()? {
                '\\' => {
                    self.next()?;
                }
                '\n' => return None,
                c if c == delimiter => return Some(()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(script: &str) -> bool {
        let mut checked = CheckedArguments {
            operands: vec![ShellWord::literal(script)],
            ..CheckedArguments::default()
        };
        check(&mut checked).is_ok()
    }

    #[test]
    fn printing_scripts_pass() {
        for script in [
            "p",
            "5p",
            "1,5p",
            "$p",
            "/a/p",
            "/a/,/b/p",
            "1~2p",
            "2,+3p",
            "s/a/b/",
            "s/a/b/gp",
            "s|a/b|c|g",
            "/x/d",
            "1d;2d",
            "1,3{p;d}",
            "/^$/d",
            "s/[0-9]*//",
            "s/[^a-z]*//",
            "s/[[:space:]]*$//",
            "5q",
            "$!d",
            "=",
            "y/abc/xyz/",
            "/a\\/b/p",
            "s/a/[b/",
            "1!G;h;$!d",
            "",
        ] {
            assert!(passes(script), "{script}");
        }
    }

    #[test]
    fn scripts_that_write_run_or_are_ambiguous_do_not() {
        for script in [
            "w x",
            "1w x",
            "s/a/b/w x",
            "s/a/b/e",
            "s/a/b/gw x",
            "e",
            "1e ls",
            "e ls",
            "r /etc/x",
            "W x",
            "R x",
            "a\\\ntext",
            "s/a/b",
            "/a",
            "s/[/]/w x/",
            "p\nw x",
            "p;e",
            "p}e",
            "s/a/b/;w x",
            "\\cacp",
            "b;w x",
            ":a;w x",
            "sewexex",
            "y/a/b/;e",
            "s/a/b/ge",
            "v 4.2;e",
            "i\\x",
            "c x",
            "s/[]/]/p;/w x;/p",
            "s/[[.a.]/]/b/",
            "s/[^]/]/p;/w x;/p",
            "s/a/b/m;e",
            "M",
        ] {
            assert!(!passes(script), "{script}");
        }
    }
}
