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
}

impl<'a> PathPlace<'a> {
    pub(super) fn new(workspace: &'a Workspace, cwd: Option<&str>) -> Self {
        Self {
            workspace,
            directory: workspace.resolve_cwd(cwd),
            is_certain: cwd.is_none_or(|cwd| !cwd.starts_with('~') && !has_parent(cwd)),
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
        // A tool may take `~` for a home, as a shell does.
        let resolved = match text.strip_prefix('~') {
            Some(rest) => ResolvedPath::new(PathRoot::Home).join(rest.trim_start_matches('/')),
            None => place.directory.join(text),
        };
        let certain =
            !text.is_empty() && !has_parent(text) && (place.is_certain || text.starts_with('/'));
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
