//! Programs that tests write and run.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes an executable file. A child process does the writing: while this process has the file
/// open for writing, so has every process that another test forks at that moment, and a file that
/// is open for writing cannot be executed (ETXTBSY).
pub fn write_program(path: &Path, content: impl AsRef<[u8]>) {
    let mut writer = Command::new("/bin/sh")
        .args(["-c", r#"cat >"$1" && chmod 755 "$1""#, "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    input.write_all(content.as_ref()).unwrap();
    drop(input);
    assert!(writer.wait().unwrap().success());
}

/// Copies an executable file, in a child process for the same reason.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.unwrap().success());
}
