//! Scripts for sed, in which a misread delimiter turns text into commands that write or run.

use crate::generator::random::Random;

const PATTERN_PIECES: &str = r##"a foo \n \/ [/] [^/] []/] [^]/] [[:alpha:]/] [a [ ] \[ \] w␣x e␣id ; } { # . * ^ $ & \1 \( \) é | , ␣ \\ \ ⏎"##;

const COMMANDS: &str = "p d D n N g G h H x = l q Q z F P w␣x W␣x e e␣id r␣a.txt R␣a.txt a\\␣text i␣x c␣x :a ba t \
    { } ; #x y/a/b/ L l5 q5 v ∅ s///";

const FLAGS: &str = "∅ ∅ ∅ g p gp 2 I i gI w␣x e m M ge pw␣x ␣w␣x ␣ ;w␣x ⏎w␣x }";

const ADDRESSES: &str =
    r##"∅ ∅ ∅ 1 $ 1,2 1~2 2,+1 2,~4 0,/a/ /a/,/b/ 1! $! 1,3! \,a, \xax /a/I /a/M , 1,"##;

pub(super) fn script(random: &mut Random) -> String {
    if random.percent(25) {
        return hidden_write(random);
    }
    let mut script = String::new();
    for _ in 0..1 + random.below(3) {
        script.push_str(&address(random));
        script.push_str(&command(random));
        script.push_str(random.pick(&[";", ";", "\n", " ", "", " ;", "}"]));
    }
    script
}

/// A write between two delimiters, which is text to whoever misreads what comes before it.
fn hidden_write(random: &mut Random) -> String {
    let start = random.pick(&["s/", "/", "y/", "s|", "s,", "\\,", "1,/", "0,/", "s/a/"]);
    let delimiter = start.chars().next_back().unwrap_or('/');
    let (pattern, rest) = (pieces(random), pieces(random));
    let write = random.pick(&["w x", "p;w x", "e touch x", "p\nw x", ";w x\n", "d}w x"]);
    format!("{start}{pattern}{delimiter}{write}{delimiter}{rest}{delimiter}p")
}

fn address(random: &mut Random) -> String {
    if random.percent(20) {
        return format!("/{}/", pieces(random));
    }
    random.piece(ADDRESSES)
}

fn command(random: &mut Random) -> String {
    if random.percent(50) {
        return random.piece(COMMANDS);
    }
    let delimiter = random.pick(&[
        "/", "/", "/", "|", "#", ",", ":", "@", "_", "e", "w", "é", "\\",
    ]);
    let (pattern, replacement) = (pieces(random), pieces(random));
    let flags = random.piece(FLAGS);
    let letter = random.pick(&["s", "s", "s", "y"]);
    format!("{letter}{delimiter}{pattern}{delimiter}{replacement}{delimiter}{flags}")
}

fn pieces(random: &mut Random) -> String {
    (0..1 + random.below(3))
        .map(|_| random.piece(PATTERN_PIECES))
        .collect()
}
