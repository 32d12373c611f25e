use std::collections::VecDeque;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::*;

/// What happened to a delivery, and when, in milliseconds since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Attempt(&'static str, u64),
    Finish(&'static str, DeliveryOutcome),
}

/// A delivery whose attempts end as the test says; the last one for ever.
struct ScriptedDelivery {
    name: &'static str,
    script: VecDeque<Attempt>,
    begun: Instant,
    seen: mpsc::UnboundedSender<Seen>,
    /// Attempts wait for a permit of this.
    barrier: Arc<Semaphore>,
}

impl QueuedDelivery for ScriptedDelivery {
    fn attempt(&mut self) -> BoxFuture<'_, Attempt> {
        let at = u64::try_from(self.begun.elapsed().as_millis()).unwrap();
        self.seen.send(Seen::Attempt(self.name, at)).unwrap();
        let attempt = match self.script.len() {
            1 => self.script[0].clone(),
            _ => self.script.pop_front().unwrap(),
        };
        Box::pin(async move {
            self.barrier.acquire().await.unwrap().forget();
            attempt
        })
    }

    fn finish(self: Box<Self>, outcome: DeliveryOutcome) -> BoxFuture<'static, ()> {
        self.seen.send(Seen::Finish(self.name, outcome)).unwrap();
        Box::pin(async {})
    }
}

type Counted = Arc<Mutex<Vec<DeliveryCount>>>;

struct QueueFixture {
    /// What is tested.
    queue: DeliveryQueue,
    /// When the test began.
    begun: Instant,
    /// Where deliveries say what happens to them.
    sender: mpsc::UnboundedSender<Seen>,
    /// What happened to them.
    seen: mpsc::UnboundedReceiver<Seen>,
    /// What the queue has counted.
    counted: Counted,
    /// What attempts wait for.
    barrier: Arc<Semaphore>,
}

impl QueueFixture {
    fn new(limits: QueueLimits) -> Self {
        let counted = Counted::default();
        let counts = counted.clone();
        let count = Box::new(move |_, count| counts.lock().push(count));
        let (sender, seen) = mpsc::unbounded_channel();
        Self {
            queue: DeliveryQueue::new(limits, count),
            begun: Instant::now(),
            sender,
            seen,
            counted,
            barrier: Arc::new(Semaphore::new(10_000)),
        }
    }

    fn submit(
        &self,
        channel: &str,
        name: &'static str,
        script: &[Attempt],
    ) -> Result<(), QueueFull> {
        self.submit_to(address(channel, "night", "g1"), name, script)
    }

    fn submit_to(
        &self,
        address: DeliveryAddress,
        name: &'static str,
        script: &[Attempt],
    ) -> Result<(), QueueFull> {
        let delivery = ScriptedDelivery {
            name,
            script: script.iter().cloned().collect(),
            begun: self.begun,
            seen: self.sender.clone(),
            barrier: self.barrier.clone(),
        };
        self.queue.submit(address, Box::new(delivery))
    }

    async fn next(&mut self) -> Seen {
        self.seen.recv().await.unwrap()
    }

    async fn expect_attempt(&mut self, name: &'static str) -> u64 {
        let seen = self.next().await;
        if let Seen::Attempt(found, at) = seen
            && found == name
        {
            return at;
        }
        panic!("{seen:?} instead of an attempt at {name}");
    }
}

/// A channel of a person of the same name.
fn address(channel: &str, session: &str, gate: &str) -> DeliveryAddress {
    DeliveryAddress {
        channel: channel.to_owned(),
        kind: ChannelKind::Webhook,
        person: channel.to_owned(),
        session: SessionId::parse(session).unwrap(),
        gate: MessageId::parse(gate).unwrap(),
    }
}

fn fails(retry_after: Option<u64>) -> Attempt {
    Attempt::Failed(DeliveryError::Transient {
        why: "it answered 503".to_owned(),
        retry_after: retry_after.map(Duration::from_secs),
    })
}

#[tokio::test(start_paused = true)]
async fn a_delivery_is_tried_again_with_growing_delays_and_then_given_up() {
    let mut fixture = QueueFixture::new(QueueLimits {
        attempts: 5,
        ..QueueLimits::default()
    });
    fixture.submit("a", "one", &[fails(None)]).unwrap();
    let mut last = fixture.expect_attempt("one").await;
    assert_eq!(last, 0);
    for delay in [1000, 2000, 4000, 8000] {
        let at = fixture.expect_attempt("one").await;
        let waited = at - last;
        assert!(
            (delay / 2..=delay + 2).contains(&waited),
            "{waited} of {delay}"
        );
        last = at;
    }
    let given_up = match fails(None) {
        Attempt::Failed(error) => DeliveryOutcome::GivenUp(error),
        Attempt::Sent | Attempt::Withdrawn => unreachable!(),
    };
    assert_eq!(fixture.next().await, Seen::Finish("one", given_up));
    use DeliveryCount::{Failed, Retried};
    let counted = [Retried, Retried, Retried, Retried, Failed];
    assert_eq!(*fixture.counted.lock(), counted);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_asks_to_wait_is_left_alone_for_so_long() {
    let mut fixture = QueueFixture::new(QueueLimits::default());
    let script = [fails(Some(120)), Attempt::Sent];
    fixture.submit("a", "one", &script).unwrap();
    fixture.expect_attempt("one").await;
    let at = fixture.expect_attempt("one").await;
    assert!((120_000..120_010).contains(&at), "{at}");
    assert_eq!(
        fixture.next().await,
        Seen::Finish("one", DeliveryOutcome::Sent)
    );
    use DeliveryCount::{Retried, Sent};
    assert_eq!(*fixture.counted.lock(), [Retried, Sent]);
}

#[tokio::test(start_paused = true)]
async fn what_there_is_no_reason_for_any_more_is_not_tried_again() {
    let mut fixture = QueueFixture::new(QueueLimits::default());
    let script = [fails(None), Attempt::Withdrawn];
    fixture.submit("a", "one", &script).unwrap();
    fixture.expect_attempt("one").await;
    fixture.expect_attempt("one").await;
    let finished = Seen::Finish("one", DeliveryOutcome::Withdrawn);
    assert_eq!(fixture.next().await, finished);
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_is_gone_is_given_up_at_once() {
    let mut fixture = QueueFixture::new(QueueLimits::default());
    let gone = DeliveryError::Gone("it answered 410".to_owned());
    fixture
        .submit("a", "one", &[Attempt::Failed(gone.clone())])
        .unwrap();
    fixture.expect_attempt("one").await;
    let finished = Seen::Finish("one", DeliveryOutcome::GivenUp(gone));
    assert_eq!(fixture.next().await, finished);
    assert_eq!(*fixture.counted.lock(), [DeliveryCount::Failed]);
}

#[tokio::test(start_paused = true)]
async fn one_channel_does_not_wait_for_another_and_one_delivery_not_for_another() {
    let mut fixture = QueueFixture::new(QueueLimits::default());
    fixture.submit("dead", "poison", &[fails(None)]).unwrap();
    fixture.submit("dead", "behind", &[Attempt::Sent]).unwrap();
    fixture.expect_attempt("poison").await;
    fixture.submit("alive", "other", &[Attempt::Sent]).unwrap();
    assert_eq!(fixture.expect_attempt("other").await, 0);
    assert_eq!(
        fixture.next().await,
        Seen::Finish("other", DeliveryOutcome::Sent)
    );
    // The one that failed comes behind those that waited.
    fixture.expect_attempt("behind").await;
    assert_eq!(
        fixture.next().await,
        Seen::Finish("behind", DeliveryOutcome::Sent)
    );
    fixture.expect_attempt("poison").await;
}

#[tokio::test(start_paused = true)]
async fn a_channel_and_the_queue_hold_only_so_much() {
    let mut fixture = QueueFixture::new(QueueLimits {
        per_channel: 2,
        in_total: 3,
        ..QueueLimits::default()
    });
    fixture.barrier = Arc::new(Semaphore::new(0));
    // One is being tried and does not wait any more.
    for name in ["a", "b"] {
        fixture.submit(name, "first", &[Attempt::Sent]).unwrap();
        fixture.expect_attempt("first").await;
    }
    fixture.submit("a", "second", &[Attempt::Sent]).unwrap();
    fixture.submit("a", "third", &[Attempt::Sent]).unwrap();
    assert_eq!(
        fixture.submit("a", "fourth", &[Attempt::Sent]),
        Err(QueueFull)
    );
    fixture.submit("b", "second", &[Attempt::Sent]).unwrap();
    assert_eq!(
        fixture.submit("c", "first", &[Attempt::Sent]),
        Err(QueueFull)
    );
    use DeliveryCount::Dropped;
    assert_eq!(*fixture.counted.lock(), [Dropped, Dropped]);
    fixture.barrier.add_permits(100);
    for _ in 0..8 {
        fixture.next().await;
    }
    fixture.submit("c", "first", &[Attempt::Sent]).unwrap();
    fixture.expect_attempt("first").await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_what_is_being_sent_and_begins_nothing_else() {
    let mut fixture = QueueFixture::new(QueueLimits::default());
    fixture.barrier = Arc::new(Semaphore::new(0));
    fixture.submit("a", "one", &[Attempt::Sent]).unwrap();
    fixture.expect_attempt("one").await;
    fixture.submit("a", "two", &[Attempt::Sent]).unwrap();
    fixture.submit("b", "retried", &[fails(None)]).unwrap();
    fixture.expect_attempt("retried").await;
    fixture.barrier.add_permits(2);
    fixture.queue.shut_down(Duration::from_secs(5)).await;
    assert_eq!(
        fixture.next().await,
        Seen::Finish("one", DeliveryOutcome::Sent)
    );
    assert!(fixture.seen.try_recv().is_err(), "nothing else was begun");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_fills_the_queue_does_not_keep_others_from_being_told_of() {
    let mut fixture = QueueFixture::new(QueueLimits {
        in_total: 4,
        ..QueueLimits::default()
    });
    fixture.barrier = Arc::new(Semaphore::new(0));
    let of = |channel, session| address(channel, session, "g1");
    let sent = [Attempt::Sent];
    fixture.submit_to(of("a", "bad"), "begun", &sent).unwrap();
    fixture.expect_attempt("begun").await;
    for _ in 0..4 {
        let submitted = fixture.submit_to(of("a", "bad"), "flood", &sent);
        submitted.unwrap();
    }
    let more = fixture.submit_to(of("b", "bad"), "flood", &sent);
    assert_eq!(more, Err(QueueFull), "of those there are enough");
    fixture.submit_to(of("v", "good"), "real", &sent).unwrap();
    // It took the place of one of the others.
    let mut seen = [fixture.next().await, fixture.next().await];
    seen.sort_by_key(|seen| matches!(seen, Seen::Attempt(..)));
    let [crowded_out, attempt] = seen;
    let withdrawn = Seen::Finish("flood", DeliveryOutcome::Withdrawn);
    assert_eq!(crowded_out, withdrawn);
    assert_eq!(attempt, Seen::Attempt("real", 0));
}

#[tokio::test(start_paused = true)]
async fn one_person_has_only_so_much_of_the_queue() {
    let mut fixture = QueueFixture::new(QueueLimits {
        per_person: 2,
        ..QueueLimits::default()
    });
    fixture.barrier = Arc::new(Semaphore::new(0));
    let of_ann = |channel| DeliveryAddress {
        person: "ann".to_owned(),
        ..address(channel, "night", "g1")
    };
    fixture
        .submit_to(of_ann("a"), "one", &[Attempt::Sent])
        .unwrap();
    fixture.expect_attempt("one").await;
    for _ in 0..2 {
        fixture
            .submit_to(of_ann("a"), "more", &[Attempt::Sent])
            .unwrap();
    }
    let another = fixture.submit_to(of_ann("b"), "more", &[Attempt::Sent]);
    assert_eq!(another, Err(QueueFull));
    fixture.submit("bob", "his", &[Attempt::Sent]).unwrap();
    fixture.expect_attempt("his").await;
}

#[tokio::test(start_paused = true)]
async fn slow_receivers_of_one_session_or_person_leave_attempts_to_others() {
    let mut fixture = QueueFixture::new(QueueLimits {
        attempts_at_once: PermitLimits {
            in_total: 4,
            per_session: 3,
            per_person: 2,
        },
        ..QueueLimits::default()
    });
    fixture.barrier = Arc::new(Semaphore::new(0));
    let sent = [Attempt::Sent];
    let of = |channel, person: &str, session| DeliveryAddress {
        person: person.to_owned(),
        ..address(channel, session, "g1")
    };
    for channel in ["a1", "a2", "a3"] {
        let submitted = fixture.submit_to(of(channel, "ann", "bad"), "hers", &sent);
        submitted.unwrap();
    }
    fixture.expect_attempt("hers").await;
    fixture.expect_attempt("hers").await;
    for channel in ["b1", "b2"] {
        let submitted = fixture.submit_to(of(channel, "bob", "bad"), "his", &sent);
        submitted.unwrap();
    }
    fixture.expect_attempt("his").await;
    // Three of four are in use, and the session may have no more.
    let other = of("c1", "cat", "good");
    fixture.submit_to(other, "other", &sent).unwrap();
    fixture.expect_attempt("other").await;
    for channel in ["d1", "e1"] {
        let submitted = fixture.submit_to(of(channel, channel, "late"), "late", &sent);
        submitted.unwrap();
    }
    assert!(fixture.seen.try_recv().is_err(), "no permit is left");
    // Whatever is given back goes first to the session that has none.
    fixture.barrier.add_permits(1);
    let mut seen = [fixture.next().await, fixture.next().await];
    seen.sort_by_key(|seen| matches!(seen, Seen::Attempt(..)));
    assert!(matches!(&seen[0], Seen::Finish(_, DeliveryOutcome::Sent)));
    assert_eq!(seen[1], Seen::Attempt("late", 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_about_a_closed_gate_is_taken_out() {
    let mut fixture = QueueFixture::new(QueueLimits {
        in_total: 2,
        ..QueueLimits::default()
    });
    fixture.barrier = Arc::new(Semaphore::new(0));
    let sent = [Attempt::Sent];
    fixture.submit("a", "begun", &sent).unwrap();
    fixture.expect_attempt("begun").await;
    fixture
        .submit_to(address("a", "night", "g2"), "other", &sent)
        .unwrap();
    fixture.submit("a", "closed", &sent).unwrap();
    assert_eq!(fixture.submit("b", "full", &sent), Err(QueueFull));
    let gate = MessageId::parse("g1").unwrap();
    fixture
        .queue
        .cancel(&SessionId::parse("day").unwrap(), &gate);
    fixture
        .queue
        .cancel(&SessionId::parse("night").unwrap(), &gate);
    let cancelled = Seen::Finish("closed", DeliveryOutcome::Cancelled);
    assert_eq!(fixture.next().await, cancelled);
    fixture.submit("b", "room", &sent).unwrap();
    fixture.expect_attempt("room").await;
    fixture.barrier.add_permits(10);
    let left: Vec<_> = [
        fixture.next().await,
        fixture.next().await,
        fixture.next().await,
    ]
    .into();
    assert!(left.contains(&Seen::Attempt("other", 0)), "{left:?}");
}

/// A delivery that fails as no delivery may.
struct Panicking;

impl QueuedDelivery for Panicking {
    fn attempt(&mut self) -> BoxFuture<'_, Attempt> {
        Box::pin(async { panic!("in an attempt") })
    }

    fn finish(self: Box<Self>, _: DeliveryOutcome) -> BoxFuture<'static, ()> {
        Box::pin(async { panic!("in the end") })
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_one_delivery_does_not_end_its_channel() {
    let mut fixture = QueueFixture::new(QueueLimits::default());
    let submitted = fixture
        .queue
        .submit(address("a", "night", "g1"), Box::new(Panicking));
    submitted.unwrap();
    fixture.submit("a", "next", &[Attempt::Sent]).unwrap();
    fixture.expect_attempt("next").await;
    let sent = Seen::Finish("next", DeliveryOutcome::Sent);
    assert_eq!(fixture.next().await, sent);
    use DeliveryCount::{Failed, Sent};
    assert_eq!(*fixture.counted.lock(), [Failed, Sent]);
}
