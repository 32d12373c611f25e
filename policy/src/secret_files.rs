//! Recognises files that usually hold keys, passwords or tokens.

use std::borrow::Cow;

use crate::paths::{PathRoot, ResolvedPath, is_system_path};

/// Directories whose whole content is secret.
const SECRET_DIRECTORIES: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".gcloud",
    ".kube",
    ".oci",
    ".envs",
    ".password-store",
    ".config.gh",
    "sudoers.d",
    ".pvp",
    "pvp-data",
];

/// Files by their whole name. Only names that mean the same in every project: an `auth.json` may
/// as well hold the words of a login page.
const SECRET_FILES: &[&str] = &[
    ".netrc",
    "_netrc",
    ".authinfo",
    ".pgpass",
    "pgpass.conf",
    ".my.cnf",
    ".mylogin.cnf",
    ".git-credentials",
    ".gitconfig",
    ".npmrc",
    ".pypirc",
    ".env",
    ".envrc",
    ".dev.vars",
    ".secrets",
    ".vault-token",
    ".vault_pass",
    ".vault_password",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".mysql_history",
    ".psql_history",
    ".sqlite_history",
    ".htpasswd",
    ".erlang.cookie",
    ".s3cfg",
    ".boto",
    ".databrickscfg",
    ".terraformrc",
    "terraform.rc",
    "credentials.tfrc.json",
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "sudoers",
    "kcore",
    "environ",
    "credentials",
    "credentials.json",
    "credentials.yml",
    "credentials.yaml",
    "credentials.toml",
    "credentials.ini",
    "credentials.csv",
    "credentials.xml",
    "application_default_credentials.json",
    "local.settings.json",
    "keystore.properties",
    "kubeconfig",
    "rclone.conf",
    "wp-config.php",
    "master.key",
    ".dockercfg",
    "server.keys",
    "pvp.sqlite3",
];

const SECRET_SUFFIXES: &[&str] = &[
    ".pem",
    ".key",
    ".p8",
    ".p12",
    ".pfx",
    ".pkcs12",
    ".kdbx",
    ".keystore",
    ".keytab",
    ".jks",
    ".jceks",
    ".ppk",
    ".asc.key",
    ".agekey",
    ".ovpn",
    ".kubeconfig",
    ".tfstate",
    ".tfstate.backup",
    ".vault_pass.txt",
    ".credentials.json",
];

/// Endings of settings, which are secret unless the rest of the name says that they are an example.
const SETTINGS_SUFFIXES: &[&str] = &[".env", ".tfvars", ".tfvars.json"];

/// Beginnings of names that end in `.json`: keys of accounts that are not people.
const ACCOUNT_KEY_PREFIXES: &[&str] = &[
    "service-account",
    "service_account",
    "serviceaccount",
    "client_secret",
    "gha-creds-",
];

/// What a data file is called that holds secrets, as in `secrets.yaml` and `prod.secret.json`.
const SECRET_STEMS: &[&str] = &["secret", "secrets"];

/// Endings of data files. A `secrets.py` or `secret.rs` is code.
const DATA_SUFFIXES: &[&str] = &[
    ".yml",
    ".yaml",
    ".json",
    ".toml",
    ".ini",
    ".conf",
    ".cfg",
    ".properties",
    ".txt",
    ".xml",
    ".csv",
];

/// Directories and what in them holds secrets, where neither name says so by itself.
const SECRET_PAIRS: &[(&str, &str)] = &[
    ("ssl", "private"),
    (".docker", "config.json"),
    (".cargo", "credentials"),
    (".cargo", "credentials.toml"),
    (".codex", "auth.json"),
    (".composer", "auth.json"),
    ("composer", "auth.json"),
    ("containers", "auth.json"),
    (".config", "configstore"),
    (".config", "doctl"),
    (".config", "gcloud"),
    (".config", "gh"),
    (".config", "glab-cli"),
    (".config", "hub"),
    (".config", "linode-cli"),
    (".config", "ngrok"),
    (".config", "op"),
    (".config", "pvp"),
    (".config", "rclone"),
    (".config", "scw"),
    (".config", "sops"),
    (".config", "stripe"),
    ("share", "keyrings"),
    ("state", "pvp"),
];

/// Settings of git. Addresses in them may hold tokens, and git does not start without them.
const GIT_SETTINGS: &[(&str, &str)] = &[(".git", "config"), (".git", "config.worktree")];

const SECRET_PREFIXES: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "ssh_host_"];

/// Words in the names of files that show what a secret file looks like.
const EXAMPLE_WORDS: &[&str] = &["example", "sample", "template", "dist"];

/// How many letters of a name without a leading dot must be given before a glob is aimed at it.
const MIN_AIMED_LETTERS: usize = 4;

/// Whether the path names something that usually holds keys, passwords or tokens.
pub(crate) fn is_secret(path: &ResolvedPath) -> bool {
    let pair = |(first, second): &(&str, &str)| {
        path.components
            .windows(2)
            .any(|names| names[0] == *first && names[1] == *second)
    };
    // A submodule's settings are at `.git/modules/NAME/config`. Addresses in them may hold tokens.
    let git_settings = path.components.iter().any(|name| name == ".git")
        && path
            .components
            .last()
            .is_some_and(|name| name == "config" || name == "config.worktree");
    let disk = path.root == PathRoot::Absolute
        && path.components.first().is_some_and(|name| name == "dev");
    let memory = path.components.first().is_some_and(|name| name == "proc")
        && path
            .components
            .last()
            .is_some_and(|name| name == "mem" || name == "maps");
    path.components.iter().any(|name| may_be_secret_name(name))
        || SECRET_PAIRS.iter().chain(GIT_SETTINGS).any(pair)
        || git_settings
        || memory
        || (disk && !is_system_path(path) && path.components.len() > 1)
}

/// Whether a glob in the path could match such a name.
pub(crate) fn may_match_secret(path: &ResolvedPath) -> bool {
    let pattern = |name: &&String| name.contains(['*', '?', '[']);
    let mut patterns = path.components.iter().filter(pattern);
    patterns.any(|pattern| {
        let pattern: Vec<char> = pattern.chars().collect();
        secret_names().any(|name| glob_matches(&pattern, name))
    })
}

/// Whether a path with this end holds secrets if a directory with the right name comes before it.
pub(crate) fn ends_like_secret(end: &str) -> bool {
    let Some((_, name)) = end.rsplit_once('/') else {
        return false;
    };
    let mut pairs = SECRET_PAIRS.iter().chain(GIT_SETTINGS);
    pairs.any(|(_, second)| name == *second)
}

/// Whether some of what lies below this directory holds secrets, although its name does not say so.
pub(crate) fn holds_secrets(directory: &ResolvedPath) -> bool {
    let pairs = || SECRET_PAIRS.iter().chain(GIT_SETTINGS);
    let named = |name: &String| pairs().any(|(first, _)| name.as_str() == *first);
    directory.components.iter().any(named)
}

/// Whether a glob in the path is written so that it matches such a name: `.e*` and `cred*`, but not
/// `*` or `*.json`, which also match it by chance.
pub(crate) fn is_aimed_at_secret(path: &ResolvedPath) -> bool {
    let repository = |name: &String| name == ".git" || is_aimed_at(name, ".git");
    let settings = path.components.iter().any(repository)
        && path
            .components
            .last()
            .is_some_and(|name| is_aimed_at(name, "config"));
    settings || path.components.iter().any(|name| is_aimed_at_any(name))
}

fn is_aimed_at_any(pattern: &str) -> bool {
    let data_files = SECRET_STEMS.iter().any(|stem| {
        let named = |suffix: &&str| is_aimed_at(pattern, &format!("{stem}{suffix}"));
        DATA_SUFFIXES.iter().any(named)
    });
    data_files
        || secret_names().any(|name| is_aimed_at(pattern, name))
        || SECRET_PREFIXES
            .iter()
            .any(|name| is_aimed_at(pattern, name))
}

pub(crate) fn is_aimed_at(pattern: &str, name: &str) -> bool {
    let glob = |c: char| "*?[".contains(c);
    let head = pattern.split(glob).next().unwrap_or_default().len();
    let says_something = pattern.contains(|c: char| c.is_ascii_alphanumeric());
    let characters: Vec<char> = pattern.to_ascii_lowercase().chars().collect();
    // `id_*` is enough for the names of keys.
    let aimed = name.starts_with('.') || head >= MIN_AIMED_LETTERS || pattern.starts_with("id_");
    pattern.contains(glob) && says_something && aimed && glob_matches(&characters, name)
}

/// Whether an entry of a directory is a file or a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    Directory,
    /// A file, a link, or anything else that has no entries.
    File,
}

/// Whether an entry of the directory `parent` usually holds secrets, so that no command that runs
/// without approval may open it. Git's own settings are left out: git does not start without them.
///
/// A directory is secret only if everything in it is: `credentials` and `certs.key` are secret as
/// files, and may be folders of source code.
pub fn is_secret_entry(parent: &str, name: &str, kind: EntryKind) -> bool {
    let pair = |(first, second): &(&str, &str)| parent == *first && name == *second;
    let name = lowercase(name);
    let by_name = match kind {
        EntryKind::Directory => SECRET_DIRECTORIES.contains(&name.as_ref()),
        EntryKind::File => name != ".gitconfig" && is_secret_name(&name),
    };
    by_name || SECRET_PAIRS.iter().any(pair)
}

/// Patterns, in the language of `.gitattributes`, of the files that usually hold secrets.
pub fn secret_file_patterns() -> impl Iterator<Item = String> {
    let names = secret_names().flat_map(|name| [name.to_owned(), format!("**/{name}/**")]);
    let suffixes = SECRET_SUFFIXES.iter().chain(SETTINGS_SUFFIXES);
    let suffixes = suffixes.map(|ending| format!("*{ending}"));
    let prefixes = SECRET_PREFIXES.iter().map(|start| format!("{start}*"));
    let accounts = ACCOUNT_KEY_PREFIXES.iter();
    let accounts = accounts.map(|start| format!("{start}*.json"));
    let pairs = SECRET_PAIRS.iter().chain(GIT_SETTINGS);
    let pairs = pairs.flat_map(|(first, second)| {
        [
            format!("**/{first}/{second}"),
            format!("**/{first}/{second}/**"),
        ]
    });
    let data = SECRET_STEMS.iter().flat_map(|stem| {
        DATA_SUFFIXES.iter().flat_map(move |ending| {
            [
                format!("{stem}{ending}"),
                format!("{stem}.*{ending}"),
                format!("*[-_.]{stem}{ending}"),
                format!("*.{stem}.*{ending}"),
            ]
        })
    });
    names
        .chain(suffixes)
        .chain(prefixes)
        .chain(accounts)
        .chain(pairs)
        .chain(data)
        .chain(std::iter::once(".env[-._~0-9]*".to_owned()))
}

/// Patterns of files that [`secret_file_patterns`] matches although they hold no secrets.
pub fn public_file_patterns() -> impl Iterator<Item = String> {
    let environments = EXAMPLE_WORDS.iter().map(|word| format!(".env.*{word}"));
    let examples = EXAMPLE_WORDS.iter().flat_map(|word| {
        let endings = SETTINGS_SUFFIXES.iter().chain(DATA_SUFFIXES);
        endings.flat_map(move |ending| {
            [
                format!("{word}{ending}"),
                format!("{word}[-_.]*{ending}"),
                format!("*[-_.]{word}{ending}"),
            ]
        })
    });
    let keys = SECRET_PREFIXES.iter().map(|start| format!("{start}*.pub"));
    environments.chain(examples).chain(keys)
}

/// All names that are secret by themselves.
fn secret_names() -> impl Iterator<Item = &'static str> {
    SECRET_DIRECTORIES.iter().chain(SECRET_FILES).copied()
}

/// Whether a glob could match a name; a bracket counts as any one character.
pub(crate) fn glob_matches(pattern: &[char], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    // How much of the name the pattern so far may have matched: a list, because going back and
    // trying again takes exponential time.
    let mut matched = vec![false; name.len() + 1];
    matched[0] = true;
    let mut rest = pattern;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == '*' {
            let shortest = matched.iter().position(|it| *it).unwrap_or(matched.len());
            matched[shortest..].fill(true);
            continue;
        }
        if *first == '[' {
            let close = rest.iter().skip(1).position(|c| *c == ']');
            rest = &rest[close.map_or(rest.len(), |at| at + 2)..];
        }
        for at in (0..name.len()).rev() {
            let fits = matches!(first, '?' | '[') || name[at] == *first;
            matched[at + 1] = matched[at] && fits;
        }
        matched[0] = false;
    }
    matched[name.len()]
}

/// Whether a word of a command is a secret name, or a pattern that is written like one.
fn may_be_secret_name(name: &str) -> bool {
    let name = lowercase(name);
    let pattern = name.contains(['*', '?', '[']);
    is_secret_name(&name)
        || SECRET_DIRECTORIES.contains(&name.as_ref())
        || (pattern
            && (name.starts_with(".env") || name.starts_with(".ss") || name.contains("shado")))
}

/// Whether a file with this name, in lower case, usually holds secrets.
fn is_secret_name(name: &str) -> bool {
    SECRET_FILES.contains(&name)
        || SECRET_SUFFIXES.iter().any(|ending| name.ends_with(ending))
        || SECRET_PREFIXES.iter().any(|start| name.starts_with(start)) && !name.ends_with(".pub")
        || is_environment_name(name)
        || is_settings_name(name)
}

/// `.env.production`, `.env-prod` and `.env~`, but not `.env.example` and `.envoy`.
fn is_environment_name(name: &str) -> bool {
    let rest = name.strip_prefix(".env").unwrap_or_default();
    let example = EXAMPLE_WORDS.iter().any(|word| rest.ends_with(word));
    rest.starts_with(|c: char| !c.is_ascii_alphabetic()) && !example
}

/// `prod.env`, `terraform.tfvars`, `secrets.yaml` and `service-account-7.json`, but no example of
/// one.
fn is_settings_name(name: &str) -> bool {
    let ending = |endings: &'static [&str]| endings.iter().find_map(|it| name.strip_suffix(it));
    if let Some(stem) = ending(SETTINGS_SUFFIXES) {
        return !is_example(stem);
    }
    let Some(stem) = ending(DATA_SUFFIXES) else {
        return false;
    };
    let account = name.ends_with(".json")
        && ACCOUNT_KEY_PREFIXES
            .iter()
            .any(|start| stem.starts_with(start));
    let last_word = stem.rsplit(['-', '_']).next().unwrap_or_default();
    let secret = stem
        .split('.')
        .chain([last_word])
        .any(|part| SECRET_STEMS.contains(&part));
    (account || secret) && !is_example(stem)
}

/// Whether the first or the last word of a name says that the file is an example.
fn is_example(stem: &str) -> bool {
    let mut words = stem.split(['.', '-', '_']);
    let first = words.next();
    let last = words.next_back();
    [first, last]
        .into_iter()
        .flatten()
        .any(|word| EXAMPLE_WORDS.contains(&word))
}

fn lowercase(name: &str) -> Cow<'_, str> {
    match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_hold_secrets_are_recognised_by_their_names() {
        for name in [
            ".env",
            ".ENV",
            ".env.production",
            ".env-prod",
            "prod.env",
            "docker-compose.env",
            "secrets.yml",
            "secrets.yaml",
            "secret.json",
            "secrets.prod.toml",
            "prod.secrets.yaml",
            "db-secret.yaml",
            "terraform.tfstate",
            "terraform.tfstate.backup",
            "prod.auto.tfvars",
            "kubeconfig",
            "staging.kubeconfig",
            "service-account-key.json",
            "client_secret_42.json",
            "application_default_credentials.json",
            "wp-config.php",
            "office.ovpn",
            ".vault_pass.txt",
            ".credentials.json",
            "id_ed25519",
            "server.key",
            "credentials",
        ] {
            assert!(is_secret_entry("app", name, EntryKind::File), "{name}");
        }
        for (parent, name) in [
            (".docker", "config.json"),
            (".cargo", "credentials.toml"),
            (".composer", "auth.json"),
        ] {
            let secret = is_secret_entry(parent, name, EntryKind::File);
            assert!(secret, "{parent}/{name}");
        }
    }

    #[test]
    fn examples_code_and_public_keys_are_not_secret() {
        for name in [
            ".env.example",
            ".env.local.sample",
            "example.env",
            "prod.example.env",
            "sample.tfvars",
            "secrets.example.yaml",
            "service-account-example.json",
            "wp-config-sample.php",
            "secrets.py",
            "secret.rs",
            "secretary.json",
            "auth.json",
            "environment.ts",
            ".envoy.yaml",
            "id_rsa.pub",
            "keyboard.rs",
            "main.tf",
            "config.json",
        ] {
            assert!(!is_secret_entry("app", name, EntryKind::File), "{name}");
        }
    }

    #[test]
    fn a_directory_is_secret_only_if_all_of_it_is() {
        for name in [".ssh", ".aws", ".kube", ".envs", "pvp-data"] {
            assert!(is_secret_entry("app", name, EntryKind::Directory), "{name}");
        }
        for name in ["credentials", "shadow", ".env", "certs.key", "prod.env"] {
            let secret = is_secret_entry("app", name, EntryKind::Directory);
            assert!(!secret, "{name}");
        }
        assert!(is_secret_entry(".config", "gcloud", EntryKind::Directory));
    }

    #[test]
    fn the_settings_of_git_stay_readable_for_git() {
        for (parent, name) in [(".git", "config"), ("home", ".gitconfig")] {
            assert!(!is_secret_entry(parent, name, EntryKind::File));
            let path = ResolvedPath::new(PathRoot::Workspace).join(&format!("{parent}/{name}"));
            assert!(is_secret(&path), "{parent}/{name} is asked for");
        }
    }
}
