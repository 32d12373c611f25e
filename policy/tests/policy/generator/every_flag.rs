//! Lines with each flag of a read rule, in each of its forms, before and behind the operands.

use super::grammar::ReadGrammar;

/// A value that most flags accept, and the name of a file that a flag might make.
const VALUE: &str = "1";

/// For each flag, the lines in which it is added to an example of the rule.
pub(super) fn lines_with_every_flag(grammar: &ReadGrammar) -> Vec<Vec<String>> {
    let Some(example) = plain_example(grammar) else {
        return Vec::new();
    };
    let (command, operands) = example.split_at(grammar.command.len());
    let places = |form: &String| {
        let before = format!("{command} {form}{operands}");
        [before, format!("{command}{operands} {form}")]
    };
    let flags = every_flag(grammar);
    let lines = flags
        .iter()
        .map(|forms| forms.iter().flat_map(places).collect());
    lines.collect()
}

/// The shortest example that is one command.
fn plain_example(grammar: &ReadGrammar) -> Option<&String> {
    let plain = |example: &&String| {
        example.starts_with(&grammar.command) && !example.contains(['|', ';', '&', '<', '>', '\n'])
    };
    let examples = grammar.matches.iter().filter(plain);
    examples.min_by_key(|example| example.len())
}

/// The forms of each flag.
fn every_flag(grammar: &ReadGrammar) -> Vec<Vec<String>> {
    let mut flags = Vec::new();
    for letter in grammar.short.chars() {
        flags.push(vec![format!("-{letter}")]);
    }
    for letter in grammar.short_value.chars() {
        flags.push(vec![
            format!("-{letter} {VALUE}"),
            format!("-{letter}{VALUE}"),
        ]);
    }
    for letter in grammar.short_optional.chars() {
        flags.push(vec![format!("-{letter}"), format!("-{letter}{VALUE}")]);
    }
    for name in grammar.long.split_whitespace() {
        flags.push(vec![format!("--{name}"), format!("--{name}={VALUE}")]);
    }
    for name in grammar.long_value.split_whitespace() {
        flags.push(vec![
            format!("--{name} {VALUE}"),
            format!("--{name}={VALUE}"),
        ]);
    }
    for word in grammar.exact.split_whitespace() {
        flags.push(vec![word.to_owned()]);
    }
    flags
}
