//! Environment variables, and which of them can change what a command does.

use pvp_protocol::Risk;

use crate::verdict::CommandVerdict;

/// Variables that only change how output looks.
const HARMLESS_VARIABLES: &[&str] = &[
    "LANG",
    "LANGUAGE",
    "TZ",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "BLOCKSIZE",
    "BLOCK_SIZE",
    "TIME_STYLE",
    "GIT_OPTIONAL_LOCKS",
];

/// Whether this variable with this value cannot change what a command does.
pub(crate) fn is_harmless(name: &str, value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+.:@ ,".contains(c);
    let zone = |c: char| plain(c) || c == '/';
    let locale = name == "LANG" || (name.starts_with("LC_") && name.len() > 3);
    let known = HARMLESS_VARIABLES.contains(&name) || locale;
    let value_is_plain = match name {
        _ if locale => is_known_locale(value),
        "TZ" => value.chars().all(zone) && !value.starts_with(['/', ':']) && !value.contains(".."),
        _ => value.chars().all(plain),
    };
    known && value_is_plain
}

/// Whether programs see the same characters in this locale as the assessment does. In others a byte
/// that looks like a quote or a backslash may be the second half of a character.
pub fn is_known_locale(value: &str) -> bool {
    let charset = value
        .split('@')
        .next()
        .and_then(|name| name.split_once('.'));
    let utf8 = |charset: &str| matches!(charset.to_ascii_lowercase().as_str(), "utf-8" | "utf8");
    let letters = |name: &str| name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
    matches!(value, "" | "C" | "POSIX")
        || charset.is_some_and(|(name, charset)| letters(name) && utf8(charset))
}

/// Beginnings of names that decide which code runs or where it comes from.
const MEANING_PREFIXES: &[&str] = &[
    "LD_",
    "DYLD_",
    "GIT_",
    "BASH_",
    "PYTHON",
    "PERL",
    "RUBY",
    "NODE_",
    "NPM_CONFIG_",
    "YARN_",
    "PIP_",
    "UV_",
    "LUA_",
    "XDG_",
    "MAKE",
    "RUSTC",
    "RUSTUP_",
    "CARGO_BUILD_",
    "CARGO_TARGET_",
    "CARGO_ALIAS_",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_SOURCE_",
    "CMAKE_",
    "JAVA_",
    "LESS",
    "MALLOC_",
    "GLIBC_",
    "SUDO_",
    "PVP_",
];

/// Ends of names that do the same.
const MEANING_SUFFIXES: &[&str] = &["_PROXY", "_PAGER", "_EDITOR", "_ASKPASS", "_CA_BUNDLE"];

/// Other names that do the same.
const MEANING_NAMES: &[&str] = &[
    "PATH",
    "HOME",
    "SHELL",
    "USER",
    "LOGNAME",
    "PWD",
    "OLDPWD",
    "IFS",
    "ENV",
    "PAGER",
    "MANPAGER",
    "EDITOR",
    "VISUAL",
    "BROWSER",
    "FCEDIT",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
    "CDPATH",
    "FPATH",
    "MANPATH",
    "GLOBIGNORE",
    "POSIXLY_CORRECT",
    "ZDOTDIR",
    "TMPDIR",
    "TMP",
    "TEMP",
    "TERM",
    "TERMCAP",
    "TERMINFO",
    "TERMINFO_DIRS",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "RES_OPTIONS",
    "RESOLV_HOST_CONF",
    "NIS_PATH",
    "GETCONF_DIR",
    "TZDIR",
    "CC",
    "CXX",
    "CPP",
    "AR",
    "AS",
    "LD",
    "CFLAGS",
    "CPPFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
    "COMPILER_PATH",
    "LIBRARY_PATH",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "PKG_CONFIG",
    "PKG_CONFIG_PATH",
    "RUSTFLAGS",
    "RUSTDOC",
    "CARGO",
    "CARGO_HOME",
    "CARGO_ENCODED_RUSTFLAGS",
    "MFLAGS",
    "GNUMAKEFLAGS",
    "GOFLAGS",
    "GOPATH",
    "GOROOT",
    "GOBIN",
    "GOPROXY",
    "GOSUMDB",
    "GONOSUMDB",
    "GONOSUMCHECK",
    "GOINSECURE",
    "GOENV",
    "GOTOOLCHAIN",
    "CLASSPATH",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "MAVEN_OPTS",
    "GRADLE_OPTS",
    "SBT_OPTS",
    "VIRTUAL_ENV",
    "GEM_HOME",
    "GEM_PATH",
    "BUNDLE_GEMFILE",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "R_PROFILE",
    "R_PROFILE_USER",
    "R_ENVIRON",
    "R_LIBS",
    "TCLLIBPATH",
    "ERL_FLAGS",
    "ERL_LIBS",
    "DENO_DIR",
    "AWKPATH",
    "AWKLIBPATH",
    "WGETRC",
    "CURL_HOME",
    "NETRC",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "OPENSSL_ENGINES",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "SSH_SK_PROVIDER",
    "SSH_SK_HELPER",
    "KUBECONFIG",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "TAR_OPTIONS",
    "GREP_OPTIONS",
    "GZIP",
    "RSYNC_RSH",
    "CVS_RSH",
];

/// Whether a variable of this name decides which code a command runs, or where the code comes from.
/// No shared secret and no environment of a proposal may have such a name; one that is needed is
/// written in the command line, where it is assessed. Upper and lower case count as the same:
/// `http_proxy` is one, and some shells tie `path` to `PATH`.
pub fn changes_meaning(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let known = MEANING_NAMES.contains(&upper.as_str());
    let prefixed = MEANING_PREFIXES.iter().any(|it| upper.starts_with(it));
    let suffixed = MEANING_SUFFIXES.iter().any(|it| upper.ends_with(it));
    (known || prefixed || suffixed) && !HARMLESS_VARIABLES.contains(&name)
}

/// The verdict on setting a variable that may change what a command does.
pub(crate) fn variable_verdict(name: &str) -> CommandVerdict {
    if changes_meaning(name) {
        let reason = format!("`{name}` decides which code runs");
        return CommandVerdict::write(Risk::High, "env.code", &reason);
    }
    let reason = format!("`{name}` may change what the command does");
    CommandVerdict::write(Risk::Low, "env.variable", &reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_locales_with_known_characters_are_harmless() {
        for value in [
            "C",
            "POSIX",
            "C.UTF-8",
            "en_US.UTF-8",
            "de_DE.utf8",
            "de_DE.UTF-8@euro",
        ] {
            assert!(
                is_harmless("LC_ALL", value) && is_harmless("LANG", value),
                "{value}"
            );
        }
        for value in [
            "zh_CN.GBK",
            "ja_JP",
            "de_DE@euro",
            "../x.UTF-8",
            "en_US.UTF-7",
            "C.x",
        ] {
            assert!(!is_harmless("LC_CTYPE", value), "{value}");
        }
    }

    #[test]
    fn names_that_decide_what_runs_are_known_in_any_case() {
        for name in [
            "PATH",
            "path",
            "BASH_ENV",
            "BASH_FUNC_ls%%",
            "LD_PRELOAD",
            "GIT_SSH_COMMAND",
            "https_proxy",
            "ALL_PROXY",
            "NODE_OPTIONS",
            "PYTHONPATH",
            "PERL5OPT",
            "RUBYOPT",
            "MAKEFLAGS",
            "npm_config_registry",
            "LESSOPEN",
            "SSH_ASKPASS",
            "HOME",
        ] {
            assert!(changes_meaning(name), "{name}");
        }
        for name in [
            "DEPLOY_KEY",
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "DATABASE_URL",
            "NPM_TOKEN",
            "CARGO_REGISTRY_TOKEN",
            "LANG",
            "TZ",
            "GIT_OPTIONAL_LOCKS",
            "A",
        ] {
            assert!(!changes_meaning(name), "{name}");
        }
    }
}
