//! Patterns over the raw line; they can raise a verdict, never lower it.

use pvp_protocol::{Category, Digest, Risk};
use regex::RegexSet;
use sha2::{Digest as _, Sha256};

use crate::Opinion;

/// Pattern, category, rule id, reason.
type Row = (&'static str, Category, &'static str, &'static str);

/// Where a command word may stand: at the start, or after something that begins a new command.
macro_rules! command {
    ($pattern:literal) => {
        concat!(r"(?:^|[\s;&|(){}`$!\x22'/])", $pattern)
    };
}

const ROWS: &[Row] = &[
    (
        command!(
            r"rm\s+(?:\S+\s+)*(?:/|/\*|~|~/|\$HOME|\$\{HOME\}|/home|/etc|/usr|/var|/boot)/?\*?(?:\s|$|[;&|)])"
        ),
        Category::Blocked,
        "blocked.rm-root",
        "deletes the root, a system directory or a home directory",
    ),
    (
        command!(r"mkfs(?:\.\w+)?\s"),
        Category::Blocked,
        "blocked.mkfs",
        "makes a file system over what is there",
    ),
    (
        command!(r"dd\s.*\bof=/dev/"),
        Category::Blocked,
        "blocked.dd-device",
        "writes to a raw device",
    ),
    (
        r">\s*/dev/(?:sd|hd|vd|nvme|mmcblk|disk|mem|kmem)",
        Category::Blocked,
        "blocked.redirect-device",
        "writes to a raw device",
    ),
    (
        command!(r"(?:shutdown|reboot|halt|poweroff)\b"),
        Category::Blocked,
        "blocked.shutdown",
        "stops the machine",
    ),
    (
        r"\w*\s*\(\s*\)\s*\{[^}]*\|[^}]*&[^}]*\}",
        Category::Blocked,
        "blocked.fork-bomb",
        "starts processes without end",
    ),
    (
        command!(r"rm\s+(?:\S+\s+)*(?:-\w*[rRf]|--recursive|--force)"),
        Category::Destructive,
        "destructive.rm",
        "deletes files without a way back",
    ),
    (
        command!(r"(?:killall|pkill)\b"),
        Category::Destructive,
        "destructive.killall",
        "stops processes by name",
    ),
    (
        command!(r"git\s+(?:\S+\s+)*reset\s+(?:\S+\s+)*--hard"),
        Category::Destructive,
        "destructive.git-reset",
        "throws away uncommitted work",
    ),
    (
        command!(r"git\s+(?:\S+\s+)*push\s+(?:\S+\s+)*(?:-f\b|--force)"),
        Category::Destructive,
        "destructive.git-push-force",
        "rewrites shared history",
    ),
];

/// The patterns, compiled.
#[derive(Debug)]
pub(crate) struct Table {
    patterns: RegexSet,
    hash: String,
}

impl Table {
    pub(crate) fn built_in() -> Self {
        let patterns = RegexSet::new(ROWS.iter().map(|row| row.0)).expect("patterns are constants");
        let mut hasher = Sha256::new();
        for (pattern, category, rule, _) in ROWS {
            hasher.update(format!("{rule}\0{category}\0{pattern}\0"));
        }
        let hash = Digest::new(hasher.finalize().into()).to_string();
        Self { patterns, hash }
    }

    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// The most severe row that matches anywhere in the line.
    pub(crate) fn worst(&self, line: &str) -> Option<Opinion> {
        let rows = self
            .patterns
            .matches(line)
            .into_iter()
            .map(|index| &ROWS[index]);
        let (_, category, rule, reason) = rows.max_by_key(|row| row.1)?;
        let risk = if *category == Category::Blocked {
            Risk::Critical
        } else {
            Risk::High
        };
        Some(Opinion::new(*category, risk, rule, reason))
    }
}
