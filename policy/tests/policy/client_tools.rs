//! Tests of how the tools of agent clients are assessed: their paths, addresses and patches.

#![expect(
    clippy::unwrap_used,
    reason = "a test stops at what it does not expect"
)]

use pvp_policy::{Policy, Workspace};
use pvp_protocol::{Action, Assessment, Category, Command, QuorumRule, Risk};

fn workspace() -> Workspace {
    Workspace {
        directory: Some("/work/app".to_owned()),
        ..Workspace::default()
    }
}

fn action(line: &str) -> Action {
    Action::new(Command::tool_call_from_line(line).unwrap())
}

fn assess_in(cwd: &str, line: &str) -> Assessment {
    let action = Action {
        cwd: Some(cwd.to_owned()),
        ..action(line)
    };
    Policy::built_in().assess(&action, &workspace())
}

fn assess(line: &str) -> Assessment {
    Policy::built_in().assess(&action(line), &workspace())
}

fn assert_rule(line: &str, category: Category, rule: &str) {
    let found = assess(line);
    assert_eq!(
        (found.category, found.rule.as_str()),
        (category, rule),
        "{line}: {}",
        found.reason
    );
}

fn patch(text: &str) -> String {
    let text = text.replace('\n', "\\n");
    format!(r#"apply_patch {{"input": "{text}"}}"#)
}

#[test]
fn a_clients_reads_and_searches_in_the_workspace_are_reads() {
    for line in [
        r#"Read {"file_path": "/work/app/src/main.rs"}"#,
        r#"read_file {"absolute_path": "/work/app/a", "offset": 1, "limit": 3}"#,
        r#"read {"filePath": "a"}"#,
        r#"view {"path": "/work/app", "view_range": [1, 2]}"#,
        r#"Grep {"pattern": "password|credentials", "path": "src", "-n": true}"#,
        r#"Grep {"pattern": "open(\"/etc/passwd\")"}"#,
        r#"grep_search {"query": "x", "include_pattern": "*.rs"}"#,
        r#"search_file_content {"pattern": "x", "dir_path": "src"}"#,
        r#"Glob {"pattern": "**/*.rs"}"#,
        r#"glob {"pattern": "src/**/*.{ts,tsx}", "path": "."}"#,
        "LS {}",
        r#"list {"path": "/work/app"}"#,
        r#"list_directory {"path": "src", "ignore": ["*.md"]}"#,
        r#"Read {"file_path": ".claude/settings.json"}"#,
    ] {
        assert_rule(line, Category::Read, "client.file-read");
    }
}

#[test]
fn a_path_that_a_client_may_open_as_another_is_not_certain_to_be_in_the_workspace() {
    for line in [
        r#"Grep {"pattern": "x", "path": " /home/ann/notes"}"#,
        r#"Grep {"pattern": "x", "path": "\u00a0/home/ann/notes"}"#,
        r#"Grep {"pattern": "x", "path": "\ufeff/home/ann/notes"}"#,
        r#"Grep {"pattern": "x", "path": "\n~/notes"}"#,
        r#"Grep {"pattern": "x", "path": " "}"#,
        r#"Glob {"pattern": "*", "path": "src "}"#,
        r#"LS {"path": "\t~/x"}"#,
        // Composed, these are `é` and an ohm that is a letter of Greek.
        r#"Grep {"pattern": "x", "path": "cafe\u0301"}"#,
        r#"Grep {"pattern": "x", "path": "\u2126"}"#,
    ] {
        assert_rule(line, Category::Write, "path.outside");
    }
    for line in [
        r#"Grep {"pattern": "x", "path": "a b/caf\u00e9"}"#,
        r#"Grep {"pattern": " x ", "path": "日本/ドキュメント/Ωμ/файл"}"#,
    ] {
        assert_rule(line, Category::Read, "client.file-read");
    }
    // What it would open then is guarded, too.
    let line = r#"NotebookEdit {"notebook_path": " .claude/settings.json", "new_source": ""}"#;
    assert_rule(line, Category::Blocked, "client.settings");
    let line = r#"Grep {"pattern": "x", "path": " ~/.config/pvp"}"#;
    assert_rule(line, Category::Blocked, "pvp.own-files");
}

#[test]
fn a_clients_reads_of_secrets_or_elsewhere_are_sensitive() {
    for (line, rule) in [
        (r#"Read {"file_path": "/work/app/.env"}"#, "path.secret"),
        (r#"Read {"file_path": "~/.ssh/id_rsa"}"#, "path.secret"),
        (r#"Read {"file_path": "/etc/hosts"}"#, "path.outside"),
        (r#"Read {"file_path": "../x"}"#, "path.outside"),
        (r#"Read {"file_path": "src/../../x"}"#, "path.outside"),
        (r#"Read {"file_path": "file:///etc/hosts"}"#, "path.outside"),
        (r#"Read {"file_path": "$HOME/x"}"#, "path.outside"),
        (r#"Grep {"pattern": "x", "path": "/"}"#, "path.outside"),
        (
            r#"Grep {"pattern": "x", "path": "/home/ann"}"#,
            "path.secret",
        ),
        (
            r#"Grep {"pattern": "x", "glob": "/etc/**"}"#,
            "path.outside",
        ),
        (r#"Grep {"pattern": "x", "glob": ".e*"}"#, "path.secret"),
        (
            r#"Grep {"pattern": "x", "glob": "{.env,a}"}"#,
            "path.secret",
        ),
        (r#"Glob {"pattern": "**/*.pem"}"#, "path.secret"),
        (r#"Glob {"pattern": "/etc/**"}"#, "path.outside"),
        (r#"Glob {"pattern": "{/etc,a}/**"}"#, "path.outside"),
        (r#"Glob {"pattern": "../**"}"#, "path.outside"),
        (r#"LS {"path": "/work"}"#, "path.outside"),
    ] {
        let found = assess(line);
        assert_eq!(found.rule, rule, "{line}: {}", found.reason);
        assert_eq!(found.category, Category::Write, "{line}");
        assert!(found.sensitive_read, "{line}");
    }
    for line in [
        r#"list {"action": "delete"}"#,
        r#"view {"path": "a", "command": "create"}"#,
        r#"Read {"file_path": "a", "then": "x"}"#,
    ] {
        assert_rule(line, Category::Write, "tool.arguments");
    }
}

#[test]
fn directories_that_hold_files_of_pvp_are_not_searched() {
    let in_directory = |directory: &str, line: &str| {
        let workspace = Workspace {
            directory: Some(directory.to_owned()),
            ..Workspace::default()
        };
        Policy::built_in().assess(&action(line), &workspace)
    };
    for line in [
        r#"Grep {"pattern": "token=", "path": "~/.local"}"#,
        r#"Grep {"pattern": "token=", "path": ".local/state"}"#,
        r#"grep_search {"query": "token=", "include_pattern": ".local/state/*/links/**"}"#,
        r#"search_file_content {"pattern": "x", "dir_path": "/home/ann/.config"}"#,
        r#"Glob {"pattern": ".local/state/*/links/*"}"#,
        r#"Read {"file_path": "~/.local/state/*/links/a/link"}"#,
    ] {
        for directory in ["/home/ann", "/work/app"] {
            let found = in_directory(directory, line);
            assert_eq!(
                (found.category, found.rule.as_str()),
                (Category::Blocked, "pvp.own-files"),
                "{line} in {directory}: {}",
                found.reason
            );
        }
    }
    for line in [
        r#"Grep {"pattern": "token="}"#,
        r#"Grep {"pattern": "token=", "path": "."}"#,
        r#"Grep {"pattern": "token=", "path": "/home/ann"}"#,
        r#"Grep {"pattern": "token=", "path": "~"}"#,
        r#"Glob {"pattern": "**/*"}"#,
        "LS {}",
        r#"LS {"path": ".local/state"}"#,
        r#"LS {"path": "~/.local"}"#,
        r#"Glob {"pattern": "**/link", "path": ".local"}"#,
    ] {
        let found = in_directory("/home/ann", line);
        assert_eq!(
            (found.category, found.rule.as_str(), found.sensitive_read),
            (Category::Write, "path.secret", true),
            "{line}: {}",
            found.reason
        );
    }
    for line in [
        r#"Grep {"pattern": "token=", "path": "code"}"#,
        r#"Read {"file_path": "notes.md"}"#,
        r#"Glob {"pattern": "code/**/*.rs", "path": "code"}"#,
        r#"file_read {"path": "notes.md"}"#,
    ] {
        assert_eq!(
            in_directory("/home/ann", line).category,
            Category::Read,
            "{line}"
        );
    }
    // As a shell's search there is asked for.
    assert_rule(
        r#"Grep {"pattern": ".", "path": ".git"}"#,
        Category::Write,
        "path.secret",
    );
    assert_rule(
        r#"Glob {"pattern": "*", "path": ".git"}"#,
        Category::Read,
        "client.file-read",
    );
    let allow = "[[tool]]\nid = \"a.b\"\nname = \"mcp__fs__search\"\ncategory = \"read\"\n\
                 allow_read = true\nreason = \"r\"\nmatches = ['mcp__fs__search {}']\n";
    let policy = Policy::with_user_file(allow, "policy.toml").unwrap();
    let held = action(r#"mcp__fs__search {"path": "~/.local"}"#);
    let held = policy.assess(&held, &workspace());
    assert_eq!(
        (held.category, held.sensitive_read),
        (Category::Write, false)
    );
    let other = action(r#"mcp__fs__search {"path": "src"}"#);
    let other = policy.assess(&other, &workspace());
    assert_eq!(other.category, Category::Read);
}

#[test]
fn relative_paths_start_from_the_working_directory() {
    let read = r#"Read {"file_path": "a.rs"}"#;
    let ours = r#"file_read {"path": "a.rs"}"#;
    for (cwd, category) in [
        ("src", Category::Read),
        ("/work/app/src", Category::Read),
        ("/work/app", Category::Read),
        ("/work/other", Category::Write),
        ("/", Category::Write),
        ("..", Category::Write),
        ("src/../src", Category::Write),
        ("~", Category::Write),
    ] {
        assert_eq!(assess_in(cwd, read).category, category, "{cwd}");
        assert_eq!(assess_in(cwd, ours).category, category, "{cwd}");
        let listed = assess_in(cwd, "LS {}");
        assert_eq!(listed.category, category, "{cwd}: {}", listed.reason);
        let write = r#"file_write {"path": "a.rs", "content": ""}"#;
        let written = match category {
            Category::Read => Category::Write,
            Category::Write | Category::Destructive | Category::Blocked => Category::Destructive,
        };
        assert_eq!(assess_in(cwd, write).category, written, "{cwd}");
    }
    // An absolute path does not depend on it.
    let absolute = r#"file_read {"path": "/work/app/a.rs"}"#;
    assert_eq!(assess_in("/tmp", absolute).category, Category::Read);
    let settings = r#"file_write {"path": "settings.json", "content": ""}"#;
    assert_eq!(assess_in(".claude", settings).rule, "client.settings");
    assert_eq!(assess_in("..", settings).rule, "tool.file-outside");
    let lock = r#"file_write {"path": "Cargo.lock", "content": ""}"#;
    assert_eq!(assess_in("sub", lock).rule, "tool.file-lock");
    let parent = r#"file_read {"path": "../.env"}"#;
    assert_eq!(assess_in("sub", parent).rule, "path.secret");
}

#[test]
fn planning_within_a_client_is_not_asked_for() {
    for line in [
        r#"TodoWrite {"todos": [{"content": ".claude/settings.json", "status": "x"}]}"#,
        r#"todowrite {"todos": []}"#,
        "TodoRead {}",
        r#"ExitPlanMode {"plan": "fetch http://localhost/ and look at .env"}"#,
        r#"update_plan {"plan": [{"step": "x"}]}"#,
        r#"write_todos {"todos": []}"#,
        r#"AskUserQuestion {"questions": []}"#,
        r#"report_intent {"intent": "x"}"#,
    ] {
        assert_rule(line, Category::Read, "client.planning");
    }
    for line in [r#"save_memory {"fact": "x"}"#, r#"Skill {"command": "x"}"#] {
        assert_rule(line, Category::Write, "tool.unknown");
    }
}

#[test]
fn a_fetch_names_its_host() {
    for (line, reason, risk) in [
        (
            r#"WebFetch {"url": "https://example.com/x", "prompt": "see https://other.com"}"#,
            "fetches from `example.com`",
            Risk::Medium,
        ),
        (
            r#"fetch {"url": "https://docs.rs@evil.com/"}"#,
            "fetches from `evil.com`",
            Risk::Medium,
        ),
        (
            r#"webfetch {"url": "https://docs.rs\\@evil.com/"}"#,
            "fetches from `docs.rs`, `evil.com`",
            Risk::Medium,
        ),
        (
            r#"web_fetch {"prompt": "summarise https://example.com"}"#,
            "fetches from an address that PVP cannot read",
            Risk::Medium,
        ),
        (
            r#"WebFetch {"url": "http://169.254.169.254/latest/meta-data"}"#,
            "fetches from `169.254.169.254`, which is where clouds hand out credentials",
            Risk::High,
        ),
        (
            r#"WebFetch {"url": "http://2130706433/"}"#,
            "fetches from `127.0.0.1`, which is this machine itself",
            Risk::High,
        ),
        (
            r#"mcp__web__get {"link": "http://10.0.0.1/"}"#,
            "names `10.0.0.1`, which is in a private network",
            Risk::High,
        ),
    ] {
        let found = assess(line);
        assert_eq!(
            (found.category, found.reason.as_str(), found.risk),
            (Category::Write, reason, risk),
            "{line}"
        );
    }
    assert_rule(
        r#"google_web_search {"query": "x"}"#,
        Category::Write,
        "client.web-search",
    );
}

const HOST_RULES: &str = r#"
[[tool]]
id = "team.docs"
name = "WebFetch fetch"
hosts = ["docs.rs", "*.example.com"]
category = "read"
allow_read = true
reason = "public documentation"
matches = ['WebFetch {"url": "https://docs.rs/serde", "prompt": "x"}', 'fetch {"url": "https://a.example.com"}']
not = ['WebFetch {"url": "https://evil.com", "prompt": "x"}']

[[tool]]
id = "team.pastebin"
name = "*"
hosts = ["pastebin.com", "*.pastebin.com"]
category = "blocked"
reason = "our code does not go there"
matches = ['WebFetch {"url": "https://pastebin.com/x"}']

[[tool]]
id = "team.local"
name = "mcp__browser__*"
hosts = ["localhost"]
category = "read"
allow_read = true
reason = "our development server"
matches = ['mcp__browser__open {"url": "http://localhost:3000/"}']

[[tool]]
id = "team.every"
name = "webfetch"
category = "read"
allow_read = true
reason = "we let it fetch"
matches = ['webfetch {"url": "https://a.com"}']
"#;

#[test]
fn rules_name_hosts() {
    let policy = Policy::with_user_file(HOST_RULES, "policy.toml").unwrap();
    let found = |line: &str| {
        let found = policy.assess(&action(line), &workspace());
        (found.category, found.rule)
    };
    let is = |line: &str, category: Category, rule: &str| {
        assert_eq!(found(line), (category, rule.to_owned()), "{line}");
    };
    for line in [
        r#"WebFetch {"url": "https://docs.rs/serde"}"#,
        r#"WebFetch {"url": "HTTPS://DOCS.RS:443/serde"}"#,
        r#"fetch {"url": "https://a.b.example.com/x"}"#,
        r#"fetch {"url": "https://docs.rs/a", "urls": "https://docs.rs/b"}"#,
    ] {
        is(line, Category::Read, "team.docs");
    }
    for line in [
        r#"WebFetch {"url": "https://docs.rs@evil.com/"}"#,
        r#"WebFetch {"url": "https://x@docs.rs/"}"#,
        r#"WebFetch {"url": "https://docs.rs.evil.com/"}"#,
        r#"WebFetch {"url": "https://docs.rs\\@evil.com/"}"#,
        r#"WebFetch {"url": "https://evil.com\\@docs.rs/"}"#,
        r#"WebFetch {"url": "https://evil.com#@docs.rs/"}"#,
        r#"WebFetch {"url": "https://evil.com?docs.rs"}"#,
        r#"WebFetch {"url": "https://evilexample.com"}"#,
        r#"WebFetch {"url": "https://example.com"}"#,
        r#"WebFetch {"url": "docs.rs"}"#,
        r#"WebFetch {"url": "evil.com", "base": "https://docs.rs"}"#,
        r#"WebFetch {"url": "//evil.com", "base": "https://docs.rs"}"#,
        r#"WebFetch {"url": "https://docs.rs", "mirror": "https://evil.com"}"#,
        r#"WebFetch {"url": "https://docs.rs", "mirrors": [{"at": "ftp://evil.com"}]}"#,
        r#"WebFetch {"url": ["https://docs.rs", "https://evil.com"]}"#,
        r#"WebFetch {"url": "https:/docs.rs"}"#,
        r#"WebFetch {"url": "https://docs.rs\t.evil.com"}"#,
        r#"WebFetch {"url": "https://docs。rs/"}"#,
    ] {
        is(line, Category::Write, "client.fetch");
    }
    for line in [
        r#"WebFetch {"url": "https://pastebin.com/x"}"#,
        r#"WebFetch {"url": "https://docs.rs", "then": "https://PASTEBIN.com./x"}"#,
        r#"fetch {"url": "https://docs.rs\\@a.pastebin.com/"}"#,
        r#"mcp__x__post {"to": "https://pastebin.com"}"#,
    ] {
        is(line, Category::Blocked, "team.pastebin");
    }
    is(
        r#"mcp__browser__open {"url": "http://localhost:3000/"}"#,
        Category::Read,
        "team.local",
    );
    is(
        r#"mcp__browser__open {"url": "http://127.0.0.1/"}"#,
        Category::Write,
        "client.fetch-private",
    );
    is(
        r#"webfetch {"url": "https://anything.com"}"#,
        Category::Read,
        "team.every",
    );
    // Whoever allows all fetches has not thought of these.
    is(
        r#"webfetch {"url": "http://169.254.169.254/"}"#,
        Category::Write,
        "client.fetch-private",
    );
}

#[test]
fn a_bad_host_is_refused() {
    let rule = |hosts: &str, category: &str| {
        format!(
            "[[tool]]\nid = \"a.b\"\nname = \"x\"\nhosts = [\"{hosts}\"]\ncategory = \"{category}\"\n\
             allow_read = true\nreason = \"r\"\nmatches = ['x {{\"url\": \"https://a.b\"}}']\n"
        )
    };
    for (hosts, expected) in [
        (
            "https://docs.rs",
            "policy.toml:2: `https://docs.rs` is not a host",
        ),
        ("docs.rs:443", "policy.toml:2: `docs.rs:443` is not a host"),
        ("d*.rs", "policy.toml:2: `d*.rs` is not a host"),
        ("*", "policy.toml:2: `*` is every host"),
    ] {
        let error = Policy::with_user_file(&rule(hosts, "read"), "policy.toml").unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn a_subagent_is_named() {
    for (line, reason) in [
        (
            r#"Task {"subagent_type": "general-purpose", "prompt": "rm .claude/settings.json"}"#,
            "starts a subagent (`general-purpose`); each call that it makes is judged by itself",
        ),
        (
            r#"spawn_agent {"message": "x"}"#,
            "starts a subagent; each call that it makes is judged by itself",
        ),
    ] {
        let found = assess(line);
        assert_eq!(
            (found.category, found.risk, found.reason.as_str()),
            (Category::Write, Risk::Low, reason),
            "{line}"
        );
    }
    for line in [
        r#"Agent {"prompt": "x"}"#,
        r#"task {"x": 1}"#,
        "delegate_to_agent {}",
    ] {
        assert_rule(line, Category::Write, "client.subagent");
    }
}

#[test]
fn what_a_tool_is_given_to_run_is_judged_as_a_line() {
    for (line, category, rule) in [
        (
            r#"Bash {"command": "rm -rf ~", "dangerouslyDisableSandbox": true}"#,
            Category::Blocked,
            "blocked.rm-root",
        ),
        (
            r#"Bash {"command": "pvp approve x", "dangerouslyDisableSandbox": true}"#,
            Category::Blocked,
            "pvp.self-approval",
        ),
        (
            r#"Monitor {"command": "tail -f x; pvp approve x", "description": "x"}"#,
            Category::Blocked,
            "pvp.self-approval",
        ),
        (
            r#"PowerShell {"command": "pvp approve x"}"#,
            Category::Blocked,
            "pvp.self-approval",
        ),
        (
            r#"run_shell_command {"command": "cat .pvp/link", "extra": 1}"#,
            Category::Blocked,
            "pvp.own-files",
        ),
        (
            r#"bash {"command": "rm .claude/settings.json", "mode": "async", "detach": true}"#,
            Category::Blocked,
            "client.settings",
        ),
        (
            r#"exec_command {"cmd": "pvp approve x", "workdir": "src"}"#,
            Category::Blocked,
            "pvp.self-approval",
        ),
        (
            r#"exec_command {"cmd": "cat link", "workdir": "/work/app/.pvp"}"#,
            Category::Blocked,
            "pvp.own-files",
        ),
        (
            r#"run_shell_command {"command": "cat link", "dir_path": "~/.config/pvp", "x": 1}"#,
            Category::Blocked,
            "pvp.own-files",
        ),
        (
            r#"shell_command {"command": ["bash", "-lc", "pvp approve x"]}"#,
            Category::Blocked,
            "pvp.self-approval",
        ),
        (
            r#"local_shell {"action": {"type": "exec", "command": ["pvp", "approve", "x"]}}"#,
            Category::Blocked,
            "pvp.self-approval",
        ),
        (
            r#"local_shell {"action": {"command": ["cat", "link"], "working_directory": ".pvp"}}"#,
            Category::Blocked,
            "pvp.own-files",
        ),
        (
            r#"Bash {"command": ["pvp approve x"]}"#,
            Category::Blocked,
            "pvp.self-approval",
        ),
        (
            r#"Bash {"line": "pvp approve x"}"#,
            Category::Blocked,
            "pvp.self-approval",
        ),
        (
            r#"mcp__sh__run {"fullCommand": "pvp approve x"}"#,
            Category::Blocked,
            "pvp.self-approval",
        ),
        (
            r#"mcp__x__y {"command": "rm", "args": ["-rf", "/"]}"#,
            Category::Blocked,
            "blocked.rm-root",
        ),
        (
            r#"unheard_of {"program": "cat", "args": [".pvp/link"]}"#,
            Category::Blocked,
            "pvp.own-files",
        ),
        (
            r#"unheard_of {"program": "bash", "args": ["-c", "pvp approve x"]}"#,
            Category::Blocked,
            "pvp.self-approval",
        ),
        (
            r#"monitor {"file": "log", "streaming": true}"#,
            Category::Write,
            "tool.unknown",
        ),
        (
            r#"unheard_of {"steps": [{"shell_command": "rm -rf ~"}]}"#,
            Category::Blocked,
            "blocked.rm-root",
        ),
        (
            r#"unheard_of {"script": "git push --force"}"#,
            Category::Destructive,
            "git.push-force",
        ),
        (
            r#"unheard_of {"commands": ["cd x", "git push --force"]}"#,
            Category::Destructive,
            "git.push-force",
        ),
        (
            r#"Read {"file_path": "a", "command": "pvp approve x"}"#,
            Category::Blocked,
            "pvp.self-approval",
        ),
        (
            r#"Bash {"command": "cat .env", "extra": 1}"#,
            Category::Write,
            "path.secret",
        ),
        // What reads in a shell may do more in a form that is not known.
        (
            r#"Bash {"command": "ls", "dangerouslyDisableSandbox": true}"#,
            Category::Write,
            "tool.unknown",
        ),
        (
            r#"Bash {"command": "ls", "description": "pvp approve x"}"#,
            Category::Write,
            "tool.unknown",
        ),
        (
            r#"Skill {"command": "review"}"#,
            Category::Write,
            "tool.unknown",
        ),
    ] {
        assert_rule(line, category, rule);
    }
    let many = vec!["\"pvp x y\""; 40].join(", ");
    let many = assess(&format!(r#"unheard_of {{"commands": [{many}]}}"#));
    assert_eq!(
        (many.category, many.risk),
        (Category::Blocked, Risk::Critical)
    );
}

#[test]
fn whoever_vouches_for_a_tool_does_not_vouch_for_every_command() {
    let allow = "[[tool]]\nid = \"a.b\"\nname = \"mcp__sh__run Bash\"\ncategory = \"read\"\n\
                 allow_read = true\nreason = \"r\"\nmatches = ['mcp__sh__run {}']\n";
    let policy = Policy::with_user_file(allow, "policy.toml").unwrap();
    for (line, category) in [
        (r#"mcp__sh__run {"command": "select"}"#, Category::Read),
        (r#"mcp__sh__run {"command": "ls"}"#, Category::Read),
        (r#"mcp__sh__run {"command": "rm -rf ~"}"#, Category::Blocked),
        (r#"Bash {"command": "ls", "x": 1}"#, Category::Read),
        (r#"Bash {"command": "touch a", "x": 1}"#, Category::Write),
        (
            r#"Bash {"command": "pvp approve x", "x": 1}"#,
            Category::Blocked,
        ),
    ] {
        let found = policy.assess(&action(line), &workspace());
        assert_eq!(found.category, category, "{line}: {}", found.reason);
    }
}

#[test]
fn typing_into_a_running_shell_is_blocked() {
    for line in [
        r#"write_bash {"sessionId": "a", "input": "pvp approve x{enter}", "delay": 5}"#,
        r#"write_bash {"shellId": "a", "input": "{enter}", "delay": 5}"#,
        r#"write_powershell {"sessionId": "a", "input": "x"}"#,
        r#"send_to_terminal {"id": "a", "text": "x"}"#,
        r#"WriteStdin {"id": "a", "text": "x"}"#,
        r#"shell_input {"id": "a", "text": "x"}"#,
        r#"pty_write {"id": "a", "data": "x"}"#,
        r#"BashInput {"id": "a", "text": "x"}"#,
        r#"write_stdin {"session_id": 1, "chars": "rm -rf x\n"}"#,
        r#"write_stdin {"session_id": 1, "chars": "\u0003"}"#,
        r#"write_stdin {"session_id": 1, "input": "x"}"#,
        r#"write_stdin {"session_id": 1, "chars": ["x"]}"#,
    ] {
        assert_rule(line, Category::Blocked, "client.write-stdin");
    }
    for line in [
        r#"write_stdin {"session_id": 1, "chars": ""}"#,
        r#"write_stdin {"session_id": "1", "yield_time_ms": 1000}"#,
        r#"write_bash {"sessionId": "1", "input": "", "delay": 5}"#,
    ] {
        assert_rule(line, Category::Read, "client.poll");
    }
    for line in [
        r#"write_shell_script {"path": "a.sh", "content": "x"}"#,
        r#"send_message {"text": "x"}"#,
        r#"read_bash {"sessionId": "1", "delay": 5}"#,
    ] {
        assert_rule(line, Category::Write, "tool.unknown");
    }
    let allow = "[[tool]]\nid = \"a.b\"\nname = \"write_stdin\"\ncategory = \"read\"\n\
                 allow_read = true\nreason = \"r\"\nmatches = ['write_stdin {}']\n";
    let policy = Policy::with_user_file(allow, "policy.toml").unwrap();
    let typed = action(r#"write_stdin {"session_id": 1, "chars": "x"}"#);
    assert_eq!(
        policy.assess(&typed, &workspace()).category,
        Category::Blocked
    );
}

#[test]
fn a_patch_is_judged_by_all_its_files() {
    let ordinary = patch(
        "*** Begin Patch\n*** Update File: src/a.rs\n@@\n-a\n+b\n*** Delete File: b.rs\n*** End Patch",
    );
    let found = assess(&ordinary);
    assert_eq!(
        (
            found.category,
            found.risk,
            found.rule.as_str(),
            found.reason.as_str()
        ),
        (
            Category::Write,
            Risk::Low,
            "client.patch",
            "changes `src/a.rs`; deletes `b.rs`"
        )
    );
    for (text, category, rule) in [
        (
            "*** Begin Patch\n*** Update File: a\n*** Add File: ../x\n+a\n*** End Patch",
            Category::Destructive,
            "tool.file-outside",
        ),
        (
            "*** Begin Patch\n*** Update File: a\n*** Move to: .env\n*** End Patch",
            Category::Destructive,
            "tool.file-secret",
        ),
        (
            "*** Begin Patch\n*** Delete File: .claude/settings.json\n*** End Patch",
            Category::Blocked,
            "client.settings",
        ),
        (
            "*** Begin Patch\n*** Update File: a\n*** Move to: .codex/hooks.json\n*** End Patch",
            Category::Blocked,
            "client.settings",
        ),
        (
            "--- a/.mcp.json\n+++ b/.mcp.json\n@@ -1 +1 @@\n-a\n+b",
            Category::Blocked,
            "client.settings",
        ),
        (
            "--- a/x\n+++ b/.pvp/link\n@@ -1 +1 @@\n-a\n+b",
            Category::Blocked,
            "pvp.own-files",
        ),
        (
            "*** Begin Patch\n*** Add File: .git/hooks/pre-commit\n+x\n*** End Patch",
            Category::Destructive,
            "tool.file-git-hooks",
        ),
        (
            "*** Begin Patch\n*** Update File: /etc/passwd\n*** End Patch",
            Category::Blocked,
            "files.output-vital",
        ),
        ("not a patch", Category::Write, "client.patch"),
        ("", Category::Write, "client.patch"),
    ] {
        let line = patch(text);
        let found = assess(&line);
        assert_eq!(
            (found.category, found.rule.as_str()),
            (category, rule),
            "{text}: {}",
            found.reason
        );
    }
    assert_eq!(assess(&patch("not a patch")).risk, Risk::High);
    let two = r#"apply_patch {"a": "*** Update File: a", "b": "*** Update File: "}"#;
    assert_eq!(assess(two).risk, Risk::High);
}

#[test]
fn guarded_paths_are_blocked_for_every_tool_that_may_write() {
    for (line, rule) in [
        (
            r#"file_write {"path": ".claude/settings.json", "content": ""}"#,
            "client.settings",
        ),
        (
            r#"file_edit {"path": "/work/app/.mcp.json", "old_text": "a", "new_text": "b"}"#,
            "client.settings",
        ),
        (
            r#"file_write {"path": "~/.codex/config.toml", "content": ""}"#,
            "client.settings",
        ),
        (
            r#"file_write {"path": "x/../.claude/settings.json", "content": ""}"#,
            "client.settings",
        ),
        (
            r#"file_write {"path": "~/.gemini/policies/x.toml", "content": ""}"#,
            "client.settings",
        ),
        (
            r#"file_write {"path": "~/.cargo/bin/pvp", "content": ""}"#,
            "client.settings",
        ),
        (
            r#"file_write {"path": "/home/ann/.config/pvp/x", "content": ""}"#,
            "pvp.own-files",
        ),
        (r#"file_read {"path": ".pvp/link"}"#, "pvp.own-files"),
        (
            r#"file_read {"path": "/run/user/1000/pvp/x"}"#,
            "pvp.own-files",
        ),
        (
            r#"Read {"file_path": "/home/ann/.local/state/pvp/x"}"#,
            "pvp.own-files",
        ),
        (r#"Grep {"pattern": "x", "path": ".pvp"}"#, "pvp.own-files"),
        (r#"Glob {"pattern": "pvp-data/**"}"#, "pvp.own-files"),
        (
            r#"NotebookEdit {"notebook_path": ".opencode/x.ipynb", "new_source": ""}"#,
            "client.settings",
        ),
        (
            r#"Write {"file_path": "opencode.json", "content": ""}"#,
            "client.settings",
        ),
        (
            r#"mcp__fs__write_file {"path": ".claude/settings.json"}"#,
            "client.settings",
        ),
        (
            r#"mcp__fs__move {"from": "a", "to": ".claude/settings.json"}"#,
            "client.settings",
        ),
        (r#"mcp__fs__delete {"path": ".claude"}"#, "client.settings"),
        (
            r#"mcp__fs__write {"where": "file:///home/ann/.codex/config.toml"}"#,
            "client.settings",
        ),
        (
            r#"mcp__fs__write {"where": ".claude%2fsettings.json"}"#,
            "client.settings",
        ),
        (
            r#"mcp__fs__write {"where": ".claude\\settings.json"}"#,
            "client.settings",
        ),
        (
            r#"mcp__fs__write {"where": [".{claude,x}/settings.json"]}"#,
            "client.settings",
        ),
        (
            r#"mcp__fs__read_file {"path": ".pvp/link"}"#,
            "pvp.own-files",
        ),
    ] {
        assert_rule(line, Category::Blocked, rule);
    }
    for line in [
        r#"mcp__fs__read_file {"path": ".claude/settings.json"}"#,
        r#"mcp__github__create_issue {"body": "document .claude/settings.json"}"#,
        r#"file_write {"path": ".claude/commands/a.md", "content": ".claude/settings.json"}"#,
        r#"file_write {"path": "docs/pvp.md", "content": "pvp approve"}"#,
    ] {
        assert_eq!(assess(line).category, Category::Write, "{line}");
    }
    let mentioned = assess(r#"mcp__sh__run {"command": "echo > .claude/settings.json"}"#);
    assert_eq!(
        mentioned.notes,
        ["names settings of an agent client: .claude/settings.json"]
    );
    let rules = "[[tool]]\nid = \"a.b\"\nname = \"mcp__fs__* file_write\"\ncategory = \"read\"\n\
                 allow_read = true\nreason = \"r\"\nmatches = ['mcp__fs__write {\"path\": \"a\"}']\n";
    let policy = Policy::with_user_file(rules, "policy.toml").unwrap();
    for line in [
        r#"mcp__fs__write {"path": ".claude/settings.json"}"#,
        r#"mcp__fs__read {"path": ".pvp/link"}"#,
        r#"file_write {"path": ".mcp.json", "content": ""}"#,
    ] {
        let category = policy.assess(&action(line), &workspace()).category;
        assert_eq!(category, Category::Blocked, "{line}");
    }
}

#[test]
fn files_that_decide_what_runs_are_noted() {
    for (path, category, note) in [
        (
            "Cargo.lock",
            Category::Write,
            "changes a lock file: which dependencies are used",
        ),
        (
            "web/yarn.lock",
            Category::Write,
            "changes a lock file: which dependencies are used",
        ),
        (
            "go.sum",
            Category::Write,
            "changes a lock file: which dependencies are used",
        ),
        (
            ".github/workflows/ci.yml",
            Category::Write,
            "runs as code in CI",
        ),
        (".gitlab-ci.yml", Category::Write, "runs as code in CI"),
        (
            ".husky/pre-commit",
            Category::Write,
            "runs as code on a commit",
        ),
        (
            "package.json",
            Category::Write,
            "runs as code when the project is built or tested, in CI too",
        ),
        (
            ".git/hooks/pre-push",
            Category::Destructive,
            "runs as code on a commit, a checkout or a push",
        ),
        (
            "rust-toolchain.toml",
            Category::Write,
            "runs as code when the project is built or tested, in CI too",
        ),
        (
            "node_modules/.bin/eslint",
            Category::Write,
            "runs as code when the project is built or tested, in CI too",
        ),
        (
            ".agents/skills/x/SKILL.md",
            Category::Write,
            "agents that start later read this file",
        ),
        (
            "sub/.claude-plugin/plugin.json",
            Category::Write,
            "agents that start later read this file",
        ),
        (
            ".tool-versions",
            Category::Write,
            "commands that run later read this file",
        ),
    ] {
        let lines = [
            format!(r#"file_write {{"path": "{path}", "content": ""}}"#),
            patch(&format!(
                "*** Begin Patch\n*** Update File: {path}\n*** End Patch"
            )),
        ];
        for line in lines {
            let found = assess(&line);
            assert_eq!(found.category, category, "{line}");
            assert_eq!(found.notes, [note], "{line}");
        }
    }
    for path in [".env", ".envrc", "web/.env.local"] {
        let found = assess(&format!(
            r#"Write {{"file_path": "{path}", "content": ""}}"#
        ));
        assert_eq!(found.category, Category::Destructive, "{path}");
        let note = "commands that run later read this file".to_owned();
        assert!(found.notes.contains(&note), "{path}: {:?}", found.notes);
    }
    assert_rule(
        r#"Write {"file_path": ".mcp.json", "content": ""}"#,
        Category::Blocked,
        "client.settings",
    );
}

#[test]
fn a_team_asks_for_more_approvals_by_path() {
    let manual = include_str!("../../../docs/policy.md");
    let (_, rules) = manual
        .split_once("[[tool]]                      # edits by directory")
        .expect("it is in the manual");
    let (rules, _) = rules.split_once("```").expect("the example ends");
    let policy = Policy::with_user_file(&format!("[[tool]]{rules}"), "policy.toml").unwrap();
    let count = |line: &str, usual: u32| {
        let usual = QuorumRule::Any { count: usual };
        policy.quorum(&action(line), &workspace(), usual, &[])
    };
    let edit =
        |path: &str| format!(r#"file_edit {{"path": "{path}", "old_text": "a", "new_text": "b"}}"#);
    let one = QuorumRule::Any { count: 1 };
    let two = QuorumRule::Any { count: 2 };
    assert_eq!(count(&edit("src/main.rs"), 1), one);
    assert_eq!(count(&edit("/work/app/src/main.rs"), 2), one);
    assert_eq!(count(&edit(".github/workflows/ci.yml"), 1), two);
    assert_eq!(count(&edit(".github/CODEOWNERS"), 1), two);
    let both =
        patch("*** Begin Patch\n*** Update File: src/a\n*** Update File: .github/b\n*** End Patch");
    assert_eq!(count(&both, 1), two);
    // A rule about one file says nothing about the others.
    let more = patch("*** Begin Patch\n*** Update File: src/a\n*** Update File: b\n*** End Patch");
    assert_eq!(count(&more, 2), two);
    assert_eq!(count(&edit("docs/a.md"), 2), two);
}
