//! Counts the calls of which the session has not been told how they ended.

use std::time::Duration;

use tokio::sync::watch;

/// How long is waited for the reports about calls that are over.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

/// The calls that may run and are not reported.
#[derive(Debug, Clone, Default)]
pub(super) struct UnreportedCalls(watch::Sender<usize>);

/// One of them, until this is dropped.
#[derive(Debug)]
pub(super) struct UnreportedCall(watch::Sender<usize>);

impl UnreportedCalls {
    pub(super) fn begin(&self) -> UnreportedCall {
        self.0.send_modify(|calls| *calls += 1);
        UnreportedCall(self.0.clone())
    }

    /// Waits until there are none. False if that takes too long.
    pub(super) async fn settle(&self) -> bool {
        let mut calls = self.0.subscribe();
        let settled = calls.wait_for(|calls| *calls == 0);
        tokio::time::timeout(SETTLE_TIMEOUT, settled).await.is_ok()
    }
}

impl Drop for UnreportedCall {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}
