//! A newcomer follows README.md to the letter, with a fresh home and nothing on the PATH but the
//! system's programs: every command is run as it stands there, and must print what stands there.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::console::{ConsoleBlock, Placeholders, console_blocks};
use crate::support::TEST_TIMEOUT;
use crate::support::cli::CliProcess;
use crate::support::program::write_program;
use crate::support::session::wait_until;

/// A directory like that of somebody who has just cloned the repository.
struct Newcomer {
    root: tempfile::TempDir,
    /// The program that `make run` started, which keeps running.
    running: Option<CliProcess>,
    placeholders: Placeholders,
}

impl Newcomer {
    fn new() -> Self {
        let newcomer = Self {
            root: tempfile::tempdir().unwrap(),
            running: None,
            placeholders: Placeholders::new(),
        };
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        let directories = [
            "home/.cargo/bin",
            "pvp/.ci",
            "pvp/target/quick",
            "pvp/web-client/node_modules",
        ];
        for directory in directories {
            std::fs::create_dir_all(newcomer.path(directory)).unwrap();
        }
        for file in ["Makefile", ".ci/install", "web-client/package-lock.json"] {
            std::fs::copy(repository.join(file), newcomer.path("pvp").join(file)).unwrap();
        }
        // What cargo would build is built already.
        std::os::unix::fs::symlink(
            env!("CARGO_BIN_EXE_pvp"),
            newcomer.path("pvp/target/quick/pvp"),
        )
        .unwrap();
        write_program(
            &newcomer.path("home/.cargo/bin/cargo"),
            "#!/bin/sh\n\
             case $1 in\n\
             build) exit 0 ;;\n\
             run) while [ \"$1\" != -- ]; do shift; done; shift; exec target/quick/pvp \"$@\" ;;\n\
             *) echo \"unexpected: cargo $*\" >&2; exit 1 ;;\n\
             esac\n",
        );
        write_program(
            &newcomer.path("home/.cargo/bin/npm"),
            "#!/bin/sh\n\
             case $1 in\n\
             ci) exit 0 ;;\n\
             run) mkdir -p dist && touch dist/index.html ;;\n\
             *) echo \"unexpected: npm $*\" >&2; exit 1 ;;\n\
             esac\n",
        );
        newcomer
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    /// A shell in the clone that runs a line of the page.
    fn shell(&self, line: &str) -> tokio::process::Command {
        let home = self.path("home");
        let mut command = tokio::process::Command::new("/bin/bash");
        command
            .args(["--noprofile", "--norc", "-c", line])
            .current_dir(self.path("pvp"))
            .env_clear()
            .env("HOME", &home)
            .env("USER", "you")
            .env(
                "PATH",
                format!("{}/.cargo/bin:/usr/bin:/bin", home.display()),
            )
            .env("LC_ALL", "C.UTF-8")
            // Tests run at the same time, and there is one port 3000.
            .env("PVP_LISTEN", "127.0.0.1:0")
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn follow(&mut self, block: &ConsoleBlock) {
        if !block.continued.is_empty() {
            self.expect_of_running(&block.continued).await;
        }
        for command in &block.commands {
            let line = self.placeholders.fill_in(&command.line);
            if line == "make run" {
                let mut shell = self.shell("exec make -s run");
                self.running = Some(CliProcess::spawn(shell.process_group(0)));
                self.expect_of_running(&command.output).await;
                continue;
            }
            let run = self.shell(&line).output();
            let output = tokio::time::timeout(TEST_TIMEOUT, run)
                .await
                .unwrap()
                .unwrap();
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            let problems = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "$ {line}\n{printed}{problems}");
            if let Some(missing) = self
                .placeholders
                .first_difference(&command.output, &printed)
            {
                panic!("$ {line}\nREADME.md shows\n{missing}\nbut this was printed:\n{printed}");
            }
        }
    }

    /// Waits until the running program has printed these lines, with others between them where the
    /// page has `…`.
    async fn expect_of_running(&mut self, lines: &[String]) {
        let running = self.running.as_mut().expect("something was started");
        let mut skipping = false;
        for line in lines {
            if line.trim() == "…" {
                skipping = true;
                continue;
            }
            loop {
                let printed = tokio::time::timeout(TEST_TIMEOUT, running.next_line()).await;
                let printed = printed.unwrap_or_else(|_| panic!("`{line}` was not printed"));
                if self.placeholders.matches(line, printed.trim_end()) {
                    break;
                }
                assert!(
                    skipping,
                    "README.md shows\n{line}\nbut this was printed:\n{printed}"
                );
            }
            skipping = false;
        }
    }

    /// Presses Ctrl-C where `make run` runs, and waits until everything that it started is gone.
    async fn stop(&mut self) {
        let running = self.running.take().expect("something was started");
        let group = process_group(&running).expect("it runs");
        kill_process_group(group, Signal::INT).unwrap();
        running.ended().await;
        wait_until("nothing is left of the group", || {
            test_kill_process_group(group).is_err()
        })
        .await;
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        if let Some(group) = self.running.as_ref().and_then(process_group) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn process_group(running: &CliProcess) -> Option<Pid> {
    Pid::from_raw(running.try_pid()?.cast_signed())
}

#[tokio::test]
async fn a_newcomer_follows_the_readme_to_the_letter() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = console_blocks(&page);
    let commands: usize = blocks.iter().map(|block| block.commands.len()).sum();
    assert!(commands >= 10, "the page was read");
    let mut newcomer = Newcomer::new();
    for block in &blocks {
        newcomer.follow(block).await;
    }
    assert!(
        newcomer.path("home/.cargo/bin/pvp").exists(),
        "it was installed"
    );
    newcomer.stop().await;
}

/// The `pvp` commands in the code blocks of a page, without comments and placeholders for people.
fn documented_commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut fenced = false;
    for line in page.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            let line = line.trim_start();
            let prompt = line.find("$ ").map_or(0, |at| at + 2);
            let line = if line.starts_with("pvp ") {
                line
            } else {
                &line[prompt..]
            };
            let line = line.split(" #").next().unwrap().trim();
            let plain = !line.contains(['|', '>', '<', '…', '$', '\\', '(', '&', ';', '[']);
            if line.starts_with("pvp ") && plain {
                commands.push(line.to_owned());
            }
        }
    }
    commands
}

#[tokio::test]
async fn every_documented_command_is_one_that_the_program_takes() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![repository.join("README.md")];
    let docs = std::fs::read_dir(repository.join("docs")).unwrap();
    let docs = docs.map(|page| page.unwrap().path());
    pages.extend(docs.filter(|page| page.is_file()));
    let newcomer = Newcomer::new();
    let mut checked = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for command in documented_commands(&text) {
            // Flags and subcommands that do not exist are refused before help is printed. Words behind
            // `--` are another program's, which would be started.
            let own = command.split(" -- ").next().unwrap();
            let line = own.replacen("pvp ", "target/quick/pvp ", 1);
            let output = newcomer
                .shell(&format!("{line} --help"))
                .output()
                .await
                .unwrap();
            let problems = String::from_utf8_lossy(&output.stderr);
            let unknown = ["unexpected argument", "unrecognized subcommand"];
            let ok = !unknown.iter().any(|part| problems.contains(part));
            assert!(ok, "{}: {command}: {problems}", page.display());
            checked += 1;
        }
    }
    assert!(checked >= 40, "the pages were read: {checked}");
}
