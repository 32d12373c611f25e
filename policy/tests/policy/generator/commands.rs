//! Single commands: a program of a read rule with flags in every form that programs accept.

use super::grammar::ReadGrammar;
use super::random::Random;
use super::scripts;
use super::words::{operand, quote, value};

/// Flags that many programs have and that often do more than read.
const OTHER_FLAGS: &str = r##"
    -o -ox -i -i.bak -e -f -w -x -d -D -s -exec -delete --output --output=x --out --in-place
    --pre=x --exec --file=x --help -T -C -c -- -é --é -né - --= --x=y -1 -0
"##;

/// One command, which may use the variables of enclosing loops.
pub(super) fn command(random: &mut Random, grammar: &ReadGrammar, variables: &[&str]) -> String {
    if !grammar.matches.is_empty() && variables.is_empty() && random.percent(10) {
        return random.pick_string(&grammar.matches);
    }
    let mut words: Vec<String> = grammar
        .command
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    if !grammar.global_flags.is_empty() && random.percent(25) {
        words.insert(1, random.pick_string(&grammar.global_flags));
    }
    if random.percent(3) {
        words[0] = quote(random, &words[0].clone());
    }
    if let Some(expression) = scripts::expression(random, grammar).filter(|_| random.percent(70)) {
        words.push(expression);
        return words.join(" ");
    }
    let mut rest = arguments(random, grammar, variables);
    if random.percent(5) {
        let at = random.below(rest.len() + 1);
        rest.insert(at, "--".to_owned());
    }
    words.extend(rest);
    words.join(" ")
}

fn arguments(random: &mut Random, grammar: &ReadGrammar, variables: &[&str]) -> Vec<String> {
    let mut flags = Vec::new();
    let required: Vec<&str> = grammar.requires.split_whitespace().collect();
    if !required.is_empty() && random.percent(90) {
        let flag = random.pick(&required);
        let dashes = if flag.starts_with('-') {
            ""
        } else if flag.chars().count() == 1 {
            "-"
        } else {
            "--"
        };
        flags.push(format!("{dashes}{flag}"));
    }
    for _ in 0..random.below(4) {
        flags.push(flag(random, grammar));
    }
    let mut operands = Vec::new();
    let script = scripts::script(random, grammar).filter(|_| random.percent(85));
    operands.extend(script.map(|script| quote(random, &script)));
    let most = if grammar.operands.is_empty() && grammar.check.is_empty() && random.percent(80) {
        1
    } else {
        4
    };
    for _ in 0..random.below(most) {
        operands.push(operand(random, variables));
    }
    if random.percent(75) {
        flags.extend(operands);
        return flags;
    }
    // Flags may also stand behind operands, or between them.
    for word in operands {
        let at = random.below(flags.len() + 1);
        flags.insert(at, word);
    }
    flags
}

/// A flag of the program with its value, if it has one.
fn flag(random: &mut Random, grammar: &ReadGrammar) -> String {
    for _ in 0..6 {
        let found = match random.below(12) {
            0 | 1 => short_cluster(random, &grammar.short, ""),
            2 | 3 => short_with_value(random, grammar),
            4 => {
                let value = value(random);
                short_cluster(random, &grammar.short_optional, &value)
            }
            5 | 6 => long_flag(random, &grammar.long, 15),
            7 | 8 => long_flag(random, &grammar.long_value, 80),
            9 => exact_flag(random, grammar),
            10 if random.percent(30) => long_flag(random, &grammar.refused_long, 50),
            10 => None,
            _ if random.percent(30) => Some(random.piece(OTHER_FLAGS)),
            _ => None,
        };
        if let Some(found) = found {
            return found;
        }
    }
    String::new()
}

/// One to three letters behind a dash, and what is attached to them.
fn short_cluster(random: &mut Random, letters: &str, attached: &str) -> Option<String> {
    let mut flag = String::from("-");
    for _ in 0..1 + random.below(3) {
        flag.push(random.pick_char(letters)?);
        if !attached.is_empty() {
            break;
        }
    }
    flag.push_str(attached);
    Some(quote(random, &flag))
}

fn short_with_value(random: &mut Random, grammar: &ReadGrammar) -> Option<String> {
    let letter = random.pick_char(&grammar.short_value)?;
    let before = match random.pick_char(&grammar.short) {
        Some(before) if random.percent(30) => before.to_string(),
        Some(_) | None => String::new(),
    };
    let value = value(random);
    Some(if random.percent(50) {
        let value = quote(random, &value);
        format!("-{before}{letter} {value}")
    } else {
        quote(random, &format!("-{before}{letter}{value}"))
    })
}

/// A long flag, sometimes abbreviated, with a value in this share of cases.
fn long_flag(random: &mut Random, names: &str, with_value: usize) -> Option<String> {
    let names: Vec<&str> = names.split_whitespace().collect();
    if names.is_empty() {
        return None;
    }
    let mut name = random.pick(&names).to_owned();
    if random.percent(15) {
        let length = 1 + random.below(name.len());
        name.truncate(length);
    }
    if !random.percent(with_value) {
        return Some(quote(random, &format!("--{name}")));
    }
    let value = value(random);
    Some(if random.percent(50) {
        quote(random, &format!("--{name}={value}"))
    } else {
        let value = quote(random, &value);
        format!("--{name} {value}")
    })
}

fn exact_flag(random: &mut Random, grammar: &ReadGrammar) -> Option<String> {
    let mut exact: Vec<&str> = grammar.exact.split_whitespace().collect();
    if grammar.number {
        exact.extend(["-1", "-20", "-5"]);
    }
    (!exact.is_empty()).then(|| random.pick(&exact).to_owned())
}
