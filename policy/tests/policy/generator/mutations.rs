//! Lines that are known to be reads, changed at random places.

use super::random::Random;
use super::words::{operand, quote};

/// Fragments that mean something to a shell, or to many programs.
const FRAGMENTS: &str = r##"
    ' " \ \' '\' $ ${ } { * ? [ ] ␣ ⏎ ⇥ ; | & && < > <<< # ␣# - ␣-o␣ ␣-i -- ␣--␣ = é ⍽ ~ ! ` (
    ) $_ "$_" $' {a,b} {-o,x} ␣-exec␣id␣ , $x '' "" \⏎ ␍ ␣2>&1 ␣>/dev/null␣ @ : % ^ / .. -0 x
"##;

/// A line with one to three changes; `other` lends its words.
pub(super) fn mutate(random: &mut Random, line: &str, other: &str) -> String {
    let mut line = line.to_owned();
    for _ in 0..1 + random.below(3) {
        line = match random.below(9) {
            0..3 => insert(random, &line),
            3 => remove_character(random, &line),
            4 => replace_word(random, &line, other),
            5 => requote_word(random, &line),
            6 => loop_over_word(random, &line),
            7 => {
                let word = operand(random, &[]);
                format!("{line} {word}")
            }
            _ => {
                let joint = random.pick(&[" | ", " && ", "; ", "\n", " || "]);
                format!("{line}{joint}{other}")
            }
        };
    }
    line
}

fn boundary(random: &mut Random, line: &str) -> usize {
    line.floor_char_boundary(random.below(line.len() + 1))
}

fn insert(random: &mut Random, line: &str) -> String {
    let (before, after) = line.split_at(boundary(random, line));
    format!("{before}{}{after}", random.piece(FRAGMENTS))
}

fn remove_character(random: &mut Random, line: &str) -> String {
    let (before, after) = line.split_at(boundary(random, line));
    let mut rest = after.chars();
    rest.next();
    format!("{before}{}", rest.as_str())
}

/// The line with one of its words changed.
fn change_word(
    random: &mut Random,
    line: &str,
    change: impl FnOnce(&mut Random, &str) -> String,
) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let at = random.below(words.len());
    let changed = change(random, words[at]);
    let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    words[at] = changed;
    words.join(" ")
}

fn replace_word(random: &mut Random, line: &str, other: &str) -> String {
    let lent: Vec<&str> = other.split(' ').collect();
    let lent = random.pick(&lent);
    change_word(random, line, |_, _| lent.to_owned())
}

fn requote_word(random: &mut Random, line: &str) -> String {
    let quoted = |c: char| "'\"\\$`|&;<>()".contains(c);
    change_word(random, line, |random, word| {
        if word.contains(quoted) {
            word.to_owned()
        } else {
            quote(random, word)
        }
    })
}

/// A loop whose variable stands in the place of one word.
fn loop_over_word(random: &mut Random, line: &str) -> String {
    let mut value = String::new();
    let body = change_word(random, line, |random, word| {
        value = word.to_owned();
        random.pick(&["\"$f\"", "$f", "\"${f}\""]).to_owned()
    });
    let another = operand(random, &[]);
    format!("for f in {value} {another}; do {body}; done")
}
