//! Measures the cost of a frame and the latency of a key while a lot of output streams.
//!
//! Settings: DRAW_LINES=50000 DRAW_SECONDS=5

#![allow(clippy::print_stdout, reason = "it prints its figures")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark that cannot go on should panic"
)]

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent};
use pvp_protocol::{Limits, SessionConfig, Timestamp, parse_server_message};
use pvp_tui::OffscreenApp;
use pvp_tui::config::TuiConfig;
use serde_json::{Value, json};

/// The most frames per second that the program draws.
const FRAMES_PER_SECOND: usize = 33;

/// Bytes of output that an executor sends at a time.
const OUTPUT_CHUNK_BYTES: usize = 32 * 1024;

fn main() {
    let lines = env_setting("DRAW_LINES", 50_000);
    let seconds = env_setting("DRAW_SECONDS", 5);
    println!("{:<44} {:>9} {:>9} {:>9}", "", "p50 ms", "p99 ms", "max ms");
    let mut bench = DrawBench::new(120, 40);
    bench.fill_session();
    report("a frame of a full session, 120×40", bench.draw_frames(500));
    let (frames, keys, busy) = bench.stream_output(lines, seconds);
    report(&format!("a frame while {lines} lines/s stream"), frames);
    report("a key and its frame meanwhile", keys);
    let share = busy.as_secs_f64() / seconds as f64;
    let met = if share <= 0.5 { "yes" } else { "no" };
    println!("of one core, folding and drawing {lines} lines/s: {share:.3}   bar ≤ 0.5: {met}");
}

fn env_setting(name: &str, default: usize) -> usize {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    println!(
        "{name:<44} {:>9.3} {:>9.3} {:>9.3}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

struct DrawBench {
    screen: OffscreenApp,
    now: Timestamp,
    seq: u64,
}

impl DrawBench {
    fn new(columns: u16, rows: u16) -> Self {
        let now = Timestamp::parse("2026-01-01T12:00:00.000Z").unwrap();
        let screen = OffscreenApp::new(TuiConfig::default(), columns, rows, now);
        let mut bench = Self {
            screen,
            now,
            seq: 0,
        };
        bench.deliver(None, "system", "session.welcome", welcome());
        bench
    }

    fn deliver(&mut self, seq: Option<u64>, sender: &str, kind: &str, payload: Value) {
        let mut envelope = json!({
            "v": 1, "id": format!("m{}", self.seq), "ts": self.now.to_string(), "session": "bench",
            "sender": sender, "type": kind, "payload": payload,
        });
        if let Some(seq) = seq {
            envelope["seq"] = seq.into();
        }
        let read = parse_server_message(&envelope.to_string(), &Limits::default());
        let envelope = read.map_err(|error| error.refusal).unwrap().unwrap();
        self.screen.receive(self.now, Box::new(envelope));
    }

    fn deliver_logged(&mut self, sender: &str, kind: &str, payload: Value) -> String {
        self.seq += 1;
        self.deliver(Some(self.seq), sender, kind, payload);
        format!("m{}", self.seq)
    }

    /// Fills the timeline as far as it is kept, and starts a command.
    fn fill_session(&mut self) {
        for number in 0..2_000 {
            let content = format!(
                "prompt {number}: {}",
                "please do something about it. ".repeat(8)
            );
            let prompt = json!({ "content": content, "target_agent": "bot", "contributors": ["ann"], "context_keys": [] });
            self.deliver_logged("ann", "prompt.submit", prompt);
        }
        self.start_command();
    }

    /// Starts a command; returns its id.
    fn start_command(&mut self) -> String {
        let digest = "0".repeat(64);
        let assessment = json!({
            "category": "read", "risk": "safe", "rule": "r", "reason": "r", "profile": "read",
            "digest": digest, "policy": "p",
        });
        let propose = json!({
            "tool_name": "shell", "arguments": { "full_command": "cat everything" }, "agent": "bot",
            "risk_level": "safe", "description": "", "requires_approval": false,
            "category": "shell_execute", "assessment": assessment,
        });
        let id = self.deliver_logged("bot", "tool.propose", propose);
        let grant = json!({
            "id": "grant", "executor": "bot", "digest": digest, "profile": "read",
            "action": { "command": { "form": "shell", "line": "cat everything" } },
            "limits": { "timeout_ms": 1, "output_bytes": 1 }, "expires_at": self.now, "cleared_by": "read",
        });
        let execute = json!({ "tool_proposal": id, "approved_by": [], "grant": grant });
        self.deliver_logged("system", "tool.execute", execute);
        id
    }

    fn draw_frame(&mut self) -> Duration {
        let begun = Instant::now();
        self.screen.draw();
        begun.elapsed()
    }

    fn draw_frames(&mut self, count: usize) -> Vec<Duration> {
        (0..count).map(|_| self.draw_frame()).collect()
    }

    /// Streams `seconds` of output as fast as possible; returns the times of frames, of keys
    /// with their frames, and of everything.
    fn stream_output(
        &mut self,
        lines: usize,
        seconds: usize,
    ) -> (Vec<Duration>, Vec<Duration>, Duration) {
        let id = self.start_command();
        let line = "\u{1b}[32mok\u{1b}[0m some test passed in 0.1 s\n";
        let piece = line.repeat(OUTPUT_CHUNK_BYTES / line.len());
        let pieces = (lines * line.len()).div_ceil(piece.len());
        let (mut frames, mut keys) = (Vec::new(), Vec::new());
        let mut busy = Duration::ZERO;
        for _ in 0..seconds {
            let mut delivered = 0;
            for frame in 1..=FRAMES_PER_SECOND {
                while delivered * FRAMES_PER_SECOND < pieces * frame && delivered < pieces {
                    let output = json!({ "tool_proposal": id, "stream": "stdout", "text": piece, "complete": false });
                    let begun = Instant::now();
                    self.deliver_logged("bot", "tool.output", output);
                    busy += begun.elapsed();
                    delivered += 1;
                }
                let begun = Instant::now();
                self.screen
                    .press_key(self.now, KeyEvent::from(KeyCode::Char('x')));
                frames.push(self.draw_frame());
                keys.push(begun.elapsed());
                busy += begun.elapsed();
            }
        }
        assert!(self.screen.screen_text().contains("some test passed"));
        (frames, keys, busy)
    }
}

fn welcome() -> Value {
    let person = |id: &str, kind: &str, roles: &[&str]| {
        json!({
            "id": id, "name": id, "type": kind, "roles": roles, "transport": "websocket",
            "presence": "active",
        })
    };
    json!({
        "participant": "ann", "roles": ["admin"], "capabilities": pvp_protocol::Role::Admin.capabilities(), "config": SessionConfig::default(),
        "head": 0, "people": [person("ann", "human", &["admin", "driver"]), person("bot", "agent", &[])],
        "gates": [], "running": [], "limits": Limits::default(), "server": "bench",
        "extensions": {
            "supports_shell_exec": true, "supports_amend": true, "supports_allow_rules": true,
            "supports_resume": true, "supports_output_read": true, "supports_forks": false,
        },
    })
}
