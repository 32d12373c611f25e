//! The small languages in arguments: programs for sed and awk, expressions for find, and others.

use super::grammar::ReadGrammar;
use super::random::Random;

const SED: &str = r##"
    p 1p $d /foo/p s/a/b/ s/a/b/g s|a|b| y/a/b/ 1,2 /a/,/b/ ! { } ; ⏎ = n N q l w␣x e e␣id
    r␣a.txt s/a/b/w␣x s/a/b/e /w␣x s/[/]/b/ s/[a/b]/w␣x/ \ \/ \n [ ] [^] / # #n s,a,b, s/a/\⏎/
    ~2 0~3 +1 I M F z x G h 5q s/a/b/2p s/x/&/m a␣text i\ c␣x :a ba t /[/w␣x/]/p s_a_b_
    s/a/b/gI 1!G W␣x é /[[:alpha:]/]/p y/é/e/ sé L v R␣x Q1 s/\//x/ $!N 1~1e
"##;

const AWK: &str = r##"
    {print} {print␣$1} /foo/ NR==1 NR>1 BEGIN{ END{ } { print printf print␣$1 $1 $NF "a" " /
    /a/ /[/]/ /[/] > >"x" >> | |"sh" || && ⏎ ; , ␣ ( ) x=1 x/=1 /=1/ ++ -- a[1] ] [ in if(1)
    else while(0) length substr($0,1) \ \" # ! ~ function␣f(){ return getline system("id")
    close("x") fflush() @ é $0 print␣"x"␣>␣"y" a 1/2 a/b )/ ]/ "/" /"/ ? : toupper($0)
    printf("x") print(1)>"x" NF--/ i++/ $1␣/ getline<"a" sub(/a/,"b") gsub(/\//,"x")
    split($0,a,/,/) delete␣a next exit print>$1 ⇥
"##;

const FIND: &str = r##"
    . src -name a* '*.txt' -type f -maxdepth 1 -print -print0 -ls -delete -exec id {} \; + -ok
    -fprint x -fls -fprintf -printf %p\n -newer a.txt ! -not -o -or -a \( \) -size -mtime -1
    -prune -quit -path -regex -empty -files0-from -L -P -O3 -D tree -execdir -- -iname
    -mindepth -perm -user -follow -é -depth -samefile
"##;

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
    let (pieces, joint) = match (grammar.check.as_str(), grammar.program()) {
        ("sed", _) => (SED, ""),
        ("awk", _) => (AWK, ""),
        ("printf", _) => (PRINTF, ""),
        (_, "jq" | "yq") => (JQ, ""),
        _ => return None,
    };
    Some(random_pieces(random, pieces, joint))
}

/// The arguments of a command whose arguments are an expression, already quoted for a shell.
pub(super) fn expression(random: &mut Random, grammar: &ReadGrammar) -> Option<String> {
    let pieces = match (grammar.check.as_str(), grammar.program()) {
        ("find", _) => FIND,
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
