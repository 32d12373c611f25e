//! The few commands that are certain to be reads: a bare name, known flags, plain operands.

use pvp_protocol::{Action, Category, Risk};

use crate::{Opinion, words};

/// A command that reads, the flags it may carry, and whether it takes operands.
struct Reader {
    words: &'static [&'static str],
    flags: &'static [&'static str],
    operands: bool,
    rule: &'static str,
}

const READERS: &[Reader] = &[
    Reader {
        words: &["ls"],
        flags: &[
            "-l", "-a", "-la", "-al", "-lh", "-lah", "-1", "-h", "-R", "-t", "-d",
        ],
        operands: true,
        rule: "read.ls",
    },
    Reader {
        words: &["cat"],
        flags: &["-n", "-A"],
        operands: true,
        rule: "read.cat",
    },
    Reader {
        words: &["head"],
        flags: &["-n"],
        operands: true,
        rule: "read.head",
    },
    Reader {
        words: &["tail"],
        flags: &["-n"],
        operands: true,
        rule: "read.tail",
    },
    Reader {
        words: &["wc"],
        flags: &["-l", "-w", "-c"],
        operands: true,
        rule: "read.wc",
    },
    Reader {
        words: &["pwd"],
        flags: &[],
        operands: false,
        rule: "read.pwd",
    },
    Reader {
        words: &["whoami"],
        flags: &[],
        operands: false,
        rule: "read.whoami",
    },
    Reader {
        words: &["id"],
        flags: &[],
        operands: false,
        rule: "read.id",
    },
    Reader {
        words: &["uptime"],
        flags: &[],
        operands: false,
        rule: "read.uptime",
    },
    Reader {
        words: &["echo"],
        flags: &["-n"],
        operands: true,
        rule: "read.echo",
    },
    Reader {
        words: &["true"],
        flags: &[],
        operands: false,
        rule: "read.true",
    },
    Reader {
        words: &["git", "status"],
        flags: &["-s", "--short", "--porcelain"],
        operands: false,
        rule: "read.git-status",
    },
];

/// A read, if it is certain to be one.
pub(crate) fn read(action: &Action) -> Option<Opinion> {
    let words = words(action)?;
    let reader = READERS.iter().find(|reader| {
        words.len() >= reader.words.len()
            && reader
                .words
                .iter()
                .zip(&words)
                .all(|(expected, word)| *expected == word.as_str())
    })?;
    let harmless = words[reader.words.len()..].iter().all(|word| {
        if word.starts_with('-') {
            reader.flags.contains(&word.as_str())
        } else {
            reader.operands
        }
    });
    let reason = format!("`{}` only reads", reader.words.join(" "));
    harmless.then(|| Opinion::new(Category::Read, Risk::Safe, reader.rule, &reason))
}
