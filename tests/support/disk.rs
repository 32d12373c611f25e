//! A disk that can be filled.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::skip::skip;

/// A mounted tmpfs of a few megabytes; unmounted when dropped.
pub struct TmpfsMount(tempfile::TempDir);

impl TmpfsMount {
    /// `None`, reported as skipped, where mounting is not possible.
    #[expect(clippy::print_stderr, reason = "it says why mounting failed")]
    pub fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
            .arg(directory.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => return Some(Self(directory)),
            Ok(output) => eprintln!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => eprintln!("mount does not start: {error}"),
        }
        skip("no tmpfs can be mounted here");
        None
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills it to the last byte.
    pub fn fill(&self) {
        let mut ballast = File::create(self.path().join("ballast")).unwrap();
        let mut block = vec![b'x'; 64 * 1024];
        while !block.is_empty() {
            if ballast.write_all(&block).is_err() {
                block.truncate(block.len() / 2);
            }
        }
    }

    /// Makes room again.
    pub fn empty(&self) {
        std::fs::remove_file(self.path().join("ballast")).unwrap();
    }
}

impl Drop for TmpfsMount {
    fn drop(&mut self) {
        // Lazily, because the server may still be exiting.
        let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
        assert!(std::thread::panicking() || unmounted.unwrap().success());
    }
}
