//! How much of the machine one command may use.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// Bounds for each process of a command; `None` leaves what there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Seconds of processor time.
    pub cpu_seconds: Option<u64>,
    /// Bytes of address space.
    pub memory_bytes: Option<u64>,
    /// Processes of this user.
    pub processes: Option<u64>,
    /// Bytes of one file.
    pub file_bytes: Option<u64>,
}

impl Share {
    pub(super) fn apply(self) -> std::io::Result<()> {
        for (resource, most) in [
            (Resource::Cpu, self.cpu_seconds),
            (Resource::As, self.memory_bytes),
            (Resource::Nproc, self.processes),
            (Resource::Fsize, self.file_bytes),
            // What a crash leaves behind may hold secrets. One byte is too few for a file, and
            // unlike none it also keeps the kernel from piping it to a program that collects.
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
