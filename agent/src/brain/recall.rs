//! The `recall` tool: reads more of a command's output than its result shows.

use pvp_protocol::payload::{OutputPage, OutputRead, OutputStream};

use super::result_text::{MAX_RESULT_BYTES, truncate_middle};

/// Bytes of one line in a page.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// Checks a request; the error is a message for the model.
pub fn validate(read: &OutputRead) -> Result<(), String> {
    let refuse = |why: &str| Err(why.to_owned());
    let ranged = read.offset.is_some() || read.limit.is_some();
    let ended = read.head.is_some() || read.tail.is_some();
    if read.head.is_some() && read.tail.is_some() {
        return refuse("Ask for `head` or for `tail`, not for both.");
    }
    if ended && ranged {
        return refuse(
            "`head` and `tail` do not go with `offset` and `limit`: use `head` or `tail` for an \
             end of the output, `offset` and `limit` for lines in the middle.",
        );
    }
    for (name, value) in [
        ("limit", read.limit),
        ("head", read.head),
        ("tail", read.tail),
    ] {
        if value == Some(0) {
            return refuse(&format!("`{name}` must be at least 1."));
        }
    }
    if read.grep.as_deref() == Some("") {
        return refuse("`grep` is empty: give the text that lines must contain, or leave it out.");
    }
    Ok(())
}

/// A page as the model reads it. Lines are counted from 0, as in `offset`.
pub fn render_page(read: &OutputRead, page: &OutputPage) -> String {
    let mut text = heading(read, page);
    let mut left_out = 0_usize;
    for line in &page.lines {
        let stream = match line.stream {
            OutputStream::Stdout => "",
            OutputStream::Stderr => "err ",
        };
        let line = format!(
            "\n{} {stream}| {}",
            line.number,
            truncate_middle(&line.text, MAX_LINE_BYTES)
        );
        if text.len() + line.len() > MAX_RESULT_BYTES - 512 {
            left_out += 1;
        } else if left_out == 0 {
            text.push_str(&line);
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 || page.cut {
        text.push_str(&format!(
            "\n\nThis page was cut ({left_out} lines left out here); ask for fewer lines at a time."
        ));
    }
    if let Some(next) = page.next {
        text.push_str(&format!("\n\nThere is more: continue with offset {next}."));
    }
    if !page.finished {
        text.push_str("\n\nThe command is still running; more may come.");
    }
    text
}

fn heading(read: &OutputRead, page: &OutputPage) -> String {
    let which = match read.stream {
        None => "stdout and stderr",
        Some(OutputStream::Stdout) => "stdout",
        Some(OutputStream::Stderr) => "stderr",
    };
    let matching = match &read.grep {
        None => String::new(),
        Some(grep) => format!(" that contain {:?}", truncate_middle(grep, 200)),
    };
    format!(
        "{} of {} lines of {which}{matching} ({} bytes in all):",
        page.lines.len(),
        page.total_lines,
        page.total_bytes
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_protocol::payload::OutputLine;
    use pvp_protocol::{ExtraFields, MessageId};

    fn read_request(change: impl FnOnce(&mut OutputRead)) -> OutputRead {
        let mut read = OutputRead {
            reference: MessageId::parse("p1").unwrap(),
            stream: None,
            offset: None,
            limit: None,
            head: None,
            tail: None,
            grep: None,
            extra: ExtraFields::new(),
        };
        change(&mut read);
        read
    }

    fn page(lines: &[(u64, OutputStream, &str)]) -> OutputPage {
        let line = |(number, stream, text): &(u64, OutputStream, &str)| OutputLine {
            number: *number,
            stream: *stream,
            text: (*text).to_owned(),
        };
        OutputPage {
            reference: MessageId::parse("p1").unwrap(),
            lines: lines.iter().map(line).collect(),
            total_lines: 90,
            total_bytes: 1234,
            next: None,
            finished: true,
            cut: false,
        }
    }

    #[test]
    fn wrong_combinations_are_refused_with_a_sentence() {
        let wrong = |change: fn(&mut OutputRead)| validate(&read_request(change)).unwrap_err();
        let both = wrong(|read| (read.head, read.tail) = (Some(1), Some(1)));
        assert_eq!(both, "Ask for `head` or for `tail`, not for both.");
        assert!(wrong(|read| (read.head, read.offset) = (Some(1), Some(1))).contains("do not go"));
        assert!(wrong(|read| (read.tail, read.limit) = (Some(1), Some(1))).contains("do not go"));
        assert_eq!(
            wrong(|read| read.limit = Some(0)),
            "`limit` must be at least 1."
        );
        assert!(wrong(|read| read.grep = Some(String::new())).contains("empty"));
        assert_eq!(
            validate(&read_request(|read| read.offset = Some(0))),
            Ok(())
        );
        assert_eq!(
            validate(&read_request(
                |read| (read.tail, read.grep) = (Some(5), Some("x".into()))
            )),
            Ok(())
        );
    }

    #[test]
    fn a_page_numbers_its_lines_as_offset_does() {
        let lines = [
            (7, OutputStream::Stdout, "fine"),
            (8, OutputStream::Stderr, "oops"),
        ];
        let read = read_request(|read| read.grep = Some("o".to_owned()));
        assert_eq!(
            render_page(&read, &page(&lines)),
            "2 of 90 lines of stdout and stderr that contain \"o\" (1234 bytes in all):\n\
             7 | fine\n8 err | oops"
        );
    }

    #[test]
    fn a_page_is_limited_and_says_what_is_missing() {
        let long = "x".repeat(7000);
        let lines: Vec<_> = (0..50)
            .map(|number| (number, OutputStream::Stdout, long.as_str()))
            .collect();
        let mut page = page(&lines);
        page.finished = false;
        let text = render_page(&read_request(|_| {}), &page);
        assert!(text.len() <= MAX_RESULT_BYTES);
        assert!(text.contains("(32 lines left out here)"));
        assert!(text.ends_with("still running; more may come."));
    }
}
