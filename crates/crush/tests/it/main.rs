//! Against Ceph: sample maps and mappings made by it, and its tools where they are installed.
#![allow(missing_docs, clippy::unwrap_used)]

mod damage;
mod edits;
mod mappings;
mod samples;
mod sha256;
mod text;
mod tools;
mod transcript;
