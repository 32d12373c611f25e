//! Simple commands, with their redirections and the directory they leave behind.

use std::ops::Range;

use tree_sitter::Node;

use super::{Function, MAX_DEPTH, MOST_PARTS, MOST_WORDS, Part, Redirect, Walk};
use crate::lex::Layout;
use crate::place::{Path, Root};
use crate::word::{Until, Word, scan};

/// What separates commands wherever it stands.
const OPERATORS: [char; 9] = ['\n', ';', '&', '|', '(', ')', '{', '}', '`'];

impl Walk<'_> {
    /// Takes a line that cannot be parsed apart at every operator, so that patterns see commands.
    pub(super) fn pieces(&mut self) {
        let mut start = 0;
        let mut joined_from = None;
        for piece in self.source.split(OPERATORS) {
            let span = start..start + piece.len();
            start = span.end + 1;
            self.piece(span.clone());
            // Where a backslash takes a break away, the line goes on; in a comment it does not.
            let begin = *joined_from.get_or_insert(span.start);
            let rest = &self.source[span.end..];
            if !(piece.ends_with('\\') && rest.starts_with('\n')) {
                if begin < span.start {
                    self.piece(begin..span.end);
                }
                joined_from = None;
            }
        }
    }

    fn piece(&mut self, span: Range<usize>) {
        let (words, _) = blank_separated(&self.source[..span.end], span.clone());
        self.loose(words, span);
    }

    /// The commands that the strict reading saw. Also those that the parser saw: what it missed
    /// before them may be a `cd`.
    pub(super) fn commands_of(&mut self, strict: &Layout) {
        for spans in &strict.commands {
            let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
                continue;
            };
            let words = spans.iter().map(|span| self.word(span.clone())).collect();
            self.loose(words, first.start..last.end);
        }
    }

    /// A command that may or may not run after the one before it.
    fn loose(&mut self, mut words: Vec<Word>, span: Range<usize>) {
        if words.is_empty() {
            return;
        }
        let full = self.script.parts.len() >= MOST_PARTS;
        if full || words.len() > MOST_WORDS {
            self.opaque("too long to take apart");
        }
        if full {
            return;
        }
        words.truncate(MOST_WORDS);
        self.script.steps += 1;
        let part = Part {
            words,
            assignments: Vec::new(),
            span,
            bases: self.bases.clone(),
            here_document: false,
        };
        self.change_directory(&part);
        self.settle();
        if !self.script.parts.contains(&part) {
            self.script.parts.push(part);
        }
    }

    pub(super) fn command(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let mut lines = Lines::default();
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            let span = self.span(child);
            match child.kind() {
                "variable_assignment" => {
                    let assignment = self.assignment(child, depth, nesting);
                    lines
                        .line(self.source, &span)
                        .assignments
                        .extend(assignment);
                }
                "file_redirect" | "herestring_redirect" | "heredoc_redirect" | "ERROR" => {
                    lines.line(self.source, &span);
                    self.node(child, depth, nesting);
                }
                "comment" => {}
                _ => {
                    self.descend(child, depth, nesting);
                    lines.line(self.source, &span).words.push(span);
                }
            }
        }
        let behind = self.trailing.iter().filter(|(id, _)| *id == node.id());
        for span in behind.flat_map(|(_, spans)| spans.clone()) {
            lines.line(self.source, &span).words.push(span);
        }
        let whole = self.span(node);
        let alone = lines.lines.len() == 1;
        for line in lines.lines {
            let mut spans = self.joined(line.words);
            // The parser knows only the first of several.
            let negations = spans
                .iter()
                .take_while(|span| &self.source[(*span).clone()] == "!");
            spans.drain(..negations.count());
            let words = spans.iter().map(|span| self.word(span.clone())).collect();
            self.record_command(spans);
            let span = if alone { whole.clone() } else { line.span };
            self.part(span, words, line.assignments);
            if !alone {
                self.settle();
            }
        }
    }

    /// Notes the words behind redirections: in `rm >x -rf y` the parser takes them for more files
    /// to write to.
    pub(super) fn trail(&mut self, statement: Node<'_>) {
        let mut spans = Vec::new();
        let mut cursor = statement.walk();
        for child in statement.named_children(&mut cursor) {
            let mut cursor = child.walk();
            match child.kind() {
                "file_redirect" => {
                    let words = child.children_by_field_name("destination", &mut cursor);
                    spans.extend(words.skip(1).map(|word| self.span(word)));
                }
                "heredoc_redirect" => {
                    let words = child.children_by_field_name("argument", &mut cursor);
                    spans.extend(words.map(|word| self.span(word)));
                }
                _ => {}
            }
        }
        let mut body = statement.child_by_field_name("body");
        while let Some(node) = body.filter(|node| node.kind() != "command") {
            let last = u32::try_from(node.named_child_count()).unwrap_or(0);
            body = last.checked_sub(1).and_then(|last| node.named_child(last));
        }
        if let (false, Some(command)) = (spans.is_empty(), body) {
            self.trailing.push((command.id(), spans));
        }
    }

    /// The parser sees two words in one that goes on in the next line.
    pub(super) fn joined(&self, spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
        let mut joined: Vec<Range<usize>> = Vec::new();
        for span in spans {
            match joined.last_mut() {
                Some(last) if is_joint(self.source.get(last.end..span.start)) => {
                    last.end = span.end;
                }
                _ => joined.push(span),
            }
        }
        joined
    }

    fn part(&mut self, span: Range<usize>, mut words: Vec<Word>, assignments: Vec<(String, Word)>) {
        if words.len() > MOST_WORDS {
            words.truncate(MOST_WORDS);
            self.opaque("has more words than can be overseen");
        }
        let part = Part {
            words,
            assignments,
            span,
            bases: self.bases.clone(),
            here_document: self.here_document,
        };
        self.change_directory(&part);
        self.script.parts.push(part);
    }

    fn assignment(
        &mut self,
        node: Node<'_>,
        depth: usize,
        nesting: usize,
    ) -> Option<(String, Word)> {
        if !self.again {
            self.layout.assignments.push(self.span(node));
        }
        let name = node.child_by_field_name("name")?;
        if name.kind() != "variable_name" {
            self.doubt("assigns to a computed name");
        }
        let name = self.source[self.span(name)].to_owned();
        let value = match node.child_by_field_name("value") {
            Some(value) => {
                self.descend(value, depth, nesting);
                self.word(self.span(value))
            }
            None => Word::literal(""),
        };
        Some((name, value))
    }

    /// `cd` moves what follows it.
    fn change_directory(&mut self, part: &Part) {
        let first = part.words.first().and_then(Word::as_literal);
        if !matches!(first.as_deref(), Some("cd" | "pushd" | "chdir")) {
            return;
        }
        let operand = part.words[1..]
            .iter()
            .find(|word| !word.text().starts_with('-') || word.text() == "-");
        let moved = |base: &Path| match operand {
            None => Path::new(Root::Home),
            Some(word) if word.text() == "-" => Path::new(Root::Unknown),
            Some(word) if word.is_known() || word.text().starts_with("$HOME") => base.resolve(word),
            Some(_) => Path::new(Root::Unknown),
        };
        let mut next: Vec<Path> = Vec::new();
        for path in self.bases.iter().map(moved) {
            if !next.contains(&path) {
                next.push(path);
            }
        }
        let mut old = std::mem::replace(&mut self.bases, next);
        old.extend(self.fallback.take().unwrap_or_default());
        self.fallback = Some(old);
    }

    pub(super) fn test(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let range = self.span(node);
        let (words, spans) = blank_separated(self.source, range.clone());
        self.record_command(spans);
        self.part(range, words, Vec::new());
        // Substitutions inside are commands of their own.
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            self.search(child, depth + 1, nesting);
        }
    }

    /// Walks down to substitutions without judging what is around them.
    fn search(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        self.script.steps += 1;
        if depth > MAX_DEPTH {
            return self.opaque("too deep to take apart");
        }
        match node.kind() {
            "command_substitution" | "process_substitution" => self.node(node, depth, nesting),
            "arithmetic_expansion" | "expansion" | "subscript" => {
                self.doubt("uses a computed value");
                self.search_children(node, depth, nesting);
            }
            _ => self.search_children(node, depth, nesting),
        }
    }

    fn search_children(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            self.search(child, depth + 1, nesting);
        }
    }

    pub(super) fn declaration(&mut self, node: Node<'_>) {
        let (words, _) = blank_separated(self.source, self.span(node));
        self.part(self.span(node), words, Vec::new());
    }

    pub(super) fn function(&mut self, node: Node<'_>) {
        let name = node.child_by_field_name("name");
        let body = node.child_by_field_name("body");
        if let (Some(name), Some(body)) = (name, body) {
            let name = self.source[self.span(name)].to_owned();
            let body = self.span(body);
            self.script.functions.push(Function { name, body });
        }
    }

    pub(super) fn redirect(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let mut operator = String::new();
        let mut has_target = false;
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        for child in children {
            match child.kind() {
                "file_descriptor" => {}
                _ if has_target => self.descend(child, depth + 1, nesting),
                _ if !child.is_named() => operator.push_str(child.kind()),
                _ => {
                    has_target = true;
                    if !self.again {
                        self.layout.targets.push(self.span(child));
                    }
                    self.script.redirects.push(Redirect {
                        operator: operator.clone(),
                        target: self.word(self.span(child)),
                        span: self.span(node),
                        bases: self.bases.clone(),
                    });
                    self.descend(child, depth + 1, nesting);
                }
            }
        }
    }
}

/// What the parser takes for one command, line by line: now and then it goes on over a line break,
/// as in `a | b | c⏎rm x <y`.
#[derive(Default)]
struct Lines {
    lines: Vec<Line>,
}

#[derive(Default)]
struct Line {
    span: Range<usize>,
    words: Vec<Range<usize>>,
    assignments: Vec<(String, Word)>,
}

impl Lines {
    /// The line that what is next belongs to.
    fn line(&mut self, source: &str, next: &Range<usize>) -> &mut Line {
        let goes_on = |line: &Line| !has_break(source.get(line.span.end..next.start));
        if !self.lines.last().is_some_and(goes_on) {
            self.lines.push(Line {
                span: next.clone(),
                ..Line::default()
            });
        }
        let at = self.lines.len() - 1;
        let line = &mut self.lines[at];
        line.span.end = line.span.end.max(next.end);
        line
    }
}

/// Whether a line ends between two words. A backslash takes a break away, but not in a comment.
fn has_break(between: Option<&str>) -> bool {
    between.is_some_and(|between| {
        between.contains('\n')
            && (between.contains('#') || between.replace("\\\n", "").contains('\n'))
    })
}

/// Whether there is nothing between two words but breaks that backslashes take away.
fn is_joint(between: Option<&str>) -> bool {
    between.is_some_and(|between| between.replace("\\\n", "").is_empty() && !between.is_empty())
}

fn blank_separated(source: &str, range: Range<usize>) -> (Vec<Word>, Vec<Range<usize>>) {
    let text = &source[..range.end];
    let mut at = range.start;
    let (mut words, mut spans) = (Vec::new(), Vec::new());
    while at < text.len() {
        let scan = scan(text, at, Until::Operator);
        if scan.end == at {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        }
        spans.push(at..scan.end);
        words.push(scan.word);
        at = scan.end;
    }
    (words, spans)
}
