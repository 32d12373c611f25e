//! Adds git notes to commits that people approved: `refs/notes/pvp` names the session and the
//! approvers.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pvp_client::Connection;
use pvp_protocol::MessageId;
use pvp_protocol::payload::{ClearedBy, GrantTerms};
use tokio::process::Command;

use super::ExecutorSettings;

/// The ref of the notes; `git log --notes=pvp` shows them.
const NOTES_REF: &str = "refs/notes/pvp";

/// Commits of one command that get a note; rebasing a long branch does not need more.
const MAX_COMMITS: usize = 100;

/// How long one git command may take.
const GIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Whether commits that this command makes get notes.
pub(super) fn is_enabled_for(grant: &GrantTerms, settings: &ExecutorSettings) -> bool {
    let decided = match grant.cleared_by {
        ClearedBy::Read | ClearedBy::Tried => false,
        ClearedBy::Quorum | ClearedBy::Clock | ClearedBy::AllowRule | ClearedBy::Direct => true,
    };
    settings.git.notes && decided
}

/// The state of a repository before the command.
pub(super) struct RepositorySnapshot {
    directory: PathBuf,
    head: Option<String>,
}

impl RepositorySnapshot {
    /// `None` if the directory is in no repository.
    pub(super) async fn capture(directory: &Path) -> Option<Self> {
        git_output(directory, &["rev-parse", "--git-dir"]).await?;
        Some(Self {
            head: git_output(directory, &["rev-parse", "-q", "--verify", "HEAD"]).await,
            directory: directory.to_owned(),
        })
    }

    /// Adds a note to every commit that the command made in its directory.
    pub(super) async fn annotate_new_commits(
        &self,
        connection: &Connection,
        proposal: &MessageId,
        grant: &GrantTerms,
    ) {
        let after = git_output(&self.directory, &["rev-parse", "-q", "--verify", "HEAD"]).await;
        let Some(after) = after.filter(|after| self.head.as_ref() != Some(after)) else {
            return;
        };
        let range = match &self.head {
            Some(before) => format!("{before}..{after}"),
            None => after,
        };
        // Commits that came from elsewhere, such as by a pull, were not made by this command.
        let max_count = format!("--max-count={MAX_COMMITS}");
        let made = ["rev-list", &max_count, &range, "--not", "--remotes"];
        let commits = git_output(&self.directory, &made).await.unwrap_or_default();
        let note = note_text(connection.session().as_str(), proposal, grant);
        for commit in commits.lines() {
            let reference = format!("--ref={NOTES_REF}");
            let add = ["notes", &reference, "append", "-m", &note, commit];
            if git_output(&self.directory, &add).await.is_none() {
                tracing::warn!(commit, "could not add a note to a commit");
            }
        }
    }
}

fn note_text(session: &str, proposal: &MessageId, grant: &GrantTerms) -> String {
    let approvers: Vec<_> = grant
        .approvals
        .iter()
        .map(|approval| approval.participant.as_str())
        .collect();
    let approved = match (grant.cleared_by, approvers.is_empty()) {
        (_, false) => approvers.join(", "),
        (ClearedBy::Clock, true) => "the clock".to_owned(),
        (ClearedBy::AllowRule, true) => "an allow rule".to_owned(),
        (ClearedBy::Direct, true) => "a person's own command".to_owned(),
        (ClearedBy::Read | ClearedBy::Tried | ClearedBy::Quorum, true) => "nobody".to_owned(),
    };
    format!(
        "PVP-Session: {session}\nPVP-Proposal: {proposal}\nPVP-Approved-By: {approved}\nPVP-Digest: {}",
        grant.digest
    )
}

/// Git's output, if it succeeds. Runs no hooks and no helpers of the repository.
async fn git_output(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args([
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.fsmonitor=false",
        ])
        .args(["-c", "user.name=pvp", "-c", "user.email=pvp@localhost"])
        .args(arguments)
        .current_dir(directory)
        .env_remove("GIT_DIR")
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(GIT_TIMEOUT, output).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}
