//! Telling a run to stop, from wherever, and from before it began.

use tokio::sync::watch;

use crate::reaper::Word;

/// What someone wants of a run, and why.
pub(super) type Wish = (Word, String);

/// The two ends of a wish to stop: one for who may voice it, one for the run that hears it.
pub fn stopping() -> (Stopper, Asked) {
    let (sender, receiver) = watch::channel(None);
    (Stopper(sender), Asked(receiver))
}

/// Tells a run to stop.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<Option<Wish>>);

impl Stopper {
    /// Asks, and after the grace insists.
    pub fn stop(&self, why: &str) {
        self.say(Word::Stop, why);
    }

    /// Ends it at once.
    pub fn kill(&self, why: &str) {
        self.say(Word::Kill, why);
    }

    fn say(&self, word: Word, why: &str) {
        self.0.send_replace(Some((word, why.to_owned())));
    }
}

/// What a run hears of the wish to stop it.
#[derive(Debug)]
pub struct Asked(watch::Receiver<Option<Wish>>);

impl Asked {
    /// What is wanted so far.
    pub(super) fn so_far(&self) -> Option<Wish> {
        self.0.borrow().clone()
    }

    /// Waits until someone wants it to stop; gives why. It stays wanted.
    pub(crate) async fn wished(&mut self) -> String {
        let wish = self.0.wait_for(Option::is_some).await;
        let why = wish
            .ok()
            .and_then(|wish| wish.as_ref().map(|(_, why)| why.clone()));
        match why {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }

    /// The next wish that has not been heard; waits for ever once nobody is left to voice one.
    pub(super) async fn next(&mut self) -> Wish {
        loop {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let wish = self.0.borrow_and_update().clone();
            if let Some(wish) = wish {
                return wish;
            }
        }
    }
}
