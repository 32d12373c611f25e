//! Describes the session to someone who joins.

use pvp_protocol::payload::{
    AllowRuleInfo, Announce, ContextAdd, OpenGate, Participant, PresenceStatus, ProtocolExtensions,
    RunningCommand, SecretInfo, SessionWelcome,
};
use pvp_protocol::{Limits, ParticipantId, ShellExecMode};

use crate::apply::WORKING_DIRECTORY_KEY;
use crate::gate::Gate;
use crate::input::Ceiling;
use crate::proposal::Proposal;
use crate::state::{Allowed, Session};

impl Gate {
    /// The gate with what its proposal asks for. This copies the whole command.
    pub fn describe(&self, proposal: &Proposal) -> OpenGate {
        OpenGate {
            gate: self.id.clone(),
            request: self.request.clone(),
            action: proposal.action.clone(),
            assessment: proposal.assessment.clone(),
            proposer: proposal.proposer.clone(),
            description: proposal.description.clone(),
            degree: proposal.degree,
            origin: proposal.origin.clone(),
            approvals: self.approvals.values().cloned().collect(),
            escalated: self.escalated,
            amended_by: self.amended_by.clone(),
        }
    }
}

impl Session {
    /// The last announcements of everyone in the session, without those who were told to be gone.
    pub fn announcements(&self) -> impl Iterator<Item = &Announce> {
        let here = self.members().filter(|(_, it)| !it.connection_lost);
        here.map(|(_, member)| &member.announce)
    }

    /// The context item that says where commands run.
    pub fn working_directory_context(&self) -> Option<&ContextAdd> {
        self.context
            .get(WORKING_DIRECTORY_KEY)?
            .sent_on_join
            .as_ref()
    }

    /// Everyone in the session, with their presence.
    pub fn describe_participants(
        &self,
        presence: impl Fn(&ParticipantId) -> PresenceStatus,
    ) -> Vec<Participant> {
        self.members()
            .map(|(id, member)| Participant {
                announce: member.announce.clone(),
                presence: presence(id),
            })
            .collect()
    }

    /// The gates that are open, oldest first.
    pub fn describe_open_gates(&self) -> Vec<OpenGate> {
        let gates = self.open_gates().into_iter();
        gates
            .map(|(proposal, gate)| gate.describe(proposal))
            .collect()
    }

    /// The commands that are running.
    pub fn describe_running(&self) -> Vec<RunningCommand> {
        self.running()
            .map(|(proposal, execution)| RunningCommand {
                tool_proposal: proposal.id.clone(),
                executor: proposal.executor.clone(),
                command: proposal.action.command.brief(),
                mode: execution.mode,
                since: execution.since,
                degree: proposal.degree,
                origin: proposal.origin.clone(),
            })
            .collect()
    }

    /// The shared secrets, without their values.
    fn describe_secrets(&self) -> Vec<SecretInfo> {
        let secrets = self.secrets.iter();
        secrets
            .map(|(key, secret)| SecretInfo {
                key: key.clone(),
                by: secret.by.clone(),
                scope: secret.scope.iter().cloned().collect(),
                expires_at: secret.expires_at,
            })
            .collect()
    }

    /// The allow rules, oldest first.
    pub fn describe_allow_rules(&self) -> Vec<AllowRuleInfo> {
        let mut rules: Vec<_> = self
            .allow_rules
            .iter()
            .map(|(id, rule)| {
                let (prefix, directory, read_root) = match rule.allowed.clone() {
                    Allowed::Commands { prefix, directory } => (prefix, directory, None),
                    Allowed::Reading { root } => (Vec::new(), None, Some(root)),
                };
                AllowRuleInfo {
                    rule: id.clone(),
                    by: rule.by.clone(),
                    at: rule.at,
                    prefix,
                    read_root,
                    directory,
                    expires_at: rule.expires_at,
                    reason: rule.reason.clone(),
                }
            })
            .collect();
        rules.sort_by_key(|rule| rule.at);
        rules
    }

    /// The welcome for someone who has just joined; `None` if they have not.
    pub fn welcome(
        &self,
        participant: &ParticipantId,
        limits: &Limits,
        presence: impl Fn(&ParticipantId) -> PresenceStatus,
        server: String,
    ) -> Option<SessionWelcome> {
        let mut welcome = self.welcome_without_people(participant, None, limits, server)?;
        welcome.people = self.describe_participants(presence);
        Some(welcome)
    }

    /// Like [`welcome`](Self::welcome), for a caller that has the description of the people already,
    /// with only the rights that the token of the connection gives.
    pub fn welcome_without_people(
        &self,
        participant: &ParticipantId,
        ceiling: Option<&Ceiling>,
        limits: &Limits,
        server: String,
    ) -> Option<SessionWelcome> {
        let member = self.members.get(participant)?;
        let bounded = ceiling.and_then(|ceiling| member.bounded_by(ceiling).ok());
        let member = bounded.as_ref().unwrap_or(member);
        Some(SessionWelcome {
            participant: participant.clone(),
            roles: member.announce.roles.clone(),
            capabilities: member.capabilities().into_iter().collect(),
            name: self.name.clone(),
            config: self.config.clone(),
            head: self.head,
            people: Vec::new(),
            gates: self.describe_open_gates(),
            running: self.describe_running(),
            rules: self.describe_allow_rules(),
            secrets: self.describe_secrets(),
            limits: limits.clone(),
            extensions: ProtocolExtensions {
                supports_shell_exec: self.config.shell_exec != ShellExecMode::Off,
                supports_amend: true,
                supports_allow_rules: true,
                supports_resume: true,
                supports_output_read: true,
                supports_forks: false,
            },
            paused: self.paused_for(),
            server,
        })
    }
}
