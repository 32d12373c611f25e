//! Names the known word that is nearest to an unknown one, for errors about settings and fields.

/// The known name that is nearest to an unknown one; `None` if there are no names.
///
/// A name that contains the other one is nearer than one that has merely similar letters, and the
/// first of several such names is the nearest: who writes `quorum` means `default_gate_quorum`.
pub fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    rank(unknown, known).map(|(_, name)| name)
}

/// How a name is near to another one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Nearness {
    /// So many letters differ.
    Slip(usize),
    Word,
    /// The names have little in common.
    Far(usize),
}

fn rank<'a>(unknown: &str, known: &[&'a str]) -> Option<(Nearness, &'a str)> {
    // Comparing takes time in proportion to both lengths, and no name is longer than this.
    let unknown: String = unknown.chars().take(MAX_COMPARED_CHARS).collect();
    let unknown = unknown.to_lowercase().replace('-', "_");
    let nearness = |name: &str| match strsim::damerau_levenshtein(&unknown, name) {
        slip @ 0..=2 => Nearness::Slip(slip),
        _ if shares_a_word(&unknown, name) => Nearness::Word,
        _ => Nearness::Far(dissimilarity(&unknown, name)),
    };
    let ranked = known.iter().map(|name| (nearness(name), *name));
    // The first of those that are equally near.
    ranked.min_by(|(one, _), (other, _)| one.cmp(other))
}

/// Whether one name is part of the other, or nearly one of its words.
fn shares_a_word(unknown: &str, name: &str) -> bool {
    let long = |word: &str| word.len() >= MIN_CONTAINED_CHARS;
    let is_word = |word: &str| long(word) && strsim::damerau_levenshtein(unknown, word) <= 1;
    long(unknown) && (name.contains(unknown) || name.split('_').any(is_word))
        || long(name) && unknown.contains(name)
}

/// How few pairs of letters two names have in common, in thousandths.
fn dissimilarity(unknown: &str, name: &str) -> usize {
    let similarity = strsim::sorensen_dice(unknown, name).clamp(0.0, 1.0);
    1000 - (similarity * 1000.0) as usize
}

/// Characters of an unknown name that are compared.
const MAX_COMPARED_CHARS: usize = 64;

/// A shorter word is part of too many names to mean one of them.
const MIN_CONTAINED_CHARS: usize = 4;

/// The sentence about a name that is not known: what it is not, and what is nearest to it.
pub fn unknown_name(what: &str, unknown: &str, known: &[&str]) -> String {
    let shown: String = unknown.chars().take(MAX_COMPARED_CHARS).collect();
    match nearest(unknown, known) {
        Some(near) => format!("there is no {what} `{shown}`; did you mean `{near}`?"),
        None => format!("there is no {what} `{shown}`"),
    }
}

/// Replaces the list of all names in serde's message about an unknown field by the nearest of them,
/// and that of an unknown value if it is nearly one of them. Any other message is returned as it is.
pub fn suggest_in(message: &str) -> String {
    suggestion(message).unwrap_or_else(|| message.to_owned())
}

/// Reads "unknown field `x`, expected one of `a`, `b`", also with "expected `a` or `b`".
fn suggestion(message: &str) -> Option<String> {
    let (what, (before, rest)) = ["field", "variant"].into_iter().find_map(|what| {
        let parts = message.split_once(&format!("unknown {what} `"))?;
        Some((what, parts))
    })?;
    // The unknown name may itself contain this text, so the last one begins the list.
    let (unknown, list) = rest.rsplit_once("`, expected ")?;
    let known: Vec<_> = list.split('`').skip(1).step_by(2).collect();
    let (nearness, near) = rank(unknown, &known)?;
    // A list of values says more than a guess among them.
    if what == "variant" && matches!(nearness, Nearness::Far(_)) {
        return None;
    }
    let shown: String = unknown.chars().take(MAX_COMPARED_CHARS).collect();
    Some(format!(
        "{before}unknown {what} `{shown}`; did you mean `{near}`?"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_and_a_part_of_a_name_are_recognised() {
        let known = [
            "require_approval_for",
            "default_gate_quorum",
            "quorum_by_category",
            "allow_forks",
            "gate_timeout_seconds",
        ];
        for (unknown, meant) in [
            ("default_gate_quorm", "default_gate_quorum"),
            ("quorum", "default_gate_quorum"),
            ("quorm", "default_gate_quorum"),
            ("gate_quorm", "default_gate_quorum"),
            ("gate-timeout", "gate_timeout_seconds"),
            ("GATE_TIMEOUT_SECONDS", "gate_timeout_seconds"),
            ("allow_fork", "allow_forks"),
        ] {
            assert_eq!(nearest(unknown, &known), Some(meant), "{unknown}");
        }
        assert_eq!(nearest("x", &[]), None);
        let long = "quorum".repeat(100_000);
        assert!(nearest(&long, &known).is_some());
    }

    #[test]
    fn the_lists_of_serde_become_one_suggestion() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Three {
            #[serde(default)]
            _name: u8,
            #[serde(default)]
            _roles: u8,
            #[serde(default)]
            _session: u8,
        }
        let error = serde_json::from_str::<Three>(r#"{"_rolse": 1}"#).unwrap_err();
        assert_eq!(
            suggest_in(&error.to_string()),
            "unknown field `_rolse`; did you mean `_roles`?"
        );
        assert_eq!(
            suggest_in("`roles`: unknown variant `amdin`, expected `driver` or `admin`"),
            "`roles`: unknown variant `amdin`; did you mean `admin`?"
        );
        let hostile = "unknown field `a`, expected `b`, expected `c`";
        assert!(suggest_in(hostile).contains("did you mean `c`"));
        for other in [
            "missing field `name`",
            "",
            "unknown field `",
            "unknown field `x`",
            "unknown variant `always`, expected one of `direct`, `gated`, `off`",
        ] {
            assert_eq!(suggest_in(other), other);
        }
    }
}
