//! From the syntax tree to simple commands, with the directory each would run in.

mod commands;

use std::ops::Range;

use tree_sitter::Node;

use crate::lex::{self, Layout};
use crate::parse::parse;
use crate::place::{Path, Root};
use crate::word::{Until, Word, scan};

/// Levels of nesting beyond which a line is never a read.
const MAX_NESTING: usize = 32;

/// Levels of the syntax tree that are walked at all; what lies below is only seen by raw patterns.
const MAX_DEPTH: usize = 200;

/// Simple commands in one line beyond which it is never a read.
const MAX_PARTS: usize = 50;

/// Simple commands that are looked at; a longer line is judged by raw patterns too.
const MOST_PARTS: usize = 150;

/// Words of one command that are looked at; a longer one is judged by raw patterns too.
pub(crate) const MOST_WORDS: usize = 300;

/// Directories that a command is judged in.
const MAX_BASES: usize = 16;

/// Loop values that are tried one by one.
const MAX_VALUES: usize = 16;

/// One simple command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) words: Vec<Word>,
    pub(crate) assignments: Vec<(String, Word)>,
    pub(crate) span: Range<usize>,
    /// Every directory it might run in.
    pub(crate) bases: Vec<Path>,
    /// A here-document feeds it.
    pub(crate) here_document: bool,
}

/// One redirection.
#[derive(Debug, Clone)]
pub(crate) struct Redirect {
    pub(crate) operator: String,
    pub(crate) target: Word,
    pub(crate) span: Range<usize>,
    pub(crate) bases: Vec<Path>,
}

/// A function's name and body, for those that call themselves.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) body: Range<usize>,
}

/// All that a line says.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) parts: Vec<Part>,
    pub(crate) redirects: Vec<Redirect>,
    pub(crate) functions: Vec<Function>,
    /// Why the line cannot be a read, whatever its parts are.
    pub(crate) doubts: Vec<String>,
    /// Steps of the parser and nodes walked: the same number on every machine.
    pub(crate) steps: u32,
    /// Something was not understood, so that the raw text has to be searched.
    pub(crate) opaque: bool,
}

/// Reads a line that would be run in `base`.
pub(crate) fn script(source: &str, base: &Path) -> Script {
    let mut walk = Walk::new(source, base);
    let (tree, steps) = parse(source);
    walk.script.steps = steps;
    let Some(tree) = tree else {
        walk.opaque("too long or too tangled to take apart");
        walk.pieces();
        return walk.script;
    };
    walk.node(tree.root_node(), 0, 0);
    walk.read_again(base);
    if tree.root_node().has_error() {
        walk.opaque("not understood as a shell command");
        walk.begin_again(base);
        walk.pieces();
    }
    walk.script
}

struct Walk<'a> {
    source: &'a str,
    script: Script,
    /// The words as the parser saw them.
    layout: Layout,
    bases: Vec<Path>,
    /// Where commands run if the last `cd` failed.
    fallback: Option<Vec<Path>>,
    bindings: Vec<(String, Word)>,
    /// Not the first round of a loop body.
    again: bool,
    /// Inside a statement that a here-document feeds.
    here_document: bool,
    /// Words of a command that stand behind its redirections, by the command's node.
    trailing: Vec<(usize, Vec<Range<usize>>)>,
}

impl<'a> Walk<'a> {
    fn new(source: &'a str, base: &Path) -> Self {
        Self {
            source,
            script: Script::default(),
            layout: Layout::default(),
            bases: vec![base.clone()],
            fallback: None,
            bindings: Vec::new(),
            again: false,
            here_document: false,
            trailing: Vec::new(),
        }
    }
}

impl Walk<'_> {
    fn doubt(&mut self, why: &str) {
        if !self.script.doubts.iter().any(|doubt| doubt == why) {
            self.script.doubts.push(why.to_owned());
        }
    }

    fn opaque(&mut self, why: &str) {
        self.script.opaque = true;
        self.doubt(why);
    }

    /// A read only where the strict reading saw exactly the same words; where it saw other
    /// commands, the line is judged by those too.
    fn read_again(&mut self, base: &Path) {
        self.layout.targets.sort_by_key(|span| span.start);
        self.layout.assignments.sort_by_key(|span| span.start);
        self.layout
            .commands
            .sort_by_key(|words| words.first().map(|word| word.start));
        let strict = lex::layout(self.source);
        if strict.as_ref() != Some(&self.layout) {
            if self.script.doubts.is_empty() {
                self.doubt("uses shell syntax that is not certain to be plain");
            }
            if let Some(strict) = strict {
                self.begin_again(base);
                self.commands_of(&strict);
            }
        }
        if self.script.parts.len() > MAX_PARTS {
            self.doubt("has more parts than can be overseen");
        }
    }

    fn begin_again(&mut self, base: &Path) {
        self.bases = vec![base.clone()];
        self.fallback = None;
    }

    fn node(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        self.script.steps += 1;
        if depth > MAX_DEPTH || self.script.parts.len() >= MOST_PARTS {
            return self.opaque("too deep or too long to take apart");
        }
        if nesting > MAX_NESTING {
            self.doubt("nested too deep");
        }
        let inside = || (depth + 1, nesting + 1);
        match node.kind() {
            "redirected_statement" => {
                let outside = self.here_document;
                let mut cursor = node.walk();
                let mut children = node.children(&mut cursor);
                self.here_document |= children.any(|child| child.kind() == "heredoc_redirect");
                let trailing = self.trailing.len();
                self.trail(node);
                self.children(node, depth + 1, nesting);
                self.trailing.truncate(trailing);
                self.here_document = outside;
            }
            "program" | "negated_command" | "do_group" | "list" => {
                self.children(node, depth + 1, nesting);
            }
            "compound_statement" | "if_statement" | "elif_clause" | "else_clause" => {
                let (depth, nesting) = inside();
                self.children(node, depth, nesting);
            }
            "subshell" => self.apart(|walk| walk.children(node, depth + 1, nesting + 1)),
            "pipeline" => self.pipeline(node, depth + 1, nesting),
            "for_statement" => self.each(node, depth + 1, nesting + 1),
            "command" => self.command(node, depth + 1, nesting),
            "test_command" => self.test(node, depth, nesting),
            "file_redirect" | "herestring_redirect" => self.redirect(node, depth, nesting),
            "comment" => {}
            "function_definition" => {
                self.doubt("defines a function");
                self.function(node);
                self.apart(|walk| walk.children(node, depth + 1, nesting + 1));
            }
            "command_substitution" | "process_substitution" => {
                self.doubt("runs a command inside another one's words");
                self.apart(|walk| walk.children(node, depth + 1, nesting + 1));
            }
            "while_statement"
            | "case_statement"
            | "case_item"
            | "heredoc_redirect"
            | "heredoc_body"
            | "heredoc_start"
            | "heredoc_end"
            | "heredoc_content"
            | "variable_assignment"
            | "variable_assignments"
            | "variable_name"
            | "declaration_command"
            | "unset_command"
            | "string"
            | "string_content"
            | "raw_string"
            | "ansi_c_string"
            | "concatenation"
            | "word"
            | "number"
            | "simple_expansion"
            | "special_variable_name"
            | "expansion"
            | "c_style_for_statement"
            | "arithmetic_expansion"
            | "array"
            | "subscript"
            | "translated_string"
            | "extglob_pattern"
            | "regex"
            | "brace_expression"
            | "file_descriptor"
            | "test_operator"
            | "unary_expression"
            | "binary_expression"
            | "parenthesized_expression"
            | "ternary_expression"
            | "postfix_expression" => {
                self.doubt(&format!("uses {}", described(node.kind())));
                if node.kind() == "declaration_command" {
                    self.declaration(node);
                }
                self.children(node, depth + 1, nesting);
            }
            kind if node.is_named() => {
                self.opaque(&format!("uses {}", described(kind)));
                self.children(node, depth + 1, nesting);
            }
            "&" => self.doubt("leaves a process in the background"),
            "|&" | ";&" | ";;&" => self.doubt("uses uncommon operators"),
            _ => {}
        }
    }

    fn children(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        for child in &children {
            if !child.is_named() && matches!(child.kind(), ";" | "||" | "\n" | "&") {
                self.settle();
            }
            let statement = node.kind() == "program" || node.kind() == "compound_statement";
            if statement && child.is_named() {
                self.settle_if_loose(&children, *child);
            }
            self.node(*child, depth, nesting);
        }
    }

    /// Statements on their own lines follow each other whether or not the first succeeds.
    fn settle_if_loose(&mut self, children: &[Node<'_>], child: Node<'_>) {
        if children
            .first()
            .is_some_and(|first| first.id() != child.id())
        {
            self.settle();
        }
    }

    /// From here on the last `cd` may have failed.
    fn settle(&mut self) {
        let fallback = self.fallback.take().unwrap_or_default();
        self.may_be_in(fallback);
    }

    /// What follows may run in these directories too.
    fn may_be_in(&mut self, paths: Vec<Path>) {
        for path in paths {
            if !self.bases.contains(&path) {
                self.bases.push(path);
            }
        }
        if self.bases.len() > MAX_BASES {
            self.doubt("goes to more directories than can be followed");
            // The worst place stands for all that are known.
            self.bases = vec![Path::new(Root::Slash), Path::new(Root::Unknown)];
        }
    }

    /// Walks something that cannot change this shell's directory.
    fn apart(&mut self, walk: impl FnOnce(&mut Self)) {
        let saved = (self.bases.clone(), self.fallback.clone());
        walk(self);
        (self.bases, self.fallback) = saved;
    }

    fn pipeline(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            let lines = self.source[self.span(child)].contains('\n');
            if child.kind() == "list" || lines {
                // The parser puts what follows `a | b | c`, behind `&&` or on the next line, into
                // the pipeline.
                let outside = self.bases.clone();
                self.node(child, depth, nesting);
                self.may_be_in(outside);
            } else {
                self.apart(|walk| walk.node(child, depth, nesting));
            }
        }
    }

    fn each(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let variable = node.child_by_field_name("variable");
        let name = variable.map_or("", |variable| &self.source[self.span(variable)]);
        let mut cursor = node.walk();
        let values: Vec<_> = node.children_by_field_name("value", &mut cursor).collect();
        let spans = self.joined(values.iter().map(|value| self.span(*value)).collect());
        let words: Vec<Word> = spans.iter().map(|span| self.word(span.clone())).collect();
        let is_for = node.child(0).is_some_and(|first| first.kind() == "for");
        if !is_for || values.is_empty() || !words.iter().all(Word::is_known) {
            self.doubt("loops over values that are not known");
        }
        if !is_free_name(name) {
            self.doubt("loops over a variable that programs may look at");
        }
        if values.len() > MAX_VALUES {
            self.doubt("loops over many values");
        }
        self.record_command(spans);
        for value in &values {
            self.descend(*value, depth, nesting);
        }
        let Some(body) = node.child_by_field_name("body") else {
            return;
        };
        let was_again = self.again;
        for value in words.into_iter().take(MAX_VALUES) {
            self.bindings.push((name.to_owned(), value));
            self.node(body, depth, nesting);
            self.bindings.pop();
            self.settle();
            self.again = true;
        }
        if values.is_empty() {
            self.node(body, depth, nesting);
        }
        self.again = was_again;
    }

    fn record_command(&mut self, spans: Vec<Range<usize>>) {
        if !self.again && !spans.is_empty() {
            self.layout.commands.push(spans);
        }
    }

    /// Where a node stands in the source. The parser sees other characters of the same length, so
    /// that it might begin or end within one.
    fn span(&self, node: Node<'_>) -> Range<usize> {
        let range = node.byte_range();
        self.source.floor_char_boundary(range.start)..self.source.ceil_char_boundary(range.end)
    }

    fn word(&self, range: Range<usize>) -> Word {
        let mut word = scan(&self.source[..range.end], range.start, Until::End).word;
        for (name, value) in self.bindings.iter().rev() {
            word = word.bind(name, value);
        }
        word
    }

    /// Looks for commands inside a word.
    fn descend(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        self.script.steps += 1;
        match node.kind() {
            "word"
            | "number"
            | "raw_string"
            | "string_content"
            | "variable_name"
            | "special_variable_name" => {}
            "command_name" | "string" | "concatenation" | "simple_expansion" | "expansion" => {
                if node.kind() == "expansion" && !is_plain_variable(&self.source[self.span(node)]) {
                    self.doubt("uses a computed value");
                }
                if depth > MAX_DEPTH {
                    return self.opaque("too deep to take apart");
                }
                let mut cursor = node.walk();
                for child in node.named_children(&mut cursor) {
                    self.descend(child, depth + 1, nesting);
                }
            }
            _ => self.node(node, depth + 1, nesting),
        }
    }
}

/// Names that no program looks at; `for PATH in …` would change which programs run.
fn is_free_name(name: &str) -> bool {
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(lower) && !name.ends_with("_proxy")
}

fn is_plain_variable(raw: &str) -> bool {
    let inner = raw
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    inner.is_some_and(lex::is_name)
}

fn described(kind: &str) -> &str {
    match kind {
        "heredoc_redirect" | "heredoc_body" | "heredoc_start" | "heredoc_end" => "a here-document",
        "arithmetic_expansion" => "arithmetic",
        "variable_assignment" | "variable_assignments" => "an assignment",
        "declaration_command" | "unset_command" => "a declaration",
        "while_statement" => "a loop without known values",
        "case_statement" | "case_item" => "a case statement",
        "ansi_c_string" => "a quoted string with escapes",
        "ERROR" => "something that is not understood",
        other => other,
    }
}

#[cfg(test)]
mod tests;
