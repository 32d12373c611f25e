//! What it costs the server to tell one output to one viewer, against a bare broadcast loop.
//!
//! The same bursts of 200-byte outputs go to the same viewers from two programs: `pvp server`,
//! which parses, decides, writes durably and tells, and a loop that holds encoded frames of the
//! same size and does nothing but write them. A burst follows when every viewer has the one
//! before, so both have the same to write at a time.
//!
//! Settings: FAN_OUT_VIEWERS=100,1000 FAN_OUT_BURST=64 FAN_OUT_DELIVERIES=4000000

#![allow(clippy::print_stdout, reason = "it prints its figures")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench that cannot go on ends"
)]

mod kit;

use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use kit::{Kind, Peer, Subject, frame_at, setting};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

const TEXT: usize = 200;

/// How often the two programs take turns.
const TURNS: usize = 20;

/// How the ids of outputs begin, and so each told frame.
const OUTPUT: &[u8] = br#"{"v":1,"id":"out-"#;

fn main() {
    if std::env::var("BENCH_PART").is_ok_and(|part| part == "floor") {
        return floor();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, measure());
}

/// CPU seconds that a program took for what it delivered.
#[derive(Clone, Copy)]
struct Run {
    messages: usize,
    viewers: usize,
    cpu: f64,
    wall: Duration,
}

impl Run {
    fn per_million(&self) -> f64 {
        self.cpu / (self.messages * self.viewers) as f64 * 1e6
    }

    fn per_message(&self) -> f64 {
        self.cpu / self.messages as f64
    }

    /// CPU seconds per million deliveries without what the messages cost before anyone is told.
    fn telling(&self, ingest: &Run) -> f64 {
        (self.per_message() - ingest.per_message()) / self.viewers as f64 * 1e6
    }
}

async fn measure() {
    let viewers = std::env::var("FAN_OUT_VIEWERS").unwrap_or_else(|_| "100,1000".to_owned());
    let viewers: Vec<usize> = viewers.split(',').map(|n| n.parse().unwrap()).collect();
    let burst = setting("FAN_OUT_BURST", 64);
    let deliveries = setting("FAN_OUT_DELIVERIES", 4_000_000);
    println!("fan-out: {TEXT}-byte outputs in bursts of {burst}");
    let ingest = {
        let mut program = Server::start(0).await;
        program.warm_up(burst).await;
        program.run(deliveries / 100, burst).await;
        program.done
    };
    println!(
        "ingest alone, no viewer: {:.1} µs CPU a message (parse, decide, durable append, answer)",
        ingest.per_message() * 1e6
    );
    println!("CPU seconds per million deliveries; `telling` is without the ingest");
    println!("viewers  program        all  telling  wall s  ratio (all)  ratio (telling)");
    let mut runs = Vec::new();
    for viewers in viewers {
        let (ours, bare) = side_by_side(viewers, deliveries / viewers, burst).await;
        let line = |name: &str, run: &Run, telling: f64, ratios: String| {
            println!(
                "{viewers:>7}  {name:<10}  {:>6.3}  {telling:>7.3}  {:>6.2}  {ratios}",
                run.per_million(),
                run.wall.as_secs_f64()
            );
        };
        line("bare loop", &bare, bare.per_million(), String::new());
        let telling = ours.telling(&ingest);
        let ratios = format!(
            "{:>11.2}  {:>15.2}",
            ours.per_million() / bare.per_million(),
            telling / bare.per_million()
        );
        line("pvp server", &ours, telling, ratios);
        runs.push((ours, bare));
    }
    if let [first, .., last] = runs[..] {
        let slope = |of: fn(&(Run, Run)) -> &Run| {
            let (few, many) = (of(&first), of(&last));
            (many.per_message() - few.per_message()) / (many.viewers - few.viewers) as f64 * 1e6
        };
        let (ours, bare) = (slope(|run| &run.0), slope(|run| &run.1));
        println!(
            "one more viewer: pvp server {ours:.3}, bare loop {bare:.3}, ratio {:.2}  (bar: at most 1.25: {})",
            ours / bare,
            kit::met(ours <= 1.25 * bare)
        );
    }
}

/// Both programs with as many viewers each, in turns, so that whatever else the machine does
/// hits both alike.
async fn side_by_side(viewers: usize, messages: usize, burst: usize) -> (Run, Run) {
    let mut ours = Server::start(viewers).await;
    ours.warm_up(burst).await;
    let mut bare = Bare::start(viewers, &ours.told).await;
    bare.warm_up(burst).await;
    let turn = (messages / TURNS).max(burst);
    for _ in 0..TURNS {
        ours.run(turn, burst).await;
        bare.run(turn, burst).await;
    }
    (ours.done, bare.done)
}

impl Run {
    fn none(viewers: usize) -> Self {
        Self {
            messages: 0,
            viewers,
            cpu: 0.0,
            wall: Duration::ZERO,
        }
    }

    fn add(&mut self, messages: usize, cpu: f64, wall: Duration) {
        self.messages += messages;
        self.cpu += cpu;
        self.wall += wall;
    }
}

/// The real server, an agent that streams into it, and those who watch.
struct Server {
    subject: Subject,
    _data: tempfile::TempDir,
    agent: Peer,
    audience: Audience,
    sent: usize,
    /// One output as it is told.
    told: Vec<u8>,
    done: Run,
}

impl Server {
    async fn start(viewers: usize) -> Self {
        let data = tempfile::tempdir().unwrap();
        let (subject, _) = Subject::server(data.path());
        let address = &subject.address;
        Peer::create(address, "wide", viewers + 2).await;
        let more = json!({ "history": 0 });
        let mut agent = Peer::join(address, "wide", "bot", Kind::Agent, more.clone()).await;
        agent.start_run("run").await;
        let audience = Audience::default();
        for number in 0..viewers {
            let name = format!("v{number}");
            let peer = Peer::join(address, "wide", &name, Kind::Observer, more.clone()).await;
            let (stream, rest) = peer.into_stream();
            audience.watch(stream, rest);
        }
        Self {
            subject,
            _data: data,
            agent,
            audience,
            sent: 0,
            told: Vec::new(),
            done: Run::none(viewers),
        }
    }

    async fn warm_up(&mut self, burst: usize) {
        self.burst(burst).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    async fn run(&mut self, messages: usize, burst: usize) {
        let (cpu, begun, before) = (self.subject.cpu_seconds(), Instant::now(), self.sent);
        while self.sent - before < messages {
            self.burst(burst).await;
        }
        let cpu = self.subject.cpu_seconds() - cpu;
        self.done.add(self.sent - before, cpu, begun.elapsed());
    }

    /// Sends some outputs without waiting between them, and waits until all have them.
    async fn burst(&mut self, many: usize) {
        let text = "x".repeat(TEXT);
        for _ in 0..many {
            self.sent += 1;
            let id = format!("out-{}", self.sent);
            let output = self.agent.output("run", &id, &text);
            self.agent.queue(&output);
        }
        self.agent.flush().await.unwrap();
        // The agent is a participant too: it is told its own outputs, among the answers.
        let mut own = 0;
        while own < many {
            let told = self.agent.next().await.unwrap();
            if told.starts_with(OUTPUT) {
                own += 1;
                self.told.clear();
                self.told.extend_from_slice(told);
            }
        }
        self.audience.all_have(self.sent).await;
    }
}

/// The bare loop with its viewers; its frames are copies of one that the server told.
struct Bare {
    subject: Subject,
    control: TcpStream,
    audience: Audience,
    sent: usize,
    done: Run,
}

impl Bare {
    async fn start(viewers: usize, told: &[u8]) -> Self {
        let subject = Subject::myself("floor", &[]);
        let mut control = TcpStream::connect(&subject.address).await.unwrap();
        control.set_nodelay(true).unwrap();
        control.write_u32(told.len() as u32).await.unwrap();
        control.write_all(told).await.unwrap();
        let audience = Audience::default();
        for _ in 0..viewers {
            let stream = TcpStream::connect(&subject.address).await.unwrap();
            audience.watch(stream, Vec::new());
        }
        Self {
            subject,
            control,
            audience,
            sent: 0,
            done: Run::none(viewers),
        }
    }

    async fn warm_up(&mut self, burst: usize) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.burst(burst).await;
    }

    async fn run(&mut self, messages: usize, burst: usize) {
        let (cpu, begun, before) = (self.subject.cpu_seconds(), Instant::now(), self.sent);
        while self.sent - before < messages {
            self.burst(burst).await;
        }
        let cpu = self.subject.cpu_seconds() - cpu;
        self.done.add(self.sent - before, cpu, begun.elapsed());
    }

    async fn burst(&mut self, many: usize) {
        self.sent += many;
        self.control.write_u32(many as u32).await.unwrap();
        self.audience.all_have(self.sent).await;
    }
}

/// Everyone who watches, and how much the slowest has.
#[derive(Default)]
struct Audience {
    counts: Rc<RefCell<Counts>>,
    progress: Rc<Notify>,
}

#[derive(Default)]
struct Counts {
    outputs: Vec<usize>,
    /// What is waited for, and how many still lack it.
    goal: usize,
    lacking: usize,
}

impl Audience {
    fn watch(&self, stream: TcpStream, rest: Vec<u8>) {
        let place = {
            let mut counts = self.counts.borrow_mut();
            counts.outputs.push(0);
            counts.outputs.len() - 1
        };
        tokio::task::spawn_local(watch_outputs(
            stream,
            rest,
            place,
            self.counts.clone(),
            self.progress.clone(),
        ));
    }

    async fn all_have(&self, goal: usize) {
        {
            let mut counts = self.counts.borrow_mut();
            counts.goal = goal;
            counts.lacking = counts.outputs.iter().filter(|count| **count < goal).count();
            if counts.lacking == 0 {
                return;
            }
        }
        self.progress.notified().await;
    }
}

/// Counts the outputs that one viewer is told, without reading more of them than where they end.
async fn watch_outputs(
    stream: TcpStream,
    mut rest: Vec<u8>,
    place: usize,
    counts: Rc<RefCell<Counts>>,
    progress: Rc<Notify>,
) {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; 256 * 1024]);
    }
    loop {
        stream.readable().await.unwrap();
        let found = SCRATCH.with_borrow_mut(|scratch| {
            scratch[..rest.len()].copy_from_slice(&rest);
            let read = match stream.try_read(&mut scratch[rest.len()..]) {
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Some(0),
                Err(error) => panic!("a viewer was dropped: {error}"),
            };
            if read == 0 {
                return None;
            }
            let mut bytes = &scratch[..rest.len() + read];
            let mut found = 0;
            while let Some(frame) = frame_at(bytes) {
                found += usize::from(bytes[frame.header..].starts_with(OUTPUT));
                bytes = &bytes[frame.header + frame.payload..];
            }
            rest.clear();
            rest.extend_from_slice(bytes);
            Some(found)
        });
        let Some(found) = found else { return };
        let mut counts = counts.borrow_mut();
        let before = counts.outputs[place];
        counts.outputs[place] += found;
        if before < counts.goal && before + found >= counts.goal {
            counts.lacking -= 1;
            if counts.lacking == 0 {
                progress.notify_one();
            }
        }
    }
}

/// The bare loop: one task a connection, encoded frames, up to 64 of them in a vectored write.
fn floor() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        let (mut control, _) = listener.accept().await.unwrap();
        let length = control.read_u32().await.unwrap() as usize;
        let mut text = vec![0; length];
        control.read_exact(&mut text).await.unwrap();
        let frame = pvp_server::socket::text_frame(&text);
        let (published, head) = watch::channel(0_usize);
        let viewers = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                tokio::spawn(broadcast(stream, Arc::new(frame.clone()), head.clone()));
            }
        });
        while let Ok(many) = control.read_u32().await {
            published.send_modify(|head| *head += many as usize);
        }
        viewers.abort();
    });
}

async fn broadcast(mut stream: TcpStream, frame: Arc<Bytes>, mut head: watch::Receiver<usize>) {
    let mut next = 0;
    while head.changed().await.is_ok() {
        loop {
            let many = (*head.borrow_and_update() - next).min(64);
            if many == 0 {
                break;
            }
            next += many;
            let mut batch: Vec<Bytes> = (0..many).map(|_| Bytes::clone(&frame)).collect();
            let mut batch = &mut batch[..];
            while !batch.is_empty() {
                let slices: Vec<_> = batch.iter().map(|frame| IoSlice::new(frame)).collect();
                let Ok(mut written) = stream.write_vectored(&slices).await else {
                    return;
                };
                while let Some(first) = batch.first_mut() {
                    let part = written.min(first.len());
                    first.advance(part);
                    written -= part;
                    if !first.is_empty() {
                        break;
                    }
                    batch = &mut batch[1..];
                }
            }
        }
    }
}
