//! What running a command below a reaper, and holding it to reading, adds to starting it.
//!
//! Settings: SPAWN_TIMES=200

#![allow(clippy::print_stdout, reason = "it prints its figures")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench that cannot go on ends"
)]

mod kit;

use std::path::Path;
use std::time::{Duration, Instant};

use kit::{Latencies, met, setting};
use pvp_agent::confine::{Confinement, Share};
use pvp_agent::reaper::Errand;
use pvp_agent::run::{self, Bounds, Overflow, Run};
use pvp_protocol::Profile;
use tokio::process::Command;
use tokio::sync::mpsc;

const SHELL: &str = "/bin/bash";
const WORDS: [&str; 4] = ["--noprofile", "--norc", "-c", "true"];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let times = setting("SPAWN_TIMES", 200);
    let directory = tempfile::tempdir().unwrap();
    let [mut plain, mut reaped, mut read] = [(); 3].map(|()| Latencies::default());
    // In turns, so that a busy machine is busy for all of them.
    for _ in 0..times {
        plain.add(alone().await);
        reaped.add(below_a_reaper(directory.path(), Profile::None).await);
        read.add(below_a_reaper(directory.path(), Profile::Read).await);
    }
    println!("`bash -c true`, {times} times           p50 ms   p95 ms   over plain   over none");
    let (bare, none, held) = (median(&mut plain), median(&mut reaped), median(&mut read));
    report("plain", &mut plain, "", "");
    let over = format!("{:.2}", none - bare);
    report("reaper, profile none", &mut reaped, &over, "");
    let (over, alone) = (format!("{:.2}", held - bare), format!("{:.2}", held - none));
    report("reaper, profile read", &mut read, &over, &alone);
    println!(
        "bar: reaper and sandbox ≤ 6 ms over plain: {}",
        met(held - bare <= 6.0)
    );
    println!("bar: sandbox alone ≤ 1 ms: {}", met(held - none <= 1.0));
}

fn median(latencies: &mut Latencies) -> f64 {
    latencies.percentile(50.0)
}

fn report(name: &str, latencies: &mut Latencies, over_plain: &str, over_none: &str) {
    println!(
        "{name:<34} {:>8.2} {:>8.2} {over_plain:>12} {over_none:>11}",
        latencies.percentile(50.0),
        latencies.percentile(95.0),
    );
}

async fn alone() -> Duration {
    let begun = Instant::now();
    let output = Command::new(SHELL).args(WORDS).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    begun.elapsed()
}

async fn below_a_reaper(directory: &Path, profile: Profile) -> Duration {
    let errand = Errand {
        program: SHELL.to_owned(),
        arguments: WORDS.map(str::to_owned).into(),
        directory: directory.to_owned(),
        environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        confinement: Confinement {
            profile,
            workspace: directory.to_owned(),
            temporary: directory.to_owned(),
            share: Share::default(),
        },
        grace_ms: 100,
        cgroup: true,
        terminal: None,
    };
    let bounds = Bounds {
        timeout: None,
        output_bytes: 1024,
        on_overflow: Overflow::Kill,
    };
    let begun = Instant::now();
    let program = Path::new(env!("CARGO_BIN_EXE_pvp"));
    let (_stopper, asked) = run::stopping();
    let run = Run::start(program, &errand, asked).await.unwrap();
    let (sender, _pieces) = mpsc::channel(16);
    let finish = run
        .finish(bounds, &std::collections::BTreeMap::new(), sender)
        .await
        .unwrap();
    assert_eq!(finish.code, Some(0), "{finish:?}");
    begun.elapsed()
}
