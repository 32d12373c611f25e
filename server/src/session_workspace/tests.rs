//! Directories of sessions, with the in-memory store and real files.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::store::memory::MemoryStore;

fn workspaces_in(data: &Path) -> SessionWorkspaces {
    SessionWorkspaces::new(&ServerConfig {
        data: Some(data.to_owned()),
        ..ServerConfig::default()
    })
}

fn owl() -> SessionId {
    SessionId::parse("owl").unwrap()
}

fn path_of(data: &Path) -> PathBuf {
    data.join("workspaces").join(workspace_name(&owl()))
}

#[tokio::test]
async fn only_the_owner_may_enter_a_directory_and_a_discarded_one_is_gone() {
    let data = tempfile::tempdir().unwrap();
    let (workspaces, store) = (workspaces_in(data.path()), MemoryStore::default());
    let made = workspaces.make(&store, &owl()).await.unwrap().unwrap();
    for directory in [data.path().join("workspaces"), path_of(data.path())] {
        let mode = directory.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", directory.display());
    }
    made.discard().await;
    assert!(!path_of(data.path()).exists());
    // An empty one that a killed server left is used.
    std::fs::create_dir(path_of(data.path())).unwrap();
    assert!(workspaces.make(&store, &owl()).await.unwrap().is_some());
}

#[tokio::test]
async fn what_another_put_in_its_place_is_not_used() {
    let victim = tempfile::tempdir().unwrap();
    std::fs::write(victim.path().join("file"), "x").unwrap();
    let store = MemoryStore::default();
    let refused = async |data: &Path| {
        let made = workspaces_in(data).make(&store, &owl()).await;
        made.err().unwrap().to_string()
    };
    // A link in the place of the directory, and in that of all of them.
    let data = tempfile::tempdir().unwrap();
    std::fs::create_dir(data.path().join("workspaces")).unwrap();
    symlink(victim.path(), path_of(data.path())).unwrap();
    assert!(refused(data.path()).await.contains("is not a directory"));
    let data = tempfile::tempdir().unwrap();
    symlink(victim.path(), data.path().join("workspaces")).unwrap();
    assert!(refused(data.path()).await.contains("is not a directory"));
    assert!(!victim.path().join(workspace_name(&owl())).exists());
    // Files of somebody else.
    let data = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(path_of(data.path()).join(".git")).unwrap();
    assert!(refused(data.path()).await.contains("is not empty"));
    // No directory at all.
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("workspaces"), "").unwrap();
    let problem = refused(data.path()).await;
    assert!(
        problem.contains("cannot make the session's working directory"),
        "{problem}"
    );
}

#[tokio::test]
async fn removing_stays_inside_and_follows_no_link() {
    let data = tempfile::tempdir().unwrap();
    let (workspaces, store) = (workspaces_in(data.path()), MemoryStore::default());
    let victim = tempfile::tempdir().unwrap();
    let file = victim.path().join("file");
    std::fs::write(&file, "x").unwrap();
    drop(workspaces.make(&store, &owl()).await.unwrap());
    let directory = path_of(data.path());
    std::fs::create_dir_all(directory.join("a/b")).unwrap();
    symlink(victim.path(), directory.join("a/b/directory")).unwrap();
    symlink(&file, directory.join("file")).unwrap();
    workspaces.remove(&owl()).await;
    let left = std::fs::read_dir(data.path().join("workspaces")).unwrap();
    assert_eq!(left.count(), 0);
    assert!(file.exists());
    // The directory itself was exchanged for a link, then that of all.
    symlink(victim.path(), &directory).unwrap();
    workspaces.remove(&owl()).await;
    assert!(directory.symlink_metadata().is_err());
    assert!(file.exists());
    std::fs::remove_dir(data.path().join("workspaces")).unwrap();
    let inside = victim.path().join(workspace_name(&owl()));
    std::fs::create_dir(&inside).unwrap();
    symlink(victim.path(), data.path().join("workspaces")).unwrap();
    workspaces.remove(&owl()).await;
    workspaces.remove_leftovers().await;
    assert!(inside.exists() && file.exists());
}

#[tokio::test]
async fn what_could_not_be_removed_is_removed_at_the_next_start() {
    let data = tempfile::tempdir().unwrap();
    let root = data.path().join("workspaces");
    let (left, kept) = (root.join("deleted-0123"), root.join("0123"));
    std::fs::create_dir_all(left.join("a")).unwrap();
    std::fs::create_dir_all(kept.join("a")).unwrap();
    workspaces_in(data.path()).remove_leftovers().await;
    assert!(!left.exists());
    assert!(kept.join("a").exists());
}

#[tokio::test]
async fn one_creator_of_a_session_waits_for_another() {
    let data = tempfile::tempdir().unwrap();
    let (workspaces, store) = (workspaces_in(data.path()), MemoryStore::default());
    let first = workspaces.make(&store, &owl()).await.unwrap().unwrap();
    // The first may still discard it.
    assert!(workspaces.lock(&owl()).try_lock().is_err());
    let owl = owl();
    let (second, ()) = tokio::join!(workspaces.make(&store, &owl), first.discard());
    assert!(second.unwrap().is_some());
    assert!(path_of(data.path()).exists());
}
