//! `osd crush`: the hierarchy, its rules, classes and weights; and the map as a whole.

mod classes;
mod items;
mod map;
mod rules;
mod show;
mod weights;

use super::{Call, CommandDef};
use admin::CommandError;
use crush::{CrushError, CrushMap, Location};
use types::Errno;

pub(super) const THEMES: &[&[CommandDef]] = &[
    show::COMMANDS,
    items::COMMANDS,
    rules::COMMANDS,
    classes::COMMANDS,
    weights::COMMANDS,
    map::COMMANDS,
];

/// The place a command names: `host=h0 root=default`.
fn location(call: &Call) -> Result<Location, CommandError> {
    let words = call.args.list("args");
    Location::parse(&words).map_err(|e| CommandError::new(e.errno(), e))
}

/// A device that the map does not know by the name of a command.
fn not_there(name: &str) -> CommandError {
    CommandError::not_found(format_args!("device '{name}' does not appear in the crush map"))
}

/// A bucket or device by its name.
fn item(crush: &CrushMap, name: &str) -> Result<i32, CommandError> {
    crush.item_id(name).ok_or_else(|| not_there(name))
}

/// A weight as it was typed.
fn weight(call: &Call) -> Result<(f64, u32), CommandError> {
    let weight = call.args.float("weight").unwrap_or_default();
    let fixed = crush::weight_from_f64(weight)
        .map_err(|e: CrushError| CommandError::new(Errno::EINVAL, e))?;
    Ok((weight, fixed))
}
