//! One task owns one session: it decides, has the entries written, and then tells.
//!
//! Deciding goes on while earlier entries are being written. Nothing is told, and no answer is
//! given, before everything it rests on is durable. If a write fails, everyone who waits is
//! refused and the session is folded again from what was written.

mod attendance;
mod load;
mod order;
mod writing;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pvp_protocol::{ClientMessage, ParticipantId, Refusal, SessionId, Timestamp};
use pvp_session::{Answer, DecisionContext, Input, Session, Submitted};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

pub(crate) use order::{Joined, Order, Presence, Release, ReplyTo, Visit, Wish};
use writing::{Batch, Writing};

use crate::clock;
use crate::feed::Feed;
use crate::house::House;
use crate::store::{Append, AppendError, Done, Head, Seal};
use crate::vault::Vault;
use crate::viewer::{Device, Viewer};

/// Orders decided in one go, and so written in one append.
const ORDERS_AT_ONCE: usize = 256;

/// Entries that may wait for the disk before the task stops taking orders.
const MOST_IN_FLIGHT: usize = 1024;

/// How long a session with nobody in it stays in memory.
const IDLE: Duration = Duration::from_secs(30);

/// How long to wait before trying again by oneself what the disk refused.
const RETRY: Duration = Duration::from_secs(1);

/// How the rest of the server reaches a session.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) orders: mpsc::Sender<Order>,
    /// Becomes true when the task has let go of the session.
    pub(crate) gone: watch::Receiver<bool>,
}

/// Whether the session can be worked on.
enum Health {
    Fit,
    /// The log could not be read.
    Unreadable(String),
}

pub(crate) struct Task {
    id: SessionId,
    house: Arc<House>,
    session: Session,
    head: Head,
    feed: Arc<Feed>,
    vault: Arc<Vault>,
    viewers: BTreeMap<ParticipantId, Arc<Viewer>>,
    presence: Presence,
    /// Those who were here over HTTP lately, and until when that counts.
    visits: BTreeMap<ParticipantId, (Device, Timestamp)>,
    /// The batch that the store is writing, and one that gathers what is decided meanwhile.
    in_flight: VecDeque<Batch>,
    /// The second of them, as it will be sent.
    waiting: Option<Writing>,
    entries_in_flight: usize,
    health: Health,
    reports: mpsc::UnboundedReceiver<Result<(), AppendError>>,
    report: mpsc::UnboundedSender<Result<(), AppendError>>,
    last_used: Instant,
    /// When the append under way was handed to the store.
    sent_at: Instant,
    last_ping: Instant,
    next_look: Option<Timestamp>,
    /// After the disk failed, nothing happens by itself before this.
    hold: Instant,
    stopping: bool,
}

/// Starts the task of a session; it reads the log before it takes its first order.
pub(crate) fn spawn(house: Arc<House>, id: SessionId) -> Handle {
    let (orders, inbox) = mpsc::channel(ORDERS_AT_ONCE);
    let (gone_sender, gone) = watch::channel(false);
    let (report, reports) = mpsc::unbounded_channel();
    let now = Instant::now();
    let task = Task {
        session: Session::new(id.clone()),
        head: Head::empty(&id),
        feed: Arc::default(),
        vault: Arc::default(),
        viewers: BTreeMap::new(),
        presence: BTreeMap::new(),
        visits: BTreeMap::new(),
        in_flight: VecDeque::new(),
        waiting: None,
        entries_in_flight: 0,
        health: Health::Fit,
        reports,
        report,
        last_used: now,
        sent_at: now,
        last_ping: now,
        next_look: None,
        hold: now,
        stopping: false,
        house: house.clone(),
        id: id.clone(),
    };
    let leaving = Leaving {
        house,
        id,
        feed: task.feed.clone(),
        gone: gone_sender,
    };
    tokio::spawn(async move {
        let _leaving = leaving;
        task.run(inbox).await;
    });
    Handle { orders, gone }
}

/// Lets go of the session however its task ends, so that the next order finds it again.
struct Leaving {
    house: Arc<House>,
    id: SessionId,
    feed: Arc<Feed>,
    gone: watch::Sender<bool>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.house.forget(&self.id);
        self.gone.send_replace(true);
        // Connections that still follow it come again.
        self.feed.close();
    }
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::Receiver<Order>) {
        self.load().await;
        let mut orders = Vec::new();
        loop {
            let accepting =
                matches!(self.health, Health::Fit) && self.entries_in_flight < MOST_IN_FLIGHT;
            let quiet = self.in_flight.is_empty();
            let unreadable = matches!(self.health, Health::Unreadable(_));
            let alarm = self.next_alarm();
            let rest = self.last_used + self.patience();
            let may_rest = quiet && self.may_rest();
            tokio::select! {
                biased;
                Some(report) = self.reports.recv() => self.hear(report).await,
                // Before the orders, or enough of them could put off a deadline for ever.
                () = sleep_until(alarm), if accepting => self.alarm().await,
                () = sleep_until(self.hold), if unreadable && quiet => self.load().await,
                count = inbox.recv_many(&mut orders, ORDERS_AT_ONCE), if accepting || unreadable => {
                    if count == 0 {
                        break;
                    }
                    self.last_used = Instant::now();
                    self.take_orders(std::mem::take(&mut orders)).await;
                }
                () = sleep_until(rest), if may_rest => {
                    inbox.close();
                }
            }
            if self.stopping {
                inbox.close();
            }
        }
        self.put_away().await;
    }

    /// Nobody is here, so the session can leave memory; its deadlines are indexed in the store.
    fn may_rest(&self) -> bool {
        self.viewers.values().all(|viewer| viewer.devices() == 0)
    }

    fn patience(&self) -> Duration {
        if self.session.is_created() {
            IDLE
        } else {
            Duration::ZERO
        }
    }

    /// Waits for what is being written, seals the log, and lets go.
    async fn put_away(mut self) {
        while !self.in_flight.is_empty() {
            let Some(report) = self.reports.recv().await else {
                break;
            };
            self.hear(report).await;
        }
        if self.session.is_created() && matches!(self.health, Health::Fit) {
            let report = self.report.clone();
            self.house
                .store
                .append(Append {
                    session: self.id.clone(),
                    prev: self.head,
                    records: Vec::new(),
                    standing: self.standing(),
                    at: clock::now(),
                    seal: Seal::Now,
                    // The receiver lives as long as this task, which waits for the report.
                    done: Done::new(move |result| drop(report.send(result))),
                })
                .await;
            if let Some(Err(error)) = self.reports.recv().await {
                tracing::warn!(session = %self.id, %error, "could not seal the log");
            }
        }
    }

    fn refresh_viewers(&self) {
        for (id, viewer) in &self.viewers {
            let member = self.session.member(id);
            viewer.set_may_approve(member.is_some_and(pvp_session::Member::may_vote));
            viewer.set_left(member.is_none_or(|member| member.left));
        }
    }

    async fn take_orders(&mut self, orders: Vec<Order>) {
        let mut batch = Batch::default();
        for order in orders {
            self.take_order(order, &mut batch);
        }
        self.write(batch).await;
    }

    fn take_order(&mut self, order: Order, batch: &mut Batch) {
        if let Health::Unreadable(why) = &self.health {
            order.refuse(Refusal::WriteFailed(why.clone()));
            return;
        }
        match order {
            Order::Wish(wish, reply) => self.grant_wish(*wish, reply, batch),
            Order::Heard(participant) => self.heard(&participant, batch),
            Order::Disconnected => self.look_around(batch),
            Order::Visit(participant, answer) => {
                // Who asked may have gone.
                let _ = answer.send(self.visit(participant, batch));
            }
            Order::Ask(question) => batch.releases.push(question(&self.session, &self.presence)),
            Order::Stop => self.stopping = true,
        }
    }

    fn grant_wish(&mut self, wish: Wish, mut reply: ReplyTo, batch: &mut Batch) {
        match wish {
            Wish::Create { by, id, create } => {
                let answer = self.create(Input::Create { by, id, create }, batch);
                batch.answers.push((reply, answer));
            }
            Wish::Join {
                identity,
                announce,
                id,
                found,
            } => {
                if let (false, Some(create)) = (self.session.is_created(), found) {
                    let by = identity.participant.clone();
                    let create = Input::Create {
                        by,
                        id: clock::fresh_id(),
                        create: *create,
                    };
                    if let Answer::Refused(refusal) = self.create(create, batch) {
                        return reply.refuse(refusal);
                    }
                }
                let participant = identity.participant.clone();
                let answer = self.decide(
                    Input::Join {
                        identity,
                        announce,
                        id,
                    },
                    batch,
                );
                if let Answer::Accepted(seq) = answer {
                    self.seat(&participant, seq, &mut reply, batch);
                }
                batch.answers.push((reply, answer));
            }
            Wish::Say { by, said } => {
                let (said, value) = self.without_secrets(said);
                let answer = self.decide(
                    Input::Submit {
                        by,
                        submitted: said,
                    },
                    batch,
                );
                if let (Answer::Accepted(Some(seq)), Some(value)) = (&answer, value) {
                    batch.values.insert(*seq, value);
                }
                batch.answers.push((reply, answer));
            }
        }
    }

    /// Makes the session, if the server has room for one more.
    fn create(&mut self, create: Input, batch: &mut Batch) -> Answer {
        if self.session.is_created() {
            return self.decide(create, batch);
        }
        if let Err(refusal) = self.house.room_for_a_session() {
            return Answer::Refused(refusal);
        }
        let answer = self.decide(create, batch);
        if matches!(answer, Answer::Refused(_)) {
            self.house.session_not_made();
        }
        answer
    }

    /// Takes secret values out of a message before anything is made of it.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "no other message carries values or output"
    )]
    fn without_secrets(&self, mut said: Submitted) -> (Submitted, Option<String>) {
        let mut value = None;
        match &mut said.message {
            ClientMessage::SecretShare(share) => value = share.value.take(),
            ClientMessage::ToolOutput(output) => self.vault.mask_output(output),
            ClientMessage::ToolResult(result) => self.vault.mask_result(result),
            _ => {}
        }
        (said, value)
    }

    /// Decides on the session as it is; what follows waits in the batch to be written.
    fn decide(&mut self, input: Input, batch: &mut Batch) -> Answer {
        let policy = self.house.policy();
        let terms = DecisionContext {
            policy: &policy,
            settings: &self.house.settings,
        };
        let outcome = self.session.apply(terms, clock::stamp(input));
        for entry in outcome.entries {
            let body = Bytes::from(entry.body());
            batch.entries.push((entry, body));
        }
        if let Some(whisper) = outcome.ephemeral {
            self.feed.whisper(&whisper.envelope.to_json());
        }
        outcome.answer
    }
}
