//! `pvp doctor`: checks what this machine can enforce and explains what that means.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};
use pvp_agent::reaper;
use pvp_agent::sandbox::CgroupController;
use pvp_client::user_directories::recorded_data_directories;
use pvp_protocol::ParticipantKind;
use serde::Serialize;

use pvp_bridge::hooks::HooksFrom;

use super::{doctor_client, links, print_json, print_line, server};

#[derive(Args)]
pub(crate) struct DoctorArguments {
    /// Try instead with a canary whether this client obeys its hooks, as `pvp run` starts it: claude,
    /// codex, opencode, gemini or copilot
    #[arg(value_name = "CLIENT")]
    client: Option<OsString>,
    /// Try it with hooks in its own settings, as `pvp hook install` puts them there
    #[arg(long, requires = "client")]
    installed: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckStatus {
    Good,
    /// Nothing is wrong, but it is worth knowing.
    Note,
    /// Something works less well than it could.
    Weak,
    /// Something does not work.
    Bad,
}

impl CheckStatus {
    /// How a line begins.
    pub(super) fn mark(self) -> &'static str {
        match self {
            CheckStatus::Good => "ok  ",
            CheckStatus::Note => "note",
            CheckStatus::Weak => "weak",
            CheckStatus::Bad => "BAD ",
        }
    }
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
    if let Some(client) = &arguments.client {
        let hooks_from = match arguments.installed {
            true => HooksFrom::OwnSettings,
            false => HooksFrom::PvpRun,
        };
        return doctor_client::run(client, hooks_from, arguments.json);
    }
    let checks = [
        landlock(),
        seccomp(),
        trials(),
        account(),
        data(),
        signing_key(),
        links(),
        cgroups(),
        limits(),
        open_files(),
        shell(),
        disk(),
    ];
    if arguments.json {
        print_json(serde_json::to_string(&checks)?)?;
    } else {
        for check in &checks {
            let mark = check.health.mark();
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
    let means = "reads cannot be confined to the workspace, so they need approval";
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

/// An executor's commands have the rights of its account.
fn account() -> DoctorCheck {
    let is_root = rustix::process::geteuid().is_root();
    DoctorCheck {
        name: "account",
        health: if is_root {
            CheckStatus::Weak
        } else {
            CheckStatus::Good
        },
        found: if is_root {
            "running as root"
        } else {
            "running as an ordinary user"
        }
        .to_owned(),
        means: "approved commands of an agent started here can change anything; run agents as a user of their own",
    }
}

/// An agent that works in this directory must not find a server's data in it.
fn data() -> DoctorCheck {
    let here = std::env::current_dir().unwrap_or_default();
    let found: Vec<_> = server::data_directories_in(&here)
        .iter()
        .map(|data| data.display().to_string())
        .collect();
    DoctorCheck {
        name: "data",
        health: if found.is_empty() {
            CheckStatus::Good
        } else {
            CheckStatus::Weak
        },
        found: match found.is_empty() {
            true => "no server keeps its data in this directory".to_owned(),
            false => format!(
                "a server keeps its data in this directory: {}",
                found.join(", ")
            ),
        },
        means: "an agent's approved commands here can read the key and the tokens; stop the server and move its data elsewhere",
    }
}

/// Whoever can write the log and read the key can forge the log.
fn signing_key() -> DoctorCheck {
    let default = server::default_data_directory().ok();
    let mut beside: Vec<_> = recorded_data_directories()
        .into_iter()
        .chain(default)
        .filter(|data| data.join("server.key").exists() && data.join("pvp.sqlite3").exists())
        .map(|data| data.display().to_string())
        .collect();
    beside.sort();
    beside.dedup();
    DoctorCheck {
        name: "signing key",
        health: if beside.is_empty() {
            CheckStatus::Good
        } else {
            CheckStatus::Note
        },
        found: match beside.is_empty() {
            true => "no signing key is stored next to its log".to_owned(),
            false => format!(
                "the signing key is stored next to the log in {}",
                beside.join(", ")
            ),
        },
        means: "whoever can write to that directory can forge the log; keep the public key, and exports, elsewhere",
    }
}

/// A link is as good as a password.
fn links() -> DoctorCheck {
    let open = readable_links();
    DoctorCheck {
        name: "links",
        health: if open.is_empty() {
            CheckStatus::Good
        } else {
            CheckStatus::Bad
        },
        found: match open.is_empty() {
            true => "only you can read the saved links".to_owned(),
            false => format!("others can read {}", open.join(", ")),
        },
        means: "run `chmod go= FILE`, and revoke the tokens if others use this machine",
    }
}

/// The remembered links that other users of this machine may read, and those in this directory,
/// which agents may read.
fn readable_links() -> Vec<String> {
    let directories = links::links_directory().into_iter().flat_map(|links| {
        let entries = std::fs::read_dir(links).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path()))
    });
    let users = links::user_link_path(ParticipantKind::Human);
    let users = users
        .into_iter()
        .filter_map(|path| Some(path.parent()?.to_owned()));
    let files = directories.chain(users).flat_map(|directory| {
        [ParticipantKind::Human, ParticipantKind::Agent]
            .map(|holder| directory.join(links::link_file_name(holder)))
    });
    let is_open = |path: &PathBuf| {
        const READ_BY_OTHERS: u32 = 0o044;
        path.metadata()
            .is_ok_and(|metadata| metadata.mode() & READ_BY_OTHERS != 0)
    };
    files
        .filter(is_open)
        .chain(links::former_link_here())
        .map(|path| path.display().to_string())
        .collect()
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
            "the kernel has no filters"
        }
        .to_owned(),
        means: "system calls cannot be refused, so reads need approval",
    }
}

/// A command is tried only where it can be noticed what the sandbox denied it.
fn trials() -> DoctorCheck {
    let possible = pvp_agent::sandbox::can_count_denials();
    DoctorCheck {
        name: "trials",
        health: if possible {
            CheckStatus::Good
        } else {
            CheckStatus::Note
        },
        found: if possible {
            "what the sandbox denies can be counted, so unknown commands can be tried in it"
        } else {
            "what the sandbox denies cannot be counted"
        }
        .to_owned(),
        means: "`try_unknown` has no effect for an agent here, so unknown commands need approval; it requires Landlock, seccomp filters that trace, and ptrace",
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
            "each command gets its own, so all its processes can be killed at once"
        } else {
            "this process may not create any"
        }
        .to_owned(),
        means: "the processes of a command are found and killed one by one",
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
            (_, true) => format!("per command: {}", list(&enforced)),
            (true, false) => format!("per process only: {}", list(&unenforced)),
            (false, false) => format!(
                "per command: {}; per process only: {}",
                list(&enforced),
                list(&unenforced)
            ),
        },
        means: "a command can exceed them by starting more processes; docs/execution.md says how to delegate a cgroup",
    }
}

fn controller_name(controller: CgroupController) -> &'static str {
    match controller {
        CgroupController::Memory => "memory",
        CgroupController::Processes => "number of processes",
        CgroupController::Cpu => "CPU time",
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
            || "unknown".to_owned(),
            |soft| format!("at most {soft} at a time"),
        ),
        means: "a server here accepts few connections; raise the limit with `ulimit -n`",
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
            Ok(()) => "this directory supports durable writes".to_owned(),
            Err(error) => format!("this directory: {error}"),
        },
        means: "start the server with --data DIR, on another disk",
    }
}
