//! Handles the messages of a participant: answers some, and submits the others.

use pvp_protocol::{ClientMessage, EnvelopeHeader, MessageId, Refusal, parse_client_message};
use pvp_session::SubmittedMessage;

use super::{ParticipantConnection, token_end};
use crate::admission::{self, AdmittedMessage, Allowance, Charge, MessageRefusal};
use crate::connection::{CloseReason, ConnectionEnd, close_code, loggable};
use crate::{envelope, output};

/// How many messages above the rate limit are refused before the connection is closed.
pub(super) const MAX_RATE_VIOLATIONS: u32 = 50;

impl ParticipantConnection<'_> {
    pub(super) async fn on_message(&mut self, text: &str) -> Option<ConnectionEnd> {
        if let Some(ended) = self.recheck_token().await {
            return Some(ended);
        }
        let limits = &self.directory.settings.limits;
        let permit = admission::large_message_permit(&self.directory, text.len()).await;
        let parsed = parse_client_message(text, limits);
        drop(permit);
        if let Err(refusal) = admission::check_size(text.len(), &parsed, &self.directory) {
            return Some(ConnectionEnd::ByServer(CloseReason::new(
                close_code::TOO_BIG,
                &refusal.to_string(),
            )));
        }
        let allowance = Allowance {
            viewer: &self.viewer,
            kind: Some(self.kind),
            limits,
        };
        match admission::admit_message(
            &mut self.principal,
            parsed,
            Some(&self.session),
            Some(&allowance),
        ) {
            Ok(admitted) => {
                if admission::decides_something(&admitted.message)
                    && let Err(refusal) = self.principal.recheck_now(&self.directory).await
                {
                    return Some(token_end(&refusal));
                }
                self.on_admitted(admitted).await;
                None
            }
            Err(refused) => self.refuse(&refused),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the session decides on every other message"
    )]
    async fn on_admitted(&mut self, admitted: AdmittedMessage) {
        let (header, message) = (admitted.header, admitted.message);
        self.record_activity(&message).await;
        match message {
            ClientMessage::HeartbeatPing(_) => {
                self.reply(envelope::pong(&self.session, header.id));
            }
            ClientMessage::HeartbeatPong(_) => {}
            ClientMessage::OutputRead(read) => {
                match output::read_page(&self.directory, &self.session, read).await {
                    Ok(page) => {
                        self.reply(envelope::ephemeral(&self.session, Some(header.id), page));
                    }
                    Err(refusal) => self.send_refusal(&refusal, Some(header.id)),
                }
            }
            ClientMessage::SessionCreate(_) if self.directory.config.open => {
                self.tell_creation(header.id.clone()).await;
                self.submit(header, message, admitted.charge).await;
            }
            _ => self.submit(header, message, admitted.charge).await,
        }
    }

    async fn submit(&mut self, header: EnvelopeHeader, message: ClientMessage, charge: Charge) {
        if let (ClientMessage::ToolPropose(_), true) = (&message, self.directory.config.open) {
            self.sent_proposals.insert(header.id.clone());
        }
        self.unanswered += 1;
        let submitted = SubmittedMessage::with_header(header, message);
        let by = self.principal.speaker(self.viewer.participant.clone());
        let reply_queue = self.reply_queue.clone();
        self.directory
            .submit(&self.session, by, submitted, reply_queue, charge)
            .await;
    }

    /// Tells a participant who creates the session again what it is.
    async fn tell_creation(&mut self, create: MessageId) {
        let told = envelope::creation(&self.directory, &self.session, create).await;
        if let Some(told) = told {
            self.reply(told);
        }
    }

    /// Records that the participant is present, and notifies the session's task if they counted as
    /// inactive.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every message but a heartbeat counts as activity"
    )]
    async fn record_activity(&mut self, message: &ClientMessage) {
        let now = pvp_clock::now();
        let returned = match message {
            ClientMessage::HeartbeatPing(_) | ClientMessage::HeartbeatPong(_) => {
                self.viewer.record_seen(now)
            }
            _ => self.viewer.record_activity(now),
        };
        if returned {
            self.directory
                .participant_returned(&self.session, self.viewer.participant.clone())
                .await;
        }
    }

    /// Refuses a message, or ends the connection if too many were above the rate limit.
    fn refuse(&mut self, refused: &MessageRefusal) -> Option<ConnectionEnd> {
        if let Refusal::RateLimited { .. } = refused.refusal {
            self.rate_violations += 1;
        }
        if self.rate_violations > MAX_RATE_VIOLATIONS {
            return Some(rate_limit_close());
        }
        self.send_refusal(&refused.refusal, refused.related_to.clone());
        None
    }

    pub(super) fn send_refusal(&mut self, refusal: &Refusal, related_to: Option<MessageId>) {
        self.directory.metrics.record_refusal(refusal);
        let why = loggable(refusal);
        tracing::info!(session = %self.session, participant = %self.viewer.participant, code = ?refusal.code(), why, "refused");
        self.reply(envelope::error_report(&self.session, refusal, related_to));
    }
}

pub(super) fn rate_limit_close() -> ConnectionEnd {
    ConnectionEnd::ByServer(CloseReason::new(close_code::POLICY, "too many messages"))
}
