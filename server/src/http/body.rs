//! Bodies of requests that must arrive in time, and of answers that are counted until they are sent.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::connection_stream::MIN_PROGRESS_BYTES;
use crate::directory::ConnectionSlot;

/// Whether a body came too slowly.
pub(super) struct BodyPace(Arc<AtomicBool>);

impl BodyPace {
    pub(super) fn was_missed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Lets a request's body fail unless it ends, or [`MIN_PROGRESS_BYTES`] of it arrive, in each period.
pub(super) fn require_pace(request: Request, period: Duration) -> (Request, BodyPace) {
    let missed = Arc::new(AtomicBool::new(false));
    let pace = BodyPace(missed.clone());
    let request = request.map(|body| {
        Body::new(PacedBody {
            body,
            period,
            sleep: Box::pin(tokio::time::sleep(period)),
            received: 0,
            missed,
        })
    });
    (request, pace)
}

struct PacedBody {
    body: Body,
    period: Duration,
    sleep: Pin<Box<Sleep>>,
    /// Bytes that arrived in this period.
    received: u64,
    missed: Arc<AtomicBool>,
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok());
            let bytes = data.and_then(Frame::data_ref).map_or(0, Bytes::len);
            self.received += bytes as u64;
            // Bytes that keep coming never leave the timer to be asked below.
            if bytes == 0 || !self.is_late(cx) {
                return Poll::Ready(frame);
            }
        } else if !self.is_late(cx) {
            return Poll::Pending;
        }
        self.missed.store(true, Ordering::Relaxed);
        let late = io::Error::new(io::ErrorKind::TimedOut, "the body came too slowly");
        Poll::Ready(Some(Err(axum::Error::new(late))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl PacedBody {
    /// Whether a period has ended in which too little arrived; otherwise the next one may have begun.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        while self.sleep.as_mut().poll(cx).is_ready() {
            if self.received < MIN_PROGRESS_BYTES {
                return true;
            }
            self.received = 0;
            let next = Instant::now() + self.period;
            self.sleep.as_mut().reset(next);
        }
        false
    }
}

/// The body of an answer. When it is gone, all of it was handed over to be written.
pub(super) struct AnswerBody {
    pub(super) body: Body,
    pub(super) slot: Arc<ConnectionSlot>,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.slot.record_answered();
    }
}
