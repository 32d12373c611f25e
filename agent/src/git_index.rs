//! Reads which content of a file git's index has, without running git: in a repository that an agent
//! may have changed, git runs what the repository configures.

use std::collections::BTreeMap;
use std::path::Path;

use sha1::{Digest as _, Sha1};

/// The largest index that is read.
const MAX_INDEX_BYTES: u64 = 64 * 1024 * 1024;

/// The size of an entry before its name: times, ids, mode, owner, size, hash and flags.
const FIXED_BYTES: usize = 62;

/// The hashes of the files that git has, by their path from the top of the repository.
pub(crate) fn read(repository: &Path) -> Option<BTreeMap<String, [u8; 20]>> {
    let path = repository.join(".git/index");
    if std::fs::metadata(&path).ok()?.len() > MAX_INDEX_BYTES {
        return None;
    }
    parse(&std::fs::read(path).ok()?)
}

/// The hash that git gives to a file with this content.
pub(crate) fn content_hash(content: &[u8]) -> [u8; 20] {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", content.len()));
    hasher.update(content);
    hasher.finalize().into()
}

/// The entries of an index of version 2, 3 or 4; `None` if it is anything else.
fn parse(bytes: &[u8]) -> Option<BTreeMap<String, [u8; 20]>> {
    let number = |at: usize| -> Option<u32> {
        let bytes = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    let version = number(4)?;
    if bytes.get(..4)? != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let mut entries = BTreeMap::new();
    let mut at = 12;
    let mut previous: Vec<u8> = Vec::new();
    for _ in 0..number(8)? {
        let hash: [u8; 20] = bytes.get(at + 40..at + 60)?.try_into().ok()?;
        let extended = bytes.get(at + 60)? & 0x40 != 0;
        let mut name_at = at + FIXED_BYTES + if extended { 2 } else { 0 };
        let mut name = Vec::new();
        if version == 4 {
            let (dropped, after) = variable_number(bytes, name_at)?;
            name.extend_from_slice(previous.get(..previous.len().checked_sub(dropped)?)?);
            name_at = after;
        }
        let rest = bytes.get(name_at..)?;
        let length = rest.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(&rest[..length]);
        at = match version {
            4 => name_at + length + 1,
            // Up to eight zero bytes fill an entry up to a multiple of eight.
            _ => at + (name_at - at + length + 8) / 8 * 8,
        };
        entries.insert(String::from_utf8_lossy(&name).into_owned(), hash);
        previous = name;
    }
    Some(entries)
}

/// A number in as many bytes as it needs, and the position behind it.
fn variable_number(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut position = at;
    let mut value: usize = 0;
    loop {
        let byte = *bytes.get(position)?;
        position += 1;
        value = value
            .checked_mul(128)?
            .checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some((value, position));
        }
        value = value.checked_add(1)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn repository(version: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("src")).unwrap();
        for name in ["a.txt", "src/main.rs", "src/main_test.rs"] {
            std::fs::write(directory.path().join(name), name).unwrap();
        }
        for arguments in [
            vec!["init", "-q"],
            vec!["add", "."],
            vec!["update-index", "--index-version", version],
        ] {
            let status = Command::new("git")
                .args(arguments)
                .current_dir(directory.path())
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap())
                .status();
            assert!(status.unwrap().success());
        }
        directory
    }

    #[test]
    fn the_index_says_which_content_git_has() {
        for version in ["2", "4"] {
            let repository = repository(version);
            let index = read(repository.path()).unwrap();
            let names: Vec<_> = index.keys().map(String::as_str).collect();
            assert_eq!(names, ["a.txt", "src/main.rs", "src/main_test.rs"]);
            for (name, hash) in &index {
                assert_eq!(*hash, content_hash(name.as_bytes()), "{name}");
            }
        }
    }

    #[test]
    fn a_damaged_index_is_no_index() {
        let repository = repository("2");
        let bytes = std::fs::read(repository.path().join(".git/index")).unwrap();
        for length in 0..bytes.len() - 20 {
            let entries = parse(&bytes[..length]).map_or(0, |entries| entries.len());
            assert!(entries == 0 || length >= 12 + 3 * 64, "{length}");
        }
        assert_eq!(parse(b"DIRC\0\0\0\x02\xff\xff\xff\xff"), None);
    }
}
