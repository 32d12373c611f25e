//! Compares two texts line by line, in a bounded amount of work and without a clock, so that the
//! same texts give the same result anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Serialize;
use similar::{Algorithm, DiffOp, DiffTag, capture_diff, group_diff_ops};

use super::text::TextBudget;

/// Unchanged lines shown around a change.
const CONTEXT_LINES: usize = 3;

/// Maximum number of lines that are compared one by one, between what both texts begin and end
/// with. Longer texts are shown as replaced as a whole, which is true as well.
const MAX_COMPARED_LINES: usize = 4000;

/// What happens to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffLineKind {
    Context,
    Added,
    Removed,
}

/// One line of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiffLine {
    pub kind: DiffLineKind,
    /// The line with invisible characters escaped. In a changed line, spaces at the end are shown
    /// as `·` and tabs there as `→`.
    pub text: String,
    /// The text ends with this line, without a line feed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_newline: bool,
}

/// A change with the lines around it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiffHunk {
    /// Which change it is, if there are several; `None` if the position says enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The number of its first line in the old text; `None` if that is unknown.
    pub old_start: Option<u64>,
    /// The number of its first line in the new text; `None` if that is unknown.
    pub new_start: Option<u64>,
    /// Its lines.
    pub lines: Vec<DiffLine>,
}

impl DiffHunk {
    /// The line above a hunk, in the form that diff programs use.
    pub fn header(&self) -> String {
        let count = |other: DiffLineKind| {
            let lines = self.lines.iter();
            lines.filter(|line| line.kind != other).count()
        };
        let (old, new) = (count(DiffLineKind::Added), count(DiffLineKind::Removed));
        let place = match (self.old_start, self.new_start) {
            (Some(from), Some(to)) => Some(format!("-{from},{old} +{to},{new}")),
            _ => None,
        };
        let parts = [place, self.title.clone()];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        match parts.as_slice() {
            [] => "@@".to_owned(),
            parts => format!("@@ {} @@", parts.join(", ")),
        }
    }
}

/// What the compared texts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiffScope {
    /// Whole files: whether the last line ends with a line feed matters.
    WholeFile,
    /// Parts of a file: that a part does not end with a line feed says nothing.
    Fragment,
}

/// The hunks of a comparison, and how many lines they add and remove.
pub(super) struct LineDiff {
    pub(super) hunks: Vec<DiffHunk>,
    pub(super) added: u64,
    pub(super) removed: u64,
    /// Lines that are in both texts.
    pub(super) unchanged: u64,
}

/// Compares two texts. What the budget has no room for is counted there.
pub(super) fn compare(old: &str, new: &str, scope: DiffScope, budget: &mut TextBudget) -> LineDiff {
    let (old_lines, new_lines) = (lines_of(old), lines_of(new));
    let ops = edit_script(&old_lines, &new_lines);
    let count = |changed: fn(&DiffOp) -> Range<usize>| {
        let changes = ops.iter().filter(|op| op.tag() != DiffTag::Equal);
        changes.map(|op| changed(op).len() as u64).sum()
    };
    let (added, removed) = (count(DiffOp::new_range), count(DiffOp::old_range));
    let both_have_text = !old.is_empty() && !new.is_empty();
    let marks_newline = match scope {
        DiffScope::WholeFile => true,
        DiffScope::Fragment => both_have_text && old.ends_with('\n') != new.ends_with('\n'),
    };
    let context = match scope {
        DiffScope::WholeFile => CONTEXT_LINES,
        // All of it is an argument of the call, so nothing of it is left out.
        DiffScope::Fragment => old_lines.len().max(new_lines.len()),
    };
    let groups = group_diff_ops(ops, context).into_iter();
    let groups = groups.filter(|ops| ops.iter().any(|op| op.tag() != DiffTag::Equal));
    let mut renderer = HunkRenderer {
        old: &old_lines,
        new: &new_lines,
        marks_newline,
        budget,
    };
    let hunks = groups.map(|ops| renderer.hunk(&ops));
    LineDiff {
        hunks: hunks.filter(|hunk| !hunk.lines.is_empty()).collect(),
        unchanged: new_lines.len() as u64 - added,
        added,
        removed,
    }
}

/// The lines of a text, each with its line feed.
fn lines_of(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// How the old lines become the new ones.
fn edit_script(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    let mut numbers = BTreeMap::new();
    let mut number_lines = |lines: &[&str]| -> Vec<usize> {
        let numbered = lines.iter().map(|&line| {
            let next = numbers.len();
            *numbers.entry(line.to_owned()).or_insert(next)
        });
        numbered.collect()
    };
    let (old, new) = (number_lines(old), number_lines(new));
    let same = |(a, b): &(&usize, &usize)| a == b;
    let prefix = old.iter().zip(&new).take_while(same).count();
    let (old_rest, new_rest) = (&old[prefix..], &new[prefix..]);
    let ends = old_rest.iter().rev().zip(new_rest.iter().rev());
    let suffix = ends.take_while(same).count();
    let (old_end, new_end) = (old.len() - suffix, new.len() - suffix);
    let mut ops = Vec::new();
    if prefix > 0 {
        ops.push(equal(0, 0, prefix));
    }
    ops.extend(changed_lines(&old, prefix..old_end, &new, prefix..new_end));
    if suffix > 0 {
        ops.push(equal(old_end, new_end, suffix));
    }
    ops
}

fn equal(old_index: usize, new_index: usize, len: usize) -> DiffOp {
    DiffOp::Equal {
        old_index,
        new_index,
        len,
    }
}

/// How the lines between the common beginning and the common end change.
fn changed_lines(
    old: &[usize],
    old_range: Range<usize>,
    new: &[usize],
    new_range: Range<usize>,
) -> Vec<DiffOp> {
    let (old_index, new_index) = (old_range.start, new_range.start);
    let (old_len, new_len) = (old_range.len(), new_range.len());
    match (old_len, new_len) {
        (0, 0) => Vec::new(),
        (_, 0) => vec![DiffOp::Delete {
            old_index,
            old_len,
            new_index,
        }],
        (0, _) => vec![DiffOp::Insert {
            old_index,
            new_index,
            new_len,
        }],
        _ if old_len.max(new_len) > MAX_COMPARED_LINES => vec![DiffOp::Replace {
            old_index,
            old_len,
            new_index,
            new_len,
        }],
        _ => capture_diff(Algorithm::Myers, old, old_range, new, new_range),
    }
}

/// Makes the lines of hunks fit to be shown.
struct HunkRenderer<'a> {
    old: &'a [&'a str],
    new: &'a [&'a str],
    marks_newline: bool,
    budget: &'a mut TextBudget,
}

impl HunkRenderer<'_> {
    fn hunk(&mut self, ops: &[DiffOp]) -> DiffHunk {
        let first = |range: Range<usize>| match range.len() {
            // As in other diffs, an empty range is named by the line before it.
            0 => range.start as u64,
            _ => range.start as u64 + 1,
        };
        let span = |side: fn(&DiffOp) -> Range<usize>| {
            let start = ops.first().map_or(0, |op| side(op).start);
            start..ops.last().map_or(0, |op| side(op).end)
        };
        let blanks = self.has_whitespace_changes(ops);
        let mut lines = Vec::new();
        for op in ops {
            let (tag, old, new) = op.as_tag_tuple();
            if tag == DiffTag::Equal {
                self.push(&mut lines, DiffLineKind::Context, &self.new[new], false);
                continue;
            }
            self.push(&mut lines, DiffLineKind::Removed, &self.old[old], blanks);
            self.push(&mut lines, DiffLineKind::Added, &self.new[new], blanks);
        }
        DiffHunk {
            title: None,
            old_start: Some(first(span(DiffOp::old_range))),
            new_start: Some(first(span(DiffOp::new_range))),
            lines,
        }
    }

    /// Whether lines change that differ in nothing but white space, so that tabs must be told from
    /// spaces.
    fn has_whitespace_changes(&self, ops: &[DiffOp]) -> bool {
        let words = |line: &str| line.split_whitespace().collect::<String>();
        let changes = || ops.iter().filter(|op| op.tag() != DiffTag::Equal);
        let removed = changes().flat_map(|op| &self.old[op.old_range()]);
        let removed: BTreeSet<_> = removed.map(|line| words(line)).collect();
        let mut added = changes().flat_map(|op| &self.new[op.new_range()]);
        added.any(|line| removed.contains(&words(line)))
    }

    fn push(
        &mut self,
        lines: &mut Vec<DiffLine>,
        kind: DiffLineKind,
        texts: &[&str],
        blanks: bool,
    ) {
        for text in texts {
            let line = text.strip_suffix('\n').unwrap_or(text);
            let Some(shown) = self.budget.take_line(line) else {
                continue;
            };
            let shown = match kind {
                DiffLineKind::Context => shown,
                DiffLineKind::Added | DiffLineKind::Removed => mark_blanks(&shown, blanks),
            };
            lines.push(DiffLine {
                kind,
                text: shown,
                no_newline: self.marks_newline && !text.ends_with('\n'),
            });
        }
    }
}

/// Makes white space at the end of a line visible, and with `all_tabs` every tab.
fn mark_blanks(line: &str, all_tabs: bool) -> String {
    let words = line.trim_end_matches([' ', '\t']);
    let mark = |c: char| if c == ' ' { '·' } else { '→' };
    let end = line[words.len()..].chars().map(mark);
    match all_tabs {
        true => words.replace('\t', "→\t") + &end.collect::<String>(),
        false => words.to_owned() + &end.collect::<String>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunks(old: &str, new: &str, scope: DiffScope) -> Vec<String> {
        let mut budget = TextBudget::new(1 << 20);
        let diff = compare(old, new, scope, &mut budget);
        assert_eq!(budget.cut_bytes, 0);
        let mut shown = Vec::new();
        for hunk in diff.hunks {
            shown.push(hunk.header());
            for line in hunk.lines {
                let mark = match line.kind {
                    DiffLineKind::Context => ' ',
                    DiffLineKind::Added => '+',
                    DiffLineKind::Removed => '-',
                };
                let end = if line.no_newline { "⏚" } else { "" };
                shown.push(format!("{mark}{}{end}", line.text));
            }
        }
        shown
    }

    fn numbered(lines: Range<usize>) -> String {
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn a_change_is_shown_with_the_lines_around_it() {
        let old = numbered(1..20);
        let new = old.replace("\n10\n", "\nten\nelf\n");
        assert_eq!(
            hunks(&old, &new, DiffScope::WholeFile),
            [
                "@@ -7,7 +7,8 @@",
                " 7",
                " 8",
                " 9",
                "-10",
                "+ten",
                "+elf",
                " 11",
                " 12",
                " 13"
            ]
        );
        assert!(hunks(&old, &old, DiffScope::WholeFile).is_empty());
    }

    #[test]
    fn changes_of_white_space_and_line_ends_are_visible() {
        let whole = |old, new| hunks(old, new, DiffScope::WholeFile);
        assert_eq!(whole("a\n", "a \t\n")[1..], ["-a", "+a·→"]);
        assert_eq!(whole("a\n", "a\r\n")[1..], ["-a", r"+a\u{d}"]);
        assert_eq!(whole("a\n", "a")[1..], ["-a", "+a⏚"]);
        assert_eq!(whole("\ta\n", "        a\n")[1..], ["-→\ta", "+        a"]);
        assert_eq!(whole("\ta\n", "\tb\n")[1..], ["-\ta", "+\tb"]);
        assert_eq!(
            whole("a\u{202e}\n", "\u{1b}\n")[1..],
            [r"-a\u{202e}", r"+\u{1b}"]
        );
    }

    #[test]
    fn a_fragment_that_ends_within_a_line_is_no_change_of_the_line_end() {
        let part = |old, new| hunks(old, new, DiffScope::Fragment);
        assert_eq!(part("foo(", "bar(")[1..], ["-foo(", "+bar("]);
        assert_eq!(part("a\nb", "a\nc")[1..], [" a", "-b", "+c"]);
        assert_eq!(part("a\n", "a")[1..], ["-a", "+a⏚"]);
        assert_eq!(part("", "a")[1..], ["+a"]);
    }

    #[test]
    fn hostile_texts_take_bounded_work() {
        // Neither text has a line twice in the same order, which is the worst case of a comparison.
        let old: String = (0..MAX_COMPARED_LINES)
            .map(|n| format!("{}\n", n * 7919 % 4001))
            .collect();
        let new: String = (0..MAX_COMPARED_LINES)
            .map(|n| format!("{}\n", n * 104_729 % 4001))
            .collect();
        let mut budget = TextBudget::new(1 << 20);
        let diff = compare(&old, &new, DiffScope::WholeFile, &mut budget);
        assert!(diff.added > 1000);
        let longer = format!("{old}{new}");
        let diff = compare(
            &longer,
            &numbered(1..9001),
            DiffScope::WholeFile,
            &mut budget,
        );
        assert_eq!(
            (diff.added, diff.removed),
            (9000, 8000),
            "replaced as a whole"
        );
    }

    #[test]
    fn lines_without_room_are_counted() {
        let mut budget = TextBudget::new(10);
        let diff = compare("", &"abcd\n".repeat(5), DiffScope::WholeFile, &mut budget);
        assert_eq!(diff.added, 5);
        assert_eq!(diff.hunks[0].lines.len(), 2);
        assert!(budget.cut_bytes >= 12, "{}", budget.cut_bytes);
    }
}
