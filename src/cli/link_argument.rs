//! Takes a link from an argument, a file or standard input, and keeps it out of the list of
//! processes.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use pvp_client::Link;
use rustix::io::{FdFlags, fcntl_setfd};

/// Bytes of the longest link that is read.
const MAX_LINK_BYTES: u64 = 4096;

/// Begins an argument that stands for a link which an earlier self of this process has hidden: the
/// number of a pipe follows.
const HIDDEN_LINK: &str = "fd:";

/// Reads the link that an argument gives: the link itself, or `-` for standard input.
///
/// A link that holds a token does not stay in the list of processes: this process starts itself
/// again, with the link in a pipe. It does not go into the environment, which would show it for as
/// long as the process lives.
pub(super) fn from_argument(text: &str) -> anyhow::Result<Link> {
    if text == "-" {
        return from_stdin();
    }
    if let Some(number) = text.strip_prefix(HIDDEN_LINK) {
        return from_pipe(number);
    }
    let link = Link::parse(text)?;
    if link.token().is_some() {
        super::print_warning(
            "a link on the command line is seen by others on this machine and kept in the shell's history; \
             run `pvp login` and paste it, or use --link-file FILE, PVP_LINK or `-` for standard input",
        );
        let Err(problem) = restart_without(text);
        super::print_error(&problem.context("the link stays in the list of processes"));
    }
    Ok(link)
}

/// Reads a link from a file.
pub(super) fn from_file(path: &Path) -> anyhow::Result<Link> {
    let read = || {
        let mut text = String::new();
        let file = File::open(path)?;
        file.take(MAX_LINK_BYTES).read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    };
    let text = read().with_context(|| format!("reading {}", path.display()))?;
    Link::parse(&text).with_context(|| format!("{} does not hold a link", path.display()))
}

/// Reads a link from the first line of standard input.
pub(super) fn from_stdin() -> anyhow::Result<Link> {
    Link::parse(&first_line_of_stdin()?).context("standard input")
}

/// The first line of standard input, which is not empty.
pub(super) fn first_line_of_stdin() -> anyhow::Result<String> {
    let mut line = String::new();
    // The lock shares its buffer with later readers, who get the lines that follow.
    let read = std::io::stdin()
        .lock()
        .take(MAX_LINK_BYTES)
        .read_line(&mut line);
    read.context("reading the link from standard input")?;
    if line.trim().is_empty() {
        bail!("there is no link on standard input");
    }
    Ok(line)
}

/// Whether an argument stands for a link that an earlier self of this process has hidden.
pub(super) fn is_hidden(argument: &str) -> bool {
    argument.starts_with(HIDDEN_LINK)
}

fn from_pipe(number: &str) -> anyhow::Result<Link> {
    let number: u32 = number.parse().context("the number of a pipe")?;
    from_file(Path::new(&format!("/proc/self/fd/{number}")))
}

/// Starts this program again in this process, with the link in a pipe; returns only on failure.
fn restart_without(link: &str) -> anyhow::Result<Infallible> {
    let pipe = pipe_with(link)?;
    fcntl_setfd(&pipe, FdFlags::empty()).context("keeping the pipe open")?;
    let replacement = format!("{HIDDEN_LINK}{}", pipe.as_raw_fd());
    let mut arguments = std::env::args_os();
    let own_name = arguments.next().unwrap_or_else(|| "pvp".into());
    let program = std::env::current_exe().context("finding this program")?;
    let arguments = arguments.map(|argument| hide_in(&argument, link, &replacement));
    let error = Command::new(program).arg0(own_name).args(arguments).exec();
    Err(error).context("starting this program again")
}

/// The reading end of a pipe that holds the link and is closed for writing.
fn pipe_with(link: &str) -> anyhow::Result<PipeReader> {
    let (reader, mut writer) = std::io::pipe().context("making a pipe")?;
    let bytes = link.as_bytes();
    anyhow::ensure!(bytes.len() as u64 <= MAX_LINK_BYTES, "the link is too long");
    writer.write_all(bytes).context("writing to a pipe")?;
    Ok(reader)
}

/// The argument with the link replaced, if it is the link or ends with `=` and the link.
fn hide_in(argument: &OsStr, link: &str, replacement: &str) -> OsString {
    let before = argument.as_bytes().strip_suffix(link.as_bytes());
    match before {
        Some(before) if before.is_empty() || before.ends_with(b"=") => {
            OsString::from_vec([before, replacement.as_bytes()].concat())
        }
        Some(_) | None => argument.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_replaced_in_every_form_that_an_argument_has() {
        let hidden = |argument: &str| hide_in(OsStr::new(argument), "http://h/#token=t", "fd:3");
        assert_eq!(hidden("http://h/#token=t"), "fd:3");
        assert_eq!(hidden("--link=http://h/#token=t"), "--link=fd:3");
        assert_eq!(hidden("see http://h/#token=t"), "see http://h/#token=t");
        assert_eq!(hidden("--link"), "--link");
    }
}
