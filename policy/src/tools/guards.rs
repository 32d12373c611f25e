//! Keeps an agent's tools away from guarded paths and from hosts that not all the world reaches.

use pvp_protocol::{Category, FileTool, Risk};

use super::kind::{CallKind, ReadKind};
use super::{
    JudgedCall, MAX_PATH_BYTES, MAX_PATHS, MAX_SEARCHED_BYTES, may_be_path, shown, texts_meant,
};
use crate::assess::{Assessor, held_reason, possible_names, whole_home_read};
use crate::guarded_paths::{Access, Guard, guard_in, guard_of, may_name_guarded, path_of_text};
use crate::held_files::{Reach, reach};
use crate::paths::ResolvedPath;
use crate::verdict::CommandVerdict;

impl JudgedCall<'_> {
    /// Blocks a call that touches a guarded path in a way that it is guarded against, and notes one
    /// that is only mentioned.
    pub(super) fn guard_verdict(&self, assessor: &mut Assessor<'_>) -> Option<CommandVerdict> {
        let access = self.access()?;
        let of_path = |path: &ResolvedPath| match access {
            Access::Read => guard_of(path, self.place.workspace),
            Access::Write => guard_in(path, self.place.workspace),
        };
        let paths = self.paths.iter();
        let mut paths = paths.filter_map(|path| Some((of_path(&path.resolved)?, path.text)));
        let by_path = paths.find(|(guard, _)| guard.forbids(access));
        let whole =
            |text: &&&str| text.len() <= MAX_PATH_BYTES && !text.contains(char::is_whitespace);
        let mut texts = self.texts.iter().filter(whole).take(MAX_PATHS);
        let mut by_text = || {
            texts.find_map(|text| {
                let guard = self.guard_of_text(text, &of_path)?;
                guard.forbids(access).then_some((guard, *text))
            })
        };
        if let Some((guard, text)) = by_path.or_else(&mut by_text) {
            return Some(CommandVerdict::new(
                Category::Blocked,
                Risk::Critical,
                guard.rule(),
                &guard.reason(&shown(text)),
            ));
        }
        assessor.notes.extend(self.mentioned_guard());
        self.held_files_verdict(assessor)
    }

    /// The verdict on a call that reaches files of PVP through a directory that holds them, or
    /// through a pattern. Searches show what is in them.
    fn held_files_verdict(&self, assessor: &mut Assessor<'_>) -> Option<CommandVerdict> {
        let (searches, only_reads) = match &self.kind {
            CallKind::ClientRead(ReadKind::Content) => (true, true),
            CallKind::ClientRead(ReadKind::Files) => (false, true),
            CallKind::Mcp { .. } | CallKind::Other => (false, false),
            CallKind::File(_)
            | CallKind::ClientWrite
            | CallKind::Patch(_)
            | CallKind::Fetch
            | CallKind::WebSearch
            | CallKind::Subagent(_)
            | CallKind::Stdin { .. } => return None,
        };
        let paths = self
            .paths
            .iter()
            .map(|path| (path.resolved.clone(), path.text));
        let texts = self
            .texts
            .iter()
            .filter(|text| text.len() <= MAX_PATH_BYTES);
        let texts = texts.filter(|text| may_be_path(text)).take(MAX_PATHS);
        let of_text = |text: &&&'_ str| {
            let directory = &self.place.directory;
            path_of_text(text, text.starts_with('~'), directory)
        };
        let texts = texts.map(|text| (of_text(&text), *text));
        let verdicts = paths.chain(texts).filter_map(|(path, text)| {
            let shown = shown(text);
            match reach(&path, self.place.workspace)? {
                Reach::Pattern => Some(self.holds_own_files(&shown)),
                Reach::NearOwnFiles if searches => Some(self.holds_own_files(&shown)),
                Reach::Home if !only_reads => None,
                Reach::NearOwnFiles | Reach::Home => {
                    assessor.notes.insert(Guard::OwnFiles.note(&shown));
                    let read = whole_home_read(&shown);
                    Some(match only_reads {
                        true => read,
                        false => read.not_only_reading(),
                    })
                }
                Reach::System => None,
            }
        });
        let verdicts: Vec<_> = verdicts.collect();
        verdicts.into_iter().reduce(CommandVerdict::max)
    }

    fn holds_own_files(&self, shown: &str) -> CommandVerdict {
        CommandVerdict::new(
            Category::Blocked,
            Risk::Critical,
            Guard::OwnFiles.rule(),
            &held_reason(shown),
        )
    }

    /// What the call does with what it names; `None` if it only passes on texts.
    fn access(&self) -> Option<Access> {
        match &self.kind {
            CallKind::File(FileTool::Read { .. }) | CallKind::ClientRead(_) | CallKind::Fetch => {
                Some(Access::Read)
            }
            CallKind::File(FileTool::Write { .. } | FileTool::Edit { .. })
            | CallKind::ClientWrite
            | CallKind::Patch(_) => Some(Access::Write),
            CallKind::Mcp { .. } | CallKind::Other => {
                match self.kind.is_named_like_a_read(self.name) {
                    true => Some(Access::Read),
                    false => Some(Access::Write),
                }
            }
            CallKind::WebSearch | CallKind::Subagent(_) | CallKind::Stdin { .. } => None,
        }
    }

    fn guard_of_text(
        &self,
        text: &str,
        of_path: &impl Fn(&ResolvedPath) -> Option<Guard>,
    ) -> Option<Guard> {
        texts_meant(text).iter().find_map(|text| {
            let text = text.strip_prefix("file://").unwrap_or(text);
            of_path(&path_of_text(
                text,
                text.starts_with('~'),
                &self.place.directory,
            ))
        })
    }

    /// A note on the first guarded path that a longer text names.
    fn mentioned_guard(&self) -> Option<String> {
        let length: usize = self.texts.iter().map(|text| text.len()).sum();
        if length > MAX_SEARCHED_BYTES {
            return None;
        }
        let mut texts = self.texts.iter().filter(|text| may_name_guarded(text));
        texts.find_map(|text| {
            possible_names(text).find_map(|name| {
                let path = path_of_text(name, name.starts_with('~'), &self.place.directory);
                let guard = guard_in(&path, self.place.workspace)?;
                Some(guard.note(&shown(name)))
            })
        })
    }

    /// The verdict on a call that names a host that not all the world reaches: there, whoever is
    /// inside counts as trusted.
    pub(super) fn private_host_verdict(&self) -> Option<CommandVerdict> {
        let does = match &self.kind {
            CallKind::Fetch => "fetches from",
            CallKind::Mcp { .. } | CallKind::Other => "names",
            CallKind::File(_)
            | CallKind::ClientRead(_)
            | CallKind::ClientWrite
            | CallKind::Patch(_)
            | CallKind::WebSearch
            | CallKind::Subagent(_)
            | CallKind::Stdin { .. } => return None,
        };
        let mut addresses = self.addresses.iter();
        let (host, kind) = addresses.find_map(|address| address.private_host())?;
        let reason = format!("{does} `{}`, which is {kind}", shown(host));
        Some(CommandVerdict::write(
            Risk::High,
            "client.fetch-private",
            &reason,
        ))
    }
}
