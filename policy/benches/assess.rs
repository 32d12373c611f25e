//! Measures how long an assessment takes, over the corpus and for hostile input, and its memory use
//! over a million lines.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures time and its own memory"
)]
#![expect(clippy::print_stdout, reason = "the numbers are the result")]

#[path = "../tests/policy/support.rs"]
mod support;

use std::time::{Duration, Instant};

use pvp_policy::{Policy, Workspace};
use support::{HOSTILE_FRAGMENTS, corpus_cases, shell};

fn main() {
    let policy = Policy::built_in();
    let workspace = Workspace {
        directory: Some("/work/app".to_owned()),
        ..Workspace::default()
    };
    let time = |line: &str| {
        let action = shell(line);
        let start = Instant::now();
        std::hint::black_box(policy.assess(&action, &workspace));
        start.elapsed()
    };
    let lines: Vec<String> = corpus_cases().into_iter().map(|case| case.line).collect();
    let start = Instant::now();
    policy.compile_patterns();
    println!("compiling all patterns: {:?}", start.elapsed());
    let mut times: Vec<Duration> = Vec::new();
    let mut slowest = Vec::new();
    for line in &lines {
        let rounds: Vec<Duration> = (0..20).map(|_| time(line)).collect();
        slowest.push((rounds.iter().min().copied().unwrap_or_default(), line));
        times.extend(rounds);
    }
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "corpus of {} lines: p50 {:?}, p99 {:?}",
        lines.len(),
        at(0.5),
        at(0.99)
    );
    println!("slowest line at its best of 20: {:?}", slowest.iter().max());
    let mut worst: Vec<(Duration, String)> = Vec::new();
    for piece in HOSTILE_FRAGMENTS {
        for length in [1024, 8 * 1024, 64 * 1024] {
            let line = piece.repeat(length / piece.len());
            let once = time(&line);
            if once > Duration::from_millis(200) {
                println!("hostile {once:?} for {length} bytes of {piece:?}");
                continue;
            }
            let best = (0..3).map(|_| time(&line)).min().unwrap_or_default();
            worst.push((best, format!("{length} bytes of {piece:?}")));
        }
    }
    worst.sort();
    for (time, what) in worst.iter().rev().take(8) {
        println!("hostile {time:?} for {what}");
    }
    measure_memory(&policy, &workspace, &lines);
}

/// Resident memory must not grow with the number of assessments.
fn measure_memory(policy: &Policy, workspace: &Workspace, lines: &[String]) {
    for round in 1..=4 {
        for index in 0..250_000 {
            let action = shell(&lines[index % lines.len()]);
            std::hint::black_box(policy.assess(&action, workspace));
        }
        println!(
            "{} k verdicts: {} KiB resident",
            round * 250,
            resident_kib()
        );
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}
