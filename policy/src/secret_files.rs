//! Recognises files that usually hold keys, passwords or tokens.

use crate::paths::{PathRoot, ResolvedPath, is_system_path};

const SECRET_NAMES: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".gitconfig",
    ".npmrc",
    ".pypirc",
    ".env",
    ".envrc",
    ".vault-token",
    ".password-store",
    ".bash_history",
    ".zsh_history",
    ".mysql_history",
    ".psql_history",
    ".htpasswd",
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "sudoers",
    "sudoers.d",
    "kcore",
    "environ",
    "credentials",
    "credentials.json",
    "master.key",
    ".dockercfg",
    ".config.gh",
    ".pvp",
    "pvp-data",
    "server.keys",
    "pvp.sqlite3",
];

const SECRET_SUFFIXES: &[&str] = &[
    ".pem",
    ".key",
    ".p12",
    ".pfx",
    ".kdbx",
    ".keystore",
    ".jks",
    ".ppk",
    ".asc.key",
];

/// Directories and what in them holds secrets, where neither name says so by itself.
const SECRET_PAIRS: &[(&str, &str)] = &[
    ("ssl", "private"),
    (".docker", "config.json"),
    (".config", "gh"),
    (".config", "gcloud"),
    (".config", "pvp"),
    ("state", "pvp"),
    (".git", "config"),
    (".git", "config.worktree"),
];

const SECRET_PREFIXES: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "ssh_host_"];

/// How the names of files end that show what a secret file looks like.
const EXAMPLE_ENDINGS: &[&str] = &["example", "sample", "template", "dist"];

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
    path.components.iter().any(|name| is_secret_name(name))
        || SECRET_PAIRS.iter().any(pair)
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
        SECRET_NAMES.iter().any(|name| glob_matches(&pattern, name))
    })
}

/// Whether a glob in the path is written so that it matches such a name: `.e*` and `cred*`, but not
/// `*` or `*.json`, which also match it by chance.
pub(crate) fn is_aimed_at_secret(path: &ResolvedPath) -> bool {
    let aimed = |pattern: &String| {
        let glob = |c: char| "*?[".contains(c);
        let head = pattern.split(glob).next().unwrap_or_default().len();
        let says_something = pattern.contains(|c: char| c.is_ascii_alphanumeric());
        let characters: Vec<char> = pattern.to_ascii_lowercase().chars().collect();
        let mut names = SECRET_NAMES.iter();
        pattern.contains(glob)
            && says_something
            && names.any(|name| {
                (name.starts_with('.') || head >= MIN_AIMED_LETTERS)
                    && glob_matches(&characters, name)
            })
    };
    path.components.iter().any(aimed)
}

/// Patterns, in the language of `.gitattributes`, of the files that usually hold secrets.
pub fn secret_file_patterns() -> impl Iterator<Item = String> {
    let names = SECRET_NAMES
        .iter()
        .flat_map(|name| [(*name).to_owned(), format!("**/{name}/**")]);
    let suffixes = SECRET_SUFFIXES.iter().map(|ending| format!("*{ending}"));
    let prefixes = SECRET_PREFIXES.iter().map(|start| format!("{start}*"));
    let pairs = SECRET_PAIRS.iter().flat_map(|(first, second)| {
        [
            format!("**/{first}/{second}"),
            format!("**/{first}/{second}/**"),
        ]
    });
    let environments = std::iter::once(".env.*".to_owned());
    names
        .chain(suffixes)
        .chain(prefixes)
        .chain(pairs)
        .chain(environments)
}

/// Patterns of files that [`secret_file_patterns`] matches although they hold no secrets.
pub fn public_file_patterns() -> impl Iterator<Item = String> {
    let examples = EXAMPLE_ENDINGS.iter().map(|end| format!(".env.*{end}"));
    let keys = SECRET_PREFIXES.iter().map(|start| format!("{start}*.pub"));
    examples.chain(keys)
}

/// Whether a glob could match a name; a bracket counts as any one character.
fn glob_matches(pattern: &[char], name: &str) -> bool {
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

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let example = EXAMPLE_ENDINGS.iter().any(|ending| name.ends_with(ending));
    SECRET_NAMES.contains(&name.as_str())
        || SECRET_SUFFIXES.iter().any(|ending| name.ends_with(ending))
        || SECRET_PREFIXES.iter().any(|start| name.starts_with(start)) && !name.ends_with(".pub")
        || (name.starts_with(".env.") && !example)
        || (name.starts_with(".env") && name.contains(['*', '?', '[']))
        || (name.starts_with(".ss") && name.contains(['*', '?', '[']))
        || (name.contains("shado") && name.contains(['*', '?', '[']))
}
