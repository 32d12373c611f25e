//! The versions of a proposed command: what was proposed, and what each edit made of it.
//!
//! A welcome tells the command as it is; the log tells how it became so. What a screen says about an
//! earlier message must name the command of that time, so each timeline item keeps its version.

use std::sync::Arc;

use pvp_protocol::payload::Approval;
use pvp_protocol::{Category, Digest, MessageId, ParticipantId, Timestamp};
use serde::Serialize;

use super::View;
use super::proposal::ProposalView;
use super::requested_action::RequestedAction;
use super::text::truncate_line;

/// Maximum number of earlier versions kept of one command: the first, and the latest of the others.
const MAX_EARLIER_VERSIONS: usize = 10;

/// A command as it was at some time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CommandVersion {
    /// The command with invisible characters escaped, truncated to one line's length; empty if the
    /// message that told this version was not received.
    pub shown: Arc<str>,
    /// The assessed category; `None` if the assessment is unknown.
    pub category: Option<Category>,
    /// Whether it only reads, and needs approval because of what it reads.
    pub sensitive_read: bool,
    /// The digest of the action; `None` if it is unknown.
    pub digest: Option<Digest>,
}

impl CommandVersion {
    pub(super) fn of(requested: &RequestedAction) -> Self {
        let assessment = requested.assessment.as_ref();
        Self {
            shown: truncate_line(&requested.shown).into(),
            category: requested.category(),
            sensitive_read: assessment.is_some_and(|assessment| assessment.sensitive_read),
            digest: assessment.map(|assessment| assessment.digest),
        }
    }

    /// Whether a request is this version.
    pub fn is_version_of(&self, requested: &RequestedAction) -> bool {
        let assessment = requested.assessment.as_ref();
        let digest = assessment.map(|assessment| assessment.digest);
        digest.is_some() && digest == self.digest
    }
}

/// A version of a command that an edit has replaced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EarlierVersion {
    /// What it was.
    #[serde(flatten)]
    pub command: CommandVersion,
    /// Who had approved it; the edit made these votes void.
    pub void_votes: Vec<ParticipantId>,
    /// Who edited it; `None` if that is unknown.
    pub edited_by: Option<ParticipantId>,
    /// When it was edited.
    pub edited_at: Timestamp,
    /// Why it was edited, if the editor said so.
    pub reason: Option<String>,
}

/// What the messages folded so far tell about a command, in the order of the log. During history
/// this is behind what the welcome told.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LoggedVersion {
    /// The command; `None` if neither its proposal nor an edit was received.
    pub(super) command: Option<CommandVersion>,
    /// Who has approved it.
    pub(super) approved_by: Vec<ParticipantId>,
}

impl LoggedVersion {
    pub(super) fn new(requested: &RequestedAction) -> Self {
        Self {
            command: Some(CommandVersion::of(requested)),
            approved_by: Vec::new(),
        }
    }

    pub(super) fn add_vote(&mut self, approver: &ParticipantId) {
        if !self.approved_by.contains(approver) && self.approved_by.len() < super::MAX_PARTICIPANTS
        {
            self.approved_by.push(approver.clone());
        }
    }

    pub(super) fn remove_vote(&mut self, approver: &ParticipantId) {
        self.approved_by.retain(|id| id != approver);
    }
}

impl ProposalView {
    /// The version that a message of the log was about. `voted` is the digest that a vote names.
    fn version_at(&self, voted: Option<Digest>) -> CommandVersion {
        if let Some(logged) = &self.logged.command {
            return logged.clone();
        }
        let current = CommandVersion::of(&self.requested);
        let is_current = match voted {
            Some(digest) => current.digest == Some(digest),
            None => self.requested.edited_by.is_none(),
        };
        match is_current {
            true => current,
            false => CommandVersion {
                digest: voted,
                ..CommandVersion::default()
            },
        }
    }

    /// Replaces the logged version with what an edit made of it; returns the version before.
    pub(super) fn log_edit(
        &mut self,
        edited: &RequestedAction,
        edited_from: Digest,
        at: Timestamp,
        reason: Option<String>,
    ) -> EarlierVersion {
        let logged = std::mem::replace(&mut self.logged, LoggedVersion::new(edited));
        let unknown = || CommandVersion {
            digest: Some(edited_from),
            ..CommandVersion::default()
        };
        let earlier = EarlierVersion {
            command: logged.command.unwrap_or_else(unknown),
            void_votes: logged.approved_by,
            edited_by: edited.edited_by.clone(),
            edited_at: at,
            reason,
        };
        if self.earlier.len() == MAX_EARLIER_VERSIONS {
            self.earlier.remove(1);
        }
        self.earlier.push(earlier.clone());
        earlier
    }
}

impl View {
    /// The version of a command that the next message of the log is about.
    pub(super) fn version_of(&self, id: &MessageId) -> CommandVersion {
        self.voted_version(id, None)
    }

    /// As `version_of`, for a vote that names a digest.
    pub(super) fn voted_version(&self, id: &MessageId, voted: Option<Digest>) -> CommandVersion {
        let proposal = self.proposal(id);
        proposal.map_or_else(CommandVersion::default, |it| it.version_at(voted))
    }

    /// Forgets the votes of someone who left, lost the right to vote, or whose votes are void.
    pub(super) fn forget_logged_votes(&mut self, participant: &ParticipantId) {
        for proposal in &mut self.commands {
            proposal.logged.remove_vote(participant);
        }
    }
}

/// Who gave these approvals.
pub(super) fn approvers(approvals: &[Approval]) -> Vec<ParticipantId> {
    approvals.iter().map(|it| it.participant.clone()).collect()
}
