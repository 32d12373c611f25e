//! Tests of assessing whole actions.

use super::*;

fn shell(line: &str) -> Action {
    Action::new(Command::Shell {
        line: line.to_owned(),
    })
}

fn category_of(line: &str) -> Category {
    let workspace = Workspace::default();
    Policy::built_in().assess(&shell(line), &workspace).category
}

#[test]
fn every_example_of_every_built_in_rule_holds() {
    let failures: Vec<String> = Policy::built_in()
        .failing_examples()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(failures, Vec::<String>::new());
}

#[test]
fn there_are_hundreds_of_rules_each_with_a_reason_and_an_example() {
    let policy = Policy::built_in();
    let raising = policy.rules().filter(|rule| rule.kind != RuleKind::Read);
    assert!(raising.count() >= 300);
    for rule in policy.rules() {
        assert!(
            !rule.reason.is_empty() && !rule.matches.is_empty(),
            "{}",
            rule.id
        );
    }
}

#[test]
fn plain_reads_are_reads() {
    for line in [
        "ls",
        "ls -la src",
        "pwd",
        "cat README.md",
        "head -n 5 a.txt",
        "git status",
        "wc -l a b",
        "ls && ls",
        "ls | cat",
        "cat <a",
        "ls *",
        "cd src && ls",
        "(cd a; ls)",
        "ls 2>/dev/null",
        "for f in a b; do cat \"$f\"; done",
        "if [ -f x ]; then cat x; fi",
        "cat <<< abc",
        "! grep x y",
        "LC_ALL=C sort a",
        "a=b true".trim_start_matches("a=b "),
    ] {
        assert_eq!(category_of(line), Category::Read, "{line}");
    }
}

#[test]
fn anything_uncertain_is_a_write() {
    for line in [
        "",
        " ",
        "#",
        "ls; rm x",
        "echo $(touch x)",
        "ls > b",
        "./ls",
        "/sbin/ls",
        "/tmp/usr/bin/ls",
        "$X",
        "LS=1 ls",
        "ls --color-of-unknown",
        "cat a\nrm b",
        "make",
        "npm install",
        "git commit -m x",
        "git status --unknown-flag",
        "head -c5x -y a",
        "env ls",
        "sudo ls",
        "ls\u{a0}-l",
        "cat ~/x",
        "ls &",
        "\"${a:=`touch z`}\"",
        "echo \"${a:=`touch z`}\"",
    ] {
        assert_eq!(category_of(line), Category::Write, "{line:?}");
    }
    let long = format!("ls {}", "a".repeat(9000));
    assert_eq!(category_of(&long), Category::Write);
}

#[test]
fn destructive_and_blocked_commands_are_found_anywhere_in_the_line() {
    for line in [
        "rm -rf build",
        "ls; rm -fr x",
        "killall node",
        "git reset --hard",
        "git push --force",
        "echo $(rm -rf x)",
        "echo \"`rm -rf x`\"",
        "sudo -u a rm -rf x",
        "bash -c 'rm -rf x'",
    ] {
        assert_eq!(category_of(line), Category::Destructive, "{line}");
    }
    for line in [
        "rm -rf /",
        "sudo rm -rf /*",
        "rm -rf ~",
        "mkfs.ext4 /dev/sda1",
        "dd if=a of=/dev/sda",
        "shutdown now",
        ":(){ :|:& };:",
        "echo x > /dev/sda",
        "cd / && rm -rf *",
        "b() { b | b & }; b",
        "{rm,-rf,/}",
        "$'rm' -rf /",
        "eval rm -rf /",
        "echo 'rm -rf /' | sh",
        "r\"\"m -rf \"/\"",
    ] {
        assert_eq!(category_of(line), Category::Blocked, "{line}");
    }
}

#[test]
fn environment_and_modes_are_assessed_too() {
    let policy = Policy::built_in();
    let category = |action: &Action| policy.assess(action, &Workspace::default()).category;
    let ls = shell("ls");
    let with_env = |name: &str, value: &str| Action {
        env: [(name.to_owned(), value.to_owned())].into(),
        ..ls.clone()
    };
    assert_eq!(category(&ls), Category::Read);
    assert_eq!(category(&with_env("LC_ALL", "C")), Category::Read);
    for name in [
        "LD_PRELOAD",
        "PATH",
        "BASH_ENV",
        "GIT_DIR",
        "FOO",
        "BASH_FUNC_ls%%",
    ] {
        assert_eq!(category(&with_env(name, "x")), Category::Write, "{name}");
    }
    for mode in [RunMode::Background, RunMode::Pty] {
        let action = Action { mode, ..ls.clone() };
        assert_eq!(category(&action), Category::Write);
    }
}

#[test]
fn a_login_shell_command_is_a_read_only_if_it_means_the_same_in_every_shell() {
    let policy = Policy::built_in();
    let category = |line: &str| {
        let line = line.to_owned();
        let action = Action::new(Command::LoginShell { line });
        policy.assess(&action, &Workspace::default()).category
    };
    assert_eq!(category("ls -la"), Category::Read);
    assert_eq!(category("cat 'a b' | wc -l"), Category::Read);
    assert_eq!(category("ls *"), Category::Write);
    assert_eq!(category("echo $HOME"), Category::Write);
    assert_eq!(category("rm -rf /"), Category::Blocked);
}

#[test]
fn argv_is_assessed_word_by_word_without_a_shell() {
    let argv = |command: &str, args: &[&str]| {
        Action::new(Command::Argv {
            command: command.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
        })
    };
    let policy = Policy::built_in();
    let category = |command: &str, args: &[&str]| {
        policy
            .assess(&argv(command, args), &Workspace::default())
            .category
    };
    assert_eq!(category("ls", &["a b", "; x"]), Category::Read);
    assert_eq!(category("ls", &["$(rm -rf /)"]), Category::Read);
    assert_eq!(category("rm", &["-rf", "x"]), Category::Destructive);
    assert_eq!(category("rm", &["-rf", "/"]), Category::Blocked);
    assert_eq!(category("ls -la", &[]), Category::Write);
    assert_eq!(category("bash", &["-c", "rm -rf /"]), Category::Blocked);
    assert_eq!(category("./ls", &[]), Category::Write);
}

#[test]
fn reads_outside_the_workspace_need_a_vote_and_name_the_path() {
    let policy = Policy::built_in();
    let workspace = Workspace {
        directory: Some("/work/app".to_owned()),
        ..Workspace::default()
    };
    for (line, note) in [
        ("cat /home/ann/x", "outside the workspace: /home/ann/x"),
        ("cat ../x", "outside the workspace: /work/x"),
        ("cd .. && ls", "outside the workspace: /work/"),
        ("cat < ../x", "outside the workspace: /work/x"),
        ("grep -r x ~", "outside the workspace: ~/"),
        ("cat .env", "may hold secrets: /work/app/.env"),
    ] {
        let assessment = policy.assess(&shell(line), &workspace);
        assert_eq!(assessment.category, Category::Write, "{line}");
        let note = note.trim_end_matches('/');
        assert!(
            assessment
                .notes
                .iter()
                .any(|it| it.trim_end_matches('/') == note),
            "{line}: {:?}",
            assessment.notes
        );
    }
    for line in [
        "cat src/../a",
        "cat /work/app/a",
        "cat /etc/hosts",
        "grep /api src",
        "cd a && cat ../b",
    ] {
        let assessment = policy.assess(&shell(line), &workspace);
        assert_eq!(
            assessment.category,
            Category::Read,
            "{line}: {}",
            assessment.reason
        );
    }
    let elsewhere = Action {
        cwd: Some("/home/ann".to_owned()),
        ..shell("cat x")
    };
    assert_eq!(
        policy.assess(&elsewhere, &workspace).category,
        Category::Write
    );
}

#[test]
fn an_assessment_explains_its_parts() {
    let assessment = Policy::built_in().assess(&shell("ls && rm -rf x"), &Workspace::default());
    let parts: Vec<_> = assessment
        .parts
        .iter()
        .map(|part| (part.text.as_str(), part.category, part.rule.as_str()))
        .collect();
    assert_eq!(
        parts,
        [
            ("ls", Category::Read, "read.ls"),
            ("rm -rf x", Category::Destructive, "files.rm-recursive"),
        ]
    );
    assert_eq!(assessment.rule, "files.rm-recursive");
    assert_eq!(assessment.profile, SandboxProfile::None);
}

#[test]
fn a_line_gets_the_narrowest_sandbox_of_its_parts() {
    let policy = Policy::built_in();
    for (line, category, profile) in [
        ("ls", Category::Read, SandboxProfile::Read),
        ("cd a; echo b", Category::Read, SandboxProfile::Read),
        ("docker ps", Category::Read, SandboxProfile::ReadNet),
        ("docker ps; ss -l", Category::Read, SandboxProfile::ReadNet),
        ("cd a && docker ps", Category::Read, SandboxProfile::ReadNet),
        ("docker ps | head", Category::Write, SandboxProfile::None),
        ("ls; docker ps", Category::Write, SandboxProfile::None),
    ] {
        let assessment = policy.assess(&shell(line), &Workspace::default());
        let found = (assessment.category, assessment.profile);
        assert_eq!(found, (category, profile), "{line}");
    }
}

#[test]
fn what_runs_given_code_is_known_by_its_words() {
    let policy = Policy::built_in();
    let runs = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        policy.runs_given_code(&words).is_some()
    };
    for line in [
        "bash",
        "python3.12 a.py",
        "env A=b ls",
        "find . -exec ls",
        "npm exec x",
        "git -c a=b x",
    ] {
        assert!(runs(line), "{line}");
    }
    for line in [
        "npm test",
        "make all",
        "find . -name x",
        "git commit",
        "cargo build",
        "docker ps",
    ] {
        assert!(!runs(line), "{line}");
    }
}

#[test]
fn plain_words_are_those_of_one_plain_command() {
    let own = |words: &[&str]| {
        Some(
            words
                .iter()
                .map(|&word| word.to_owned())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        plain_words(&shell("npm test -- a=b")),
        own(&["npm", "test", "--", "a=b"])
    );
    for line in [
        "a; b", "a 'b'", "a \\b", "a *", "a ~", "a $x", "A=1 b", "a > b", "if a", "a\nb", "a # b",
        "! a", "time a",
    ] {
        assert_eq!(plain_words(&shell(line)), None, "{line}");
    }
}

/// A line that makes the assessment fail, to see what follows.
const FAULT: &str = "pvp-test-fault";

pub(crate) fn panic_if_asked(action: &Action) {
    assert_ne!(action.command.summary(), FAULT, "asked to fail");
}

#[test]
fn a_fault_in_the_assessment_means_that_people_are_asked() {
    let assessment = Policy::built_in().assess(&shell(FAULT), &Workspace::default());
    assert_eq!(
        (assessment.category, assessment.rule.as_str()),
        (Category::Write, "default.fault")
    );
    assert_eq!(
        category_of("ls"),
        Category::Read,
        "the next one is assessed"
    );
}

#[test]
fn values_that_begin_beyond_ascii_are_assessed() {
    for line in [
        "grep -e é a",
        "git log --author Ünal",
        "ls --width ß",
        "head -n 本 a",
        "grep -A é x a",
        "sort -k ü a",
    ] {
        let explanation = Policy::built_in().explain(&shell(line), &Workspace::default());
        assert_ne!(explanation.assessment.rule, "default.fault", "{line}");
    }
}

#[test]
fn a_workspace_directly_below_the_root_is_not_a_system_directory() {
    let policy = Policy::built_in();
    let workspace = Workspace {
        directory: Some("/app".to_owned()),
        ..Workspace::default()
    };
    let category = |line: &str| policy.assess(&shell(line), &workspace).category;
    for line in ["grep -rn x /app", "rg x /app", "cat /app/a", "ls /app"] {
        assert_eq!(category(line), Category::Read, "{line}");
    }
    for line in ["grep -rn x /", "grep -rn x /etc", "grep -rn x /other"] {
        assert_eq!(category(line), Category::Write, "{line}");
    }
    assert_eq!(category("rm -rf /app/build"), Category::Destructive);
    assert_eq!(category("rm -rf /"), Category::Blocked);
    assert_eq!(category("cat /app/.env"), Category::Write);
    let system = Workspace {
        directory: Some("/etc".to_owned()),
        ..Workspace::default()
    };
    let assessment = policy.assess(&shell("grep -rn x /etc"), &system);
    assert_eq!(assessment.category, Category::Write);
}

#[test]
fn a_read_below_a_read_root_is_a_read_and_still_names_the_path() {
    let policy = Policy::built_in();
    let workspace = Workspace {
        directory: Some("/work/app".to_owned()),
        read_roots: vec!["/data".to_owned()],
    };
    for (line, path) in [
        ("cat /data/x/y", "/data/x/y"),
        ("grep -rn z /data", "/data"),
        ("cd /data && ls sub", "/data/sub"),
        ("cat < /data/x", "/data/x"),
    ] {
        let assessment = policy.assess(&shell(line), &workspace);
        assert_eq!(assessment.category, Category::Read, "{line}");
        let note = format!("outside the workspace: {path}");
        assert!(assessment.notes.contains(&note), "{:?}", assessment.notes);
    }
    for line in [
        "cat /data/.env",
        "cat /data/../x",
        "cat /database/x",
        "cp /data/x .",
        "touch /data/x",
        "cat /data/x > /data/y",
    ] {
        let assessment = policy.assess(&shell(line), &workspace);
        assert_eq!(assessment.category, Category::Write, "{line}");
    }
    let assessment = policy.assess(&shell("rm -rf /data/x"), &workspace);
    assert_eq!(assessment.category, Category::Destructive);
}

#[test]
fn the_read_roots_that_a_command_needs_are_named() {
    let policy = Policy::built_in();
    let workspace = Workspace {
        directory: Some("/work/app".to_owned()),
        ..Workspace::default()
    };
    for (line, roots) in [
        ("cat /data/sets/x.csv", &["/data/sets"][..]),
        ("ls /data/sets", &["/data/sets"]),
        ("cat /data/a/*.md", &["/data/a"]),
        ("cat /data/a/x.txt /data/b/y.txt", &["/data/a", "/data/b"]),
        ("cat ../other/x.rs", &["/work/other"]),
        // These need more than a root, or a root that nobody can give.
        ("cat a", &[]),
        ("cp /data/sets/x.csv .", &[]),
        ("cat /data/sets/x.csv; make", &[]),
        ("cat /data/.env", &[]),
        ("cat ~/x", &[]),
        ("cat /home/ann/x.txt", &[]),
        ("ls /", &[]),
    ] {
        let needed = policy.needed_read_roots(&shell(line), &workspace);
        assert_eq!(needed, roots, "{line}");
    }
}

#[test]
fn the_files_that_a_command_deletes_are_named() {
    let workspace = Workspace {
        directory: Some("/work/app".to_owned()),
        ..Workspace::default()
    };
    let deleted = |line: &str| Policy::built_in().deleted_files(&shell(line), &workspace);
    for (line, expected) in [
        ("rm a b", vec!["a", "b"]),
        ("rm -f -- -x a", vec!["-x", "a"]),
        ("cd src && rm a; ls", vec!["src/a"]),
        ("rm /work/app/x /etc/y ../z", vec!["x"]),
        ("rm *.txt \"$X\" a", vec!["a"]),
        ("unlink a", vec!["a"]),
        ("ls a", vec![]),
    ] {
        assert_eq!(deleted(line), expected, "{line}");
    }
}

#[test]
fn read_roots_in_which_others_keep_what_is_theirs_are_refused() {
    for root in [
        "/var",
        "/var/lib",
        "/var/lib/docker",
        "/var/backups",
        "/var/mail/root",
        "/home/me/.mozilla",
        "/home/me/.thunderbird/x",
        "/root/.electrum",
    ] {
        assert!(check_read_root(root).is_err(), "{root}");
    }
    for root in [
        "/var/www",
        "/data",
        "/home/me/other",
        "/home/me/.cargo",
        "/opt/app",
    ] {
        assert!(check_read_root(root).is_ok(), "{root}");
    }
    let workspace = Workspace {
        directory: Some("/work/app".to_owned()),
        ..Workspace::default()
    };
    let roots = |line: &str| Policy::built_in().needed_read_roots(&shell(line), &workspace);
    assert_eq!(roots("cat /home/bob/proj/Makefile"), ["/home/bob/proj"]);
    assert_eq!(roots("cat /var/notes.txt"), Vec::<String>::new());
}
