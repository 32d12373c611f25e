//! The small languages in arguments: programs for sed and awk, expressions for find, and others.

mod awk;
mod find;
mod sed;

use super::grammar::ReadGrammar;
use super::random::Random;

const TEST: &str = r##"
    -f -d -e -z -n -v -R -t a a.txt = != == -eq -lt 1 2 x ! ( ) -a -o ] a[$(id)] 'a[$(id)]' -nt
    -ot -ef < '' -x -s -L 0x1 08 é -gt 1+1 '1+1' 'a[`id`]' -N -O
"##;

const PRINTF: &str = r##"
    %s %d %n %b %q \n %% %(%F)T %*d %-5s %.3f -v x % \x41 %5 é %l -- %1$s %'d %c %i %Q
"##;

const TAR: &str = r##"
    tf -tf a.tar -t -f tvf -tvf --list --file=a.tar xf -x cf a.tgz tzf --to-command=id -I -O -C
    src --wildcards '*.txt' a.txt -tvzf --checkpoint=1 --checkpoint-action=exec=id -v --utc -R
    --file -é tfé tRf -a taf -tfa.tar --li --fi=a.tar --delete f
"##;

const JQ: &str = r##"
    . .name .a[] | keys length env $ENV input input_filename "x" # ⏎ @base64 @sh @json
    import␣"a"␣as␣a; include␣"a"; getpath(["a"]) , ( ) [.[]] map(.) debug stderr halt_error
    $__loc__ $__prog_args é ;␣ def␣f:␣.;␣f load("a.txt") - "\(env)" e nv ltrimstr("a")
    input_line_number get_search_list modulemeta "a"|modulemeta $ENV|keys [limit(3;.[])] ..␣ ?
    //1
"##;

const GIT: &str = r##"
    HEAD HEAD~0 HEAD:a.txt -- a.txt src . main master HEAD..HEAD ^HEAD :a.txt :/first
    HEAD^{tree} @ @{0} -p --stat -1 -n1 --output=x --oneline *.txt ':(glob)**' --ext-diff
    --textconv -S foo --no-index origin v1 -O --open-files-in-pager=id HEAD:prod.env
    a.txt␣b.txt --all -l -v stash@{0} x --get user.name remote.origin.url -é blob commit tree
    refs/heads
"##;

/// A program or expression for a command that takes one.
pub(super) fn script(random: &mut Random, grammar: &ReadGrammar) -> Option<String> {
    Some(match (grammar.check.as_str(), grammar.program()) {
        ("sed", _) => sed::script(random),
        ("awk", _) => awk::program(random),
        ("printf", _) => random_pieces(random, PRINTF, ""),
        (_, "jq" | "yq") => random_pieces(random, JQ, ""),
        _ => return None,
    })
}

/// The arguments of a command whose arguments are an expression, already quoted for a shell.
pub(super) fn expression(random: &mut Random, grammar: &ReadGrammar) -> Option<String> {
    let pieces = match (grammar.check.as_str(), grammar.program()) {
        ("find", _) => return Some(find::expression(random)),
        ("test", _) => TEST,
        ("tar", _) => TAR,
        (_, "git") => GIT,
        _ => return None,
    };
    let mut words = random_pieces(random, pieces, " ");
    if grammar.program() == "[" {
        words.push_str(" ]");
    }
    Some(words)
}

fn random_pieces(random: &mut Random, pieces: &str, joint: &str) -> String {
    // Few pieces are often a valid program, and many seldom are.
    let most = 2 + random.below(6);
    let count = 1 + random.below(most);
    let pieces: Vec<String> = (0..count).map(|_| random.piece(pieces)).collect();
    pieces.join(joint)
}
