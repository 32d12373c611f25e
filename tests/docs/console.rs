//! Reads blocks of a page that show a terminal, and compares what they show with what is printed.

use std::collections::BTreeMap;

use regex::Regex;

/// A block of a page: commands behind `$ `, each with the lines it is said to print. Lines before the
/// first command are printed by a program that a block before it has started.
pub(crate) struct ConsoleBlock {
    pub(crate) continued: Vec<String>,
    pub(crate) commands: Vec<ConsoleCommand>,
}

pub(crate) struct ConsoleCommand {
    pub(crate) line: String,
    pub(crate) output: Vec<String>,
}

pub(crate) fn console_blocks(page: &str) -> Vec<ConsoleBlock> {
    let blocks = page.split("```console\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap());
    blocks.map(parse_block).collect()
}

fn parse_block(text: &str) -> ConsoleBlock {
    let mut block = ConsoleBlock {
        continued: Vec::new(),
        commands: Vec::new(),
    };
    for line in text.lines() {
        match (line.strip_prefix("$ "), block.commands.last_mut()) {
            (Some(command), _) => block.commands.push(ConsoleCommand {
                // What follows is for the reader.
                line: command.split("   #").next().unwrap().trim_end().to_owned(),
                output: Vec::new(),
            }),
            (None, Some(command)) => command.output.push(line.to_owned()),
            (None, None) => block.continued.push(line.to_owned()),
        }
    }
    block
}

/// What differs between two runs: the names on a page, and what they are in this run.
pub(crate) struct Placeholders {
    pattern: Regex,
    /// What a name on the page is in this run, once it was seen.
    values: BTreeMap<String, String>,
}

/// A kind of name that differs: how it is recognised on the page, and what may stand in its place.
const KINDS: &[(&str, &str)] = &[
    // The handle of a gate, and the short id of a command.
    (r"\b[0-9a-f]{6}@[0-9a-f]{6}\b", r"[0-9a-f]{6}@[0-9a-f]{6}"),
    (r"\bdemo-[0-9a-f]{4}\b", r"demo-[0-9a-f]{4}"),
    (
        r"\b(?:you|agent|approver)-[0-9a-f]{8}\b",
        r"[a-z_]+-[0-9a-f]{8}",
    ),
    (r"127\.0\.0\.1:3000\b", r"127\.0\.0\.1:\d+"),
    (r"/home/you\b", r"/\S+?"),
    (r"\b[0-9a-f]{6}\b", r"[0-9a-f]{6}"),
    (r"\b\d\d:\d\d:\d\d\b", r"\d\d:\d\d:\d\d"),
    (r"\b\d+\.\d s\b", r"\d+\.\d s"),
    (r"\b\d+:\d\d left\b", r"\d+:\d\d left"),
];

/// Kinds that differ each time they are printed.
const UNBOUND: &[&str] = &[
    r"\b\d\d:\d\d:\d\d\b",
    r"\b\d+\.\d s\b",
    r"\b\d+:\d\d left\b",
];

impl Placeholders {
    pub(crate) fn new() -> Self {
        let kinds: Vec<_> = KINDS.iter().map(|(page, _)| format!("({page})")).collect();
        Self {
            pattern: Regex::new(&format!("{}|(…)", kinds.join("|"))).unwrap(),
            values: BTreeMap::new(),
        }
    }

    /// The text with the names of this run.
    pub(crate) fn fill_in(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        for (name, value) in &self.values {
            filled = filled.replace(name, value);
        }
        filled
    }

    /// Whether a printed line is what the page shows; remembers the names that it sees first.
    pub(crate) fn matches(&mut self, shown: &str, printed: &str) -> bool {
        let mut pattern = "^".to_owned();
        let mut unknown = Vec::new();
        let mut end = 0;
        for found in self.pattern.captures_iter(shown) {
            let whole = found.get(0).unwrap();
            pattern += &regex::escape(&shown[end..whole.start()]);
            end = whole.end();
            let kind = KINDS
                .iter()
                .enumerate()
                .find(|(n, _)| found.get(n + 1).is_some());
            match (kind, self.values.get(whole.as_str())) {
                (None, _) => pattern += ".*",
                (Some(_), Some(value)) => pattern += &regex::escape(value),
                (Some((_, (page, run))), None) => {
                    pattern += &format!("({run})");
                    unknown.push((!UNBOUND.contains(page)).then(|| whole.as_str().to_owned()));
                }
            }
        }
        pattern += &regex::escape(&shown[end..]);
        let Some(found) = Regex::new(&(pattern + "$")).unwrap().captures(printed) else {
            return false;
        };
        for (name, value) in unknown.into_iter().zip(found.iter().skip(1)) {
            if let (Some(name), Some(value)) = (name, value) {
                self.values.insert(name, value.as_str().to_owned());
            }
        }
        true
    }

    /// Compares the lines of a page with those that were printed; `…` alone stands for any lines.
    /// Returns the first line of the page that was not printed.
    pub(crate) fn first_difference(&mut self, shown: &[String], printed: &str) -> Option<String> {
        let mut printed = printed.lines();
        let mut skipping = false;
        for line in shown {
            if line.trim() == "…" {
                skipping = true;
                continue;
            }
            let found = match skipping {
                true => printed.any(|one| self.matches(line, one.trim_end())),
                false => printed
                    .next()
                    .is_some_and(|one| self.matches(line, one.trim_end())),
            };
            if !found {
                return Some(line.clone());
            }
            skipping = false;
        }
        match printed.next() {
            Some(more) if !skipping => Some(format!("(nothing, but `{more}` was printed)")),
            Some(_) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_remembered_and_other_differences_are_found() {
        let mut names = Placeholders::new();
        let shown = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
        let page = "2bfd8c@9f8235  demo-89b9  write\n…\nlast after 0.1 s";
        let run = "aaaaaa@bbbbbb  demo-cccc  write\nx\ny\nlast after 7.5 s\n";
        assert_eq!(names.first_difference(&shown(page), run), None);
        assert_eq!(
            names.fill_in("pvp show 2bfd8c@9f8235"),
            "pvp show aaaaaa@bbbbbb"
        );
        for other in [
            "aaaaaa@bbbbbb  demo-dddd  write\nlast after 7.5 s\n",
            "aaaaaa@bbbbbb  demo-cccc  read\nlast after 7.5 s\n",
            "aaaaaa@bbbbbb  demo-cccc  write\nlast after 7.5 s\nmore\n",
            "",
        ] {
            assert!(
                names.first_difference(&shown(page), other).is_some(),
                "{other}"
            );
        }
    }

    #[test]
    fn a_block_has_commands_with_their_output() {
        let page =
            "x\n```console\nstill running\n$ pvp gates   # what waits\none\n$ pvp show\n```\ny";
        let blocks = console_blocks(page);
        assert_eq!(blocks.len(), 1);
        assert_eq!(blocks[0].continued, ["still running"]);
        assert_eq!(blocks[0].commands[0].line, "pvp gates");
        assert_eq!(blocks[0].commands[0].output, ["one"]);
        assert_eq!(blocks[0].commands[1].line, "pvp show");
    }
}
