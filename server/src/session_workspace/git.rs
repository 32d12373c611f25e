//! Makes the directory of a session a git repository.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pvp_protocol::SessionId;
use tokio::process::Command;
use tokio::time::timeout;

/// How long one run of git may take.
const GIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of commits that nobody else claims; no mail can reach it.
const EMAIL: &str = "session@pvp.invalid";

/// The git in the server's own PATH. Directories that depend on where the server was started are
/// not searched.
pub(super) fn find_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let programs = std::env::split_paths(&path).map(|directory| directory.join("git"));
    let is_program = |program: &PathBuf| {
        let metadata = program.metadata();
        metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    programs
        .filter(|program| program.is_absolute())
        .find(is_program)
}

/// Makes an empty directory a repository whose commits have an author.
pub(super) async fn init_repository(
    git: &Path,
    directory: &Path,
    session: &SessionId,
) -> Result<(), String> {
    let name = format!("PVP session {session}");
    // No template: what is in the administrator's is not for agents, and hooks would run.
    let init = [
        "-c",
        "init.defaultBranch=main",
        "init",
        "--quiet",
        "--template=",
    ];
    run(git, directory, &init).await?;
    run(git, directory, &["config", "--local", "user.name", &name]).await?;
    run(git, directory, &["config", "--local", "user.email", EMAIL]).await
}

/// Runs git with no settings but its own.
async fn run(git: &Path, directory: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new(git);
    command
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let what = format!("`git {}`", arguments.join(" "));
    match timeout(GIT_TIMEOUT, command.status()).await {
        Err(_) => Err(format!("{what} took too long")),
        Ok(Err(error)) => Err(format!("{what}: {error}")),
        Ok(Ok(status)) if !status.success() => Err(format!("{what} failed with {status}")),
        Ok(Ok(_)) => Ok(()),
    }
}
