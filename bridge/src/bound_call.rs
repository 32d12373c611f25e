//! A client's call as it is proposed: in the words of this protocol, with the file that it changes
//! bound to what people are shown of it.

use pvp_agent::agent::{BoundClientCall, ClientFileCalls};
use pvp_client::user_directories::private_paths;
use pvp_protocol::payload::FileContent;
use pvp_protocol::{Action, JsonObject};

use crate::patched_files::PatchedFiles;
use crate::supervisor::CallRequest;
use crate::translation::{CallPlace, TranslatedCall, translate};

/// Why a call does not run although it was approved.
const FILE_CHANGED: &str = "the file has changed since it was approved; read it again";

/// Who makes a call, as the client says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallNames {
    /// The client's own id of its conversation.
    pub conversation: String,
    /// The client's own id of the call; the same call is decided once.
    pub call_id: String,
    /// The subagent that makes it; `None` if the agent itself does.
    pub subagent: Option<String>,
}

/// A call of a client, and what it changes as it was when the call was made.
pub struct BoundCall {
    /// What the client would run; empty if it cannot be given an edit.
    input: JsonObject,
    /// Where the client works.
    place: CallPlace,
    /// The call in the words of this protocol.
    call: TranslatedCall,
    /// Binds files.
    file_calls: ClientFileCalls,
    /// The file of a write or an edit.
    bound: Option<BoundClientCall>,
    /// The files of a patch.
    patched: PatchedFiles,
}

impl BoundCall {
    pub fn new(tool: &str, input: &JsonObject, place: CallPlace) -> Self {
        let call = translate(tool, input, &place);
        let bound = Self::of(call, place);
        Self {
            input: input.clone(),
            ..bound
        }
    }

    /// Of a call in the words of this protocol, which cannot be given back to the client edited.
    pub(crate) fn of(call: TranslatedCall, place: CallPlace) -> Self {
        let file_calls = ClientFileCalls::new(&place.workspace, private_paths());
        let bound = file_calls.bind(&call.tool_name, &call.arguments);
        let patched = PatchedFiles::find(&call.arguments, &place.workspace);
        Self {
            input: JsonObject::new(),
            place,
            call,
            file_calls,
            bound,
            patched,
        }
    }

    /// The call in the words of this protocol, with the files that it binds.
    pub fn proposed(&self) -> TranslatedCall {
        let mut call = self.call.clone();
        if let Some(bound) = &self.bound {
            call.arguments = bound.arguments.clone();
        }
        call
    }

    /// What people are shown of the file that it changes.
    pub fn file_contents(&self) -> Vec<FileContent> {
        let bound = self.bound.as_ref();
        bound
            .map(|bound| bound.contents.clone())
            .unwrap_or_default()
    }

    /// The call for a [`Supervisor`](crate::supervisor::Supervisor).
    pub fn request(&self, names: CallNames) -> CallRequest {
        CallRequest {
            conversation: names.conversation,
            call_id: names.call_id,
            subagent: names.subagent,
            call: self.proposed(),
            file_contents: self.file_contents(),
            must_ask: false,
        }
    }

    /// The input that the client must run if people edited the call, `None` if they did not. The
    /// error says why nothing may run: the client cannot do what was granted, or the file is no
    /// longer what people saw.
    pub fn granted_input(&self, granted: &JsonObject) -> Result<Option<JsonObject>, String> {
        let proposed = self.proposed();
        let action = |arguments| Action::from_arguments(&proposed.tool_name, arguments);
        let is_same = action(granted).map_err(|error| error.to_string())
            == action(&proposed.arguments).map_err(|error| error.to_string());
        let edited = match is_same {
            true => None,
            false => {
                let edited = self.call.edited_input(&self.input, granted, &self.place);
                Some(edited.map_err(|error| error.to_string())?)
            }
        };
        self.check_granted_file(granted)?;
        self.check_unchanged()?;
        Ok(edited)
    }

    /// Checks that the file is what it was when people were asked, who may have been asked by an
    /// earlier process about the same call.
    fn check_granted_file(&self, granted: &JsonObject) -> Result<(), String> {
        if !granted.contains_key("files") {
            return Ok(());
        }
        let proposed = self.proposed();
        // An edit that names another file binds nothing about that one.
        let is_same = granted.get("path") == proposed.arguments.get("path");
        // Fields that may be left out are the same whether or not they are there.
        let bound = |arguments| Action::from_tool_call(&proposed.tool_name, arguments).files;
        match is_same && bound(granted) != bound(&proposed.arguments) {
            true => Err(FILE_CHANGED.to_owned()),
            false => Ok(()),
        }
    }

    /// Checks that what the call changes is still as it was when people looked.
    pub(crate) fn check_unchanged(&self) -> Result<(), String> {
        self.patched.check_unchanged()?;
        let Some(bound) = &self.bound else {
            return Ok(());
        };
        let now = self
            .file_calls
            .bind(&self.call.tool_name, &self.call.arguments);
        let files = |call: &BoundClientCall| call.arguments.get("files").cloned();
        match now.as_ref().map(files) == Some(files(bound)) {
            true => Ok(()),
            false => Err(FILE_CHANGED.to_owned()),
        }
    }
}
