//! The executor's own record: the proposals of this process, written before they are sent, and the
//! durable list of grants that were acted on, written before anything runs so that none runs twice.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use pvp_client::user_directories::create_private_directory;
use pvp_protocol::{Digest, MessageId, Timestamp};
use serde::{Deserialize, Serialize};

const DAY_MS: u64 = 86_400_000;

/// How long a grant is kept after it has expired, in milliseconds: a day, in case clocks differ.
const RETENTION_MS: u64 = DAY_MS;

/// The same for a grant without a result, because background jobs may run for a long time.
const UNFINISHED_RETENTION_MS: u64 = 30 * DAY_MS;

/// Grants that are recorded before expired ones are pruned.
const PRUNE_INTERVAL: usize = 10_000;

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JournalRecord {
    /// About to be proposed.
    Proposed { proposal: MessageId, digest: Digest },
    /// About to run.
    Begun {
        grant: MessageId,
        proposal: MessageId,
        expires: Timestamp,
    },
    /// Its result was accepted.
    Done { grant: MessageId },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct UsedGrant {
    proposal: MessageId,
    expires: Timestamp,
    done: bool,
}

impl UsedGrant {
    fn is_retained(&self, now: Timestamp) -> bool {
        let retention = match self.done {
            true => RETENTION_MS,
            false => UNFINISHED_RETENTION_MS,
        };
        self.expires.plus_millis(retention) > now
    }
}

/// When a record counts as made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durability {
    /// When the system has it; it survives the end of this process.
    Written,
    /// When the disk has it.
    Synced,
}

/// The journal of one executor. Its directory is locked, so that no two executors share one.
#[derive(Debug)]
pub struct Journal {
    /// The lock on the directory, held for as long as the journal is open; the file is never
    /// replaced.
    _lock: File,
    /// The path of the journal file.
    path: PathBuf,
    /// The journal file, opened for appending.
    file: File,
    /// The length of the file in bytes, up to its last complete line.
    length: u64,
    /// The grants that were acted on, by their ids.
    used_grants: BTreeMap<MessageId, UsedGrant>,
    /// The number of grants at which expired ones are pruned next.
    prune_at: usize,
}

impl Journal {
    /// Opens the journal in a directory, and creates both if they do not exist. Drops grants that
    /// expired long ago, and a last line that a crash cut off.
    pub fn open(directory: &Path, now: Timestamp) -> anyhow::Result<Self> {
        create_private_directory(directory)
            .with_context(|| format!("making {}", directory.display()))?;
        let lock = open_append(&directory.join("lock"))?;
        if let Err(error) = lock_soon(&lock) {
            let directory = directory.display();
            bail!(
                "{directory} is in use by another agent ({error}); each agent needs a link of its own: `pvp invite --name NAME --role driver --kind agent`"
            );
        }
        let path = directory.join("grants.journal");
        let mut text = String::new();
        open_append(&path)?
            .read_to_string(&mut text)
            .with_context(|| format!("reading {}", path.display()))?;
        let mut used_grants =
            parse_records(&text).with_context(|| format!("reading {}", path.display()))?;
        used_grants.retain(|_, used_grant| used_grant.is_retained(now));
        let (file, length) = rewrite(&path, &used_grants)?;
        Ok(Self {
            _lock: lock,
            path,
            file,
            length,
            prune_at: used_grants.len() + PRUNE_INTERVAL,
            used_grants,
        })
    }

    /// Records that this process is about to propose an action with this digest.
    ///
    /// It is not synced, because a process that was restarted acts on none of its earlier proposals;
    /// the record of a grant for it is, and syncs this line too.
    pub fn record_proposal(&mut self, proposal: &MessageId, digest: Digest) -> anyhow::Result<()> {
        let proposal = proposal.clone();
        self.append_record(
            &JournalRecord::Proposed { proposal, digest },
            Durability::Written,
        )
    }

    /// Records that a grant is about to be acted on; returns false if it was recorded before. When
    /// this returns, the record survives a crash.
    pub fn record_start(
        &mut self,
        grant: &MessageId,
        proposal: &MessageId,
        expires: Timestamp,
        now: Timestamp,
    ) -> anyhow::Result<bool> {
        if self.used_grants.contains_key(grant) {
            return Ok(false);
        }
        self.prune(now)?;
        let begun = JournalRecord::Begun {
            grant: grant.clone(),
            proposal: proposal.clone(),
            expires,
        };
        self.append_record(&begun, Durability::Synced)?;
        let (proposal, done) = (proposal.clone(), false);
        let used_grant = UsedGrant {
            proposal,
            expires,
            done,
        };
        self.used_grants.insert(grant.clone(), used_grant);
        Ok(true)
    }

    /// Records that the result of a grant was accepted.
    pub fn record_done(&mut self, grant: &MessageId) -> anyhow::Result<()> {
        if let Some(used_grant) = self.used_grants.get_mut(grant) {
            used_grant.done = true;
            let grant = grant.clone();
            self.append_record(&JournalRecord::Done { grant }, Durability::Synced)?;
        }
        Ok(())
    }

    /// Whether a grant was acted on.
    pub fn contains(&self, grant: &MessageId) -> bool {
        self.used_grants.contains_key(grant)
    }

    /// Proposals that were started and have no recorded result.
    pub fn unfinished_proposals(&self) -> impl Iterator<Item = &MessageId> {
        let unfinished = self
            .used_grants
            .values()
            .filter(|used_grant| !used_grant.done);
        unfinished.map(|used_grant| &used_grant.proposal)
    }

    /// Drops expired grants now and then, because an executor may run for months.
    fn prune(&mut self, now: Timestamp) -> anyhow::Result<()> {
        if self.used_grants.len() >= self.prune_at {
            self.used_grants
                .retain(|_, used_grant| used_grant.is_retained(now));
            (self.file, self.length) = rewrite(&self.path, &self.used_grants)?;
            self.prune_at = self.used_grants.len() + PRUNE_INTERVAL;
        }
        Ok(())
    }

    fn append_record(
        &mut self,
        record: &JournalRecord,
        durability: Durability,
    ) -> anyhow::Result<()> {
        let mut bytes = serde_json::to_vec(record).context("writing the journal")?;
        bytes.push(b'\n');
        self.append_bytes(&bytes, durability)
            .context("writing the journal")?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn append_bytes(&mut self, bytes: &[u8], durability: Durability) -> std::io::Result<()> {
        // A write that failed half-way, as on a full disk, must not corrupt the next line.
        if self.file.metadata()?.len() != self.length {
            self.file.set_len(self.length)?;
        }
        self.file.write_all(bytes)?;
        match durability {
            Durability::Written => Ok(()),
            Durability::Synced => self.file.sync_data(),
        }
    }
}

/// Locks the file. Tries again for a moment, because a process that is being started holds the lock of
/// whoever starts it until its program runs.
fn lock_soon(lock: &File) -> Result<(), TryLockError> {
    const TRIES: u32 = 50;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..TRIES {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            locked => return locked,
        }
    }
    lock.try_lock()
}

fn open_append(path: &Path) -> anyhow::Result<File> {
    OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("opening {}", path.display()))
}

fn parse_records(text: &str) -> anyhow::Result<BTreeMap<MessageId, UsedGrant>> {
    let mut used_grants = BTreeMap::new();
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    for (number, line) in text[..whole].lines().enumerate() {
        let line = serde_json::from_str(line).with_context(|| {
            format!(
                "line {} is damaged; nothing runs until you have repaired or removed the file",
                number + 1
            )
        })?;
        match line {
            // Proposals of an earlier process; nothing that is granted for them runs.
            JournalRecord::Proposed { .. } => {}
            JournalRecord::Begun {
                grant,
                proposal,
                expires,
            } => {
                let done = false;
                used_grants.insert(
                    grant,
                    UsedGrant {
                        proposal,
                        expires,
                        done,
                    },
                );
            }
            JournalRecord::Done { grant } => {
                if let Some(used_grant) = used_grants.get_mut(&grant) {
                    used_grant.done = true;
                }
            }
        }
    }
    Ok(used_grants)
}

/// Replaces the file atomically with one that holds only these grants.
fn rewrite(
    path: &Path,
    used_grants: &BTreeMap<MessageId, UsedGrant>,
) -> anyhow::Result<(File, u64)> {
    let new_path: PathBuf = path.with_extension("new");
    let mut lines = String::new();
    for (grant, used_grant) in used_grants {
        let begun = JournalRecord::Begun {
            grant: grant.clone(),
            proposal: used_grant.proposal.clone(),
            expires: used_grant.expires,
        };
        lines += &serde_json::to_string(&begun).context("writing the journal")?;
        lines.push('\n');
        if used_grant.done {
            let grant = grant.clone();
            lines += &serde_json::to_string(&JournalRecord::Done { grant })
                .context("writing the journal")?;
            lines.push('\n');
        }
    }
    // A crash in this function may have left an incomplete file behind.
    let _ = std::fs::remove_file(&new_path);
    let mut file = open_append(&new_path)?;
    file.write_all(lines.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&new_path, path))
        .and_then(|()| File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all())
        .with_context(|| format!("writing {}", path.display()))?;
    Ok((file, lines.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MessageId {
        MessageId::parse(text).unwrap()
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + ms)
    }

    #[test]
    fn a_grant_is_recorded_once_also_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path(), at(0)).unwrap();
        assert!(
            journal
                .record_start(&id("g1"), &id("p1"), at(1000), at(0))
                .unwrap()
        );
        assert!(
            !journal
                .record_start(&id("g1"), &id("p1"), at(1000), at(0))
                .unwrap()
        );
        assert!(
            journal
                .record_start(&id("g2"), &id("p2"), at(1000), at(0))
                .unwrap()
        );
        journal.record_done(&id("g2")).unwrap();
        drop(journal);
        let mut journal = Journal::open(directory.path(), at(2000)).unwrap();
        assert!(
            !journal
                .record_start(&id("g1"), &id("p1"), at(1000), at(0))
                .unwrap()
        );
        assert!(
            !journal
                .record_start(&id("g2"), &id("p2"), at(1000), at(0))
                .unwrap()
        );
        assert_eq!(
            journal.unfinished_proposals().collect::<Vec<_>>(),
            [&id("p1")]
        );
    }

    #[test]
    fn a_line_cut_off_by_a_crash_is_ignored_and_a_damaged_one_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path(), at(0)).unwrap();
        journal
            .record_start(&id("g1"), &id("p1"), at(1000), at(0))
            .unwrap();
        drop(journal);
        let path = directory.path().join("grants.journal");
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"begun\":{{\"gra")).unwrap();
        let mut journal = Journal::open(directory.path(), at(0)).unwrap();
        assert!(
            !journal
                .record_start(&id("g1"), &id("p1"), at(1000), at(0))
                .unwrap()
        );
        drop(journal);
        std::fs::write(&path, format!("garbage\n{whole}")).unwrap();
        let error = format!("{:#}", Journal::open(directory.path(), at(0)).unwrap_err());
        assert!(error.contains("line 1 is damaged"), "{error}");
    }

    #[test]
    fn two_executors_cannot_share_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path(), at(0)).unwrap();
        let error = Journal::open(directory.path(), at(0)).unwrap_err();
        assert!(error.to_string().contains("another agent"), "{error}");
        drop(journal);
        Journal::open(directory.path(), at(0)).unwrap();
    }

    #[test]
    fn a_failed_write_does_not_corrupt_the_next_line() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path(), at(0)).unwrap();
        journal
            .record_start(&id("g1"), &id("p1"), at(1000), at(0))
            .unwrap();
        let mut file = open_append(&directory.path().join("grants.journal")).unwrap();
        file.write_all(b"{\"begun\":{\"gra").unwrap();
        journal
            .record_start(&id("g2"), &id("p2"), at(1000), at(0))
            .unwrap();
        drop(journal);
        let journal = Journal::open(directory.path(), at(0)).unwrap();
        assert!(journal.contains(&id("g1")) && journal.contains(&id("g2")));
    }

    #[test]
    fn a_grant_without_a_result_is_kept_for_longer() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path(), at(0)).unwrap();
        for (grant, proposal) in [("g1", "p1"), ("g2", "p2")] {
            let begun = journal.record_start(&id(grant), &id(proposal), at(1000), at(0));
            assert!(begun.unwrap());
        }
        journal.record_done(&id("g2")).unwrap();
        drop(journal);
        let journal = Journal::open(directory.path(), at(2000 + RETENTION_MS)).unwrap();
        assert_eq!(
            journal.unfinished_proposals().collect::<Vec<_>>(),
            [&id("p1")]
        );
        assert!(!journal.contains(&id("g2")));
        drop(journal);
        let journal = Journal::open(directory.path(), at(2000 + UNFINISHED_RETENTION_MS)).unwrap();
        assert_eq!(journal.unfinished_proposals().count(), 0);
    }

    #[test]
    fn the_journal_does_not_grow_forever() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path(), at(0)).unwrap();
        // Writing ten thousand records to disk takes long, so they are only added in memory.
        let old = (0..PRUNE_INTERVAL).map(|number| {
            let proposal = id(&format!("p{number}"));
            let used_grant = UsedGrant {
                proposal,
                expires: at(1000),
                done: true,
            };
            (id(&format!("g{number}")), used_grant)
        });
        journal.used_grants.extend(old);
        let later = at(2000 + RETENTION_MS);
        journal
            .record_start(&id("new"), &id("p"), later.plus_seconds(60), later)
            .unwrap();
        assert_eq!(journal.used_grants.len(), 1);
        drop(journal);
        let journal = Journal::open(directory.path(), later).unwrap();
        assert_eq!(journal.used_grants.keys().collect::<Vec<_>>(), [&id("new")]);
    }
}
