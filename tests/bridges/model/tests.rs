//! The model itself, asked as clients ask it.

use serde_json::{Value, json};

use super::{ModelDialect, SCRIPT_ENDED, ScriptedConversation, ScriptedModel, ScriptedTurn};
use crate::support::http_request;

/// Sends a request as a client does; returns the body of the answer.
async fn ask(model: &ScriptedModel, path: &str, body: &Value) -> String {
    let url = model.url();
    let address = url.strip_prefix("http://").unwrap();
    let (status, body) = http_request(address, "POST", path, &[], &body.to_string()).await;
    assert_eq!(status, 200, "{body}");
    body
}

async fn ask_json(model: &ScriptedModel, path: &str, body: &Value) -> Value {
    serde_json::from_str(&ask(model, path, body).await).unwrap()
}

fn script() -> Vec<ScriptedTurn> {
    let call = ScriptedTurn::call("Bash", json!({ "command": "ls" }));
    vec![call, ScriptedTurn::text("It is done.")]
}

const MESSAGES: &str = "/v1/messages";

fn messages(history: Value) -> Value {
    json!({ "model": "m", "tools": [{ "name": "Bash" }], "messages": history })
}

#[tokio::test]
async fn the_history_says_which_turn_comes_next() {
    let model = ScriptedModel::start(script()).await;
    let prompt = json!({ "role": "user", "content": "go" });
    let first = messages(json!([prompt]));
    let answer = ask_json(&model, MESSAGES, &first).await;
    assert_eq!(answer["stop_reason"], "tool_use");
    let call = answer["content"][0].clone();
    assert_eq!(call["name"], "Bash");
    assert_eq!(call["input"], json!({ "command": "ls" }));
    // A request that is repeated gets the same answer.
    assert_eq!(ask_json(&model, MESSAGES, &first).await, answer);
    let said = json!({ "role": "assistant", "content": [call] });
    let result = json!({ "type": "tool_result", "tool_use_id": call["id"], "content": "a.txt" });
    let result = json!({ "role": "user", "content": [result] });
    let second = messages(json!([prompt, said, result]));
    let answer = ask_json(&model, MESSAGES, &second).await;
    assert_eq!(answer["content"][0]["text"], "It is done.");
    let done = json!({ "role": "assistant", "content": "It is done." });
    let third = messages(json!([prompt, said, result, done, prompt]));
    let answer = ask_json(&model, MESSAGES, &third).await;
    assert_eq!(answer["content"][0]["text"], SCRIPT_ENDED);
    let results = model.requests()[2].tool_results();
    assert_eq!((&*results[0].name, &*results[0].text), ("Bash", "a.txt"));
}

#[tokio::test]
async fn what_is_beside_the_conversation_uses_up_no_turn() {
    let model = ScriptedModel::start(script()).await;
    let prompt = json!([{ "role": "user", "content": "go" }]);
    let without_tools = json!({ "model": "m", "messages": prompt });
    ask(&model, MESSAGES, &without_tools).await;
    ask(&model, "/v1/messages/count_tokens", &without_tools).await;
    let answer = ask_json(&model, MESSAGES, &messages(prompt)).await;
    assert_eq!(answer["stop_reason"], "tool_use");
    let requests = model.requests();
    let conversations = requests.iter().map(|request| &request.conversation);
    let expected = [
        &ScriptedConversation::Side,
        &ScriptedConversation::Side,
        &ScriptedConversation::Main,
    ];
    assert!(conversations.eq(expected));
    assert_eq!(requests[1].dialect, ModelDialect::Other);
}

#[tokio::test]
async fn a_subagent_follows_the_script_in_its_prompt() {
    let model = ScriptedModel::start(script()).await;
    let own = serde_json::to_string(&[ScriptedTurn::text("I helped.")]).unwrap();
    let prompt = json!([{ "role": "user", "content": format!("SUBAGENT-SCRIPT: {own} Do it.") }]);
    let answer = ask_json(&model, MESSAGES, &messages(prompt)).await;
    assert_eq!(answer["content"][0]["text"], "I helped.");
    assert_eq!(
        model.requests()[0].conversation,
        ScriptedConversation::Subagent
    );
}

#[tokio::test]
async fn a_call_can_use_what_the_call_before_returned() {
    let wait = ScriptedTurn::call(
        "wait",
        json!({ "targets": ["RESULT:/agent_id"], "other": "RESULT:/x" }),
    );
    let model = ScriptedModel::start(vec![ScriptedTurn::call("spawn", json!({})), wait]).await;
    let input = json!([
        { "type": "function_call", "call_id": "call_main_0_0", "name": "spawn", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "call_main_0_0", "output": "{\"agent_id\":\"7\"}" },
    ]);
    let body = json!({ "model": "m", "input": input, "tools": [{ "name": "spawn" }] });
    let answer = ask_json(&model, "/v1/responses", &body).await;
    let arguments: Value =
        serde_json::from_str(answer["output"][0]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({ "targets": ["7"], "other": "RESULT:/x" }));
}

#[tokio::test]
async fn every_dialect_is_spoken_whole_and_as_a_stream() {
    let tool = json!({ "name": "Bash" });
    let function = json!({ "type": "function", "function": tool });
    let contents = json!([{ "role": "user", "parts": [{ "text": "go" }] }]);
    let said = json!([{ "role": "user", "content": "go" }]);
    let brief = json!({ "parts": [{ "text": "Be brief." }] });
    let gemini = json!({
        "contents": contents, "tools": [{ "functionDeclarations": [tool] }],
        "systemInstruction": brief,
    });
    let system = json!({ "role": "system", "content": "Be brief." });
    let chat = json!({ "model": "m", "messages": [system, said[0]], "tools": [function] });
    let responses =
        json!({ "model": "m", "input": "go", "tools": [tool], "instructions": "Be brief." });
    let mut whole = messages(said);
    whole["system"] = "Be brief.".into();
    let cases = [
        (MESSAGES, whole, ModelDialect::AnthropicMessages),
        ("/v1/responses", responses, ModelDialect::OpenAiResponses),
        ("/v1/chat/completions", chat, ModelDialect::OpenAiChat),
        (
            "/v1beta/models/m:generateContent",
            gemini.clone(),
            ModelDialect::Gemini,
        ),
    ];
    let model = ScriptedModel::start(script()).await;
    for (path, mut body, dialect) in cases {
        let whole = ask_json(&model, path, &body).await.to_string();
        let path = path.replace(":generate", ":streamGenerate");
        body["stream"] = true.into();
        let streamed = ask(&model, &path, &body).await;
        for answer in [whole, streamed] {
            for part in ["Bash", "command", "ls", "call_main_0_0"] {
                assert!(answer.contains(part), "{path}: {part} is not in {answer}");
            }
        }
        let request = model.requests().pop().unwrap();
        assert_eq!((request.dialect, &*request.tools[0]), (dialect, "Bash"));
        assert_eq!(request.answer, Some(script()[0].clone()));
        assert_eq!((&*request.model, &*request.system), ("m", "Be brief."));
        assert!(request.tool_definitions.to_string().contains("Bash"));
    }
}
