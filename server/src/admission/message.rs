//! Checks one message before it reaches a session: its size, its price, its sender, its session.

use pvp_protocol::{
    ClientMessage, EnvelopeHeader, ExtraFields, Limits, MessageId, MessageParseError,
    ParticipantKind, Refusal, SessionId,
};

use super::Principal;
use crate::directory::SessionDirectory;
use crate::viewer::Viewer;
use tokio::sync::SemaphorePermit;

/// The largest message that an agent may send to a server without login, in bytes; agents written
/// for the published PVP v1 protocol put whole files and outputs into one.
const MAX_OPEN_MODE_MESSAGE_BYTES: usize = 24 * 1024 * 1024;

/// The field of a vote in which the server records how it was given. It is removed from what clients
/// send, so that nobody can say of their own vote that a link gave it.
pub(crate) const VIA: &str = "via";

/// A message as its text was parsed.
pub(crate) type ParsedMessage = Result<(EnvelopeHeader, ClientMessage), MessageParseError>;

/// A message that its sender may send, as far as can be told without the session's state.
pub(crate) struct AdmittedMessage {
    pub(crate) header: EnvelopeHeader,
    pub(crate) message: ClientMessage,
    pub(crate) charge: Charge,
}

/// A refusal, with the id of the refused message if that could be read.
pub(crate) struct MessageRefusal {
    pub(crate) refusal: Refusal,
    pub(crate) related_to: Option<MessageId>,
}

impl From<MessageParseError> for MessageRefusal {
    fn from(error: MessageParseError) -> Self {
        Self {
            refusal: error.refusal,
            related_to: error.related_to,
        }
    }
}

/// The most bytes that one message on a participant's connection may have.
pub(crate) fn max_message_bytes(directory: &SessionDirectory, kind: ParticipantKind) -> usize {
    let limit = directory.settings.limits.message_bytes;
    match kind {
        ParticipantKind::Agent if directory.config.open => limit.max(MAX_OPEN_MODE_MESSAGE_BYTES),
        ParticipantKind::Agent | ParticipantKind::Human => limit,
    }
}

/// Checks the size of a message that was within [`max_message_bytes`]: on a server without login,
/// results, proposals and context may be larger than other messages.
pub(crate) fn check_size(
    bytes: usize,
    parsed: &ParsedMessage,
    directory: &SessionDirectory,
) -> Result<(), Refusal> {
    let limits = &directory.settings.limits;
    let brings_files = matches!(
        parsed,
        Ok((
            _,
            ClientMessage::ToolResult(_)
                | ClientMessage::ToolPropose(_)
                | ClientMessage::ContextAdd(_)
                | ClientMessage::ContextUpdate(_)
        ))
    );
    if bytes <= limits.message_bytes || (brings_files && directory.config.open) {
        return Ok(());
    }
    Err(too_big(limits))
}

/// Waits until a message that is larger than most may be parsed; others need not wait.
pub(crate) async fn large_message_permit(
    directory: &SessionDirectory,
    bytes: usize,
) -> Option<SemaphorePermit<'_>> {
    if bytes <= directory.settings.limits.message_bytes {
        return None;
    }
    directory.large_message_permit.acquire().await.ok()
}

/// The refusal of a message that is too big.
pub(crate) fn too_big(limits: &Limits) -> Refusal {
    Refusal::Malformed(format!(
        "message is larger than {} bytes",
        limits.message_bytes
    ))
}

/// Whether a message has been charged to its sender's rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charge {
    Paid,
    /// Output of an agent has a limit of its own; it costs nothing unless it is refused.
    IfRefused,
}

/// A participant's rate limit, which all their connections and requests share.
pub(crate) struct Allowance<'a> {
    pub(crate) viewer: &'a Viewer,
    /// `None` if it is not known whether they are an agent.
    pub(crate) kind: Option<ParticipantKind>,
    pub(crate) limits: &'a Limits,
}

impl Allowance<'_> {
    /// Charges a message; `None` if it could not be parsed.
    pub(crate) fn charge(&self, message: Option<&ClientMessage>) -> Result<Charge, Refusal> {
        let is_output = matches!(
            message,
            Some(ClientMessage::ToolOutput(_) | ClientMessage::ToolResult(_))
        );
        if is_output && self.kind == Some(ParticipantKind::Agent) {
            return Ok(Charge::IfRefused);
        }
        self.pay().map(|()| Charge::Paid)
    }

    /// Charges a message that was refused, unless it is paid.
    pub(crate) fn charge_refused(&self, charge: Charge) -> Result<(), Refusal> {
        match charge {
            Charge::Paid => Ok(()),
            Charge::IfRefused => self.pay(),
        }
    }

    fn pay(&self) -> Result<(), Refusal> {
        if self
            .viewer
            .try_charge_message(pvp_clock::now(), self.limits)
        {
            return Ok(());
        }
        let per_second = self.limits.messages_per_second;
        Err(Refusal::RateLimited { per_second })
    }
}

/// Charges and checks a message. `session` is the session that the connection or the address is
/// for, `None` before joining; `allowance` is `None` for somebody who has not joined.
pub(crate) fn admit_message(
    principal: &mut Principal,
    parsed: ParsedMessage,
    session: Option<&SessionId>,
    allowance: Option<&Allowance<'_>>,
) -> Result<AdmittedMessage, MessageRefusal> {
    let (id, message) = match &parsed {
        Ok((header, message)) => (Some(header.id.clone()), Some(message)),
        Err(_) => (None, None),
    };
    let refused = |refusal| MessageRefusal {
        refusal,
        related_to: id.clone(),
    };
    let charge = match allowance {
        Some(allowance) => allowance.charge(message).map_err(refused)?,
        None => Charge::Paid,
    };
    let (header, mut message) = parsed?;
    if let Some(extra) = extra_of_vote(&mut message) {
        extra.remove(VIA);
    }
    let checked = check_sender(principal, &header, &message)
        .and_then(|()| check_address(&header.session, session));
    if let Err(refusal) = checked {
        let unpaid = allowance.map(|allowance| allowance.charge_refused(charge));
        return Err(refused(match unpaid {
            Some(Err(rate_limited)) => rate_limited,
            Some(Ok(())) | None => refusal,
        }));
    }
    Ok(AdmittedMessage {
        header,
        message,
        charge,
    })
}

/// The fields of a vote that are not known to every version; `None` if it is no vote.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a vote is one of these four messages"
)]
pub(crate) fn extra_of_vote(message: &mut ClientMessage) -> Option<&mut ExtraFields> {
    match message {
        ClientMessage::ToolApprove(vote) => Some(&mut vote.extra),
        ClientMessage::ToolReject(vote) => Some(&mut vote.extra),
        ClientMessage::GateApprove(vote) => Some(&mut vote.extra),
        ClientMessage::GateReject(vote) => Some(&mut vote.extra),
        _ => None,
    }
}

fn check_sender(
    principal: &mut Principal,
    header: &EnvelopeHeader,
    message: &ClientMessage,
) -> Result<(), Refusal> {
    // A token in the message says who it is from, so the sender is checked once that is looked up.
    if let ClientMessage::SessionJoin(join) = message
        && join.token.is_some()
        && principal.login().is_none()
    {
        return Ok(());
    }
    principal.check_sender(&header.sender).map(|_| ())
}

fn check_address(named: &SessionId, actual: Option<&SessionId>) -> Result<(), Refusal> {
    match actual {
        Some(actual) if named != actual => Err(Refusal::Malformed(format!(
            "this is session `{actual}`; `session` may not say `{named}`"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Whether a message decides what runs, or who decides it: its token must be valid at that moment.
pub(crate) fn decides_something(message: &ClientMessage) -> bool {
    use ClientMessage as M;
    matches!(
        message,
        M::ToolApprove(_)
            | M::ToolReject(_)
            | M::GateApprove(_)
            | M::GateReject(_)
            | M::GateAmend(_)
            | M::PolicyAllow(_)
            | M::PolicyRevoke(_)
            | M::ShellExec(_)
            | M::ToolInput(_)
            | M::ToolCancel(_)
            | M::SecretShare(_)
            | M::SecretRevoke(_)
            | M::RoleChange(_)
            | M::SessionConfigUpdate(_)
            | M::SessionEnd(_)
    )
}
