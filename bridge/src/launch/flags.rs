//! What several clients' command lines have in common.

use std::ffi::OsString;

/// The flag of a word, without a value that is joined to it.
pub(super) fn flag_of(word: &str) -> &str {
    word.split_once('=').map_or(word, |(flag, _)| flag)
}

/// Variables that the client is started without.
pub(super) fn variable_removals(names: &[&str]) -> Vec<(String, Option<OsString>)> {
    names
        .iter()
        .map(|name| ((*name).to_owned(), None))
        .collect()
}
