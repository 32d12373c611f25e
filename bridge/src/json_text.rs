//! JSON as people write it, with comments and trailing commas, changed in place: whatever is not
//! changed stays as it is, byte for byte.

mod parser;

use serde_json::Value;

use parser::{Kind, Node};

/// Why a text cannot be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonTextError {
    #[error("line {line}: {what}")]
    Syntax { line: usize, what: &'static str },
    #[error("`{0}` is not an object")]
    NotAnObject(String),
    #[error("`{0}` is not a list")]
    NotAList(String),
}

/// A JSON text that can be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText {
    text: String,
}

impl JsonText {
    /// Takes a text whose outermost value is an object; an empty text is an empty object.
    pub fn parse(text: &str) -> Result<Self, JsonTextError> {
        let text = match text.trim().is_empty() {
            true => "{}\n".to_owned(),
            false => text.to_owned(),
        };
        let parsed = Self { text };
        match parsed.root()?.kind {
            Kind::Object(_) => Ok(parsed),
            Kind::Array(_) | Kind::Scalar(_) => {
                Err(JsonTextError::NotAnObject("the file".to_owned()))
            }
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text as a value, without its comments.
    pub fn value(&self) -> Result<Value, JsonTextError> {
        Ok(self.root()?.value())
    }

    /// Sets a member of the object at a path, whose objects are made if they are missing.
    pub fn set(&mut self, path: &[&str], name: &str, value: &Value) -> Result<(), JsonTextError> {
        self.make_objects(path)?;
        let root = self.root()?;
        let object = object_at(&root, path)?;
        let existing = object.members().find(|(key, _)| *key == name);
        if let Some((_, node)) = existing {
            let indented = self.indented(value, object.start, 1);
            self.text.replace_range(node.start..node.end, &indented);
            return Ok(());
        }
        let key = Value::from(name).to_string();
        let item = format!("{key}: {}", self.indented(value, object.start, 1));
        self.insert_item(object.start, object.end, object.last_end(), &item);
        Ok(())
    }

    /// Adds an element to the list at a path, which is made if it is missing.
    pub fn push(&mut self, path: &[&str], element: &Value) -> Result<(), JsonTextError> {
        let Some((name, parents)) = path.split_last() else {
            return Err(JsonTextError::NotAList("the file".to_owned()));
        };
        self.make_objects(parents)?;
        let root = self.root()?;
        let object = object_at(&root, parents)?;
        let Some((_, list)) = object.members().find(|(key, _)| key == name) else {
            return self.set(parents, name, &Value::from(vec![element.clone()]));
        };
        let Kind::Array(_) = &list.kind else {
            return Err(JsonTextError::NotAList(path.join(".")));
        };
        let item = self.indented(element, list.start, 1);
        self.insert_item(list.start, list.end, list.last_end(), &item);
        Ok(())
    }

    /// Removes the elements of a list that a test finds; a list that is thereby empty goes too. Says
    /// how many were removed.
    pub fn remove_elements(
        &mut self,
        path: &[&str],
        is_removed: impl Fn(&Value) -> bool,
    ) -> Result<usize, JsonTextError> {
        let mut removed = 0;
        loop {
            let root = self.root()?;
            let Some(list) = find(&root, path) else {
                return Ok(removed);
            };
            let Kind::Array(elements) = &list.kind else {
                return Ok(removed);
            };
            let found = elements
                .iter()
                .position(|element| is_removed(&element.value()));
            let Some(index) = found else {
                return Ok(removed);
            };
            removed += 1;
            if elements.len() == 1 {
                self.remove(path)?;
                return Ok(removed);
            }
            let spans: Vec<_> = elements.iter().map(|node| (node.start, node.end)).collect();
            self.cut(&spans, index);
        }
    }

    /// Removes elements of the lists that the elements of a list have under this name, as far as
    /// others stay there. Says how many were removed.
    pub fn remove_inner_elements(
        &mut self,
        path: &[&str],
        name: &str,
        is_removed: impl Fn(&Value) -> bool,
    ) -> Result<usize, JsonTextError> {
        let mut removed = 0;
        loop {
            let root = self.root()?;
            let elements = find(&root, path).map_or(&[][..], elements_of);
            let found = elements.iter().find_map(|element| {
                let (_, list) = element.members().find(|(key, _)| *key == name)?;
                let inner = elements_of(list);
                let index = inner.iter().position(|it| is_removed(&it.value()))?;
                (inner.len() > 1).then_some((inner, index))
            });
            let Some((inner, index)) = found else {
                return Ok(removed);
            };
            removed += 1;
            let spans: Vec<_> = inner.iter().map(|node| (node.start, node.end)).collect();
            self.cut(&spans, index);
        }
    }

    /// Removes a member, if it is there.
    pub fn remove(&mut self, path: &[&str]) -> Result<(), JsonTextError> {
        let Some((name, parents)) = path.split_last() else {
            return Ok(());
        };
        let root = self.root()?;
        let Some(object) = find(&root, parents) else {
            return Ok(());
        };
        let Kind::Object(members) = &object.kind else {
            return Ok(());
        };
        // The last of a name is the one that counts.
        let Some(index) = members.iter().rposition(|member| member.key == *name) else {
            return Ok(());
        };
        let spans: Vec<_> = members
            .iter()
            .map(|member| (member.key_start, member.value.end))
            .collect();
        self.cut(&spans, index);
        Ok(())
    }

    /// Removes a member if it is an empty object.
    pub fn remove_if_empty(&mut self, path: &[&str]) -> Result<(), JsonTextError> {
        let root = self.root()?;
        let empty = find(&root, path)
            .is_some_and(|node| matches!(&node.kind, Kind::Object(members) if members.is_empty()));
        match empty {
            true => self.remove(path),
            false => Ok(()),
        }
    }

    fn root(&self) -> Result<Node, JsonTextError> {
        parser::parse(&self.text)
    }

    fn make_objects(&mut self, path: &[&str]) -> Result<(), JsonTextError> {
        for length in 1..=path.len() {
            let (name, parents) = path[..length].split_last().expect("it has an element");
            let root = self.root()?;
            let parent = object_at(&root, parents)?;
            let child = parent.members().find(|(key, _)| key == name);
            match child.map(|(_, node)| &node.kind) {
                Some(Kind::Object(_)) => {}
                Some(Kind::Array(_) | Kind::Scalar(_)) => {
                    return Err(JsonTextError::NotAnObject(path[..length].join(".")));
                }
                None => self.set(parents, name, &Value::Object(Default::default()))?,
            }
        }
        Ok(())
    }

    /// Puts an item behind the last one of a container.
    fn insert_item(&mut self, start: usize, end: usize, last_end: Option<usize>, item: &str) {
        let indent = format!("{}  ", self.line_indent(start));
        match last_end {
            Some(last_end) => {
                let comma = match parser::comma_behind(&self.text, last_end) {
                    Some(at) => {
                        // A trailing comma, or one that separates nothing yet.
                        self.text.insert_str(at + 1, &format!("\n{indent}{item}"));
                        return;
                    }
                    None => ",",
                };
                let inserted = format!("{comma}\n{indent}{item}");
                self.text.insert_str(last_end, &inserted);
            }
            None => {
                let closing = self.line_indent(start).to_owned();
                let inner = self.text[start + 1..end - 1].trim_end().to_owned();
                let filled = format!("{inner}\n{indent}{item}\n{closing}");
                self.text.replace_range(start + 1..end - 1, &filled);
            }
        }
    }

    /// Cuts an item out of a container together with the comma that separated it.
    fn cut(&mut self, items: &[(usize, usize)], index: usize) {
        let (start, end) = items[index];
        let (from, to) = match (
            index.checked_sub(1).and_then(|it| items.get(it)),
            items.len(),
        ) {
            (Some((_, before)), _) => {
                // With the comma before it, and the space between; a comment there goes too.
                let comma = parser::comma_behind(&self.text, *before);
                (comma.unwrap_or(start), end)
            }
            (None, _) => {
                let comma = parser::comma_behind(&self.text, end);
                let before = self.space_before(start);
                // What follows on the same line must not become part of a comment.
                let from = match self.text[..before].lines().next_back() {
                    Some(line) if line.contains("//") => start,
                    Some(_) | None => before,
                };
                (from, comma.map_or(end, |at| at + 1))
            }
        };
        self.text.replace_range(from..to, "");
    }

    /// Where the white space before a position begins.
    fn space_before(&self, position: usize) -> usize {
        self.text[..position].trim_end().len()
    }

    fn line_indent(&self, position: usize) -> &str {
        let before = &self.text[..position];
        let line = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = &self.text[line..];
        let width = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        &rest[..width]
    }

    /// A value as text, for a place inside the container that begins at a position.
    fn indented(&self, value: &Value, container: usize, levels: usize) -> String {
        let indent = format!("{}{}", self.line_indent(container), "  ".repeat(levels));
        let pretty = serde_json::to_string_pretty(value).unwrap_or_default();
        pretty.replace('\n', &format!("\n{indent}"))
    }
}

/// The elements of a list; none of anything else.
fn elements_of(node: &Node) -> &[Node] {
    match &node.kind {
        Kind::Array(elements) => elements,
        Kind::Object(_) | Kind::Scalar(_) => &[],
    }
}

fn find<'a>(root: &'a Node, path: &[&str]) -> Option<&'a Node> {
    let mut node = root;
    for name in path {
        let (_, child) = node.members().find(|(key, _)| key == name)?;
        node = child;
    }
    Some(node)
}

fn object_at<'a>(root: &'a Node, path: &[&str]) -> Result<&'a Node, JsonTextError> {
    let not_an_object = || JsonTextError::NotAnObject(path.join("."));
    let node = find(root, path).ok_or_else(not_an_object)?;
    match node.kind {
        Kind::Object(_) => Ok(node),
        Kind::Array(_) | Kind::Scalar(_) => Err(not_an_object()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_changed_stays_as_it_is() {
        let before =
            "// mine\n{\n\t\"a\": 1, // one\n\t\"hooks\": {\n\t\t\"X\": [ /* none */ ],\n\t},\n}\n";
        let mut text = JsonText::parse(before).unwrap();
        text.push(&["hooks", "X"], &json!({ "c": 1 })).unwrap();
        text.push(&["hooks", "Y"], &json!("y")).unwrap();
        text.set(&[], "b", &json!(true)).unwrap();
        let value = json!({ "a": 1, "hooks": { "X": [{ "c": 1 }], "Y": ["y"] }, "b": true });
        assert_eq!(text.value().unwrap(), value);
        for kept in ["// mine\n", "\"a\": 1, // one", "/* none */"] {
            assert!(text.as_str().contains(kept), "{}", text.as_str());
        }
        assert_eq!(text.remove_elements(&["hooks", "Y"], |it| it == "y"), Ok(1));
        text.remove(&["b"]).unwrap();
        let value = json!({ "a": 1, "hooks": { "X": [{ "c": 1 }] } });
        assert_eq!(text.value().unwrap(), value);
    }

    #[test]
    fn adding_and_removing_gives_back_what_was_there() {
        for before in [
            "{\n  \"a\": [\n    1,\n    2\n  ]\n}\n",
            "{\"a\":[1,2]}",
            "{ \"a\": [1, 2], }",
            "{\"b\": {}, \"a\": [1,\n2,\n]}",
        ] {
            let mut text = JsonText::parse(before).unwrap();
            text.push(&["a"], &json!(3)).unwrap();
            assert_eq!(text.value().unwrap()["a"], json!([1, 2, 3]), "{before}");
            text.push(&["new", "list"], &json!({ "x": [1, { "y": 2 }] }))
                .unwrap();
            assert_eq!(text.remove_elements(&["a"], |it| *it == json!(3)), Ok(1));
            let is_ours = |it: &Value| it.get("x").is_some();
            assert_eq!(text.remove_elements(&["new", "list"], is_ours), Ok(1));
            text.remove_if_empty(&["new"]).unwrap();
            let expected = JsonText::parse(before).unwrap().value();
            assert_eq!(text.value(), expected, "{}", text.as_str());
        }
    }

    #[test]
    fn what_follows_is_not_taken_into_a_comment() {
        for before in [
            "{\"l\": [ // mine\n  1, 2]}",
            "{\"l\": [ // mine\n  1, // one\n  2]}",
            "{\"l\": [\n  1, 2 // two\n]}",
            "{ // http://x\n\"l\": [1, 2]}",
        ] {
            let mut text = JsonText::parse(before).unwrap();
            assert_eq!(text.remove_elements(&["l"], |it| *it == json!(1)), Ok(1));
            assert_eq!(text.value(), Ok(json!({ "l": [2] })), "{}", text.as_str());
        }
    }

    #[test]
    fn inner_elements_are_removed_as_far_as_others_stay() {
        let before = "{\"l\": [\n  {\"h\": [\"ours\", \"mine\"], \"m\": 1},\n  {\"h\": [\"ours\"]}, 3, {\"h\": 4}\n]}";
        let mut text = JsonText::parse(before).unwrap();
        let removed = text.remove_inner_elements(&["l"], "h", |it| it == "ours");
        assert_eq!(removed, Ok(1));
        let after = before.replacen("\"ours\",", "", 1);
        assert_eq!(text.value(), JsonText::parse(&after).unwrap().value());
        assert_eq!(text.remove_inner_elements(&["x"], "h", |_| true), Ok(0));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for bad in [
            "{",
            "[1",
            "{\"a\" 1}",
            "{\"a\": 1 \"b\": 2}",
            "nul",
            "{}{}",
            "{\"a\": tru}",
            "{\"a\": \"x}",
            "/* {}",
            "{\"a\": 01}",
            "{'a': 1}",
            "{,}",
            "[]",
            "1",
        ] {
            assert!(JsonText::parse(bad).is_err(), "{bad}");
        }
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(JsonText::parse(&deep).is_err());
        assert_eq!(JsonText::parse(" \n").unwrap().value(), Ok(json!({})));
        let mut text = JsonText::parse("{\"hooks\": [], \"a\": {\"b\": 1}}").unwrap();
        assert!(text.push(&["hooks", "X"], &json!(1)).is_err());
        assert!(text.push(&["a", "b"], &json!(1)).is_err());
        assert_eq!(text.as_str(), "{\"hooks\": [], \"a\": {\"b\": 1}}");
    }

    #[test]
    fn names_are_read_as_json_writes_them() {
        let text = r#"{"\u0064isableAllHooks": true, "é": "\u00e9"}"#;
        let value = JsonText::parse(text).unwrap().value().unwrap();
        assert_eq!(value, json!({ "disableAllHooks": true, "é": "é" }));
        // The last of several counts, as in every client.
        let twice = JsonText::parse(r#"{"a": 1, "a": 2}"#).unwrap();
        assert_eq!(twice.value(), Ok(json!({ "a": 2 })));
        let mut twice = JsonText::parse(r#"{"l": [1], "l": [2]}"#).unwrap();
        assert_eq!(twice.remove_elements(&["l"], |it| *it == json!(2)), Ok(1));
        assert_eq!(twice.as_str(), r#"{"l": [1]}"#);
    }
}
