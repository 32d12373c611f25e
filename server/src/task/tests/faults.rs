//! Tests of the session task and the directory on a store in memory that fails in every way.

use std::sync::Arc;
use std::time::Duration;

use pvp_policy::Policy;
use pvp_protocol::payload::{Announce, PromptSubmit, SessionCreate};
use pvp_protocol::{
    ClientMessage, ExtraFields, MessageId, ParticipantId, ParticipantKind, Refusal, Role,
    ServerMessage, SessionId, Transport,
};
use pvp_session::{
    Answer, DecisionContext, Entry, Identity, Input, Session, SessionSettings, SubmittedMessage,
};

use tokio::sync::oneshot;

use super::super::{JoinedSession, persist, stamp};
use crate::admission::{Principal, Speaker};
use crate::config::ServerConfig;
use crate::directory::SessionDirectory;
use crate::store::memory::{AppendFault, MemoryStore};
use crate::store::{LogHead, LogRecord};

/// Longer than any test runs.
const NEVER: Duration = Duration::from_secs(3600);

fn owl() -> SessionId {
    SessionId::parse("owl").unwrap()
}

fn ann() -> ParticipantId {
    ParticipantId::parse("ann").unwrap()
}

fn bot() -> ParticipantId {
    ParticipantId::parse("bot").unwrap()
}

fn prompt(text: &str) -> SubmittedMessage {
    let prompt = PromptSubmit {
        content: text.to_owned(),
        target_agent: bot(),
        contributors: Vec::new(),
        context_keys: Vec::new(),
        config: None,
        origin: None,
        extra: ExtraFields::new(),
    };
    SubmittedMessage::new(pvp_clock::fresh_id(), ClientMessage::PromptSubmit(prompt))
}

async fn new_directory(store: &MemoryStore, unload_idle_after: Duration) -> Arc<SessionDirectory> {
    SessionDirectory::with_idle_timeout(
        Arc::new(store.clone()),
        ServerConfig::default(),
        Policy::built_in(),
        unload_idle_after,
    )
    .await
    .unwrap()
}

/// A directory in which `ann` and the agent `bot` have joined the session `owl`.
struct Fixture {
    store: MemoryStore,
    directory: Arc<SessionDirectory>,
    /// Keeps `ann` connected.
    joined: Box<JoinedSession>,
}

impl Fixture {
    async fn new() -> Self {
        let store = MemoryStore::default();
        let directory = new_directory(&store, NEVER).await;
        create(&directory).await.unwrap();
        join(&directory, bot(), ParticipantKind::Agent).await;
        let joined = join_ann(&directory).await;
        Self {
            store,
            directory,
            joined,
        }
    }

    /// Sends a prompt and waits for its sequence number.
    async fn say(&self, text: &str) -> Result<u64, Refusal> {
        self.send(prompt(text)).await
    }

    async fn send(&self, submitted: SubmittedMessage) -> Result<u64, Refusal> {
        submit(&self.directory, submitted).await
    }

    /// Starts to send a prompt, and returns when the session has decided on it.
    async fn start_saying(&self, text: &str) -> tokio::task::JoinHandle<Result<u64, Refusal>> {
        let directory = self.directory.clone();
        let message = prompt(text);
        let id = message.id.clone();
        let sending = tokio::spawn(async move { submit(&directory, message).await });
        while !self.knows(&id).await {
            tokio::task::yield_now().await;
        }
        sending
    }

    /// Whether the session has decided on a prompt, written or not.
    async fn knows(&self, id: &MessageId) -> bool {
        let (sender, state) = oneshot::channel();
        let directory = self.directory.clone();
        // The query itself is answered only when what it saw is written.
        tokio::spawn(async move {
            let see = |session: &Session| drop(sender.send(session.to_snapshot()));
            directory.query(&owl(), see).await
        });
        let state = state.await.unwrap();
        String::from_utf8_lossy(&state).contains(id.as_str())
    }

    /// What was said, as the log has it.
    fn log_texts(&self) -> Vec<String> {
        texts(&self.store.log(&owl()))
    }
}

fn speaker() -> Speaker {
    Principal::new(None).speaker(ann())
}

async fn submit(
    directory: &Arc<SessionDirectory>,
    submitted: SubmittedMessage,
) -> Result<u64, Refusal> {
    match directory
        .submit_and_wait(&owl(), speaker(), submitted)
        .await?
    {
        Answer::Accepted(seq) => Ok(seq.unwrap()),
        Answer::Duplicate(seq) => Ok(seq),
        Answer::Refused(refusal) => Err(refusal),
    }
}

async fn create(directory: &Arc<SessionDirectory>) -> Result<Answer, Refusal> {
    let create = SessionCreate {
        name: None,
        config: Default::default(),
        extra: ExtraFields::new(),
    };
    let id = pvp_clock::fresh_id();
    directory.create(&owl(), ann(), None, id, create).await
}

async fn join_ann(directory: &Arc<SessionDirectory>) -> Box<JoinedSession> {
    join(directory, ann(), ParticipantKind::Human).await
}

async fn join(
    directory: &Arc<SessionDirectory>,
    who: ParticipantId,
    kind: ParticipantKind,
) -> Box<JoinedSession> {
    let roles = [Role::Driver];
    let identity = Identity {
        participant: who.clone(),
        name: None,
        kind,
        roles: roles.into(),
        capabilities: Default::default(),
        invited_by: None,
    };
    let announce = Announce {
        id: who,
        name: "Somebody".to_owned(),
        kind,
        roles: roles.into(),
        capabilities: None,
        transport: Transport::Websocket,
        metadata: None,
        executor: None,
        invited_by: None,
        invited_before_session: None,
        extra: ExtraFields::new(),
    };
    let id = pvp_clock::fresh_id();
    let joined = directory.join(&owl(), identity, announce, id).await;
    joined.map_err(|refusal| refusal.to_string()).unwrap()
}

fn texts(log: &[LogRecord]) -> Vec<String> {
    let mut texts = Vec::new();
    for record in log {
        let entry = Entry::decode(&record.meta, &record.body).unwrap();
        if let ServerMessage::PromptSubmit(prompt) = entry.envelope.message {
            texts.push(prompt.content);
        }
    }
    texts
}

/// A record that another server might have appended.
fn foreign_record(log: &[LogRecord], text: &str) -> LogRecord {
    let mut session = fold(log);
    let context = DecisionContext {
        policy: &Policy::built_in(),
        settings: &SessionSettings::default(),
    };
    let input = Input::Submit {
        by: ann(),
        ceiling: None,
        submitted: prompt(text),
    };
    let decision = session.apply(context, stamp(input));
    let [entry] = &decision.entries[..] else {
        panic!("{decision:?}")
    };
    LogRecord::after(
        &log.last().unwrap().head(),
        entry.meta().into(),
        entry.body().into(),
    )
}

fn fold(log: &[LogRecord]) -> Session {
    let mut session = Session::new(owl());
    for record in log {
        let entry = Entry::decode(&record.meta, &record.body).unwrap();
        session.replay(&entry).unwrap();
    }
    session
}

async fn state(directory: &Arc<SessionDirectory>) -> Option<Session> {
    directory.query(&owl(), Session::clone).await
}

#[tokio::test]
async fn after_a_conflict_the_session_goes_on_from_the_log_as_it_is() {
    let fixture = Fixture::new().await;
    fixture.say("one").await.unwrap();
    let foreign = foreign_record(&fixture.store.log(&owl()), "two, elsewhere");
    fixture
        .store
        .inject(AppendFault::OvertakenBy(vec![foreign]));
    let message = prompt("three");
    let refused = fixture.send(message.clone()).await;
    assert!(
        matches!(refused, Err(Refusal::WriteFailed(_))),
        "{refused:?}"
    );
    fixture.send(message).await.unwrap();
    assert_eq!(fixture.log_texts(), ["one", "two, elsewhere", "three"]);
    // Those who are connected read what was written elsewhere from the store.
    let head = fixture.store.log(&owl()).len() as u64;
    assert_eq!(fixture.joined.feed.head(), head);
}

#[tokio::test]
async fn what_was_decided_after_a_failed_append_is_refused_too() {
    let fixture = Fixture::new().await;
    fixture.say("one").await.unwrap();
    let fail = fixture.store.fail_next_append_later();
    let lost = [
        fixture.start_saying("two").await,
        fixture.start_saying("three").await,
        fixture.start_saying("four").await,
    ];
    fail.send(()).unwrap();
    for sending in lost {
        let refused = sending.await.unwrap();
        assert!(
            matches!(refused, Err(Refusal::WriteFailed(_))),
            "{refused:?}"
        );
    }
    fixture.say("five").await.unwrap();
    assert_eq!(fixture.log_texts(), ["one", "five"]);
    let live = state(&fixture.directory).await.unwrap();
    assert_eq!(live, fold(&fixture.store.log(&owl())));
}

#[tokio::test]
async fn nothing_is_answered_or_published_before_it_is_written() {
    let fixture = Fixture::new().await;
    let head = fixture.joined.feed.head();
    let release = fixture.store.delay_next_append();
    let saying = fixture.start_saying("one").await;
    assert!(!saying.is_finished());
    assert_eq!(fixture.joined.feed.head(), head);
    release.send(()).unwrap();
    assert_eq!(saying.await.unwrap(), Ok(head + 1));
    assert_eq!(fixture.joined.feed.head(), head + 1);
}

#[tokio::test]
async fn a_lost_acknowledgement_or_request_is_made_up_for_once() {
    for fault in [AppendFault::LoseAcknowledgement, AppendFault::LoseRequest] {
        let fixture = Fixture::new().await;
        fixture.store.inject(fault);
        let (first, second) = tokio::join!(fixture.say("one"), fixture.say("two"));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_ne!(first, second);
        fixture.say("three").await.unwrap();
        let mut said = fixture.log_texts();
        said[..2].sort();
        assert_eq!(said, ["one", "two", "three"]);
    }
}

#[tokio::test]
async fn a_store_that_never_answers_for_sure_is_given_up() {
    let fixture = Fixture::new().await;
    for _ in 0..=persist::MAX_RESENDS {
        fixture.store.inject(AppendFault::LoseRequest);
    }
    let refused = fixture.say("one").await;
    assert!(
        matches!(refused, Err(Refusal::WriteFailed(_))),
        "{refused:?}"
    );
    fixture.say("two").await.unwrap();
    assert_eq!(fixture.log_texts(), ["two"]);
}

#[tokio::test]
async fn after_a_panic_the_session_is_loaded_again() {
    let fixture = Fixture::new().await;
    fixture.say("one").await.unwrap();
    let release = fixture.store.delay_next_append();
    let lost = fixture.start_saying("two").await;
    let owl = owl();
    let panicked = fixture
        .directory
        .query(&owl, |_: &Session| -> () { panic!("on purpose") });
    assert_eq!(panicked.await, None);
    assert!(lost.await.unwrap().is_err());
    assert!(fixture.joined.feed.is_closed());
    // The new task has loaded before the append of the old one is written.
    assert_eq!(state(&fixture.directory).await.unwrap().head(), 4);
    release.send(()).unwrap();
    let joined = join_ann(&fixture.directory).await;
    while fixture.say("three").await.is_err() {}
    let log = fixture.store.log(&owl);
    let said = texts(&log);
    assert_eq!(said.last().unwrap(), "three");
    assert_eq!(state(&fixture.directory).await.unwrap(), fold(&log));
    drop(joined);
}

#[tokio::test]
async fn a_message_that_cannot_be_handled_is_refused_for_good_and_the_session_goes_on() {
    let fixture = Fixture::new().await;
    fixture.say("one").await.unwrap();
    let mut faulty = prompt("two");
    faulty.id = MessageId::parse(super::FAULT).unwrap();
    for _ in 0..2 {
        let refused = loop {
            match fixture.send(faulty.clone()).await {
                // The session is being loaded again after the first time.
                Err(Refusal::WriteFailed(_)) => tokio::task::yield_now().await,
                other => break other,
            }
        };
        assert_eq!(refused, Err(Refusal::HandlingFailed));
        assert!(!Refusal::HandlingFailed.is_recoverable());
    }
    while fixture.say("three").await.is_err() {
        tokio::task::yield_now().await;
    }
    assert!(!fixture.joined.feed.is_closed(), "connections stay");
    assert_eq!(fixture.log_texts(), ["one", "three"]);
    let log = fixture.store.log(&owl());
    assert_eq!(state(&fixture.directory).await.unwrap(), fold(&log));
}

#[tokio::test]
async fn a_command_that_arrives_while_a_session_is_unloaded_is_not_lost() {
    let store = MemoryStore::default();
    let directory = new_directory(&store, Duration::ZERO).await;
    create(&directory).await.unwrap();
    join(&directory, bot(), ParticipantKind::Agent).await;
    drop(join_ann(&directory).await);
    let owl = owl();
    for number in 0..200 {
        let text = number.to_string();
        let (said, access, exists) = tokio::join!(
            submit(&directory, prompt(&text)),
            directory.http_access(&owl, Some(ann())),
            directory.query(&owl, Session::is_created),
        );
        said.unwrap();
        assert!(access.is_ok());
        assert_eq!(exists, Some(true));
    }
    let expected: Vec<_> = (0..200).map(|number| number.to_string()).collect();
    assert_eq!(texts(&store.log(&owl)), expected);
}

#[tokio::test]
async fn a_session_that_could_not_be_created_is_not_counted() {
    let store = MemoryStore::default();
    let directory = new_directory(&store, NEVER).await;
    store.inject(AppendFault::Fail);
    assert!(create(&directory).await.is_err());
    assert_eq!(directory.counts().2, 0);
    // If it was written all the same, it counts.
    for _ in 0..=persist::MAX_RESENDS {
        store.inject(AppendFault::LoseAcknowledgement);
    }
    create(&directory).await.unwrap();
    assert_eq!(directory.counts().2, 1);
}

#[tokio::test]
async fn a_log_that_cannot_be_read_for_a_while_is_read_later() {
    let fixture = Fixture::new().await;
    fixture.say("one").await.unwrap();
    let again = new_directory(&fixture.store, NEVER).await;
    fixture.store.set_read_fault(Some("the disk is gone"));
    assert_eq!(state(&again).await, None);
    let refused = submit(&again, prompt("two")).await.unwrap_err().to_string();
    assert!(refused.contains("the disk is gone"), "{refused}");
    fixture.store.set_read_fault(None);
    while state(&again).await.is_none() {}
    assert_eq!(state(&again).await.unwrap().head(), 4);
}

/// Enough entries for a snapshot, and a few more.
async fn fill(fixture: &Fixture) {
    for _ in 0..42 {
        let said = (0..100).map(|_| fixture.say("word"));
        for result in futures_util::future::join_all(said).await {
            result.unwrap();
        }
    }
}

#[tokio::test]
async fn a_session_is_loaded_from_its_snapshot_and_the_entries_after_it() {
    let fixture = Fixture::new().await;
    fill(&fixture).await;
    let expected = fold(&fixture.store.log(&owl()));
    let before = fixture.store.records_read();
    let again = new_directory(&fixture.store, NEVER).await;
    assert_eq!(state(&again).await.as_ref(), Some(&expected));
    // The check of what comes before runs in the background.
    let read = fixture.store.records_read() - before;
    assert!(read < 1000, "{read} records to load");
    let checked = || again.checked_head(&owl()).map(|head| head.seq);
    while checked() != Some(expected.head()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_forged_snapshot_is_not_used() {
    let fixture = Fixture::new().await;
    fill(&fixture).await;
    let expected = fold(&fixture.store.log(&owl()));
    let snapshot = expected.to_snapshot();
    let forged = String::from_utf8(snapshot)
        .unwrap()
        .replace("driver", "admin");
    fixture.store.forge_snapshot(&owl(), forged);
    let again = new_directory(&fixture.store, NEVER).await;
    assert_eq!(state(&again).await, Some(expected));
}

#[tokio::test]
async fn damage_before_the_snapshot_is_found_in_the_background() {
    let fixture = Fixture::new().await;
    fill(&fixture).await;
    fixture.store.damage(&owl(), 1000);
    let again = new_directory(&fixture.store, NEVER).await;
    while state(&again).await.is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = submit(&again, prompt("more"))
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("entry 1000 is damaged"), "{refused}");
}

#[tokio::test]
async fn an_unloaded_session_has_a_snapshot_and_a_checkpoint_at_its_end() {
    let fixture = Fixture::new().await;
    fixture.say("one").await.unwrap();
    fixture.directory.shut_down().await;
    let head = fixture.store.log(&owl()).last().map(LogRecord::head);
    let checkpoints = fixture.store.checkpoints(&owl());
    let last = checkpoints.last().unwrap();
    assert_eq!(
        head,
        Some(LogHead {
            seq: last.seq,
            hash: last.hash
        })
    );
    assert!(last.snapshot.is_some());
}

#[tokio::test]
async fn a_damaged_log_does_not_keep_the_server_from_stopping() {
    let fixture = Fixture::new().await;
    fill(&fixture).await;
    fixture.store.damage(&owl(), 1000);
    let again = new_directory(&fixture.store, NEVER).await;
    let joined = join_ann(&again).await;
    while state(&again).await.is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Someone is still connected.
    again.shut_down().await;
    assert!(joined.feed.is_closed());
}

#[tokio::test]
async fn what_was_being_written_when_damage_was_found_is_answered_as_it_went() {
    let fixture = Fixture::new().await;
    fill(&fixture).await;
    fixture.store.damage(&owl(), 1000);
    let again = new_directory(&fixture.store, NEVER).await;
    let _joined = join_ann(&again).await;
    let release = fixture.store.delay_next_append();
    let directory = again.clone();
    let writing = tokio::spawn(async move { submit(&directory, prompt("last")).await });
    // Access is refused as soon as the damage is found.
    while again.http_access(&owl(), None).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!writing.is_finished());
    release.send(()).unwrap();
    let written = writing.await.unwrap();
    let log = fixture.store.log(&owl());
    assert_eq!(written, Ok(log.len() as u64));
    assert_eq!(texts(&log[4000..]).last().unwrap(), "last");
}

#[tokio::test]
async fn a_log_without_its_last_entries_is_damaged() {
    let fixture = Fixture::new().await;
    fill(&fixture).await;
    fixture.store.cut_last_entry(&owl());
    let again = new_directory(&fixture.store, NEVER).await;
    let refused = submit(&again, prompt("more"))
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("is damaged"), "{refused}");
}

#[tokio::test]
async fn one_log_that_cannot_be_checked_does_not_keep_others_from_it() {
    let fixture = Fixture::new().await;
    fill(&fixture).await;
    let again = new_directory(&fixture.store, NEVER).await;
    state(&again).await.unwrap();
    fixture.store.set_read_fault(Some("the disk is gone"));
    // While this log waits for the disk, others may be checked.
    let permit = again.check_permit.acquire().await;
    assert!(permit.is_ok());
    drop(permit);
    fixture.store.set_read_fault(None);
    while again
        .checked_head(&owl())
        .is_none_or(|head| head.seq < 4000)
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
