//! Whether a command only reads, and only what may be read without asking.

use pvp_protocol::{Category, Risk};

use super::Judge;
use crate::data::Operands;
use crate::environment::is_harmless;
use crate::opinion::Opinion;
use crate::place::{Path, Reach, Root};
use crate::reads::Read;
use crate::table::Origin;
use crate::walk::Part;
use crate::word::Word;

impl Judge<'_> {
    /// A read, or a more telling reason why not. A user's own read rules also lower a plain write.
    pub(super) fn read(
        &mut self,
        first: &Word,
        part: &Part,
        ruled: bool,
    ) -> Result<Opinion, Option<Opinion>> {
        let name = first.as_literal().ok_or(None)?;
        let arguments = self.without_globals(&name, &part.words[1..]);
        let mut refusal = None;
        for (read, origin) in self.table.reads_of(&name) {
            let subcommand = &read.words[1..];
            let Some(rest) =
                arguments
                    .split_at_checked(subcommand.len())
                    .and_then(|(head, rest)| {
                        let same = head
                            .iter()
                            .zip(subcommand)
                            .all(|(word, expected)| word.as_literal().as_ref() == Some(expected));
                        same.then_some(rest)
                    })
            else {
                continue;
            };
            let beats_write = *origin == Origin::User || read.data.beats_write;
            if ruled && (!beats_write || part.assignments.iter().any(harmful)) {
                continue;
            }
            match read.check(rest) {
                Ok(paths) => return self.reached(read, paths, part).map_err(Some),
                Err(reason) => {
                    refusal.get_or_insert_with(|| not_a_read(&name, &reason));
                }
            }
        }
        Err(refusal)
    }

    /// The arguments without flags that may stand before a subcommand.
    fn without_globals(&self, name: &str, words: &[Word]) -> Vec<Word> {
        let Some(tool) = self.table.tools.get(name) else {
            return words.to_vec();
        };
        let has = |list: &str, flag: &str| list.split_whitespace().any(|it| it == flag);
        let mut rest = words;
        let mut paths = Vec::new();
        while let Some(word) = rest.first() {
            let text = word.as_literal().unwrap_or_default();
            let flag = text.split('=').next().unwrap_or_default();
            let attached = flag.len() < text.len();
            if has(&tool.flags, &text) || (attached && has(&tool.value_flags, flag)) {
                rest = &rest[1..];
            } else if has(&tool.value_flags, &text) && rest.len() > 1 {
                if has(&tool.path_flags, &text) {
                    paths.push(rest[1].clone());
                }
                rest = &rest[2..];
            } else {
                break;
            }
        }
        let near = |word: &Word| {
            let path = Path::new(Root::Workspace).resolve(word);
            word.as_literal().is_some() && path.root == Root::Workspace
        };
        if paths.iter().all(near) {
            rest.to_vec()
        } else {
            words.to_vec()
        }
    }

    /// A read, if everything it would open may be read without asking.
    fn reached(&mut self, read: &Read, paths: Vec<Word>, part: &Part) -> Result<Opinion, Opinion> {
        let here = [Word::literal(".")];
        let paths = if paths.is_empty() {
            &here[..]
        } else {
            &paths[..]
        };
        self.near(paths, &part.bases, read.data.text)?;
        if read.data.operands == Operands::Pattern {
            self.not_everything(paths, &part.bases)?;
        }
        self.matched.insert(read.id.clone());
        let mut opinion = Opinion::new(Category::Read, Risk::Safe, &read.id, &read.data.reason);
        opinion.profile = read.profile();
        Ok(opinion)
    }

    pub(super) fn near(
        &mut self,
        paths: &[Word],
        bases: &[Path],
        text: bool,
    ) -> Result<(), Opinion> {
        if text {
            return Ok(());
        }
        for word in paths.iter().filter(|word| word.text() != "-") {
            for base in bases {
                self.reach(&base.resolve(word))?;
            }
        }
        Ok(())
    }

    /// A search through a whole system directory also finds what is secret there.
    fn not_everything(&self, paths: &[Word], bases: &[Path]) -> Result<(), Opinion> {
        let whole =
            |path: &Path| path.root == Root::Slash && matches!(path.names.as_slice(), [] | [_]);
        let mut places = paths
            .iter()
            .flat_map(|word| bases.iter().map(|base| base.resolve(word)));
        match places.find(whole) {
            Some(path) => {
                let reason = format!("searches all of `{path}`, where secrets may be");
                Err(Opinion::write(Risk::Medium, "path.secret", &reason))
            }
            None => Ok(()),
        }
    }

    fn reach(&mut self, path: &Path) -> Result<(), Opinion> {
        match self.place.reach(path) {
            Reach::Near => Ok(()),
            Reach::Outside(path) => {
                self.notes.insert(format!("outside the workspace: {path}"));
                let reason = format!("reads `{path}`, which is outside the workspace");
                Err(Opinion::write(Risk::Low, "path.outside", &reason))
            }
            Reach::Secret(path) => {
                self.notes.insert(format!("may hold secrets: {path}"));
                let reason = format!("reads `{path}`, which may hold secrets");
                Err(Opinion::write(Risk::High, "path.secret", &reason))
            }
        }
    }
}

fn not_a_read(name: &str, reason: &str) -> Opinion {
    let reason = format!("`{name}`: {reason}");
    Opinion::write(Risk::Low, "default.arguments", &reason)
}

fn harmful((name, value): &(String, Word)) -> bool {
    !value
        .as_literal()
        .is_some_and(|value| is_harmless(name, &value))
}
