//! Visits loops and case statements, and binds the variables that loops set.

use std::ops::Range;

use tree_sitter::Node;

use super::SyntaxWalker;
use crate::lex;
use crate::public_variables::check_text;
use crate::source_text::SourceText;
use crate::word::{ShellWord, WordPart};

/// How many values of a loop are substituted one by one.
const MAX_LOOP_VALUES: usize = 16;

impl SyntaxWalker<'_> {
    pub(super) fn visit_for_loop(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let variable = node.child_by_field_name("variable");
        let name = variable.map_or("", |variable| self.source.part(self.span(variable)));
        let mut cursor = node.walk();
        let values: Vec<_> = node.children_by_field_name("value", &mut cursor).collect();
        let spans =
            self.join_continued_words(values.iter().map(|value| self.span(*value)).collect());
        let words: Vec<ShellWord> = spans
            .iter()
            .flat_map(|span| self.words_at(span.clone()))
            .collect();
        let is_for = node.child(0).is_some_and(|first| first.kind() == "for");
        let known = |word: &ShellWord| word.is_static() || word.is_computed();
        if !is_for || values.is_empty() || !words.iter().all(known) {
            self.add_doubt("loops over values that are not known");
        }
        self.check_loop_variable(name);
        if words.len() > MAX_LOOP_VALUES {
            self.add_doubt("loops over many values");
        }
        self.record_command(spans);
        for value in &values {
            self.visit_word(*value, depth, nesting);
        }
        let Some(body) = node.child_by_field_name("body") else {
            return;
        };
        let was_again = self.repeated_iteration;
        for value in words.into_iter().take(MAX_LOOP_VALUES) {
            self.bindings.push((name.to_owned(), value));
            self.visit(body, depth, nesting);
            self.bindings.pop();
            self.allow_for_failed_cd();
            self.repeated_iteration = true;
        }
        if values.is_empty() {
            self.visit(body, depth, nesting);
        }
        self.repeated_iteration = was_again;
    }

    /// A loop may only set a variable that nothing else sets or looks at.
    fn check_loop_variable(&mut self, name: &str) {
        if !is_safe_loop_variable(name) {
            self.add_doubt("loops over a variable that programs may look at");
        }
        if self.bindings.iter().any(|(bound, _)| bound == name) {
            self.add_doubt("loops over the variable of another loop");
        }
    }

    /// Visits `while read -r name; do …; done`, whose variables hold unknown text; false if it is
    /// another loop.
    pub(super) fn visit_read_loop(&mut self, node: Node<'_>, depth: usize, nesting: usize) -> bool {
        let condition = node.child_by_field_name("condition");
        let (Some(condition), Some(body)) = (condition, node.child_by_field_name("body")) else {
            return false;
        };
        let is_while = node.child(0).is_some_and(|first| first.kind() == "while");
        let Some((names, spans)) = self.read_command(condition).filter(|_| is_while) else {
            return false;
        };
        let assignments = self.assignment_spans(condition);
        if !self.repeated_iteration {
            self.layout.assignments.extend(assignments);
        }
        self.record_command(spans);
        let bound = self.bindings.len();
        for name in names.iter().filter(|name| *name != "_") {
            self.check_loop_variable(name);
            let source = format!("${name}");
            let part = WordPart::Computed {
                source,
                quoted: true,
            };
            let value = ShellWord {
                parts: vec![part],
                ..ShellWord::default()
            };
            self.bindings.push((name.clone(), value));
        }
        self.visit(body, depth, nesting);
        self.allow_for_failed_cd();
        self.bindings.truncate(bound);
        true
    }

    /// The variables that `read` sets and the spans of its words, if this is a plain one.
    fn read_command(&self, node: Node<'_>) -> Option<(Vec<String>, Vec<Range<usize>>)> {
        if node.kind() != "command" {
            return None;
        }
        let mut spans = Vec::new();
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            match child.kind() {
                // `IFS=` decides how `read` splits its line, and nothing else.
                "variable_assignment" => {
                    let raw = self.source.part(self.span(child));
                    if !matches!(raw, "IFS=" | "IFS=''" | "IFS=\"\"" | "IFS=," | "IFS=:") {
                        return None;
                    }
                }
                "command_name" | "word" | "raw_string" | "string" => spans.push(self.span(child)),
                _ => return None,
            }
        }
        let words: Option<Vec<String>> = spans
            .iter()
            .map(|span| self.word_at(span.clone()).as_literal())
            .collect();
        let words = words?;
        let mut words = words.iter().map(String::as_str);
        if words.next() != Some("read") {
            return None;
        }
        let mut names = Vec::new();
        while let Some(word) = words.next() {
            match word {
                "-r" => {}
                "-d" => drop(words.next()?),
                name if lex::is_variable_name(name) => names.push(name.to_owned()),
                _ => return None,
            }
        }
        (!names.is_empty()).then_some((names, spans))
    }

    fn assignment_spans(&self, node: Node<'_>) -> Vec<Range<usize>> {
        let mut cursor = node.walk();
        let children = node.named_children(&mut cursor);
        let assignments = children.filter(|child| child.kind() == "variable_assignment");
        assignments.map(|child| self.span(child)).collect()
    }

    pub(super) fn visit_case(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        if let Some(value) = node.child_by_field_name("value") {
            let span = self.span(value);
            if check_text(&self.word_at(span.clone())).is_err() {
                self.add_doubt("decides on a value that is not known");
            }
            self.record_command(vec![span]);
            self.visit_word(value, depth, nesting);
        }
        let mut cursor = node.walk();
        let items = node.named_children(&mut cursor);
        for item in items.filter(|child| child.kind() == "case_item") {
            self.visit_case_item(item, depth + 1, nesting);
        }
    }

    fn visit_case_item(&mut self, item: Node<'_>, depth: usize, nesting: usize) {
        let mut cursor = item.walk();
        let patterns: Vec<_> = item.children_by_field_name("value", &mut cursor).collect();
        let spans: Vec<_> = patterns.iter().map(|pattern| self.span(*pattern)).collect();
        let known = |span: &Range<usize>| self.word_at(span.clone()).is_static();
        if !spans.iter().all(known) {
            self.add_doubt("compares with a value that is not known");
        }
        self.record_command(spans);
        let mut cursor = item.walk();
        let children: Vec<_> = item.children(&mut cursor).collect();
        for child in children {
            let pattern = patterns.iter().any(|pattern| pattern.id() == child.id());
            if pattern && !self.word_at(self.span(child)).is_static() {
                self.visit_word(child, depth, nesting);
            } else if !pattern {
                self.visit(child, depth, nesting);
            }
            // Another item may run instead of this one.
            self.allow_for_failed_cd();
        }
    }
}

/// Whether no program reads this variable; `for PATH in …` would change which programs run.
fn is_safe_loop_variable(name: &str) -> bool {
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    // The shell itself sets `$_`, and looks at the other two.
    let special = ["_", "histchars", "auto_resume"];
    name.bytes().all(lower) && !name.ends_with("_proxy") && !special.contains(&name)
}
