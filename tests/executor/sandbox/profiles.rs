//! The other sandbox profiles, what a sandboxed command inherits, and that nothing runs where the
//! sandbox cannot be set up.

use std::collections::BTreeMap;
use std::sync::Arc;

use pvp_agent::sandbox::ResourceLimits;
use pvp_protocol::SandboxProfile;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use crate::support::program::write_program;

use super::attacks::{self, AttackTarget, UnconfinedEffect};
use super::batch;
use super::effects;
use super::fixture::{self, DAMAGE_MARKER, RunAsUser, SandboxFixture};

#[tokio::test]
async fn a_read_with_sockets_damages_nothing_else() {
    let mut all = attacks::all_attacks();
    all.retain(|attack| attack.target != AttackTarget::Sockets);
    let all: Vec<_> = all.iter().collect();
    for user in RunAsUser::available() {
        let failures = batch::failed_attacks(user, &all, SandboxProfile::ReadNet).await;
        assert!(failures.is_empty(), "as {user:?}: {}", failures.join("\n"));
    }
}

#[tokio::test]
async fn a_read_with_sockets_reaches_others() {
    for user in RunAsUser::available() {
        let fixture = SandboxFixture::new(user);
        let all = attacks::all_attacks();
        let mut received = Vec::new();
        for name in ["TCP", "UDP", "a UNIX socket"] {
            let attack = all.iter().find(|attack| attack.name == name).unwrap();
            received.extend(effects(&fixture, attack, SandboxProfile::ReadNet).await);
        }
        let reached = ["TCP", "UDP", "a UNIX socket"].map(|it| format!("{it} was reached"));
        assert_eq!(received, reached, "as {user:?}");
        for name in [
            "raw sockets",
            "packets",
            "machines nearby",
            "the kernel's ciphers",
        ] {
            let attack = all.iter().find(|attack| attack.name == name).unwrap();
            let effects = effects(&fixture, attack, SandboxProfile::ReadNet).await;
            assert_eq!(effects, Vec::<String>::new(), "{name} as {user:?}");
        }
    }
}

#[tokio::test]
async fn a_command_in_the_workspace_sandbox_writes_nowhere_else() {
    let all = attacks::all_attacks();
    // Approved commands may use the network and signal other processes.
    let outside = all
        .iter()
        .filter(|attack| attack.target == AttackTarget::Outside);
    let outside: Vec<_> = outside.collect();
    assert!(outside.len() >= 40, "{} commands", outside.len());
    for user in RunAsUser::available() {
        let failures = batch::failed_attacks(user, &outside, SandboxProfile::Workspace).await;
        assert!(failures.is_empty(), "as {user:?}: {}", failures.join("\n"));
    }
}

#[tokio::test]
async fn a_command_in_the_workspace_sandbox_works_there() {
    let all = attacks::all_attacks();
    let inside = all
        .iter()
        .filter(|attack| attack.target == AttackTarget::Inside);
    let inside: Vec<_> = inside.collect();
    for user in RunAsUser::available() {
        let mut worked = 0;
        for attack in &inside {
            // Each needs a fresh fixture.
            let effects = effects(
                &SandboxFixture::new(user),
                attack,
                SandboxProfile::Workspace,
            )
            .await;
            worked += usize::from(!effects.is_empty());
            if worked == 40 {
                break;
            }
        }
        assert_eq!(worked, 40, "as {user:?}");
    }
}

/// FIXME: Landlock does not restrict modes, owners, times and attributes, and builds need to set
/// them in their workspace, so a command can also set them elsewhere on files of its user.
#[tokio::test]
async fn a_command_in_the_workspace_sandbox_can_still_change_metadata_elsewhere() {
    for user in RunAsUser::available() {
        for attack in attacks::all_attacks() {
            if attack.target == AttackTarget::Metadata
                && attack.unconfined == UnconfinedEffect::Always
            {
                let effects = effects(
                    &SandboxFixture::new(user),
                    &attack,
                    SandboxProfile::Workspace,
                )
                .await;
                assert!(!effects.is_empty(), "{} as {user:?} is held", attack.name);
            }
        }
    }
}

#[tokio::test]
async fn a_command_in_the_workspace_sandbox_changes_no_other_process_or_machine() {
    for user in RunAsUser::available() {
        let fixture = SandboxFixture::new(user);
        for name in [
            "the victim's environment",
            "its memory",
            "ptrace attach",
            "mount",
            "mount --bind",
            "a device in the temporary directory",
            "a disk in the temporary directory",
            "settings of the kernel",
            "devices",
            "reboot with numbers that mean nothing",
            "a program that changes the user",
        ] {
            let mut all = attacks::all_attacks().into_iter();
            let Some(attack) = all.find(|attack| attack.name == name) else {
                // Attacks by system call number are for x86-64 only; `all_attacks` reports that.
                if cfg!(target_arch = "x86_64") {
                    panic!("there is no attack {name}");
                }
                continue;
            };
            let effects = effects(&fixture, &attack, SandboxProfile::Workspace).await;
            assert_eq!(effects, Vec::<String>::new(), "{name} as {user:?}");
        }
    }
}

#[tokio::test]
async fn a_command_has_its_three_files_and_no_rights() {
    for user in RunAsUser::available() {
        let fixture = SandboxFixture::new(user);
        for profile in [
            SandboxProfile::Read,
            SandboxProfile::ReadNet,
            SandboxProfile::Workspace,
        ] {
            let line = "ls /proc/self/fd | tr '\\n' ' '; grep -E 'NoNewPrivs|Seccomp:|CapAmb|CapInh' /proc/$$/status";
            let (_, output) = fixture.run_line(line, profile).await;
            let filtered = match profile {
                SandboxProfile::None | SandboxProfile::Workspace => 0,
                SandboxProfile::Read | SandboxProfile::ReadNet => 2,
            };
            // The fourth descriptor is the directory that `ls` reads.
            let expected = format!(
                "0 1 2 3 CapInh:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t{filtered}\n"
            );
            assert_eq!(output.out, expected, "{profile:?} as {user:?}: {output:?}");
        }
    }
}

/// What is private stays so wherever it lies, also behind symbolic links, and what lies beside it
/// stays readable.
#[tokio::test]
async fn what_is_private_cannot_be_read_where_everything_beside_it_can() {
    for user in RunAsUser::available() {
        let fixture = SandboxFixture::new(user);
        let run = async |line: &str, profile| {
            let mut spawn_spec = fixture.spawn_spec(line, profile);
            spawn_spec.sandbox.private = ["work/dir", "outside/dir/inner", "work/later/link"]
                .map(|name| fixture.path(name))
                .into();
            let (_, output) = fixture.run(&spawn_spec).await;
            output.out
        };
        for profile in [SandboxProfile::Read, SandboxProfile::ReadNet] {
            let beside = run("cat keep link; ls; ls dir; ./run.sh", profile).await;
            for part in [
                "kept one\nkept two\nkept three\nkept one",
                "run.sh",
                "inner",
                "ran",
            ] {
                assert!(beside.contains(part), "{profile:?} as {user:?}: {beside}");
            }
            for line in [
                "cat dir/inner",
                "cat ./keep/../dir/inner",
                "cat $OUT/dir/inner",
                "grep -rh inner dir",
            ] {
                assert_eq!(
                    run(line, profile).await,
                    "",
                    "{line} {profile:?} as {user:?}"
                );
            }
        }
        // In this profile, what is private in the workspace cannot be kept apart.
        let workspace = SandboxProfile::Workspace;
        assert_eq!(run("cat $OUT/dir/inner", workspace).await, "");
        let beside = run(
            "cat $OUT/keep && touch new && echo x > dir/new && cat dir/new",
            workspace,
        );
        assert!(beside.await.ends_with("x\n"), "as {user:?}");
        // A directory that appears while a read runs is not readable if something in it would be
        // private.
        let late = "until test -e later/link; do sleep 0.01; done; cat later/link; cat keep";
        let (output, ()) = tokio::join!(run(late, SandboxProfile::Read), async {
            std::fs::create_dir(fixture.path("work/later")).unwrap();
            std::fs::write(fixture.path("work/later/link"), "late secret").unwrap();
        });
        assert!(
            !output.contains("late secret") && output.contains("kept two"),
            "{output}"
        );
    }
}

/// The parent of the executor may have left descriptors open that its children inherit.
#[tokio::test]
async fn a_command_inherits_no_open_file() {
    for user in RunAsUser::available() {
        for profile in [
            SandboxProfile::Read,
            SandboxProfile::Workspace,
            SandboxProfile::None,
        ] {
            let fixture = SandboxFixture::new(user);
            let left_open = fixture.path("left-open");
            let text = format!(
                "#!/bin/bash\nexec 7>>{0} 12<{1}\nexec {2} \"$@\"\n",
                fixture.path("outside/keep").display(),
                fixture.path("home/.netrc").display(),
                fixture.reaper_program().display()
            );
            write_program(&left_open, text);
            let spawn_spec = fixture.spawn_spec(
                "echo x >&7; cat <&12; ls /proc/self/fd; tr '\\0' '\\n' < /proc/$$/cmdline; env",
                profile,
            );
            let before = fixture.snapshot();
            let (finish, output) = fixture.run_with_program(&left_open, &spawn_spec).await;
            finish.unwrap();
            let changes = before.diff(&fixture.snapshot());
            assert_eq!(changes, Vec::<String>::new(), "{profile:?} as {user:?}");
            assert_eq!(output.reported_damage(), Vec::<String>::new());
            let begin = "0\n1\n2\n3\n/bin/bash\n--noprofile\n--norc\n-c\n";
            assert!(output.out.starts_with(begin), "{output:?}");
            let variables = output.out.lines().filter(|line| line.contains('='));
            let shell = ["PWD=", "SHLVL=0", "_="].map(str::to_owned);
            // What keeps git, cargo and Python from running a repository's programs.
            let temporary = spawn_spec.sandbox.temporary.display();
            let helpers = [
                "GIT_CONFIG_COUNT=".to_owned(),
                "GIT_CONFIG_KEY_".to_owned(),
                "GIT_CONFIG_VALUE_".to_owned(),
                "GIT_OPTIONAL_LOCKS=0".to_owned(),
                "GIT_NO_LAZY_FETCH=1".to_owned(),
                "GIT_ALLOW_PROTOCOL=".to_owned(),
                "RUSTC".to_owned(),
                "RUSTDOC=rustdoc".to_owned(),
                "PYTHONSAFEPATH=1".to_owned(),
                "PYTHONNOUSERSITE=1".to_owned(),
                "PYTHONDONTWRITEBYTECODE=1".to_owned(),
                format!("PATH={temporary}/.pvp-git-"),
            ];
            let own = match profile {
                SandboxProfile::Read | SandboxProfile::ReadNet => [&shell[..], &helpers].concat(),
                SandboxProfile::Workspace | SandboxProfile::None => shell.to_vec(),
            };
            let added = variables.filter(|line| {
                let given = |(name, value): &(String, String)| *line == format!("{name}={value}");
                !spawn_spec.environment.iter().any(given)
                    && !own.iter().any(|it| line.starts_with(it.as_str()))
            });
            assert_eq!(added.collect::<Vec<_>>(), Vec::<&str>::new());
        }
    }
}

/// Root can read another user's file in the workspace, as it could without a sandbox.
#[tokio::test]
async fn root_reads_what_others_own_in_its_workspace() {
    if !RunAsUser::Root.or_skip() {
        return;
    }
    let fixture = SandboxFixture::new(RunAsUser::Nobody);
    let mut spawn_spec = fixture.spawn_spec("cat private", SandboxProfile::Read);
    fixture::write_private_file(&fixture.path("work/private"), "mine\n");
    spawn_spec.environment.clear();
    let pvp = std::path::Path::new(env!("CARGO_BIN_EXE_pvp"));
    let (_, output) = fixture.run_with_program(pvp, &spawn_spec).await;
    assert_eq!(output.out, "mine\n", "{output:?}");
}

#[tokio::test]
async fn resource_limits_stop_what_exceeds_them() {
    for user in RunAsUser::available() {
        let fixture = SandboxFixture::new(user);
        let run = async |line: &str, share: ResourceLimits| {
            let mut spawn_spec = fixture.spawn_spec(line, SandboxProfile::Read);
            spawn_spec.sandbox.limits = share;
            let (finish, output) = fixture.run(&spawn_spec).await;
            (finish.unwrap(), output)
        };
        let none = ResourceLimits::default();

        let cpu_seconds = Some(1);
        let (finish, _) = run(
            "while :; do :; done",
            ResourceLimits {
                cpu_seconds,
                ..none
            },
        )
        .await;
        assert_eq!(
            (finish.signal, finish.stop_reason),
            (Some(9), None),
            "{user:?}"
        );

        let memory_bytes = Some(200_000_000);
        let line = "perl -e 'my $x = \"x\" x 300_000_000; print \"DAMAGED\"'";
        let (_, output) = run(
            line,
            ResourceLimits {
                memory_bytes,
                ..none
            },
        )
        .await;
        assert!(!output.out.contains(DAMAGE_MARKER), "{user:?}: {output:?}");
        let line = "perl -e 'my $x = \"x\" x 30_000_000; print \"enough\"'";
        let (_, output) = run(
            line,
            ResourceLimits {
                memory_bytes,
                ..none
            },
        )
        .await;
        assert_eq!(output.out, "enough", "{user:?}: {output:?}");

        let file_bytes = Some(1000);
        let line = "head -c 5000 /dev/zero > $TMPDIR/big; stat -c %s $TMPDIR/big";
        let (_, output) = run(line, ResourceLimits { file_bytes, ..none }).await;
        assert_eq!(output.out, "1000\n", "{user:?}: {output:?}");

        let processes = Some(100);
        let line = "perl -e '$| = 1; my $n; for (1..300) { my $pid = fork; last unless defined $pid; if (!$pid) { sleep 100; exit } $n++ } print $n; kill 9, -getpgrp'";
        let (_, output) = run(line, ResourceLimits { processes, ..none }).await;
        match user {
            RunAsUser::Nobody => assert!(output.out.parse::<u32>().unwrap() < 100, "{output:?}"),
            // FIXME: the kernel does not limit root's processes; only a cgroup can.
            RunAsUser::Root => assert_eq!(output.out, "300", "{output:?}"),
        }
    }
}

#[tokio::test]
async fn a_command_that_crashes_leaves_nothing_behind() {
    let fixture = SandboxFixture::new(RunAsUser::current());
    // A limit of one byte also keeps the kernel from starting a program that collects core dumps.
    let (_, output) = fixture
        .run_line(
            "grep core /proc/$$/limits | tr -s ' '",
            SandboxProfile::Read,
        )
        .await;
    let ones = [
        "Max core file size 1 1 bytes \n",
        "Max core file size 0 0 bytes \n",
    ];
    assert!(ones.contains(&output.out.as_str()), "{output:?}");
}

/// Each system call that the sandbox needs is removed in turn, as on an older kernel.
#[test]
fn without_sandbox_support_nothing_runs() {
    let fixture = Arc::new(SandboxFixture::new(RunAsUser::current()));
    for (call, profiles) in [
        (libc::SYS_landlock_create_ruleset, CONFINED_PROFILES),
        (libc::SYS_landlock_add_rule, CONFINED_PROFILES),
        (libc::SYS_landlock_restrict_self, CONFINED_PROFILES),
        (libc::SYS_capset, CONFINED_PROFILES),
        (libc::SYS_seccomp, &CONFINED_PROFILES[..2]),
    ] {
        for profile in profiles {
            let fixture = Arc::clone(&fixture);
            // A seccomp filter applies to the thread that sets it and to what that thread starts.
            let thread = std::thread::spawn(move || {
                deny_syscall(call);
                let runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = { runtime }.enable_all().build().unwrap();
                let before = fixture.snapshot();
                let (finish, output) = runtime.block_on(fixture.run_line("echo ran", *profile));
                assert_eq!(finish.exit_code, Some(127), "{call} {profile:?} {output:?}");
                assert_eq!(output.out, "");
                let why = "pvp: cannot confine the command, so it does not run: ";
                assert!(output.err.starts_with(why), "{output:?}");
                assert_eq!(before.diff(&fixture.snapshot()), Vec::<String>::new());
            });
            thread.join().unwrap();
        }
    }
}

const CONFINED_PROFILES: &[SandboxProfile] = &[
    SandboxProfile::Read,
    SandboxProfile::ReadNet,
    SandboxProfile::Workspace,
];

/// Makes a system call fail with ENOSYS in this thread.
fn deny_syscall(call: i64) {
    let not_there = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let rules = BTreeMap::from([(call, Vec::new())]);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, not_there, architecture);
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&program).unwrap();
}
