//! The scripts for shells: what clap knows by itself, and around it a function that asks
//! `pvp complete` first.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::program_name::program_name;

/// The script for a shell.
pub(super) fn script(shell: Shell) -> String {
    let mut known = Vec::new();
    let mut command = crate::CliArguments::command();
    clap_complete::generate(shell, &mut command, "pvp", &mut known);
    let known = String::from_utf8_lossy(&known);
    match shell {
        Shell::Bash => format!("{known}{}", with_program(BASH)),
        Shell::Zsh => zsh(&known),
        Shell::Fish => format!("{known}{}", with_program(FISH)),
        // Other shells complete what clap knows.
        Shell::Elvish | Shell::PowerShell | _ => known.into_owned(),
    }
}

fn with_program(script: &str) -> String {
    script.replace("PVP_PROGRAM", &program_name())
}

/// zsh may also load the script as the function `_pvp`, so that name is for the outer function.
fn zsh(known: &str) -> String {
    let known = known.replacen("\n_pvp() {", "\n_pvp_known() {", 1);
    let end = known
        .rfind("\nif [ \"$funcstack[1]\"")
        .unwrap_or(known.len());
    let (functions, start) = known.split_at(end);
    format!("{functions}\n{}{start}", with_program(ZSH))
}

const BASH: &str = r#"
# Gates, sessions, agents and rules come from the server.
_pvp_with_values() {
    mapfile -t COMPREPLY < <(PVP_PROGRAM complete -- "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        _pvp "$@"
    fi
}
complete -F _pvp_with_values -o nosort -o bashdefault -o default pvp
"#;

const ZSH: &str = r#"# Gates, sessions, agents and rules come from the server.
_pvp() {
    local line="${(j: :)words[1,CURRENT-1]} $PREFIX"
    local -a values
    values=(${(f)"$(PVP_PROGRAM complete -- "$line" 2>/dev/null)"})
    if (( ${#values} )); then
        compadd -- $values
    else
        _pvp_known "$@"
    fi
}
"#;

const FISH: &str = r#"
# Gates, sessions, agents and rules come from the server.
function __pvp_values
    PVP_PROGRAM complete -- (commandline -cp | string collect) 2>/dev/null
end
complete -c pvp -n 'test (count (__pvp_values)) -gt 0' -f -a '(__pvp_values)'
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_asks_for_values() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            assert!(script.contains(" complete -- "), "{shell}");
            assert!(!script.contains("PVP_PROGRAM"), "{shell}");
        }
    }

    #[test]
    fn the_function_that_zsh_loads_asks_for_values_first() {
        let script = script(Shell::Zsh);
        assert!(script.starts_with("#compdef pvp\n"));
        assert_eq!(script.matches("\n_pvp() {").count(), 1);
        assert_eq!(script.matches("\n_pvp_known() {").count(), 1);
        let outer = script.find("\n_pvp() {").unwrap();
        let start = script
            .find("\nif [ \"$funcstack[1]\" = \"_pvp\" ]")
            .unwrap();
        assert!(outer < start, "it is defined before it is called");
    }
}
