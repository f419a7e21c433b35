//! What mon and OSD share towards their operators.
//!
//! * [`command`]: tables of commands, from one line of signature each to the descriptions that
//!   Ceph's tools ask for, and typed access to the arguments of a command that came;
//! * [`answer`]: what a command answers, and how it stands on the wire in each format;
//! * [`json`], [`table`], [`units`]: Ceph's JSON, its plain tables, its bytes and durations;
//! * [`settings`]: options with types, bounds and sources, and the reason for each value;
//! * [`options`]: the options of OSDs;
//! * [`perf`]: the shapes of `perf dump` and `perf schema`;
//! * [`server`]: the admin socket, without I/O;
//! * [`common`]: the commands every daemon has there.
//!
//! Nothing here knows what a command does. Bytes from outside never panic.

pub mod answer;
pub mod command;
pub mod common;
pub mod json;
pub mod options;
pub mod perf;
pub mod server;
pub mod settings;
pub mod table;
pub mod units;

pub use answer::{Answer, CommandError, Data, strerror};
pub use command::{Args, CommandTable, Spec};
pub use json::Format;
pub use server::{AdminEvent, AdminRequest, AdminServer};
pub use settings::{OptionDef, OptionKind, Settings, Source};
pub use table::{Align, TextTable};
