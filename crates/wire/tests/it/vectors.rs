//! Reading the samples in `vectors/`.

use bytes::Bytes;
use serde_json::Value;
use std::path::PathBuf;

pub fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors")).join(name)
}

pub fn json(name: &str) -> Value {
    let text = std::fs::read_to_string(path(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub fn unhex(text: &str) -> Bytes {
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|p| digit(p[0]) << 4 | digit(p[1])).collect::<Vec<u8>>().into()
}

/// One direction of a captured connection.
#[derive(Clone)]
pub struct Stream {
    /// `none-rados-put/0-mon-c2s.bin`
    pub name: String,
    pub bytes: Bytes,
}

impl Stream {
    /// The same connection's other direction.
    pub fn other(&self) -> Stream {
        let name = if self.is_c2s() {
            self.name.replace("c2s", "s2c")
        } else {
            self.name.replace("s2c", "c2s")
        };
        load(&name)
    }

    pub fn is_c2s(&self) -> bool {
        self.name.ends_with("c2s.bin")
    }

    pub fn server(&self) -> types::EntityType {
        match self.name.split('-').rev().nth(1).unwrap() {
            "mon" => types::EntityType::MON,
            "osd" => types::EntityType::OSD,
            "mds" => types::EntityType::MDS,
            other => panic!("{other}"),
        }
    }
}

fn load(name: &str) -> Stream {
    let bytes = std::fs::read(path("wire").join(name)).unwrap().into();
    Stream { name: name.to_owned(), bytes }
}

/// All captured streams of conversations whose name begins so, in order.
pub fn streams(prefix: &str) -> Vec<Stream> {
    let mut names = Vec::new();
    for folder in std::fs::read_dir(path("wire")).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        if !name.starts_with(prefix) {
            continue;
        }
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let file = file.unwrap().file_name().into_string().unwrap();
            if file.ends_with(".bin") {
                names.push(format!("{name}/{file}"));
            }
        }
    }
    names.sort();
    assert!(!names.is_empty(), "no captures of {prefix}");
    names.iter().map(|name| load(name)).collect()
}
