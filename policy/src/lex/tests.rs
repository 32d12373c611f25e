//! Tests of the strict lexer.

use super::*;

fn commands(source: &str) -> Option<Vec<Vec<&str>>> {
    let layout = lex_line(source)?;
    let text =
        |words: &Vec<Range<usize>>| words.iter().map(|span| source.part(span.clone())).collect();
    Some(layout.commands.iter().map(text).collect())
}

#[test]
fn plain_lines_are_split_into_commands() {
    for (source, expected) in [
        ("ls -l", vec![vec!["ls", "-l"]]),
        (
            "a; b && c | d || e",
            vec![vec!["a"], vec!["b"], vec!["c"], vec!["d"], vec!["e"]],
        ),
        ("a 2>&1 </x # y", vec![vec!["a"]]),
        ("(cd a; b)", vec![vec!["cd", "a"], vec!["b"]]),
        (
            "for f in x y; do cat \"$f\"; done",
            vec![vec!["x", "y"], vec!["cat", "\"$f\""]],
        ),
        ("! a 'b c'", vec![vec!["a", "'b c'"]]),
        ("a $(b c) d", vec![vec!["a", "$(b c)", "d"], vec!["b", "c"]]),
        ("a {b,c}", vec![vec!["a", "{b,c}"]]),
        (
            "a <<E | b\nc | d\nE\ne",
            vec![vec!["a"], vec!["b"], vec!["e"]],
        ),
        ("a <<'E'\n$(c)\nE", vec![vec!["a"]]),
        ("a <<\\E\n$(c)\nE", vec![vec!["a"]]),
        ("a <<'E F'\nc\nE F", vec![vec!["a"]]),
        (
            "a <<E\nb $(c d) $e\nE\nf",
            vec![vec!["a"], vec!["c", "d"], vec!["f"]],
        ),
        ("a <(b c) d", vec![vec!["a", "<(b c)", "d"], vec!["b", "c"]]),
        ("a < <(b c)", vec![vec!["a"], vec!["b", "c"]]),
        ("a <<-E\nc\n\tE\nd", vec![vec!["a"], vec!["d"]]),
        (
            "[[ -f a && b < c ]] && d",
            vec![vec!["[[", "-f", "a", "b", "c", "]]"], vec!["d"]],
        ),
        (
            "case \"$x\" in a|b) c;; *) d ;; esac; e",
            vec![
                vec!["\"$x\""],
                vec!["a", "b"],
                vec!["c"],
                vec!["*"],
                vec!["d"],
                vec!["e"],
            ],
        ),
        (
            "while IFS= read -r l; do a; done <f",
            vec![vec!["read", "-r", "l"], vec!["a"]],
        ),
    ] {
        assert_eq!(commands(source), Some(expected), "{source}");
    }
}

#[test]
fn anything_else_is_not_read_at_all() {
    for source in [
        "a &",
        "a |& b",
        "f() { a; }",
        "a <<E\n$(b &)\nE",
        "a <<E\n`b`\nE",
        "a <<E\nb",
        "a <<E\nE b\nE",
        "a <<EF\nE\\\nF\nb\nEF",
        "a <<E\\\nF\n$(b)\nEF",
        "a <<E; [[ b &&\nE\nc ]]\nd\nE",
        "a {PATH}<b",
        "a {PATH}>&1",
        "a {x[0]}<<<b",
        "a $(b <<'E'\nE c)\nE\n)",
        "a <<E\n$\\\n(b)\nE",
        "a \"$\\\n(b)\"",
        "a <<E",
        "a <<E \"\n\"\nE",
        "<(b)",
        "a >(b)",
        "a \"\"<(b)",
        "a <(b",
        "a `b`",
        "a $(b &)",
        "a $(b",
        "a)",
        "(a",
        "a \"${b:=c}\"",
        "a {b,'c'}",
        "a >{b,c}",
        "(( a ))",
        "case x in",
        "case x in a) b",
        "case x in a) b;;& esac",
        "b;;",
        "esac",
        "[[ a",
        "a $'b'",
        "a ;; b",
        "a[0]=b c",
        "until a",
    ] {
        assert_eq!(commands(source), None, "{source}");
    }
}

#[test]
fn a_single_command_has_nothing_beside_its_words() {
    assert!(single_command_words("git status -s").is_some());
    for source in ["a; b", "a >b", "A=1 a", "! a", "{ a", "a # b", "(a)", ""] {
        assert!(single_command_words(source).is_none(), "{source}");
    }
}
