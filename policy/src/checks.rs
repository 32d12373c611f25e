//! Argument checks for commands whose arguments are a language of their own.

mod awk;
pub(crate) mod find;
mod git;
mod sed;
mod tar;
mod test;

use crate::public_variables::is_public_variable;
use crate::read_rules::CheckedArguments;
use crate::word::ShellWord;

/// A function that checks a command's arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ArgumentCheck {
    /// Takes the arguments as written and returns the paths that would be read.
    Raw(fn(&[ShellWord]) -> Result<Vec<ShellWord>, String>),
    /// Takes arguments that were parsed by the rule's flag lists.
    Parsed(fn(&mut CheckedArguments) -> Result<(), String>),
}

/// The check that a rule file names.
pub(crate) fn by_name(name: &str) -> Option<ArgumentCheck> {
    Some(match name {
        "awk" => ArgumentCheck::Parsed(awk::check),
        "find" => ArgumentCheck::Raw(find::check),
        "printf" => ArgumentCheck::Raw(check_printf),
        "sed" => ArgumentCheck::Parsed(sed::check),
        "tar" => ArgumentCheck::Raw(tar::check),
        "test" => ArgumentCheck::Raw(test::check),
        "double-brackets" => ArgumentCheck::Raw(test::check_double),
        "yq" => ArgumentCheck::Parsed(check_yq),
        "git-cat-file" => ArgumentCheck::Parsed(git::check_cat_file),
        "git-log" => ArgumentCheck::Parsed(git::check_log),
        "git-show" => ArgumentCheck::Parsed(git::check_show),
        "getent" => ArgumentCheck::Parsed(check_getent),
        "inspect-format" => ArgumentCheck::Parsed(check_inspect_format),
        "kubectl-describe" => ArgumentCheck::Parsed(check_kubectl_describe),
        "kubectl-get" => ArgumentCheck::Parsed(check_kubectl_get),
        "sqlite-query" => ArgumentCheck::Parsed(check_sqlite_query),
        "public-variables" => ArgumentCheck::Parsed(check_public_variables),
        _ => return None,
    })
}

/// The words as strings; each must be one that a shell would not change.
fn literals(words: &[ShellWord]) -> Result<Vec<String>, String> {
    words
        .iter()
        .map(|word| {
            word.as_literal()
                .ok_or(format!("`{}` is not always the same", word.text()))
        })
        .collect()
}

/// Refuses `printf -v`, which assigns, and `%n`, which stores through a name that may contain
/// commands.
fn check_printf(words: &[ShellWord]) -> Result<Vec<ShellWord>, String> {
    let format = match words.first().map(ShellWord::text).as_deref() {
        Some("--") => words.get(1),
        Some(_) | None => words.first(),
    };
    let Some(format) = format.and_then(ShellWord::as_literal) else {
        return Err("its format is not known".to_owned());
    };
    if format.starts_with('-') {
        return Err("`-v` assigns a variable".to_owned());
    }
    let mut conversions = format.split('%').skip(1);
    let stores = |conversion: &str| {
        let letter = conversion
            .trim_start_matches(|c: char| c.is_ascii_digit() || "#+- .*'hlLqjzt".contains(c))
            .chars()
            .next();
        letter == Some('n')
    };
    if conversions.any(stores) {
        return Err("`%n` assigns a variable".to_owned());
    }
    Ok(Vec::new())
}

/// Refuses `yq` expressions that may load other files or, in some builds, run commands.
fn check_yq(checked: &mut CheckedArguments) -> Result<(), String> {
    let expression = |text: &str| {
        let text = text.to_ascii_lowercase();
        let words = [
            "load", "system", "input", "strload", "@sh", "env", "import", "include",
        ];
        words.iter().any(|word| text.contains(word))
    };
    if checked.operands.iter().any(|word| expression(&word.text())) {
        return Err("its expression can reach other files".to_owned());
    }
    Ok(())
}

/// Refuses to show a cluster's secrets, because everyone in the session sees the output. Whole
/// objects contain variables of their containers, which are secrets often enough.
fn check_kubectl_get(checked: &mut CheckedArguments) -> Result<(), String> {
    let secret = |word: &ShellWord| word.text().to_ascii_lowercase().contains("secret");
    if checked.operands.iter().any(secret) {
        return Err("shows secrets".to_owned());
    }
    let mut formats = checked.values(&["o", "output"]).map(ShellWord::text);
    match formats.find(|format| !matches!(format.trim_start_matches('='), "wide" | "name")) {
        Some(format) => Err(format!(
            "`-o {format}` shows variables, which may hold secrets"
        )),
        None => Ok(()),
    }
}

/// Kinds of objects whose description contains no variables of containers.
const DESCRIBED_KINDS: &[&str] = &[
    "node",
    "nodes",
    "no",
    "service",
    "services",
    "svc",
    "ingress",
    "ingresses",
    "ing",
    "endpoints",
    "ep",
    "namespace",
    "namespaces",
    "ns",
    "pv",
    "persistentvolume",
    "persistentvolumes",
    "pvc",
    "persistentvolumeclaim",
    "persistentvolumeclaims",
    "hpa",
    "horizontalpodautoscaler",
    "storageclass",
    "storageclasses",
    "sc",
    "networkpolicy",
    "networkpolicies",
    "netpol",
    "quota",
    "resourcequota",
    "resourcequotas",
    "limits",
    "limitrange",
    "limitranges",
    "pdb",
    "poddisruptionbudget",
    "poddisruptionbudgets",
    "priorityclass",
    "priorityclasses",
    "pc",
];

fn check_kubectl_describe(checked: &mut CheckedArguments) -> Result<(), String> {
    let kinds = |word: &ShellWord| {
        let text = word.text();
        let kinds = text.split_once('/').map_or(text.as_str(), |(kind, _)| kind);
        let mut kinds = kinds.split(',');
        kinds.all(|kind| DESCRIBED_KINDS.contains(&kind))
    };
    // The operands after a kind are names, unless each has its own kind.
    let (first, others) = match checked.operands.split_first() {
        Some((first, others)) => (first, others),
        None => return Err("does not say what to describe".to_owned()),
    };
    let typed = |word: &&ShellWord| word.text().contains('/');
    if !kinds(first) || others.iter().filter(typed).any(|word| !kinds(word)) {
        return Err("shows variables, which may hold secrets".to_owned());
    }
    Ok(())
}

/// Accepts only formats that name parts of a container's state. The whole of it contains variables.
fn check_inspect_format(checked: &mut CheckedArguments) -> Result<(), String> {
    let shows_state = |format: &ShellWord| {
        let text = format.text();
        let mut rest = text.as_str();
        while let Some((_, after)) = rest.split_once("{{") {
            let Some((field, after)) = after.split_once("}}") else {
                return false;
            };
            let field = field.trim();
            let plain = field.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
            let known = [
                ".State.",
                ".NetworkSettings.IP",
                ".RestartCount",
                ".Created",
                ".Name",
                ".Id",
            ];
            if !plain || !known.iter().any(|start| field.starts_with(start)) {
                return false;
            }
            rest = after;
        }
        true
    };
    if checked.values(&["f", "format"]).all(shows_state) {
        Ok(())
    } else {
        Err("shows variables, which may hold secrets".to_owned())
    }
}

/// Accepts only databases that are files on this machine, and hold no passwords.
fn check_getent(checked: &mut CheckedArguments) -> Result<(), String> {
    let local = ["passwd", "group", "services", "protocols", "rpc", "ethers"];
    let database = checked.operands.first().map(ShellWord::text);
    match database {
        Some(database) if local.contains(&database.as_str()) => Ok(()),
        Some(database) => Err(format!(
            "`{database}` may ask another machine or show secrets"
        )),
        None => Err("does not say what to look up".to_owned()),
    }
}

/// What may stand before a parenthesis in a query: functions that only calculate, and keywords.
const QUERY_WORDS: &[&str] = &[
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "total",
    "length",
    "lower",
    "upper",
    "substr",
    "trim",
    "replace",
    "instr",
    "coalesce",
    "ifnull",
    "nullif",
    "date",
    "time",
    "datetime",
    "strftime",
    "round",
    "abs",
    "group_concat",
    "json_extract",
    "in",
    "and",
    "or",
    "not",
    "where",
    "on",
    "as",
    "from",
    "join",
    "select",
    "exists",
    "by",
    "union",
    "all",
    "over",
    "distinct",
    "case",
    "when",
    "then",
    "else",
    "values",
];

fn calls_only_known_functions(query: &str) -> bool {
    let mut before: Vec<&str> = query.split('(').collect();
    before.pop();
    before.iter().all(|text| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let text = text.trim_end();
        let mut words = text.rsplit(|c| !is_part(c));
        let no_name = text.is_empty() || text.ends_with([',', '=', '<', '>', '+', '-', '*', '(']);
        let known = words.next().is_some_and(|word| QUERY_WORDS.contains(&word));
        no_name || known
    })
}

/// Accepts a database and one query that only looks.
fn check_sqlite_query(checked: &mut CheckedArguments) -> Result<(), String> {
    let [database, statement] = checked.operands.as_slice() else {
        return Err("is not a database and one statement".to_owned());
    };
    let text = statement.as_literal().ok_or("its statement is not known")?;
    let lower = text.trim().trim_end_matches(';').to_ascii_lowercase();
    let word = lower.split_whitespace().next().unwrap_or_default();
    let looks = matches!(
        word,
        "select" | ".tables" | ".schema" | ".indexes" | ".indices" | ".databases"
    );
    // Comments and other quotes could hide the name of a function.
    let plain = |c: char| c.is_ascii_alphanumeric() || "_ ,.*=<>!'%()+-".contains(c);
    let plain = lower.chars().all(plain) && !lower.contains("--");
    if !looks || !plain || !calls_only_known_functions(&lower) {
        return Err(format!("`{text}` may do more than look"));
    }
    checked.targets.paths = vec![database.clone()];
    Ok(())
}

fn check_public_variables(checked: &mut CheckedArguments) -> Result<(), String> {
    let mut names = checked.operands.iter().map(ShellWord::text);
    match names.find(|name| !is_public_variable(name)) {
        Some(name) => Err(format!("prints `{name}`, which may hold a secret")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printf_that_assigns_is_refused() {
        let passes = |words: &[&str]| {
            let words: Vec<ShellWord> = words.iter().map(|text| ShellWord::literal(text)).collect();
            check_printf(&words).is_ok()
        };
        assert!(passes(&["%s\\n", "a", "-v"]));
        assert!(passes(&["100%% done"]));
        assert!(passes(&["--", "%d", "1"]));
        assert!(!passes(&["-v", "a[$(x)]", "b"]));
        assert!(!passes(&["%n", "a[$(x)]"]));
        assert!(!passes(&["%10n", "a"]));
        assert!(!passes(&[]));
    }
}
