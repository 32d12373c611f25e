//! Words of a line: texts in every kind of quotes, and what a shell expands.

use super::random::Random;

/// Names in the scratch directory, and others that are harmless.
const PLAIN_OPERANDS: &str =
    "a.txt a.txt b.txt src src/main.rs . ./a.txt a b c 1 HEAD foo a.json a.tar";

/// Names that are not there, that look like flags or several words, and texts that are no names.
const OPERANDS: &str = r##"
    a.txt src missing a␣b -o --output=x -delete -i -- - * new⏎line it's say␣"x" é.txt ünï a\ \ \'
    ' $x `x` x;y x|y #x ~ {a,b} [x] ∅ x=y !x src/../a.txt %s name -e prod.env .env ../a.txt secrets.yml
    terraform.tfstate
"##;

/// Values that most flags accept.
const PLAIN_VALUES: &str = "1 2 1,2 x foo a.txt : name";

/// Values of which some look like flags, files or several words.
const VALUES: &str = r##"
    , é é1 1é ß=2 日本 -o -ox --output=x - -- -1 -é ∅ ␣ a␣b * %s auto always never json x=y \ ' "
    +1 /dev/null src none 1k prod.env ./x
"##;

/// What a shell expands, or might be thought to expand, outside of quotes.
const EXPANSIONS: &str = r##"
    * *.txt src/* pair/* pair/? src/*.rs ./* ? a* -* --* [ab] [ab].txt [!a]* a? b* *x {a,b} {a.txt,-o}
    a.{txt,log} {1..3} $x ${x} "$x" "${x}" $f "$f" "${f}" $_ "$_" ${_} $@ "$@" $* $# $? $1 "$1"
    $(echo␣-o) "$(echo␣x)" `echo␣x` $((1+1)) ~ ~/x $HOME "$PWD" ${x:-y} "${x:=y}" $'a' $'\x2do'
    $"a" \* '*' "*" ''* ""* '\'* '\'{-o,x} "\'"* \'* a\⏎b <(ls) !(a) @(a|b) $- $$ ${#x} ${x%y}
    ${!x} $[1] a$ "a$" '' "" {} { } [ ] []a]* [^-]* *[ a] é*
"##;

/// A word that is no flag: an operand, or something that expands to any number of them.
pub(super) fn operand(random: &mut Random, variables: &[&str]) -> String {
    if !variables.is_empty() && random.percent(45) {
        let name = random.pick(variables);
        return match random.below(5) {
            0 => format!("${name}"),
            1 => format!("${{{name}}}"),
            2 => format!("src/\"${name}\""),
            _ => format!("\"${name}\""),
        };
    }
    match random.below(10) {
        0 | 1 => random.piece(EXPANSIONS),
        2 => {
            let expansion = random.piece(EXPANSIONS);
            let text = quoted_piece(random, OPERANDS);
            if random.percent(50) {
                format!("{text}{expansion}")
            } else {
                format!("{expansion}{text}")
            }
        }
        3 | 4 => quoted_piece(random, OPERANDS),
        _ => quoted_piece(random, PLAIN_OPERANDS),
    }
}

/// The text of a flag's value.
pub(super) fn value(random: &mut Random) -> String {
    let list = if random.percent(60) {
        PLAIN_VALUES
    } else {
        VALUES
    };
    random.piece(list)
}

fn quoted_piece(random: &mut Random, list: &str) -> String {
    let text = random.piece(list);
    quote(random, &text)
}

/// A text as a shell would have it written: plain where that is possible, or in pieces that are
/// each quoted in another way.
pub(super) fn quote(random: &mut Random, text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=,:+%@".contains(c) || !c.is_ascii();
    if !text.is_empty() && text.chars().all(plain) && random.percent(80) {
        return text.to_owned();
    }
    if text.is_empty() {
        return random.pick(&["''", "\"\"", "''\"\""]).to_owned();
    }
    let characters: Vec<char> = text.chars().collect();
    let mut rest = characters.as_slice();
    let mut word = String::new();
    while !rest.is_empty() {
        let length = match random.below(3) {
            0 => 1 + random.below(rest.len()),
            _ => rest.len(),
        };
        let (piece, after) = rest.split_at(length);
        word.push_str(&quote_piece(random, &piece.iter().collect::<String>()));
        rest = after;
    }
    word
}

fn quote_piece(random: &mut Random, piece: &str) -> String {
    match random.below(12) {
        0..5 if !piece.contains('\'') => format!("'{piece}'"),
        5..9 => {
            let escaped = |c: char| match c {
                '$' | '`' | '"' | '\\' => format!("\\{c}"),
                other => other.to_string(),
            };
            format!("\"{}\"", piece.chars().map(escaped).collect::<String>())
        }
        9 => format!("$'{}'", piece.replace('\\', "\\\\").replace('\'', "\\'")),
        10 => {
            // Double quotes keep a backslash before other characters.
            format!("\"{}\"", piece.replace(['"', '$', '`', '\\'], "\\x"))
        }
        _ => {
            let escaped = |c: char| match c {
                '\n' => "'\n'".to_owned(),
                other => format!("\\{other}"),
            };
            piece.chars().map(escaped).collect()
        }
    }
}
