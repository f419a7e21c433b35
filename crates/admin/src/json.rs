//! JSON as Ceph's formatter prints it (`common/Formatter.cc`).
//!
//! Keys keep the order they were put in. Fractions have up to 17 significant digits, whole ones no
//! point; control characters are escaped as `\u00XX` but for newline and tab.

use crate::units::general;
use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

/// How an answer is to be printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Plain,
    /// One line.
    Json,
    /// Indented by four spaces.
    JsonPretty,
}

impl Format {
    /// The format of a command's `format` argument. Ceph takes an unknown word for `plain`; its
    /// XML and HTML forms, which we do not print, become indented JSON.
    pub fn from_name(name: &str) -> Format {
        match name {
            "json" => Format::Json,
            "json-pretty" | "xml" | "xml-pretty" | "html" | "html-pretty" => Format::JsonPretty,
            _ => Format::Plain,
        }
    }

    /// Whether it is JSON.
    pub fn is_json(self) -> bool {
        self != Format::Plain
    }
}

/// Significant digits of fractions: enough to give back the same f64.
const DIGITS: usize = 17;

/// Prints a value; the indented form ends with a newline, as Ceph's does.
pub fn print<T: Serialize + ?Sized>(value: &T, format: Format) -> String {
    let mut out = Vec::new();
    let written = match format {
        Format::Json => write(value, &mut out, CompactFormatter),
        Format::Plain | Format::JsonPretty => {
            let pretty = PrettyFormatter::with_indent(b"    ");
            write(value, &mut out, pretty).and_then(|()| out.write_all(b"\n"))
        }
    };
    written.expect("writing to memory does not fail");
    String::from_utf8(out).expect("JSON is text")
}

fn write<T: Serialize + ?Sized, F: Formatter>(
    value: &T,
    out: &mut Vec<u8>,
    inner: F,
) -> io::Result<()> {
    let mut ser = Serializer::with_formatter(out, CephJson(inner));
    value.serialize(&mut ser).map_err(io::Error::from)
}

/// Another formatter, with Ceph's numbers and escapes.
struct CephJson<F>(F);

impl<F: Formatter> Formatter for CephJson<F> {
    fn write_f64<W: ?Sized + Write>(&mut self, w: &mut W, value: f64) -> io::Result<()> {
        w.write_all(general(value, DIGITS).as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, w: &mut W, c: CharEscape) -> io::Result<()> {
        match c {
            CharEscape::Backspace => w.write_all(b"\\u0008"),
            CharEscape::FormFeed => w.write_all(b"\\u000c"),
            CharEscape::CarriageReturn => w.write_all(b"\\u000d"),
            c => self.0.write_char_escape(w, c),
        }
    }

    fn begin_array<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.0.begin_array(w)
    }

    fn end_array<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.0.end_array(w)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(w, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.0.end_array_value(w)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.0.begin_object(w)
    }

    fn end_object<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.0.end_object(w)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(w, first)
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.0.end_object_key(w)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.0.begin_object_value(w)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.0.end_object_value(w)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn looks_as_ceph_prints_it() {
        let v = json!({"z": 1.0, "a": [0.85f32 as f64, 0.1], "e": [], "o": {}, "s": "a\"\n\u{1}\u{8}/é"});
        assert_eq!(
            print(&v, Format::Json),
            "{\"z\":1,\"a\":[0.85000002384185791,0.10000000000000001],\"e\":[],\"o\":{},\
             \"s\":\"a\\\"\\n\\u0001\\u0008/é\"}"
        );
        let pretty = print(&json!({"a": [1, 2], "b": {"c": true}}), Format::JsonPretty);
        assert_eq!(
            pretty,
            "{\n    \"a\": [\n        1,\n        2\n    ],\n    \"b\": {\n        \"c\": true\n    }\n}\n"
        );
    }
}
