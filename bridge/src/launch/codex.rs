//! Codex: its screen over an app-server that the bridge speaks to, or one prompt without a screen.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::LaunchError;
use crate::codex::methods::WebSearch;
use crate::codex::{FEATURES_OFF, FEATURES_ON};

/// How Codex is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodexPlan {
    /// With its own screen.
    Screen(ScreenPlan),
    /// `codex exec`: one prompt, and its answer.
    Exec(ExecPlan),
}

/// Codex with its own screen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScreenPlan {
    /// `resume` or `fork`.
    subcommand: Option<OsString>,
    rest: Vec<OsString>,
    /// Where it works, if the person says so.
    directory: Option<PathBuf>,
    /// What the app-server is told too.
    pub settings: Vec<OsString>,
    /// Whether the person wants the web to be searched.
    pub web_search: WebSearch,
}

/// One prompt without a screen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecPlan {
    /// What the app-server is told.
    pub settings: Vec<OsString>,
    /// The prompt; `None` if it is on standard input.
    pub prompt: Option<String>,
    /// The model, if one was named.
    pub model: Option<String>,
    /// The sandbox, if one was named.
    pub sandbox: Option<String>,
    /// Where it works, if not here.
    pub directory: Option<PathBuf>,
    /// Where the answer is written.
    pub last_message: Option<PathBuf>,
    /// Whether the person wants the web to be searched.
    pub web_search: WebSearch,
}

impl CodexPlan {
    /// Where it works, if the person names a directory.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Screen(plan) => plan.directory.as_deref(),
            Self::Exec(plan) => plan.directory.as_deref(),
        }
    }
}

impl ScreenPlan {
    /// The arguments of the screen.
    pub fn arguments(&self, url: &str, secret_variable: &str, directory: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = self.subcommand.iter().cloned().collect();
        for word in ["--remote", url, "--remote-auth-token-env", secret_variable] {
            arguments.push(word.into());
        }
        if self.directory.is_none() {
            arguments.extend(["-C".into(), directory.into()]);
        }
        arguments.extend(self.rest.iter().cloned());
        arguments
    }
}

/// Flags that let something run unasked, or take the bridge out of the way.
const SWITCH_OFF: &[&str] = &[
    "--approve-for-me",
    "--auto-approve",
    "--dangerously-bypass-approvals-and-sandbox",
    "--dangerously-bypass-hook-trust",
    "--full-auto",
    "--remote",
    "--remote-auth-token-env",
    "--yolo",
];

/// Settings that decide what is asked, and whom.
const SETTINGS_OF_OTHERS: &[&str] = &["approval_policy", "approvals_reviewer", "hooks"];

/// Options with a value, and their short names.
const WITH_VALUE: &[(&str, &str)] = &[
    ("--config", "-c"),
    ("--enable", ""),
    ("--disable", ""),
    ("--image", "-i"),
    ("--model", "-m"),
    ("--local-provider", ""),
    ("--profile", "-p"),
    ("--sandbox", "-s"),
    ("--cd", "-C"),
    ("--add-dir", ""),
    ("--ask-for-approval", "-a"),
    ("--remote", ""),
    ("--remote-auth-token-env", ""),
    ("--thread-source", ""),
    ("--cyber-access-program", ""),
    ("--output-schema", ""),
    ("--color", ""),
    ("--output-last-message", "-o"),
];

/// A word of the command line.
enum Word {
    /// An option with its value, by its long name.
    Option(&'static str, OsString),
    Flag(String),
    Plain(OsString),
}

/// Plans how Codex is started.
pub fn plan(arguments: &[OsString]) -> Result<CodexPlan, LaunchError> {
    let mut words = parse(arguments)?;
    for word in &words {
        check(word)?;
    }
    let subcommand = words.iter().position(|word| matches!(word, Word::Plain(_)));
    let name = subcommand.and_then(|at| match &words[at] {
        Word::Plain(name) => name.to_str().map(str::to_owned),
        Word::Option(..) | Word::Flag(_) => None,
    });
    match (name.as_deref(), subcommand) {
        (Some("exec" | "e"), Some(at)) => {
            words.remove(at);
            exec(words).map(CodexPlan::Exec)
        }
        (Some("resume" | "fork"), Some(at)) => {
            words.remove(at);
            Ok(CodexPlan::Screen(screen(words, name.map(OsString::from))))
        }
        (Some(command), _) if OTHER_COMMANDS.contains(&command) => {
            let command = format!("codex {command}");
            Err(LaunchError::NotSupervised { command })
        }
        _ => Ok(CodexPlan::Screen(screen(words, None))),
    }
}

/// Subcommands that are no conversation, or one in which nobody is asked.
const OTHER_COMMANDS: &[&str] = &[
    "a",
    "agents",
    "app",
    "app-server",
    "apply",
    "archive",
    "cloud",
    "completion",
    "debug",
    "delete",
    "doctor",
    "exec-server",
    "features",
    "help",
    "login",
    "logout",
    "mcp",
    "mcp-server",
    "migrate-nfs-db",
    "migrate-rollouts",
    "plugin",
    "queue",
    "remote-control",
    "review",
    "sandbox",
    "unarchive",
    "update",
];

fn parse(arguments: &[OsString]) -> Result<Vec<Word>, LaunchError> {
    let mut words = Vec::new();
    let mut rest = arguments.iter().peekable();
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy().into_owned();
        if text == "--" {
            words.extend(rest.by_ref().cloned().map(Word::Plain));
            break;
        }
        if !text.starts_with('-') || text == "-" {
            words.push(Word::Plain(word.clone()));
            continue;
        }
        let Some((long, attached)) = option_of(&text) else {
            words.push(Word::Flag(text));
            continue;
        };
        let value = match attached {
            Some(value) => OsString::from(value),
            None => match rest.next() {
                Some(value) => value.clone(),
                None => {
                    let instead = ", or give it a value";
                    return Err(LaunchError::NotTaken {
                        flag: text,
                        instead,
                    });
                }
            },
        };
        words.push(Word::Option(long, value));
        // It takes every word up to the next flag.
        while long == "--image"
            && let Some(more) = rest.next_if(|word| !word.to_string_lossy().starts_with('-'))
        {
            words.push(Word::Option(long, more.clone()));
        }
    }
    Ok(words)
}

/// The long name of an option with a value, and the value if it is in the same word.
fn option_of(text: &str) -> Option<(&'static str, Option<String>)> {
    WITH_VALUE.iter().find_map(|(long, short)| {
        if let Some(rest) = text.strip_prefix(long) {
            return match rest.strip_prefix('=') {
                Some(value) => Some((*long, Some(value.to_owned()))),
                None => rest.is_empty().then_some((*long, None)),
            };
        }
        let rest = text.strip_prefix(short).filter(|_| !short.is_empty())?;
        let value = rest.strip_prefix('=').unwrap_or(rest);
        Some((*long, (!rest.is_empty()).then(|| value.to_owned())))
    })
}

/// Refuses what would let something run unasked.
fn check(word: &Word) -> Result<(), LaunchError> {
    let switches_off = |flag: String| Err(LaunchError::SwitchesOff { flag });
    match word {
        Word::Plain(_) => Ok(()),
        Word::Flag(flag) => {
            let name = flag.split('=').next().unwrap_or_default();
            match SWITCH_OFF.contains(&name) || name.starts_with("--dangerously") {
                true => switches_off(name.to_owned()),
                false => Ok(()),
            }
        }
        Word::Option(name, value) => {
            let value = value.to_string_lossy();
            match *name {
                "--remote" | "--remote-auth-token-env" => switches_off((*name).to_owned()),
                "--ask-for-approval" if value == "never" => {
                    switches_off(format!("--ask-for-approval {value}"))
                }
                "--config" if decides_what_is_asked(&value) => switches_off(format!("-c {value}")),
                "--enable" if FEATURES_OFF.contains(&value.trim()) => {
                    switches_off(format!("--enable {value}"))
                }
                "--disable" if FEATURES_ON.contains(&value.trim()) => {
                    switches_off(format!("--disable {value}"))
                }
                "--profile" => Err(LaunchError::NotTaken {
                    flag: format!("--profile {value}"),
                    instead: ", and give its settings with -c",
                }),
                _ => Ok(()),
            }
        }
    }
}

fn decides_what_is_asked(setting: &str) -> bool {
    let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
    // Keys may be quoted, and have spaces around them.
    let key: String = key
        .chars()
        .filter(|char| !char.is_whitespace() && !['"', '\''].contains(char))
        .collect();
    let mut parts = key.split('.');
    let top = parts.next().unwrap_or_default();
    let on = value.trim() != "false";
    let feature = parts.next();
    SETTINGS_OF_OTHERS.contains(&top)
        || key.contains("approval_mode")
        || top == "features"
            && feature.is_none_or(|feature| {
                FEATURES_OFF.contains(&feature) && on || FEATURES_ON.contains(&feature) && !on
            })
}

fn screen(words: Vec<Word>, subcommand: Option<OsString>) -> ScreenPlan {
    let mut plan = ScreenPlan {
        subcommand,
        settings: settings(&words),
        web_search: web_search(&words),
        ..ScreenPlan::default()
    };
    let mut plain = Vec::new();
    for word in words {
        match word {
            Word::Option(name, value) => {
                if name == "--cd" {
                    plan.directory = Some(PathBuf::from(&value));
                }
                plan.rest.extend([name.into(), value]);
            }
            Word::Flag(flag) => plan.rest.push(flag.into()),
            Word::Plain(word) => plain.push(word),
        }
    }
    if !plain.is_empty() {
        plan.rest.push("--".into());
        plan.rest.extend(plain);
    }
    plan
}

/// Whether the person asks for a search of the web, about which Codex asks nobody.
fn web_search(words: &[Word]) -> WebSearch {
    let asks = |word: &Word| match word {
        Word::Flag(flag) => flag == "--search",
        Word::Option("--config", value) => {
            let value = value.to_string_lossy();
            let key = value.split('=').next().unwrap_or_default();
            key.contains("web_search")
        }
        Word::Option("--enable", value) => value.to_string_lossy().contains("web_search"),
        Word::Option(..) | Word::Plain(_) => false,
    };
    match words.iter().any(asks) {
        true => WebSearch::AsAsked,
        false => WebSearch::Off,
    }
}

/// What the app-server takes.
fn settings(words: &[Word]) -> Vec<OsString> {
    let taken = ["--config", "--enable", "--disable"];
    let taken = words.iter().filter_map(|word| match word {
        Word::Option(name, value) if taken.contains(name) => {
            Some([OsString::from(name), value.clone()])
        }
        Word::Option(..) | Word::Flag(_) | Word::Plain(_) => None,
    });
    taken.flatten().collect()
}

fn exec(words: Vec<Word>) -> Result<ExecPlan, LaunchError> {
    let mut plan = ExecPlan {
        settings: settings(&words),
        web_search: web_search(&words),
        ..ExecPlan::default()
    };
    let not_taken = |flag: String| {
        let instead = ", or use `pvp run -- codex` with its screen";
        LaunchError::NotTaken { flag, instead }
    };
    let mut plain = Vec::new();
    for word in words {
        match word {
            Word::Plain(word) => plain.push(word.to_string_lossy().into_owned()),
            Word::Flag(flag) => match flag.as_str() {
                "--skip-git-repo-check" | "--strict-config" => {}
                _ => return Err(not_taken(flag)),
            },
            Word::Option(name, value) => {
                let text = || Some(value.to_string_lossy().into_owned());
                match name {
                    "--config" | "--enable" | "--disable" | "--color" | "--ask-for-approval" => {}
                    "--model" => plan.model = text(),
                    "--sandbox" => plan.sandbox = text(),
                    "--cd" => plan.directory = Some(value.into()),
                    "--output-last-message" => plan.last_message = Some(value.into()),
                    other => return Err(not_taken(other.to_owned())),
                }
            }
        }
    }
    match plain.as_slice() {
        [] => {}
        [word, ..] if ["resume", "fork", "review"].contains(&word.as_str()) => {
            let command = format!("codex exec {word}");
            return Err(LaunchError::NotSupervised { command });
        }
        [prompt] => plan.prompt = (prompt != "-").then(|| prompt.clone()),
        [_, more, ..] => return Err(not_taken(more.clone())),
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_for(words: &[&str]) -> Result<CodexPlan, LaunchError> {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        plan(&words)
    }

    fn screen_arguments(words: &[&str]) -> Vec<String> {
        let Ok(CodexPlan::Screen(plan)) = plan_for(words) else {
            panic!("{words:?} is no screen");
        };
        let arguments = plan.arguments("ws://x", "SECRET", Path::new("/w"));
        let text = |word: &OsString| word.to_str().unwrap().to_owned();
        arguments.iter().map(text).collect()
    }

    #[test]
    fn the_screen_speaks_to_the_bridge_and_works_here() {
        let remote = ["--remote", "ws://x", "--remote-auth-token-env", "SECRET"];
        let expected = [remote.as_slice(), &["-C", "/w"]].concat();
        assert_eq!(screen_arguments(&[]), expected);
        let expected = [
            &["resume"],
            remote.as_slice(),
            &["--cd", "/d", "--last", "--model", "m", "--", "go"],
        ];
        let words = ["-C", "/d", "resume", "--last", "-mm", "go"];
        assert_eq!(screen_arguments(&words), expected.concat());
        // A prompt that is named like a subcommand behind `--` is still found.
        assert!(plan_for(&["--", "review"]).is_err());
    }

    #[test]
    fn the_app_server_gets_the_settings_of_the_user() {
        let plan = plan_for(&["-c", "a=1", "--enable=x", "hello"]).unwrap();
        let CodexPlan::Screen(plan) = plan else {
            panic!("{plan:?}");
        };
        assert_eq!(plan.settings, ["--config", "a=1", "--enable", "x"]);
        assert_eq!(plan.web_search, WebSearch::Off);
        for words in [["--search"].as_slice(), &["-c", "web_search=\"live\""]] {
            let Ok(CodexPlan::Screen(plan)) = plan_for(words) else {
                panic!("{words:?}");
            };
            assert_eq!(plan.web_search, WebSearch::AsAsked, "{words:?}");
        }
    }

    #[test]
    fn what_switches_supervision_off_is_refused() {
        for words in [
            ["--yolo"].as_slice(),
            &["--dangerously-bypass-approvals-and-sandbox"],
            &["--dangerously-bypass-hook-trust"],
            &["--dangerously-of-tomorrow"],
            &["--approve-for-me"],
            &["-a", "never"],
            &["-anever"],
            &["-a=never"],
            &["--ask-for-approval=never"],
            &["-c", "approval_policy=\"never\""],
            &["-capproval_policy=never"],
            &["-c", "\"approval_policy\" = 'never'"],
            &["-c", "hooks.PreToolUse=[]"],
            &["-c", "features.unified_exec_tty=true"],
            &["-c", "features.hooks = true"],
            &["-c", "features={hooks=true}"],
            &[
                "-c",
                "mcp_servers.x.default_tools_approval_mode=\"approve\"",
            ],
            &["--enable", "hooks"],
            &["--enable", "connectors"],
            &["-c", "features.codex_hooks=true"],
            &["-c", "features.write_stdin_approval=false"],
            &["--disable", "write_stdin_approval"],
            &["--remote", "ws://elsewhere"],
            &["exec", "--yolo", "x"],
            &["exec", "-c", "approval_policy=never", "x"],
        ] {
            let refused = plan_for(words);
            assert!(
                matches!(refused, Err(LaunchError::SwitchesOff { .. })),
                "{words:?}: {refused:?}"
            );
        }
        assert!(plan_for(&["-c", "features.hooks=false"]).is_ok());
        assert!(plan_for(&["--", "--yolo"]).is_ok());
        for words in [["review"].as_slice(), &["login"], &["exec", "resume"]] {
            let refused = plan_for(words);
            assert!(
                matches!(refused, Err(LaunchError::NotSupervised { .. })),
                "{words:?}"
            );
        }
    }

    #[test]
    fn one_prompt_without_a_screen_keeps_its_settings() {
        let words = [
            "exec",
            "-m",
            "m",
            "-s",
            "read-only",
            "-o",
            "out",
            "-c",
            "a=1",
            "do it",
        ];
        let expected = ExecPlan {
            settings: vec!["--config".into(), "a=1".into()],
            prompt: Some("do it".to_owned()),
            model: Some("m".to_owned()),
            sandbox: Some("read-only".to_owned()),
            directory: None,
            last_message: Some("out".into()),
            web_search: WebSearch::Off,
        };
        assert_eq!(plan_for(&words), Ok(CodexPlan::Exec(expected)));
        for words in [
            ["exec", "--json", "x"].as_slice(),
            &["exec", "--ignore-user-config", "x"],
            &["exec", "a", "b"],
            &["exec", "-i", "f"],
        ] {
            let refused = plan_for(words);
            assert!(
                matches!(refused, Err(LaunchError::NotTaken { .. })),
                "{words:?}"
            );
        }
    }
}
