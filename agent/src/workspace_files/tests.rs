//! Attacks on paths: whatever a workspace contains, nothing outside of it is read or changed.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

/// A workspace beside a directory that must stay as it is.
struct Place {
    _directory: tempfile::TempDir,
    workspace: PathBuf,
    outside: PathBuf,
    files: WorkspaceFiles,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let (workspace, outside) = (root.join("workspace"), root.join("outside"));
        std::fs::create_dir_all(workspace.join("dir")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "outside").unwrap();
        Self {
            files: WorkspaceFiles::open(&workspace).unwrap(),
            _directory: directory,
            workspace,
            outside,
        }
    }

    fn write(&self, path: &str, content: &str) -> Result<(), String> {
        self.files.begin_change(path)?.commit(content.as_bytes())
    }

    fn read(&self, path: &str) -> Result<String, String> {
        let opened = self.files.open_to_read(path);
        let mut opened = opened.map_err(|problem| problem.to_string())?;
        let mut text = String::new();
        opened.file.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    fn content(&self, path: &str) -> String {
        std::fs::read_to_string(self.workspace.join(path)).unwrap()
    }

    fn assert_outside_untouched(&self) {
        let entries = std::fs::read_dir(&self.outside).unwrap();
        let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);
        let secret = std::fs::read_to_string(self.outside.join("secret")).unwrap();
        assert_eq!(secret, "outside");
    }

    /// Nothing is left of changes that failed.
    fn assert_no_temporary_files(&self) {
        for directory in [self.workspace.clone(), self.workspace.join("dir")] {
            for entry in std::fs::read_dir(directory).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                assert!(!name.ends_with(".tmp"), "{name}");
            }
        }
    }
}

#[test]
fn files_are_created_replaced_and_read() {
    let place = Place::new();
    place.write("a.txt", "one").unwrap();
    place.write("a.txt", "two").unwrap();
    place.write("new/deep/b.txt", "three").unwrap();
    assert_eq!(place.read("a.txt").unwrap(), "two");
    assert_eq!(place.read("new/deep/b.txt").unwrap(), "three");
    place.assert_no_temporary_files();
}

#[test]
fn paths_that_are_not_plain_are_refused() {
    let place = Place::new();
    for path in [
        "",
        "..",
        "../outside/secret",
        "dir/../../outside/secret",
        "dir/../a",
        "./a",
        "dir//a",
        "dir/",
        "/etc/passwd",
        "~/a",
        "a\0b",
        "a\nb",
    ] {
        assert!(place.read(path).is_err(), "{path:?}");
        assert!(place.write(path, "x").is_err(), "{path:?}");
    }
    let absolute = place.outside.join("secret");
    assert!(place.write(absolute.to_str().unwrap(), "x").is_err());
    place.assert_outside_untouched();
}

#[test]
fn a_link_at_the_end_or_on_the_way_leads_nowhere_else() {
    let place = Place::new();
    symlink(place.outside.join("secret"), place.workspace.join("link")).unwrap();
    symlink("../outside/secret", place.workspace.join("relative")).unwrap();
    symlink(&place.outside, place.workspace.join("parent")).unwrap();
    symlink("/proc/self/root", place.workspace.join("magic")).unwrap();
    symlink(
        place.outside.join("missing"),
        place.workspace.join("dangling"),
    )
    .unwrap();
    let magic = format!("magic{}", place.outside.join("secret").display());
    for path in [
        "link",
        "relative",
        "parent/secret",
        "parent/new",
        "dangling",
        magic.as_str(),
    ] {
        assert!(place.read(path).is_err(), "{path}");
        assert!(place.write(path, "x").is_err(), "{path}");
    }
    place.assert_outside_untouched();
    // A link that stays inside may be read, under its real path, and is not written through.
    std::fs::write(place.workspace.join("dir/real"), "inside").unwrap();
    symlink("dir/real", place.workspace.join("inner")).unwrap();
    let opened = place.files.open_to_read("inner").unwrap();
    assert_eq!(opened.real_path, Path::new("dir/real"));
    let why = place.write("inner", "x").unwrap_err();
    assert!(why.contains("symbolic link"), "{why}");
    assert_eq!(place.content("dir/real"), "inside");
}

#[test]
fn the_kernel_itself_refuses_to_leave_the_workspace() {
    let place = Place::new();
    symlink(&place.outside, place.workspace.join("out")).unwrap();
    symlink("/proc/self/exe", place.workspace.join("exe")).unwrap();
    let open = |root: &WorkspaceFiles, path: &str| {
        let path = Path::new(path);
        let opened = open_beneath(root.root.as_fd(), path, OFlags::PATH, Links::Follow);
        opened.map(|_| ()).unwrap_err()
    };
    for path in ["out", "out/secret", "exe", "..", "../outside", "/etc"] {
        assert_eq!(open(&place.files, path), Errno::XDEV, "{path}");
    }
    let process = WorkspaceFiles::open(Path::new("/proc/self")).unwrap();
    assert_eq!(open(&process, "cwd"), Errno::LOOP);
}

#[test]
fn links_of_the_kernel_are_not_followed() {
    let directory = std::fs::File::open("/etc").unwrap();
    let place = Place::new();
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    symlink(&link, place.workspace.join("open")).unwrap();
    assert!(place.read("open/hostname").is_err());
    assert!(place.write("open/x", "x").is_err());
    // Not even where the workspace itself is such a place.
    let process = WorkspaceFiles::open(Path::new("/proc/self")).unwrap();
    assert!(process.open_to_read("cwd/Cargo.toml").is_err());
    assert!(process.open_to_read("root/etc/hostname").is_err());
    assert!(process.begin_change("cwd/x").is_err());
}

#[test]
fn a_second_name_of_an_outside_file_is_replaced_and_the_file_stays() {
    let place = Place::new();
    let linked = place.workspace.join("linked");
    std::fs::hard_link(place.outside.join("secret"), &linked).unwrap();
    place.write("linked", "new").unwrap();
    assert_eq!(place.content("linked"), "new");
    place.assert_outside_untouched();
}

#[test]
fn pipes_devices_and_directories_are_refused_without_waiting() {
    let place = Place::new();
    let pipe = place.workspace.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let socket = std::os::unix::net::UnixListener::bind(place.workspace.join("socket"));
    for (path, kind) in [
        ("pipe", "a named pipe"),
        ("dir", "a directory"),
        ("socket", "a socket"),
    ] {
        assert!(place.read(path).unwrap_err().contains(kind), "{path}");
        assert!(place.write(path, "x").unwrap_err().contains(kind), "{path}");
    }
    drop(socket);
    let devices = WorkspaceFiles::open(Path::new("/dev")).unwrap();
    let why = devices.open_to_read("zero").unwrap_err().to_string();
    assert!(why.contains("a device"), "{why}");
}

#[test]
fn the_rights_of_a_file_stay_except_those_of_its_owner() {
    let place = Place::new();
    let script = place.workspace.join("run.sh");
    std::fs::write(&script, "old").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o4751)).unwrap();
    place.write("run.sh", "new").unwrap();
    let mode = std::fs::metadata(&script).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o751);
}

#[test]
fn what_changed_since_it_was_looked_at_is_not_replaced() {
    let place = Place::new();
    let file = place.workspace.join("a");
    let changes: [(&str, &dyn Fn()); 5] = [
        ("", &|| std::fs::write(&file, "other").unwrap()),
        // The same length, and the same content again: it was another file meanwhile.
        ("", &|| {
            std::fs::remove_file(&file).unwrap();
            std::fs::write(&file, "old").unwrap();
        }),
        (": it does not exist any more", &|| {
            std::fs::remove_file(&file).unwrap()
        }),
        ("a symbolic link", &|| {
            std::fs::remove_file(&file).unwrap();
            symlink(place.outside.join("secret"), &file).unwrap();
        }),
        ("a directory", &|| {
            std::fs::remove_file(&file).unwrap();
            std::fs::create_dir(&file).unwrap();
        }),
    ];
    for (expected, change) in changes {
        std::fs::write(&file, "old").unwrap();
        let pending = place.files.begin_change("a").unwrap();
        change();
        let why = pending.commit(b"new").unwrap_err();
        assert!(why.contains("`a`") && why.contains(expected), "{why}");
        if file.is_dir() && !file.is_symlink() {
            std::fs::remove_dir(&file).unwrap();
        } else if file.symlink_metadata().is_ok() {
            std::fs::remove_file(&file).unwrap();
        }
    }
    // And one that appeared where there was none.
    let pending = place.files.begin_change("a").unwrap();
    std::fs::write(&file, "mine").unwrap();
    let why = pending.commit(b"new").unwrap_err();
    assert_eq!(
        why,
        "`a` changed since it was approved: there was no such file"
    );
    assert_eq!(place.content("a"), "mine");
    place.assert_outside_untouched();
    place.assert_no_temporary_files();
}

#[test]
fn a_directory_that_became_a_link_or_another_is_not_written_to() {
    let place = Place::new();
    let swaps: [&dyn Fn(&Path); 2] = [
        &|directory| symlink(&place.outside, directory).unwrap(),
        &|directory| std::fs::create_dir(directory).unwrap(),
    ];
    for swap in swaps {
        let directory = place.workspace.join("swapped");
        std::fs::create_dir(&directory).unwrap();
        let pending = place.files.begin_change("swapped/new").unwrap();
        let aside = place.workspace.join("aside");
        std::fs::rename(&directory, &aside).unwrap();
        swap(&directory);
        assert!(pending.commit(b"x").is_err());
        assert!(!aside.join("new").exists());
        assert!(!directory.join("new").exists());
        let removed = std::fs::remove_file(&directory).or_else(|_| std::fs::remove_dir(&directory));
        removed.unwrap();
        std::fs::remove_dir(&aside).unwrap();
    }
    // A directory that was missing, and is a link when it is created.
    let pending = place.files.begin_change("late/new").unwrap();
    symlink(&place.outside, place.workspace.join("late")).unwrap();
    assert!(pending.commit(b"x").is_err());
    place.assert_outside_untouched();
}

#[test]
fn a_directory_that_is_swapped_all_the_time_never_leads_out() {
    let place = Place::new();
    let directory = place.workspace.join("dir");
    let link = place.workspace.join("link");
    let swap = || {
        let (here, flags) = (rustix::fs::CWD, RenameFlags::EXCHANGE);
        rustix::fs::renameat_with(here, &directory, here, &link, flags).unwrap();
    };
    symlink(&place.outside, &link).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                swap();
            }
        });
        for number in 0..300 {
            let _ = place.read("dir/secret").map(|text| panic!("read {text}"));
            // It may fail, as long as it leads nowhere else.
            let _ = place.write("dir/file", &format!("content {number}"));
        }
        done.store(true, Ordering::Relaxed);
    });
    place.assert_outside_untouched();
    if directory.is_symlink() {
        swap();
    }
    place.write("dir/file", "at rest").unwrap();
    assert_eq!(place.content("dir/file"), "at rest");
}

#[test]
fn a_file_that_is_too_large_to_hash_is_refused() {
    let place = Place::new();
    let file = std::fs::File::create(place.workspace.join("huge")).unwrap();
    file.set_len(MAX_CHANGED_BYTES + 1).unwrap();
    let why = place.write("huge", "x").unwrap_err();
    assert!(why.contains("too much to change"), "{why}");
    assert_eq!(file.metadata().unwrap().len(), MAX_CHANGED_BYTES + 1);
}

#[test]
fn a_write_that_fails_leaves_the_old_content_and_nothing_else() {
    let place = Place::new();
    std::fs::write(place.workspace.join("dir/a"), "old").unwrap();
    let pending = place.files.begin_change("dir/a").unwrap();
    let parent = pending.open_parent().unwrap();
    let new_file = NewFile::create(parent.as_fd(), None).unwrap();
    new_file.write(b"half of it").unwrap();
    drop(new_file);
    assert_eq!(place.content("dir/a"), "old");
    place.assert_no_temporary_files();
}
