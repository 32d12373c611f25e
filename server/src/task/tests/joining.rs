//! Tests of a session's task without its loop: what joining costs, and who counts as present.

use std::collections::BTreeMap;

use pvp_policy::Policy;
use pvp_protocol::payload::{Announce, PresenceStatus, SessionCreate, SessionLeave};
use pvp_protocol::{ExtraFields, Limits, ParticipantKind, Role, Transport};
use pvp_session::Identity;
use serde_json::Value;
use tokio::sync::oneshot;

use super::super::*;
use crate::config::ServerConfig;
use crate::feed::{FeedRead, LogCursor};
use crate::store::memory::MemoryStore;

struct TaskFixture {
    task: SessionTask,
}

fn participant_id(name: &str) -> ParticipantId {
    ParticipantId::parse(name).unwrap()
}

fn announce(name: &str) -> Announce {
    Announce {
        id: participant_id(name),
        name: name.to_owned(),
        kind: ParticipantKind::Human,
        roles: vec![Role::Observer],
        capabilities: None,
        transport: Transport::Websocket,
        metadata: None,
        executor: None,
        invited_by: None,
        invited_before_session: None,
        extra: ExtraFields::new(),
    }
}

impl TaskFixture {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::default());
        let config = ServerConfig {
            participants: 10_000,
            ..ServerConfig::default()
        };
        let policy = Policy::built_in();
        let directory = SessionDirectory::new(store, config, policy).await.unwrap();
        let id = SessionId::parse("s").unwrap();
        let task = SessionTask::new(directory, id);
        Self { task }
    }

    /// Handles joins as one batch of commands, and waits until they are durable.
    async fn join_all(&mut self, names: &[String]) -> Vec<Box<JoinedSession>> {
        let (mut commands, mut answers) = (Vec::new(), Vec::new());
        for name in names {
            let identity = Identity {
                participant: participant_id(name),
                name: None,
                kind: ParticipantKind::Human,
                roles: Role::ALL.iter().copied().collect(),
                capabilities: Default::default(),
                invited_by: None,
            };
            let mut create = SessionCreate {
                name: None,
                config: Default::default(),
                extra: ExtraFields::new(),
            };
            create.config.max_participants = 10_000;
            let (sender, answer) = oneshot::channel();
            let request = SessionRequest::Join {
                identity,
                announce: announce(name),
                id: pvp_clock::fresh_id(),
                create_if_missing: Some(Box::new(create)),
            };
            let reply = ReplyTo::Join(sender, None);
            commands.push(SessionCommand::Request(Box::new(request), reply));
            answers.push(answer);
        }
        self.task.handle_commands(commands);
        self.write().await;
        let mut joined = Vec::new();
        for answer in answers {
            joined.push(answer.await.unwrap().unwrap());
        }
        joined
    }

    async fn join(&mut self, name: &str) -> Box<JoinedSession> {
        let mut joined = self.join_all(&[name.to_owned()]).await;
        joined.pop().unwrap()
    }

    /// Waits until everything that was decided is durable and published.
    async fn write(&mut self) {
        while !self.task.in_flight.is_empty() {
            let result = persist::append_result(&mut self.task.sent_append).await;
            self.task.on_append_result(result).await;
        }
    }

    /// Checks what is due at this time, and returns everyone's presence.
    async fn presence_at(&mut self, now: Timestamp) -> BTreeMap<String, PresenceStatus> {
        let mut batch = WriteBatch::default();
        self.task.refresh_presence_at(now, &mut batch);
        self.task.persist(batch);
        self.write().await;
        let presence = self.task.presence.iter();
        presence
            .map(|(id, status)| (id.to_string(), *status))
            .collect()
    }

    fn timed_out(&self, name: &str) -> bool {
        let member = self.task.session.member(&participant_id(name));
        member.unwrap().timed_out
    }
}

fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("p{number}")).collect()
}

/// The messages in a buffer of whole frames.
fn messages_in(mut frames: &[u8]) -> Vec<Value> {
    let mut messages = Vec::new();
    while let [0x81, length, rest @ ..] = frames {
        let (length, rest) = match length {
            126 => {
                let (length, rest) = rest.split_first_chunk().unwrap();
                (usize::from(u16::from_be_bytes(*length)), rest)
            }
            127 => {
                let (length, rest) = rest.split_first_chunk().unwrap();
                (u64::from_be_bytes(*length) as usize, rest)
            }
            length => (usize::from(*length), rest),
        };
        messages.push(serde_json::from_slice(&rest[..length]).unwrap());
        frames = &rest[length..];
    }
    assert!(frames.is_empty(), "whole frames only");
    messages
}

#[tokio::test]
async fn a_join_costs_the_same_however_many_have_joined() {
    let mut fixture = TaskFixture::new().await;
    let mut devices = Vec::new();
    for name in numbered(0..200) {
        devices.push(fixture.join(&name).await);
        let joins = devices.len();
        assert_eq!(fixture.task.roster.encodings, joins, "one part a join");
        assert_eq!(fixture.task.presence_checks, joins, "one check a join");
    }
    drop(devices.pop());
    fixture.presence_at(pvp_clock::now()).await;
    assert_eq!(
        fixture.task.presence_checks, 201,
        "one check for one who goes"
    );
}

#[tokio::test]
async fn those_who_join_together_share_one_roster() {
    let mut fixture = TaskFixture::new().await;
    let joined = fixture.join_all(&numbered(0..100)).await;
    let first = joined[0].roster.people.as_ptr();
    for other in &joined {
        assert_eq!(other.roster.people.as_ptr(), first);
    }
}

#[tokio::test]
async fn a_joiner_is_told_of_everyone() {
    let mut fixture = TaskFixture::new().await;
    let _ann = fixture.join("ann").await;
    drop(fixture.join("bob").await);
    let names = ["cat".to_owned(), "abe".to_owned()];
    let joined = fixture.join_all(&names).await;
    fixture.presence_at(pvp_clock::now()).await;
    let zoe = fixture.join("zoe").await;
    let limits = Limits::default();
    for (joined, own, everyone) in [
        (&joined[0], "cat", ["abe", "ann", "bob", "cat"].as_slice()),
        (&zoe, "zoe", &["abe", "ann", "bob", "cat", "zoe"]),
    ] {
        let id = pvp_clock::fresh_id();
        let mut welcome = joined.welcome.clone();
        // Someone may put anything into the configuration.
        let extra = &mut welcome.config.extra;
        extra.insert("people".to_owned(), serde_json::json!([]));
        let frame = joined.roster.welcome_frame(&fixture.task.id, &id, welcome);
        let [message] = &messages_in(&frame)[..] else {
            unreachable!("one frame")
        };
        assert_eq!(message["ref"], id.as_str());
        let people = message["payload"]["people"].as_array().unwrap();
        let names: Vec<_> = people.iter().map(|person| &person["id"]).collect();
        assert_eq!(names, everyone);
        let status = |name: &str| {
            let person = people.iter().find(|person| person["id"] == name);
            person.unwrap()["presence"].clone()
        };
        assert_eq!(status("ann"), "active");
        assert_eq!(status(own), "active");
        if own == "zoe" {
            assert_eq!(status("bob"), "disconnected");
        }
        let announced: Vec<_> = joined
            .roster
            .other_announcements()
            .iter()
            .flat_map(|frames| messages_in(frames))
            .map(|message| {
                assert_eq!(message["type"], "participant.announce");
                assert_eq!(message["sender"], message["payload"]["id"]);
                message["sender"].as_str().unwrap().to_owned()
            })
            .collect();
        let others: Vec<_> = everyone.iter().filter(|name| **name != own).collect();
        assert_eq!(announced.iter().collect::<Vec<_>>(), others);
    }
    let expected = fixture.task.session.welcome(
        &participant_id("zoe"),
        &limits,
        |id| fixture.task.presence[id],
        fixture.task.directory.server_version(),
    );
    let mut expected = serde_json::to_value(expected.unwrap()).unwrap();
    let id = pvp_clock::fresh_id();
    let frame = zoe
        .roster
        .welcome_frame(&fixture.task.id, &id, zoe.welcome.clone());
    let mut message = messages_in(&frame).remove(0);
    let payload = message["payload"].as_object_mut().unwrap();
    payload.remove("limits");
    expected.as_object_mut().unwrap().remove("limits");
    assert_eq!(message["payload"], expected);
}

#[tokio::test]
async fn a_reader_misses_nobody_when_a_thousand_join_and_go() {
    let mut fixture = TaskFixture::new().await;
    let ann = fixture.join("ann").await;
    let mut cursor: LogCursor = ann.feed.cursor_after(ann.welcome.head);
    let mut received = Vec::new();
    let mut read = || {
        let soon = Instant::now() + Duration::from_millis(100);
        ann.feed.on_timer(soon);
        while ann.feed.read_batch(&mut cursor, &ann.device, |frames| {
            received.extend_from_slice(&frames);
        }) == FeedRead::Advanced
        {}
    };
    let mut devices = Vec::new();
    for first in (0..1000).step_by(8) {
        devices.extend(fixture.join_all(&numbered(first..first + 8)).await);
        read();
    }
    drop(devices);
    fixture.presence_at(pvp_clock::now()).await;
    read();
    let messages = messages_in(&received);
    let announced = messages
        .iter()
        .filter(|message| message["type"] == "participant.announce");
    assert_eq!(announced.count(), 1000);
    // Those who were announced are here; presence is about those who then go.
    let updates = messages
        .iter()
        .filter(|message| message["type"] == "presence.update");
    let (gone, here): (Vec<_>, Vec<_>) =
        updates.partition(|update| update["payload"]["status"] == "disconnected");
    assert_eq!((gone.len(), here.len()), (1000, 0));
}

#[tokio::test]
async fn presence_follows_what_someone_does_and_how_they_are_connected() {
    let mut fixture = TaskFixture::new().await;
    let (phone, laptop) = (fixture.join("ann").await, fixture.join("ann").await);
    let bob = fixture.join("bob").await;
    let config = fixture.task.session.config().clone();
    let start = pvp_clock::now();
    let after = |seconds: u32| start.plus_seconds(u64::from(seconds) + 1);
    let status = |ann, bob| {
        let both = [("ann".to_owned(), ann), ("bob".to_owned(), bob)];
        BTreeMap::from(both)
    };
    use PresenceStatus::{Active, Away, Disconnected, Idle};
    assert_eq!(fixture.presence_at(start).await, status(Active, Active));

    // Bob does something, and Ann only answers heartbeats.
    let idle_at = after(config.idle_timeout_seconds);
    bob.device.record_activity(idle_at);
    phone.device.record_seen(idle_at);
    assert_eq!(fixture.presence_at(idle_at).await, status(Idle, Active));
    drop(phone);
    assert_eq!(fixture.presence_at(idle_at).await, status(Idle, Active));
    drop(laptop);
    assert_eq!(
        fixture.presence_at(idle_at).await,
        status(Disconnected, Active)
    );

    // Nothing arrives from Bob for long, which is logged, and then he is back.
    let away_at = idle_at.plus_seconds(u64::from(config.away_timeout_seconds) + 1);
    assert_eq!(
        fixture.presence_at(away_at).await,
        status(Disconnected, Away)
    );
    assert!(fixture.timed_out("ann") && fixture.timed_out("bob"));
    assert!(bob.device.record_activity(away_at), "the task is told");
    let mut batch = WriteBatch::default();
    let command = SessionCommand::ParticipantReturned(participant_id("bob"));
    fixture.task.handle_command(command, &mut batch);
    fixture.task.persist(batch);
    fixture.write().await;
    assert_eq!(
        fixture.presence_at(away_at).await,
        status(Disconnected, Active)
    );
    assert!(fixture.timed_out("ann") && !fixture.timed_out("bob"));
}

#[tokio::test]
async fn a_request_counts_as_presence_for_a_while_and_longer_if_it_waits() {
    let mut fixture = TaskFixture::new().await;
    let ann = fixture.join("ann").await;
    drop(fixture.join("bob").await);
    let mut batch = WriteBatch::default();
    let access = fixture
        .task
        .http_access(Some(participant_id("bob")), &mut batch)
        .unwrap();
    fixture.task.persist(batch);
    let now = pvp_clock::now();
    let bob = |presence: BTreeMap<String, PresenceStatus>| presence["bob"];
    let later = |seconds| now.plus_seconds(seconds);
    assert_eq!(bob(fixture.presence_at(now).await), PresenceStatus::Active);
    let waiting = access.viewer.as_ref().unwrap().begin_wait();
    drop(access);
    for seconds in [31, 62, 93] {
        let status = bob(fixture.presence_at(later(seconds)).await);
        assert_ne!(status, PresenceStatus::Disconnected, "{seconds} s");
    }
    drop(waiting);
    let status = bob(fixture.presence_at(later(93 + 31)).await);
    assert_eq!(status, PresenceStatus::Disconnected);
    drop(ann);
    assert!(fixture.task.can_unload());
}

#[tokio::test]
async fn who_leaves_is_no_longer_present_and_not_in_the_roster() {
    let mut fixture = TaskFixture::new().await;
    let ann = fixture.join("ann").await;
    let bob = fixture.join("bob").await;
    let submitted = SubmittedMessage::new(
        pvp_clock::fresh_id(),
        SessionLeave {
            reason: None,
            connection_lost: false,
            extra: ExtraFields::new(),
        },
    );
    let by = participant_id("bob");
    let mut batch = WriteBatch::default();
    fixture.task.apply_input(
        Input::Submit {
            by,
            ceiling: None,
            submitted,
        },
        &mut batch,
    );
    fixture.task.persist(batch);
    fixture.write().await;
    assert!(bob.device.has_left() && !ann.device.has_left());
    drop(bob);
    let presence = fixture.presence_at(pvp_clock::now()).await;
    assert_eq!(presence.keys().collect::<Vec<_>>(), ["ann"]);
    let zoe = fixture.join("zoe").await;
    assert!(!String::from_utf8_lossy(&zoe.roster.people).contains("bob"));
}

#[tokio::test]
async fn who_leaves_while_somebody_joins_is_known_to_have_left() {
    let mut fixture = TaskFixture::new().await;
    let _ann = fixture.join("ann").await;
    let bob = fixture.join("bob").await;
    let (sender, answer) = oneshot::channel();
    let request = SessionRequest::Join {
        identity: Identity {
            participant: participant_id("cid"),
            name: None,
            kind: ParticipantKind::Human,
            roles: Role::ALL.iter().copied().collect(),
            capabilities: Default::default(),
            invited_by: None,
        },
        announce: announce("cid"),
        id: pvp_clock::fresh_id(),
        create_if_missing: None,
    };
    let reply = ReplyTo::Join(sender, None);
    let join = SessionCommand::Request(Box::new(request), reply);
    fixture.task.handle_commands(vec![join]);
    // The roster is made, and the join is not written yet.
    drop(bob);
    let closed = SessionCommand::ConnectionClosed;
    fixture.task.handle_commands(vec![closed]);
    fixture.write().await;
    let cid = answer.await.unwrap().unwrap();
    let mut cursor = LogCursor {
        next_seq: cid.live_from_seq,
        ephemeral: cid.last_ephemeral,
    };
    let mut received = Vec::new();
    let mut push = |frame: bytes::Bytes| received.extend(messages_in(&frame));
    while cid.feed.read_batch(&mut cursor, &cid.device, &mut push) == FeedRead::Advanced {}
    let told = received.iter().any(|message| {
        let payload = &message["payload"];
        payload["participant"] == "bob" && payload["status"] == "disconnected"
    });
    assert!(told, "{received:?}");
}
