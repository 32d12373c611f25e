//! Visits simple commands and redirections, and tracks the directory that `cd` changes to.

use crate::source_text::SourceText;
use std::ops::Range;

use tree_sitter::Node;

use super::{
    MAX_COMMANDS, MAX_TREE_DEPTH, MAX_WORDS, Redirect, ShellFunction, SimpleCommand, SyntaxWalker,
};
use crate::lex::LineLayout;
use crate::paths::{PathRoot, ResolvedPath};
use crate::word::{ScanUntil, ShellWord, scan_word};

/// Characters that separate commands wherever they occur.
const OPERATORS: [char; 9] = ['\n', ';', '&', '|', '(', ')', '{', '}', '`'];

impl SyntaxWalker<'_> {
    /// Splits a line that cannot be parsed at every operator, so that patterns still see commands.
    pub(super) fn split_at_operators(&mut self, code: &str) {
        let mut start = 0;
        let mut joined_from = None;
        for piece in code.split(OPERATORS) {
            let span = start..start + piece.len();
            start = span.end + 1;
            self.add_fragment(code, span.clone());
            // A backslash before a line break continues the line, except in a comment.
            let begin = *joined_from.get_or_insert(span.start);
            let rest = self.source.part(span.end..);
            if !(piece.ends_with('\\') && rest.starts_with('\n')) {
                if begin < span.start {
                    self.add_fragment(code, begin..span.end);
                }
                joined_from = None;
            }
        }
    }

    fn add_fragment(&mut self, code: &str, span: Range<usize>) {
        let (words, _) = split_on_blanks(code.part(..span.end), span.clone());
        self.add_loose_command(words, span);
    }

    /// Adds the commands that the strict lexer found, including those that the parser found too,
    /// because the parser may have missed a `cd` before them.
    pub(super) fn add_strict_commands(&mut self, strict: &LineLayout) {
        for spans in &strict.commands {
            let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
                continue;
            };
            let words = spans
                .iter()
                .flat_map(|span| self.words_at(span.clone()))
                .collect();
            self.add_loose_command(words, first.start..last.end);
        }
    }

    /// Adds a command that may or may not run after the one before it.
    fn add_loose_command(&mut self, mut words: Vec<ShellWord>, span: Range<usize>) {
        if words.is_empty() {
            return;
        }
        let full = self.script.commands.len() >= MAX_COMMANDS;
        if full || words.len() > MAX_WORDS {
            self.mark_too_large("too long to parse");
        }
        if full {
            return;
        }
        words.truncate(MAX_WORDS);
        self.script.steps += 1;
        let command = SimpleCommand {
            words,
            assignments: Vec::new(),
            span,
            directories: self.directories.clone(),
            has_here_document: false,
        };
        self.apply_cd(&command);
        self.allow_for_failed_cd();
        if !self.script.commands.contains(&command) {
            self.script.commands.push(command);
        }
    }

    pub(super) fn visit_command(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let mut lines = PhysicalLines::default();
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            let span = self.span(child);
            match child.kind() {
                "variable_assignment" => {
                    let assignment = self.visit_assignment(child, depth, nesting);
                    lines
                        .line_for(self.source, &span)
                        .assignments
                        .extend(assignment);
                }
                "file_redirect" | "herestring_redirect" | "heredoc_redirect" | "ERROR" => {
                    lines.line_for(self.source, &span);
                    self.visit(child, depth, nesting);
                }
                "comment" => {}
                _ => {
                    self.visit_word(child, depth, nesting);
                    lines.line_for(self.source, &span).words.push(span);
                }
            }
        }
        let behind = self
            .trailing_words
            .iter()
            .filter(|(id, _)| *id == node.id());
        for span in behind.flat_map(|(_, spans)| spans.clone()) {
            lines.line_for(self.source, &span).words.push(span);
        }
        let whole = self.span(node);
        let alone = lines.lines.len() == 1;
        for line in lines.lines {
            let mut spans = self.join_continued_words(line.words);
            // The parser recognises only the first of several negations.
            let negations = spans
                .iter()
                .take_while(|span| self.source.part((*span).clone()) == "!");
            spans.drain(..negations.count());
            let words = spans
                .iter()
                .flat_map(|span| self.words_at(span.clone()))
                .collect();
            self.record_command(spans);
            let span = if alone { whole.clone() } else { line.span };
            self.add_command(span, words, line.assignments);
            if !alone {
                self.allow_for_failed_cd();
            }
        }
    }

    /// Records the words after redirections. In `rm >x -rf y` the parser takes them for more files
    /// to write to.
    pub(super) fn record_trailing_words(&mut self, statement: Node<'_>) {
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
            self.trailing_words.push((command.id(), spans));
        }
    }

    /// Joins a word that continues on the next line, which the parser sees as two.
    pub(super) fn join_continued_words(&self, spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
        let mut joined: Vec<Range<usize>> = Vec::new();
        for span in spans {
            match joined.last_mut() {
                Some(last) if is_line_continuation(self.source.get(last.end..span.start)) => {
                    last.end = span.end;
                }
                _ => joined.push(span),
            }
        }
        joined
    }

    fn add_command(
        &mut self,
        span: Range<usize>,
        mut words: Vec<ShellWord>,
        assignments: Vec<(String, ShellWord)>,
    ) {
        if words.len() > MAX_WORDS {
            words.truncate(MAX_WORDS);
            self.mark_too_large("has too many words to check");
        }
        let command = SimpleCommand {
            words,
            assignments,
            span,
            directories: self.directories.clone(),
            has_here_document: self.in_here_document,
        };
        self.apply_cd(&command);
        self.script.commands.push(command);
    }

    fn visit_assignment(
        &mut self,
        node: Node<'_>,
        depth: usize,
        nesting: usize,
    ) -> Option<(String, ShellWord)> {
        if !self.repeated_iteration {
            self.layout.assignments.push(self.span(node));
        }
        let name = node.child_by_field_name("name")?;
        if name.kind() != "variable_name" {
            self.add_doubt("assigns to a computed name");
        }
        let name = self.source.part(self.span(name)).to_owned();
        let value = match node.child_by_field_name("value") {
            Some(value) => {
                self.visit_word(value, depth, nesting);
                self.word_at(self.span(value))
            }
            None => ShellWord::literal(""),
        };
        Some((name, value))
    }

    /// Applies a `cd` to the commands that follow it.
    fn apply_cd(&mut self, command: &SimpleCommand) {
        let first = command.words.first().and_then(ShellWord::as_literal);
        if !matches!(first.as_deref(), Some("cd" | "pushd" | "chdir")) {
            return;
        }
        let operand = command.words[1..]
            .iter()
            .find(|word| !word.text().starts_with('-') || word.text() == "-");
        let moved = |directory: &ResolvedPath| match operand {
            None => ResolvedPath::new(PathRoot::Home),
            Some(word) if word.text() == "-" => ResolvedPath::new(PathRoot::Unknown),
            Some(word) if word.is_static() || word.text().starts_with("$HOME") => {
                directory.resolve(word)
            }
            Some(_) => ResolvedPath::new(PathRoot::Unknown),
        };
        let mut next: Vec<ResolvedPath> = Vec::new();
        for path in self.directories.iter().map(moved) {
            if !next.contains(&path) {
                next.push(path);
            }
        }
        let mut old = std::mem::replace(&mut self.directories, next);
        old.extend(self.directories_if_cd_fails.take().unwrap_or_default());
        self.directories_if_cd_fails = Some(old);
    }

    pub(super) fn visit_test(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let range = self.span(node);
        let (mut words, spans) = split_on_blanks(self.source, range.clone());
        words = words.into_iter().map(|it| self.with_bindings(it)).collect();
        // Here these are no patterns for file names.
        if let Some(first) = words.first_mut().filter(|it| it.text() == "[[") {
            *first = ShellWord::literal("[[");
        }
        self.record_command(spans);
        self.add_command(range, words, Vec::new());
        // Substitutions inside contain commands.
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            self.visit_substitutions(child, depth + 1, nesting);
        }
    }

    /// Visits the substitutions below a node and ignores everything else.
    fn visit_substitutions(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        self.script.steps += 1;
        if depth > MAX_TREE_DEPTH {
            return self.mark_too_large("nested too deeply to parse");
        }
        match node.kind() {
            "command_substitution" | "process_substitution" => self.visit(node, depth, nesting),
            "arithmetic_expansion" | "expansion" | "subscript" => {
                self.add_doubt("uses a computed value");
                self.visit_child_substitutions(node, depth, nesting);
            }
            _ => self.visit_child_substitutions(node, depth, nesting),
        }
    }

    fn visit_child_substitutions(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            self.visit_substitutions(child, depth + 1, nesting);
        }
    }

    pub(super) fn visit_declaration(&mut self, node: Node<'_>) {
        let (words, _) = split_on_blanks(self.source, self.span(node));
        self.add_command(self.span(node), words, Vec::new());
    }

    pub(super) fn visit_function(&mut self, node: Node<'_>) {
        let name = node.child_by_field_name("name");
        let body = node.child_by_field_name("body");
        if let (Some(name), Some(body)) = (name, body) {
            let name = self.source.part(self.span(name)).to_owned();
            let body = self.span(body);
            self.script.functions.push(ShellFunction { name, body });
        }
    }

    pub(super) fn visit_redirect(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let mut operator = String::new();
        let mut has_target = false;
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        for child in children {
            match child.kind() {
                "file_descriptor" => {}
                _ if has_target => self.visit_word(child, depth + 1, nesting),
                _ if !child.is_named() => operator.push_str(child.kind()),
                _ => {
                    has_target = true;
                    if !self.repeated_iteration {
                        self.layout.redirect_targets.push(self.span(child));
                    }
                    self.script.redirects.push(Redirect {
                        operator: operator.clone(),
                        target: self.word_at(self.span(child)),
                        span: self.span(node),
                        directories: self.directories.clone(),
                    });
                    self.visit_word(child, depth + 1, nesting);
                }
            }
        }
    }
}

/// What the parser takes for one command, split into lines, because it sometimes continues past a
/// line break, as in `a | b | c⏎rm x <y`.
#[derive(Default)]
struct PhysicalLines {
    lines: Vec<PhysicalLine>,
}

#[derive(Default)]
struct PhysicalLine {
    span: Range<usize>,
    words: Vec<Range<usize>>,
    assignments: Vec<(String, ShellWord)>,
}

impl PhysicalLines {
    /// The line that the next word belongs to.
    fn line_for(&mut self, source: &str, next: &Range<usize>) -> &mut PhysicalLine {
        let goes_on = |line: &PhysicalLine| !has_line_break(source.get(line.span.end..next.start));
        if !self.lines.last().is_some_and(goes_on) {
            self.lines.push(PhysicalLine {
                span: next.clone(),
                ..PhysicalLine::default()
            });
        }
        let at = self.lines.len() - 1;
        let line = &mut self.lines[at];
        line.span.end = line.span.end.max(next.end);
        line
    }
}

/// Whether a line ends between two words. A backslash removes a line break, but not in a comment.
fn has_line_break(between: Option<&str>) -> bool {
    between.is_some_and(|between| {
        between.contains('\n')
            && (between.contains('#') || between.replace("\\\n", "").contains('\n'))
    })
}

/// Whether only line breaks that are removed by backslashes come between two words.
fn is_line_continuation(between: Option<&str>) -> bool {
    between.is_some_and(|between| between.replace("\\\n", "").is_empty() && !between.is_empty())
}

fn split_on_blanks(source: &str, range: Range<usize>) -> (Vec<ShellWord>, Vec<Range<usize>>) {
    let text = source.part(..range.end);
    let mut at = range.start;
    let (mut words, mut spans) = (Vec::new(), Vec::new());
    while at < text.len() {
        let scan = scan_word(text, at, ScanUntil::Operator);
        if scan.end == at {
            at += text.part(at..).chars().next().map_or(1, char::len_utf8);
            continue;
        }
        spans.push(at..scan.end);
        words.push(scan.word);
        at = scan.end;
    }
    (words, spans)
}
