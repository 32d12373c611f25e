//! `pvp doctor`: checks what this machine can enforce and explains what that means.

use std::process::ExitCode;

use clap::Args;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};
use pvp_agent::reaper;
use pvp_agent::sandbox::CgroupController;
use serde::Serialize;

use super::print_line;

#[derive(Args)]
pub(crate) struct DoctorArguments {
    /// Print JSON, one line
    #[arg(long)]
    json: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CheckStatus {
    Good,
    /// Something works less well than it could.
    Weak,
    /// Something does not work.
    Bad,
}

/// One check.
#[derive(Debug, Serialize)]
struct DoctorCheck {
    name: &'static str,
    health: CheckStatus,
    /// What the check found.
    found: String,
    /// What it means for the user if the result is not good.
    means: &'static str,
}

pub(crate) fn run(arguments: &DoctorArguments) -> anyhow::Result<ExitCode> {
    let checks = [
        landlock(),
        seccomp(),
        cgroups(),
        limits(),
        open_files(),
        shell(),
        disk(),
    ];
    if arguments.json {
        print_line(serde_json::to_string(&checks)?)?;
    } else {
        for check in &checks {
            let mark = match check.health {
                CheckStatus::Good => "ok  ",
                CheckStatus::Weak => "weak",
                CheckStatus::Bad => "BAD ",
            };
            print_line(format!("{mark}  {:<12} {}", check.name, check.found))?;
            if check.health != CheckStatus::Good {
                print_line(format!("      {:<12} {}", "", check.means))?;
            }
        }
    }
    let bad = checks.iter().any(|check| check.health == CheckStatus::Bad);
    Ok(if bad {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Landlock and seccomp confine the reads that run without approval.
fn landlock() -> DoctorCheck {
    let versions = [
        (7, ABI::V7),
        (6, ABI::V6),
        (5, ABI::V5),
        (4, ABI::V4),
        (3, ABI::V3),
        (2, ABI::V2),
        (1, ABI::V1),
    ];
    let best = versions.into_iter().find(|(_, abi)| kernel_supports(*abi));
    let means = "reads cannot be confined to the workspace, so they are asked for";
    match best {
        Some((version, _)) => DoctorCheck {
            name: "landlock",
            health: if version >= 4 {
                CheckStatus::Good
            } else {
                CheckStatus::Weak
            },
            found: format!("the kernel enforces version {version}"),
            means: "files are confined, but not the network",
        },
        None => DoctorCheck {
            name: "landlock",
            health: CheckStatus::Weak,
            found: "the kernel does not enforce it".to_owned(),
            means,
        },
    }
}

/// Whether the kernel can create a ruleset of this version. Creating one restricts nothing.
fn kernel_supports(abi: ABI) -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let files = ruleset.handle_access(AccessFs::from_all(abi));
    let network = files.and_then(|ruleset| match AccessNet::from_all(abi) {
        none if none.is_empty() => Ok(ruleset),
        all => ruleset.handle_access(all),
    });
    let scoped = network.and_then(|ruleset| match Scope::from_all(abi) {
        none if none.is_empty() => Ok(ruleset),
        all => ruleset.scope(all),
    });
    scoped.and_then(Ruleset::create).is_ok()
}

fn seccomp() -> DoctorCheck {
    let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    let filters = actions.is_ok_and(|actions| actions.split_whitespace().any(|one| one == "errno"));
    DoctorCheck {
        name: "seccomp",
        health: if filters {
            CheckStatus::Good
        } else {
            CheckStatus::Weak
        },
        found: if filters {
            "filters can refuse system calls"
        } else {
            "no filters"
        }
        .to_owned(),
        means: "system calls cannot be refused, so reads are asked for",
    }
}

/// A command can be killed with all its processes at once only if it has its own cgroup.
fn cgroups() -> DoctorCheck {
    let available = reaper::available_controllers().is_some();
    DoctorCheck {
        name: "cgroups",
        health: if available {
            CheckStatus::Good
        } else {
            CheckStatus::Weak
        },
        found: if available {
            "each command gets its own, and the kernel ends all of it at once"
        } else {
            "this process may not make its own"
        }
        .to_owned(),
        means: "the processes of a command are found and ended one by one",
    }
}

/// Limits on all processes of a command together need the controllers of its cgroup.
fn limits() -> DoctorCheck {
    let whole = reaper::available_controllers().unwrap_or_default();
    let (enforced, unenforced): (Vec<_>, Vec<_>) = CgroupController::ALL
        .into_iter()
        .partition(|controller| whole.contains(controller));
    let list = |controllers: &[CgroupController]| {
        let names: Vec<_> = controllers.iter().copied().map(controller_name).collect();
        names.join(", ")
    };
    DoctorCheck {
        name: "limits",
        health: if unenforced.is_empty() {
            CheckStatus::Good
        } else {
            CheckStatus::Weak
        },
        found: match (enforced.is_empty(), unenforced.is_empty()) {
            (_, true) => format!("for a whole command: {}", list(&enforced)),
            (true, false) => format!("for each process only: {}", list(&unenforced)),
            (false, false) => format!(
                "for a whole command: {}; for each process only: {}",
                list(&enforced),
                list(&unenforced)
            ),
        },
        means: "a command may use more by starting more processes; see docs/execution.md for how to delegate a cgroup",
    }
}

fn controller_name(controller: CgroupController) -> &'static str {
    match controller {
        CgroupController::Memory => "memory",
        CgroupController::Processes => "number of processes",
        CgroupController::Cpu => "processor time",
    }
}

/// Each connection needs an open file.
fn open_files() -> DoctorCheck {
    const MIN_OPEN_FILES: u64 = 4096;
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
    DoctorCheck {
        name: "open files",
        health: if soft.is_some_and(|soft| soft >= MIN_OPEN_FILES) {
            CheckStatus::Good
        } else {
            CheckStatus::Weak
        },
        found: soft.map_or_else(
            || "not known".to_owned(),
            |soft| format!("at most {soft} at a time"),
        ),
        means: "a server here takes few connections; raise it with `ulimit -n`",
    }
}

fn shell() -> DoctorCheck {
    let exists = std::path::Path::new("/bin/bash").exists();
    DoctorCheck {
        name: "bash",
        health: if exists {
            CheckStatus::Good
        } else {
            CheckStatus::Bad
        },
        found: if exists {
            "/bin/bash"
        } else {
            "there is no /bin/bash"
        }
        .to_owned(),
        means: "commands in shell form cannot run; install bash",
    }
}

/// The log must survive a crash, so the disk must support a durable write (`fsync`).
fn disk() -> DoctorCheck {
    let probe = std::env::current_dir()
        .map(|here| here.join(format!(".pvp-doctor-{}", std::process::id())));
    let written = probe.and_then(|path| {
        let file = std::fs::File::create_new(&path)?;
        let synced = file.sync_all();
        std::fs::remove_file(&path)?;
        synced
    });
    DoctorCheck {
        name: "disk",
        health: if written.is_ok() {
            CheckStatus::Good
        } else {
            CheckStatus::Weak
        },
        found: match written {
            Ok(()) => "this directory can be written durably".to_owned(),
            Err(error) => format!("this directory: {error}"),
        },
        means: "a server started here needs --data somewhere else",
    }
}
