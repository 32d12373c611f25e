//! Notes on commits that people approved: `refs/notes/pvp` says in which session, and by whom.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pvp_client::Connection;
use pvp_protocol::MessageId;
use pvp_protocol::payload::{ClearedBy, GrantTerms};
use tokio::process::Command;

use super::Settings;

/// Where the notes are; `git log --notes=pvp` shows them.
const REF: &str = "refs/notes/pvp";

/// Commits of one command that get a note; a rebase of a long branch is not worth more.
const MOST: usize = 100;

/// How long git may take for one step.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether commits of this command are to be annotated.
pub(super) fn wanted(grant: &GrantTerms, settings: &Settings) -> bool {
    let decided = match grant.cleared_by {
        ClearedBy::Read => false,
        ClearedBy::Quorum | ClearedBy::Clock | ClearedBy::AllowRule | ClearedBy::Direct => true,
    };
    settings.git.notes && decided
}

/// A repository as it was before the command.
pub(super) struct Before {
    directory: PathBuf,
    head: Option<String>,
}

impl Before {
    /// `None` where there is no repository.
    pub(super) async fn look(directory: &Path) -> Option<Self> {
        git(directory, &["rev-parse", "--git-dir"]).await?;
        Some(Self {
            head: git(directory, &["rev-parse", "-q", "--verify", "HEAD"]).await,
            directory: directory.to_owned(),
        })
    }

    /// Adds a note to every commit that the command made where it ran.
    pub(super) async fn annotate(
        &self,
        connection: &Connection,
        proposal: &MessageId,
        grant: &GrantTerms,
    ) {
        let after = git(&self.directory, &["rev-parse", "-q", "--verify", "HEAD"]).await;
        let Some(after) = after.filter(|after| self.head.as_ref() != Some(after)) else {
            return;
        };
        let range = match &self.head {
            Some(before) => format!("{before}..{after}"),
            None => after,
        };
        // What came from elsewhere, such as with a pull, was not made by this command.
        let most = format!("--max-count={MOST}");
        let made = ["rev-list", &most, &range, "--not", "--remotes"];
        let commits = git(&self.directory, &made).await.unwrap_or_default();
        let note = text(connection.session().as_str(), proposal, grant);
        for commit in commits.lines() {
            let reference = format!("--ref={REF}");
            let add = ["notes", &reference, "append", "-m", &note, commit];
            if git(&self.directory, &add).await.is_none() {
                tracing::warn!(commit, "could not add a note to a commit");
            }
        }
    }
}

fn text(session: &str, proposal: &MessageId, grant: &GrantTerms) -> String {
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
        (ClearedBy::Read | ClearedBy::Quorum, true) => "nobody".to_owned(),
    };
    format!(
        "PVP-Session: {session}\nPVP-Proposal: {proposal}\nPVP-Approved-By: {approved}\nPVP-Digest: {}",
        grant.digest
    )
}

/// What git prints, if it succeeds. It runs no hook and no helper of the repository's.
async fn git(directory: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args([
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.fsmonitor=false",
        ])
        .args(["-c", "user.name=pvp", "-c", "user.email=pvp@localhost"])
        .args(words)
        .current_dir(directory)
        .env_remove("GIT_DIR")
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, output).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}
