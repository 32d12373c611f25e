//! A command's own cgroup: the kernel knows which processes are in it, limits them and kills them
//! at once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::sandbox::{CgroupController, CgroupLimits};

/// The prefix of the cgroups that are created here.
const NAME_PREFIX: &str = "pvp-run-";

/// The most rounds of killing what is in a cgroup. One is usually enough, but takes some time.
const MAX_KILL_ROUNDS: u32 = 5_000;

/// Time between two rounds.
const ROUND_DELAY: Duration = Duration::from_millis(1);

/// How many this process has created; one that probes which limits are available creates several.
static CREATED_COUNT: AtomicU32 = AtomicU32::new(0);

/// A cgroup that was created for one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a cgroup if permissions allow it, and removes those that dead reapers left behind.
    pub(super) fn create() -> Option<Self> {
        let parent = parent_directory()?;
        let namespace = pid_namespace()?;
        remove_stale(&parent, &namespace);
        let (reaper, number) = (
            std::process::id(),
            CREATED_COUNT.fetch_add(1, Ordering::Relaxed),
        );
        let name = format!("{NAME_PREFIX}{namespace}-{reaper}-{number}");
        let cgroup = Self(parent.join(name));
        std::fs::create_dir(&cgroup.0).ok()?;
        if !cgroup.is_usable(&parent) {
            cgroup.remove();
            return None;
        }
        Some(cgroup)
    }

    /// Whether a process may move into it from the parent, and the kernel can kill everything in it
    /// (since Linux 5.14).
    fn is_usable(&self, parent: &Path) -> bool {
        [parent, &self.0]
            .map(|cgroup| cgroup.join("cgroup.procs"))
            .into_iter()
            .chain([self.0.join("cgroup.kill")])
            .all(|file| access(&file, Access::WRITE_OK).is_ok())
    }

    /// Limits the processes that will be in it, as far as controllers are available.
    pub(super) fn set_limits(&self, limits: CgroupLimits) -> std::io::Result<()> {
        if let Some(parent) = self.0.parent() {
            enable_controllers(parent, limits.controllers());
        }
        limits.write_to(&self.0)
    }

    /// Moves this process into it.
    pub(super) fn enter(&self) -> std::io::Result<()> {
        std::fs::write(self.0.join("cgroup.procs"), "0")
    }

    /// Kills everything in it at once.
    pub(super) fn kill(&self) {
        // A cgroup that no longer exists has no processes.
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
    }

    /// The processes in it, and in cgroups that the command created below it.
    pub(super) fn members(&self) -> Vec<Pid> {
        let own = read_pids(&self.0.join("cgroup.procs"));
        let below = self
            .child_cgroups()
            .into_iter()
            .flat_map(|child| child.members());
        own.into_iter().chain(below).collect()
    }

    /// Removes it if it is empty; what cannot be removed is cleaned up later.
    pub(super) fn remove(&self) {
        for below in self.child_cgroups() {
            below.remove();
        }
        let _ = std::fs::remove_dir(&self.0);
    }

    /// Kills everything in it, waits until nothing is left, and removes it. For when its reaper was
    /// killed and cannot do it.
    pub(crate) fn kill_and_remove(&self) {
        for _ in 0..MAX_KILL_ROUNDS {
            self.kill();
            self.remove();
            if !self.0.exists() {
                return;
            }
            std::thread::sleep(ROUND_DELAY);
        }
    }

    fn child_cgroups(&self) -> Vec<Self> {
        let Ok(entries) = std::fs::read_dir(&self.0) else {
            return Vec::new();
        };
        entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| Self(entry.path()))
            .collect()
    }
}

/// The limits that can be set for a whole command here; `None` if a command gets no cgroup.
pub fn available_controllers() -> Option<Vec<CgroupController>> {
    let cgroup = Cgroup::create()?;
    if let Some(parent) = cgroup.0.parent() {
        enable_controllers(parent, CgroupController::ALL);
    }
    let available = CgroupController::ALL
        .into_iter()
        .filter(|controller| controller.is_available_in(&cgroup.0));
    let available = available.collect();
    cgroup.remove();
    Some(available)
}

/// The process ids that a file lists.
pub(super) fn read_pids(file: &Path) -> Vec<Pid> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|word| Pid::from_raw(word.parse().ok()?))
        .collect()
}

/// The directory in which cgroups are created: this process's own cgroup, or its parent if systemd
/// delegated that (`Delegate=yes` with `DelegateSubgroup=`), because the kernel sets no limits
/// inside a cgroup that has processes of its own.
fn parent_directory() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own_directory(&mounts, &cgroups)?;
    match own.parent() {
        Some(parent) if is_delegated(parent) => Some(parent.to_owned()),
        Some(_) | None => Some(own),
    }
}

fn is_delegated(cgroup: &Path) -> bool {
    let mut value = [0; 1];
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let length = rustix::fs::getxattr(cgroup, *name, &mut value);
        length == Ok(1) && value == *b"1"
    })
}

/// The directory of this process's cgroup (version 2), wherever that is mounted.
fn own_directory(mounts: &str, cgroups: &str) -> Option<PathBuf> {
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, mounted_at) = (fields.next()?, fields.next()?);
        if kind.split(' ').next()? != "cgroup2" {
            return None;
        }
        // A mount may show only a part of the tree.
        let below = Path::new(own)
            .strip_prefix(unescape_mount_path(root))
            .ok()?;
        Some(PathBuf::from(unescape_mount_path(mounted_at)).join(below))
    })
}

/// A path from mountinfo, with the octal escapes for spaces and the like resolved.
fn unescape_mount_path(path: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let plain = |path: String, (escape, character): (&str, &str)| path.replace(escape, character);
    escapes.into_iter().fold(path.to_owned(), plain)
}

/// Enables controllers for the cgroups below one, as far as possible.
fn enable_controllers(parent: &Path, controllers: impl IntoIterator<Item = CgroupController>) {
    let enabled = std::fs::read_to_string(parent.join("cgroup.subtree_control"));
    let enabled = enabled.unwrap_or_default();
    for controller in controllers {
        let name = controller.name();
        if enabled.split_whitespace().all(|other| other != name) {
            // This fails if the cgroup has processes of its own or lacks the controller.
            let _ = std::fs::write(parent.join("cgroup.subtree_control"), format!("+{name}"));
        }
    }
}

/// The namespace in which our process ids are valid.
fn pid_namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let name = link.to_str()?;
    Some(
        name.trim_matches(|character: char| !character.is_ascii_digit())
            .to_owned(),
    )
}

/// Kills and removes cgroups whose reapers are gone.
fn remove_stale(parent: &Path, namespace: &str) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        if let Some(reaper) = name.to_str().and_then(|name| reaper_pid(name, namespace))
            && test_kill_process(reaper) == Err(rustix::io::Errno::SRCH)
        {
            let stale = Cgroup(entry.path());
            stale.kill();
            stale.remove();
        }
    }
}

/// The id of the reaper that created a cgroup of this name, if it is one of ours.
fn reaper_pid(name: &str, namespace: &str) -> Option<Pid> {
    let rest = name.strip_prefix(NAME_PREFIX)?.strip_prefix(namespace)?;
    let (reaper, _) = rest.strip_prefix('-')?.split_once('-')?;
    Pid::from_raw(reaper.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    #[test]
    fn the_cgroup_is_found_wherever_it_is_mounted() {
        let hybrid = "\
            31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let found = own_directory(hybrid, "8:pids:/x\n0::/\n");
        assert_eq!(found.unwrap(), Path::new("/sys/fs/cgroup/unified"));
        let usual = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = own_directory(usual, "0::/user.slice/a.scope\n");
        let scope = Path::new("/sys/fs/cgroup/user.slice/a.scope");
        assert_eq!(found.unwrap(), scope);
        let part = "30 23 0:26 /docker/1 /mnt/c\\040g rw - cgroup2 cgroup2 rw\n";
        let found = own_directory(part, "0::/docker/1/child\n");
        assert_eq!(found.unwrap(), Path::new("/mnt/c g/child"));
        assert_eq!(own_directory(part, "0::/elsewhere\n"), None);
        assert_eq!(own_directory("", "0::/\n"), None);
        assert_eq!(own_directory(usual, "8:pids:/\n"), None);
    }

    #[test]
    fn a_delegated_cgroup_is_known_by_its_attribute() {
        let cgroup = tempfile::tempdir().unwrap();
        assert!(!is_delegated(cgroup.path()));
        for (value, delegated) in [("0", false), ("1", true)] {
            let flags = rustix::fs::XattrFlags::empty();
            let name = "user.delegate";
            match rustix::fs::setxattr(cgroup.path(), name, value.as_bytes(), flags) {
                Err(rustix::io::Errno::NOTSUP) => {
                    return skip("the temporary directory has no extended attributes");
                }
                set => set.unwrap(),
            }
            assert_eq!(is_delegated(cgroup.path()), delegated);
        }
    }

    #[test]
    fn a_cgroup_that_cannot_be_entered_or_killed_is_not_usable() {
        let parent = tempfile::tempdir().unwrap();
        let cgroup = Cgroup(parent.path().join("pvp-run-1-2-0"));
        std::fs::create_dir(&cgroup.0).unwrap();
        let files = [
            parent.path().join("cgroup.procs"),
            cgroup.0.join("cgroup.procs"),
            cgroup.0.join("cgroup.kill"),
        ];
        for file in files {
            assert!(
                !cgroup.is_usable(parent.path()),
                "without {}",
                file.display()
            );
            std::fs::write(file, "").unwrap();
        }
        assert!(cgroup.is_usable(parent.path()));
    }

    #[test]
    fn only_our_own_cgroups_name_a_reaper() {
        assert_eq!(reaper_pid("pvp-run-40-123-0", "40"), Pid::from_raw(123));
        for other in [
            "pvp-run-41-123-0",
            "pvp-run-40--0",
            "pvp-run-4-0-0",
            "system.slice",
            "pvp-run-401-2-0",
        ] {
            assert_eq!(reaper_pid(other, "40"), None, "{other}");
        }
    }

    #[test]
    fn a_cgroup_whose_reaper_is_gone_is_killed_and_removed() {
        if available_controllers().is_none() {
            return skip("no cgroup can be created here");
        }
        let (parent, namespace) = (parent_directory().unwrap(), pid_namespace().unwrap());
        let mut reaper = std::process::Command::new("true").spawn().unwrap();
        let stale = Cgroup(parent.join(format!("{NAME_PREFIX}{namespace}-{}-0", reaper.id())));
        std::fs::create_dir(&stale.0).unwrap();
        let mut command = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        std::fs::create_dir(stale.0.join("deeper")).unwrap();
        std::fs::write(
            stale.0.join("deeper/cgroup.procs"),
            command.id().to_string(),
        )
        .unwrap();
        // Until its status is collected, the reaper still exists.
        remove_stale(&parent, &namespace);
        assert_eq!(stale.members(), [Pid::from_child(&command)]);
        reaper.wait().unwrap();
        remove_stale(&parent, &namespace);
        assert!(!command.wait().unwrap().success());
        // Processes that were still ending in the first cleanup are gone by the next.
        remove_stale(&parent, &namespace);
        assert!(!stale.0.exists());
    }

    #[test]
    fn a_cgroup_limits_what_the_kernel_counts_below_its_parent() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::write(parent.path().join("cgroup.subtree_control"), "pids\n").unwrap();
        let cgroup = Cgroup(parent.path().join("pvp-run-1-2"));
        std::fs::create_dir(&cgroup.0).unwrap();
        std::fs::write(cgroup.0.join("pids.max"), "max").unwrap();
        let whole = CgroupLimits {
            processes: Some(64),
            ..CgroupLimits::default()
        };
        cgroup.set_limits(whole).unwrap();
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(cgroup.0.join("pids.max")), "64");
        // The controller is enabled already.
        assert_eq!(read(parent.path().join("cgroup.subtree_control")), "pids\n");
        enable_controllers(parent.path(), [CgroupController::Memory]);
        assert_eq!(
            read(parent.path().join("cgroup.subtree_control")),
            "+memory"
        );
    }
}
