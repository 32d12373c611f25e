//! Tests of the feed.

use super::ring::{FRESH_FOR, MAX_AGE, MAX_EPHEMERAL_BYTES, MAX_RING_BYTES, MAX_STALE_BYTES};
use super::*;
use futures_util::FutureExt;
use pvp_protocol::{Limits, Timestamp};

fn viewer(name: &str) -> Viewer {
    let id = ParticipantId::parse(name).unwrap();
    Viewer::new(id, Arc::default(), Timestamp::default(), &Limits::default())
}

fn delivery(seq: u64, audience: Audience) -> Delivery {
    Delivery {
        seq,
        body: Bytes::from(format!("e{seq}")),
        audience,
        executor_copy: None,
        can_wait: false,
    }
}

fn audience_of(name: &str) -> Audience {
    Audience::only([ParticipantId::parse(name).unwrap()])
}

/// Everything a viewer gets from the sequence number `from` on, as the texts of the frames.
fn read_texts(feed: &SessionFeed, from: u64, viewer: &Viewer) -> (Vec<String>, LogCursor) {
    let mut cursor = LogCursor {
        next_seq: from,
        ephemeral: 0,
    };
    let mut bytes = Vec::new();
    while feed.read_batch(&mut cursor, viewer, |frame| bytes.extend_from_slice(&frame))
        == FeedRead::Advanced
    {}
    let mut texts = Vec::new();
    let mut rest = bytes.as_slice();
    while let [0x81, length, after @ ..] = rest {
        let (text, next) = after.split_at(usize::from(*length));
        texts.push(String::from_utf8(text.to_vec()).unwrap());
        rest = next;
    }
    assert!(rest.is_empty(), "whole frames only");
    (texts, cursor)
}

#[test]
fn each_viewer_gets_what_they_may_see_in_order() {
    let feed = SessionFeed::default();
    let everyone = Audience::everyone;
    let mut granted = delivery(4, everyone());
    granted.executor_copy = Some((ParticipantId::parse("bot").unwrap(), Bytes::from("secret4")));
    feed.publish(vec![
        delivery(1, everyone()),
        delivery(2, everyone()),
        delivery(3, audience_of("ann")),
        granted,
        delivery(5, everyone()),
    ]);
    assert_eq!(
        read_texts(&feed, 1, &viewer("ann")).0,
        ["e1", "e2", "e3", "e4", "e5"]
    );
    assert_eq!(
        read_texts(&feed, 1, &viewer("bob")).0,
        ["e1", "e2", "e4", "e5"]
    );
    assert_eq!(
        read_texts(&feed, 1, &viewer("bot")).0,
        ["e1", "e2", "secret4", "e5"]
    );
}

#[test]
fn a_cursor_in_the_middle_of_a_merged_run_gets_only_the_rest() {
    let feed = SessionFeed::default();
    feed.publish(
        (1..=9)
            .map(|seq| delivery(seq, Audience::everyone()))
            .collect(),
    );
    let (texts, cursor) = read_texts(&feed, 6, &viewer("ann"));
    assert_eq!(texts, ["e6", "e7", "e8", "e9"]);
    assert_eq!(cursor.next_seq, 10);
}

#[test]
fn a_client_that_falls_behind_reads_from_the_store() {
    let feed = SessionFeed::default();
    let big = |seq| Delivery {
        body: Bytes::from(vec![b'x'; MAX_RING_BYTES / 4]),
        ..delivery(seq, Audience::everyone())
    };
    for seq in 1..=12 {
        feed.publish(vec![big(seq)]);
    }
    let mut cursor = LogCursor {
        next_seq: 1,
        ephemeral: 0,
    };
    assert_eq!(
        feed.read_batch(&mut cursor, &viewer("ann"), |_| {}),
        FeedRead::Behind
    );
    assert_eq!(cursor.next_seq, 1);
    assert!(feed.ring.read().bytes() <= MAX_RING_BYTES + MAX_RING_BYTES / 4);
}

#[test]
fn after_a_restart_everything_older_is_in_the_store() {
    let feed = SessionFeed::default();
    feed.advance_head_to(7);
    let mut cursor = LogCursor {
        next_seq: 7,
        ephemeral: 0,
    };
    assert_eq!(
        feed.read_batch(&mut cursor, &viewer("ann"), |_| {}),
        FeedRead::Behind
    );
    let mut cursor = feed.cursor_after(7);
    assert_eq!(
        feed.read_batch(&mut cursor, &viewer("ann"), |_| {}),
        FeedRead::UpToDate
    );
    feed.close();
    assert_eq!(
        feed.read_batch(&mut cursor, &viewer("ann"), |_| {}),
        FeedRead::Closed
    );
}

#[test]
fn a_range_of_recent_entries_is_read_as_it_was_published() {
    let feed = SessionFeed::default();
    feed.advance_head_to(2);
    let everyone = Audience::everyone;
    feed.publish((3..=6).map(|seq| delivery(seq, everyone())).collect());
    feed.publish(vec![delivery(7, audience_of("ann"))]);
    feed.publish((8..=9).map(|seq| delivery(seq, everyone())).collect());
    let read = |from, until, name| {
        let frames = feed.read_range(from, until, &viewer(name))?;
        Some(frames.concat())
    };
    let frames = |seqs: &[u64]| {
        let frames = seqs
            .iter()
            .map(|seq| text_frame(format!("e{seq}").as_bytes()));
        Some(frames.collect::<Vec<_>>().concat())
    };
    assert_eq!(read(3, 10, "ann"), frames(&[3, 4, 5, 6, 7, 8, 9]));
    assert_eq!(read(3, 10, "bob"), frames(&[3, 4, 5, 6, 8, 9]));
    assert_eq!(read(4, 6, "ann"), frames(&[4, 5]));
    assert_eq!(read(6, 9, "ann"), frames(&[6, 7, 8]));
    assert_eq!(read(5, 5, "ann"), frames(&[]));
    assert_eq!(read(2, 6, "ann"), None, "the store has the rest");
    assert_eq!(read(4, 11, "ann"), None, "it is not published yet");
    let large = |seq| large_delivery(seq, 64 * 1024);
    feed.publish((10..=20).map(large).collect());
    assert_eq!(read(4, 20, "ann"), None, "too much at a time");
}

/// An entry with a body of this many bytes.
fn large_delivery(seq: u64, bytes: usize) -> Delivery {
    Delivery {
        body: Bytes::from(vec![b'x'; bytes]),
        ..delivery(seq, Audience::everyone())
    }
}

fn can_read_from(feed: &SessionFeed, next_seq: u64) -> bool {
    let mut cursor = LogCursor {
        next_seq,
        ephemeral: 0,
    };
    feed.read_batch(&mut cursor, &viewer("ann"), |_| {}) != FeedRead::Behind
}

#[test]
fn few_entries_that_are_not_fresh_are_kept_and_no_old_ones() {
    let feed = SessionFeed::default();
    let start = Instant::now();
    let burst = (1..=100).map(|seq| large_delivery(seq, 16 * 1024));
    feed.publish_at(burst.collect(), start);
    assert!(feed.ring.read().bytes() > 8 * MAX_STALE_BYTES);
    assert!(can_read_from(&feed, 1));

    assert_eq!(feed.next_timer(), Some(start + FRESH_FOR));
    feed.on_timer(start + FRESH_FOR);
    let kept = feed.ring.read().bytes();
    assert!(0 < kept && kept <= MAX_STALE_BYTES, "{kept} bytes are kept");
    assert!(!can_read_from(&feed, 1), "the store has these");
    assert!(can_read_from(&feed, 100));

    assert_eq!(feed.next_timer(), Some(start + MAX_AGE));
    feed.on_timer(start + MAX_AGE);
    assert_eq!(feed.ring.read().bytes(), 0);
    assert_eq!(feed.next_timer(), None);
    assert!(!can_read_from(&feed, 100));
    assert!(can_read_from(&feed, 101), "whoever is up to date stays so");
}

#[test]
fn a_steady_stream_keeps_what_is_fresh_and_no_more() {
    let feed = SessionFeed::default();
    let start = Instant::now();
    let each = 4 * 1024;
    let mut most = 0;
    for number in 0..2_000_u32 {
        let now = start + Duration::from_millis(5) * number;
        feed.publish_at(vec![large_delivery(u64::from(number) + 1, each)], now);
        most = most.max(feed.ring.read().bytes());
    }
    let fresh = 100 * (each + 16);
    assert!(most <= fresh + each + 16, "{most} bytes were kept");
}

#[test]
fn the_rings_of_all_sessions_share_one_budget() {
    let budget = Arc::new(RingBudget::default());
    let now = Instant::now();
    let mut feeds = Vec::new();
    for _ in 0..100 {
        let feed = SessionFeed::new(budget.clone(), Arc::default());
        let burst = (1..=16).map(|seq| large_delivery(seq, 128 * 1024));
        feed.publish_at(burst.collect(), now);
        assert!(can_read_from(&feed, 16), "the last entry is always there");
        feeds.push(feed);
    }
    let in_rings: usize = feeds.iter().map(|feed| feed.ring.read().bytes()).sum();
    assert_eq!(in_rings, budget.used());
    assert!(budget.used() < 80 * 1024 * 1024, "{} bytes", budget.used());
    drop(feeds);
    assert_eq!(budget.used(), 0);
}

#[test]
fn ephemeral_broadcasts_reach_those_connected_and_are_bounded() {
    let feed = SessionFeed::default();
    let mut cursor = feed.cursor_after(0);
    let text = [b'w'; 1024];
    for _ in 0..1000 {
        feed.broadcast_ephemeral(&text);
    }
    let mut received = 0;
    while feed.read_batch(&mut cursor, &viewer("ann"), |frames| {
        received += frames.len();
    }) == FeedRead::Advanced
    {}
    assert!(received <= MAX_EPHEMERAL_BYTES, "{received} bytes");
    assert!(received > MAX_EPHEMERAL_BYTES - 2 * text.len());
    assert_eq!(
        feed.read_batch(&mut cursor, &viewer("ann"), |_| {}),
        FeedRead::UpToDate
    );
    feed.on_timer(Instant::now() + MAX_AGE);
    let (texts, _) = read_texts(&feed, 1, &viewer("late"));
    assert_eq!(texts, [""; 0], "old ones are gone");
    feed.broadcast_ephemeral(b"new");
    let mut frames = Vec::new();
    feed.read_batch(&mut cursor, &viewer("ann"), |frame| frames.push(frame));
    assert_eq!(frames, [text_frame(b"new")]);
}

/// A feed whose session has this many devices.
fn feed_with_devices(devices: u32) -> SessionFeed {
    let counted = Arc::new(SessionDevices::default());
    let id = ParticipantId::parse("many").unwrap();
    let limits = Limits::default();
    let viewer = Viewer::new(id, counted.clone(), Timestamp::default(), &limits);
    let viewer = Arc::new(viewer);
    for _ in 0..devices {
        std::mem::forget(viewer.add_device());
    }
    SessionFeed::new(Arc::default(), counted)
}

fn announcement(seq: u64) -> Delivery {
    Delivery {
        can_wait: true,
        ..delivery(seq, Audience::everyone())
    }
}

#[test]
fn a_crowd_is_woken_once_for_many_who_join() {
    let feed = feed_with_devices(1000);
    let mut cursor = feed.cursor_after(0);
    let start = Instant::now();
    let mut woken = feed.notifier().notified().boxed_local();
    assert!((&mut woken).now_or_never().is_none(), "waits");
    for seq in 1..=500 {
        feed.publish_at(vec![announcement(seq)], start);
        feed.broadcast_presence(format!("p{seq}").as_bytes());
    }
    assert!((&mut woken).now_or_never().is_none(), "not woken yet");
    assert!(feed.next_timer().unwrap() <= start + JOIN_WAKE_DELAY);
    feed.on_timer(start + JOIN_WAKE_DELAY);
    assert!(woken.now_or_never().is_some(), "woken");

    let mut buffers = Vec::new();
    feed.read_batch(&mut cursor, &viewer("ann"), |frames| buffers.push(frames));
    let presence: Vec<_> = (1..=500)
        .flat_map(|seq| text_frame(format!("p{seq}").as_bytes()))
        .collect();
    assert_eq!(buffers[0], presence, "the presence of all in one buffer");
    while feed.read_batch(&mut cursor, &viewer("ann"), |_| {}) == FeedRead::Advanced {}
    assert_eq!(cursor.next_seq, 501);
}

#[test]
fn whatever_else_happens_wakes_a_crowd_at_once() {
    let feed = feed_with_devices(1000);
    let start = Instant::now();
    let mut woken = feed.notifier().notified().boxed_local();
    assert!((&mut woken).now_or_never().is_none());
    feed.publish_at(vec![announcement(1)], start);
    feed.publish_at(vec![delivery(2, Audience::everyone())], start);
    assert!(woken.now_or_never().is_some());

    let few = feed_with_devices(2);
    let mut woken = few.notifier().notified().boxed_local();
    assert!((&mut woken).now_or_never().is_none());
    few.publish_at(vec![announcement(1)], start);
    assert!(woken.now_or_never().is_some(), "two need not wait");
}
