//! Decides on people's own commands.

use pvp_protocol::payload::ShellExec;
use pvp_protocol::{Action, Category, ParticipantId, Refusal, ShellExecMode};

use super::{Answer, AnswerResult, DecisionBuilder};
use crate::gate::Clearance;
use crate::input::SubmittedMessage;

/// The time limit of a person's own command unless they set one, in seconds.
const DEFAULT_TIMEOUT_SECONDS: u32 = 120;

/// The most secrets that a person's own command receives.
const MAX_SECRETS: usize = 100;

/// The `origin` of these commands in the log.
const SHELL_EXEC_ORIGIN: &str = "ui_bang";

impl DecisionBuilder<'_> {
    pub(super) fn shell_exec(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        mut exec: ShellExec,
    ) -> AnswerResult {
        self.check_not_paused()?;
        let mode = self.session.config.shell_exec;
        if mode == ShellExecMode::Off {
            return Err(Refusal::InvalidState(
                "`shell_exec` is off in this session".to_owned(),
            ));
        }
        let executor = self.find_shell_executor(exec.executor.as_ref())?;
        exec.timeout_seconds.get_or_insert(DEFAULT_TIMEOUT_SECONDS);
        exec.secrets = Vec::new();
        let mut action = Action::from_shell_exec(&exec);
        if self.assess(&action, &executor).category != Category::Read {
            let secrets = self.session.secrets_for(&executor, self.at).into_iter();
            let allowed = secrets.filter(|name| !pvp_policy::changes_meaning(name));
            exec.secrets = allowed.map(str::to_owned).take(MAX_SECRETS).collect();
            action = Action::from_shell_exec(&exec);
        }
        self.check_action(&action)?;
        self.check_proposal_limits(by)?;
        self.check_names_no_gate(&submitted.id)?;
        let mut assessment = self.assess(&action, &executor);
        if mode == ShellExecMode::Gated || assessment.category > Category::Write {
            self.note_unbound_files(&mut assessment, &action, &executor);
        }
        exec.executor = Some(executor);
        exec.origin = Some(SHELL_EXEC_ORIGIN.to_owned());
        exec.assessment = Some(assessment.clone());
        let answer = self.relay(by, submitted, exec);
        if assessment.category == Category::Blocked {
            let (rule, reason) = (assessment.rule, assessment.reason);
            return Ok(Answer::Refused(Refusal::Blocked { rule, reason }));
        }
        let direct = match mode {
            ShellExecMode::Direct => assessment.category <= Category::Write,
            ShellExecMode::DirectAll => true,
            ShellExecMode::Gated | ShellExecMode::Off => false,
        };
        // Nobody gets by their own command what they could not approve for others.
        let proposal = self.session.proposals[&submitted.id].clone();
        let quorum = self.quorum_for(&proposal);
        let direct = direct
            && (assessment.category == Category::Read || self.could_approve_alone(by, &quorum)?);
        match direct
            .then(|| Clearance::for_own_command(&proposal))
            .flatten()
        {
            Some(clearance) => self.append_grant(clearance),
            None => self.open_gate(&proposal),
        }
        Ok(answer)
    }

    /// The executor that was named, or else the only one in the session.
    fn find_shell_executor(&self, named: Option<&ParticipantId>) -> Result<ParticipantId, Refusal> {
        let able: Vec<_> = self
            .session
            .members()
            .filter(|(_, member)| member.is_present_agent())
            .filter(|(_, member)| {
                member
                    .announce
                    .executor
                    .as_ref()
                    .is_some_and(|e| e.shell_exec)
            })
            .map(|(id, _)| id.clone())
            .collect();
        let list = || {
            able.iter()
                .map(ParticipantId::as_str)
                .collect::<Vec<_>>()
                .join(", ")
        };
        match (named, able.as_slice()) {
            (Some(named), _) if able.contains(named) => Ok(named.clone()),
            (Some(named), []) => Err(Refusal::InvalidState(format!(
                "`{named}` does not run people's own commands, and no other agent in this session does"
            ))),
            (Some(named), _) => Err(Refusal::InvalidState(format!(
                "`{named}` does not run people's own commands; these do: {}",
                list()
            ))),
            (None, [only]) => Ok(only.clone()),
            (None, []) => Err(Refusal::InvalidState(
                "no agent in this session runs people's own commands; start one with `pvp agent --accept-shell`".to_owned(),
            )),
            (None, _) => Err(Refusal::InvalidState(format!(
                "say which `executor` should run it: {}",
                list()
            ))),
        }
    }
}
