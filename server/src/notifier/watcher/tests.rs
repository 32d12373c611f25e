use std::sync::mpsc;

use pvp_policy::Policy;

use super::*;
use crate::config::ServerConfig;
use crate::store::memory::MemoryStore;

fn session(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

/// Keeps a session busy until the sender is dropped.
async fn occupy(directory: &Arc<SessionDirectory>, busy: SessionId) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let directory = directory.clone();
    tokio::spawn(async move {
        let occupying = directory.query(&busy, move |_| {
            begin.send(()).unwrap();
            // An error says that the sender is dropped, which is the signal.
            let _ = released.recv();
        });
        occupying.await
    });
    begun.await.unwrap();
    release
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_busy_session_does_not_keep_the_others_from_being_looked_at() {
    let (config, policy) = (ServerConfig::default(), Policy::built_in());
    let directory = SessionDirectory::new(Arc::new(MemoryStore::default()), config, policy);
    let directory = directory.await.unwrap();
    let released = [
        occupy(&directory, session("a")).await,
        occupy(&directory, session("b")).await,
    ];
    let watcher = GateWatcher::new(directory.clone());
    let mut observing = watcher.observe(["a", "b", "c"].map(session).into());
    let (first, observed) = observing.next().await.unwrap();
    assert_eq!(first, session("c"));
    assert_eq!(observed.unwrap().len(), 0);
    let mut busy = BTreeSet::new();
    while let Some((session, observed)) = observing.next().await {
        assert_eq!(observed.err(), Some(BUSY_DELAY), "it is asked again soon");
        busy.insert(session);
    }
    assert_eq!(busy, ["a", "b"].map(session).into());
    drop(released);
}
