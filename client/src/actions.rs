//! The most common actions of people and agents, each as one method of a connection.

use pvp_protocol::payload::{
    GateAmend, GateApprove, GateReject, InterruptRaise, InterruptUrgency, PromptSubmit, RunBy,
    SessionLeave, ShellExec, ToolCancel, ToolPropose,
};
use pvp_protocol::{Digest, ExtraFields, JsonObject, MessageId, ParticipantId, Risk, ToolCategory};

use crate::connection::{Connection, Receipt, SendError};

impl Connection {
    /// Sends a prompt to an agent.
    pub async fn prompt(&self, agent: &ParticipantId, text: &str) -> Result<Receipt, SendError> {
        self.send(PromptSubmit {
            content: text.to_owned(),
            target_agent: agent.clone(),
            contributors: vec![self.participant().clone()],
            context_keys: Vec::new(),
            config: None,
            origin: None,
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Proposes a shell command line. The receipt's id is the id of the proposal.
    pub async fn propose_shell(&self, line: &str, purpose: &str) -> Result<Receipt, SendError> {
        let mut arguments = JsonObject::new();
        arguments.insert("full_command".to_owned(), line.into());
        self.propose(arguments, purpose).await
    }

    /// Proposes a command with the arguments of a `tool.propose` message.
    pub async fn propose(
        &self,
        arguments: JsonObject,
        purpose: &str,
    ) -> Result<Receipt, SendError> {
        self.send(ToolPropose {
            tool_name: "shell".to_owned(),
            arguments,
            agent: self.participant().clone(),
            // The proposer's claim can only raise the assessed risk; `Safe` leaves it to the
            // server.
            risk_level: Risk::Safe,
            description: purpose.to_owned(),
            requires_approval: false,
            suggested_approvers: None,
            category: ToolCategory::ShellExecute,
            file_contents: Vec::new(),
            deleted_files: Vec::new(),
            streaming: false,
            runs: RunBy::Executor,
            degree: None,
            origin: None,
            lease: false,
            assessment: None,
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Approves exactly the action that was shown, identified by its digest.
    pub async fn approve(
        &self,
        gate: &MessageId,
        digest: Digest,
        comment: Option<String>,
    ) -> Result<Receipt, SendError> {
        self.send(GateApprove {
            gate: gate.clone(),
            approver: self.participant().clone(),
            comment,
            digest: Some(digest),
            gate_request: None,
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Rejects the action at a gate. The agent reads the reason.
    pub async fn reject(
        &self,
        gate: &MessageId,
        digest: Digest,
        reason: &str,
    ) -> Result<Receipt, SendError> {
        self.send(GateReject {
            gate: gate.clone(),
            rejector: self.participant().clone(),
            reason: reason.to_owned(),
            digest: Some(digest),
            gate_request: None,
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Edits a command that waits at a gate. `arguments` replaces all of the old arguments;
    /// `digest` identifies the action that is edited.
    pub async fn amend(
        &self,
        gate: &MessageId,
        digest: Digest,
        arguments: JsonObject,
        reason: Option<String>,
    ) -> Result<Receipt, SendError> {
        self.send(GateAmend {
            gate: gate.clone(),
            arguments,
            digest,
            reason,
            assessment: None,
            quorum: None,
            deadline: None,
            voters: None,
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Runs the participant's own command on an executor; `None` picks the only one in the session.
    pub async fn exec_shell(
        &self,
        line: &str,
        executor: Option<ParticipantId>,
    ) -> Result<Receipt, SendError> {
        self.send(ShellExec {
            command: line.to_owned(),
            timeout_seconds: None,
            cwd: None,
            executor,
            origin: None,
            secrets: Vec::new(),
            assessment: None,
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Withdraws a proposal, or stops it if it is running.
    pub async fn cancel(
        &self,
        proposal: &MessageId,
        reason: Option<String>,
    ) -> Result<Receipt, SendError> {
        self.send(ToolCancel {
            tool_proposal: proposal.clone(),
            reason,
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Interrupts one agent, or all of them if `target` is `None`.
    pub async fn interrupt(
        &self,
        target: Option<ParticipantId>,
        urgency: InterruptUrgency,
        message: &str,
    ) -> Result<Receipt, SendError> {
        self.send(InterruptRaise {
            target,
            urgency,
            message: message.to_owned(),
            inject_context: None,
            inject_context_ref: None,
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Leaves the session, which also ends the connection.
    pub async fn leave(self, reason: Option<String>) -> Result<(), SendError> {
        let leave = SessionLeave {
            reason,
            connection_lost: false,
            extra: ExtraFields::new(),
        };
        self.send_and_wait(leave).await.map(|_| ())
    }
}
