//! `osd`: OSDs, the flags of their map, and where PGs are placed by hand.

mod blocklist;
mod df;
mod flags;
mod ids;
mod load;
mod place;
mod profile;
mod reweight;
mod safe;
mod show;
mod state;

pub(super) use load::latency_json;

use super::CommandDef;
use admin::CommandError;
use maps::OsdMap;
use types::OsdId;

pub(super) const THEMES: &[&[CommandDef]] = &[
    show::COMMANDS,
    df::COMMANDS,
    load::COMMANDS,
    reweight::COMMANDS,
    flags::COMMANDS,
    state::COMMANDS,
    ids::COMMANDS,
    safe::COMMANDS,
    place::COMMANDS,
    blocklist::COMMANDS,
    profile::COMMANDS,
];

/// Whether a list of OSDs means all of them.
fn means_all(word: &str) -> bool {
    matches!(word, "any" | "all" | "*")
}

/// `3` or `osd.3`.
///
/// # Errors
/// The reason, in Ceph's words.
pub(super) fn osd_id(word: &str) -> Result<OsdId, String> {
    let number = word.strip_prefix("osd.").unwrap_or(word);
    match number.parse::<i64>() {
        Ok(n) if n < 0 => Err(format!("osd id {n} is less than 0")),
        Ok(n) => match i32::try_from(n).map(OsdId) {
            Ok(id) if id.index().is_some() => Ok(id),
            _ => Err(format!("osd id {n} is too large")),
        },
        Err(_) => Err(format!("Expected option value to be integer, got '{number}'")),
    }
}

/// That an OSD exists.
///
/// # Errors
/// ENOENT, in Ceph's words.
fn check_exists(map: &OsdMap, id: OsdId) -> Result<(), CommandError> {
    if map.exists(id) {
        return Ok(());
    }
    Err(CommandError::not_found(format_args!("osd.{id} does not exist")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_osds() {
        assert_eq!(osd_id("osd.3"), Ok(OsdId(3)));
        assert_eq!(osd_id("0"), Ok(OsdId(0)));
        for bad in ["", "osd.", "abc", "-1", "2147483647", "99999999999999999999", "osd.osd.1"] {
            assert!(osd_id(bad).is_err(), "{bad}");
        }
    }
}
