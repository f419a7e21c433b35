//! How the cluster's state looks, as JSON with Ceph's field names and as Ceph's texts.
//!
//! Functions of the state only: what a command answers is put together in `commands`.

pub(crate) mod addr;
pub(crate) mod crush;
pub(crate) mod monmap;
pub(crate) mod osdmap;
pub(crate) mod pool;
pub(crate) mod tree;

use std::fmt::Display;
use std::time::Duration;
use types::{OsdId, UTime};

/// `[1,0,2]`, as Ceph prints vectors.
pub(crate) fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    format!("[{}]", join(items, ","))
}

/// Texts with something between them.
pub(crate) fn join<T: Display>(items: impl IntoIterator<Item = T>, between: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|i| i.to_string()).collect();
    items.join(between)
}

/// OSDs as JSON numbers; a hole is 2147483647.
pub(crate) fn ids(osds: &[OsdId]) -> Vec<i32> {
    osds.iter().map(|o| o.0).collect()
}

/// An OSD as a number; -1 for none.
pub(crate) fn id_or_none(osd: Option<OsdId>) -> i32 {
    osd.map_or(-1, |o| o.0)
}

/// A 16.16 weight as a number.
pub(crate) fn weight(w: u32) -> f64 {
    f64::from(w) / 65536.0
}

/// A weight in a table: five decimals, `0` for nothing (`weightf_t`).
pub(crate) fn weight_text(w: f64) -> String {
    match w {
        w if w < -0.01 => "-".to_owned(),
        w if w < 0.000_001 => "0".to_owned(),
        w => format!("{w:.5}"),
    }
}

/// Where an OSD or bucket stands: `root=default,host=h2`.
pub(crate) fn place_of(map: &maps::OsdMap, id: i32) -> String {
    let path = map.crush().location_path(id);
    join(path.iter().rev().map(|(kind, name)| format!("{kind}={name}")), ",")
}

/// Time from `then` to `now`; none if it lies ahead.
pub(crate) fn since(now: UTime, then: UTime) -> Duration {
    now.as_duration().saturating_sub(then.as_duration())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_texts() {
        assert_eq!(list([OsdId(1), OsdId::NONE]), "[1,NONE]");
        assert_eq!([1.5, 0.0, -1.0].map(weight_text), ["1.50000", "0", "-"]);
        let t = |sec| UTime { sec, nsec: 0 };
        assert_eq!(since(t(5), t(9)), Duration::ZERO);
    }
}
