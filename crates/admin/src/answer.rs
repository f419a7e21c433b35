//! What a command answers.

use crate::json::{self, Format};
use bytes::Bytes;
use serde_json::Value;
use std::fmt;
use types::Errno;

/// A command that cannot be carried out: an error number and a sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CommandError {
    /// The error number.
    pub errno: Errno,
    /// What is wrong, and what to do.
    pub text: String,
}

impl CommandError {
    /// An error.
    pub fn new(errno: Errno, text: impl fmt::Display) -> Self {
        CommandError { errno, text: text.to_string() }
    }

    /// EINVAL
    pub fn invalid(text: impl fmt::Display) -> Self {
        Self::new(Errno::EINVAL, text)
    }

    /// ENOENT
    pub fn not_found(text: impl fmt::Display) -> Self {
        Self::new(Errno::ENOENT, text)
    }

    /// EPERM
    pub fn not_permitted(text: impl fmt::Display) -> Self {
        Self::new(Errno::EPERM, text)
    }

    /// EBUSY
    pub fn busy(text: impl fmt::Display) -> Self {
        Self::new(Errno::EBUSY, text)
    }

    /// EEXIST
    pub fn exists(text: impl fmt::Display) -> Self {
        Self::new(Errno::EEXIST, text)
    }

    /// EOPNOTSUPP
    pub fn unsupported(text: impl fmt::Display) -> Self {
        Self::new(Errno::EOPNOTSUPP, text)
    }
}

/// The output of a command, apart from its message.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Data {
    /// Nothing.
    #[default]
    None,
    /// Text, whatever format was asked for.
    Text(String),
    /// To be printed in the format that was asked for; indented in the plain one.
    Json(Value),
    /// The same, but on one line in the plain format.
    JsonLine(Value),
    /// Bytes: a map.
    Raw(Bytes),
}

/// What a command answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Set when the answer is a refusal that nevertheless has output.
    pub errno: Option<Errno>,
    /// The message, which the CLI prints to stderr.
    pub outs: String,
    /// The output.
    pub data: Data,
}

impl Answer {
    /// Nothing to say.
    pub fn ok() -> Self {
        Self::default()
    }

    /// A message.
    pub fn message(outs: impl fmt::Display) -> Self {
        Answer { outs: outs.to_string(), ..Self::default() }
    }

    /// Text as output.
    pub fn text(text: impl fmt::Display) -> Self {
        Answer { data: Data::Text(text.to_string()), ..Self::default() }
    }

    /// JSON as output; in plain format it is indented.
    pub fn json(value: Value) -> Self {
        Answer { data: Data::Json(value), ..Self::default() }
    }

    /// JSON as output; in plain format on one line.
    pub fn json_line(value: Value) -> Self {
        Answer { data: Data::JsonLine(value), ..Self::default() }
    }

    /// JSON, or in plain format text.
    pub fn either(
        format: Format,
        json: impl FnOnce() -> Value,
        text: impl FnOnce() -> String,
    ) -> Self {
        if format.is_json() { Self::json(json()) } else { Self::text(text()) }
    }

    /// Bytes as output.
    pub fn raw(bytes: Bytes) -> Self {
        Answer { data: Data::Raw(bytes), ..Self::default() }
    }

    /// With a message too.
    #[must_use]
    pub fn with_message(mut self, outs: impl fmt::Display) -> Self {
        self.outs = outs.to_string();
        self
    }

    /// As a refusal.
    #[must_use]
    pub fn with_errno(mut self, errno: Errno) -> Self {
        self.errno = Some(errno);
        self
    }

    /// As it stands in a reply: result, message, output.
    pub fn into_reply(self, format: Format) -> (i32, String, Bytes) {
        let data = match self.data {
            Data::None => Bytes::new(),
            Data::Text(text) => text.into(),
            Data::Json(value) => json::print(&value, format).into(),
            Data::JsonLine(value) => {
                let format = if format.is_json() { format } else { Format::Json };
                json::print(&value, format).into()
            }
            Data::Raw(bytes) => bytes,
        };
        (self.errno.map_or(0, Errno::wire), self.outs, data)
    }
}

impl From<CommandError> for Answer {
    fn from(e: CommandError) -> Self {
        Answer { errno: Some(e.errno), outs: e.text, data: Data::None }
    }
}

/// The C library's text of an error number, as Ceph prints it after the number.
pub fn strerror(errno: Errno) -> String {
    let text = std::io::Error::from_raw_os_error(errno.0).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    format!("({}) {text}", errno.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies() {
        let answer = Answer::either(Format::Json, || serde_json::json!([1]), String::new);
        assert_eq!(answer.into_reply(Format::Json), (0, String::new(), "[1]".into()));
        let refused = Answer::from(CommandError::not_found("no such thing"));
        let reply = (-2, "no such thing".to_owned(), Bytes::new());
        assert_eq!(refused.into_reply(Format::Plain), reply);
        assert_eq!(strerror(Errno::EINVAL), "(22) Invalid argument");
    }
}
