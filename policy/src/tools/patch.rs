//! Finds the files that the text of a patch names, in the form of `apply_patch` and as a diff.

/// A file that a patch names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PatchedFile<'a> {
    pub(super) path: &'a str,
    pub(super) change: PatchChange,
}

/// What a patch does to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PatchChange {
    Changed,
    Deleted,
}

/// Lines that name a file, in the form of `apply_patch`.
const HEADERS: &[(&str, PatchChange)] = &[
    ("*** Add File:", PatchChange::Changed),
    ("*** Update File:", PatchChange::Changed),
    ("*** Delete File:", PatchChange::Deleted),
    ("*** Move to:", PatchChange::Changed),
    ("*** Move File:", PatchChange::Changed),
    ("rename from ", PatchChange::Deleted),
    ("rename to ", PatchChange::Changed),
    ("copy to ", PatchChange::Changed),
];

/// Every file that a patch names, or `None` if the text is no patch or names a file in a way that is
/// not understood. Lines of content that look like names count too: better one too many.
pub(super) fn files(text: &str) -> Option<Vec<PatchedFile<'_>>> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        let trimmed = line.trim();
        let header = HEADERS
            .iter()
            .find_map(|(start, change)| Some((trimmed.strip_prefix(start)?, *change)));
        if let Some((path, change)) = header {
            found.push(PatchedFile {
                path: plain_path(path)?,
                change,
            });
        }
        let after = lines.get(number + 1).copied().unwrap_or_default();
        if let (Some(old), Some(new)) = (line.strip_prefix("--- "), after.strip_prefix("+++ ")) {
            found.extend(file_of_diff(old, new)?);
        }
    }
    found.sort_unstable();
    found.dedup();
    (!found.is_empty()).then_some(found)
}

/// The files of a diff's two lines: the new one, and the old one if the new one is none.
fn file_of_diff<'a>(old: &'a str, new: &'a str) -> Option<Vec<PatchedFile<'a>>> {
    let old = diffed_path(old, "a/")?;
    let new = diffed_path(new, "b/")?;
    let mut files = Vec::new();
    if new != "/dev/null" {
        files.push(PatchedFile {
            path: new,
            change: PatchChange::Changed,
        });
    }
    if old != "/dev/null" && old != new {
        files.push(PatchedFile {
            path: old,
            change: match new {
                "/dev/null" => PatchChange::Deleted,
                _ => PatchChange::Changed,
            },
        });
    }
    Some(files)
}

fn diffed_path<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    // A time may follow behind a tab.
    let path = plain_path(text.split('\t').next().unwrap_or_default())?;
    Some(path.strip_prefix(prefix).unwrap_or(path))
}

/// A path that is written as it is. Names in quotes have escapes in them.
fn plain_path(text: &str) -> Option<&str> {
    let path = text.trim();
    (!path.is_empty() && !path.starts_with('"')).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Option<Vec<(&str, PatchChange)>> {
        let files = files(text)?;
        Some(files.iter().map(|it| (it.path, it.change)).collect())
    }

    #[test]
    fn both_forms_name_their_files() {
        use PatchChange::{Changed, Deleted};
        let text = "*** Begin Patch\n*** Add File: a b.rs\n+x\n*** Update File: c.rs\n*** Move to: \
                    d/e.rs\n@@\n-x\n+y\n*** Delete File: f.rs\n*** End Patch\n";
        let expected = vec![
            ("a b.rs", Changed),
            ("c.rs", Changed),
            ("d/e.rs", Changed),
            ("f.rs", Deleted),
        ];
        assert_eq!(named(text), Some(expected));
        let text = "diff --git a/x.rs b/x.rs\n--- a/x.rs\t2026-01-01\n+++ b/x.rs\n@@ -1 +1 @@\n-a\n\
                    +b\n--- a/old\n+++ /dev/null\n--- /dev/null\n+++ b/new\n";
        let expected = vec![("new", Changed), ("old", Deleted), ("x.rs", Changed)];
        assert_eq!(named(text), Some(expected));
        let crlf = "*** Begin Patch\r\n*** Update File: a.rs\r\n*** End Patch\r\n";
        assert_eq!(named(crlf), Some(vec![("a.rs", Changed)]));
        assert_eq!(crate::patched_paths(crlf), ["a.rs"]);
    }

    #[test]
    fn what_is_no_patch_names_nothing() {
        for text in [
            "",
            "x",
            "*** Update File: ",
            "--- \"a/\\303\"\n+++ \"b/\\303\"\n",
        ] {
            assert_eq!(named(text), None, "{text}");
            assert!(crate::patched_paths(text).is_empty(), "{text}");
        }
    }
}
