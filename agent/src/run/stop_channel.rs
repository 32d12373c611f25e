//! Telling a run to stop, from wherever, and from before it began.

use tokio::sync::watch;

use crate::reaper::ReaperCommand;

/// What someone wants of a run, and why.
pub(super) type StopRequest = (ReaperCommand, String);

/// The two ends of a wish to stop: one for who may voice it, one for the run that hears it.
pub fn stop_channel() -> (StopSender, StopReceiver) {
    let (sender, receiver) = watch::channel(None);
    (StopSender(sender), StopReceiver(receiver))
}

/// Tells a run to stop.
#[derive(Debug, Clone)]
pub struct StopSender(watch::Sender<Option<StopRequest>>);

impl StopSender {
    /// Asks, and after the grace insists.
    pub fn stop(&self, why: &str) {
        self.send(ReaperCommand::Stop, why);
    }

    /// Ends it at once.
    pub fn kill(&self, why: &str) {
        self.send(ReaperCommand::Kill, why);
    }

    fn send(&self, command: ReaperCommand, why: &str) {
        self.0.send_replace(Some((command, why.to_owned())));
    }
}

/// What a run hears of the wish to stop it.
#[derive(Debug)]
pub struct StopReceiver(watch::Receiver<Option<StopRequest>>);

impl StopReceiver {
    /// What is wanted so far.
    pub(super) fn current(&self) -> Option<StopRequest> {
        self.0.borrow().clone()
    }

    /// Waits until someone wants it to stop; gives why. It stays wanted.
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

    /// The next wish that has not been heard; waits for ever once nobody is left to voice one.
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
