//! Whole lines: commands in pipes, loops, conditions and with redirections.

use super::commands::command;
use super::grammar::ReadGrammar;
use super::random::Random;
use super::words::operand;

/// Assignments before a command, of which some change how it reads its words.
const ASSIGNMENTS: &str = r##"
    LC_ALL=C LANG=C.UTF-8 LC_ALL=ja_JP.SJIS LC_CTYPE=zh_CN.GBK LC_ALL= TZ=UTC NO_COLOR=1
    COLUMNS=80 LANGUAGE=de x=-o A=1 IFS=o LC_ALL=en_US.UTF-8 TZ=* GIT_OPTIONAL_LOCKS=0
    POSIXLY_CORRECT=1 LC_MESSAGES=$x BLOCK_SIZE=1 LC_X='a␣b'
"##;

const REDIRECTS: &str = r##"
    >/dev/null 2>/dev/null 2>&1 </dev/null <a.txt <␣a.txt <<<x <<<␣'a␣b' <<<"$x"
    >/dev/null␣2>&1 >x >>x &>/dev/null 2>x <* <$f <"$f" <<E⏎x⏎E⏎ <<'E'⏎$(id)⏎E⏎ >|x 3>x <>x >&2
    {fd}>x <&0 >/dev/stderr >/dev/null␣-o 2>/dev/null␣x <a.txt␣-i
"##;

/// Names of loop variables, one of which programs look at.
const VARIABLES: &[&str] = &["f", "x", "i", "f", "f", "_", "PATH", "file"];

/// Builds lines of commands whose programs have read rules.
pub(super) struct LineBuilder<'a> {
    pub(super) grammars: &'a [ReadGrammar],
    /// The rule of the line's first command, so that each has its turn.
    pub(super) next: usize,
}

impl LineBuilder<'_> {
    /// A line that begins with the next rule's command.
    pub(super) fn line(&mut self, random: &mut Random) -> String {
        let line = self.statement(random, &mut Vec::new(), 0);
        self.next = (self.next + 1) % self.grammars.len();
        match random.below(30) {
            0 => format!("{line} # x"),
            1 => format!(" {line}\n"),
            2 => line.replacen(' ', "\\\n ", 1),
            3 => line.replacen(' ', " \\\n", 1),
            4 => line.replacen(' ', "\t", 1),
            _ => line,
        }
    }

    fn statement(
        &mut self,
        random: &mut Random,
        variables: &mut Vec<&str>,
        depth: usize,
    ) -> String {
        if depth > 2 {
            return self.decorated(random, variables);
        }
        match random.below(40) {
            0..4 => self.joined(random, variables, depth, " | "),
            4..6 => self.joined(random, variables, depth, " && "),
            6 => self.joined(random, variables, depth, " || "),
            7 => self.joined(random, variables, depth, "; "),
            8 => self.joined(random, variables, depth, "\n"),
            9..14 => self.for_loop(random, variables, depth),
            14 => format!("({})", self.statement(random, variables, depth + 1)),
            15 => format!("{{ {}; }}", self.statement(random, variables, depth + 1)),
            16 => format!("! {}", self.decorated(random, variables)),
            17 => self.condition(random, variables, depth),
            18 => self.read_loop(random, variables, depth),
            19 => {
                let directory = operand(random, variables);
                let rest = self.statement(random, variables, depth + 1);
                let joint = random.pick(&[" && ", "; ", " | "]);
                format!("cd {directory}{joint}{rest}")
            }
            20 => self.setting(random, variables, depth),
            _ => self.decorated(random, variables),
        }
    }

    /// A command with assignments before it, or redirections around it.
    fn decorated(&mut self, random: &mut Random, variables: &[&str]) -> String {
        let mut line = self.command(random, variables);
        if random.percent(12) {
            line = format!("{} {line}", random.piece(ASSIGNMENTS));
        }
        if random.percent(15) {
            line = format!("{line} {}", random.piece(REDIRECTS));
        }
        if random.percent(2) {
            line = format!("{} {line}", random.piece(REDIRECTS));
        }
        line
    }

    /// The next rule's command first, and then those of others.
    fn command(&mut self, random: &mut Random, variables: &[&str]) -> String {
        let at = if random.percent(70) {
            self.next
        } else {
            random.below(self.grammars.len())
        };
        command(random, &self.grammars[at], variables)
    }

    fn joined(
        &mut self,
        random: &mut Random,
        variables: &mut Vec<&str>,
        depth: usize,
        joint: &str,
    ) -> String {
        let first = self.statement(random, variables, depth + 1);
        let second = self.statement(random, variables, depth + 1);
        format!("{first}{joint}{second}")
    }

    fn for_loop(&mut self, random: &mut Random, variables: &mut Vec<&str>, depth: usize) -> String {
        let name = random.pick(VARIABLES);
        let count = 1 + random.below(3);
        let values: Vec<String> = (0..count).map(|_| operand(random, variables)).collect();
        variables.push(name);
        let mut body = self.statement(random, variables, depth + 1);
        if random.percent(25) {
            // What follows an inner loop sees the last value of its variable.
            let after = self.decorated(random, variables);
            body = format!("{body}; {after}");
        }
        variables.pop();
        let done = format!("for {name} in {}; do {body}; done", values.join(" "));
        if random.percent(15) {
            // So does what follows the loop itself.
            variables.push(name);
            let after = self.decorated(random, variables);
            variables.pop();
            return format!("{done}; {after}");
        }
        done
    }

    fn condition(
        &mut self,
        random: &mut Random,
        variables: &mut Vec<&str>,
        depth: usize,
    ) -> String {
        let test = self.decorated(random, variables);
        let then = self.statement(random, variables, depth + 1);
        if random.percent(50) {
            return format!("if {test}; then {then}; fi");
        }
        let other = self.statement(random, variables, depth + 1);
        format!("if {test}; then {then}; else {other}; fi")
    }

    fn read_loop(
        &mut self,
        random: &mut Random,
        variables: &mut Vec<&str>,
        depth: usize,
    ) -> String {
        let input = self.decorated(random, variables);
        variables.push("x");
        let body = self.statement(random, variables, depth + 1);
        variables.pop();
        format!("{input} | while read -r x; do {body}; done")
    }

    fn setting(&mut self, random: &mut Random, variables: &mut Vec<&str>, depth: usize) -> String {
        let start = random.pick(&[
            "x=-o; ",
            "set -- -o; ",
            "shopt -s nullglob; ",
            "set -f; ",
            "read x <a.txt; ",
            "IFS=.; ",
            ": -o && ",
            "true -o; ",
            "echo -o; ",
            "x=1\n",
            "printf -v x -- -o; ",
            "unset x; ",
            "[ -f -o ]; ",
        ]);
        format!("{start}{}", self.statement(random, variables, depth + 1))
    }
}
