//! Builds the environment of a command: what it needs, no secrets, and nothing that waits for a
//! person.

use std::collections::BTreeMap;
use std::path::Path;

/// Prefixes of names whose values are not passed to commands.
const SECRET_PREFIXES: &[&str] = &[
    "ANTHROPIC_",
    "OPENAI_",
    "GEMINI_",
    "GOOGLE_",
    "MISTRAL_",
    "COHERE_",
    "AWS_",
    "AZURE_",
    "GCP_",
    "PVP_",
    "CI_JOB_",
    "ACTIONS_",
    "DOCKER_AUTH",
    "NPM_CONFIG_",
    "VAULT_",
    "BASH_FUNC_",
];

/// Parts of names that mark a value as secret.
const SECRET_SUBSTRINGS: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "PRIVATE",
    "APIKEY",
];

/// Suffixes of names that mark a value as secret.
const SECRET_SUFFIXES: &[&str] = &["_KEY", "_PAT", "_DSN", "_AUTH"];

/// Other names that hold a secret or give access to one.
const SECRET_NAMES: &[&str] = &[
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DATABASE_URL",
    "REDIS_URL",
    "MONGO_URL",
    "KUBECONFIG",
    "PGPASSFILE",
    "NETRC",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// Names that change what a program does before its first line runs.
const CODE_INJECTION_NAMES: &[&str] = &[
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
    "IFS",
    "CDPATH",
];

/// An editor that fails and says why.
const NO_EDITOR: &str = "sh -c 'echo \"pvp: there is no editor here; give the text on the command line (git commit -m, git rebase with GIT_SEQUENCE_EDITOR set to a command)\" >&2; exit 1' pvp-no-editor";

/// Whether a variable of the executor may be passed to commands.
fn is_safe_to_pass(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let secret = SECRET_PREFIXES
        .iter()
        .any(|prefix| upper.starts_with(prefix))
        || SECRET_SUBSTRINGS.iter().any(|part| upper.contains(part))
        || SECRET_SUFFIXES.iter().any(|end| upper.ends_with(end))
        || SECRET_NAMES.contains(&upper.as_str());
    let injection = CODE_INJECTION_NAMES.contains(&upper.as_str())
        || upper.starts_with("LD_")
        || upper.starts_with("GIT_");
    !secret && !injection && !name.is_empty()
}

/// Whether a person can answer a command while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interactivity {
    NonInteractive,
    /// A person may type into its terminal.
    Interactive,
}

/// Variables that keep a command from asking questions.
const NON_INTERACTIVE_VARIABLES: &[(&str, &str)] = &[
    ("EDITOR", NO_EDITOR),
    ("VISUAL", NO_EDITOR),
    ("GIT_EDITOR", NO_EDITOR),
    ("GIT_SEQUENCE_EDITOR", NO_EDITOR),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", ""),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "true"),
    ("SSH_ASKPASS", "true"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("TERM", "dumb"),
];

/// The environment of a command: the safe variables of the executor, those that keep a command from
/// asking, those of the granted action, and the shared secrets; later ones win.
pub fn command_environment(
    inherited: impl IntoIterator<Item = (String, String)>,
    granted: &BTreeMap<String, String>,
    secrets: &BTreeMap<String, String>,
    temporary: &Path,
    interactivity: Interactivity,
) -> Vec<(String, String)> {
    let mut environment: BTreeMap<String, String> = inherited
        .into_iter()
        .filter(|(name, _)| is_safe_to_pass(name))
        .collect();
    let overrides = match interactivity {
        Interactivity::NonInteractive => NON_INTERACTIVE_VARIABLES,
        Interactivity::Interactive => &[("TERM", "xterm-256color")],
    };
    for (name, value) in overrides {
        environment.insert((*name).to_owned(), (*value).to_owned());
    }
    environment.insert("TMPDIR".to_owned(), temporary.display().to_string());
    environment.extend(granted.clone());
    environment.extend(secrets.clone());
    environment.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visible_to_command(
        own: &[(&str, &str)],
        granted: &[(&str, &str)],
    ) -> BTreeMap<String, String> {
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            owned.collect()
        };
        let own = pairs(own);
        let secrets = pairs(&[("DEPLOY_TOKEN", "shared")]);
        let temporary = Path::new("/tmp/x");
        command_environment(
            own,
            &pairs(granted),
            &secrets,
            temporary,
            Interactivity::NonInteractive,
        )
        .into_iter()
        .collect()
    }

    #[test]
    fn secrets_of_the_executor_are_not_passed_on() {
        for name in [
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "AWS_ACCESS_KEY_ID",
            "GITHUB_TOKEN",
            "npm_token",
            "DB_PASSWORD",
            "PVP_LINK",
            "SSH_AUTH_SOCK",
            "STRIPE_KEY",
            "SENTRY_DSN",
            "LD_PRELOAD",
            "BASH_ENV",
            "BASH_FUNC_ls%%",
            "GIT_SSH_COMMAND",
            "database_url",
        ] {
            assert!(
                !visible_to_command(&[(name, "x")], &[]).contains_key(name),
                "{name}"
            );
        }
        for name in [
            "PATH",
            "HOME",
            "LANG",
            "LC_ALL",
            "USER",
            "CARGO_HOME",
            "JAVA_HOME",
            "KEYBOARD",
            "MONKEY",
        ] {
            assert!(
                visible_to_command(&[(name, "x")], &[]).contains_key(name),
                "{name}"
            );
        }
    }

    #[test]
    fn an_interactive_command_keeps_its_editor_and_pager() {
        let own = [("EDITOR".to_owned(), "vi".to_owned())];
        let none = BTreeMap::new();
        let seen = command_environment(
            own,
            &none,
            &none,
            Path::new("/tmp/x"),
            Interactivity::Interactive,
        );
        let seen: BTreeMap<_, _> = seen.into_iter().collect();
        assert_eq!(seen["EDITOR"], "vi");
        assert_eq!(seen["TERM"], "xterm-256color");
        assert!(!seen.contains_key("PAGER"));
    }

    #[test]
    fn granted_variables_and_secrets_are_set_and_questions_are_disabled() {
        let seen = visible_to_command(
            &[("PAGER", "less"), ("A", "1")],
            &[("A", "2"), ("PAGER", "more")],
        );
        assert_eq!(seen["A"], "2");
        assert_eq!(seen["PAGER"], "more");
        assert_eq!(seen["DEPLOY_TOKEN"], "shared");
        assert_eq!(seen["GIT_TERMINAL_PROMPT"], "0");
        assert_eq!(seen["TMPDIR"], "/tmp/x");
    }
}
