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

const SECRET_PREFIXES: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "ssh_host_"];

/// Whether the path names something that usually holds keys, passwords or tokens.
pub(crate) fn is_secret(path: &ResolvedPath) -> bool {
    let pair = |first: &str, second: &str| {
        path.components
            .windows(2)
            .any(|names| names[0] == first && names[1] == second)
    };
    let disk = path.root == PathRoot::Absolute
        && path.components.first().is_some_and(|name| name == "dev");
    let memory = path.components.first().is_some_and(|name| name == "proc")
        && path
            .components
            .last()
            .is_some_and(|name| name == "mem" || name == "maps");
    path.components.iter().any(|name| is_secret_name(name))
        || pair("ssl", "private")
        || pair(".docker", "config.json")
        || pair(".config", "gh")
        || pair(".config", "gcloud")
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

/// Whether a glob could match a name; a bracket counts as any one character.
fn glob_matches(pattern: &[char], name: &str) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return name.is_empty();
    };
    let after = name.chars().next().map(|c| &name[c.len_utf8()..]);
    match first {
        '*' => glob_matches(rest, name) || after.is_some_and(|after| glob_matches(pattern, after)),
        '[' => {
            let close = rest
                .iter()
                .skip(1)
                .position(|c| *c == ']')
                .map_or(rest.len(), |at| at + 2);
            after.is_some_and(|after| glob_matches(&rest[close.min(rest.len())..], after))
        }
        '?' => after.is_some_and(|after| glob_matches(rest, after)),
        c => name.starts_with(*c) && after.is_some_and(|after| glob_matches(rest, after)),
    }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let example = ["example", "sample", "template", "dist"]
        .iter()
        .any(|ending| name.ends_with(ending));
    SECRET_NAMES.contains(&name.as_str())
        || SECRET_SUFFIXES.iter().any(|ending| name.ends_with(ending))
        || SECRET_PREFIXES.iter().any(|start| name.starts_with(start)) && !name.ends_with(".pub")
        || (name.starts_with(".env.") && !example)
        || (name.starts_with(".env") && name.contains(['*', '?', '[']))
        || (name.starts_with(".ss") && name.contains(['*', '?', '[']))
        || (name.contains("shado") && name.contains(['*', '?', '[']))
}
