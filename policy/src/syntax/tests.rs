//! Tests of extracting commands from lines.

use super::*;

fn parse_in_work(source: &str) -> ParsedScript {
    parse_script(source, &ResolvedPath::new(PathRoot::Absolute).join("/work"))
}

#[test]
fn plain_lines_leave_no_doubt() {
    for source in [
        "ls -la",
        "ls; cat a | wc -l && echo 'x y' || true",
        "[ -f x ] && echo yes",
        "for f in a b; do cat \"$f\"; done",
        "if [ -f x ]; then cat x; else ls; fi",
        "ls 2>/dev/null >&2 <in 2>&1",
        "cat <<< abc",
        "ls 2>/dev/null -l | sort >&2 -n",
        "! grep x y",
        "(cd a; ls)",
        "{ ls; cat b; }",
        "LC_ALL=C sort a",
        "ls *.rs ~/x \"a$HOME\" a\\ b 'q'\"r\"s",
        "echo $? ${HOME} $$",
        "ls # comment",
        "cd a\nls",
        "ls a \\\n -l",
        "head -5 x",
        "git log --format=\"%h %s\" HEAD~3",
        "ls [ab]",
        "grep 'a$' b",
        "grep -E \"^x|y$\" b",
        "for f in $(ls); do cat $f; done",
        "case x in x) ls;; esac",
        "case \"$HOME\" in\n  a|b*) ls a; ls b ;;\n  *) cat c\nesac",
        "[[ -f x && -f y ]]",
        "[[ -f x || ! -d y ]] && ls",
        "echo {a,b} x{1..3}",
        "ls src/{a,b}/*.rs",
        "echo \"$(git log | head -1)\"",
        "echo $(ls) \"a$(cat \"$(ls)\")\"",
        "while read -r l; do echo \"$l\"; done < f",
        "ls | while IFS= read -r a b; do ls -- \"$a\"; done",
        "cat <<'E'\n$(x) `y` (((\nE",
        "cat <<E | grep x\ny\nE",
        "cat <<-E\n\ty\n\tE\nls",
        "cat <(ls) < <(ls)",
        "echo $((1 + 2))",
        "time ls",
    ] {
        assert_eq!(
            parse_in_work(source).doubts,
            Vec::<String>::new(),
            "{source}"
        );
    }
}

#[test]
fn hidden_commands_leave_doubt() {
    for source in [
        "echo \"${a:=`touch z`}\"",
        "echo ${a:-$(x)}",
        "echo $((a[$(x)]))",
        "echo $[1]",
        "ls &",
        "cat <<E\n$(x)\nE",
        "cat >(ls)",
        "f() { ls; }",
        "a=1",
        "export A=1",
        "while true; do ls; done",
        "while read -r x y < f; do ls; done",
        "while read -a x; do ls; done",
        "while read PATH; do ls; done",
        "while IFS=x read l; do ls; done",
        "until read -r l; do ls; done",
        "while read l && ls; do ls; done",
        "case $TOKEN in x) ls;; esac",
        "case x in $TOKEN) ls;; esac",
        "case x in x) ls;& esac",
        "echo $'a'",
        "echo {a,'b'}",
        "for f in a; do for f in b; do ls; done; cat $f; done",
        "for f in a; do while read f; do ls; done; cat $f; done",
        "for _ in a; do ls; done",
        "echo $((a))",
        "echo `ls`",
        "ls |& cat",
        "for ((i=0;i<3;i++)); do ls; done",
        "select f in a b; do ls; done",
        "for PATH in /tmp; do ls; done",
    ] {
        assert_ne!(
            parse_in_work(source).doubts,
            Vec::<String>::new(),
            "{source}"
        );
    }
}

#[test]
fn commands_that_the_parser_missed_come_from_the_strict_lexer() {
    let directory = ResolvedPath::new(PathRoot::Absolute).join("/work");
    let mut walker = SyntaxWalker::new("ls a; cd /\nrm -rf *", &directory);
    walker.cross_check(lex::lex_line(walker.source), &directory);
    assert!(!walker.script.doubts.is_empty());
    let words = |command: &SimpleCommand| {
        command
            .words
            .iter()
            .map(ShellWord::text)
            .collect::<Vec<_>>()
    };
    let seen: Vec<_> = walker.script.commands.iter().map(words).collect();
    assert_eq!(
        seen,
        [vec!["ls", "a"], vec!["cd", "/"], vec!["rm", "-rf", "*"]]
    );
    let directories = &walker.script.commands[2].directories;
    assert!(
        directories.contains(&ResolvedPath::new(PathRoot::Absolute)),
        "{directories:?}"
    );
}

#[test]
fn cd_is_tracked() {
    let directory = |source: &str| {
        let parts = parse_in_work(source).commands;
        let directories = &parts.last().unwrap().directories;
        directories
            .iter()
            .map(ResolvedPath::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(directory("cd / && rm -rf *"), ["/"]);
    assert_eq!(directory("cd /; rm -rf *"), ["/", "/work"]);
    assert_eq!(directory("cd /\nrm -rf *"), ["/", "/work"]);
    assert_eq!(directory("cd a && cd b && ls"), ["/work/a/b"]);
    assert_eq!(directory("(cd /) && ls"), ["/work"]);
    assert_eq!(directory("cd && ls"), ["~/"]);
    assert_eq!(directory("cd $X && ls"), ["?/"]);
    assert_eq!(directory("cd / | ls"), ["/work"]);
    assert_eq!(directory("a | b | c && cd / && rm -rf *"), ["/", "/work"]);
    assert_eq!(directory("a | (b && cd /); rm -rf *"), ["/work"]);
    let long = "cd a; ".repeat(20);
    assert!(directory(&format!("{long} rm -rf *")).contains(&"/".to_owned()));
    assert!(!parse_in_work(&format!("{long} ls")).doubts.is_empty());
}
