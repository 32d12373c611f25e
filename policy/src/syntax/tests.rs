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
        "cat <(ls)",
        "f() { ls; }",
        "a=1",
        "export A=1",
        "while true; do ls; done",
        "case x in x) ls;; esac",
        "[[ -f x && -f y ]]",
        "echo $'a'",
        "echo {a,b}",
        "ls |& cat",
        "for ((i=0;i<3;i++)); do ls; done",
        "select f in a b; do ls; done",
        "for f in $(ls); do cat $f; done",
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
    walker.cross_check(&directory);
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
