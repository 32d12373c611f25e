//! Tests of scanning words.

use super::*;

fn scan_all(source: &str) -> ScannedWord {
    scan_word(source, 0, ScanUntil::End)
}

#[test]
fn quotes_are_removed() {
    for (source, text) in [
        ("ls", "ls"),
        ("'a b'", "a b"),
        (r#""a \" b""#, "a \" b"),
        (r"a\ b", "a b"),
        (r#"r''m"#, "rm"),
        (r#""x$""#, "x$"),
    ] {
        let scan = scan_all(source);
        assert_eq!(
            (scan.word.as_literal(), scan.certain),
            (Some(text.to_owned()), true),
            "{source}"
        );
    }
}

#[test]
fn what_a_shell_would_evaluate_is_not_certain() {
    for source in [
        "`x`",
        "\"`x`\"",
        "${a:=b}",
        "$[1]",
        "$'a'",
        "$\"a\"",
        "'a",
        "\"a",
        "a{'b',c}",
        "${a[0]}",
        "{a..bc}",
        "$(x &)",
        "$((a))",
        "$(x",
        "a=~/b",
        "a\\\nb",
        "\"a\\\nb\"",
        "\"$\\\n(x)\"",
        "$\\\n(x)",
        "\"$\\\nX\"",
        "{a,{b,c}}",
    ] {
        assert!(!scan_all(source).certain, "{source}");
    }
}

#[test]
fn escapes_in_dollar_quotes_are_decoded_for_the_patterns() {
    assert_eq!(scan_all(r"$'\x72\155'").word.text(), "rm");
}

#[test]
fn quotes_and_escapes_decide_whether_braces_expand() {
    for source in [
        r"a'\'{b,c}''",
        r"\'{,}",
        r#"\"{a,b}"#,
        r#"'a'"b"{c,d}"#,
        r"'\'{-o,x}",
    ] {
        let scan = scan_all(source);
        assert!(scan.word.has_braces && !scan.certain, "{source}");
    }
    for source in [
        r"'{a,b}'",
        r#""{a,b}""#,
        r"\{a,b\}",
        "${a}",
        "{}",
        r#""\"{a,b}""#,
    ] {
        let scan = scan_all(source);
        assert!(!scan.word.has_braces && scan.certain, "{source}");
    }
}

#[test]
fn a_computed_value_is_one_word_only_in_quotes() {
    for (source, one_word) in [
        ("\"$(ls)\"", true),
        ("\"a$(ls | head)b\"", true),
        ("$(ls)", false),
        ("$((1 + 2))", false),
        ("\"$(echo \"$(pwd)\")\"", true),
    ] {
        let scan = scan_all(source);
        assert!(scan.certain && scan.word.is_computed(), "{source}");
        assert_eq!(scan.word.is_one_computed_word(), one_word, "{source}");
    }
}

#[test]
fn a_loop_value_with_a_tilde_is_not_known() {
    let quoted = scan_all("\"$f\"").word;
    assert!(!quoted.substitute("f", &scan_all("~/x").word).is_static());
}

#[test]
fn a_loop_value_that_could_split_is_not_known() {
    let variable = scan_all("$f").word;
    let quoted = scan_all("\"$f\"").word;
    let pattern = scan_all("*.txt").word;
    assert!(!variable.substitute("f", &pattern).is_static());
    assert!(quoted.substitute("f", &pattern).is_static());
    assert_eq!(
        variable
            .substitute("f", &ShellWord::literal("a.txt"))
            .as_literal(),
        Some("a.txt".to_owned())
    );
}
