//! Properties that hold for every line.

use crate::support::{HOSTILE_FRAGMENTS, category_of, corpus_cases, explain};
use proptest::prelude::*;
use pvp_protocol::Category;

/// The most steps for any 64 KiB; a plain line takes about a hundred.
const MAX_STEPS: u32 = 100_000;

/// The longest line that is tested.
const MAX_LINE_BYTES: usize = 64 * 1024;

fn token_line() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "ls",
        "rm",
        "-rf",
        "/",
        "~",
        "$HOME",
        "$(",
        ")",
        "`",
        "\"",
        "'",
        "\\",
        "${",
        "}",
        "{",
        "|",
        "||",
        "&&",
        "&",
        ";",
        "\n",
        "<",
        ">",
        ">>",
        "<<",
        "<<<",
        "EOF",
        "if",
        "then",
        "fi",
        "for",
        "in",
        "do",
        "done",
        "case",
        "esac",
        "while",
        "[[",
        "]]",
        "((",
        "))",
        "[",
        "]",
        "*",
        "?",
        "#",
        "!",
        "=",
        "a",
        "b=1",
        "sudo",
        "xargs",
        "find",
        "-exec",
        "eval",
        "bash",
        "-c",
        "env",
        " ",
        "é",
        "\u{10ffff}",
        "\u{0}",
        "\u{202e}",
        "$'",
        "$[",
        "function",
        "f()",
        "2>&1",
        ">&",
        "<(",
        "coproc",
        "time",
    ]);
    prop::collection::vec((token, prop::bool::ANY), 0..60).prop_map(|tokens| {
        let spaced =
            |(token, space): (&str, bool)| format!("{token}{}", if space { " " } else { "" });
        tokens.into_iter().map(spaced).collect()
    })
}

fn corpus_line() -> impl Strategy<Value = String> {
    let lines: Vec<String> = corpus_cases().into_iter().map(|case| case.line).collect();
    prop::sample::select(lines)
}

proptest! {
    // PROPTEST_CASES sets the number of cases.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_global_rejects: u32::MAX,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_text_is_assessed_within_bounds(line in any::<String>()) {
        prop_assert!(explain(&line).steps <= MAX_STEPS);
    }

    #[test]
    fn any_tokens_are_assessed_within_bounds(line in token_line()) {
        prop_assert!(explain(&line).steps <= MAX_STEPS);
    }

    #[test]
    fn an_assessment_is_the_same_every_time(line in token_line()) {
        prop_assert_eq!(explain(&line), explain(&line));
    }

    #[test]
    fn a_joined_line_is_no_milder_than_its_second_half(x in corpus_line(), y in corpus_line()) {
        // An open quote or a comment in the first half would change what the second half means.
        prop_assume!(is_closed(&x) && !y.trim_start().starts_with(['&', '|']));
        // A pipe applies only to the first command of a list.
        let list = ["&&", "||", ";", "\n"].iter().any(|operator| y.contains(operator));
        let piped = if list { format!("{x} | ( {y}\n)") } else { format!("{x} | {y}") };
        let mut lines = vec![format!("{x} ; {y}"), format!("{x} && {y}"), piped];
        for begin in ["", " ", "\t", "\n", "\\\n", " \\\n  ", "# z\n", "#\n\\\n", "# \\\n\\\n"] {
            lines.push(format!("{x}\n{begin}{y}"));
        }
        if y.starts_with(|c: char| c.is_ascii_lowercase()) {
            // A backslash changes the meaning only of aliases and keywords.
            let bare = category_of(&format!("\\{y}"));
            prop_assert!(category_of(&format!("{x}\n\\{y}")) >= bare, "{:?} after {:?}", y, x);
        }
        for joined in lines {
            prop_assert!(category_of(&joined) >= category_of(&y), "{:?} is milder than {:?}", joined, y);
        }
    }

    #[test]
    fn a_substitution_is_no_milder_than_what_it_runs(x in corpus_line(), y in corpus_line()) {
        prop_assume!(is_closed(&x) && is_closed(&y) && !x.contains('\n'));
        for line in [format!("{x} $({y}\n)"), format!("{x} \"$({y}\n)\""), format!("{x} <({y}\n)")] {
            prop_assert!(category_of(&line) >= category_of(&y), "{:?} is milder than {:?}", line, y);
        }
    }
}

fn is_closed(line: &str) -> bool {
    let quotes =
        line.matches('\'').count().is_multiple_of(2) && line.matches('"').count().is_multiple_of(2);
    let open = [
        "$(", "${", "((", "[[", "{", "}", "(", ")", "<<", "if ", "for ", "case", "\\",
    ];
    let plain = !open.iter().any(|token| line.contains(token));
    quotes && plain && !line.contains(['#', '`']) && !line.ends_with(['&', '|', '<', '>'])
}

#[test]
fn a_command_behind_a_wrapper_is_no_milder() {
    let words = |case: &crate::support::CorpusCase| {
        pvp_policy::plain_words(&crate::support::shell(&case.line)).is_some()
    };
    let wrappers = [
        "sudo",
        "sudo -u root",
        "doas",
        "env",
        "env -i A=b",
        "nice",
        "nice -n 5",
        "ionice -c 3",
        "timeout 5",
        "timeout -k 1 5s",
        "nohup",
        "stdbuf -oL",
        "setsid",
        "time",
        "command",
        "exec",
        "xargs",
        "xargs -n 1",
        "find . -exec",
        "watch",
        "parallel",
        "ssh host",
        "ssh -p 22 me@host",
        "docker exec box",
        "docker exec -it -u root box",
        "kubectl exec pod --",
        "chroot /mnt",
        "unshare -r",
        "busybox",
        "eval",
        "builtin",
        "sudo nice timeout 5",
        "flock /tmp/x",
        "strace -f",
        "su -c",
        "runuser -u x --",
        "systemd-run --user",
    ];
    // A sample of the less severe ones is enough.
    let chosen = |(index, case): &(usize, crate::support::CorpusCase)| {
        words(case) && (case.expected > Category::Write || index % 8 == 0)
    };
    for (_, case) in corpus_cases().into_iter().enumerate().filter(chosen) {
        let inner = category_of(&case.line);
        for wrapper in wrappers {
            // These only start a command, so that a read behind them is a read.
            let transparent = [
                "nice",
                "nice -n 5",
                "timeout 5",
                "timeout -k 1 5s",
                "time",
                "command",
                "xargs",
                "xargs -n 1",
            ];
            let expected = match transparent.contains(&wrapper) {
                true => inner,
                false => inner.max(Category::Write),
            };
            let quoted = format!("'{}'", case.line.replace('\'', r"'\''"));
            let line = match wrapper {
                "su -c" => format!("su -c {quoted}"),
                wrapper => format!("{wrapper} {}", case.line),
            };
            assert!(
                category_of(&line) >= expected,
                "{line:?} is milder than {:?}",
                case.line
            );
        }
    }
}

#[test]
fn a_script_given_to_a_shell_is_no_milder() {
    for case in corpus_cases() {
        let quoted = format!("'{}'", case.line.replace('\'', r"'\''"));
        for shell in [
            "bash -c",
            "sh -lc",
            "sudo bash -c",
            "eval",
            "ssh host",
            "watch",
            "su root -c",
        ] {
            let line = format!("{shell} {quoted}");
            let expected = category_of(&case.line).max(Category::Write);
            assert!(
                category_of(&line) >= expected,
                "{line:?} is milder than {:?}",
                case.line
            );
        }
    }
}

#[test]
fn an_output_redirect_never_stays_a_read() {
    for case in corpus_cases() {
        if case.line.contains('#') {
            continue;
        }
        for target in [
            ">out", "> out", ">>out", ">|out", "&>out", "2>out", ">&out", ">$x", "<>out",
        ] {
            let line = format!("{} {target}", case.line);
            assert!(category_of(&line) > Category::Read, "{line:?}");
        }
    }
}

#[test]
fn a_command_under_another_name_never_stays_a_read() {
    for case in corpus_cases() {
        let first = case
            .line
            .split([' ', '\n', '\t'])
            .next()
            .unwrap_or_default();
        let plain = first.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let keyword = ["for", "if", "while", "until", "case", "select", "function"];
        if !plain || first.is_empty() || keyword.contains(&first) {
            continue;
        }
        let rest = &case.line[first.len()..];
        for name in ["./", "/sbin/", "/tmp/", "../", "~/", "/bin/../tmp/"] {
            let line = format!("{name}{first}{rest}");
            assert!(category_of(&line) > Category::Read, "{line:?}");
        }
        for name in [
            "$X",
            "\"$X\"",
            "${X}",
            "$(echo ls)",
            "`echo ls`",
            "l?",
            "{ls,}",
            "${X:-ls}",
        ] {
            let line = format!("{name}{rest}");
            assert!(category_of(&line) > Category::Read, "{line:?}");
        }
    }
}

/// A text that is too long to parse is split at every operator.
#[test]
fn blocked_commands_are_found_in_lines_that_are_too_long_to_parse() {
    let long = "a ".repeat(8 * 1024);
    for blocked in ["rm -rf /", "r\\\nm -rf /", "\\rm -rf /", "cd /; rm -rf *"] {
        for line in [
            format!("{long}\n{blocked}"),
            format!("{long} | {blocked}; {long}"),
        ] {
            assert_eq!(category_of(&line), Category::Blocked, "{blocked:?}");
        }
    }
}

#[test]
fn deep_and_long_lines_are_bounded_and_never_reads() {
    for piece in HOSTILE_FRAGMENTS {
        for length in [100, 9_000, MAX_LINE_BYTES] {
            let line = piece.repeat(length / piece.len());
            let explanation = explain(&line);
            assert!(
                explanation.steps <= MAX_STEPS,
                "{piece:?}: {}",
                explanation.steps
            );
            let read = explanation.assessment.category == Category::Read;
            assert!(!read || line.len() <= 8 * 1024, "{piece:?}");
        }
    }
}

#[test]
fn nesting_and_parts_beyond_the_limits_are_never_reads() {
    let nested = |depth: usize| {
        format!(
            "{}ls{}",
            "(".repeat(depth).replace("((", "( ("),
            ")".repeat(depth)
        )
    };
    assert!(category_of(&nested(40)) > Category::Read);
    let parts = |count: usize| vec!["ls"; count].join("; ");
    assert_eq!(category_of(&parts(50)), Category::Read);
    assert!(category_of(&parts(51)) > Category::Read);
}

/// A body without commands is visited for every combination of values.
#[test]
fn loops_inside_loops_are_bounded() {
    for body in [
        "<a",
        "while read -r q; do <a; done",
        "case x in y) <a;; esac",
        "ls",
    ] {
        let mut line = body.to_owned();
        for level in 0..10 {
            line = format!("for v{level} in {{1..16}}; do {line}; done");
        }
        let explanation = explain(&line);
        assert!(
            explanation.steps <= MAX_STEPS,
            "{body}: {}",
            explanation.steps
        );
        assert!(explanation.assessment.category > Category::Read, "{body}");
    }
}

/// The lines of the corpus that are one plain command, and a read.
fn plain_reads() -> Vec<String> {
    let cases = corpus_cases().into_iter();
    let lines = cases.map(|case| case.line);
    lines
        .filter(|line| pvp_policy::plain_words(&crate::support::shell(line)).is_some())
        .filter(|line| category_of(line) == Category::Read)
        .collect()
}

#[test]
fn a_value_beyond_ascii_is_no_fault() {
    for case in corpus_cases() {
        for value in ["é", "日本", "\u{10ffff}"] {
            let words = case.line.split(' ');
            let begun: Vec<String> = words.clone().map(|word| format!("{value}{word}")).collect();
            let ended: Vec<String> = words.map(|word| format!("{word}{value}")).collect();
            for line in [
                begun.join(" "),
                ended.join(" "),
                format!("{} {value}", case.line),
            ] {
                assert_ne!(explain(&line).assessment.rule, "default.fault", "{line:?}");
            }
        }
    }
}

#[test]
fn a_loop_variable_that_is_set_again_is_never_read() {
    for line in plain_reads() {
        for looped in [
            format!("for f in a; do for f in b; do {line}; done; cat -- \"$f\"; done"),
            format!("for f in a; do while read -r f; do {line}; done; cat -- \"$f\"; done"),
            format!("for _ in a; do {line}; cat -- \"$_\"; done"),
        ] {
            assert!(category_of(&looped) > Category::Read, "{looped:?}");
        }
    }
}

#[test]
fn an_unknown_locale_never_stays_a_read() {
    for line in plain_reads() {
        for locale in ["LC_ALL=zh_CN.GBK", "LANG=ja_JP.SJIS", "LC_CTYPE=ko_KR"] {
            let line = format!("{locale} {line}");
            assert!(category_of(&line) > Category::Read, "{line:?}");
        }
    }
}

#[test]
fn a_reader_of_files_with_a_secret_or_a_computed_operand_never_stays_a_read() {
    let readers = "cat head tail grep egrep wc sort nl od cut diff cmp strings file sed awk jq";
    let first = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let is_reader = |line: &String| readers.split(' ').any(|reader| reader == first(line));
    for line in plain_reads().iter().filter(|line| is_reader(line)) {
        let line = line.split(" -- ").next().unwrap_or_default();
        if ["--help", "--version"]
            .iter()
            .any(|flag| line.contains(flag))
        {
            continue;
        }
        for operand in [
            ".env",
            "config/prod.env",
            "~/.ssh/id_rsa",
            "\"$TOKEN\"",
            "$(touch x)",
        ] {
            let line = format!("{line} a {operand}");
            assert!(category_of(&line) > Category::Read, "{line:?}");
        }
    }
}

#[test]
fn the_text_of_a_document_for_a_file_is_data_whatever_it_says() {
    for case in corpus_cases() {
        let own_end = case.line.lines().any(|line| line.starts_with("END"));
        if own_end || case.line.contains('\0') || case.line.len() > 4000 {
            continue;
        }
        let line = format!("cat > notes.txt <<'END'\n{}\nEND", case.line);
        assert_eq!(category_of(&line), Category::Write, "{line:?}");
    }
}
