//! Runs commands that were assessed as reads and checks that nothing changed.

#![expect(
    clippy::disallowed_methods,
    reason = "this test looks at files and at the clock"
)]

use std::time::Instant;

use crate::scratch::{HANG_TIMEOUT, ScratchProject, changed_paths};
use crate::skip::skip;
use crate::support::{corpus_cases, env_number, explain};
use pvp_protocol::{Category, SandboxProfile};

#[test]
fn reads_change_nothing_and_leave_no_process() {
    let scratch = ScratchProject::new();
    let mut before = scratch.file_states();
    let (mut ran, mut missing) = (0, Vec::new());
    for line in runnable_reads() {
        if !scratch.run(&line) {
            missing.push(line);
            continue;
        }
        ran += 1;
        let after = scratch.file_states();
        assert_eq!(
            changed_paths(&before, &after),
            Vec::<String>::new(),
            "after {line:?}"
        );
        scratch.assert_no_processes_left(&line);
        before = after;
    }
    println!("{ran} commands ran and changed nothing");
    if !missing.is_empty() {
        println!("not installed: {missing:?}");
        skip("some programs are not installed");
    }
    assert!(ran >= 200, "only {ran} commands could be run here");
}

#[test]
fn a_command_that_writes_would_be_noticed() {
    let scratch = ScratchProject::new();
    let before = scratch.file_states();
    assert!(scratch.run("sort -o a.txt b.txt"));
    assert_ne!(
        changed_paths(&before, &scratch.file_states()),
        Vec::<String>::new()
    );
    assert!(scratch.run("sleep 60 >/dev/null 2>&1 &"));
    let begun = Instant::now();
    // The process has no environment while `sleep` replaces it.
    while scratch.remaining_processes().is_empty() {
        assert!(begun.elapsed() < HANG_TIMEOUT, "it is not noticed");
    }
    scratch.kill_remaining_processes();
}

#[test]
fn no_line_that_is_a_read_runs_a_hidden_command() {
    let scratch = ScratchProject::new();
    let canary = scratch.directory.path().join("tmp/canary");
    let stub = format!("#!/bin/sh\n: > {}\n", canary.display());
    scratch.install("canary", &stub);
    assert!(scratch.run("canary"));
    assert!(canary.exists(), "the canary does not sing");
    let mut rng_state = env_number("PVP_SEED").unwrap_or(42);
    let mut ran = 0;
    for _ in 0..60_000 {
        let line = random_hidden_line(&mut rng_state);
        if explain(&line).assessment.category == Category::Read {
            std::fs::remove_file(&canary).ok();
            scratch.run(&line);
            assert!(!canary.exists(), "{line:?} ran a hidden command");
            ran += 1;
        }
        if ran == 400 {
            break;
        }
    }
    println!("{ran} random lines ran no hidden command");
    assert!(ran >= 200, "only {ran} random lines were reads");
}

/// A blocked command must be found wherever a shell would run it. The program is a stub, and the
/// real one could do nothing either, because there is no such device.
#[test]
fn every_line_that_runs_a_blocked_command_is_blocked() {
    let scratch = ScratchProject::new();
    let canary = scratch.directory.path().join("tmp/canary");
    let stub = format!(
        "#!/bin/sh\n[ \"$(realpath -m \"$1\")\" = /dev/none ] && : > {}\n",
        canary.display()
    );
    scratch.install("mkfs.ext4", &stub);
    assert_eq!(
        explain("mkfs.ext4 /dev/none").assessment.category,
        Category::Blocked
    );
    assert!(scratch.run("mkfs.ext4 /dev/none"));
    assert!(canary.exists(), "the canary does not sing");
    let mut rng_state = env_number("PVP_SEED").unwrap_or(7);
    let rounds = env_number("PVP_ROUNDS").unwrap_or(800);
    let (mut blocked, mut milder) = (0, 0);
    while milder < rounds {
        let line = random_blocked_line(&mut rng_state);
        if explain(&line).assessment.category == Category::Blocked {
            blocked += 1;
            continue;
        }
        std::fs::remove_file(&canary).ok();
        scratch.run(&line);
        scratch.kill_remaining_processes();
        assert!(!canary.exists(), "{line:?} runs what is blocked");
        milder += 1;
    }
    println!("{blocked} blocked, {milder} milder");
    assert!(blocked > 0, "nothing is blocked");
}

/// Fragments of lines around a blocked command. None of them computes a value, so everything that a
/// line runs is written in it.
const BLOCKED_FRAGMENTS: &[&str] = &[
    "mk''fs.ext4 /dev/none",
    "mk''fs.ext4 /dev/none",
    "mk''fs.ext4 /dev/none\n",
    "mk''fs.ext4",
    " /dev/none",
    "\\mk''fs.ext4 /dev/none",
    "mk\\\nfs.ext4 /dev/none",
    "'mkfs.ext4' /dev/none",
    "mk\"fs\".ext4 /dev/none",
    "cd /dev && mk''fs.ext4 none",
    "cd /dev; mk''fs.ext4 none",
    "cd /dev",
    "mk''fs.ext4 none",
    "\\\n",
    "\n",
    "\n\\",
    "\\",
    " ",
    " ",
    "\t",
    ";",
    "; ",
    " && ",
    " || ",
    " | ",
    " & ",
    "|&",
    "# ",
    " # x\n",
    "#\\\n",
    "'",
    "\"",
    "a",
    "ls",
    "ls | true | cat",
    " | cat\n",
    "true",
    "false",
    "-x",
    "! ",
    "( ",
    " )",
    "{ ",
    "; }",
    " >/dev/null",
    " 2>&1",
    " </dev/null",
    " <<E\nx\nE\n",
    " <<'E'\nx\\\nE\n",
    " <<< a",
    "if true; then ",
    "; fi",
    "; else ",
    "for f in 1; do ",
    "while true; do ",
    "; break; done",
    "; done",
    "case a in a) ",
    ";; esac",
    "f() { ",
    "; }; f",
    "A=1 ",
    "A=1\n",
    "a[0]=1 ",
    "B=(1 2)\n",
    "time ",
    "export A\n",
    "[ a ]",
    "[[ a ]]",
    "(( 1 ))",
    "((1))\n",
    "$((1))",
    "$'a'",
    "é",
    "\r",
    "*",
    "~",
    "{a,b}",
    "coproc ",
    "exec ",
    "command ",
];

fn random_blocked_line(rng_state: &mut u64) -> String {
    let mut line = String::new();
    for _ in 0..2 + random_below(rng_state, 8) {
        line.push_str(BLOCKED_FRAGMENTS[random_below(rng_state, BLOCKED_FRAGMENTS.len())]);
    }
    line
}

/// Fragments that mean something to shells, around a command that must not run.
const HIDDEN_FRAGMENTS: &[&str] = &[
    "a",
    "canary",
    " canary ",
    "$(canary)",
    "\"$\\\n(canary)\"",
    "$\\\n(canary)",
    "$\\\n",
    "(canary)",
    "\"$(cat <<E\nE canary)\nE\n)\"",
    "$(cat <<'E'\n",
    "\nE canary)\n",
    "<(canary)",
    "command cd ..",
    "`canary`",
    "\"",
    "'",
    "\\",
    "$",
    "{",
    "}",
    "(",
    ")",
    "|",
    "||",
    "&&",
    ";",
    "&",
    "\n",
    " ",
    " ",
    " ",
    "<",
    ">",
    "<<",
    "<<<",
    "E",
    "#",
    "!",
    "~",
    "*",
    "?",
    "[a]",
    "${x}",
    "$x",
    "${x:=",
    "${x[",
    "]}",
    "$((",
    "))",
    "$'",
    "\\x60",
    "$\"",
    "[[",
    "]]",
    " -v ",
    "'a[$(canary)]'",
    " -eq ",
    "for f in ",
    " do ",
    "done",
    "if ",
    "then ",
    "fi",
    "case x in ",
    "esac",
    "while ",
    "time ",
    "function ",
    "canary()",
    "=",
    "x=",
    "PATH=.. ",
    " -e ",
    " -- ",
    "2>&1",
    "&>",
    "<(",
    ">(",
    "|&",
    "coproc ",
    "\t",
    "{a,b}",
    "@(",
    "eval ",
    "command ",
    "-v ",
    "\"`canary`\"",
    "\"${x:=`canary`}\"",
    "\"$(canary)\"",
    "'$(canary)'",
    "\\$(canary)",
    "\\`canary\\`",
    "\\\n",
    "%n",
    " 2>/dev/null ",
    " >/dev/null",
    "| cat | cat",
    "\ncat a.txt",
];

const LINE_STARTS: &[&str] = &[
    "echo ",
    "cat ",
    "ls ",
    "test ",
    "[ ",
    "printf ",
    "true ",
    "grep a ",
    "sort ",
    "cd src && ",
    ": ",
    "wc <<< ",
    "sed ",
    "awk ",
    "find ",
    "env ",
    "type ",
    "! echo ",
    "(echo ",
    "{ echo ",
    "LC_ALL=",
];

fn random_hidden_line(rng_state: &mut u64) -> String {
    let mut line = LINE_STARTS[random_below(rng_state, LINE_STARTS.len())].to_owned();
    for _ in 0..1 + random_below(rng_state, 6) {
        line.push_str(HIDDEN_FRAGMENTS[random_below(rng_state, HIDDEN_FRAGMENTS.len())]);
    }
    line
}

fn random_below(rng_state: &mut u64, count: usize) -> usize {
    *rng_state = rng_state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    (*rng_state >> 33) as usize % count
}

/// Every corpus line that is assessed as a read and needs no daemon, network or keyboard.
fn runnable_reads() -> Vec<String> {
    let is_read = |line: &str| {
        let assessment = explain(line).assessment;
        assessment.category == Category::Read && assessment.profile == SandboxProfile::Read
    };
    let slow = [
        "lsof",
        "sleep",
        "journalctl -f",
        "apt",
        "npm",
        "gem",
        "pip",
        "brew",
        "dmesg",
    ];
    corpus_cases()
        .into_iter()
        .map(|case| case.line)
        .filter(|line| is_read(line) && !slow.iter().any(|word| line.starts_with(word)))
        .collect()
}
