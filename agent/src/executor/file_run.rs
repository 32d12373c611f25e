//! Carries out a granted call of a file tool, in this process: nothing is executed.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pvp_client::narrate;
use pvp_protocol::payload::{ClearedBy, GrantTerms};
use pvp_protocol::{BoundFile, Command, FileTool, SandboxProfile};

use super::ExecutorSettings;
use crate::binding_key::BindingKey;
use crate::grant_check::AcceptedGrant;
use crate::run::OwnOutput;
use crate::text_edit::TextEdit;
use crate::unasked_reads::{FoundFile, UnaskedReads};
use crate::workspace_files::{FileChange, OpenProblem, PresentFile, WorkspaceFiles};

/// Bytes of the output that are left for a sentence about what is not shown.
const NOTE_BYTES: u64 = 2048;

/// Bytes by which text is told from other content.
const SNIFFED_BYTES: usize = 8 * 1024;

/// When a call that is under way ends early.
#[derive(Clone, Copy)]
pub(super) struct StopSignal<'a> {
    /// Set when somebody asks for a stop.
    pub(super) requested: &'a AtomicBool,
    /// When its time is over; `None` for no limit.
    pub(super) deadline: Option<Instant>,
}

impl StopSignal<'_> {
    fn check(&self) -> Result<(), String> {
        if self.requested.load(Ordering::Relaxed) {
            return Err("it was stopped".to_owned());
        }
        match self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            true => Err("stopped at its time limit".to_owned()),
            false => Ok(()),
        }
    }
}

/// Carries out a call. An error says why nothing was done; a call that was made and failed, such as
/// reading a file that is not there, has an exit code of 1.
pub(super) fn run(
    grant: &GrantTerms,
    accepted: AcceptedGrant,
    settings: &ExecutorSettings,
    stop_signal: StopSignal<'_>,
) -> Result<OwnOutput, String> {
    let file_tool = granted_tool(grant, accepted, settings)?;
    let files = WorkspaceFiles::open(&settings.workspace)?;
    let file_run = FileRun {
        grant,
        settings,
        stop_signal,
        files: &files,
        unasked_reads: UnaskedReads::new(settings),
    };
    match &file_tool {
        FileTool::Read {
            path,
            offset,
            limit,
        } => file_run.read(path, offset.unwrap_or(0), limit.unwrap_or(u64::MAX)),
        FileTool::Write { path, content } => {
            let change = file_run.begin_bound_change(path)?;
            file_run.write(path, change, content)
        }
        FileTool::Edit {
            path,
            old_text,
            new_text,
            replace_all,
        } => {
            let edit = TextEdit {
                path,
                old_text,
                new_text,
                replace_all: *replace_all,
            };
            let change = file_run.begin_bound_change(path)?;
            file_run.edit(change, edit)
        }
    }
}

/// The call that is granted, if it is one that this executor makes.
fn granted_tool(
    grant: &GrantTerms,
    accepted: AcceptedGrant,
    settings: &ExecutorSettings,
) -> Result<FileTool, String> {
    let name = match &grant.action.command {
        Command::Tool { name, .. } => name,
        Command::Shell { .. } | Command::Argv { .. } | Command::LoginShell { .. } => {
            return Err("it is not a call of a tool".to_owned());
        }
    };
    let Some(file_tool) = FileTool::from_action(&grant.action) else {
        return Err(match FileTool::is_name(name) {
            true => format!("its arguments are not exactly those of `{name}`"),
            false => format!("this executor has no tool `{name}`"),
        });
    };
    if let Some(why) = unavailable_with(&settings.runner) {
        return Err(why);
    }
    match (&file_tool, accepted.profile) {
        (FileTool::Read { .. }, _) | (_, SandboxProfile::None | SandboxProfile::Workspace) => {
            Ok(file_tool)
        }
        (_, SandboxProfile::Read | SandboxProfile::ReadNet) => {
            Err("its sandbox lets it only read".to_owned())
        }
    }
}

/// Why there are no file tools behind a runner, which may see other files than this process.
pub(crate) fn unavailable_with(runner: &[String]) -> Option<String> {
    let program = runner.first()?;
    Some(format!(
        "there are no file tools here, because approved commands run behind `{program}`, which may \
         see other files; use a shell command"
    ))
}

struct FileRun<'a> {
    /// What was granted.
    grant: &'a GrantTerms,
    /// How this executor runs things.
    settings: &'a ExecutorSettings,
    /// When to end early.
    stop_signal: StopSignal<'a>,
    /// The workspace.
    files: &'a WorkspaceFiles,
    /// What is not read without a vote, or not at all.
    unasked_reads: UnaskedReads<'a>,
}

impl FileRun<'_> {
    fn read(&self, path: &str, offset: u64, limit: u64) -> Result<OwnOutput, String> {
        let opened = match self.files.open_to_read(path) {
            Ok(opened) => opened,
            Err(problem @ OpenProblem::Missing(_)) => return Ok(failed(problem.to_string())),
            Err(OpenProblem::Unfit(why)) => return Ok(failed(why)),
        };
        let found = self.found(&opened.real_path, opened.metadata.nlink());
        self.check_may_be_read(path, found)?;
        let bytes = opened.metadata.len();
        let max_bytes = self
            .grant
            .executor_limits()
            .output_bytes
            .saturating_sub(NOTE_BYTES);
        let request = LineRequest {
            offset,
            limit,
            max_bytes,
        };
        // A read need not be bound. If it is, what was bound is what is read.
        let lines = match self.binding(path) {
            None => request.read_from(BufReader::new(opened.file), self.stop_signal)?,
            Some(bound) => {
                let change = self.files.begin_change(path)?;
                check_binding(path, bound, &change, &self.settings.binding_key)?;
                let content = change.present.map(|it| it.content).unwrap_or_default();
                request.read_from(content.as_slice(), self.stop_signal)?
            }
        };
        Ok(lines.into_output(path, bytes, offset))
    }

    /// Refuses what may hold secrets, by the place where the file really is. A file that people were
    /// shown by its own name, and let it be read, is read.
    fn check_may_be_read(&self, path: &str, found: FoundFile<'_>) -> Result<(), String> {
        let is_approved = match self.grant.cleared_by {
            ClearedBy::Quorum => found.real_path == Path::new(path),
            ClearedBy::Read
            | ClearedBy::Clock
            | ClearedBy::AllowRule
            | ClearedBy::Direct
            | ClearedBy::Tried => false,
        };
        if is_approved {
            let real_path = found.workspace.join(found.real_path);
            return self.unasked_reads.check_not_private(path, &real_path);
        }
        self.unasked_reads.check(path, found)
    }

    fn is_bound_by_key(&self, path: &str, present: &PresentFile) -> bool {
        let found = self.found(&present.real_path, present.names);
        self.unasked_reads.check(path, found).is_err()
    }

    fn found<'f>(&'f self, real_path: &'f Path, names: u64) -> FoundFile<'f> {
        FoundFile {
            workspace: self.files.real_path(),
            real_path,
            names,
        }
    }

    /// What the grant says about the present content of a file.
    fn binding(&self, path: &str) -> Option<&BoundFile> {
        self.grant
            .action
            .files
            .iter()
            .find(|file| file.path == path)
    }

    /// Begins to change a file that is exactly as it was when people approved the change.
    fn begin_bound_change(&self, path: &str) -> Result<FileChange<'_>, String> {
        let change = self.files.begin_change(path)?;
        let unasked_reads = &self.unasked_reads;
        unasked_reads.check_not_private(path, &change.real_path())?;
        let (Some(bound), 1) = (self.binding(path), self.grant.action.files.len()) else {
            return Err(format!(
                "`files` does not say what `{path}` contained, and nothing else, when it was proposed"
            ));
        };
        let checked = check_binding(path, bound, &change, &self.settings.binding_key);
        checked.map_err(|why| match &change.present {
            Some(present) if self.is_bound_by_key(path, present) => {
                format!("{why}, or the executor restarted since; propose it again")
            }
            Some(_) | None => why,
        })?;
        self.stop_signal.check()?;
        Ok(change)
    }

    fn write(
        &self,
        path: &str,
        change: FileChange<'_>,
        content: &str,
    ) -> Result<OwnOutput, String> {
        let done = match change.present {
            Some(_) => "replaced",
            None => "created",
        };
        change.commit(content.as_bytes())?;
        let bytes = narrate::pluralize(content.len() as u64, "byte");
        let lines = narrate::pluralize(content.lines().count() as u64, "line");
        Ok(succeeded(format!("{done} {path}: {bytes}, {lines}\n")))
    }

    fn edit(&self, change: FileChange<'_>, edit: TextEdit<'_>) -> Result<OwnOutput, String> {
        let path = edit.path;
        let Some(present) = &change.present else {
            return Ok(failed(format!("there is no file `{path}`")));
        };
        // Whether the text occurs in a secret file is told only after a vote.
        self.check_may_be_read(path, self.found(&present.real_path, present.names))?;
        let (content, count) = match edit.apply(&present.content) {
            Ok(edited) => edited,
            Err(why) => return Ok(failed(why)),
        };
        change.commit(content.as_bytes())?;
        let places = narrate::pluralize(count as u64, "place");
        Ok(succeeded(format!("edited {path} in {places}\n")))
    }
}

fn check_binding(
    path: &str,
    bound: &BoundFile,
    change: &FileChange<'_>,
    key: &BindingKey,
) -> Result<(), String> {
    let changed = |how: &str| Err(format!("`{path}` changed since it was approved{how}"));
    match (&change.present, bound.sha256) {
        (Some(present), Some(digest)) if present.digest == digest => Ok(()),
        (Some(present), Some(digest)) if key.bind(path, &present.content) == digest => Ok(()),
        (None, None) => Ok(()),
        (Some(_), Some(_)) => changed(""),
        (Some(_), None) => changed(": there was no such file"),
        (None, Some(_)) => changed(": it does not exist any more"),
    }
}

fn failed(why: String) -> OwnOutput {
    OwnOutput {
        exit_code: 1,
        stdout: Vec::new(),
        stderr: why + "\n",
    }
}

fn succeeded(summary: String) -> OwnOutput {
    OwnOutput {
        exit_code: 0,
        stdout: summary.into_bytes(),
        stderr: String::new(),
    }
}

/// Which lines of a file are wanted.
struct LineRequest {
    /// The first, counted from 0.
    offset: u64,
    limit: u64,
    /// The most bytes of them.
    max_bytes: u64,
}

/// The lines that were read.
#[derive(Debug, PartialEq, Eq)]
struct ReadLines {
    bytes: Vec<u8>,
    /// How many lines there are in `bytes`.
    lines: u64,
    /// How many lines come before them.
    skipped: u64,
    /// Whether the file goes on behind them.
    more: bool,
    /// Whether the beginning of the file looks like anything but text.
    binary: bool,
}

impl LineRequest {
    /// Reads through the file a buffer at a time, so that its size does not matter.
    fn read_from(
        &self,
        mut file: impl BufRead,
        stop_signal: StopSignal<'_>,
    ) -> Result<ReadLines, String> {
        let mut read = ReadLines {
            bytes: Vec::new(),
            lines: 0,
            skipped: 0,
            more: false,
            binary: false,
        };
        let mut is_beginning = true;
        loop {
            stop_signal.check()?;
            let buffer = match file.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(format!("it cannot be read: {error}")),
            };
            if buffer.is_empty() {
                break;
            }
            if std::mem::take(&mut is_beginning) {
                read.binary = buffer.iter().take(SNIFFED_BYTES).any(|byte| *byte == 0);
            }
            let consumed = buffer.len();
            let goes_on = self.take(buffer, &mut read);
            file.consume(consumed);
            if !goes_on || read.binary {
                break;
            }
        }
        Ok(read)
    }

    /// Takes what is wanted of the next bytes; returns whether more may be wanted.
    fn take(&self, buffer: &[u8], read: &mut ReadLines) -> bool {
        for piece in buffer.split_inclusive(|byte| *byte == b'\n') {
            let ends = piece.ends_with(b"\n");
            if read.skipped < self.offset {
                read.skipped += u64::from(ends);
                continue;
            }
            let room = self.max_bytes.saturating_sub(read.bytes.len() as u64);
            if read.lines >= self.limit || room == 0 {
                read.more = true;
                return false;
            }
            let fits = piece.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            read.bytes.extend_from_slice(&piece[..fits]);
            if fits < piece.len() {
                read.more = true;
                return false;
            }
            read.lines += u64::from(ends);
        }
        true
    }
}

impl ReadLines {
    fn into_output(mut self, path: &str, file_bytes: u64, offset: u64) -> OwnOutput {
        if self.binary || self.bytes.contains(&0) {
            return failed(format!(
                "`{path}` is a binary file of {file_bytes} bytes, which is not shown"
            ));
        }
        if self.bytes.is_empty() && offset > 0 && !self.more {
            return failed(format!(
                "`{path}` has only {}, so nothing begins at line {offset}",
                narrate::pluralize(self.skipped, "line")
            ));
        }
        let mut notes = String::new();
        match std::str::from_utf8(&self.bytes) {
            Ok(_) => {}
            // The limit cut through a character.
            Err(error) if error.error_len().is_none() && self.more => {
                self.bytes.truncate(error.valid_up_to());
            }
            Err(_) => notes.push_str("some bytes are not UTF-8 and are shown as \u{fffd}\n"),
        }
        let next = offset.saturating_add(self.lines);
        if self.more && self.lines > 0 {
            notes.push_str(&format!(
                "`{path}` goes on; read the next lines with offset {next}\n"
            ));
        } else if self.more {
            notes.push_str(&format!(
                "line {next} of `{path}` is too long to be shown whole\n"
            ));
        }
        OwnOutput {
            exit_code: 0,
            stdout: self.bytes,
            stderr: notes,
        }
    }
}

#[cfg(test)]
mod tests;
