//! Which grants have been acted on, on disk before anything runs, so that nothing runs twice.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use pvp_protocol::{MessageId, Timestamp};
use serde::{Deserialize, Serialize};

const DAY_MS: u64 = 86_400_000;

/// How long a grant is remembered after it has expired, in milliseconds: a day, for clocks that
/// differ.
const REMEMBERED_MS: u64 = DAY_MS;

/// And how long if nobody knows how it ended: jobs run for long, and are asked about afterwards.
const UNFINISHED_MS: u64 = 30 * DAY_MS;

/// Grants that are noted before those that expired long ago are looked for and dropped.
const NOTED: usize = 10_000;

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
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
struct Spent {
    proposal: MessageId,
    expires: Timestamp,
    done: bool,
}

impl Spent {
    fn is_remembered(&self, now: Timestamp) -> bool {
        let remembered = match self.done {
            true => REMEMBERED_MS,
            false => UNFINISHED_MS,
        };
        self.expires.plus_millis(remembered) > now
    }
}

/// The journal of one executor. Its directory is locked: two executors do not share one.
#[derive(Debug)]
pub struct Journal {
    /// Held, and never replaced, for as long as the journal is open.
    _lock: File,
    path: PathBuf,
    file: File,
    /// Bytes of the file that are whole lines.
    length: u64,
    spent: BTreeMap<MessageId, Spent>,
    /// How many may be spent before it is looked which are to be dropped.
    roomy_until: usize,
}

impl Journal {
    /// Opens the journal in a directory, making both where missing. What expired long ago is
    /// dropped; a last line that was cut off by a crash never happened.
    pub fn open(directory: &Path, now: Timestamp) -> anyhow::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .with_context(|| format!("making {}", directory.display()))?;
        let lock = open(&directory.join("lock"))?;
        if let Err(error) = lock.try_lock() {
            let directory = directory.display();
            bail!("{directory} is in use by another executor ({error}); give each its own --state");
        }
        let path = directory.join("grants.journal");
        let mut text = String::new();
        open(&path)?
            .read_to_string(&mut text)
            .with_context(|| format!("reading {}", path.display()))?;
        let mut spent = read(&text).with_context(|| format!("reading {}", path.display()))?;
        spent.retain(|_, one| one.is_remembered(now));
        let (file, length) = rewrite(&path, &spent)?;
        Ok(Self {
            _lock: lock,
            path,
            file,
            length,
            roomy_until: spent.len() + NOTED,
            spent,
        })
    }

    /// Notes that a grant is about to be acted on; false if it was noted before. When this
    /// returns, the note survives a crash.
    pub fn begin(
        &mut self,
        grant: &MessageId,
        proposal: &MessageId,
        expires: Timestamp,
        now: Timestamp,
    ) -> anyhow::Result<bool> {
        if self.spent.contains_key(grant) {
            return Ok(false);
        }
        self.make_room(now)?;
        self.write(&Line::Begun {
            grant: grant.clone(),
            proposal: proposal.clone(),
            expires,
        })?;
        let (proposal, done) = (proposal.clone(), false);
        let spent = Spent {
            proposal,
            expires,
            done,
        };
        self.spent.insert(grant.clone(), spent);
        Ok(true)
    }

    /// Notes that the result of a grant was accepted.
    pub fn done(&mut self, grant: &MessageId) -> anyhow::Result<()> {
        if let Some(spent) = self.spent.get_mut(grant) {
            spent.done = true;
            let grant = grant.clone();
            self.write(&Line::Done { grant })?;
        }
        Ok(())
    }

    /// Whether a grant was acted on.
    pub fn knows(&self, grant: &MessageId) -> bool {
        self.spent.contains_key(grant)
    }

    /// Proposals that were begun and of which nobody knows how they ended.
    pub fn unfinished(&self) -> impl Iterator<Item = &MessageId> {
        let unfinished = self.spent.values().filter(|spent| !spent.done);
        unfinished.map(|spent| &spent.proposal)
    }

    /// An executor that runs for months does not remember all of them.
    fn make_room(&mut self, now: Timestamp) -> anyhow::Result<()> {
        if self.spent.len() >= self.roomy_until {
            self.spent.retain(|_, one| one.is_remembered(now));
            (self.file, self.length) = rewrite(&self.path, &self.spent)?;
            self.roomy_until = self.spent.len() + NOTED;
        }
        Ok(())
    }

    fn write(&mut self, line: &Line) -> anyhow::Result<()> {
        let mut bytes = serde_json::to_vec(line).context("writing the journal")?;
        bytes.push(b'\n');
        self.append(&bytes).context("writing the journal")?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        // What a write that failed half-way left, as on a full disk, must not spoil the next line.
        if self.file.metadata()?.len() != self.length {
            self.file.set_len(self.length)?;
        }
        self.file.write_all(bytes)?;
        self.file.sync_data()
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("opening {}", path.display()))
}

fn read(text: &str) -> anyhow::Result<BTreeMap<MessageId, Spent>> {
    let mut spent = BTreeMap::new();
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    for (number, line) in text[..whole].lines().enumerate() {
        let line = serde_json::from_str(line).with_context(|| {
            format!(
                "line {} is damaged; nothing runs until it is looked at",
                number + 1
            )
        })?;
        match line {
            Line::Begun {
                grant,
                proposal,
                expires,
            } => {
                let done = false;
                spent.insert(
                    grant,
                    Spent {
                        proposal,
                        expires,
                        done,
                    },
                );
            }
            Line::Done { grant } => {
                if let Some(spent) = spent.get_mut(&grant) {
                    spent.done = true;
                }
            }
        }
    }
    Ok(spent)
}

/// Writes only what is still to be remembered, in one step.
fn rewrite(path: &Path, spent: &BTreeMap<MessageId, Spent>) -> anyhow::Result<(File, u64)> {
    let fresh: PathBuf = path.with_extension("new");
    let mut lines = String::new();
    for (grant, one) in spent {
        let begun = Line::Begun {
            grant: grant.clone(),
            proposal: one.proposal.clone(),
            expires: one.expires,
        };
        lines += &serde_json::to_string(&begun).context("writing the journal")?;
        lines.push('\n');
        if one.done {
            let grant = grant.clone();
            lines +=
                &serde_json::to_string(&Line::Done { grant }).context("writing the journal")?;
            lines.push('\n');
        }
    }
    // A leftover of a crash in this very place is of no use.
    let _ = std::fs::remove_file(&fresh);
    let mut file = open(&fresh)?;
    file.write_all(lines.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&fresh, path))
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
    fn a_grant_is_begun_once_also_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path(), at(0)).unwrap();
        assert!(
            journal
                .begin(&id("g1"), &id("p1"), at(1000), at(0))
                .unwrap()
        );
        assert!(
            !journal
                .begin(&id("g1"), &id("p1"), at(1000), at(0))
                .unwrap()
        );
        assert!(
            journal
                .begin(&id("g2"), &id("p2"), at(1000), at(0))
                .unwrap()
        );
        journal.done(&id("g2")).unwrap();
        drop(journal);
        let mut journal = Journal::open(directory.path(), at(2000)).unwrap();
        assert!(
            !journal
                .begin(&id("g1"), &id("p1"), at(1000), at(0))
                .unwrap()
        );
        assert!(
            !journal
                .begin(&id("g2"), &id("p2"), at(1000), at(0))
                .unwrap()
        );
        assert_eq!(journal.unfinished().collect::<Vec<_>>(), [&id("p1")]);
    }

    #[test]
    fn a_line_cut_off_by_a_crash_never_happened_and_a_damaged_one_stops_everything() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path(), at(0)).unwrap();
        journal
            .begin(&id("g1"), &id("p1"), at(1000), at(0))
            .unwrap();
        drop(journal);
        let path = directory.path().join("grants.journal");
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"begun\":{{\"gra")).unwrap();
        let mut journal = Journal::open(directory.path(), at(0)).unwrap();
        assert!(
            !journal
                .begin(&id("g1"), &id("p1"), at(1000), at(0))
                .unwrap()
        );
        drop(journal);
        std::fs::write(&path, format!("garbage\n{whole}")).unwrap();
        let error = format!("{:#}", Journal::open(directory.path(), at(0)).unwrap_err());
        assert!(error.contains("line 1 is damaged"), "{error}");
    }

    #[test]
    fn two_executors_do_not_share_one() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path(), at(0)).unwrap();
        let error = Journal::open(directory.path(), at(0)).unwrap_err();
        assert!(error.to_string().contains("another executor"), "{error}");
        drop(journal);
        Journal::open(directory.path(), at(0)).unwrap();
    }

    #[test]
    fn what_a_failed_write_left_does_not_spoil_the_next_line() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path(), at(0)).unwrap();
        journal
            .begin(&id("g1"), &id("p1"), at(1000), at(0))
            .unwrap();
        let mut file = open(&directory.path().join("grants.journal")).unwrap();
        file.write_all(b"{\"begun\":{\"gra").unwrap();
        journal
            .begin(&id("g2"), &id("p2"), at(1000), at(0))
            .unwrap();
        drop(journal);
        let journal = Journal::open(directory.path(), at(0)).unwrap();
        assert!(journal.knows(&id("g1")) && journal.knows(&id("g2")));
    }

    #[test]
    fn what_nobody_knows_the_end_of_is_remembered_for_longer() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path(), at(0)).unwrap();
        for (grant, proposal) in [("g1", "p1"), ("g2", "p2")] {
            let begun = journal.begin(&id(grant), &id(proposal), at(1000), at(0));
            assert!(begun.unwrap());
        }
        journal.done(&id("g2")).unwrap();
        drop(journal);
        let journal = Journal::open(directory.path(), at(2000 + REMEMBERED_MS)).unwrap();
        assert_eq!(journal.unfinished().collect::<Vec<_>>(), [&id("p1")]);
        assert!(!journal.knows(&id("g2")));
        drop(journal);
        let journal = Journal::open(directory.path(), at(2000 + UNFINISHED_MS)).unwrap();
        assert_eq!(journal.unfinished().count(), 0);
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path(), at(0)).unwrap();
        // Writing ten thousand to disk takes long; that they are there is what counts.
        let old = (0..NOTED).map(|number| {
            let proposal = id(&format!("p{number}"));
            let spent = Spent {
                proposal,
                expires: at(1000),
                done: true,
            };
            (id(&format!("g{number}")), spent)
        });
        journal.spent.extend(old);
        let later = at(2000 + REMEMBERED_MS);
        journal
            .begin(&id("new"), &id("p"), later.plus_seconds(60), later)
            .unwrap();
        assert_eq!(journal.spent.len(), 1);
        drop(journal);
        let journal = Journal::open(directory.path(), later).unwrap();
        assert_eq!(journal.spent.keys().collect::<Vec<_>>(), [&id("new")]);
    }
}
