//! Compares what a program received with what was expected.

use pvp_policy::ExpectedWord;

/// Whether one of the expected commands explains these words.
pub(super) fn is_explained(received: &[String], expected: &[Vec<ExpectedWord>]) -> bool {
    expected.iter().any(|words| explains(words, received))
}

fn explains(expected: &[ExpectedWord], received: &[String]) -> bool {
    let Some((first, rest)) = expected.split_first() else {
        return received.is_empty();
    };
    match first {
        ExpectedWord::Exact(text) => {
            received.first() == Some(text) && explains(rest, &received[1..])
        }
        ExpectedWord::Pattern(pattern) => {
            let pattern: Vec<char> = pattern.chars().collect();
            let fits = |name: &&String| {
                let name: Vec<char> = name.chars().collect();
                fits_pattern(&pattern, &name)
            };
            let most = received.iter().take_while(fits).count();
            (1..=most).any(|count| explains(rest, &received[count..]))
        }
        ExpectedWord::Unknown => {
            (0..=received.len()).any(|count| explains(rest, &received[count..]))
        }
    }
}

/// Whether a pattern could have become this name. What was quoted in a pattern is not known, so
/// each of its special characters may also stand for itself.
fn fits_pattern(pattern: &[char], name: &[char]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return name.is_empty();
    };
    let literal = name.first() == Some(first) && fits_pattern(rest, &name[1..]);
    literal
        || match first {
            '*' => {
                fits_pattern(rest, name) || (!name.is_empty() && fits_pattern(pattern, &name[1..]))
            }
            '?' => !name.is_empty() && fits_pattern(rest, &name[1..]),
            '[' => {
                let ends = (0..rest.len()).filter(|at| rest[*at] == ']');
                !name.is_empty()
                    && ends
                        .into_iter()
                        .any(|end| fits_pattern(&rest[end + 1..], &name[1..]))
            }
            _ => false,
        }
}

#[test]
fn an_expected_command_explains_only_what_it_can_become() {
    let exact = |text: &str| ExpectedWord::Exact(text.to_owned());
    let pattern = ExpectedWord::Pattern("[ab]*.txt".to_owned());
    let expected = vec![vec![exact("cat"), pattern, exact("x")]];
    let explained = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        is_explained(&words, &expected)
    };
    assert!(explained(&["cat", "a.txt", "b1.txt", "x"]));
    assert!(explained(&["cat", "[ab]*.txt", "x"]));
    assert!(!explained(&["cat", "x"]));
    assert!(!explained(&["cat", "a.log", "x"]));
    assert!(!explained(&["cat", "a.txt", "x", "y"]));
    assert!(!explained(&["tac", "a.txt", "x"]));
}
