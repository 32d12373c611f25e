//! Programs for awk, in which a slash may divide or begin a pattern, and `>` compare or write.

use crate::generator::random::Random;

/// Characters of patterns and strings that end them early if they are misread.
const PATTERN_PIECES: &str = r##"a foo \/ [/] [^/] [] []/] [^]] [[:alpha:]] [[:alpha:]/] " \" > | # { } ( ) \\ [ ] = ^ $ . * é ␣ ; ,"##;

const STRING_PIECES: &str = r##"a x / // \" \\ > | # { } \/ %s \n é ␣ ; ' [ ] ∅ \"> system("##;

const ATOMS: &str = "1 2 $1 $0 $NF NR NF x y a[1] a[x] length length() i++ i-- ++i -1 (1) ($1) x.y 1e1 .5 substr($0,1) x=1 x/=2";

const OPERATORS: &str =
    "␣/␣ / ␣>␣ > ␣<␣ == != ~ !~ ␣~␣ && ␣||␣ || ␣ + - * % ^ , ␣in␣a ?1: /= += ␣?␣ ⏎ |";

const STATEMENTS: &str = "next exit delete␣a[1] getline close(\"x\") ; {} break if(0)x; ␣ return function␣f(){ }⏎ # #x⏎ \\⏎";

pub(super) fn program(random: &mut Random) -> String {
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
        9 => format!("while (0) {value}"),
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
