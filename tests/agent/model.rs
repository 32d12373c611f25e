//! Agents that ask a model: what it is told, what it does with its tools, and what everyone sees.

use serde_json::{Value, json};

use crate::kit::model::Model;
use crate::kit::worker::Worker;
use crate::kit::{Client, Server};
use crate::{approve, gate, reject, result, room};

struct Scene {
    /// Stopped when the scene is over.
    _server: Server,
    ann: Client,
    model: Model,
    worker: Worker,
}

impl Scene {
    async fn set(config: Value, more: &[&str]) -> Self {
        let (server, ann) = room(config).await;
        let model = Model::listen().await;
        let flags = model.flags();
        let flags: Vec<_> = flags
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied())
            .collect();
        let worker = Worker::start(&server, "owl", &flags).await;
        Self {
            _server: server,
            ann,
            model,
            worker,
        }
    }

    async fn plain() -> Self {
        Self::set(json!({}), &[]).await
    }

    async fn prompt(&mut self, text: &str) -> String {
        self.prompt_with(text, json!({})).await
    }

    async fn prompt_with(&mut self, text: &str, more: Value) -> String {
        let mut prompt = json!({
            "content": text, "target_agent": self.worker.who.participant,
            "contributors": [self.ann.participant], "context_keys": [],
        });
        for (key, value) in more.as_object().unwrap() {
            prompt[key] = value.clone();
        }
        let id = self.ann.send("prompt.submit", prompt).await;
        self.ann.acked(&id).await;
        id
    }

    /// Waits for the end of an answer; gives its payload.
    async fn answered(&mut self) -> Value {
        self.ann.wait_for("response.end").await["payload"].clone()
    }

    async fn interrupt(&mut self, urgency: &str, message: &str) {
        let raise = json!({ "urgency": urgency, "message": message });
        self.ann.say("interrupt.raise", raise).await;
        let acknowledged = self.ann.wait_for("interrupt.acknowledge").await;
        let taken = if urgency == "pause" {
            "paused"
        } else {
            "stopped"
        };
        assert_eq!(acknowledged["payload"]["action_taken"], taken);
    }
}

#[tokio::test]
async fn a_prompt_is_answered_in_streams_that_everyone_sees() {
    let mut scene = Scene::plain().await;
    let prompt = scene.prompt("what is here?").await;
    let question = scene.model.asked().await;
    assert_eq!(
        question.messages("user").last().unwrap(),
        "ann: what is here?"
    );
    let system = question.messages("system").concat();
    assert!(
        system.contains("several people supervise you")
            || system.contains("Several people supervise you"),
        "{system}"
    );
    let tools = question.body["tools"].as_array().unwrap().iter();
    let names: Vec<_> = tools
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["shell", "recall", "jobs"]);
    let question = question.think("I should look.").await.say("I look: ").await;
    let thinking = scene.ann.wait_for("thinking.start").await;
    assert_eq!(thinking["payload"]["prompt_ref"], prompt.as_str());
    assert_eq!(thinking["payload"]["visible_to"], "all");
    let chunk = scene.ann.wait_for("thinking.chunk").await;
    assert_eq!(chunk["payload"]["text"], "I should look.");
    assert_eq!(chunk["ref"], thinking["id"]);
    // What is said is told before the answer ends.
    let chunk = scene.ann.wait_for("response.chunk").await;
    assert_eq!(chunk["payload"]["text"], "I look: ");
    question.shell("echo a b; echo c >&2").await.done().await;
    let usage = scene.answered().await;
    assert_eq!(usage["finish_reason"], "tool_use");
    assert_eq!(
        (
            &usage["usage"]["input_tokens"],
            &usage["usage"]["output_tokens"]
        ),
        (&json!(11), &json!(7))
    );
    let question = scene.model.asked().await;
    assert_eq!(
        question.result(),
        "Exit code: 0 | stdout: 1 lines | stderr: 1 lines\n\nstderr:\nc\n\nstdout:\na b"
    );
    question.say("There is nothing.").await.done().await;
    assert_eq!(scene.answered().await["finish_reason"], "complete");
}

#[tokio::test]
async fn rejections_edits_and_refusals_come_back_in_words() {
    let mut scene = Scene::plain().await;
    scene.prompt("go").await;
    let question = scene.model.asked().await;
    question
        .shell("touch x")
        .await
        .shell("rm -rf /")
        .await
        .shell("touch y")
        .await
        .done()
        .await;
    let (first, _) = gate(&mut scene.ann).await;
    let (second, line) = gate(&mut scene.ann).await;
    assert_eq!(line, "touch y");
    reject(&mut scene.ann, &first, "x is taken").await;
    approve(&mut scene.ann, &second).await;
    let question = scene.model.asked().await;
    let results = question.messages("tool");
    assert!(results[0].starts_with("Rejected by "), "{results:?}");
    assert!(
        results[0].contains("with the reason: x is taken."),
        "{results:?}"
    );
    assert!(
        results[1].starts_with("Blocked: this command never runs here"),
        "{results:?}"
    );
    assert!(results[2].starts_with("Exit code: 0"), "{results:?}");
    question
        .call(
            "shell",
            json!({ "command": "ls", "timeout": 9999, "purpose": "p" }),
        )
        .await
        .call("python", json!({}))
        .await
        .done()
        .await;
    let question = scene.model.asked().await;
    let results = question.messages("tool");
    assert!(
        results[3].contains("`timeout` is at most 300 seconds"),
        "{results:?}"
    );
    assert!(
        results[4].contains("There is no tool \"python\""),
        "{results:?}"
    );
    question.say("ok").await.done().await;
}

#[tokio::test]
async fn output_is_recalled_and_jobs_are_listed_and_stopped() {
    let mut scene = Scene::plain().await;
    scene.prompt("go").await;
    let question = scene.model.asked().await;
    question.shell("seq 1 500").await.done().await;
    let question = scene.model.asked().await;
    let digest = question.result();
    assert!(
        digest.contains("last 12 of 500, 488 skipped")
            && digest.contains("read the rest with recall"),
        "{digest}"
    );
    let reference = digest
        .split("ref \"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    question
        .call(
            "recall",
            json!({ "ref": reference, "grep": "49", "limit": 3 }),
        )
        .await
        .call("recall", json!({ "ref": reference, "head": 1, "tail": 1 }))
        .await
        .call("recall", json!({ "ref": "nothing" }))
        .await
        .done()
        .await;
    let question = scene.model.asked().await;
    let results = question.messages("tool");
    assert!(
        results[1].contains("48 | 49\n148 | 149\n248 | 249"),
        "{results:?}"
    );
    assert!(
        results[2].starts_with("Ask for `head` or for `tail`, not for both."),
        "{results:?}"
    );
    assert!(
        results[3].starts_with("The output cannot be read: "),
        "{results:?}"
    );
    let forever =
        json!({ "command": "echo up; exec sleep 1000", "mode": "background", "purpose": "serve" });
    question.call("shell", forever).await.done().await;
    let (job, _) = gate(&mut scene.ann).await;
    approve(&mut scene.ann, &job).await;
    let question = scene.model.asked().await;
    let started = question.result();
    assert!(
        started.starts_with("It was started in the background and goes on, as process "),
        "{started}"
    );
    let reference = started
        .split("ref \"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    question.call("jobs", json!({})).await.done().await;
    let question = scene.model.asked().await;
    let listed = question.result();
    assert!(
        listed.contains(&format!("ref \"{reference}\" running (process ")),
        "{listed}"
    );
    let up = |message: &Value| message["payload"]["text"] == "up\n";
    scene.ann.wait(up).await;
    assert_ne!(scene.worker.at_work(), Vec::<String>::new());
    question
        .call("jobs", json!({ "action": "stop", "ref": reference }))
        .await
        .done()
        .await;
    let question = scene.model.asked().await;
    assert!(
        question
            .result()
            .ends_with(": stopped: the agent stopped it"),
        "{}",
        question.result()
    );
    loop {
        let ended = result(&mut scene.ann).await;
        if ended["tool_proposal"] == reference.as_str() {
            assert_eq!(ended["success"], false);
            break;
        }
    }
    assert_eq!(scene.worker.at_work(), Vec::<String>::new());
    question.call("jobs", json!({})).await.done().await;
    let question = scene.model.asked().await;
    assert!(
        question
            .result()
            .contains("ended: stopped: the agent stopped it"),
        "{}",
        question.result()
    );
    question.say("done").await.done().await;
}

#[tokio::test]
async fn a_stop_ends_the_answer_and_what_runs_and_the_next_prompt_begins_anew() {
    let mut scene = Scene::plain().await;
    scene.prompt("go").await;
    let question = scene.model.asked().await.say("Let me think").await;
    scene.ann.wait_for("response.chunk").await;
    scene.interrupt("stop", "not that").await;
    question.given_up().await;
    assert_eq!(scene.answered().await["finish_reason"], "interrupted");
    // While a command runs.
    scene.prompt("then this").await;
    let question = scene.model.asked().await;
    let heard = question.messages("user").pop().unwrap();
    assert!(
        heard.contains("ann stopped you: not that") && heard.ends_with("ann: then this"),
        "{heard}"
    );
    question.shell("touch begun; sleep 1000").await.done().await;
    let (slow, _) = gate(&mut scene.ann).await;
    approve(&mut scene.ann, &slow).await;
    scene.ann.wait_for("tool.execute").await;
    scene.interrupt("emergency", "now").await;
    let ended = result(&mut scene.ann).await;
    assert_eq!(ended["success"], false, "{ended}");
    // While one waits at its gate.
    scene.prompt("and this").await;
    let question = scene.model.asked().await;
    let words = question.result();
    assert!(words.contains("stopped"), "{words}");
    question.shell("touch never").await.done().await;
    let (waiting, _) = gate(&mut scene.ann).await;
    scene.interrupt("stop", "no").await;
    let closes = |message: &Value| message["payload"]["gate"] == waiting.as_str();
    let resolved = scene
        .ann
        .wait(|message| message["type"] == "gate.resolve" && closes(message))
        .await;
    assert_eq!(
        (
            &resolved["payload"]["gate"],
            &resolved["payload"]["outcome"]
        ),
        (&json!(waiting), &json!("cancelled"))
    );
    scene.prompt("last").await;
    let question = scene.model.asked().await;
    assert!(
        question.result().contains("withdrawn"),
        "{}",
        question.result()
    );
    question.say("ok").await.done().await;
    assert!(!scene.worker.workspace().join("never").exists());
    assert_eq!(scene.worker.at_work(), Vec::<String>::new());
}

#[tokio::test]
async fn a_pause_lets_the_command_end_and_then_waits_for_a_word() {
    let mut scene = Scene::plain().await;
    scene.prompt("go").await;
    let question = scene.model.asked().await;
    question
        .shell("touch begun; while [ ! -e go-on ]; do sleep 0.01; done; touch ended")
        .await
        .done()
        .await;
    let (slow, _) = gate(&mut scene.ann).await;
    approve(&mut scene.ann, &slow).await;
    scene.ann.wait_for("tool.execute").await;
    scene.interrupt("pause", "wait a moment").await;
    std::fs::write(scene.worker.workspace().join("go-on"), "").unwrap();
    assert_eq!(result(&mut scene.ann).await["success"], true);
    assert!(scene.worker.workspace().join("ended").exists());
    // Nothing is asked of the model before someone speaks; then it hears of both.
    scene.prompt("go on").await;
    let question = scene.model.asked().await;
    assert!(
        question.result().starts_with("Exit code: 0"),
        "{}",
        question.result()
    );
    let heard = question.messages("user").pop().unwrap();
    assert!(
        heard.contains("ann paused you: wait a moment") && heard.ends_with("ann: go on"),
        "{heard}"
    );
    question.say("ok").await.done().await;
}

#[tokio::test]
async fn who_speaks_while_a_proposal_waits_is_told_and_then_heard() {
    let mut scene = Scene::plain().await;
    scene.prompt("go").await;
    let question = scene.model.asked().await;
    question.shell("touch x").await.done().await;
    scene.answered().await;
    let (waiting, _) = gate(&mut scene.ann).await;
    let second = scene.prompt("and also this").await;
    let start = scene
        .ann
        .wait(|message| {
            message["type"] == "response.start"
                && message["payload"]["prompt_ref"] == second.as_str()
        })
        .await;
    let chunk = scene
        .ann
        .wait(|message| message["type"] == "response.chunk" && message["ref"] == start["id"])
        .await;
    assert!(
        chunk["payload"]["text"]
            .as_str()
            .unwrap()
            .contains("still waits for a decision")
    );
    approve(&mut scene.ann, &waiting).await;
    let question = scene.model.asked().await;
    assert!(question.result().starts_with("Exit code: 0"));
    assert_eq!(
        question.messages("user").last().unwrap(),
        "ann: and also this"
    );
    question.say("both done").await.done().await;
}

#[tokio::test]
async fn context_amendments_and_wishes_about_tools_reach_the_model() {
    let mut scene = Scene::plain().await;
    let add = json!({ "key": "plan", "content_type": "text", "content": "first the roof" });
    scene.ann.say("context.add", add).await;
    let more = json!({
        "context_keys": ["plan", "nothing"],
        "config": { "tools_allowed": ["recall"], "temperature": 0.5 },
    });
    let prompt = scene.prompt_with("build", more).await;
    let question = scene.model.asked().await;
    let heard = question.messages("user").pop().unwrap();
    assert!(
        heard.contains("first the roof") && heard.contains("(not known to this agent)"),
        "{heard}"
    );
    let tools = question.body["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1);
    assert_eq!(question.body["temperature"], 0.5);
    question.shell("ls").await.done().await;
    let question = scene.model.asked().await;
    assert!(
        question
            .result()
            .contains("`shell` is not allowed for this prompt"),
        "{}",
        question.result()
    );
    let amend =
        json!({ "original_prompt": prompt, "amendment": "the cellar first", "reason": "rain" });
    scene.ann.say("prompt.amend", amend).await;
    question.say("ok").await.done().await;
    let question = scene.model.asked().await;
    let heard = question.messages("user").pop().unwrap();
    assert_eq!(
        heard,
        "ann changes what was asked before (rain): the cellar first"
    );
    question.say("ok").await.done().await;
}

#[tokio::test]
async fn a_provider_in_trouble_is_asked_again_or_complained_about() {
    let mut scene = Scene::plain().await;
    scene.prompt("go").await;
    scene.model.fails(429, "retry-after: 0\r\n").await;
    let question = scene.model.asked().await;
    question.say("here I am").await.done().await;
    assert_eq!(scene.answered().await["finish_reason"], "complete");
    scene.prompt("again").await;
    scene.model.fails(401, "").await;
    assert_eq!(scene.answered().await["finish_reason"], "error");
    let last = scene
        .ann
        .received
        .iter()
        .rev()
        .find(|message| message["type"] == "response.chunk");
    let text = last.unwrap()["payload"]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        text.contains("I cannot go on:") && text.contains("OPENAI_API_KEY"),
        "{text}"
    );
    // It is still there.
    scene.prompt("better?").await;
    scene.model.asked().await.say("yes").await.done().await;
    assert_eq!(scene.answered().await["finish_reason"], "complete");
}

#[tokio::test]
async fn a_model_that_never_ends_is_ended_after_its_steps() {
    let mut scene = Scene::set(json!({}), &["--most-answers", "2"]).await;
    scene.prompt("go").await;
    for _ in 0..2 {
        scene.model.asked().await.shell("true").await.done().await;
    }
    let chunk = scene.ann.wait_for("response.chunk").await;
    let text = chunk["payload"]["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("I have taken 2 steps in a row"), "{text}");
    scene.prompt("go on").await;
    let question = scene.model.asked().await;
    assert_eq!(question.messages("user").last().unwrap(), "ann: go on");
    question.say("enough").await.done().await;
}
