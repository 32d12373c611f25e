//! A path in a call's arguments, seen from the directory that the call works in.

use crate::paths::{PathRoot, ResolvedPath, Workspace};

/// Where a call works.
#[derive(Debug, Clone)]
pub(super) struct PathPlace<'a> {
    pub(super) workspace: &'a Workspace,
    /// What relative paths start from.
    pub(super) directory: ResolvedPath,
    /// Whether it is certain which directory that is. What a `..` leads to depends on links.
    is_certain: bool,
    /// Whether a path is exactly the text that names it.
    is_literal: bool,
}

impl<'a> PathPlace<'a> {
    pub(super) fn new(workspace: &'a Workspace, cwd: Option<&str>) -> Self {
        Self {
            workspace,
            directory: workspace.resolve_cwd(cwd),
            is_certain: cwd.is_none_or(|cwd| !cwd.starts_with('~') && !has_parent(cwd)),
            is_literal: true,
        }
    }

    /// The same place for a tool of another program, which may take a path for something else than
    /// its text says.
    pub(super) fn of_foreign_tool(self) -> Self {
        Self {
            is_literal: false,
            ..self
        }
    }
}

/// A path in the arguments.
pub(super) struct JudgedPath<'a> {
    /// As it is written.
    pub(super) text: &'a str,
    pub(super) resolved: ResolvedPath,
    /// From the workspace; the whole path if it is elsewhere.
    pub(super) relative: String,
    /// Whether it is certain to be in the workspace, unless a link leads out of it.
    pub(super) is_inside: bool,
    /// Whether it is certain to be the workspace itself.
    pub(super) is_workspace: bool,
}

impl<'a> JudgedPath<'a> {
    pub(super) fn new(text: &'a str, place: &PathPlace<'_>) -> Self {
        let workspace = place.workspace;
        // Claude Code searches in ` /x` as in `/x`.
        let meant = match place.is_literal {
            true => text,
            false => text.trim_matches(is_cut_off),
        };
        // A tool may take `~` for a home, as a shell does.
        let resolved = match meant.strip_prefix('~') {
            Some(rest) => ResolvedPath::new(PathRoot::Home).join(rest.trim_start_matches('/')),
            None => place.directory.join(meant),
        };
        let is_exact = place.is_literal || meant == text && text.chars().all(is_composed);
        let certain = !text.is_empty()
            && is_exact
            && !has_parent(text)
            && (place.is_certain || text.starts_with('/'));
        let root = workspace.resolve_cwd(None);
        let is_in = workspace.contains(&resolved);
        let relative = match is_in {
            true => resolved.components[root.components.len()..].join("/"),
            false => resolved.to_string(),
        };
        Self {
            text,
            relative,
            is_inside: certain && is_in && resolved != root,
            is_workspace: certain && resolved == root,
            resolved,
        }
    }
}

fn has_parent(path: &str) -> bool {
    path.split('/').any(|name| name == "..")
}

/// Whether a client may leave this character out at the ends of a path, as JavaScript does.
fn is_cut_off(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
}

/// Whether the canonical composition of Unicode, which a client may make of a path before it opens
/// it, leaves this character as it is: most letters that people write names with.
fn is_composed(c: char) -> bool {
    c.is_ascii()
        || matches!(c,
            // Latin, Greek and Cyrillic, without accents of their own.
            '\u{a1}'..='\u{2ff}' | '\u{388}'..='\u{482}' | '\u{48a}'..='\u{52f}'
            // Hebrew, Arabic, Devanagari and Thai.
            | '\u{5d0}'..='\u{5ea}' | '\u{620}'..='\u{64a}' | '\u{904}'..='\u{939}' | '\u{e01}'..='\u{e30}'
            // Japanese, Chinese and Korean.
            | '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fe}' | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}'
            // Dashes, quotation marks and pictures.
            | '\u{2010}'..='\u{2027}' | '\u{1f300}'..='\u{1faff}'
        )
}
