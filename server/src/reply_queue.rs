//! Queues the replies to one connection's messages, in one order with the log's entries.
//!
//! A reply may be sent once its connection has sent every entry that was published before it. The
//! number of unanswered messages per connection is bounded, and so is the queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use pvp_protocol::MessageId;
use pvp_session::Answer;

use crate::admission::Charge;
use crate::feed::SessionFeed;

/// The answer to one message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConnectionReply {
    pub(crate) id: MessageId,
    pub(crate) answer: Answer,
}

/// What a connection sends to answer a message.
#[derive(Debug, PartialEq)]
pub(crate) enum QueuedReply {
    /// The session's answer, and whether the message has been charged.
    Answer(ConnectionReply, Charge),
    /// A message that the connection made itself, such as a pong.
    Text(Vec<u8>),
}

#[derive(Default)]
struct ReplyQueueState {
    /// The replies, each with the sequence number of the last entry published before it.
    replies: VecDeque<(u64, QueuedReply)>,
    waker: Option<Waker>,
}

/// Where the session's task and the connection itself put the replies for one connection.
pub(crate) struct ReplyQueue {
    feed: Arc<SessionFeed>,
    state: Mutex<ReplyQueueState>,
}

impl ReplyQueue {
    /// The queue of a connection that reads this feed.
    pub(crate) fn new(feed: Arc<SessionFeed>) -> Self {
        Self {
            feed,
            state: Mutex::default(),
        }
    }

    /// Adds an answer, and wakes the connection.
    pub(crate) fn push(&self, reply: ConnectionReply, charge: Charge) {
        if let Some(waker) = self.add(QueuedReply::Answer(reply, charge)) {
            waker.wake();
        }
    }

    /// Adds a message that the connection made itself.
    pub(crate) fn push_text(&self, text: Vec<u8>) {
        // Nobody needs to be woken: the connection polls the queue when it goes on.
        self.add(QueuedReply::Text(text));
    }

    fn add(&self, reply: QueuedReply) -> Option<Waker> {
        let mut state = self.state.lock();
        // Read under the lock, so that the numbers never decrease.
        let head = self.feed.head();
        state.replies.push_back((head, reply));
        state.waker.take()
    }

    /// The next reply, if every entry published before it is before `next_seq`. Otherwise
    /// registers the caller to be woken by the next answer.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>, next_seq: u64) -> Poll<QueuedReply> {
        let mut state = self.state.lock();
        let due = state
            .replies
            .front()
            .is_some_and(|(head, _)| *head < next_seq);
        if let Some((_, reply)) = due.then(|| state.replies.pop_front()).flatten() {
            return Poll::Ready(reply);
        }
        if state.replies.is_empty() {
            state.replies.shrink_to(0);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_waits_for_the_entries_published_before_it_and_for_no_later_ones() {
        let feed = Arc::new(SessionFeed::default());
        let queue = ReplyQueue::new(feed.clone());
        let mut cx = Context::from_waker(Waker::noop());
        for head in [3, 5] {
            feed.advance_head_to(head);
            queue.push_text(vec![b'0' + u8::try_from(head).unwrap()]);
        }
        feed.advance_head_to(9);
        let mut next = |next_seq| queue.poll_next(&mut cx, next_seq);
        assert_eq!(next(3), Poll::Pending);
        assert_eq!(next(4), Poll::Ready(QueuedReply::Text(b"3".to_vec())));
        assert_eq!(next(5), Poll::Pending);
        assert_eq!(next(6), Poll::Ready(QueuedReply::Text(b"5".to_vec())));
        assert_eq!(next(10), Poll::Pending);
    }
}
