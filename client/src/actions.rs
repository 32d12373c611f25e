//! What people and agents do most, each as one call on a connection.

use pvp_protocol::payload::{
    GateAmend, GateApprove, GateReject, InterruptRaise, InterruptUrgency, PromptSubmit,
    SessionLeave, ShellExec, ToolCancel, ToolPropose,
};
use pvp_protocol::{Digest, ExtraFields, JsonObject, MessageId, ParticipantId, Risk, ToolCategory};

use crate::connection::{Connection, Receipt, SendError};

impl Connection {
    /// Asks an agent something.
    pub async fn prompt(&self, agent: &ParticipantId, text: &str) -> Result<Receipt, SendError> {
        self.send(PromptSubmit {
            content: text.to_owned(),
            target_agent: agent.clone(),
            contributors: vec![self.participant().clone()],
            context_keys: Vec::new(),
            config: None,
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Proposes a line for the shell. The receipt's id names the proposal from here on.
    pub async fn propose_shell(&self, line: &str, purpose: &str) -> Result<Receipt, SendError> {
        let mut arguments = JsonObject::new();
        arguments.insert("full_command".to_owned(), line.into());
        self.propose(arguments, purpose).await
    }

    /// Proposes a command with arguments as `tool.propose` has them.
    pub async fn propose(
        &self,
        arguments: JsonObject,
        purpose: &str,
    ) -> Result<Receipt, SendError> {
        self.send(ToolPropose {
            tool_name: "shell".to_owned(),
            arguments,
            agent: self.participant().clone(),
            // A claim that can only raise the verdict: this one leaves it to the server.
            risk_level: Risk::Safe,
            description: purpose.to_owned(),
            requires_approval: false,
            suggested_approvers: None,
            category: ToolCategory::ShellExecute,
            assessment: None,
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Approves exactly what was shown, which the digest binds.
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
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Rejects it; the agent reads the reason.
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
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Edits a command that waits; `arguments` are the whole new ones, `digest` what is edited.
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

    /// Runs a command of one's own on an executor, or on the only one there.
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
            assessment: None,
            extra: ExtraFields::new(),
        })
        .await
    }

    /// Withdraws a proposal, or stops a run.
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

    /// Interrupts one agent, or all of them.
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

    /// Leaves the session; the connection ends with it.
    pub async fn leave(self, reason: Option<String>) -> Result<(), SendError> {
        let leave = SessionLeave {
            reason,
            extra: ExtraFields::new(),
        };
        self.send_and_wait(leave).await.map(|_| ())
    }
}
