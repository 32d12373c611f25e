//! Decides on proposals: assesses them, then refuses them, grants them, or opens a gate.

use std::collections::BTreeSet;

use pvp_policy::{FilePresence, Workspace};
use pvp_protocol::payload::{
    ClearedBy, DeletedFile, FileContent, GateActionType, GateRequest, GitCopy, RunBy, ToolPropose,
};
use pvp_protocol::{
    Action, Assessment, Category, Command, ExecutionLimits, ExtraFields, MessageId, ParticipantId,
    QuorumRule, Refusal, Role, RunMode, SandboxProfile, Timestamp, ToolCategory, ToolKind,
};

use super::claims::{
    is_declared_streaming, long_text_note, raise_to_claimed_kind, raise_to_claimed_risk,
};
use super::context::is_variable_name;
use super::rules::ANYWHERE;
use super::trials::{TRIAL_LIMITS, TrialEligibility};
use super::{Answer, AnswerResult, DecisionBuilder};
use crate::entry::Audience;
use crate::gate::Clearance;
use crate::grant::{Grant, GrantDetails, RunTerms};
use crate::input::SubmittedMessage;
use crate::member::Member;
use crate::proposal::Proposal;

/// The most variables that an action may add to the environment.
const MAX_ENV_VARIABLES: usize = 100;

/// The most files that an action may bind.
const MAX_BOUND_FILES: usize = 64;

/// The rule of reads outside of the workspace and the read roots.
const OUTSIDE_RULE: &str = "path.outside";

/// The most bytes of file contents that a proposal may carry. They stay in the log.
const MAX_CONTENT_BYTES: usize = 64 * 1024;

/// The most notes on arguments that are long texts.
const MAX_LONG_TEXT_NOTES: usize = 16;

/// The longest time limit that an action may ask for, in seconds.
const MAX_TIMEOUT_SECONDS: u32 = 300;

/// The same in `slow` mode.
const MAX_SLOW_TIMEOUT_SECONDS: u32 = 900;

/// The most deleted files that a proposal describes, and bytes of their paths.
const MAX_DELETED_FILES: usize = 16;
const MAX_DELETED_PATH_BYTES: usize = 4096;

/// Whether a proposal that could run at once needs approval all the same, and why.
enum ApprovalRequirement {
    NotRequired,
    Required(String),
}

impl DecisionBuilder<'_> {
    pub(super) fn tool_propose(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        mut propose: ToolPropose,
    ) -> AnswerResult {
        self.check_not_paused()?;
        let action = Action::from_arguments(&propose.tool_name, &propose.arguments)
            .map_err(|error| Refusal::Malformed(error.to_string()))?;
        self.check_action(&action)?;
        self.check_client_call(&mut propose, &action)?;
        check_file_contents(&action, &propose.file_contents)?;
        check_deleted_files(&propose.deleted_files)?;
        self.check_proposal_limits(by)?;
        self.check_names_no_gate(&submitted.id)?;
        let mut assessment = self.assess(&action, by);
        self.note_unbound_files(&mut assessment, &action, by);
        assessment
            .notes
            .extend(propose.deleted_files.iter().map(deletion_note));
        raise_to_claimed_risk(&mut assessment, propose.risk_level);
        raise_to_claimed_kind(&mut assessment, propose.tool_kind(), propose.category);
        self.drop_unchecked_contents(by, &action, &mut propose, &mut assessment);
        let long_texts = propose.arguments.iter().filter_map(long_text_note);
        assessment
            .notes
            .extend(long_texts.take(MAX_LONG_TEXT_NOTES));
        let declared = propose.streaming || is_declared_streaming(&propose.arguments);
        propose.streaming = declared && propose.tool_kind() != ToolKind::SHELL;
        if propose.streaming {
            let note = "goes on sending output after its first result, until it is cancelled";
            assessment.notes.push(note.to_owned());
        }
        let approval = self.approval_requirement(&propose, &assessment, by);
        if let ApprovalRequirement::Required(note) = &approval {
            assessment.notes.push(note.clone());
        }
        let trial = match approval {
            ApprovalRequirement::NotRequired if propose.runs == RunBy::Client => {
                TrialEligibility::NotEligible
            }
            ApprovalRequirement::NotRequired => self.trial_eligibility(&action, &assessment, by),
            ApprovalRequirement::Required(_) => TrialEligibility::NotEligible,
        };
        if let TrialEligibility::NotPossible(note) = &trial {
            assessment.notes.push(note.clone());
        }
        propose.assessment = Some(assessment.clone());
        let published = self.is_published_agent(by);
        let answer = self.relay(by, submitted, propose);
        if assessment.category == Category::Blocked {
            let (rule, reason) = (assessment.rule, assessment.reason);
            let refusal = Refusal::Blocked { rule, reason };
            if published {
                self.append_rejection(submitted.id.clone(), None, refusal.to_string());
            }
            return Ok(Answer::Refused(refusal));
        }
        let proposal = self.session.proposals[&submitted.id].clone();
        let clearance = match approval {
            ApprovalRequirement::Required(_) => None,
            ApprovalRequirement::NotRequired => Clearance::for_read(&proposal)
                .or_else(|| {
                    let rule = self.covering_rule(&proposal)?;
                    Clearance::for_allow_rule(&proposal, rule)
                })
                .or_else(|| match trial {
                    TrialEligibility::Eligible => Clearance::for_trial(&proposal),
                    TrialEligibility::NotEligible | TrialEligibility::NotPossible(_) => None,
                }),
        };
        match clearance {
            Some(clearance) => self.append_grant(clearance),
            None => self.open_gate(&proposal),
        }
        Ok(answer)
    }

    /// Refuses an id that ends with that of a gate. The id of its gate, which the server chooses, is
    /// then a name that a command always has alone, whatever ids others choose for theirs.
    pub(super) fn check_names_no_gate(&self, id: &MessageId) -> Result<(), Refusal> {
        let gates = self.session.proposals.values();
        let mut gates = gates.filter_map(|proposal| proposal.gate.as_ref());
        match gates.any(|gate| id.is_named_by(gate.as_str())) {
            true => Err(Refusal::Malformed(
                "`id` ends with the id of a gate; choose another".to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Assesses an action that this executor would run.
    pub(super) fn assess(&self, action: &Action, executor: &ParticipantId) -> Assessment {
        let workspace = self.workspace_of(executor);
        let policy = &self.decision_context.policy;
        let mut assessment = policy.assess(action, &workspace);
        if assessment.rule == OUTSIDE_RULE && self.accepts_read_roots(executor) {
            assessment.needed_read_roots = policy.needed_read_roots(action, &workspace);
        }
        let words = pvp_policy::plain_words(action).unwrap_or_default();
        assessment.runs_given_code = policy.runs_given_code(&words).is_some();
        assessment
    }

    /// Whether this executor lets reads see the session's read roots.
    fn accepts_read_roots(&self, executor: &ParticipantId) -> bool {
        let member = self.session.members.get(executor);
        let executor_info = member.and_then(|member| member.announce.executor.as_ref());
        executor_info.is_some_and(|info| info.read_roots)
    }

    /// Where this executor runs commands, as far as it has announced it.
    pub(super) fn workspace_of(&self, executor: &ParticipantId) -> Workspace {
        let member = self.session.members.get(executor);
        let executor_info = member.and_then(|member| member.announce.executor.as_ref());
        let directory = executor_info.and_then(|info| info.working_directory.clone());
        let read_roots = match self.accepts_read_roots(executor) {
            true => self.read_roots(),
            false => Vec::new(),
        };
        Workspace {
            directory,
            read_roots,
        }
    }

    /// Tells those who vote which files that the action runs are not bound by its digest.
    pub(super) fn note_unbound_files(
        &self,
        assessment: &mut Assessment,
        action: &Action,
        executor: &ParticipantId,
    ) {
        let workspace = self.workspace_of(executor);
        let named = self.decision_context.policy.named_files(action, &workspace);
        let is_bound = |path: &str| action.files.iter().any(|bound| bound.path == path);
        let unbound = named
            .files
            .iter()
            .filter(|file| file.presence == FilePresence::Expected && !is_bound(&file.path))
            .map(|file| format!("`{}`", file.path));
        let unbound: Vec<_> = unbound.collect();
        if !unbound.is_empty() {
            let files = unbound.join(", ");
            let note = format!("{files} can still be changed after the vote");
            assessment.notes.push(note);
        }
        if named.incomplete {
            let note = "it may run files that are not listed here and can still be changed after \
                        the vote";
            assessment.notes.push(note.to_owned());
        }
    }

    /// Drops what an agent without an executor of ours says about present files: nobody checks it
    /// when the call starts.
    fn drop_unchecked_contents(
        &self,
        by: &ParticipantId,
        action: &Action,
        propose: &mut ToolPropose,
        assessment: &mut Assessment,
    ) {
        let member = self.session.members.get(by);
        if action.files.is_empty() || !member.is_some_and(Member::is_published_agent) {
            return;
        }
        propose.file_contents.clear();
        let note = "this agent announced no executor, so nobody checks whether the files that the \
                    call names are as it says";
        assessment.notes.push(note.to_owned());
    }

    /// Whether something other than the assessment requires a vote.
    fn approval_requirement(
        &self,
        propose: &ToolPropose,
        assessment: &Assessment,
        executor: &ParticipantId,
    ) -> ApprovalRequirement {
        let listed = &self.session.config.require_approval_for;
        // The category is only the agent's claim, so known tools count as what they are, too.
        let (ToolKind::Known(kind) | ToolKind::Stated(kind)) = propose.tool_kind();
        let kinds = [kind, propose.category, ToolCategory::All];
        if kinds.iter().any(|kind| listed.contains(kind)) {
            return ApprovalRequirement::Required(
                "this session requires approval for every tool of this kind".to_owned(),
            );
        }
        if propose.requires_approval && assessment.category == Category::Read {
            return ApprovalRequirement::Required("the agent itself asks for approval".to_owned());
        }
        if assessment.category != Category::Read {
            return ApprovalRequirement::NotRequired;
        }
        if propose.runs == RunBy::Client {
            return match self.client_read_question(executor) {
                Some(why) => ApprovalRequirement::Required(why.to_owned()),
                None => ApprovalRequirement::NotRequired,
            };
        }
        if !self.can_sandbox(executor, assessment.profile) {
            return ApprovalRequirement::Required("the executor cannot sandbox reads".to_owned());
        }
        ApprovalRequirement::NotRequired
    }

    /// Whether this executor may run a read without a vote.
    fn can_sandbox(&self, executor: &ParticipantId, profile: SandboxProfile) -> bool {
        let executor_info = self
            .session
            .members
            .get(executor)
            .and_then(|member| member.announce.executor.as_ref());
        // Another program's tool is a read only by a rule of the owner, and nothing of ours confines
        // it. Every other read needs a sandbox.
        profile == SandboxProfile::None
            || self.session.config.trust_reads
            || self.decision_context.settings.open_mode
            || executor_info.is_some_and(|executor_info| executor_info.profiles.contains(&profile))
    }

    /// Refuses actions that no executor should run, whoever approves them.
    pub(super) fn check_action(&self, action: &Action) -> Result<(), Refusal> {
        let malformed = |problem: &str| Err(Refusal::Malformed(problem.to_owned()));
        let empty = match &action.command {
            Command::Shell { line } | Command::LoginShell { line } => line.trim().is_empty(),
            Command::Argv { command, .. } => command.is_empty(),
            Command::Tool { name, .. } => name.is_empty(),
        };
        if empty {
            return malformed("the command is empty");
        }
        let words: Vec<&str> = match &action.command {
            Command::Shell { line } | Command::LoginShell { line } => vec![line],
            Command::Argv { command, args } => std::iter::once(command)
                .chain(args)
                .map(String::as_str)
                .collect(),
            Command::Tool { .. } => Vec::new(),
        };
        if words.iter().any(|word| word.contains('\0')) {
            return malformed("a command has no NUL characters");
        }
        let directory = action.cwd.as_deref().unwrap_or(".");
        if directory.is_empty() || directory.len() > 4096 || directory.contains('\0') {
            return malformed("`cwd` is a path of 1 to 4096 bytes");
        }
        if directory == ANYWHERE {
            return malformed(
                "`cwd` is `*`, which means every directory in an allow rule; for a directory of \
                 this name, write `./*`",
            );
        }
        check_variables(action)?;
        check_bound_files(action)?;
        let most = if action.mode == RunMode::Slow {
            MAX_SLOW_TIMEOUT_SECONDS
        } else {
            MAX_TIMEOUT_SECONDS
        };
        if action
            .timeout_seconds
            .is_some_and(|timeout| timeout == 0 || timeout > most)
        {
            return Err(Refusal::Malformed(format!(
                "`timeout` is 1 to {most} seconds in this mode"
            )));
        }
        match &action.driver {
            Some(driver)
                if !self
                    .session
                    .members
                    .get(driver)
                    .is_some_and(|member| member.is_human() && !member.left) =>
            {
                Err(Refusal::NoSuchParticipant(driver.clone()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks that this participant may make one more proposal.
    pub(super) fn check_proposal_limits(&self, by: &ParticipantId) -> Result<(), Refusal> {
        let limits = &self.decision_context.settings.limits;
        let too_many = |what, limit: u32| {
            Err(Refusal::TooMany {
                what,
                limit: u64::from(limit),
            })
        };
        let mine = self
            .session
            .proposals()
            .filter(|proposal| proposal.proposer == *by)
            .count();
        if mine >= limits.open_proposals as usize {
            return too_many(
                "open proposals; wait for some to be decided",
                limits.open_proposals,
            );
        }
        if self.session.open_gates().len() >= limits.open_gates as usize {
            return too_many("open gates; wait for some to be decided", limits.open_gates);
        }
        if self.session.closed_proposals.count() + self.session.proposals.len() as u64
            >= u64::from(limits.proposals)
        {
            return too_many(
                "proposals in one session; start another session",
                limits.proposals,
            );
        }
        Ok(())
    }

    /// The quorum for a proposal: one that satisfies every rule of the policy that matches and sets
    /// one, and that of its category and kind of tool, as the session is configured, unless the
    /// rules take its place.
    pub(super) fn quorum_for(&self, proposal: &Proposal) -> QuorumRule {
        self.quorum_for_action(proposal, &proposal.action, &proposal.assessment)
    }

    /// The quorum for a proposal whose action was replaced by this one.
    pub(super) fn quorum_for_action(
        &self,
        proposal: &Proposal,
        action: &Action,
        assessment: &Assessment,
    ) -> QuorumRule {
        let usual = self.quorum_for_category(assessment.category, proposal.tool_kind);
        let workspace = self.workspace_of(&proposal.executor);
        let electorate = self.electorate(&proposal.proposer);
        let policy = &self.decision_context.policy;
        policy.quorum(action, &workspace, usual, &electorate)
    }

    /// The quorum for a category and a kind of tool, as the session is configured.
    pub(super) fn quorum_for_category(&self, category: Category, kind: ToolKind) -> QuorumRule {
        let config = &self.session.config;
        let quorums = &config.quorum_by_category;
        quorums.find(category, kind, &config.default_gate_quorum)
    }

    /// The deadline of a gate that opens now, if gates have one.
    pub(super) fn gate_deadline(&self) -> Option<Timestamp> {
        let seconds = u64::from(self.session.config.gate_timeout_seconds);
        (seconds > 0).then(|| self.at.plus_seconds(seconds))
    }

    /// Who could approve a proposal of this participant at this time. In a solo session that may be
    /// the participant; an agent has no vote there either.
    pub(super) fn electorate(&self, proposer: &ParticipantId) -> Vec<ParticipantId> {
        let solo = self.session.config.solo;
        self.session
            .members
            .iter()
            // Who was told to be gone may vote when they are back; nobody waits for them.
            .filter(|(_, member)| !member.connection_lost)
            .filter(|(id, member)| (solo || *id != proposer) && member.may_vote())
            .map(|(id, _)| id.clone())
            .collect()
    }

    pub(super) fn open_gate(&mut self, proposal: &Proposal) {
        let quorum = self.quorum_for(proposal);
        let voters = self.electorate(&proposal.proposer);
        let request = GateRequest {
            action_type: GateActionType::Tool,
            action_ref: proposal.id.clone(),
            message: gate_message(proposal, &quorum, &voters),
            quorum,
            timeout_seconds: self.session.config.gate_timeout_seconds,
            category: proposal.assessment.category,
            digest: proposal.assessment.digest,
            deadline: self.gate_deadline(),
            on_timeout: self.session.config.on_gate_timeout,
            voters,
            trial: proposal.trial.clone(),
            extra: ExtraFields::new(),
        };
        self.append_system(request, Some(proposal.id.clone()));
    }

    /// Spends a clearance on a grant, after which the command may run, once.
    pub(super) fn append_grant(&mut self, clearance: Clearance) {
        let proposal = self.session.proposals[&clearance.proposal].clone();
        let details = GrantDetails {
            id: self.id_generator.next_id(),
            terms: match proposal.runs() {
                RunBy::Executor => Some(self.run_terms(&clearance, &proposal)),
                RunBy::Client => None,
            },
            expires_at: self
                .at
                .plus_seconds(self.decision_context.settings.grant_lifetime_seconds),
            allowed_by: clearance
                .rule
                .as_ref()
                .and_then(|rule| self.describe_rule(rule)),
        };
        let (execute, private) = Grant::from_clearance(clearance, &proposal, details).into_parts();
        self.append_system_to(execute, Some(proposal.id), Audience::everyone(), private);
    }

    /// What the executor holds a run to.
    fn run_terms(&mut self, clearance: &Clearance, proposal: &Proposal) -> RunTerms {
        RunTerms {
            nonce: self.id_generator.next_nonce(),
            limits: match clearance.cleared_by {
                ClearedBy::Tried => TRIAL_LIMITS,
                ClearedBy::Read
                | ClearedBy::Quorum
                | ClearedBy::Clock
                | ClearedBy::AllowRule
                | ClearedBy::Direct => self.execution_limits(proposal),
            },
            profile: self.grant_profile(clearance, proposal),
        }
    }

    fn grant_profile(&self, clearance: &Clearance, proposal: &Proposal) -> SandboxProfile {
        let executor_info = self.session.members.get(&proposal.executor);
        let sandboxes = |profile: SandboxProfile| {
            executor_info
                .and_then(|member| member.announce.executor.as_ref())
                .is_some_and(|executor_info| executor_info.profiles.contains(&profile))
        };
        match clearance.cleared_by {
            ClearedBy::Read if sandboxes(proposal.assessment.profile) => {
                proposal.assessment.profile
            }
            ClearedBy::Read => SandboxProfile::None,
            ClearedBy::Tried => SandboxProfile::Read,
            ClearedBy::Quorum | ClearedBy::Clock | ClearedBy::AllowRule | ClearedBy::Direct => {
                self.session.config.profile
            }
        }
    }

    fn execution_limits(&self, proposal: &Proposal) -> ExecutionLimits {
        let settings = self.decision_context.settings;
        let category = proposal.assessment.category;
        let usual = match category {
            Category::Read => settings.read_limits,
            Category::Write => settings.write_limits,
            Category::Destructive | Category::Blocked => settings.destructive_limits,
        };
        let by_category = self
            .decision_context
            .policy
            .limits()
            .get(&category)
            .copied()
            .unwrap_or(usual);
        let explicit = proposal
            .action
            .timeout_seconds
            .map(|seconds| u64::from(seconds) * 1000);
        if proposal.streaming {
            return ExecutionLimits {
                timeout_ms: explicit.unwrap_or(by_category.timeout_ms),
                output_bytes: settings.background_output_bytes,
            };
        }
        match proposal.action.mode {
            RunMode::Normal => ExecutionLimits {
                timeout_ms: explicit.unwrap_or(by_category.timeout_ms),
                ..by_category
            },
            RunMode::Slow => ExecutionLimits {
                timeout_ms: explicit.unwrap_or(settings.slow_timeout_ms),
                ..by_category
            },
            RunMode::Background | RunMode::Pty => ExecutionLimits {
                timeout_ms: 0,
                output_bytes: settings.background_output_bytes,
            },
        }
    }
}

/// Refuses variables that cannot be set, or that change what the command means.
fn check_variables(action: &Action) -> Result<(), Refusal> {
    let names = || action.env.keys().chain(&action.secrets);
    if let Some(name) = names().find(|name| pvp_policy::changes_meaning(name)) {
        return Err(Refusal::Malformed(format!(
            "the environment may not set `{name}`, because it decides which code runs; write it \
             in the command line, where it is assessed"
        )));
    }
    let bad_name = |name: &String| !is_variable_name(name);
    let bad_value = |value: &String| value.contains('\0');
    if names().count() > MAX_ENV_VARIABLES
        || names().any(bad_name)
        || action.env.values().any(bad_value)
    {
        let problem = "`env` and `secrets` have at most 100 names, of letters, digits and _, with \
                       values that can be set";
        return Err(Refusal::Malformed(problem.to_owned()));
    }
    let unique: BTreeSet<_> = names().collect();
    if unique.len() < names().count() {
        let problem = "each variable has one name in `env` and `secrets`, and only once";
        return Err(Refusal::Malformed(problem.to_owned()));
    }
    Ok(())
}

fn check_bound_files(action: &Action) -> Result<(), Refusal> {
    let bad_path = |path: &str| {
        path.is_empty() || path.len() > 4096 || path.starts_with('/') || path.contains('\0')
    };
    let unique: BTreeSet<_> = action.files.iter().map(|file| &file.path).collect();
    let twice = unique.len() < action.files.len();
    let bad = action.files.iter().any(|file| bad_path(&file.path));
    if action.files.len() > MAX_BOUND_FILES || twice || bad {
        return Err(Refusal::Malformed(format!(
            "`files` has at most {MAX_BOUND_FILES} paths from the workspace, each only once"
        )));
    }
    Ok(())
}

/// Refuses contents that are not those of the bound files: people would read one script, and
/// another would run.
fn check_file_contents(action: &Action, contents: &[FileContent]) -> Result<(), Refusal> {
    let bytes: usize = contents.iter().map(|content| content.text.len()).sum();
    if contents.len() > MAX_BOUND_FILES || bytes > MAX_CONTENT_BYTES {
        return Err(Refusal::Malformed(format!(
            "`file_contents` has at most {MAX_BOUND_FILES} files and {MAX_CONTENT_BYTES} bytes"
        )));
    }
    for content in contents {
        if !action.binds_content(&content.path, &content.text) {
            return Err(Refusal::Malformed(format!(
                "the content of `{}` is not the one that `files` binds",
                content.path
            )));
        }
    }
    Ok(())
}

fn check_deleted_files(files: &[DeletedFile]) -> Result<(), Refusal> {
    let long = |file: &&DeletedFile| file.path.len() > MAX_DELETED_PATH_BYTES;
    if files.len() > MAX_DELETED_FILES || files.iter().any(|file| long(&file)) {
        return Err(Refusal::Malformed(format!(
            "`deleted_files` has at most {MAX_DELETED_FILES} files, and {MAX_DELETED_PATH_BYTES} bytes in each path"
        )));
    }
    Ok(())
}

/// Says what is lost. Only the executor knows, so its word is all there is.
fn deletion_note(file: &DeletedFile) -> String {
    let kept = match file.in_git {
        GitCopy::Same => "git has this content",
        GitCopy::Older => "git has another version of it, not this one",
        GitCopy::None => "git does not have it, so it cannot be brought back",
    };
    let DeletedFile { path, bytes, .. } = file;
    let unit = if *bytes == 1 { "byte" } else { "bytes" };
    format!("deletes `{path}` ({bytes} {unit}); {kept}, according to the agent's machine")
}

fn gate_message(proposal: &Proposal, quorum: &QuorumRule, voters: &[ParticipantId]) -> String {
    let reason = &proposal.assessment.reason;
    let category = proposal.assessment.category_label();
    let summary = proposal.action.command.brief();
    let short: String = summary.chars().take(200).collect();
    let waiting = if voters.is_empty() {
        format!("waiting for {quorum}; nobody in this session can approve yet")
    } else {
        format!("waiting for {quorum}")
    };
    match &proposal.trial {
        Some(trial) => format!("{category}: {short} ({reason}; {trial}); {waiting}"),
        None => format!("{category}: {short} ({reason}); {waiting}"),
    }
}

/// The admins who could approve, for an escalated gate.
pub(super) fn eligible_admins(
    builder: &DecisionBuilder<'_>,
    proposer: &ParticipantId,
) -> BTreeSet<ParticipantId> {
    builder
        .electorate(proposer)
        .into_iter()
        .filter(|id| builder.session.members[id].has_role(Role::Admin))
        .collect()
}

/// The proposal that a gate id or a proposal id names.
pub(super) fn proposal_id_of(builder: &DecisionBuilder<'_>, id: &MessageId) -> Option<MessageId> {
    let session = &builder.session;
    let proposal = session.proposal_by_gate.get(id).unwrap_or(id);
    let known = session.proposals.contains_key(proposal)
        || session.closed_proposals.get(proposal).is_some();
    known.then(|| proposal.clone())
}
