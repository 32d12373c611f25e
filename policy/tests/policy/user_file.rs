//! Tests of user rule files: what they may contain, and how an invalid one is refused.

#![expect(
    clippy::unwrap_used,
    reason = "a test stops at what it does not expect"
)]

use pvp_policy::{Policy, RuleOrigin, Workspace};
use pvp_protocol::{Action, Category, Command, ExecutionLimits, ParticipantId, QuorumRule};

fn category(policy: &Policy, line: &str) -> Category {
    let action = Action::new(Command::Shell {
        line: line.to_owned(),
    });
    policy.assess(&action, &Workspace::default()).category
}

fn quorum_with(policy: &Policy, line: &str, usual: QuorumRule) -> QuorumRule {
    let action = Action::new(Command::Shell {
        line: line.to_owned(),
    });
    let electorate = ["ann", "bob", "cat"].map(|name| ParticipantId::parse(name).unwrap());
    policy.quorum(&action, &Workspace::default(), usual, &electorate)
}

fn quorum(policy: &Policy, line: &str) -> QuorumRule {
    quorum_with(policy, line, QuorumRule::Any { count: 1 })
}

fn load_error(text: &str) -> String {
    Policy::with_user_file(text, "policy.toml")
        .unwrap_err()
        .to_string()
}

const USER_RULES: &str = r#"
[[rule]]
id = "team.deploy"
command = "deploy"
args = ' --prod '
category = "destructive"
reason = "changes what customers see"
matches = ["deploy --prod", "sudo deploy --prod x"]
not = ["deploy --staging"]
quorum = { type = "any", count = 2 }

[[change]]
rule = "packages.npm-publish"
category = "blocked"

[[change]]
rule = "git.push-force"
quorum = { type = "all" }

[[read]]
id = "team.status"
command = "mytool status"
allow_read = true
reason = "shows the state of our services"
short = "v"
long = "json"
operands = "any"
matches = ["mytool status -v web"]
not = ["mytool status --fix", "mytool stop"]

[limits.read]
timeout_seconds = 10
output_bytes = 1000
"#;

#[test]
fn a_user_adds_and_raises_and_allows_reads() {
    let policy = Policy::with_user_file(USER_RULES, "policy.toml").unwrap();
    let built_in = Policy::built_in();
    assert_eq!(category(&policy, "deploy --prod"), Category::Destructive);
    assert_eq!(category(&policy, "deploy --staging"), Category::Write);
    assert_eq!(category(&built_in, "npm publish"), Category::Write);
    assert_eq!(category(&policy, "npm publish"), Category::Blocked);
    assert_eq!(category(&built_in, "mytool status web"), Category::Write);
    assert_eq!(
        category(&policy, "mytool status --json web | head"),
        Category::Read
    );
    assert_eq!(category(&policy, "mytool status --fix"), Category::Write);
    assert_eq!(category(&policy, "mytool status > x"), Category::Write);
    assert_eq!(category(&policy, "sudo mytool status"), Category::Write);
    assert_ne!(policy.hash(), built_in.hash());
    assert_eq!(
        quorum(&policy, "deploy --prod"),
        QuorumRule::Any { count: 2 }
    );
    assert_eq!(quorum(&policy, "git push --force"), QuorumRule::All);
    assert_eq!(quorum(&policy, "rm a"), QuorumRule::Any { count: 1 });
    let limits = ExecutionLimits {
        timeout_ms: 10_000,
        output_bytes: 1000,
    };
    assert_eq!(policy.limits().get(&Category::Read), Some(&limits));
    assert_eq!(
        policy.rule("team.deploy").map(|rule| rule.origin),
        Some(RuleOrigin::User)
    );
}

#[test]
fn a_gate_satisfies_the_quorum_of_every_rule_that_matches() {
    let text = r#"
[[rule]]
id = "team.terraform"
command = "terraform"
category = "write"
reason = "changes what customers use"
matches = ["terraform apply"]
quorum = { type = "any", count = 2 }

[[rule]]
id = "team.release"
command = "release"
category = "destructive"
reason = "cannot be taken back"
matches = ["release 1"]
quorum = { type = "any", count = 1 }
"#;
    let policy = Policy::with_user_file(text, "policy.toml").unwrap();
    let two = QuorumRule::Any { count: 2 };
    let deep = format!("{} sh -c 'terraform apply'", "sudo ".repeat(20));
    let many = format!("{}terraform apply", "mkdir a; ".repeat(300));
    for line in [
        "terraform apply",
        "terraform destroy",
        "terraform apply; rm -rf build",
        "rm -rf build && terraform apply",
        "sh -c 'rm -rf build; terraform apply'",
        "release 1; terraform apply",
        "X=1 terraform apply > /tmp/x",
        &deep,
        &many,
    ] {
        assert_eq!(quorum(&policy, line), two, "{line}");
    }
    assert_eq!(
        quorum(&policy, "rm -rf build"),
        QuorumRule::Any { count: 1 }
    );
    // A rule has the last word about what it names, and about nothing else in the line.
    let majority = |line: &str| quorum_with(&policy, line, QuorumRule::Majority);
    assert_eq!(majority("release 1"), QuorumRule::Any { count: 1 });
    for line in [
        "release 1; rm -rf build",
        "sh -c 'release 1; rm -rf build'",
        "release 1; acmectl delete prod",
        "terraform apply; rm -rf build",
    ] {
        assert_eq!(majority(line), QuorumRule::Majority, "{line}");
    }
}

#[test]
fn a_rule_of_the_user_gives_the_verdict_among_equals() {
    let text = r#"
[[rule]]
id = "team.rm"
command = "rm"
args = ' -r '
category = "destructive"
reason = "ask the team first"
matches = ["rm -r build"]
"#;
    let policy = Policy::with_user_file(text, "policy.toml").unwrap();
    let action = Action::new(Command::Shell {
        line: "rm -r build".to_owned(),
    });
    let assessment = policy.assess(&action, &Workspace::default());
    assert_eq!(assessment.rule, "team.rm");
    assert_eq!(assessment.reason, "ask the team first");
}

#[test]
fn a_read_can_be_taken_away() {
    let text = "[[change]]\nrule = \"read.cat\"\ncategory = \"write\"\n";
    let policy = Policy::with_user_file(text, "policy.toml").unwrap();
    assert_eq!(category(&policy, "cat a"), Category::Write);
    assert_eq!(category(&policy, "head a"), Category::Read);
}

#[test]
fn destructive_and_blocked_are_never_lowered() {
    let read = |command: &str, line: &str| {
        format!(
            "[[read]]\nid = \"team.x\"\ncommand = \"{command}\"\nallow_read = true\nreason = \"x\"\n\
             short = \"rf\"\noperands = \"any\"\nmatches = [\"{line}\"]\n"
        )
    };
    assert_eq!(
        load_error(&read("rm", "rm -rf x")),
        "policy.toml:2: rule `team.x`: `rm -rf x` should match and does not"
    );
    assert_eq!(
        load_error(&read("bash", "bash -r x")),
        "policy.toml:2: `bash` can run anything, so it cannot be a read"
    );
    assert_eq!(
        load_error("[[change]]\nrule = \"blocked.rm-root\"\ncategory = \"write\"\n"),
        "policy.toml:2: `blocked.rm-root` is blocked; rules are only raised"
    );
    // Arguments that the flag list does not allow keep their category.
    let lowered = Policy::with_user_file(&read("mkdir", "mkdir x"), "policy.toml").unwrap();
    assert_eq!(category(&lowered, "mkdir x"), Category::Read);
    assert_eq!(category(&lowered, "mkdir -p x"), Category::Write);
}

#[test]
fn a_bad_file_is_refused_with_its_line_and_reason() {
    let rule =
        |rest: &str| format!("\n[[rule]]\nid = \"a.b\"\ncommand = \"x\"\nreason = \"r\"\n{rest}");
    for (text, expected) in [
        ("x = [", "policy.toml:1: "),
        ("[[rule]]\nid = 7\n", "policy.toml:2: "),
        (
            "\n\n[[rule]]\nidd = \"x\"\n",
            "policy.toml:4: unknown field",
        ),
        (
            rule("category = \"destructive\"\nargs = '('\nmatches = [\"x (\"]").as_str(),
            "policy.toml:3: `args` of `a.b`: regex parse error",
        ),
        (
            rule("category = \"destructive\"\nmatches = [\"y\"]").as_str(),
            "policy.toml:3: rule `a.b`: `y` should match and does not",
        ),
        (
            rule("category = \"destructive\"\nmatches = [\"x\"]\nnot = [\"x y\"]").as_str(),
            "policy.toml:3: rule `a.b`: `x y` should not match and does",
        ),
        (
            rule("category = \"destructive\"").as_str(),
            "policy.toml:3: rule `a.b` has no `matches`",
        ),
        (
            rule("category = \"read\"\nmatches = [\"x\"]").as_str(),
            "policy.toml:3: a rule raises",
        ),
        (
            rule("category = \"write\"\nmatches = [\"x\"]\nquorum = { type = \"any\", count = 0 }")
                .as_str(),
            "policy.toml:3: a quorum `count` of 0",
        ),
        (
            "[[rule]]\nid = \"files.rm\"\ncommand = \"x\"\ncategory = \"write\"\nreason = \"r\"\n",
            "policy.toml:2: there is already a rule `files.rm`",
        ),
        (
            "[[read]]\nid = \"a.b\"\ncommand = \"x\"\nreason = \"r\"\nmatches = [\"x\"]\n",
            "policy.toml:2: set `allow_read = true`",
        ),
        (
            "[[change]]\nrule = \"no.such\"\ncategory = \"blocked\"\n",
            "policy.toml:2: there is no rule",
        ),
        (
            "[limits.read]\ntimeout_seconds = -1\noutput_bytes = 1\n",
            "policy.toml:2: ",
        ),
    ] {
        let error = load_error(text);
        assert!(
            error.starts_with(expected),
            "{error:?} does not start with {expected:?}"
        );
    }
}

/// The example of the manual: clusters are reads only by a rule of the owner.
#[test]
fn a_cluster_is_read_by_a_rule_of_the_owner() {
    let manual = include_str!("../../../docs/policy.md");
    let start = manual
        .find("[[read]]\nid = \"team.kubectl-get\"")
        .expect("it is in the manual");
    let rule = &manual[start..];
    let rule = &rule[..rule.find("[limits").expect("limits follow")];
    let policy = Policy::with_user_file(rule, "owner.toml").expect("the example is valid");
    for (line, expected) in [
        ("kubectl get pods", Category::Read),
        ("kubectl get pods -A -o wide", Category::Read),
        ("kubectl get secrets", Category::Write),
        ("kubectl get pods -o yaml", Category::Write),
        ("kubectl get -o templatefile=.env pods", Category::Write),
        ("kubectl delete pod a", Category::Destructive),
    ] {
        assert_eq!(category(&policy, line), expected, "{line}");
    }
    assert_eq!(
        category(&Policy::built_in(), "kubectl get pods"),
        Category::Write
    );
}
