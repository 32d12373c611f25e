//! Extracts simple commands from the syntax tree, with the directories each may run in.

mod commands;
mod loops;

use crate::source_text::SourceText;
use std::ops::Range;

use tree_sitter::Node;

use crate::lex::{self, LineLayout};
use crate::parse::parse;
use crate::paths::{PathRoot, ResolvedPath};
use crate::word::{ScanUntil, ShellWord, scan_word};

/// The deepest nesting of a line that may be a read.
const MAX_READ_NESTING: usize = 32;

/// How many levels of the syntax tree are visited; only raw rules see what is below.
const MAX_TREE_DEPTH: usize = 200;

/// The most simple commands of a line that may be a read.
const MAX_READ_COMMANDS: usize = 50;

/// How many simple commands are assessed; raw rules are applied to longer lines too.
const MAX_COMMANDS: usize = 150;

/// How many nodes are visited, those of a loop once for every value; raw rules see all of the line.
const MAX_VISITS: u32 = 20_000;

/// How many words of one command are assessed; raw rules are applied to longer commands too.
pub(crate) const MAX_WORDS: usize = 300;

/// How many possible directories of a command are tracked.
const MAX_DIRECTORIES: usize = 16;

/// One simple command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SimpleCommand {
    /// The command's name and its arguments.
    pub(crate) words: Vec<ShellWord>,
    /// The variables that are set for this command.
    pub(crate) assignments: Vec<(String, ShellWord)>,
    /// Where it is in the line.
    pub(crate) span: Range<usize>,
    /// Every directory it might run in.
    pub(crate) directories: Vec<ResolvedPath>,
    /// Whether its input is a here-document.
    pub(crate) has_here_document: bool,
}

/// One redirection.
#[derive(Debug, Clone)]
pub(crate) struct Redirect {
    pub(crate) operator: String,
    pub(crate) target: ShellWord,
    pub(crate) span: Range<usize>,
    pub(crate) directories: Vec<ResolvedPath>,
}

/// A function's name and body, to detect functions that call themselves.
#[derive(Debug, Clone)]
pub(crate) struct ShellFunction {
    pub(crate) name: String,
    pub(crate) body: Range<usize>,
}

/// What a line consists of.
#[derive(Debug, Default)]
pub(crate) struct ParsedScript {
    /// The simple commands, in order.
    pub(crate) commands: Vec<SimpleCommand>,
    /// The redirections.
    pub(crate) redirects: Vec<Redirect>,
    /// The functions that are defined.
    pub(crate) functions: Vec<ShellFunction>,
    /// Why the line cannot be a read, whatever its commands are.
    pub(crate) doubts: Vec<String>,
    /// Steps of the parser and nodes visited; the same number on every machine.
    pub(crate) steps: u32,
    /// Whether something was not understood, so that raw rules must search the text.
    pub(crate) opaque: bool,
    /// Whether a limit was reached, so that there may be more commands than these.
    pub(crate) too_large: bool,
    /// The line without the text of its here-documents, where those are certain.
    pub(crate) code: String,
    /// The text of its here-documents.
    pub(crate) here_documents: Vec<Range<usize>>,
    /// The assignments that no command follows, with the directories of what comes after them.
    pub(crate) loose_assignments: Vec<(ShellWord, Vec<ResolvedPath>)>,
}

/// Parses a line that would run in `directory`.
pub(crate) fn parse_script(source: &str, directory: &ResolvedPath) -> ParsedScript {
    let strict = lex::lex_line(source);
    let documents = strict.as_ref().map(|it| it.here_documents.as_slice());
    let masked = mask_here_documents(source, documents.unwrap_or_default());
    let mut walker = SyntaxWalker::new(source, directory);
    walker.script.code = masked.clone();
    walker.script.here_documents = documents.unwrap_or_default().to_vec();
    let (tree, steps) = parse(&masked);
    walker.script.steps = steps;
    if strict.is_none() && source.contains("<<") {
        walker.mark_opaque("uses a here-document in a way that is not understood");
    }
    let Some(tree) = tree else {
        walker.mark_opaque("too long or too complex to parse");
        walker.split_at_operators(&masked);
        return walker.script;
    };
    walker.visit(tree.root_node(), 0, 0);
    walker.cross_check(strict, directory);
    if tree.root_node().has_error() {
        walker.mark_opaque("not a shell command that PVP can parse");
        walker.reset_directories(directory);
        walker.split_at_operators(&masked);
    }
    walker.script
}

/// The line with the text of its here-documents, which is data and not code, replaced by letters of
/// the same length.
fn mask_here_documents(source: &str, documents: &[Range<usize>]) -> String {
    let mut masked = String::with_capacity(source.len());
    for document in documents {
        masked.push_str(source.part(masked.len()..document.start));
        let letters = source.part(document.clone()).bytes();
        masked.extend(letters.map(|byte| if byte == b'\n' { '\n' } else { 'x' }));
    }
    masked.push_str(source.part(masked.len()..));
    masked
}

/// Visits the syntax tree and collects commands, redirections and doubts.
struct SyntaxWalker<'a> {
    /// The line.
    source: &'a str,
    /// What has been found so far.
    script: ParsedScript,
    /// The words as the parser sees them, for comparison with the strict lexer.
    layout: LineLayout,
    /// The directories that the next command may run in.
    directories: Vec<ResolvedPath>,
    /// The directories before the last `cd`, if it may have failed.
    directories_if_cd_fails: Option<Vec<ResolvedPath>>,
    /// The values of the variables of enclosing loops.
    bindings: Vec<(String, ShellWord)>,
    /// Whether this is a later iteration of a loop, whose words are recorded already.
    repeated_iteration: bool,
    /// Whether this is inside a statement with a here-document.
    in_here_document: bool,
    /// Words that follow a command's redirections, by the id of the command's node.
    trailing_words: Vec<(usize, Vec<Range<usize>>)>,
}

impl<'a> SyntaxWalker<'a> {
    fn new(source: &'a str, directory: &ResolvedPath) -> Self {
        Self {
            source,
            script: ParsedScript::default(),
            layout: LineLayout::default(),
            directories: vec![directory.clone()],
            directories_if_cd_fails: None,
            bindings: Vec::new(),
            repeated_iteration: false,
            in_here_document: false,
            trailing_words: Vec::new(),
        }
    }
}

impl SyntaxWalker<'_> {
    fn add_doubt(&mut self, why: &str) {
        if !self.script.doubts.iter().any(|doubt| doubt == why) {
            self.script.doubts.push(why.to_owned());
        }
    }

    fn mark_opaque(&mut self, why: &str) {
        self.script.opaque = true;
        self.add_doubt(why);
    }

    fn mark_too_large(&mut self, why: &str) {
        self.script.too_large = true;
        self.mark_opaque(why);
    }

    /// Compares the parser's words with those of the strict lexer. The line can be a read only if
    /// they are exactly the same; if the lexer found other commands, those are assessed too.
    fn cross_check(&mut self, strict: Option<LineLayout>, directory: &ResolvedPath) {
        self.layout.sort();
        // The parser did not see the text of here-documents.
        let documents = strict.as_ref().map(|strict| strict.here_documents.clone());
        self.layout.here_documents = documents.unwrap_or_default();
        if strict.as_ref() != Some(&self.layout) {
            if self.script.doubts.is_empty() {
                self.add_doubt("uses unusual shell syntax");
            }
            if let Some(strict) = strict {
                self.reset_directories(directory);
                self.add_strict_commands(&strict);
            }
        }
        if self.script.commands.len() > MAX_READ_COMMANDS {
            self.add_doubt("has too many parts to check");
        }
    }

    fn reset_directories(&mut self, directory: &ResolvedPath) {
        self.directories = vec![directory.clone()];
        self.directories_if_cd_fails = None;
    }

    fn visit(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        self.script.steps += 1;
        if depth > MAX_TREE_DEPTH
            || self.script.commands.len() >= MAX_COMMANDS
            || self.script.steps > MAX_VISITS
        {
            return self.mark_too_large("too deep or too long to parse");
        }
        if nesting > MAX_READ_NESTING {
            self.add_doubt("nested too deeply");
        }
        let inside = || (depth + 1, nesting + 1);
        match node.kind() {
            "redirected_statement" => {
                let outside = self.in_here_document;
                let mut cursor = node.walk();
                let mut children = node.children(&mut cursor);
                self.in_here_document |= children.any(|child| child.kind() == "heredoc_redirect");
                let trailing = self.trailing_words.len();
                self.record_trailing_words(node);
                self.visit_children(node, depth + 1, nesting);
                self.trailing_words.truncate(trailing);
                self.in_here_document = outside;
            }
            "program" | "negated_command" | "do_group" | "list" => {
                self.visit_children(node, depth + 1, nesting);
            }
            "compound_statement" | "if_statement" | "elif_clause" | "else_clause" => {
                let (depth, nesting) = inside();
                self.visit_children(node, depth, nesting);
            }
            "subshell" => {
                self.in_subshell(|walker| walker.visit_children(node, depth + 1, nesting + 1))
            }
            "pipeline" => self.visit_pipeline(node, depth + 1, nesting),
            "for_statement" => self.visit_for_loop(node, depth + 1, nesting + 1),
            "command" => self.visit_command(node, depth + 1, nesting),
            "test_command" => self.visit_test(node, depth, nesting),
            "file_redirect" | "herestring_redirect" => self.visit_redirect(node, depth, nesting),
            "comment" => {}
            "while_statement" if self.visit_read_loop(node, depth + 1, nesting + 1) => {}
            "case_statement" => self.visit_case(node, depth + 1, nesting + 1),
            // What is in the text of a here-document was checked by the strict lexer.
            "heredoc_redirect" | "heredoc_body" => {
                self.visit_children(node, depth + 1, nesting);
            }
            "heredoc_start" | "heredoc_end" | "heredoc_content" => {}
            "function_definition" => {
                self.add_doubt("defines a function");
                self.visit_function(node);
                self.in_subshell(|walker| walker.visit_children(node, depth + 1, nesting + 1));
            }
            "command_substitution" => {
                self.in_subshell(|walker| walker.visit_children(node, depth + 1, nesting + 1));
            }
            "process_substitution" => {
                if !self.source.part(self.span(node)).starts_with("<(") {
                    self.add_doubt("uses a process substitution that is written to");
                }
                self.in_subshell(|walker| walker.visit_children(node, depth + 1, nesting + 1));
            }
            "while_statement"
            | "case_item"
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
                self.add_doubt(&format!("uses {}", node_description(node.kind())));
                if node.kind() == "variable_assignment" {
                    let word = self.word_at(self.span(node));
                    let directories = self.directories.clone();
                    self.script.loose_assignments.push((word, directories));
                }
                if node.kind() == "declaration_command" {
                    self.visit_declaration(node);
                }
                self.visit_children(node, depth + 1, nesting);
            }
            kind if node.is_named() => {
                self.mark_opaque(&format!("uses {}", node_description(kind)));
                self.visit_children(node, depth + 1, nesting);
            }
            "&" => self.add_doubt("leaves a process in the background"),
            "|&" | ";&" | ";;&" => self.add_doubt("uses uncommon operators"),
            _ => {}
        }
    }

    fn visit_children(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        for child in &children {
            if !child.is_named() && matches!(child.kind(), ";" | "||" | "\n" | "&") {
                self.allow_for_failed_cd();
            }
            let statement = node.kind() == "program" || node.kind() == "compound_statement";
            if statement && child.is_named() {
                self.settle_between_statements(&children, *child);
            }
            self.visit(*child, depth, nesting);
        }
    }

    /// A statement on its own line runs whether or not the one before it succeeded.
    fn settle_between_statements(&mut self, children: &[Node<'_>], child: Node<'_>) {
        if children
            .first()
            .is_some_and(|first| first.id() != child.id())
        {
            self.allow_for_failed_cd();
        }
    }

    /// Takes into account that the last `cd` may have failed.
    fn allow_for_failed_cd(&mut self) {
        let fallback = self.directories_if_cd_fails.take().unwrap_or_default();
        self.add_directories(fallback);
    }

    /// Adds directories that the following commands may run in.
    fn add_directories(&mut self, paths: Vec<ResolvedPath>) {
        for path in paths {
            if !self.directories.contains(&path) {
                self.directories.push(path);
            }
        }
        if self.directories.len() > MAX_DIRECTORIES {
            self.add_doubt("changes directory too often to follow");
            // The root stands for all known directories, because it is the worst of them.
            self.directories = vec![
                ResolvedPath::new(PathRoot::Absolute),
                ResolvedPath::new(PathRoot::Unknown),
            ];
        }
    }

    /// Visits something that cannot change this shell's directory.
    fn in_subshell(&mut self, visit: impl FnOnce(&mut Self)) {
        let saved = (
            self.directories.clone(),
            self.directories_if_cd_fails.clone(),
        );
        visit(self);
        (self.directories, self.directories_if_cd_fails) = saved;
    }

    fn visit_pipeline(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            let lines = self.source.part(self.span(child)).contains('\n');
            if child.kind() == "list" || lines {
                // The parser puts what follows `a | b | c`, after `&&` or on the next line, into
                // the pipeline.
                let outside = self.directories.clone();
                self.visit(child, depth, nesting);
                self.add_directories(outside);
            } else {
                self.in_subshell(|walker| walker.visit(child, depth, nesting));
            }
        }
    }

    fn record_command(&mut self, spans: Vec<Range<usize>>) {
        if !self.repeated_iteration && !spans.is_empty() {
            self.layout.commands.push(spans);
        }
    }

    /// The span of a node in the source. The parser sees other characters of the same length, so a
    /// node might begin or end inside a character.
    fn span(&self, node: Node<'_>) -> Range<usize> {
        let range = node.byte_range();
        self.source.floor_char_boundary(range.start)..self.source.ceil_char_boundary(range.end)
    }

    fn word_at(&self, range: Range<usize>) -> ShellWord {
        let scan = scan_word(self.source.part(..range.end), range.start, ScanUntil::End);
        self.with_bindings(scan.word)
    }

    /// The words at this place: several where braces expand.
    fn words_at(&self, range: Range<usize>) -> Vec<ShellWord> {
        let scan = scan_word(self.source.part(..range.end), range.start, ScanUntil::End);
        if scan.certain && !scan.expanded.is_empty() {
            return scan.expanded;
        }
        vec![self.with_bindings(scan.word)]
    }

    fn with_bindings(&self, word: ShellWord) -> ShellWord {
        let bindings = self.bindings.iter().rev();
        bindings.fold(word, |word, (name, value)| word.substitute(name, value))
    }

    /// Finds commands inside a word.
    fn visit_word(&mut self, node: Node<'_>, depth: usize, nesting: usize) {
        self.script.steps += 1;
        match node.kind() {
            "word"
            | "number"
            | "brace_expression"
            | "raw_string"
            | "string_content"
            | "variable_name"
            | "special_variable_name" => {}
            "arithmetic_expansion" if self.word_at(self.span(node)).is_computed() => {}
            "command_name" | "string" | "concatenation" | "simple_expansion" | "expansion" => {
                if node.kind() == "expansion"
                    && !is_plain_variable(self.source.part(self.span(node)))
                {
                    self.add_doubt("uses a computed value");
                }
                if depth > MAX_TREE_DEPTH {
                    return self.mark_too_large("nested too deeply to parse");
                }
                let mut cursor = node.walk();
                for child in node.named_children(&mut cursor) {
                    self.visit_word(child, depth + 1, nesting);
                }
            }
            _ => self.visit(node, depth + 1, nesting),
        }
    }
}

fn is_plain_variable(raw: &str) -> bool {
    let inner = raw
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    inner.is_some_and(lex::is_variable_name)
}

fn node_description(kind: &str) -> &str {
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
