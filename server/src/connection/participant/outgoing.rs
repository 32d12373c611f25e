//! Sends a participant the log, and the answers to their messages.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use pvp_protocol::Refusal;
use pvp_protocol::payload::GateReject;
use pvp_session::Answer;

use super::ParticipantConnection;
use super::incoming::{MAX_RATE_VIOLATIONS, rate_limit_close};
use crate::admission::Charge;
use crate::connection::backfill::{self, BackfillPage};
use crate::connection::{CloseReason, ConnectionEnd, close_code};
use crate::envelope;
use crate::feed::{FeedRead, SessionFeed};
use crate::reply_queue::{ConnectionReply, QueuedReply};
use crate::socket::append_text_frame;

/// Batches written before other tasks get a turn.
const MAX_BATCHES_PER_POLL: usize = 16;

impl ParticipantConnection<'_> {
    /// Writes the frames after the cursor and the replies among them, until nothing is left or the
    /// socket is full.
    pub(super) fn poll_outgoing(
        &mut self,
        cx: &mut Context<'_>,
        feed: &SessionFeed,
    ) -> Poll<ConnectionEnd> {
        for _ in 0..MAX_BATCHES_PER_POLL {
            let mut idle = false;
            if self.socket.wants_frames() {
                match self.poll_next_batch(cx, feed) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(close_reason)) => {
                        return Poll::Ready(ConnectionEnd::ByServer(close_reason));
                    }
                    Poll::Pending => idle = true,
                }
            }
            if self.rate_violations > MAX_RATE_VIOLATIONS {
                return Poll::Ready(rate_limit_close());
            }
            match self.socket.poll_write(cx) {
                Poll::Ready(Ok(())) if idle => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(ConnectionEnd::ByPeer),
                Poll::Pending => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Pushes the next frames, in this order: welcome, history, the frame after it, live entries. A
    /// reply follows the entries that were published before it.
    fn poll_next_batch(
        &mut self,
        cx: &mut Context<'_>,
        feed: &SessionFeed,
    ) -> Poll<Result<(), CloseReason>> {
        if !self.welcome_frames.is_empty() {
            let count = self.welcome_frames.len().min(crate::feed::MAX_BATCH_FRAMES);
            for frame in self.welcome_frames.drain(..count) {
                self.socket.push(frame);
            }
            self.welcome_frames.shrink_to(0);
            return Poll::Ready(Ok(()));
        }
        if let Some(backfill) = &mut self.backfill {
            let Poll::Ready(page) = Pin::new(backfill).poll(cx) else {
                return Poll::Pending;
            };
            self.backfill = None;
            return Poll::Ready(
                self.push_page(page.unwrap_or_else(|panic| Err(panic.to_string()))),
            );
        }
        if let Some((live_from_seq, _)) = self.after_history {
            if self.cursor.next_seq < live_from_seq {
                self.start_backfill(live_from_seq);
            } else if let Some((_, Some(frame))) = self.after_history.take() {
                self.socket.push(frame);
            }
            return Poll::Ready(Ok(()));
        }
        if self.push_due_replies(cx) {
            return Poll::Ready(Ok(()));
        }
        let socket = &mut *self.socket;
        match feed.read_batch(&mut self.cursor, &self.viewer, |frame| socket.push(frame)) {
            FeedRead::Advanced => {
                self.push_due_replies(cx);
                Poll::Ready(Ok(()))
            }
            FeedRead::Behind => {
                self.start_backfill(feed.head() + 1);
                Poll::Ready(Ok(()))
            }
            FeedRead::UpToDate if self.viewer.has_left() && self.unanswered == 0 => {
                Poll::Ready(Err(CloseReason::new(
                    close_code::NORMAL,
                    "you have left the session",
                )))
            }
            FeedRead::UpToDate => Poll::Pending,
            FeedRead::Deleted => Poll::Ready(Err(CloseReason::new(
                close_code::POLICY,
                "the session was deleted by an admin",
            ))),
            FeedRead::Closed => Poll::Ready(Err(CloseReason::new(
                close_code::GOING_AWAY,
                "the server is shutting down; reconnect later",
            ))),
        }
    }

    fn start_backfill(&mut self, until: u64) {
        let filter = self.history_filter.clone();
        let filter = filter.filter(|_| self.after_history.is_some());
        self.backfill = Some(tokio::spawn(backfill::read_page(
            self.directory.clone(),
            self.session.clone(),
            Arc::clone(&self.viewer),
            self.secrets.clone(),
            (self.cursor.next_seq, until),
            filter,
        )));
    }

    fn push_page(&mut self, page: Result<BackfillPage, String>) -> Result<(), CloseReason> {
        match page {
            Ok(page) => {
                self.cursor.next_seq = page.next_seq;
                if !page.frames.is_empty() {
                    self.socket.push(page.frames);
                }
                Ok(())
            }
            Err(why) => {
                tracing::error!(session = %self.session, why, "could not read the log for a viewer");
                Err(CloseReason::new(
                    close_code::TRY_AGAIN,
                    "the log cannot be read at the moment; reconnect later",
                ))
            }
        }
    }

    /// Pushes the replies that only waited for entries before the cursor; true if there were any.
    pub(super) fn push_due_replies(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.welcome_frames.is_empty() || self.after_history.is_some() {
            return false;
        }
        let mut frames = BytesMut::new();
        while let Poll::Ready(reply) = self.reply_queue.poll_next(cx, self.cursor.next_seq) {
            self.unanswered -= 1;
            match reply {
                QueuedReply::Answer(reply, charge) => {
                    self.on_answer(&reply, charge);
                    if let Some(told) = self.tell_refused_proposal(&reply) {
                        append_text_frame(&mut frames, &told);
                    }
                    append_text_frame(&mut frames, &envelope::reply(&self.session, reply));
                }
                QueuedReply::Text(text) => {
                    self.queued_bytes -= text.len();
                    append_text_frame(&mut frames, &text);
                }
            }
        }
        if frames.is_empty() {
            return false;
        }
        self.socket.push(frames.freeze());
        true
    }

    /// Queues a reply that the connection made itself.
    pub(super) fn reply(&mut self, text: Vec<u8>) {
        self.unanswered += 1;
        self.queued_bytes += text.len();
        self.reply_queue.push_text(text);
    }

    /// Tells a published agent that its proposal was refused, in the words that it waits for. A
    /// blocked one is in the log, and told from there.
    fn tell_refused_proposal(&mut self, reply: &ConnectionReply) -> Option<Vec<u8>> {
        let is_proposal = self.sent_proposals.remove(&reply.id);
        match &reply.answer {
            Answer::Refused(Refusal::Blocked { .. })
            | Answer::Accepted(_)
            | Answer::Duplicate(_) => None,
            Answer::Refused(refusal) => {
                let reason = refusal.to_string();
                let rejection = GateReject::by_server(reply.id.clone(), None, reason);
                let told = || envelope::ephemeral(&self.session, Some(reply.id.clone()), rejection);
                is_proposal.then(told)
            }
        }
    }

    fn on_answer(&mut self, reply: &ConnectionReply, charge: Charge) {
        if let Answer::Refused(refusal) = &reply.answer {
            self.directory.metrics.record_refusal(refusal);
            tracing::info!(session = %self.session, participant = %self.viewer.participant, code = ?refusal.code(), %refusal, "refused");
            if self.allowance().charge_refused(charge).is_err() {
                self.rate_violations += 1;
            }
        }
    }
}
