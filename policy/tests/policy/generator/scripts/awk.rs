//! Programs for awk, in which a slash may divide or begin a pattern, and `>` compare or write.

use crate::generator::random::Random;

/// Characters of patterns and strings that end them early if they are misread.
const PATTERN_PIECES: &str = r##"a foo \/ [/] [^/] [] []/] [^]] [[:alpha:]] [[:alpha:]/] " \" > | # { } ( ) \\ [ ] = ^ $ . * é ␣ ; ,"##;

const STRING_PIECES: &str = r##"a x / // \" \\ > | # { } \/ %s \n é ␣ ; ' [ ] ∅ \"> system("##;

const ATOMS: &str = "1 2 $1 $0 $NF NR NF x y a[1] a[x] length length() i++ i-- ++i -1 (1) ($1) x.y 1e1 .5 substr($0,1) x=1 x/=2";

const OPERATORS: &str =
    "␣/␣ / ␣>␣ > ␣<␣ == != ~ !~ ␣~␣ && ␣||␣ || ␣ + - * % ^ , ␣in␣a ?1: /= += ␣?␣ ⏎ |";

const STATEMENTS: &str = "next exit delete␣a[1] getline close(\"x\") ; {} break if(0)x; ␣ return function␣f(){ }⏎ # #x⏎ \\⏎";

/// Statements that write, also such that a pattern for `print … >` does not see.
const WRITES: &str = r##"print>"x" print␣";">"x" print"}">"x" print␣a[";"]>"x" y="touch␣x";print|y
    printf␣";">"x" print␣1>"x" print(";")>"x" print|"cat>x" y="x";print>y y="touch␣x";y|getline"##;

/// Patterns that begin a string for whoever takes their slash for a division.
const MISREAD: &str = r##"/"/ /"/ /["]/ /\"/ /a/ "/" /="/ /#/"##;

/// What may come before a slash, and decides what the slash means.
const BEFORE_SLASH: &str = "∅ if(1) if(1)␣ if␣(x)⏎ while(0) while(0)␣ else do for(;0;) x=1; x~ !~ ( (1) a[1] ] ) i++ \
    i--␣ } {} ; ⏎ , ! && || return␣ print␣ 1 1␣ x␣ $1 $ - + in␣ next; x= ?1: length length␣ NF␣ getline␣ case␣ {";

pub(super) fn program(random: &mut Random) -> String {
    if random.percent(30) {
        return hidden_write(random);
    }
    let mut program = String::new();
    for _ in 0..1 + random.below(2) {
        match random.below(8) {
            0 => program.push_str("BEGIN"),
            1 => program.push_str("END"),
            2 | 3 => program.push_str(&expression(random, 0)),
            _ => {}
        }
        if random.percent(85) {
            program.push_str(&action(random));
        }
        program.push_str(random.pick(&["", "", ";", "\n", " "]));
    }
    program
}

/// A write between two slashes or quotes, which is text to whoever misreads what comes before it.
fn hidden_write(random: &mut Random) -> String {
    let write = random.piece(WRITES);
    let joint = random.pick(&[";", ";", "\n", "; "]);
    let pattern = random.piece(MISREAD);
    let before = random.piece(BEFORE_SLASH);
    let after = if random.percent(50) {
        before.clone()
    } else {
        random.piece(BEFORE_SLASH)
    };
    let when = random.pick(&["", "BEGIN"]);
    format!("{when}{{{before}{pattern}{joint}{write}{joint}{after}{pattern}}}")
}

fn action(random: &mut Random) -> String {
    let mut action = String::from("{");
    for _ in 0..1 + random.below(3) {
        action.push_str(&statement(random));
        action.push_str(random.pick(&[";", ";", "\n", " ", ""]));
    }
    action.push('}');
    action
}

fn statement(random: &mut Random) -> String {
    let value = expression(random, 0);
    match random.below(12) {
        0..4 => format!("print {value}"),
        4 => format!("print({value})"),
        5 => format!("printf \"%s\", {value}"),
        6 => format!("x = {value}"),
        7 => format!("if ({value}) print"),
        8 => format!("print {value} > {}", expression(random, 1)),
        9 => format!(
            "{}{value}",
            random.pick(&["while (0) ", "if (1) ", "do ", "if (0); else "])
        ),
        10 => random.piece(STATEMENTS),
        _ => value,
    }
}

fn expression(random: &mut Random, depth: usize) -> String {
    if depth > 2 || random.percent(35) {
        return match random.below(5) {
            0 => format!("/{}/", pieces(random, PATTERN_PIECES)),
            1 => format!("\"{}\"", pieces(random, STRING_PIECES)),
            _ => random.piece(ATOMS),
        };
    }
    let left = expression(random, depth + 1);
    let right = expression(random, depth + 1);
    match random.below(10) {
        0 => format!("({left})"),
        1 => format!("!{left}"),
        2 => format!("a[{left}]"),
        3 => format!("sub({left},{right})"),
        4 => format!("{left} ? {right} : 1"),
        _ => format!("{left}{}{right}", random.piece(OPERATORS)),
    }
}

fn pieces(random: &mut Random, list: &str) -> String {
    (0..1 + random.below(3))
        .map(|_| random.piece(list))
        .collect()
}
