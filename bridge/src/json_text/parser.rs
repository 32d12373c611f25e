//! Reads JSON with comments and trailing commas, and where each value is.

use serde_json::{Map, Value};

use super::JsonTextError;

/// How deep values may be nested.
const MAX_DEPTH: usize = 64;

/// A value and where it is.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Object(Vec<JsonMember>),
    Array(Vec<Node>),
    Scalar(Value),
}

#[derive(Debug)]
pub(super) struct JsonMember {
    pub(super) key: String,
    pub(super) key_start: usize,
    pub(super) value: Node,
}

impl Node {
    pub(super) fn value(&self) -> Value {
        match &self.kind {
            Kind::Object(members) => {
                let members = members.iter();
                let values = members.map(|member| (member.key.clone(), member.value.value()));
                Value::Object(Map::from_iter(values))
            }
            Kind::Array(elements) => elements.iter().map(Node::value).collect(),
            Kind::Scalar(value) => value.clone(),
        }
    }

    /// The members of an object, the last first, because the last of a name counts.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &Node)> {
        let members = match &self.kind {
            Kind::Object(members) => members.as_slice(),
            Kind::Array(_) | Kind::Scalar(_) => &[],
        };
        let members = members.iter().rev();
        members.map(|member| (member.key.as_str(), &member.value))
    }

    /// Where the last item ends.
    pub(super) fn last_end(&self) -> Option<usize> {
        match &self.kind {
            Kind::Object(members) => members.last().map(|member| member.value.end),
            Kind::Array(elements) => elements.last().map(|element| element.end),
            Kind::Scalar(_) => None,
        }
    }
}

pub(super) fn parse(text: &str) -> Result<Node, JsonTextError> {
    let mut parser = Parser {
        text,
        position: text.len() - text.trim_start_matches('\u{feff}').len(),
    };
    let node = parser.value(0)?;
    parser.skip_space()?;
    match parser.peek() {
        None => Ok(node),
        Some(_) => Err(parser.error("there is something behind the end")),
    }
}

/// Where the comma behind an item is, if there is one before anything else.
pub(super) fn comma_behind(text: &str, position: usize) -> Option<usize> {
    let mut parser = Parser { text, position };
    parser.skip_space().ok()?;
    (parser.peek() == Some(b',')).then_some(parser.position)
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, what: &'static str) -> JsonTextError {
        let before = self.text.as_bytes().iter().take(self.position);
        let line = before.filter(|byte| **byte == b'\n').count() + 1;
        JsonTextError::Syntax { line, what }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn skip_space(&mut self) -> Result<(), JsonTextError> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r']);
            self.position += rest.len() - trimmed.len();
            if trimmed.starts_with("//") {
                let end = trimmed.find(['\n', '\r']).unwrap_or(trimmed.len());
                self.position += end;
            } else if trimmed.starts_with("/*") {
                let end = trimmed
                    .split_once("/*")
                    .and_then(|(_, rest)| rest.find("*/"));
                let end = end.ok_or_else(|| self.error("a comment does not end"))?;
                self.position += end + 4;
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, JsonTextError> {
        if depth > MAX_DEPTH {
            return Err(self.error("it is nested too deep"));
        }
        self.skip_space()?;
        let start = self.position;
        let kind = match self.peek() {
            Some(b'{') => Kind::Object(self.members(depth)?),
            Some(b'[') => Kind::Array(self.elements(depth)?),
            Some(b'"') => Kind::Scalar(Value::String(self.string()?)),
            Some(_) => self.word()?,
            None => return Err(self.error("it ends too early")),
        };
        let end = self.position;
        Ok(Node { start, end, kind })
    }

    fn members(&mut self, depth: usize) -> Result<Vec<JsonMember>, JsonTextError> {
        self.position += 1;
        let mut members = Vec::new();
        loop {
            self.skip_space()?;
            if self.peek() == Some(b'}') {
                break;
            }
            if self.peek() != Some(b'"') {
                return Err(self.error("a name in quotes is missing"));
            }
            let key_start = self.position;
            let key = self.string()?;
            self.skip_space()?;
            if self.peek() != Some(b':') {
                return Err(self.error("a colon is missing"));
            }
            self.position += 1;
            let value = self.value(depth + 1)?;
            members.push(JsonMember {
                key,
                key_start,
                value,
            });
            if !self.comma(b'}')? {
                break;
            }
        }
        self.position += 1;
        Ok(members)
    }

    fn elements(&mut self, depth: usize) -> Result<Vec<Node>, JsonTextError> {
        self.position += 1;
        let mut elements = Vec::new();
        loop {
            self.skip_space()?;
            if self.peek() == Some(b']') {
                break;
            }
            elements.push(self.value(depth + 1)?);
            if !self.comma(b']')? {
                break;
            }
        }
        self.position += 1;
        Ok(elements)
    }

    /// Whether a comma follows, and not the end of the container.
    fn comma(&mut self, closing: u8) -> Result<bool, JsonTextError> {
        self.skip_space()?;
        match self.peek() {
            Some(b',') => {
                self.position += 1;
                Ok(true)
            }
            Some(byte) if byte == closing => Ok(false),
            Some(_) | None => Err(self.error("a comma or the end is missing")),
        }
    }

    fn string(&mut self) -> Result<String, JsonTextError> {
        let bytes = self.text.as_bytes();
        let mut end = self.position + 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
                None => return Err(self.error("a string does not end")),
            }
        }
        let quoted = self.text.get(self.position..=end).unwrap_or_default();
        let string = serde_json::from_str(quoted);
        let string = string.map_err(|_| self.error("a string is not written as JSON wants it"))?;
        self.position = end + 1;
        Ok(string)
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<Kind, JsonTextError> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || ['+', '-', '.'].contains(&c);
        let rest = self.rest();
        let length = rest.len() - rest.trim_start_matches(is_word).len();
        let word = rest.get(..length).unwrap_or_default();
        let value = serde_json::from_str(word);
        let value = value.map_err(|_| self.error("this is not a value"))?;
        self.position += length;
        Ok(Kind::Scalar(value))
    }
}
