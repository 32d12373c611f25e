//! Prepares a call of a file tool for people to decide on: the file as it is, and what it becomes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pvp_policy::{Policy, Workspace};
use pvp_protocol::payload::FileContent;
use pvp_protocol::{Action, BoundFile, Category, Digest, FileTool, JsonObject, Risk};
use serde::Serialize;

use crate::bound_files::ShownFiles;
use crate::executor::{ExecutorSettings, file_tools_unavailable_with};
use crate::text_edit::TextEdit;
use crate::unasked_reads::{FoundFile, UnaskedReads};
use crate::workspace_files::{PresentFile, WorkspaceFiles, check_plain};

/// Bytes of a proposal as JSON; a server takes messages of 1 MiB, and adds its assessment.
const MAX_PROPOSAL_BYTES: usize = 1024 * 1024 - 64 * 1024;

/// Bytes of the content that is replaced, as people are shown it; the server takes 64 KiB.
const MAX_SHOWN_BYTES: usize = 64 * 1024;

/// Prepares calls of file tools.
pub(super) struct FileProposals {
    pub(super) policy: Arc<Policy>,
    pub(super) workspace: Workspace,
    pub(super) settings: ExecutorSettings,
}

/// What is sent with a proposal.
#[derive(Debug)]
pub(super) struct PreparedCall {
    pub(super) arguments: JsonObject,
    pub(super) shown_files: ShownFiles,
    /// The agent's own estimate.
    pub(super) risk: Risk,
}

impl FileProposals {
    /// Binds the file that a call changes as it is now. The error is a sentence for whoever calls.
    pub(super) fn prepare(&self, file_tool: &FileTool) -> Result<PreparedCall, String> {
        if let Some(why) = file_tools_unavailable_with(&self.settings.runner) {
            return Err(why);
        }
        let path = self.plain_path(file_tool.path())?;
        let file_tool = with_path(file_tool, path);
        let mut arguments = file_tool.arguments();
        // Before the file is opened, so that an error about the size tells nothing about the file.
        check_size(&arguments)?;
        let mut shown_files = ShownFiles::default();
        if let Some((bound, content)) = self.bind(&file_tool)? {
            let files = serde_json::to_value([bound]).unwrap_or_default();
            arguments.insert("files".to_owned(), files);
            shown_files.contents.extend(content);
        }
        let contents = json_bytes(&shown_files.contents);
        if json_bytes(&arguments).saturating_add(contents) > MAX_PROPOSAL_BYTES {
            shown_files.contents.clear();
        }
        let action = Action::from_tool_call(file_tool.name(), &arguments);
        let assessment = self.policy.assess(&action, &self.workspace);
        Ok(PreparedCall {
            arguments,
            shown_files,
            risk: assessment.risk,
        })
    }

    /// The path from the workspace, as it is proposed.
    fn plain_path(&self, path: &str) -> Result<String, String> {
        let inside = Path::new(path).strip_prefix(&self.settings.workspace);
        let path = match inside.ok().and_then(Path::to_str) {
            Some(relative) => relative,
            None => path.strip_prefix("./").unwrap_or(path),
        };
        let advice = "file tools work only below the current directory";
        check_plain(path).map_err(|why| format!("{why}; {advice}"))?;
        Ok(path.to_owned())
    }

    /// The file that is changed as it is now, with the content that people are shown beside it.
    fn bind(
        &self,
        file_tool: &FileTool,
    ) -> Result<Option<(BoundFile, Option<FileContent>)>, String> {
        let path = file_tool.path();
        let edit = match file_tool {
            FileTool::Read { .. } => return Ok(None),
            FileTool::Write { .. } => None,
            FileTool::Edit {
                old_text,
                new_text,
                replace_all,
                ..
            } => Some(TextEdit {
                path,
                old_text,
                new_text,
                replace_all: *replace_all,
            }),
        };
        let files = WorkspaceFiles::open(&self.settings.workspace)?;
        let unasked_reads = UnaskedReads::new(&self.settings);
        // It could not be changed with a vote either.
        unasked_reads.check_not_private(path, &files.real_path().join(path))?;
        let change = files.begin_change(path)?;
        let Some(present) = &change.present else {
            return match edit {
                Some(_) => Err(format!(
                    "there is no file `{path}`; create it with file_write"
                )),
                None => Ok(Some((bound_file(path, None, 0), None))),
            };
        };
        let found = FoundFile {
            workspace: files.real_path(),
            real_path: &present.real_path,
            names: present.names,
        };
        unasked_reads.check_not_private(path, &found.workspace.join(found.real_path))?;
        let may_read = self.is_read(path) && unasked_reads.check(path, found).is_ok();
        let bytes = present.content.len() as u64;
        if !may_read {
            // Whether the edit fits would tell what the file contains. The executor finds out after
            // the vote.
            let digest = self.settings.binding_key.bind(path, &present.content);
            return Ok(Some((bound_file(path, Some(digest), bytes), None)));
        }
        if let Some(edit) = edit {
            edit.apply(&present.content)?;
        }
        let bound = bound_file(path, Some(present.digest), bytes);
        Ok(Some((bound, shown_content(path, present))))
    }

    /// Whether the policy lets this path be read without a vote.
    fn is_read(&self, path: &str) -> bool {
        let read = FileTool::Read {
            path: path.to_owned(),
            offset: None,
            limit: None,
        };
        let read = Action::from_tool_call(read.name(), &read.arguments());
        self.policy.assess(&read, &self.workspace).category == Category::Read
    }
}

/// Binds the files that the calls of an agent client change, so that people see what is replaced,
/// and so that what they decided on is what is there when the call runs.
pub struct ClientFileCalls(FileProposals);

/// A call of a client with the file that it changes.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundClientCall {
    /// The arguments, with the file as it is now.
    pub arguments: JsonObject,
    /// The content that is replaced, as people are shown it.
    pub contents: Vec<FileContent>,
}

impl ClientFileCalls {
    /// For a client that works in this directory, which is an absolute path without links.
    pub fn new(workspace: &Path, private_paths: Vec<PathBuf>) -> Self {
        let mut settings = ExecutorSettings::new(workspace.to_owned(), PathBuf::new());
        settings.private_paths = private_paths;
        Self(FileProposals {
            policy: Arc::new(Policy::built_in()),
            workspace: Workspace {
                directory: workspace.to_str().map(str::to_owned),
                ..Workspace::default()
            },
            settings,
        })
    }

    /// The call with the file that it changes; `None` if it changes none that can be bound.
    pub fn bind(&self, tool_name: &str, arguments: &JsonObject) -> Option<BoundClientCall> {
        let action = Action::from_tool_call(tool_name, arguments);
        let file_tool = FileTool::from_action(&action)?;
        if matches!(file_tool, FileTool::Read { .. }) {
            return None;
        }
        let prepared = self.0.prepare(&file_tool).ok()?;
        Some(BoundClientCall {
            arguments: prepared.arguments,
            contents: prepared.shown_files.contents,
        })
    }

    /// Writes a file for a client whose call was allowed: if it is the file of the call, the file is
    /// as it was bound, and the content is what the call makes of it. If the client has written that
    /// content itself, nothing is left to do.
    pub fn carry_out(
        &self,
        tool_name: &str,
        bound: &BoundClientCall,
        path: &Path,
        content: &str,
    ) -> Result<(), String> {
        let mut arguments = bound.arguments.clone();
        arguments.remove("files");
        let now = self.bind(tool_name, &arguments);
        let action = Action::from_tool_call(tool_name, &arguments);
        let file_tool = FileTool::from_action(&action).ok_or("it is no call of a file tool")?;
        let workspace = &self.0.settings.workspace;
        if workspace.join(file_tool.path()) != workspace.join(path) {
            return Err("it is another file".to_owned());
        }
        let path = file_tool.path();
        let workspace_files = WorkspaceFiles::open(&self.0.settings.workspace)?;
        let change = workspace_files.begin_change(path)?;
        let present = change.present.as_ref().map(|it| it.content.as_slice());
        if let FileTool::Write {
            content: approved, ..
        } = &file_tool
            && approved == content
            && present == Some(content.as_bytes())
        {
            return Ok(());
        }
        let files = |call: &BoundClientCall| call.arguments.get("files").cloned();
        if now.as_ref().map(files) != Some(files(bound)) {
            return Err("the file has changed since it was approved".to_owned());
        }
        let is_approved = match &file_tool {
            FileTool::Read { .. } => false,
            FileTool::Write {
                content: approved, ..
            } => approved == content,
            FileTool::Edit {
                old_text,
                new_text,
                replace_all,
                ..
            } => {
                let edit = TextEdit {
                    path,
                    old_text,
                    new_text,
                    replace_all: *replace_all,
                };
                edit.apply(present.unwrap_or_default())?.0 == content
            }
        };
        match is_approved {
            true => change.commit(content.as_bytes()),
            false => Err("the content is not what was approved".to_owned()),
        }
    }
}

fn bound_file(path: &str, sha256: Option<Digest>, bytes: u64) -> BoundFile {
    BoundFile {
        path: path.to_owned(),
        sha256,
        bytes,
    }
}

/// The present content, if it is short text.
fn shown_content(path: &str, present: &PresentFile) -> Option<FileContent> {
    let text = std::str::from_utf8(&present.content).ok()?;
    let fits = text.len() <= MAX_SHOWN_BYTES && !text.contains('\0');
    fits.then(|| FileContent {
        path: path.to_owned(),
        text: text.to_owned(),
    })
}

/// Refuses what no server takes.
fn check_size(arguments: &JsonObject) -> Result<(), String> {
    let bytes = json_bytes(arguments);
    match bytes > MAX_PROPOSAL_BYTES {
        true => Err(format!(
            "the call has {bytes} bytes as JSON, and a proposal has at most {MAX_PROPOSAL_BYTES}: \
             write a part of the file first, and add the rest in later steps"
        )),
        false => Ok(()),
    }
}

fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

fn with_path(file_tool: &FileTool, path: String) -> FileTool {
    let mut file_tool = file_tool.clone();
    match &mut file_tool {
        FileTool::Read { path: named, .. }
        | FileTool::Write { path: named, .. }
        | FileTool::Edit { path: named, .. } => *named = path,
    }
    file_tool
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    struct FileProposalFixture {
        _directory: tempfile::TempDir,
        proposals: FileProposals,
    }

    impl FileProposalFixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let workspace = directory.path().canonicalize().unwrap();
            let settings = ExecutorSettings::new(workspace.clone(), workspace.join(".state"));
            let proposals = FileProposals {
                policy: Arc::new(Policy::built_in()),
                workspace: Workspace {
                    directory: workspace.to_str().map(str::to_owned),
                    ..Workspace::default()
                },
                settings,
            };
            Self {
                _directory: directory,
                proposals,
            }
        }

        fn put(&self, path: &str, content: &[u8]) {
            std::fs::write(self.proposals.settings.workspace.join(path), content).unwrap();
        }

        fn prepare(&self, name: &str, arguments: Value) -> Result<PreparedCall, String> {
            let action = Action::from_tool_call(name, arguments.as_object().unwrap());
            self.proposals
                .prepare(&FileTool::from_action(&action).unwrap())
        }

        fn write(&self, path: &str, content: &str) -> Result<PreparedCall, String> {
            self.prepare("file_write", json!({ "path": path, "content": content }))
        }
    }

    #[test]
    fn the_present_content_is_bound_and_shown() {
        let fixture = FileProposalFixture::new();
        fixture.put("a", b"old\n");
        let prepared = fixture.write("./a", "new\n").unwrap();
        let digest = Digest::of_content(b"old\n");
        let expected = json!({
            "path": "a", "content": "new\n",
            "files": [{ "path": "a", "sha256": digest, "bytes": 4 }],
        });
        assert_eq!(Value::Object(prepared.arguments), expected);
        assert_eq!(prepared.shown_files.contents[0].text, "old\n");
        assert_eq!(prepared.risk, Risk::Low);
        // By its whole path, and where there is no file yet.
        let whole = fixture.proposals.settings.workspace.join("sub/b");
        let prepared = fixture.write(whole.to_str().unwrap(), "new\n").unwrap();
        let files = json!([{ "path": "sub/b", "bytes": 0 }]);
        assert_eq!(prepared.arguments["files"], files);
        assert_eq!(prepared.arguments["path"], "sub/b");
    }

    #[test]
    fn secrets_binaries_and_long_texts_are_bound_and_not_shown() {
        let fixture = FileProposalFixture::new();
        let long = "x".repeat(MAX_SHOWN_BYTES + 1);
        for (path, content) in [
            (".env", b"KEY=1".as_slice()),
            ("binary", b"\xff"),
            ("nul", b"a\0"),
            ("long", long.as_bytes()),
        ] {
            fixture.put(path, content);
            let prepared = fixture.write(path, "new").unwrap();
            assert_eq!(prepared.shown_files.contents, [], "{path}");
            let files = &prepared.arguments["files"];
            assert_eq!(files[0]["bytes"], content.len());
        }
        assert_eq!(fixture.write(".env", "x").unwrap().risk, Risk::High);
    }

    #[test]
    fn an_edit_that_is_not_clear_fails_before_it_is_proposed() {
        let fixture = FileProposalFixture::new();
        fixture.put("a", b"x x");
        let edit = |old: &str, all: bool| {
            let arguments =
                json!({ "path": "a", "old_text": old, "new_text": "y", "replace_all": all });
            fixture.prepare("file_edit", arguments).map(|_| ())
        };
        assert!(edit("x", false).unwrap_err().contains("occurs 2 times"));
        assert!(edit("z", true).unwrap_err().contains("does not occur"));
        assert_eq!(edit("x", true), Ok(()));
        assert_eq!(edit("x x", false), Ok(()));
        let missing = json!({ "path": "b", "old_text": "x", "new_text": "y" });
        let why = fixture.prepare("file_edit", missing).unwrap_err();
        assert_eq!(why, "there is no file `b`; create it with file_write");
    }

    #[test]
    fn what_cannot_be_proposed_says_why() {
        let mut fixture = FileProposalFixture::new();
        for path in ["../a", "/etc/hosts", "a/../b", "~/a", ""] {
            let why = fixture.write(path, "x").unwrap_err();
            assert!(
                why.ends_with("file tools work only below the current directory"),
                "{why}"
            );
            assert!(
                fixture
                    .prepare("file_read", json!({ "path": path }))
                    .is_err()
            );
        }
        // Each of these characters takes two bytes as JSON.
        let why = fixture.write("a", &"\n".repeat(600_000)).unwrap_err();
        assert!(why.contains("write a part of the file first"), "{why}");
        fixture.put("a", "\n".repeat(MAX_SHOWN_BYTES).as_bytes());
        let nearly = fixture
            .write("a", &"x".repeat(MAX_PROPOSAL_BYTES - 10_000))
            .unwrap();
        assert_eq!(nearly.shown_files.contents, []);
        fixture.proposals.settings.runner = vec!["podman".to_owned()];
        assert!(
            fixture
                .write("a", "x")
                .unwrap_err()
                .contains("no file tools")
        );
    }

    #[test]
    fn guessing_at_a_secret_file_by_edits_tells_nothing_before_the_vote() {
        let fixture = FileProposalFixture::new();
        fixture.put(".env", b"API_KEY=s3cr3t\n");
        let root = &fixture.proposals.settings.workspace;
        fixture.put("other.txt", b"API_KEY=s3cr3t\n");
        std::fs::hard_link(root.join("other.txt"), root.join("linked.txt")).unwrap();
        let huge = "x".repeat(MAX_PROPOSAL_BYTES + 1);
        for path in [".env", "linked.txt"] {
            let edit = |old: &str, new: &str| {
                let arguments = json!({ "path": path, "old_text": old, "new_text": new });
                fixture.prepare("file_edit", arguments)
            };
            let [right, wrong] = ["API_KEY=s", "API_KEY=t"];
            assert_eq!(
                edit(right, &huge).unwrap_err(),
                edit(wrong, &huge).unwrap_err()
            );
            let [right, wrong] = [right, wrong].map(|old| edit(old, "x").unwrap());
            assert_eq!(right.arguments["files"], wrong.arguments["files"]);
            assert_eq!(right.shown_files, ShownFiles::default());
            assert_eq!(wrong.shown_files, ShownFiles::default());
        }
    }

    #[test]
    fn the_hash_of_a_secret_file_is_not_told() {
        let fixture = FileProposalFixture::new();
        fixture.put(".env", b"PIN=1234");
        fixture.put(".env.local", b"PIN=1234");
        let sha256 = |path: &str| {
            let prepared = fixture.write(path, "x").unwrap();
            prepared.arguments["files"][0]["sha256"].clone()
        };
        assert_ne!(sha256(".env"), json!(Digest::of_content(b"PIN=1234")));
        assert_ne!(sha256(".env"), sha256(".env.local"));
        assert_eq!(sha256(".env"), sha256(".env"));
    }

    #[test]
    fn private_files_are_not_proposed_and_files_with_other_names_not_shown() {
        let fixture = FileProposalFixture::new();
        let root = &fixture.proposals.settings.workspace;
        for directory in [".state", "srv"] {
            std::fs::create_dir(root.join(directory)).unwrap();
        }
        fixture.put("srv/pvp.sqlite3", b"x");
        fixture.put(".state/journal", b"private journal\n");
        fixture.put("srv/notes", b"private data\n");
        for path in [".state/journal", "srv/notes", ".state/missing"] {
            let why = fixture.write(path, "x").unwrap_err();
            assert!(why.contains("belongs to PVP"), "{why}");
        }
        fixture.put(".env", b"API_KEY=s3cr3t\n");
        std::fs::hard_link(root.join(".env"), root.join("notes.txt")).unwrap();
        let journal = root.join(".state/journal");
        std::fs::hard_link(journal, root.join("journal.txt")).unwrap();
        for path in ["notes.txt", "journal.txt"] {
            let prepared = fixture.write(path, "x").unwrap();
            assert_eq!(prepared.shown_files, ShownFiles::default(), "{path}");
        }
        // The name of a secret that leads to an ordinary file makes that a secret too.
        fixture.put("plain.txt", b"text");
        assert_eq!(
            fixture
                .write("plain.txt", "x")
                .unwrap()
                .shown_files
                .contents
                .len(),
            1
        );
        std::os::unix::fs::symlink("plain.txt", root.join("secrets.yaml")).unwrap();
        let prepared = fixture.write("plain.txt", "x").unwrap();
        assert_eq!(prepared.shown_files, ShownFiles::default());
    }
}
