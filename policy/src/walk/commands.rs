//! Simple commands, with their redirections and the directory they leave behind.

use std::ops::Range;

use tree_sitter::Node;

use super::{Function, MAX_DEPTH, MOST_PARTS, MOST_WORDS, Part, Redirect, Walk};
use crate::lex::Layout;
use crate::place::{Path, Root};
use crate::word::{Until, Word, scan};

impl Walk<'_> {
    /// Takes a line that cannot be parsed apart at every operator, so that patterns see commands.
    pub(super) fn pieces(&mut self) {
        let mut start = 0;
        for piece in self
            .source
            .split(['\n', ';', '&', '|', '(', ')', '{', '}', '`'])
        {
            let span = start..start + piece.len();
            start = span.end + 1;
            let (words, _) = blank_separated(&self.source[..span.end], span.clone());
            self.loose(words, span);
        }
    }

    /// The commands that the strict reading saw. Also those that the parser saw: what it missed
    /// before them may be a `cd`.
    pub(super) fn commands_of(&mut self, strict: &Layout) {
        for spans in &strict.commands {
            let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
                continue;
            };
            let word =
                |span: &Range<usize>| scan(&self.source[..span.end], span.start, Until::End).word;
            let words = spans.iter().map(word).collect();
            self.loose(words, first.start..last.end);
        }
    }

    /// A command that may or may not run after the one before it.
    fn loose(&mut self, mut words: Vec<Word>, span: Range<usize>) {
        words.truncate(MOST_WORDS);
        if words.is_empty() || self.script.parts.len() >= MOST_PARTS {
            return;
        }
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
        let mut words = Vec::new();
        let mut spans = Vec::new();
        let mut assignments = Vec::new();
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            match child.kind() {
                "variable_assignment" => {
                    assignments.extend(self.assignment(child, depth, nesting));
                }
                "file_redirect" | "herestring_redirect" | "heredoc_redirect" => {
                    self.node(child, depth, nesting);
                }
                _ => {
                    spans.push(child.byte_range());
                    words.push(self.word(child));
                    self.descend(child, depth, nesting);
                }
            }
        }
        self.record_command(spans);
        self.part(node, words, assignments);
    }

    fn part(&mut self, node: Node<'_>, mut words: Vec<Word>, assignments: Vec<(String, Word)>) {
        if words.len() > MOST_WORDS {
            words.truncate(MOST_WORDS);
            self.opaque("has more words than can be overseen");
        }
        let part = Part {
            words,
            assignments,
            span: node.byte_range(),
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
            self.layout.assignments.push(node.byte_range());
        }
        let name = node.child_by_field_name("name")?;
        if name.kind() != "variable_name" {
            self.doubt("assigns to a computed name");
        }
        let name = self.source[name.byte_range()].to_owned();
        let value = match node.child_by_field_name("value") {
            Some(value) => {
                self.descend(value, depth, nesting);
                self.word(value)
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
        let range = node.byte_range();
        let (words, spans) = blank_separated(self.source, range.clone());
        self.record_command(spans);
        self.part(node, words, Vec::new());
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
        let (words, _) = blank_separated(self.source, node.byte_range());
        self.part(node, words, Vec::new());
    }

    pub(super) fn function(&mut self, node: Node<'_>) {
        let name = node.child_by_field_name("name");
        let body = node.child_by_field_name("body");
        if let (Some(name), Some(body)) = (name, body) {
            let name = self.source[name.byte_range()].to_owned();
            let body = body.byte_range();
            self.script.functions.push(Function { name, body });
        }
    }

    pub(super) fn redirect(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let mut operator = String::new();
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        for child in children {
            match child.kind() {
                "file_descriptor" => {}
                _ if !child.is_named() => operator.push_str(child.kind()),
                _ => {
                    if !self.again {
                        self.layout.targets.push(child.byte_range());
                    }
                    self.script.redirects.push(Redirect {
                        operator: operator.clone(),
                        target: self.word(child),
                        span: node.byte_range(),
                        bases: self.bases.clone(),
                    });
                    self.descend(child, depth + 1, nesting);
                }
            }
        }
    }
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
