//! Answers to one connection's own messages, on their way to it.
//!
//! A connection has a bounded number of unanswered messages, so this never holds more.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use pvp_protocol::{MessageId, Refusal};
use pvp_session::Answer;

/// What became of a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) id: MessageId,
    pub(crate) verdict: Verdict,
}

/// How a message was answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    Accepted(Option<u64>),
    Duplicate(u64),
    Refused(Refusal),
}

impl From<Answer> for Verdict {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Accepted(seq) => Verdict::Accepted(seq),
            Answer::Duplicate(seq) => Verdict::Duplicate(seq),
            Answer::Refused(refusal) => Verdict::Refused(refusal),
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    replies: VecDeque<Reply>,
    waker: Option<Waker>,
}

/// Where the session's task leaves answers for one connection.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Inner>);

impl Outbox {
    pub(crate) fn put(&self, reply: Reply) {
        let waker = {
            let mut inner = self.0.lock();
            inner.replies.push_back(reply);
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next answer; registers the caller to be woken when there is none.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Reply> {
        let mut inner = self.0.lock();
        match inner.replies.pop_front() {
            Some(reply) => Poll::Ready(reply),
            None => {
                inner.replies.shrink_to(0);
                inner.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
