//! Tests of how calls of tools other than the shell are assessed.

#![expect(
    clippy::unwrap_used,
    reason = "a test stops at what it does not expect"
)]

use pvp_policy::{FilePresence, Policy, RuleOrigin, Workspace};
use pvp_protocol::{Action, Assessment, Category, Command, QuorumRule, Risk, SandboxProfile};

fn action(line: &str) -> Action {
    let Command::Tool { name, arguments } = Command::tool_call_from_line(line).unwrap() else {
        unreachable!("it is a call");
    };
    Action::from_arguments(&name, &arguments).unwrap()
}

fn workspace() -> Workspace {
    Workspace {
        directory: Some("/work/app".to_owned()),
        ..Workspace::default()
    }
}

fn assess_with(policy: &Policy, line: &str) -> Assessment {
    policy.assess(&action(line), &workspace())
}

fn assess(line: &str) -> Assessment {
    assess_with(&Policy::built_in(), line)
}

fn write_to(path: &str) -> Assessment {
    let path = path.replace('\\', "\\\\").replace('"', "\\\"");
    let written = assess(&format!(
        r#"file_write {{"path": "{path}", "content": "x"}}"#
    ));
    let edit = format!(r#"file_edit {{"path": "{path}", "old_text": "a", "new_text": "b"}}"#);
    let edited = assess(&edit);
    assert_eq!(
        (written.category, written.risk, &written.rule),
        (edited.category, edited.risk, &edited.rule)
    );
    written
}

#[test]
fn reading_a_file_of_the_workspace_is_a_read_in_the_read_sandbox() {
    for line in [
        r#"file_read {"path": "README.md"}"#,
        r#"file_read {"path": "src/./main.rs", "offset": 3, "limit": 10}"#,
        r#"file_read {"path": "/work/app/src/main.rs", "description": "why"}"#,
        r#"file_read {"path": ".env.example"}"#,
    ] {
        let assessment = assess(line);
        assert_eq!(assessment.category, Category::Read, "{line}");
        assert_eq!(assessment.profile, SandboxProfile::Read, "{line}");
        assert_eq!(assessment.rule, "tool.file-read");
    }
}

#[test]
fn reading_secrets_or_elsewhere_is_asked_for_as_a_sensitive_read() {
    for (path, rule) in [
        (".env", "path.secret"),
        ("deploy/prod.env", "path.secret"),
        (".git/config", "path.secret"),
        ("a/../.env", "path.secret"),
        ("/work/app/id_rsa", "path.secret"),
        ("~/.ssh/id_rsa", "path.secret"),
        ("/etc/hosts", "path.outside"),
        ("/work/application/x", "path.outside"),
        ("../x", "path.outside"),
        // A link may lead anywhere, and so does what is above its target.
        ("a/../b", "path.outside"),
        ("~/notes", "path.outside"),
        ("/work/app", "path.outside"),
        ("", "path.outside"),
        ("/proc/self/root/etc/hosts", "path.outside"),
    ] {
        let assessment = assess(&format!(r#"file_read {{"path": "{path}"}}"#));
        assert_eq!(assessment.category, Category::Write, "{path}");
        assert_eq!(assessment.rule, rule, "{path}");
        assert!(assessment.sensitive_read, "{path}");
    }
}

#[test]
fn what_cannot_be_seen_or_is_not_our_form_is_never_a_read() {
    for line in [
        "file_read {\"path\": \"READ\u{200b}ME.md\"}",
        "file_read {\"path\": \"a\u{202e}b\"}",
        r#"file_read {"path": "a\nb"}"#,
        r#"file_read {"path": "a\u0000b"}"#,
        r#"file_read {"file_path": "README.md"}"#,
        r#"file_read {"path": "README.md", "follow": true}"#,
        r#"file_read {"path": "README.md", "files": "README.md"}"#,
        r#"file_read {"path": ["README.md"]}"#,
        r#"file_read {}"#,
        r#"Open {"file_path": "README.md"}"#,
        r#"Read {"file_path": "README.md", "follow": true}"#,
    ] {
        let assessment = assess(line);
        assert_eq!(assessment.category, Category::Write, "{line}");
        assert!(!assessment.sensitive_read, "{line}");
    }
    let long = format!(r#"file_read {{"path": "{}"}}"#, "a/".repeat(3000));
    assert_eq!(assess(&long).category, Category::Write);
}

#[test]
fn writing_in_the_workspace_is_a_write_whose_risk_depends_on_who_runs_the_file() {
    for (path, risk, rule) in [
        ("notes.txt", Risk::Low, "tool.file-write"),
        ("/work/app/src/main.rs", Risk::Low, "tool.file-write"),
        (".git/info/exclude", Risk::High, "tool.file-git"),
        ("vendor/x/.git/info/x", Risk::High, "tool.file-git"),
        (".github/workflows/ci.yml", Risk::High, "tool.file-ci"),
        (".gitlab-ci.yml", Risk::High, "tool.file-ci"),
        ("home/.bashrc", Risk::High, "tool.file-startup"),
        ("policy.toml", Risk::High, "tool.file-agent-settings"),
        ("Makefile", Risk::Medium, "tool.file-build"),
        ("web/package.json", Risk::Medium, "tool.file-build"),
        ("Cargo.lock", Risk::Medium, "tool.file-lock"),
    ] {
        let assessment = write_to(path);
        assert_eq!(assessment.category, Category::Write, "{path}");
        assert_eq!(
            (assessment.risk, assessment.rule.as_str()),
            (risk, rule),
            "{path}"
        );
    }
}

#[test]
fn writing_secrets_or_elsewhere_is_destructive_or_blocked() {
    for (path, category, rule) in [
        (".env", Category::Destructive, "tool.file-secret"),
        (".envrc", Category::Destructive, "tool.file-secret"),
        (
            ".git/hooks/pre-commit",
            Category::Destructive,
            "tool.file-git-hooks",
        ),
        (
            "certs/server.key",
            Category::Destructive,
            "tool.file-secret",
        ),
        ("../x", Category::Destructive, "tool.file-outside"),
        ("a/../b", Category::Destructive, "tool.file-outside"),
        ("/tmp/x", Category::Destructive, "tool.file-outside"),
        ("/etc/motd", Category::Destructive, "tool.file-outside"),
        ("~/.bashrc", Category::Destructive, "tool.file-outside"),
        ("", Category::Destructive, "tool.file-outside"),
        ("/etc/passwd", Category::Blocked, "files.output-vital"),
        ("../../etc/sudoers", Category::Blocked, "files.output-vital"),
        ("/dev/sda", Category::Blocked, "files.output-device"),
    ] {
        let assessment = write_to(path);
        assert_eq!(assessment.category, category, "{path}");
        assert_eq!(assessment.rule, rule, "{path}");
        let named = assessment.reason.contains(path);
        assert!(
            named || category == Category::Blocked || path.contains("hooks"),
            "{path}"
        );
    }
}

#[test]
fn another_agents_tools_are_asked_for_and_known_paths_raise_their_risk() {
    let unknown = assess(r#"mcp__github__create_issue {"title": "a"}"#);
    assert_eq!(
        (unknown.category, unknown.risk),
        (Category::Write, Risk::Medium)
    );
    assert_eq!(unknown.rule, "tool.mcp");
    assert_eq!(
        unknown.reason,
        "calls `create_issue` of the MCP server `github`"
    );
    let unheard_of = assess(r#"unheard_of {"title": "a"}"#);
    assert_eq!(
        unheard_of.reason,
        "nothing is known about the tool `unheard_of`"
    );
    let hook = assess(r#"Write {"file_path": ".git/hooks/pre-commit", "content": "x"}"#);
    assert_eq!(
        (hook.category, hook.rule.as_str()),
        (Category::Destructive, "tool.file-git-hooks")
    );
    let ours = assess(r#"file_write {"file_path": "a", "content": "x"}"#);
    assert_eq!(
        (ours.risk, ours.rule.as_str()),
        (Risk::Medium, "tool.arguments")
    );
    let git = assess(r#"file_write {"file_path": "/work/app/.git/info/x", "content": "x"}"#);
    assert_eq!((git.risk, git.rule.as_str()), (Risk::High, "tool.file-git"));
}

#[test]
fn text_that_is_displayed_in_another_order_is_noted() {
    let hidden = assess("file_write {\"path\": \"a\", \"content\": \"x\u{202e}y\"}");
    assert!(hidden.notes[0].contains("order in which text is displayed"));
    assert_eq!(
        assess(r#"file_write {"path": "a", "content": "☕️"}"#)
            .notes
            .len(),
        0
    );
}

#[test]
fn the_file_that_a_call_changes_is_named_and_must_be_bound() {
    let named = |line: &str| {
        let named = Policy::built_in().named_files(&action(line), &workspace());
        let files = named.files.into_iter();
        files
            .map(|file| {
                assert_eq!(file.presence, FilePresence::Expected);
                file.path
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(named(r#"file_write {"path": "./a", "content": ""}"#), ["a"]);
    assert_eq!(named(r#"file_read {"path": "a"}"#), Vec::<String>::new());
    assert_eq!(named(r#"Write {"path": "a"}"#), Vec::<String>::new());
}

const TOOL_RULES: &str = r#"
[[tool]]
id = "team.issues"
name = "mcp__github__get_* mcp__github__list_issues"
category = "read"
allow_read = true
reason = "shows our issues"
matches = ['mcp__github__get_issue {"number": 1}', 'mcp__github__list_issues']
not = ['mcp__github__create_issue {"title": "a"}']

[[tool]]
id = "team.no-secrets"
name = "mcp__github__get_secret"
category = "blocked"
reason = "our tokens stay where they are"
matches = ['mcp__github__get_secret {"name": "x"}']

[[tool]]
id = "team.docs"
name = "file_write file_edit mcp__fs__write"
path = ["docs/**"]
category = "read"
allow_read = true
reason = "documentation is reviewed before it is published"
matches = ['file_write {"path": "docs/a.md", "content": ""}', 'mcp__fs__write {"path": "docs/a.md"}']
not = ['file_write {"path": "src/docs/a.rs", "content": ""}', 'mcp__fs__write {"path": "docs/a", "target": "/etc/x"}']

[[tool]]
id = "team.migrations"
name = "file_write file_edit"
path = ["db/migrations/**"]
category = "destructive"
reason = "runs against the database of our customers"
matches = ['file_write {"path": "db/migrations/1.sql", "content": ""}']
quorum = { type = "any", count = 2 }

[[change]]
rule = "tool.file-lock"
category = "destructive"
"#;

#[test]
fn a_user_names_tools_and_paths() {
    let policy = Policy::with_user_file(TOOL_RULES, "policy.toml").unwrap();
    for (line, category, rule) in [
        (
            r#"mcp__github__get_issue {"number": 7}"#,
            Category::Read,
            "team.issues",
        ),
        ("mcp__github__list_issues", Category::Read, "team.issues"),
        (
            "mcp__github__list_issues_of_all",
            Category::Write,
            "tool.mcp",
        ),
        (
            r#"mcp__github__get_secret {"name": "x"}"#,
            Category::Blocked,
            "team.no-secrets",
        ),
        (
            r#"file_write {"path": "docs/a/b.md", "content": ""}"#,
            Category::Read,
            "team.docs",
        ),
        // What is certain about a path, or what a built-in rule says about it, is not lowered.
        (
            r#"file_write {"path": "docs/../src/a", "content": ""}"#,
            Category::Destructive,
            "tool.file-outside",
        ),
        (
            r#"file_write {"path": "docs/.env", "content": ""}"#,
            Category::Destructive,
            "tool.file-secret",
        ),
        (
            r#"file_write {"path": "docs/Makefile", "content": ""}"#,
            Category::Write,
            "tool.file-build",
        ),
        (
            r#"file_write {"path": "docs/.git/info/x", "content": ""}"#,
            Category::Write,
            "tool.file-git",
        ),
        (
            r#"file_write {"file_path": "docs/a", "content": ""}"#,
            Category::Write,
            "tool.arguments",
        ),
        (
            "file_write {\"path\": \"docs/a\u{200b}\", \"content\": \"\"}",
            Category::Write,
            "default.doubt",
        ),
        (
            r#"mcp__fs__write {"path": "docs/a", "destination": "src/a"}"#,
            Category::Write,
            "tool.mcp",
        ),
        (
            r#"mcp__fs__write {"path": "/work/app/docs/a"}"#,
            Category::Read,
            "team.docs",
        ),
        (
            r#"mcp__fs__write {"text": "docs/a"}"#,
            Category::Write,
            "tool.mcp",
        ),
        (
            r#"file_edit {"path": "db/migrations/1.sql", "old_text": "a", "new_text": "b"}"#,
            Category::Destructive,
            "team.migrations",
        ),
        (
            r#"file_write {"path": "Cargo.lock", "content": ""}"#,
            Category::Destructive,
            "tool.file-lock",
        ),
    ] {
        let assessment = assess_with(&policy, line);
        assert_eq!(
            (assessment.category, assessment.rule.as_str()),
            (category, rule),
            "{line}"
        );
    }
    // Nothing of ours confines another program's tool.
    let issues = assess_with(&policy, "mcp__github__list_issues");
    assert_eq!(issues.profile, SandboxProfile::None);
    assert_eq!(policy.rule("team.docs").unwrap().origin, RuleOrigin::User);
    assert_eq!(policy.failing_examples(), []);
}

#[test]
fn a_gate_satisfies_the_quorum_of_every_rule_that_names_the_call() {
    let rules = r#"
[[tool]]
id = "team.infra"
name = "file_write"
path = ["infra/**"]
category = "write"
reason = "describes our servers"
matches = ['file_write {"path": "infra/a.tf", "content": ""}']
quorum = { type = "any", count = 2 }
"#;
    let policy = Policy::with_user_file(&format!("{TOOL_RULES}{rules}"), "policy.toml").unwrap();
    for (path, rule, count) in [
        ("infra/a.tf", "team.infra", 2),
        ("infra/Makefile", "tool.file-build", 2),
        ("infra/.env", "tool.file-secret", 2),
        ("db/migrations/7.sql", "team.migrations", 2),
        ("db/migrations/.env", "team.migrations", 2),
        ("src/main.rs", "tool.file-write", 1),
    ] {
        let line = format!(r#"file_write {{"path": "{path}", "content": ""}}"#);
        assert_eq!(assess_with(&policy, &line).rule, rule, "{path}");
        let usual = QuorumRule::Any { count: 1 };
        assert_eq!(
            policy.quorum(&action(&line), &workspace(), usual, &[]),
            QuorumRule::Any { count },
            "{path}"
        );
    }
}

#[test]
fn a_read_rule_lowers_no_secret_and_no_path_elsewhere() {
    let rules = r#"
[[tool]]
id = "team.read"
name = "Open"
path = ["**"]
category = "read"
allow_read = true
reason = "reads a file"
matches = ['Open {"file_path": "src/main.rs"}']

[[tool]]
id = "team.search"
name = "Search"
path = ["docs/**"]
category = "read"
allow_read = true
reason = "searches the documentation"
matches = ['Search {"path": "docs/a"}']

[[tool]]
id = "team.query"
name = "Query"
category = "read"
allow_read = true
reason = "asks our index"
matches = ['Query {"text": "a"}']
"#;
    let policy = Policy::with_user_file(rules, "policy.toml").unwrap();
    for line in [
        r#"Open {"file_path": "src/app/main.rs", "limit": 3}"#,
        r#"Open {"file_path": ".env.example"}"#,
        r#"Search {"path": "docs/a", "pattern": "install", "glob": "*.md"}"#,
        r#"Search {"path": "docs/a", "glob": "docs/**/*.md"}"#,
        r#"Query {"text": "how to install it and/or why"}"#,
    ] {
        let assessment = assess_with(&policy, line);
        assert_eq!(assessment.category, Category::Read, "{line}");
    }
    for line in [
        r#"Open {"file_path": ".env"}"#,
        r#"Open {"file_path": "config/.ENV"}"#,
        r#"Open {"file_path": "a.txt", "also": ".env"}"#,
        r#"Open {"file_path": "a.txt", "more": [{"deep": ["a.txt .env"]}]}"#,
        r#"Open {"file_path": "a.txt", "more": {".env": true}}"#,
        r#"Open {"file_path": "a.txt", "glob": ".{env,txt}"}"#,
        r#"Open {"file_path": "a.txt", "glob": ".e*"}"#,
        r#"Open {"file_path": "a.txt", "other": "%2eenv"}"#,
        r#"Query {"text": ".env"}"#,
        r#"Query {"location": "keys\\id_rsa"}"#,
    ] {
        let assessment = assess_with(&policy, line);
        assert_eq!(
            (assessment.category, assessment.rule.as_str()),
            (Category::Write, "path.secret"),
            "{line}"
        );
    }
    for line in [
        r#"Search {"path": "docs/a", "glob": "/etc/**"}"#,
        r#"Search {"path": "docs/a", "location": "/etc/hosts"}"#,
        r#"Search {"path": "docs/a", "where": [{"in": "src/b"}]}"#,
        r#"Search {"path": "docs/a", "where": {"src/b": 1}}"#,
        r#"Search {"path": "docs/a", "where": ".."}"#,
        r#"Search {"path": "docs/a", "where": "~"}"#,
        r#"Search {"path": "docs/a", "where": "docs\\..\\src"}"#,
        r#"Open {"file_path": "file:///etc/hosts"}"#,
        r#"Open {"file_path": "$HOME/a"}"#,
        r#"Open {"file_path": "a.txt", "glob": "{a,/etc}/**"}"#,
    ] {
        let assessment = assess_with(&policy, line);
        assert_eq!(
            (assessment.category, assessment.rule.as_str()),
            (Category::Write, "tool.unknown"),
            "{line}"
        );
    }
    let long = format!(r#"Query {{"text": "{}"}}"#, "a ".repeat(40_000));
    assert_eq!(assess_with(&policy, &long).rule, "tool.arguments");
}

#[test]
fn the_examples_of_the_manual_hold() {
    let manual = include_str!("../../../docs/policy.md");
    let (_, rules) = manual.split_once("[[tool]] ").expect("it is in the manual");
    let (rules, _) = rules.split_once("```").expect("the example ends");
    let rules = format!("[[tool]] {rules}");
    let policy = Policy::with_user_file(&rules, "owner.toml").unwrap();
    let users = policy
        .rules()
        .filter(|rule| rule.origin == RuleOrigin::User);
    assert_eq!(users.count(), 2);
}

#[test]
fn a_read_of_ours_can_be_taken_away() {
    let text = "[[change]]\nrule = \"tool.file-read\"\ncategory = \"write\"\n";
    let policy = Policy::with_user_file(text, "policy.toml").unwrap();
    let assessment = assess_with(&policy, r#"file_read {"path": "a"}"#);
    assert_eq!(assessment.category, Category::Write);
}

#[test]
fn a_bad_tool_rule_is_refused_with_its_line_and_reason() {
    let rule =
        |rest: &str| format!("\n[[tool]]\nid = \"a.b\"\nreason = \"r\"\nmatches = ['x']\n{rest}\n");
    for (text, expected) in [
        (
            rule("name = \"x\"\ncategory = \"read\""),
            "policy.toml:3: set `allow_read = true`",
        ),
        (
            rule("name = \"*\"\ncategory = \"read\"\nallow_read = true"),
            "policy.toml:3: `*` is every tool, so it cannot be a read",
        ),
        (
            rule("name = \"x\"\ncategory = \"write\"\nallow_read = true"),
            "policy.toml:3: `allow_read` works only with category `read`",
        ),
        (
            rule("name = \"shell\"\ncategory = \"blocked\""),
            "policy.toml:3: `shell` runs commands",
        ),
        (
            rule("name = \"a*b\"\ncategory = \"blocked\""),
            "policy.toml:3: `*` stands only at the end",
        ),
        (
            rule("name = \" \"\ncategory = \"blocked\""),
            "policy.toml:3: `name` of `a.b` names no tool",
        ),
        (
            rule("name = \"x\"\npath = [\"../a\"]\ncategory = \"blocked\""),
            "policy.toml:3: the path pattern `../a` has an empty name",
        ),
        (
            rule("name = \"y\"\ncategory = \"blocked\""),
            "policy.toml:3: rule `a.b`: `x` should match and does not",
        ),
        (
            rule("name = \"x\"\ncategory = \"blocked\"\nnot = ['x {\"a\": 1}']"),
            "policy.toml:3: rule `a.b`: `x {\"a\": 1}` should not match and does",
        ),
        (
            rule("name = \"x\"\ncategory = \"blocked\"\nnot = ['x a']"),
            "policy.toml:3: the example `x a` is not a call",
        ),
        (
            rule("name = \"x\"\ncategory = \"blocked\"\nquorum = { type = \"any\", count = 0 }"),
            "policy.toml:3: a quorum `count` of 0",
        ),
        (
            rule("name = \"x\"\ncategroy = \"blocked\""),
            "policy.toml:7: unknown field `categroy`",
        ),
        (
            rule("name = \"x\"\ncategory = \"unsafe\""),
            "policy.toml:7: unknown variant `unsafe`",
        ),
        (
            "[[tool]]\nid = \"a.b\"\nname = \"x\"\nreason = \"r\"\ncategory = \"write\"\n"
                .to_owned(),
            "policy.toml:2: rule `a.b` has no `matches`",
        ),
        (
            "[[change]]\nrule = \"tool.file-git\"\ncategory = \"read\"\n".to_owned(),
            "policy.toml:2: `tool.file-git` is write; rules are only raised",
        ),
        (
            rule("name = \"x\"\ncategory = \"write\"").replace("a.b", "tool.file-git"),
            "policy.toml:3: there is already a rule `tool.file-git`",
        ),
    ] {
        let error = Policy::with_user_file(&text, "policy.toml")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(expected),
            "{error:?} does not start with {expected:?}"
        );
    }
    let typo = rule("name = \"x\"\ncategory = \"write\"\nalow_read = true");
    let error = Policy::with_user_file(&typo, "policy.toml")
        .unwrap_err()
        .to_string();
    assert!(error.contains("allow_read"), "{error}");
}

#[test]
fn hostile_arguments_cost_little_and_are_never_a_read() {
    let deep = format!("x {}1{}", r#"{"path": "#.repeat(60), "}".repeat(60));
    assert_eq!(assess(&deep).category, Category::Write);
    let many = format!(r#"Write {{"paths": [{}"a"]}}"#, r#""**","#.repeat(20_000));
    let assessment = assess(&many);
    // Too many to look at, so a rule about some paths counts.
    assert_eq!(assessment.risk, Risk::High);
    let long = format!(
        r#"file_write {{"path": "{}", "content": ""}}"#,
        "a".repeat(1 << 20)
    );
    assert_eq!(assess(&long).rule, "tool.arguments");
}
