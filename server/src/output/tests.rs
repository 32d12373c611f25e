//! Tests of reading output on a store in memory, compared with joining everything from the start.

use super::*;
use crate::store::memory::MemoryStore;
use crate::store::{AppendRequest, CheckpointTiming, LogHead};
use proptest::prelude::*;
use pvp_protocol::payload::OutputStream;
use pvp_protocol::{Envelope, EnvelopeHeader, ExtraFields, Sender, Timestamp};
use pvp_session::IndexChange;

fn id(name: &str) -> MessageId {
    MessageId::parse(name).unwrap()
}

fn request() -> OutputRead {
    OutputRead {
        reference: id("p1"),
        stream: None,
        offset: None,
        limit: None,
        head: None,
        tail: None,
        grep: None,
        extra: ExtraFields::new(),
    }
}

/// What a command printed, piece by piece.
#[derive(Debug, Clone)]
struct Printed {
    stream: OutputStream,
    text: String,
    complete: bool,
}

fn printed(stream: OutputStream, text: &str) -> Printed {
    Printed {
        stream,
        text: text.to_owned(),
        complete: false,
    }
}

fn sample() -> Vec<Printed> {
    use OutputStream::{Stderr, Stdout};
    vec![
        printed(Stdout, "one\ntw"),
        printed(Stderr, "oops\n"),
        printed(Stdout, "o\nthree\n"),
        printed(Stdout, "four"),
    ]
}

/// A store with the output of one command, and how far it came.
struct Recorded {
    store: MemoryStore,
    session: SessionId,
    end: OutputPosition,
}

impl Recorded {
    async fn new(pieces: &[Printed]) -> Self {
        let session = SessionId::parse("owl").unwrap();
        let mut end = OutputPosition::default();
        let (mut records, mut index_changes) = (Vec::new(), Vec::new());
        let start = LogHead::empty(&session);
        let mut head = start;
        for piece in pieces {
            let output = ToolOutput {
                tool_proposal: id("p1"),
                stream: piece.stream,
                text: piece.text.clone(),
                complete: piece.complete,
                offset: None,
                extra: ExtraFields::new(),
            };
            let seq = head.seq + 1;
            index_changes.push(IndexChange::Output(end.advance(1, seq, &output)));
            let envelope = Envelope {
                header: EnvelopeHeader {
                    id: id(&format!("m{seq}")),
                    session: session.clone(),
                    sender: Sender::System,
                    reference: None,
                    causal_refs: Vec::new(),
                    fork: None,
                },
                at: Timestamp::default(),
                seq: Some(seq),
                message: ServerMessage::from(output),
            };
            let record = LogRecord::after(&head, "".into(), envelope.to_json().into());
            head = record.head();
            records.push(record);
        }
        let store = MemoryStore::default();
        let append = AppendRequest {
            session: session.clone(),
            prev: start,
            records,
            index: None,
            index_changes,
            snapshot: None,
            at: Timestamp::default(),
            checkpoint: CheckpointTiming::WhenDue,
        };
        store.append(append.into()).await.unwrap();
        Self {
            store,
            session,
            end,
        }
    }

    async fn read(&self, request: OutputRead) -> PageLines {
        let range = OutputLineRange::from_request(&request).unwrap();
        let reader = OutputReader {
            store: &self.store,
            session: &self.session,
            run: 1,
            end: self.end,
            request,
        };
        match range {
            OutputLineRange::Offset { offset, limit } => reader.read_from(offset, limit).await,
            OutputLineRange::Tail(0) => Ok(PageLines::default()),
            OutputLineRange::Tail(count) => reader.read_tail(count).await,
        }
        .unwrap()
    }

    async fn texts(&self, change: impl FnOnce(&mut OutputRead)) -> Vec<String> {
        let mut request = request();
        change(&mut request);
        let page = self.read(request).await;
        let text = |line: &OutputLine| format!("{} {}", line.number, line.text);
        page.lines.iter().map(text).collect()
    }
}

#[tokio::test]
async fn chunks_are_joined_into_lines_and_filtered() {
    let recorded = Recorded::new(&sample()).await;
    assert_eq!(
        recorded.texts(|_| {}).await,
        ["0 one", "1 oops", "2 two", "3 three", "4 four"]
    );
    let first_two = recorded.texts(|read| read.head = Some(2)).await;
    assert_eq!(first_two, ["0 one", "1 oops"]);
    let last_two = recorded.texts(|read| read.tail = Some(2)).await;
    assert_eq!(last_two, ["3 three", "4 four"]);
    let middle = |read: &mut OutputRead| (read.offset, read.limit) = (Some(1), Some(2));
    assert_eq!(recorded.texts(middle).await, ["1 oops", "2 two"]);
    let found = recorded
        .texts(|read| read.grep = Some("o".to_owned()))
        .await;
    assert_eq!(found, ["0 one", "1 oops", "2 two", "4 four"]);
    let found = |read: &mut OutputRead| (read.grep, read.tail) = (Some("t".into()), Some(1));
    assert_eq!(recorded.texts(found).await, ["3 three"]);
    assert_eq!(recorded.texts(|read| read.tail = Some(0)).await, [""; 0]);
    let errors = |read: &mut OutputRead| read.stream = Some(OutputStream::Stderr);
    assert_eq!(recorded.texts(errors).await, ["0 oops"]);
}

#[test]
fn wrong_combinations_are_refused_with_a_sentence() {
    let refused = |change: fn(&mut OutputRead)| {
        let mut request = request();
        change(&mut request);
        OutputLineRange::from_request(&request)
    };
    for refusal in [
        refused(|read| (read.head, read.tail) = (Some(1), Some(1))),
        refused(|read| (read.head, read.offset) = (Some(1), Some(1))),
        refused(|read| (read.tail, read.limit) = (Some(1), Some(1))),
    ] {
        assert!(matches!(refusal, Err(Refusal::Malformed(_))), "{refusal:?}");
    }
}

#[tokio::test]
async fn a_page_reads_what_it_returns_wherever_it_is() {
    let pieces: Vec<_> = (0..50_000)
        .map(|number| printed(OutputStream::Stdout, &format!("line {number}\n")))
        .collect();
    let recorded = Recorded::new(&pieces).await;
    for offset in [0, 10, 25_000, 49_990] {
        let before = recorded.store.records_read();
        let range = |read: &mut OutputRead| (read.offset, read.limit) = (Some(offset), Some(10));
        let lines = recorded.texts(range).await;
        assert_eq!(lines[0], format!("{offset} line {offset}"));
        assert_eq!(lines.len(), 10);
        let read = recorded.store.records_read() - before;
        assert!(read <= 20, "{read} records for 10 lines");
    }
    let before = recorded.store.records_read();
    assert_eq!(recorded.texts(|read| read.tail = Some(10)).await.len(), 10);
    let read = recorded.store.records_read() - before;
    assert!(read <= 20, "{read} records for 10 lines");
}

#[tokio::test]
async fn a_search_goes_on_where_the_page_ended() {
    let line = format!("{}\n", "x".repeat(1000));
    let mut pieces: Vec<_> = (0..20_000)
        .map(|_| printed(OutputStream::Stdout, &line))
        .collect();
    pieces.push(printed(OutputStream::Stdout, "needle\n"));
    let recorded = Recorded::new(&pieces).await;
    let (mut offset, mut pages) = (0, 0);
    let found = loop {
        let mut request = request();
        (request.grep, request.offset) = (Some("needle".into()), Some(offset));
        let page = recorded.read(request).await;
        pages += 1;
        match page.next {
            Some(next) => {
                assert!(next > offset);
                offset = next;
            }
            None => break page.lines,
        }
    };
    assert_eq!(found[0].number, 20_000);
    assert!((2..=4).contains(&pages), "{pages} pages for 20 MB");
}

#[tokio::test]
async fn a_line_of_many_chunks_is_read_once() {
    let mut pieces = vec![printed(OutputStream::Stdout, "a"); 3000];
    pieces.push(printed(OutputStream::Stdout, "\nb\n"));
    let recorded = Recorded::new(&pieces).await;
    let requests: [fn(&mut OutputRead); 4] = [
        |read| (read.tail, read.grep) = (Some(5), Some("b".into())),
        |read| read.tail = Some(100),
        |_| {},
        |read| read.grep = Some("b".into()),
    ];
    for (number, change) in requests.into_iter().enumerate() {
        let before = recorded.store.records_read();
        let lines = recorded.texts(change).await;
        assert_eq!(lines.last().unwrap(), "1 b");
        let read = recorded.store.records_read() - before;
        assert!(read <= 4000, "request {number} read {read} records");
    }
}

#[tokio::test]
async fn a_long_line_without_an_end_is_split_and_shortened() {
    let piece = printed(OutputStream::Stdout, &"y".repeat(100 * 1024));
    let recorded = Recorded::new(&vec![piece; 10]).await;
    let page = recorded.read(request()).await;
    let lengths: Vec<_> = page.lines.iter().map(|line| line.text.len()).collect();
    assert_eq!(lengths, [MAX_PAGE_LINE_BYTES; 4]);
    assert!(page.cut);
    assert_eq!(recorded.end.total_lines(OutputStreams(None)), 4);
}

/// All lines, as a reader finds them who joins everything from the start.
fn all_lines(pieces: &[Printed], streams: OutputStreams) -> Vec<OutputLine> {
    let mut assembler = LineAssembler::default();
    for piece in pieces.iter().filter(|piece| streams.contains(piece.stream)) {
        assembler.push(&ToolOutput {
            tool_proposal: id("p1"),
            stream: piece.stream,
            text: piece.text.clone(),
            complete: piece.complete,
            offset: None,
            extra: ExtraFields::new(),
        });
    }
    assembler.finish(streams);
    assembler.lines
}

fn any_pieces() -> impl Strategy<Value = Vec<Printed>> {
    let stream = prop_oneof![Just(OutputStream::Stdout), Just(OutputStream::Stderr)];
    let piece = (stream, "[ab\u{e9}\n]{0,9}");
    prop::collection::vec(piece, 0..60).prop_map(|pieces| {
        let printed = pieces
            .into_iter()
            .map(|(stream, text)| printed(stream, &text));
        printed.collect()
    })
}

proptest! {
    #[test]
    fn any_part_of_any_output_is_what_reading_everything_would_give(
        pieces in any_pieces(),
        only in prop_oneof![Just(None), Just(Some(OutputStream::Stdout)), Just(Some(OutputStream::Stderr))],
        grep in prop_oneof![Just(None), Just(Some("a".to_owned()))],
        offset in 0..40u64,
        limit in 0..9u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let recorded = Recorded::new(&pieces).await;
            let streams = OutputStreams(only);
            let everything = all_lines(&pieces, streams);
            assert_eq!(recorded.end.total_lines(streams), everything.len() as u64);
            let matching = |line: &&OutputLine| {
                grep.as_ref().is_none_or(|grep: &String| line.text.contains(grep))
            };
            let mut read = OutputRead { stream: only, grep: grep.clone(), ..request() };
            (read.offset, read.limit) = (Some(offset), Some(limit));
            let page = recorded.read(read).await;
            let expected: Vec<_> = everything.iter().filter(|line| line.number >= offset)
                .filter(matching).take(limit as usize).cloned().collect();
            assert_eq!(Vec::from(page.lines), expected);
            let read = OutputRead { stream: only, grep: grep.clone(), tail: Some(limit), ..request() };
            let page = recorded.read(read).await;
            let mut expected: Vec<_> = everything.iter().rev().filter(matching)
                .take(limit as usize).cloned().collect();
            expected.reverse();
            assert_eq!(Vec::from(page.lines), expected);
        });
    }
}
