//! Queues the answers to one connection's messages.
//!
//! The number of unanswered messages per connection is bounded, and so is the queue.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use pvp_protocol::MessageId;
use pvp_session::Answer;

/// The answer to one message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConnectionReply {
    pub(crate) id: MessageId,
    pub(crate) answer: Answer,
}

#[derive(Debug, Default)]
struct ReplyQueueState {
    replies: VecDeque<ConnectionReply>,
    waker: Option<Waker>,
}

/// Where the session's task puts answers for one connection.
#[derive(Debug, Default)]
pub(crate) struct ReplyQueue(Mutex<ReplyQueueState>);

impl ReplyQueue {
    pub(crate) fn push(&self, reply: ConnectionReply) {
        let waker = {
            let mut queue = self.0.lock();
            queue.replies.push_back(reply);
            queue.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next answer; registers the caller to be woken when there is none.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<ConnectionReply> {
        let mut queue = self.0.lock();
        match queue.replies.pop_front() {
            Some(reply) => Poll::Ready(reply),
            None => {
                queue.replies.shrink_to(0);
                queue.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
