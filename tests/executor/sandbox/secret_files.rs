//! Files with secrets inside the workspace: a read sees none of them, whatever its sorter believed.

use std::os::unix::fs::symlink;
use std::path::Path;

use pvp_agent::secret_files::SecretFileFinder;
use pvp_protocol::SandboxProfile;

use super::fixture::{CapturedOutput, PLANTED_SECRET, RunAsUser, SandboxFixture};
use crate::support::skip::skip;

/// Where secrets lie in the workspace of the test.
const SECRETS: &[&str] = &[
    ".env",
    "prod.env",
    "config/.env.production",
    "config/secrets.yml",
    "infra/terraform.tfstate",
    "infra/modules/net/prod.tfvars",
    "deploy/kubeconfig",
    "keys/id_ed25519",
    "home/.aws/config",
    "node_modules/package/test/server.key",
];

/// Lines that try to show one of them; some print nothing else, some print other files too.
const LOOK_AT_SECRETS: &[&str] = &[
    "cat .env",
    "cat prod.env",
    "cat < .env",
    "cat *.env .e*",
    "head -c 100 config/secrets.yml",
    "grep -r pvp-planted .",
    "grep -rn . config infra deploy keys home node_modules",
    "find . -type f -exec cat {} +",
    "tar cf - .",
    "cd config && cat .env.production",
    "cat $PWD/infra/terraform.tfstate /proc/self/cwd/prod.env",
    "ln .env $TMPDIR/linked; cat $TMPDIR/linked",
    "ln -s $PWD/.env $TMPDIR/link; cat $TMPDIR/link",
    "cp -r . $TMPDIR/copy; cat $TMPDIR/copy/.env",
    "mv .env $TMPDIR/moved; cat $TMPDIR/moved",
    "cat innocent",
    "cat secret-behind-a-link.txt",
    "perl -e 'open(F, \"<\", \".env\") and print <F>'",
    "git grep --no-index pvp-planted",
    "git diff --no-index /dev/null .env",
    "git hash-object -w .env",
];

/// Lines that need python; tried where it is installed.
const LOOK_WITH_PYTHON: &[&str] = &[
    "python3 -c 'print(open(\".env\").read())'",
    "python3 -c 'import os; print(os.read(os.open(\".\", os.O_RDONLY), 9))'",
    "python3 -c 'import os; d = os.open(\"config\", os.O_PATH); print(os.read(os.open(\".env.production\", 0, dir_fd=d), 99))'",
    "python3 -c 'import mmap; print(mmap.mmap(open(\"prod.env\").fileno(), 0, prot=1)[:])'",
];

fn plant(fixture: &SandboxFixture) {
    let work = fixture.path("work");
    for secret in SECRETS {
        write(&work.join(secret), &format!("{PLANTED_SECRET}\n"));
    }
    write(&work.join("README.md"), "read me\n");
    write(&work.join(".env.example"), "TOKEN=\n");
    write(&work.join("config/app.yml"), "port: 80\n");
    write(&work.join("node_modules/package/index.js"), "exports\n");
    symlink(".env", work.join("innocent")).unwrap();
    write(
        &work.join("secret-behind-a-link.txt"),
        &format!("{PLANTED_SECRET}\n"),
    );
    symlink("../secret-behind-a-link.txt", work.join("config/db.key")).unwrap();
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Runs a line as a read that was granted, whatever its words are.
async fn run_read(
    fixture: &SandboxFixture,
    finder: &SecretFileFinder,
    line: &str,
) -> CapturedOutput {
    let mut spawn_spec = fixture.spawn_spec(line, SandboxProfile::Read);
    spawn_spec.sandbox.secret_files = finder.find(&spawn_spec.sandbox.workspace).unwrap();
    let (finish, output) = fixture.run(&spawn_spec).await;
    finish.unwrap();
    fixture.clear_temp_dir();
    output
}

fn has_python() -> bool {
    let found = Path::new("/usr/bin/python3").exists();
    if !found {
        skip("python3 is not installed");
    }
    found
}

#[tokio::test]
async fn a_read_sees_no_secret_file_of_its_workspace() {
    for user in RunAsUser::available() {
        let fixture = SandboxFixture::new(user);
        plant(&fixture);
        let finder = SecretFileFinder::default();
        let python = LOOK_WITH_PYTHON.iter().filter(|_| has_python());
        for line in LOOK_AT_SECRETS.iter().chain(python) {
            let output = run_read(&fixture, &finder, line).await;
            let shown = output.out.contains(PLANTED_SECRET) || output.err.contains(PLANTED_SECRET);
            assert!(!shown, "as {user:?}, {line}: {output:?}");
        }
    }
}

#[tokio::test]
async fn without_the_search_every_such_line_shows_one() {
    let fixture = SandboxFixture::new(RunAsUser::current());
    plant(&fixture);
    for line in ["cat .env", "grep -r pvp-planted .", "cat innocent"] {
        let (_, output) = fixture.run_line(line, SandboxProfile::Read).await;
        assert!(output.out.contains(PLANTED_SECRET), "{line}: {output:?}");
    }
}

#[tokio::test]
async fn everything_beside_a_secret_file_can_be_read() {
    for user in RunAsUser::available() {
        let fixture = SandboxFixture::new(user);
        plant(&fixture);
        let finder = SecretFileFinder::default();
        for (line, expected) in [
            ("ls -a", ".env"),
            ("ls -la config", ".env.production"),
            ("stat -c %s .env", "24"),
            ("cat README.md", "read me"),
            ("cat .env.example", "TOKEN="),
            ("cat config/app.yml", "port: 80"),
            ("cat node_modules/package/index.js", "exports"),
            ("grep -rn 'read me' . 2>/dev/null", "./README.md:1:read me"),
            ("cat dir/inner", "inner, changed"),
            ("git status --short", "?? .env"),
            ("git log --oneline", "First things"),
            ("git diff", "+inner, changed"),
            ("git grep kept", "keep:kept one"),
        ] {
            let output = run_read(&fixture, &finder, line).await;
            assert!(
                output.out.contains(expected),
                "as {user:?}, {line}: {output:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_secret_file_that_appears_between_two_reads_is_hidden_too() {
    let fixture = SandboxFixture::new(RunAsUser::current());
    let finder = SecretFileFinder::default();
    let line = "cat dir/empty/prod.env dir/inner";
    let new = fixture.path("work/dir/empty/prod.env");
    write(&new, "harmless\n");
    std::fs::remove_file(&new).unwrap();
    let output = run_read(&fixture, &finder, line).await;
    assert!(output.out.contains("inner"), "{output:?}");
    write(&new, PLANTED_SECRET);
    let output = run_read(&fixture, &finder, line).await;
    assert!(output.out.contains("inner"), "{output:?}");
    assert!(!output.out.contains(PLANTED_SECRET), "{output:?}");
    assert!(output.err.contains("Permission denied"), "{output:?}");
}

/// Git gives up on a changed file that it cannot read, unless it is told not to look.
#[tokio::test]
async fn git_compares_what_it_can_read_and_names_the_rest() {
    let fixture = SandboxFixture::new(RunAsUser::current());
    let work = fixture.path("work");
    write(&work.join(".env"), "TOKEN=old\n");
    write(&work.join("a b/prod.env"), "TOKEN=old\n");
    for words in [
        &["add", "--all"][..],
        &["commit", "--quiet", "--message=Second"],
    ] {
        let status = std::process::Command::new("git")
            .current_dir(&work)
            .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"])
            .args(["-c", "safe.directory=*"])
            .args(words)
            .status();
        assert!(status.unwrap().success());
    }
    write(&work.join(".env"), PLANTED_SECRET);
    write(&work.join("a b/prod.env"), PLANTED_SECRET);
    write(&work.join("keep"), "kept four\n");
    let finder = SecretFileFinder::default();
    for line in [
        "git diff",
        "git diff HEAD",
        "git diff keep",
        "git diff HEAD -- keep",
        "git diff -- .",
        "cd dir && git diff",
        "git diff-files -p",
        "git diff-index -p HEAD",
    ] {
        let output = run_read(&fixture, &finder, line).await;
        assert!(output.out.contains("+kept four"), "{line}: {output:?}");
        assert!(output.err.contains("not shown: .env"), "{line}: {output:?}");
        assert!(output.err.contains("not shown: a b/prod.env"), "{output:?}");
        assert!(!output.out.contains(PLANTED_SECRET), "{line}: {output:?}");
    }
    let output = run_read(&fixture, &finder, "git status --short").await;
    assert!(output.out.contains(" M .env"), "{output:?}");
}
