//! Finds what no command that runs without approval may read: links, keys, journals.

use std::path::{Path, PathBuf};

use pvp_client::user_directories;

use crate::executor::ExecutorSettings;

/// What earlier versions left in the workspace: links, and the data of a server.
const FORMER_PLACES: &[&str] = &[".pvp", "pvp-data"];

/// The database of a server, by which its data directory is recognised.
const DATABASE: &str = "pvp.sqlite3";

/// Where in its data a server keeps the directory that each session has for itself.
const SESSION_DIRECTORIES: &str = "workspaces";

/// Everything private that an executor knows of, as absolute paths, whether or not it exists.
pub(crate) fn private_paths(settings: &ExecutorSettings) -> Vec<PathBuf> {
    let mut paths = user_directories::private_paths();
    paths.push(settings.state_directory.clone());
    paths.extend(settings.private_paths.iter().cloned());
    let workspace = &settings.workspace;
    paths.extend(FORMER_PLACES.iter().map(|name| workspace.join(name)));
    paths.extend(data_directories_in(workspace));
    let absolute = paths.iter().map(std::path::absolute);
    absolute.filter_map(Result::ok).collect()
}

/// Data directories that lie directly in the workspace, whoever runs their server.
fn data_directories_in(workspace: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(workspace).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join(DATABASE).exists())
        .collect()
}

/// Refuses a workspace that is itself private, because its commands could read nothing of it, and
/// one in a server's data, unless it is in the directory of one session.
pub(crate) fn check_workspace(settings: &ExecutorSettings) -> anyhow::Result<()> {
    let workspace = &settings.workspace;
    let real_path = workspace.canonicalize().ok();
    let is_workspace =
        |path: &PathBuf| real_path.is_some() && path.canonicalize().ok() == real_path;
    anyhow::ensure!(
        !private_paths(settings).iter().any(is_workspace) && !workspace.join(DATABASE).exists(),
        "cannot work in {}: it contains links, keys or a server's data; choose another workspace",
        workspace.display()
    );
    anyhow::ensure!(
        !real_path.is_some_and(|path| lies_in_data(&path)),
        "cannot work in {}: it lies in a server's data; choose another workspace, or the directory of one session below `{SESSION_DIRECTORIES}`",
        workspace.display()
    );
    Ok(())
}

/// Whether a directory lies in a server's data, and not in the directory that one session has for
/// itself.
fn lies_in_data(directory: &Path) -> bool {
    let mut above = directory.ancestors().skip(1);
    let Some(data) = above.find(|above| above.join(DATABASE).exists()) else {
        return false;
    };
    let sessions = data.join(SESSION_DIRECTORIES);
    directory == sessions || !directory.starts_with(sessions)
}
