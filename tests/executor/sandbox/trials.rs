//! Commands that are tried: they damage nothing, show no secret, and every denial is noticed, however
//! well it is hidden. Those that need no more than reading end as they would without the sandbox.

use std::time::Duration;

use pvp_agent::reaper::SpawnSpec;
use pvp_agent::run::{FinishedRun, OverflowAction, RunError, RunLimits};
use pvp_agent::sandbox::{ResourceLimits, TrialLimits, can_count_denials};
use pvp_protocol::SandboxProfile;

use super::attacks;
use super::fixture::{self, CapturedOutput, PLANTED_SECRET, RunAsUser, SandboxFixture};
use crate::support::skip::skip;

const MIB: u64 = 1024 * 1024;

/// Attempts that are no denied system call: a program that is not installed or does not get its
/// rights, a limit that cannot be raised, paths that do not exist or that this user could not read
/// anyway, names that are only looked up, and the call that every program tries before an older one.
const UNCOUNTED: &[&str] = &[
    "reading through init's root",
    "the machine's memory",
    "the victim's directory",
    "giving oneself capabilities",
    "ping",
    "sudo",
    "a program that changes the user",
    "a core",
    "a user namespace by clone3",
];

fn trial_spec(fixture: &SandboxFixture, line: &str) -> SpawnSpec {
    let mut spawn_spec = fixture.spawn_spec(line, SandboxProfile::Read);
    let sandbox = &mut spawn_spec.sandbox;
    sandbox.private = [".env", ".git", "keys"]
        .map(|name| fixture.path("work").join(name))
        .into();
    sandbox.limits = ResourceLimits {
        cpu_seconds: Some(10),
        memory_bytes: Some(1024 * MIB),
        file_bytes: Some(16 * MIB),
        ..ResourceLimits::default()
    };
    sandbox.trial = Some(TrialLimits {
        memory_bytes: 512 * MIB,
        processes: 300,
    });
    let variable = ("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
    spawn_spec.environment.push(variable);
    spawn_spec
}

async fn try_line(
    fixture: &SandboxFixture,
    line: &str,
) -> (Result<FinishedRun, RunError>, CapturedOutput) {
    let bounds = RunLimits {
        timeout: Some(Duration::from_secs(3)),
        output_bytes: MIB,
        on_overflow: OverflowAction::Kill,
    };
    let spawn_spec = trial_spec(fixture, line);
    let tried = fixture
        .run_with_limits(fixture.reaper_program(), &spawn_spec, bounds)
        .await;
    fixture.clear_temp_dir();
    tried
}

/// Why the executor would discard a trial; `None` if it would tell its output.
fn discarded(finished: &Result<FinishedRun, RunError>) -> Option<String> {
    match finished {
        Err(error) => Some(error.to_string()),
        Ok(finished) => {
            let stopped = finished.stop_reason.as_ref().map(|why| format!("{why:?}"));
            let left = (finished.left_behind > 0).then(|| "left behind".to_owned());
            finished.denied.clone().or(stopped).or(left)
        }
    }
}

fn fixture_with_secrets(user: RunAsUser) -> SandboxFixture {
    let fixture = SandboxFixture::new(user);
    let work = fixture.path("work");
    std::fs::create_dir(work.join("keys")).unwrap();
    for secret in [".env", "keys/id_rsa"] {
        std::fs::write(work.join(secret), PLANTED_SECRET).unwrap();
    }
    fixture
}

/// Runs commands as trials; returns what was wrong: effects, secrets, and denials that nobody
/// noticed.
async fn failures_of(user: RunAsUser, lines: &[(String, String)]) -> Vec<String> {
    let fixture = fixture_with_secrets(user);
    let before = fixture.snapshot();
    let mut failures = Vec::new();
    for (name, line) in lines {
        let (finished, output) = try_line(&fixture, line).await;
        let discarded = discarded(&finished);
        let shown = format!("{}{}", output.out, output.err);
        if discarded.is_none() && shown.contains(PLANTED_SECRET) {
            failures.push(format!("{name}: shows a secret"));
        }
        if discarded.is_none() && !UNCOUNTED.contains(&name.as_str()) {
            let code = finished.map(|finished| finished.exit_code);
            failures.push(format!("{name}: not noticed: {code:?} {output:?}"));
        }
        if output.out.contains("DAMAGED") {
            failures.push(format!("{name}: {output:?}"));
        }
    }
    failures.extend(before.diff(&fixture.snapshot()));
    failures.extend(
        fixture
            .reached_listeners()
            .iter()
            .map(|it| format!("{it} was reached")),
    );
    failures
}

fn can_try(user: RunAsUser) -> bool {
    if !can_count_denials() {
        skip("this machine cannot count denials");
        return false;
    }
    user.or_skip()
}

async fn no_damage_is_unnoticed(user: RunAsUser) {
    if !can_try(user) {
        return;
    }
    let known = attacks::all_attacks().into_iter();
    let mut lines: Vec<_> = known
        .map(|attack| (attack.name, format!("{}\necho done", attack.script)))
        .collect();
    lines.extend(MASKED.iter().map(|line| {
        let hidden = format!("{{ {line}\n}} 2>/dev/null; echo done");
        ((*line).to_owned(), hidden)
    }));
    lines.extend(
        UNBOUNDED
            .iter()
            .map(|line| ((*line).to_owned(), (*line).to_owned())),
    );
    assert!(lines.len() >= 200, "{} commands", lines.len());
    let failures = failures_of(user, &lines).await;
    let (count, many) = (lines.len(), failures.len());
    fixture::report(&format!(
        "{user:?}: {count} commands tried, {many} failures"
    ));
    assert!(failures.is_empty(), "as {user:?}: {}", failures.join("\n"));
}

#[tokio::test]
async fn no_damage_is_unnoticed_as_root() {
    no_damage_is_unnoticed(RunAsUser::Root).await;
}

#[tokio::test]
async fn no_damage_is_unnoticed_as_an_ordinary_user() {
    no_damage_is_unnoticed(RunAsUser::Nobody).await;
}

/// Whether the machine has the programs of a command that not every machine has.
async fn is_installed(fixture: &SandboxFixture, line: &str) -> bool {
    for tool in ["python3", "perl", "node", "jq", "gcc"] {
        if line.contains(&format!("{tool} ")) {
            let find = format!("command -v {tool}");
            let (found, _) = fixture.run_line(&find, SandboxProfile::None).await;
            if found.exit_code != Some(0) {
                return false;
            }
        }
    }
    true
}

async fn what_only_reads_is_told(user: RunAsUser) {
    if !can_try(user) {
        return;
    }
    let fixture = fixture_with_secrets(user);
    let before = fixture.snapshot();
    let mut failures = Vec::new();
    for (line, printed) in PURE {
        if !is_installed(&fixture, line).await {
            skip("some programs are not installed");
            continue;
        }
        let (finished, output) = try_line(&fixture, line).await;
        if let Some(why) = discarded(&finished) {
            failures.push(format!("{line}: discarded: {why}"));
        } else if !output.out.contains(printed) {
            failures.push(format!("{line}: {output:?}"));
        }
    }
    failures.extend(before.diff(&fixture.snapshot()));
    assert!(failures.is_empty(), "as {user:?}: {}", failures.join("\n"));
}

#[tokio::test]
async fn what_only_reads_is_told_as_root() {
    what_only_reads_is_told(RunAsUser::Root).await;
}

#[tokio::test]
async fn what_only_reads_is_told_as_an_ordinary_user() {
    what_only_reads_is_told(RunAsUser::Nobody).await;
}

/// The card names what was denied.
#[tokio::test]
async fn a_denial_is_named() {
    let user = RunAsUser::current();
    if !can_try(user) {
        return;
    }
    let fixture = fixture_with_secrets(user);
    for (line, expected) in [
        ("touch z", "write z"),
        ("rm keep", "delete keep"),
        ("mkdir d", "create d"),
        ("cat .env", "read .env"),
        ("mv keep other", "rename other"),
        ("kill $VICTIM", "signal to a process"),
        ("exec 3<>/dev/tcp/127.0.0.1/$TCP", "connect"),
        ("chmod 777 keep", "change of mode or owner"),
        ("printf x > $'a\\nb'", "write a\\nb"),
    ] {
        let (finished, _) = try_line(&fixture, line).await;
        assert_eq!(
            finished.unwrap().denied.as_deref(),
            Some(expected),
            "{line}"
        );
    }
}

/// Without a reaper that watches, no call with an effect is made.
#[tokio::test]
async fn the_filter_alone_refuses_everything() {
    let user = RunAsUser::current();
    if !can_try(user) {
        return;
    }
    let fixture = fixture_with_secrets(user);
    let mut spawn_spec = trial_spec(&fixture, "echo done");
    spawn_spec.sandbox.profile = SandboxProfile::None;
    let (finished, output) = fixture.run(&spawn_spec).await;
    assert_ne!(finished.unwrap().exit_code, Some(0), "{output:?}");
    assert!(
        output.err.contains("only in the profile `read`"),
        "{output:?}"
    );
}

/// Whatever these print, and however they end, somebody is asked.
const MASKED: &[&str] = &[
    // Writing, by every program at hand.
    "touch z",
    "touch z || true",
    "(touch z) && true",
    "touch z & wait",
    "echo x > z",
    "echo x >> keep",
    "echo x | tee z >/dev/null",
    "echo x | dd of=z",
    "cp keep other",
    "install keep other",
    "ln keep other",
    "ln -s keep other",
    "mkdir d",
    "mkdir -p d/e",
    "mknod p p",
    "mkfifo p",
    "rm keep",
    "rm -f keep",
    "rmdir empty; rm -r .",
    "mv keep other",
    "truncate -s 0 keep",
    "chmod 600 keep",
    "chown 1 keep",
    "touch -d yesterday keep",
    "sed -i s/a/b/ keep",
    "sort -o keep keep",
    "split -b 1 keep part",
    "tar cf z.tar keep",
    "find . -name keep -delete",
    "find . -name keep -exec rm {} +",
    "echo keep | xargs rm",
    "cat keep > $OUT/z",
    "touch $OUT/z",
    "touch $HOME/pvp-trial",
    "touch /pvp-trial",
    "touch /tmp/pvp-trial",
    "touch /dev/shm/pvp-trial",
    "touch /var/tmp/pvp-trial",
    "echo 1 > /proc/self/oom_score_adj",
    "echo 1 > /proc/sys/kernel/sysrq",
    "bash -c 'touch z' || true",
    "bash <<'E'\ntouch z\nE",
    "sh -c 'touch z; true'",
    "eval 'touch z'",
    "f() { touch z; }; f",
    "for f in a b; do touch $f; done",
    "x=$(touch z)",
    "cat <(touch z)",
    "trap 'touch z' EXIT",
    "command touch z",
    "env touch z",
    "nice touch z",
    "timeout 2 touch z",
    "setsid touch z; sleep 0.2",
    "nohup touch z",
    "exec -a ls touch z",
    "cd /; touch $WS/z",
    "cd $TMPDIR && touch $WS/z",
    "touch $TMPDIR/../work/z",
    "ln -s $WS/z $TMPDIR/l; echo x > $TMPDIR/l",
    "ln -s $WS $TMPDIR/d; touch $TMPDIR/d/z",
    "ln -s $WS $TMPDIR/d; mkdir $TMPDIR/d/z",
    "ln keep $TMPDIR/l",
    "mv keep $TMPDIR/l",
    "awk 'BEGIN { print 1 > \"z\" }'",
    "awk 'BEGIN { system(\"touch z\") }'",
    "python3 -c 'open(\"z\", \"w\")'",
    "python3 -c 'open(\"keep\", \"a\").write(\"x\")'",
    "python3 -c 'open(\"keep\", \"r+\").write(\"x\")'",
    "python3 -c '\ntry: open(\"z\", \"w\")\nexcept OSError: pass'",
    "python3 -c 'import os\ntry: os.remove(\"keep\")\nexcept OSError: pass'",
    "python3 -c 'import os; os.unlink(\"keep\")'",
    "python3 -c 'import os; os.rename(\"keep\", \"other\")'",
    "python3 -c 'import os; os.replace(\"keep\", \"other\")'",
    "python3 -c 'import os; os.mkdir(\"d\")'",
    "python3 -c 'import os; os.makedirs(\"d/e\")'",
    "python3 -c 'import os; os.rmdir(\"empty\")'",
    "python3 -c 'import os; os.link(\"keep\", \"other\")'",
    "python3 -c 'import os; os.symlink(\"keep\", \"other\")'",
    "python3 -c 'import os; os.truncate(\"keep\", 0)'",
    "python3 -c 'import os; os.chmod(\"keep\", 0o600)'",
    "python3 -c 'import os; os.fchmod(os.open(\"keep\", os.O_RDONLY), 0o600)'",
    "python3 -c 'import os; os.chown(\"keep\", 1, 1)'",
    "python3 -c 'import os; os.utime(\"keep\", (1, 1))'",
    "python3 -c 'import os; os.setxattr(\"keep\", \"user.a\", b\"b\")'",
    "python3 -c 'import os; os.mkfifo(\"p\")'",
    "python3 -c 'import os; os.mknod(\"n\")'",
    "python3 -c 'import os; os.open(\"z\", os.O_CREAT)'",
    "python3 -c 'import os; os.open(\".\", os.O_TMPFILE | os.O_RDWR)'",
    "python3 -c 'import os; os.open(\"z\", os.O_WRONLY | os.O_CREAT, dir_fd=os.open(\".\", os.O_RDONLY))'",
    "python3 -c 'import os; os.unlink(\"keep\", dir_fd=os.open(\".\", os.O_RDONLY))'",
    "python3 -c 'import shutil; shutil.rmtree(\"empty\", ignore_errors=True)'",
    "python3 -c 'import shutil; shutil.copy(\"keep\", \"other\")'",
    "python3 -c 'import pathlib; pathlib.Path(\"z\").touch()'",
    "python3 -c 'import subprocess; subprocess.run([\"touch\", \"z\"])'",
    "python3 -c 'import os; os.system(\"touch z\")'",
    "python3 -c 'import os\nif os.fork() == 0: open(\"z\", \"w\")\nelse: os.wait()'",
    "python3 -c 'import threading; t = threading.Thread(target=lambda: open(\"z\", \"w\")); t.start(); t.join()'",
    "python3 -c 'import sqlite3; sqlite3.connect(\"z.db\").execute(\"create table a (b)\")'",
    "python3 -c 'import tempfile; tempfile.NamedTemporaryFile(dir=\".\")'",
    "python3 -c 'import logging; logging.basicConfig(filename=\"z\")'",
    "python3 -c 'import mmap, os; mmap.mmap(os.open(\"keep\", os.O_RDWR), 0)'",
    "python3 <<'E'\nopen('z', 'w').write('x')\nE",
    "echo 'open(\"z\", \"w\")' | python3 -",
    "perl -e 'open(F, \">z\")'",
    "perl -e 'open(F, \">>keep\"); print F 1'",
    "perl -e 'unlink(\"keep\"); 1'",
    "perl -e 'rename(\"keep\", \"other\")'",
    "perl -e 'mkdir(\"d\")'",
    "perl -e 'rmdir(\"empty\")'",
    "perl -e 'link(\"keep\", \"other\")'",
    "perl -e 'symlink(\"keep\", \"other\")'",
    "perl -e 'chmod(0600, \"keep\")'",
    "perl -e 'utime(1, 1, \"keep\")'",
    "perl -e 'truncate(\"keep\", 0)'",
    "perl -e 'system(\"touch z\")'",
    "perl -e '`touch z`'",
    "perl -i -pe 's/a/b/' keep",
    "node -e 'try { require(\"fs\").writeFileSync(\"z\", \"x\") } catch {}'",
    "node -e 'require(\"fs\").unlink(\"keep\", () => {})'",
    "node -e 'require(\"fs\").promises.mkdir(\"d\").catch(() => {})'",
    "node -e 'require(\"child_process\").execSync(\"touch z\")'",
    "gcc -x c -o z - <<< 'int main(){}'",
    // The network.
    "exec 3<>/dev/tcp/127.0.0.1/$TCP; echo x >&3",
    "echo x > /dev/udp/127.0.0.1/$UDP",
    "python3 -c 'import socket; socket.socket()'",
    "python3 -c 'import socket, os; socket.create_connection((\"127.0.0.1\", int(os.environ[\"TCP\"])))'",
    "python3 -c 'import socket, os; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b\"x\", (\"127.0.0.1\", int(os.environ[\"UDP\"])))'",
    "python3 -c 'import socket, os\ntry: socket.socket(socket.AF_UNIX).connect(os.environ[\"STREAM\"])\nexcept OSError: pass'",
    "python3 -c 'import socket, os\ntry: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b\"x\", os.environ[\"DATAGRAM\"])\nexcept OSError: pass'",
    "python3 -c 'import socket, os\ntry: socket.socket(socket.AF_UNIX).connect(\"\\0\" + os.environ[\"NAME\"])\nexcept OSError: pass'",
    "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
    "python3 -c 'import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)'",
    "python3 -c 'import socket; socket.getaddrinfo(\"example.com\", 80)'",
    "python3 -c 'import urllib.request; urllib.request.urlopen(\"http://127.0.0.1\")'",
    "perl -MIO::Socket::INET -e 'IO::Socket::INET->new(\"127.0.0.1:$ENV{TCP}\")'",
    "node -e 'require(\"net\").connect(+process.env.TCP, \"127.0.0.1\").on(\"error\", () => {})'",
    "curl -s http://127.0.0.1:$TCP",
    // Signals and other processes.
    "kill $VICTIM",
    "kill -0 $VICTIM",
    "kill -9 $PPID",
    "kill -TERM -1",
    "kill 0",
    "pkill sleep",
    "python3 -c 'import os, signal; os.kill(os.getppid(), signal.SIGTERM)'",
    "python3 -c 'import os, signal; os.kill(int(os.environ[\"VICTIM\"]), 0)'",
    "python3 -c 'import os, signal; os.killpg(0, signal.SIGTERM)'",
    "python3 -c 'import os, signal; signal.pidfd_send_signal(os.pidfd_open(int(os.environ[\"VICTIM\"])), 9)'",
    "perl -e 'kill 9, $ENV{VICTIM}'",
    "sleep 9 & kill $!",
    "renice 5 $VICTIM",
    // Ways around the watch.
    "perl -e 'syscall(317, 1, 0, 0)'",
    "perl -e 'syscall(157, 22, 2, 0)'",
    "perl -e 'syscall(56, 0x00800000 | 17, 0, 0, 0, 0)'",
    "perl -e 'syscall(425, 1, 0)'",
    "perl -e 'my $p = \"z\"; syscall(1073742081, -100, $p, 0101, 0600)'",
    "perl -e 'my $p = \"keep\"; syscall(469, -100, $p, 0, 0, 0)'",
    "perl -e 'my $p = \"z\"; my $how = pack(\"QQQ\", 0101, 0600, 0); syscall(437, -100, $p, $how, 24)'",
    "perl -e 'syscall(101, 0, 0, 0, 0)'",
    "perl -e 'syscall(272, 0x10000000)'",
    "perl -e 'syscall(29, 0, 64, 01777)'",
    "unshare -U true",
    "./old-call",
    // Secrets in the workspace.
    "cat .env",
    "head -c9 < .env",
    "cat keys/id_rsa",
    "cat .git/config",
    "ln -s $WS/.env $TMPDIR/e; cat $TMPDIR/e",
    "cd keys; cat id_rsa",
    "cat $TMPDIR/../work/.env",
    "python3 -c 'print(open(\".env\").read())'",
    "python3 -c 'import os; print(os.read(os.open(\"id_rsa\", os.O_RDONLY, dir_fd=os.open(\"keys\", os.O_RDONLY | os.O_PATH)), 99))'",
    "perl -e 'open(F, \"<.env\"); print <F>'",
    "node -e 'console.log(require(\"fs\").readFileSync(\".env\", \"utf8\"))'",
    "grep -r . .",
    "bash -c 'echo \"$(< .env)\"'",
    "git log",
];

/// These would use more of the machine than they may, or go on after their end.
const UNBOUNDED: &[&str] = &[
    "while :; do :; done",
    "sleep 60",
    "python3 -c 'while True: pass'",
    "python3 -c 'import time; time.sleep(60)'",
    "yes",
    "cat /dev/zero",
    "python3 -c 'print(\"x\" * 2000000)'",
    "python3 -c 'x = bytearray(10**9)'; echo done",
    "python3 -c '\ntry: x = \"a\" * 10**9\nexcept MemoryError: pass'; echo done",
    "python3 -c '\nx = []\ntry:\n  while True: x.append(bytes(10**6))\nexcept MemoryError: pass'; echo done",
    "python3 -c '\nx = \"a\"\ntry:\n  while True: x = x + x\nexcept MemoryError: pass'; echo done",
    "perl -e 'my @a; push @a, q(a) x 1e6 while 1'; echo done",
    "tail /dev/zero",
    "f() { f | f & }; f; wait; echo done",
    "while :; do (:); done",
    "for i in {1..400}; do sleep 1 & done; wait",
    "python3 -c 'import os\nwhile True: os.fork()'",
    "python3 -c 'import threading\nwhile True: threading.Thread(target=lambda: threading.Event().wait()).start()'",
    "(sleep 60 &); echo done",
    "sleep 60 & echo done",
    "(setsid sleep 60 &) & echo done",
    "nohup sleep 60 >/dev/null 2>&1 & echo done",
    "dd if=/dev/zero of=$TMPDIR/big bs=1M count=64 2>/dev/null; echo done",
    "python3 -c 'import os\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: os.execvp(\"sleep\", [\"sleep\", \"60\"])'; echo done",
];

/// Commands that need no more than reading, with a part of what they print.
const PURE: &[(&str, &str)] = &[
    ("python3 -c 'print(6 * 7)'", "42"),
    ("python3 <<'E'\nprint(6 * 7)\nE", "42"),
    ("echo 'print(6 * 7)' | python3 -", "42"),
    (
        "python3 -c 'import json; print(json.dumps({\"a\": 1}))'",
        "{\"a\": 1}",
    ),
    ("python3 -c 'print(len(open(\"keep\").read()) > 0)'", "True"),
    (
        "python3 -c 'import os; print(sorted(os.listdir(\".\")))'",
        "keep",
    ),
    (
        "python3 -c 'import os; print(sum(1 for _ in os.walk(\".\")) > 1)'",
        "True",
    ),
    ("python3 -c 'import sys; print(\"no\"); sys.exit(3)'", "no"),
    (
        "python3 -c 'import subprocess; print(subprocess.check_output([\"echo\", \"x\"]))'",
        "x",
    ),
    (
        "python3 -c 'import tempfile; f = tempfile.NamedTemporaryFile(); f.write(b\"x\"); print(f.tell())'",
        "1",
    ),
    (
        "python3 -c 'import tempfile, os; d = tempfile.mkdtemp(); os.rename(d, d + \"x\"); os.rmdir(d + \"x\"); print(7)'",
        "7",
    ),
    (
        "python3 -c 'import pwd, os; print(pwd.getpwuid(0).pw_name)'",
        "root",
    ),
    (
        "python3 -c 'import threading; t = threading.Thread(target=print, args=[5]); t.start(); t.join()'",
        "5",
    ),
    (
        "python3 -c 'import multiprocessing as m; print(m.cpu_count() > 0)'",
        "True",
    ),
    (
        "python3 -c 'import re, math, datetime, hashlib, random; print(math.pi)'",
        "3.14",
    ),
    ("python3 -c 'x = [0] * 10**6; print(len(x))'", "1000000"),
    ("python3 -c 'print(1)' 2>/dev/null", "1"),
    ("python3 -c 'import os; os.abort()' || echo ended", "ended"),
    ("python3 --version", "Python"),
    ("perl -e 'print 6 * 7'", "42"),
    ("perl -ne 'print if 1' keep", ""),
    ("perl -MPOSIX -e 'print floor(1.5)'", "1"),
    ("node -e 'console.log(6 * 7)'", "42"),
    ("node --version", "v"),
    (
        "node -e 'console.log(require(\"fs\").readdirSync(\".\").length > 0)'",
        "true",
    ),
    ("awk 'BEGIN { print 6 * 7 }'", "42"),
    ("jq -n '6 * 7'", "42"),
    ("cat <<'E'\nhello\nE", "hello"),
    ("bash <<'E'\necho hello\nE", "hello"),
    ("echo a | tr a b | sed s/b/c/", "c"),
    ("f=$(mktemp); echo hello > $f; cat $f; rm $f", "hello"),
    (
        "cd $TMPDIR && mkdir d && echo > d/f && mv d/f d/g && ls d && rm -r d",
        "g",
    ),
    ("echo hello | tee /dev/stderr", "hello"),
    ("echo hello > /dev/null; echo done", "done"),
    ("diff <(echo a) <(echo a) && echo same", "same"),
    ("for i in 1 2 3; do echo $i; done | tail -1", "3"),
    ("sort <(seq 3) | wc -l", "3"),
    ("time true; echo done", "done"),
    ("(exit 3) || echo $?", "3"),
    ("timeout 2 echo hello", "hello"),
    ("ls -l keep", "keep"),
    ("id -un", ""),
    ("date +%Y", "20"),
    ("gcc --version", "gcc"),
    ("seq 1 20000 | sort -rn | head -1", "20000"),
];
