//! Adds the agent as a co-author to `git commit` commands, before people see them.

use pvp_protocol::{Command, PartAssessment};

/// The line with `--trailer` added to every `git commit` in it; `None` if there is no commit to
/// add it to.
pub(super) fn with_co_author_trailer(
    command: &Command,
    parts: &[PartAssessment],
    author: &str,
) -> Option<String> {
    let Command::Shell { line } = command else {
        return None;
    };
    let trailer = format!(
        " --trailer {}",
        shell_quote(&format!("Co-authored-by: {author}"))
    );
    // A line of one command has no parts.
    let mut insert_positions: Vec<usize> = match parts {
        [] => commit_end(line).into_iter().collect(),
        parts => parts
            .iter()
            .filter(|part| line.get(part.start..part.end) == Some(part.text.as_str()))
            .filter_map(|part| Some(part.start + commit_end(&part.text)?))
            .collect(),
    };
    insert_positions.sort_unstable();
    insert_positions.dedup();
    let mut line = line.clone();
    for position in insert_positions.iter().rev() {
        line.insert_str(*position, &trailer);
    }
    (!insert_positions.is_empty()).then_some(line)
}

/// Where the word `commit` ends, if this is a plain `git commit` without a co-author trailer.
fn commit_end(text: &str) -> Option<usize> {
    if text.to_ascii_lowercase().contains("co-authored-by") {
        return None;
    }
    let mut words = plain_words(text);
    if words.next()?.1 != "git" {
        return None;
    }
    while let Some((start, word)) = words.next() {
        match word {
            "commit" => return Some(start + word.len()),
            "-C" | "-c" | "--git-dir" | "--work-tree" => drop(words.next()),
            option if option.starts_with('-') => {}
            _ => return None,
        }
    }
    None
}

/// The words before the first that needs a shell to interpret it, each with its position.
fn plain_words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,~".contains(c);
    text.split_ascii_whitespace()
        .map(move |word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
        .take_while(move |(_, word)| word.chars().all(plain))
}

fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_policy::{Policy, Workspace};
    use pvp_protocol::Action;

    fn with_trailer(text: &str) -> Option<String> {
        let command = Command::Shell {
            line: text.to_owned(),
        };
        let action = Action::new(command.clone());
        let assessment = Policy::built_in().assess(&action, &Workspace::default());
        with_co_author_trailer(&command, &assessment.parts, "Owl O'Hara <owl@example.org>")
    }

    const TRAILER: &str = r"--trailer 'Co-authored-by: Owl O'\''Hara <owl@example.org>'";

    #[test]
    fn every_commit_in_a_line_gets_the_trailer() {
        assert_eq!(
            with_trailer("git commit -m 'a b'"),
            Some(format!("git commit {TRAILER} -m 'a b'"))
        );
        assert_eq!(
            with_trailer("git add . && git -C sub commit -am x; git commit"),
            Some(format!(
                "git add . && git -C sub commit {TRAILER} -am x; git commit {TRAILER}"
            ))
        );
    }

    #[test]
    fn other_commands_get_no_trailer() {
        for text in [
            "git log --grep commit",
            "git status",
            "echo git commit",
            "echo 'git commit -m x'",
            "git commit -m x --trailer 'Co-authored-by: me'",
            "git \"commit\" -m x",
            "notgit commit",
            "git commit-tree x",
        ] {
            assert_eq!(with_trailer(text), None, "{text}");
        }
    }
}
