//! The server's cost of delivering one output to one viewer, compared with a bare broadcast loop.
//!
//! The same bursts of 200-byte outputs go to the same viewers from two programs: `pvp server`,
//! which parses, decides, writes durably and delivers, and a loop that holds encoded frames of the
//! same size and only writes them. The next burst follows when every viewer has the previous one,
//! so both have the same amount to write at a time.
//!
//! Settings: FAN_OUT_VIEWERS=100,1000 FAN_OUT_BURST=64 FAN_OUT_DELIVERIES=4000000

#![allow(clippy::print_stdout, reason = "it prints its figures")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench that cannot go on ends"
)]

mod support;

use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use serde_json::json;
use support::{BenchClient, BenchRole, MeasuredProcess, env_number, frame_at};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

const TEXT_BYTES: usize = 200;

/// How often the two programs take turns.
const TURNS: usize = 20;

/// How the ids of outputs begin, and so each delivered frame.
const OUTPUT_PREFIX: &[u8] = br#"{"v":1,"id":"out-"#;

fn main() {
    if std::env::var("BENCH_PART").is_ok_and(|part| part == "floor") {
        return run_bare_broadcaster();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, measure());
}

/// The CPU time that a program took for its deliveries.
#[derive(Clone, Copy)]
struct DeliveryCost {
    messages: usize,
    viewers: usize,
    cpu: f64,
    wall: Duration,
}

impl DeliveryCost {
    fn per_million(&self) -> f64 {
        self.cpu / (self.messages * self.viewers) as f64 * 1e6
    }

    fn per_message(&self) -> f64 {
        self.cpu / self.messages as f64
    }

    /// CPU seconds per million deliveries, without the cost of ingesting the messages.
    fn without_ingest(&self, ingest: &DeliveryCost) -> f64 {
        (self.per_message() - ingest.per_message()) / self.viewers as f64 * 1e6
    }
}

async fn measure() {
    let viewers = std::env::var("FAN_OUT_VIEWERS").unwrap_or_else(|_| "100,1000".to_owned());
    let viewers: Vec<usize> = viewers.split(',').map(|n| n.parse().unwrap()).collect();
    let burst = env_number("FAN_OUT_BURST", 64);
    let deliveries = env_number("FAN_OUT_DELIVERIES", 4_000_000);
    println!("fan-out: {TEXT_BYTES}-byte outputs in bursts of {burst}");
    let ingest = {
        let mut program = ServerUnderTest::start(0).await;
        program.warm_up(burst).await;
        program.run(deliveries / 100, burst).await;
        program.cost
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
        let line = |name: &str, run: &DeliveryCost, telling: f64, ratios: String| {
            println!(
                "{viewers:>7}  {name:<10}  {:>6.3}  {telling:>7.3}  {:>6.2}  {ratios}",
                run.per_million(),
                run.wall.as_secs_f64()
            );
        };
        line("bare loop", &bare, bare.per_million(), String::new());
        let delivery_only = ours.without_ingest(&ingest);
        let ratios = format!(
            "{:>11.2}  {:>15.2}",
            ours.per_million() / bare.per_million(),
            delivery_only / bare.per_million()
        );
        line("pvp server", &ours, delivery_only, ratios);
        runs.push((ours, bare));
    }
    if let [first, .., last] = runs[..] {
        let slope = |of: fn(&(DeliveryCost, DeliveryCost)) -> &DeliveryCost| {
            let (few, many) = (of(&first), of(&last));
            (many.per_message() - few.per_message()) / (many.viewers - few.viewers) as f64 * 1e6
        };
        let (ours, bare) = (slope(|run| &run.0), slope(|run| &run.1));
        println!(
            "one more viewer: pvp server {ours:.3}, bare loop {bare:.3}, ratio {:.2}  (bar: at most 1.25: {})",
            ours / bare,
            support::target_result(ours <= 1.25 * bare)
        );
    }
}

/// Measures both programs with the same number of viewers, in turns, so that other load affects
/// both alike.
async fn side_by_side(
    viewers: usize,
    messages: usize,
    burst: usize,
) -> (DeliveryCost, DeliveryCost) {
    let mut ours = ServerUnderTest::start(viewers).await;
    ours.warm_up(burst).await;
    let mut bare = BareBroadcaster::start(viewers, &ours.sample_frame).await;
    bare.warm_up(burst).await;
    let turn = (messages / TURNS).max(burst);
    for _ in 0..TURNS {
        ours.run(turn, burst).await;
        bare.run(turn, burst).await;
    }
    (ours.cost, bare.cost)
}

impl DeliveryCost {
    fn zero(viewers: usize) -> Self {
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

/// The real server, an agent that streams output, and the viewers.
struct ServerUnderTest {
    /// The server process.
    subject: MeasuredProcess,
    /// Its data directory, removed when dropped.
    _data: tempfile::TempDir,
    /// The client that streams the outputs.
    agent: BenchClient,
    /// The clients that receive them.
    viewer_pool: ViewerPool,
    /// Outputs sent so far.
    sent: usize,
    /// One output as a viewer receives it.
    sample_frame: Vec<u8>,
    /// CPU time and deliveries so far.
    cost: DeliveryCost,
}

impl ServerUnderTest {
    async fn start(viewers: usize) -> Self {
        let data = tempfile::tempdir().unwrap();
        let (subject, _) = MeasuredProcess::server(data.path());
        let address = &subject.address;
        BenchClient::create(address, "wide", viewers + 2).await;
        let more = json!({ "history": 0 });
        let mut agent =
            BenchClient::join(address, "wide", "bot", BenchRole::Agent, more.clone()).await;
        agent.start_read_run("run").await;
        let viewer_pool = ViewerPool::default();
        for number in 0..viewers {
            let name = format!("v{number}");
            let client =
                BenchClient::join(address, "wide", &name, BenchRole::Observer, more.clone()).await;
            let (stream, rest) = client.into_stream();
            viewer_pool.add(stream, rest);
        }
        Self {
            subject,
            _data: data,
            agent,
            viewer_pool,
            sent: 0,
            sample_frame: Vec::new(),
            cost: DeliveryCost::zero(viewers),
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
        self.cost.add(self.sent - before, cpu, begun.elapsed());
    }

    /// Sends a burst of outputs, and waits until every viewer has them.
    async fn burst(&mut self, many: usize) {
        let text = "x".repeat(TEXT_BYTES);
        for _ in 0..many {
            self.sent += 1;
            let id = format!("out-{}", self.sent);
            let output = self.agent.output("run", &id, &text);
            self.agent.queue(&output);
        }
        self.agent.flush().await.unwrap();
        // The agent is a participant too: it receives its own outputs, among the answers.
        let mut own = 0;
        while own < many {
            let frame_bytes = self.agent.next().await.unwrap();
            if frame_bytes.starts_with(OUTPUT_PREFIX) {
                own += 1;
                self.sample_frame.clear();
                self.sample_frame.extend_from_slice(frame_bytes);
            }
        }
        self.viewer_pool.wait_until_all_received(self.sent).await;
    }
}

/// The bare loop with its viewers; its frames are copies of one from the server.
struct BareBroadcaster {
    subject: MeasuredProcess,
    control: TcpStream,
    viewer_pool: ViewerPool,
    sent: usize,
    cost: DeliveryCost,
}

impl BareBroadcaster {
    async fn start(viewers: usize, frame_bytes: &[u8]) -> Self {
        let subject = MeasuredProcess::respawn_self("floor", &[]);
        let mut control = TcpStream::connect(&subject.address).await.unwrap();
        control.set_nodelay(true).unwrap();
        control.write_u32(frame_bytes.len() as u32).await.unwrap();
        control.write_all(frame_bytes).await.unwrap();
        let viewer_pool = ViewerPool::default();
        for _ in 0..viewers {
            let stream = TcpStream::connect(&subject.address).await.unwrap();
            viewer_pool.add(stream, Vec::new());
        }
        Self {
            subject,
            control,
            viewer_pool,
            sent: 0,
            cost: DeliveryCost::zero(viewers),
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
        self.cost.add(self.sent - before, cpu, begun.elapsed());
    }

    async fn burst(&mut self, many: usize) {
        self.sent += many;
        self.control.write_u32(many as u32).await.unwrap();
        self.viewer_pool.wait_until_all_received(self.sent).await;
    }
}

/// All viewers, and the progress of the slowest.
#[derive(Default)]
struct ViewerPool {
    counts: Rc<RefCell<ViewerCounts>>,
    progress: Rc<Notify>,
}

#[derive(Default)]
struct ViewerCounts {
    outputs: Vec<usize>,
    /// The count to wait for, and how many viewers have not reached it.
    goal: usize,
    missing: usize,
}

impl ViewerPool {
    fn add(&self, stream: TcpStream, rest: Vec<u8>) {
        let index = {
            let mut counts = self.counts.borrow_mut();
            counts.outputs.push(0);
            counts.outputs.len() - 1
        };
        tokio::task::spawn_local(count_outputs(
            stream,
            rest,
            index,
            self.counts.clone(),
            self.progress.clone(),
        ));
    }

    async fn wait_until_all_received(&self, goal: usize) {
        {
            let mut counts = self.counts.borrow_mut();
            counts.goal = goal;
            counts.missing = counts.outputs.iter().filter(|count| **count < goal).count();
            if counts.missing == 0 {
                return;
            }
        }
        self.progress.notified().await;
    }
}

/// Counts the outputs that one viewer receives, parsing no more than the frame lengths.
async fn count_outputs(
    stream: TcpStream,
    mut rest: Vec<u8>,
    index: usize,
    counts: Rc<RefCell<ViewerCounts>>,
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
                found += usize::from(bytes[frame.header..].starts_with(OUTPUT_PREFIX));
                bytes = &bytes[frame.header + frame.payload..];
            }
            rest.clear();
            rest.extend_from_slice(bytes);
            Some(found)
        });
        let Some(found) = found else { return };
        let mut counts = counts.borrow_mut();
        let before = counts.outputs[index];
        counts.outputs[index] += found;
        if before < counts.goal && before + found >= counts.goal {
            counts.missing -= 1;
            if counts.missing == 0 {
                progress.notify_one();
            }
        }
    }
}

/// The bare loop: one task per connection, encoded frames, up to 64 of them in a vectored write.
fn run_bare_broadcaster() {
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
