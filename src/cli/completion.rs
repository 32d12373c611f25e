//! `pvp completions`: prints a script that completes commands in a shell, and the hidden
//! `pvp complete`, which the script asks for values that only the server knows.

mod candidates;
mod command_line;
mod scripts;

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::shell_words;
use command_line::CompletionRequest;

/// How long a shell waits for candidates.
const TIMEOUT: Duration = Duration::from_millis(1500);

#[derive(Args)]
#[command(after_help = "Load it in every shell that you start:\n  \
    bash  echo 'source <(pvp completions bash)' >> ~/.bashrc\n  \
    zsh   echo 'source <(pvp completions zsh)' >> ~/.zshrc\n  \
    fish  pvp completions fish > ~/.config/fish/completions/pvp.fish")]
pub(crate) struct CompletionsArguments {
    /// bash, zsh, fish, elvish or powershell
    shell: Shell,
}

#[derive(Args)]
pub(crate) struct CompleteArguments {
    /// The command line up to the cursor
    line: String,
    /// The end of the line that a candidate replaces [default: its last word]
    replaced: Option<String>,
}

pub(crate) fn print_script(arguments: &CompletionsArguments) -> anyhow::Result<ExitCode> {
    super::print_bytes(scripts::script(arguments.shell).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one candidate a line. It prints nothing if there is any problem: the person who pressed
/// the tab key has asked for no error.
pub(crate) fn complete(arguments: &CompleteArguments) -> anyhow::Result<ExitCode> {
    let candidates = find_candidates(&arguments.line).unwrap_or_default();
    let replaced = arguments.replaced.as_deref();
    for candidate in candidates {
        let candidate = match replaced {
            Some(replaced) => candidate.without_kept_part(replaced),
            None => Some(candidate.whole_word),
        };
        if let Some(candidate) = candidate {
            super::print_line(candidate)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A word that the last word of the line may become.
struct Candidate {
    whole_word: String,
    /// The last word of the line so far.
    typed: String,
}

impl Candidate {
    /// The candidate without what the shell keeps of the word: bash completes only what follows the
    /// last `=`, `:` or `@`.
    fn without_kept_part(&self, replaced: &str) -> Option<String> {
        let kept = self.typed.strip_suffix(replaced)?;
        self.whole_word.strip_prefix(kept).map(str::to_owned)
    }
}

fn find_candidates(line: &str) -> Option<Vec<Candidate>> {
    let split = shell_words::split(line)?;
    let mut words = split.words;
    let typed = match split.ends_in_word {
        true => words.pop()?,
        false => String::new(),
    };
    // What needs quotes is nothing that is offered here.
    if !line.ends_with(&typed) {
        return None;
    }
    let mut command = crate::CliArguments::command();
    command.build();
    let request = CompletionRequest::parse(&command, words.get(1..)?, &typed)?;
    let (prefix, typed_value) = (request.kept.clone(), request.typed.clone());
    let (sender, values) = mpsc::channel();
    // A thread that nobody waits for once the time is up.
    std::thread::spawn(move || {
        // Nobody listens any more if the time was up.
        let _ = sender.send(candidates::fetch(&request, TIMEOUT));
    });
    let values = values.recv_timeout(TIMEOUT).ok()?;
    let matching = values
        .into_iter()
        .filter(|value| value.starts_with(&typed_value));
    let candidates = matching.map(|value| Candidate {
        whole_word: format!("{prefix}{value}"),
        typed: typed.clone(),
    });
    Some(candidates.collect())
}
