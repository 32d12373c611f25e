//! Limits how much of the machine one command may use.

use std::io;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// Limits for each process of a command, and for all of them together; `None` sets no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Processor time of each process, in seconds.
    pub cpu_seconds: Option<u64>,
    /// Private memory of each process, in bytes. Shared memory is not counted, nor memory that is
    /// only reserved, as by Node and Java.
    pub memory_bytes: Option<u64>,
    /// Processes of this user; root's are not counted.
    pub processes: Option<u64>,
    /// Bytes of one file.
    pub file_bytes: Option<u64>,
    /// Limits for the whole command. They hold only if the command has a cgroup with the
    /// controller.
    pub cgroup: CgroupLimits,
}

impl ResourceLimits {
    /// The same limits, with at most this much memory for each process and files of at most this
    /// size.
    pub(crate) fn capped(self, memory_bytes: u64, file_bytes: u64) -> Self {
        let capped = |limit: Option<u64>, max: u64| Some(limit.map_or(max, |limit| limit.min(max)));
        Self {
            memory_bytes: capped(self.memory_bytes, memory_bytes),
            file_bytes: capped(self.file_bytes, file_bytes),
            ..self
        }
    }

    pub(super) fn apply(self) -> io::Result<()> {
        for (resource, most) in [
            (Resource::Cpu, self.cpu_seconds),
            (Resource::Data, self.memory_bytes),
            (Resource::Nproc, self.processes),
            (Resource::Fsize, self.file_bytes),
            // A core dump may hold secrets.
            // A limit of one byte is too small for a file, and unlike a limit of zero it also
            // keeps the kernel from piping the dump to a program that collects them.
            (Resource::Core, Some(1)),
        ] {
            if let Some(most) = most {
                let hard = getrlimit(resource)
                    .maximum
                    .map_or(most, |hard| hard.min(most));
                let limit = Rlimit {
                    current: Some(hard),
                    maximum: Some(hard),
                };
                setrlimit(resource, limit)?;
            }
        }
        Ok(())
    }
}

/// Limits for everything that a command starts, together; `None` sets no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupLimits {
    /// Memory in bytes, with no swap.
    pub memory_bytes: Option<u64>,
    /// Processes and threads at a time.
    pub processes: Option<u64>,
    /// Processor time in percent of one processor: 150 is one and a half.
    pub cpu_percent: Option<u64>,
}

/// A kind of limit for a whole command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupController {
    Memory,
    Processes,
    Cpu,
}

impl CgroupController {
    pub const ALL: [Self; 3] = [Self::Memory, Self::Processes, Self::Cpu];

    /// The kernel's name for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Cpu => "cpu",
        }
    }

    /// The file of a cgroup that holds the limit; it does not exist if the controller is missing.
    fn limit_file(self) -> &'static str {
        match self {
            Self::Memory => "memory.max",
            Self::Processes => "pids.max",
            Self::Cpu => "cpu.max",
        }
    }

    pub(crate) fn is_available_in(self, cgroup: &Path) -> bool {
        cgroup.join(self.limit_file()).exists()
    }
}

impl CgroupLimits {
    /// What is written for a controller; `None` if there is no limit.
    fn limit_value(self, controller: CgroupController) -> Option<String> {
        /// The period over which processor time is counted, in microseconds; the kernel's default.
        const PERIOD: u64 = 100_000;
        match controller {
            CgroupController::Memory => Some(self.memory_bytes?.to_string()),
            CgroupController::Processes => Some(self.processes?.to_string()),
            CgroupController::Cpu => {
                // The kernel accepts no less than one percent.
                let percent = self.cpu_percent?.max(1);
                Some(format!("{} {PERIOD}", percent.saturating_mul(PERIOD / 100)))
            }
        }
    }

    /// The controllers that these limits need.
    pub(crate) fn controllers(self) -> impl Iterator<Item = CgroupController> {
        let bounded = move |controller: &CgroupController| self.limit_value(*controller).is_some();
        CgroupController::ALL.into_iter().filter(bounded)
    }

    /// Limits what will be in a cgroup, as far as it has the controllers.
    pub(crate) fn write_to(self, cgroup: &Path) -> io::Result<()> {
        for controller in CgroupController::ALL {
            let bound = self.limit_value(controller);
            if let Some(bound) = bound.filter(|_| controller.is_available_in(cgroup)) {
                std::fs::write(cgroup.join(controller.limit_file()), bound)?;
            }
        }
        let swap = cgroup.join("memory.swap.max");
        if self.memory_bytes.is_some() && swap.exists() {
            std::fs::write(swap, "0")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CgroupLimits = CgroupLimits {
        memory_bytes: Some(1_000_000),
        processes: Some(64),
        cpu_percent: Some(150),
    };

    /// A directory that looks like a cgroup with some controllers.
    fn fake_cgroup(files: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for file in files {
            std::fs::write(directory.path().join(file), "max").unwrap();
        }
        directory
    }

    fn contents(directory: &Path) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
        let read = |path| std::fs::read_to_string(path).unwrap();
        let mut files: Vec<_> = entries
            .map(|it| (it.file_name().into_string().unwrap(), read(it.path())))
            .collect();
        files.sort();
        files
    }

    fn owned<const N: usize>(files: [(&str, &str); N]) -> Vec<(String, String)> {
        files
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into()
    }

    #[test]
    fn each_limit_is_written_if_its_controller_is_available() {
        let cgroup = fake_cgroup(&["cpu.max", "memory.max", "memory.swap.max", "pids.max"]);
        LIMITS.write_to(cgroup.path()).unwrap();
        let written = [
            ("cpu.max", "150000 100000"),
            ("memory.max", "1000000"),
            ("memory.swap.max", "0"),
            ("pids.max", "64"),
        ];
        assert_eq!(contents(cgroup.path()), owned(written));
    }

    #[test]
    fn a_missing_controller_is_skipped() {
        let cgroup = fake_cgroup(&["pids.max"]);
        LIMITS.write_to(cgroup.path()).unwrap();
        assert_eq!(contents(cgroup.path()), owned([("pids.max", "64")]));
    }

    #[test]
    fn without_a_limit_the_file_is_unchanged() {
        let cgroup = fake_cgroup(&["cpu.max", "memory.max", "memory.swap.max"]);
        let limits = CgroupLimits {
            cpu_percent: Some(0),
            ..CgroupLimits::default()
        };
        limits.write_to(cgroup.path()).unwrap();
        let written = [
            ("cpu.max", "1000 100000"),
            ("memory.max", "max"),
            ("memory.swap.max", "max"),
        ];
        assert_eq!(contents(cgroup.path()), owned(written));
        assert_eq!(
            limits.controllers().collect::<Vec<_>>(),
            [CgroupController::Cpu]
        );
    }
}
