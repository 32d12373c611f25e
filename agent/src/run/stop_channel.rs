//! The channel that asks a run to stop, even before it has started.

use tokio::sync::watch;

use crate::reaper::ReaperCommand;

/// How to stop a run, and why.
pub(crate) type StopRequest = (ReaperCommand, String);

/// A pair of handles: one to request a stop, one for the run to receive it. A stop requested before
/// the start prevents it.
pub fn stop_channel() -> (StopSender, StopReceiver) {
    let (sender, receiver) = watch::channel(None);
    (StopSender(sender), StopReceiver(receiver))
}

/// Requests that a run stops.
#[derive(Debug, Clone)]
pub struct StopSender(watch::Sender<Option<StopRequest>>);

impl StopSender {
    /// Asks the command to end, and kills it after the grace period.
    pub fn stop(&self, why: &str) {
        self.send(ReaperCommand::Stop, why);
    }

    /// Kills the command at once.
    pub fn kill(&self, why: &str) {
        self.send(ReaperCommand::Kill, why);
    }

    fn send(&self, command: ReaperCommand, why: &str) {
        self.0.send_replace(Some((command, why.to_owned())));
    }
}

/// The receiving end of a stop channel.
#[derive(Debug)]
pub struct StopReceiver(watch::Receiver<Option<StopRequest>>);

impl StopReceiver {
    /// The latest request, if there is one.
    pub(crate) fn current(&self) -> Option<StopRequest> {
        self.0.borrow().clone()
    }

    /// Waits until a stop is requested; returns why. The request is not consumed.
    pub(crate) async fn requested(&mut self) -> String {
        let request = self.0.wait_for(Option::is_some).await;
        let why = request
            .ok()
            .and_then(|request| request.as_ref().map(|(_, why)| why.clone()));
        match why {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }

    /// The next request that was not seen yet; waits forever once all senders are gone.
    pub(super) async fn next(&mut self) -> StopRequest {
        loop {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let request = self.0.borrow_and_update().clone();
            if let Some(request) = request {
                return request;
            }
        }
    }
}
