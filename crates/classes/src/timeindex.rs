//! Class `timeindex`: entries in an omap, found by their time (`src/cls/timeindex`).

use crate::input::args;
use crate::{CallResult, Method, Object, omap};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::cmp::Ordering;
use types::{Errno, UTime};

/// The methods.
pub const METHODS: &[Method] = &[
    Method::write("timeindex", "add", add),
    Method::read("timeindex", "list", list),
    Method::write("timeindex", "trim", trim),
];

const PREFIX: &[u8] = b"1_";
/// Entries of one `list`.
const MAX_LISTED: u64 = 1000;
/// Entries of one `trim`.
const MAX_TRIMMED: u64 = 1000;
/// Bytes of an entry's name that `list` gives back.
const MAX_SHOWN_NAME: usize = 255;

/// cls_timeindex_entry V(1,1).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Entry {
    time: UTime,
    name: Bytes,
    value: Bytes,
}

#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct AddArgs {
    entries: Vec<Entry>,
}

/// V(1,1); an end before the beginning means no end.
#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct ListArgs {
    from: UTime,
    /// A key to begin after, instead of the time.
    marker: Bytes,
    /// Not inclusive.
    to: UTime,
    max_entries: i32,
}

#[derive(Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Listed {
    entries: Vec<Entry>,
    marker: Bytes,
    truncated: bool,
}

/// V(1,1); markers, if not empty, count instead of the times.
#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct TrimArgs {
    from: UTime,
    /// Inclusive.
    to: UTime,
    from_marker: Bytes,
    to_marker: Bytes,
}

/// Keys and values after a key.
fn after(o: &mut dyn Object, key: Bytes, max: u64) -> CallResult<Vec<(Bytes, Bytes)>> {
    let listed = omap::list_after_key(o, PREFIX, key, max)?;
    Ok(listed.into_iter().map(|(name, value)| (omap::key(PREFIX, &name), value)).collect())
}

/// How keys of this time begin.
fn time_key(time: UTime) -> Bytes {
    format!("1_{:010}.{:06}_", time.sec, time.nsec / 1000).into()
}

fn marker_or(marker: Bytes, time: UTime) -> Bytes {
    if marker.is_empty() { time_key(time) } else { marker }
}

/// Compares as much of a key as the bound has.
fn against(key: &[u8], bound: &[u8]) -> Ordering {
    key.get(..bound.len()).unwrap_or(key).cmp(bound)
}

/// The leading decimal number of a text, and what follows it.
fn number(text: &[u8]) -> (u32, &[u8]) {
    let digits = text.iter().take_while(|c| c.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    let value = std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok()).unwrap_or(0);
    (value, rest)
}

/// The entry of a key. Ceph reads the microseconds back as nanoseconds, and a name up to its first
/// blank. (What is no key of `add` gets whatever Ceph's last call left in memory; here it is empty.)
fn entry(key: &[u8], value: Bytes) -> Entry {
    let behind = |text: &[u8], c: u8| text.strip_prefix(&[c]).map(<[u8]>::to_vec);
    let (sec, rest) = number(key.get(PREFIX.len()..).unwrap_or_default());
    let rest = behind(rest, b'.').unwrap_or_default();
    let (micros, rest) = number(&rest);
    let name = behind(rest, b'_').unwrap_or_default();
    let end = name.iter().position(u8::is_ascii_whitespace).unwrap_or(name.len());
    let name = Bytes::copy_from_slice(name.get(..end.min(MAX_SHOWN_NAME)).unwrap_or_default());
    Entry { time: UTime { sec, nsec: micros }, name, value }
}

fn add(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let AddArgs { entries } = args(input)?;
    for e in entries {
        omap::put_raw(o, &omap::key(time_key(e.time), &e.name), e.value)?;
    }
    Ok(Bytes::new())
}

fn list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: ListArgs = args(input)?;
    // A negative number is a large one.
    let max = u64::try_from(a.max_entries).unwrap_or(MAX_LISTED).min(MAX_LISTED);
    let to = (a.to >= a.from).then(|| time_key(a.to));
    let found = after(o, marker_or(a.marker, a.from), max + 1)?;
    let mut out = Listed { entries: Vec::new(), marker: Bytes::new(), truncated: false };
    let mut left = found.len();
    for (key, value) in found.into_iter().take(max as usize) {
        if to.as_ref().is_some_and(|to| against(&key, to).is_ge()) {
            left = 0;
            break;
        }
        left -= 1;
        // A bare prefix is no entry.
        if key != PREFIX {
            out.entries.push(entry(&key, value));
        }
        out.marker = key;
    }
    out.truncated = left > 0;
    Ok(denc::encode(&out))
}

fn trim(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: TrimArgs = args(input)?;
    let from = marker_or(a.from_marker, a.from);
    let to = marker_or(a.to_marker, a.to);
    let found = after(o, from, MAX_TRIMMED)?;
    let keys = found.into_iter().map(|(key, _)| key);
    let keys: Vec<Bytes> = keys.take_while(|key| against(key, &to).is_le()).collect();
    if keys.is_empty() {
        return Err(Errno::ENODATA.into());
    }
    o.omap_remove(&keys)?;
    Ok(Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemObject;

    fn at(sec: u32, micros: u32) -> UTime {
        UTime { sec, nsec: micros * 1000 }
    }

    fn filled() -> MemObject {
        let mut o = MemObject::new();
        let entry = |sec, name: &'static str| Entry {
            time: at(sec, 7),
            name: name.into(),
            value: "v".into(),
        };
        let entries = vec![entry(3, "c"), entry(1, "a"), entry(2, "b d"), entry(2, "")];
        assert_eq!(o.run("timeindex.add", AddArgs { entries }), Ok(()));
        o
    }

    fn list(o: &mut MemObject, from: u32, to: u32, marker: &Bytes, max: i32) -> Listed {
        let (from, to, marker) = (at(from, 0), at(to, 0), marker.clone());
        o.get("timeindex.list", ListArgs { from, marker, to, max_entries: max }).unwrap()
    }

    #[test]
    fn entries_are_listed_by_time() {
        let mut o = filled();
        assert!(o.state.omap.contains_key(&b"1_0000000001.000007_a"[..]));
        let none = Bytes::new();
        let names = |l: &Listed| l.entries.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
        let all = list(&mut o, 0, 9, &none, -1);
        assert_eq!(names(&all), ["a", "", "b", "c"]);
        assert_eq!(all.entries[0].time, UTime { sec: 1, nsec: 7 });
        assert!(!all.truncated && all.marker == "1_0000000003.000007_c");
        let some = list(&mut o, 0, 9, &none, 1);
        assert!(some.truncated && names(&some) == ["a"]);
        let more = list(&mut o, 0, 9, &some.marker, 10);
        assert_eq!(names(&more), ["", "b", "c"]);
        let until = list(&mut o, 1, 3, &none, 10);
        assert_eq!(names(&until), ["a", "", "b"]);
        assert!(!until.truncated && until.marker == "1_0000000002.000007_b d");
        o.state.omap.insert("1_".into(), "no entry".into());
        assert_eq!(list(&mut o, 0, 9, &"0".into(), 10).entries.len(), 4);
        // The end is before the beginning: there is none.
        assert_eq!(names(&list(&mut o, 2, 0, &none, 10)), ["", "b", "c"]);
        assert!(list(&mut o, 0, 9, &none, 0).truncated);
    }

    #[test]
    fn entries_are_trimmed_until_there_are_none() {
        let mut o = filled();
        let trim = |o: &mut MemObject| {
            let (from_marker, to_marker) = (Bytes::new(), Bytes::new());
            let a = TrimArgs { from: at(0, 0), to: at(2, 7), from_marker, to_marker };
            o.run("timeindex.trim", a)
        };
        assert_eq!(trim(&mut o), Ok(()));
        assert_eq!(o.state.omap.len(), 1);
        assert_eq!(trim(&mut o), Err(Errno::ENODATA));
    }
}
