//! Schedules by which trashes are emptied (`pybind/mgr/rbd_support/trash_purge_schedule.py`, `schedule.py`).
//!
//! A schedule belongs to a [`Level`]: everything, a pool, or a namespace; a trash follows the one of the nearest level
//! above it. Its items say "every so many minutes", counted from 1970 or from a time of day, in UTC. Schedules are
//! stored, when a trash is due next is not.

use crate::cluster::Cluster;
use crate::log::Level as Severity;
use crate::state::State;
use crate::store::keys;
use denc::{Decode, Encode};
use io::Now;
use maps::OsdMap;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Mono, PoolId, UTime};

/// Namespaces are looked for again so often (`REFRESH_DELAY_SECONDS`).
const REFRESH_EVERY: Duration = Duration::from_secs(60);
const MINUTES_A_DAY: u32 = 24 * 60;

/// A pool and a namespace of it: what has a trash.
pub(crate) type Place = (PoolId, String);

/// What a schedule is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Level {
    /// `None`: all pools.
    pub pool: Option<PoolId>,
    /// `None`: all namespaces.
    pub nspace: Option<String>,
}

impl Level {
    /// As Ceph names it, and as it is stored: ``, `POOL`, `POOL/NAMESPACE`.
    pub fn key(&self) -> String {
        match (self.pool, &self.nspace) {
            (None, _) => String::new(),
            (Some(pool), None) => pool.to_string(),
            (Some(pool), Some(nspace)) => format!("{pool}/{nspace}"),
        }
    }

    /// The reverse of [`Level::key`].
    pub fn from_key(key: &str) -> Option<Level> {
        if key.is_empty() {
            return Some(Level::default());
        }
        let (pool, nspace) = match key.split_once('/') {
            Some((pool, nspace)) => (pool, Some(nspace.to_owned())),
            None => (key, None),
        };
        Some(Level { pool: Some(PoolId(pool.parse().ok()?)), nspace })
    }

    /// For people; `None` when the pool is gone.
    pub fn name(&self, map: &OsdMap) -> Option<String> {
        let Some(pool) = self.pool else { return Some(String::new()) };
        let pool = map.pool_name(pool)?;
        Some(match &self.nspace {
            None => format!("{pool}/"),
            Some(nspace) => format!("{pool}/{nspace}/"),
        })
    }

    /// Whether it is below another one.
    pub fn is_below(&self, other: &Level) -> bool {
        self != other
            && (other.pool.is_none()
                || (other.pool == self.pool
                    && (other.nspace.is_none() || other.nspace == self.nspace)))
    }

    /// Whether a trash is in it.
    pub fn has(&self, (pool, nspace): &Place) -> bool {
        self.pool.is_none_or(|p| p == *pool) && self.nspace.as_ref().is_none_or(|n| n == nspace)
    }
}

/// One line of a schedule. Two that say the same in words of different zones are the same.
#[derive(Clone, Copy, Debug, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub(crate) struct Item {
    /// Every so many minutes, 1 at the least.
    pub minutes: u32,
    /// Counted from this minute of the day, in UTC.
    pub start_minute: Option<u32>,
    /// So far east of UTC was it said, in minutes; if it was.
    #[denc(since = 2)]
    pub zone_minutes: Option<i32>,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.minutes, self.start_minute).cmp(&(other.minutes, other.start_minute))
    }
}

impl Item {
    /// Every so many minutes, from a start on.
    pub fn new(minutes: u32, start: Option<Start>) -> Self {
        let (start_minute, zone_minutes) = (start.map(|s| s.minute), start.and_then(|s| s.zone));
        Item { minutes, start_minute, zone_minutes }
    }

    /// `1d`, `3h`, `15m`
    pub fn interval(&self) -> String {
        match self.minutes {
            n if n % MINUTES_A_DAY == 0 => format!("{}d", n / MINUTES_A_DAY),
            n if n % 60 == 0 => format!("{}h", n / 60),
            n => format!("{n}m"),
        }
    }

    /// `10:30:00`, or `10:30:00+02:00` when a zone was said.
    pub fn start(&self) -> Option<String> {
        let east = self.zone_minutes.unwrap_or(0);
        let minute = i64::from(self.start_minute?) + i64::from(east);
        let minute = minute.rem_euclid(i64::from(MINUTES_A_DAY));
        let clock = format!("{:02}:{:02}:00", minute / 60, minute % 60);
        Some(match self.zone_minutes {
            None => clock,
            Some(_) => {
                let (sign, away) = (if east < 0 { '-' } else { '+' }, east.unsigned_abs());
                format!("{clock}{sign}{:02}:{:02}", away / 60, away % 60)
            }
        })
    }

    /// When it is due next after a time.
    fn next_after(&self, now: UTime) -> UTime {
        let (period, start) = (i64::from(self.minutes), i64::from(self.start_minute.unwrap_or(0)));
        let minute = i64::from(now.sec / 60);
        let next = start + ((minute - start).div_euclid(period) + 1) * period;
        UTime { sec: u32::try_from(next * 60).unwrap_or(u32::MAX), nsec: 0 }
    }
}

/// Minutes of `15m`, `3h`, `1d`, or `15`; none of them is none.
pub(crate) fn parse_interval(text: &str) -> Option<u32> {
    let (digits, factor) = match text.strip_suffix(['d', 'h', 'm']) {
        Some(digits) if text.ends_with('d') => (digits, MINUTES_A_DAY),
        Some(digits) if text.ends_with('h') => (digits, 60),
        Some(digits) => (digits, 1),
        None => (text, 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let number = digits.parse::<u32>().ok().filter(|_| is_number)?;
    number.checked_mul(factor).filter(|minutes| *minutes > 0)
}

/// From when on something is done every so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Of the day, in UTC.
    pub minute: u32,
    /// The zone it was said in: so many minutes east of UTC.
    pub zone: Option<i32>,
}

/// Two digits of a clock.
fn two(text: &str, below: u32) -> Option<u32> {
    let is_number = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse::<u32>().ok().filter(|n| is_number && *n < below)
}

/// How far east `Z`, `+HH:MM`, `+HHMM` or `+HH` is, in minutes.
fn parse_zone(text: &str) -> Option<i32> {
    if text == "Z" {
        return Some(0);
    }
    let (sign, zone) = text.split_at_checked(1)?;
    let (hours, minutes) = match zone.split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None if zone.len() == 4 => zone.split_at_checked(2)?,
        None => (zone, "00"),
    };
    let minutes = i32::try_from(two(hours, 24)? * 60 + two(minutes, 60)?).ok()?;
    Some(if sign == "-" { -minutes } else { minutes })
}

/// When a schedule begins: `[DATE(T| )]HH:MM[:SS][ZONE]`.
pub(crate) fn parse_start(text: &str) -> Option<Start> {
    let text = text.trim();
    let clock = match text.split_once(['T', ' ']) {
        Some((date, clock)) => {
            let is_date = date.len() == 10 && date.bytes().all(|b| b.is_ascii_digit() || b == b'-');
            Some(clock).filter(|_| is_date)?
        }
        None => text,
    };
    let (clock, zone) = match clock.find(['Z', '+', '-']) {
        None => (clock, None),
        Some(at) => {
            let (clock, zone) = clock.split_at(at);
            (clock, Some(parse_zone(zone)?))
        }
    };
    let parts: Vec<&str> = clock.split(':').collect();
    let (hour, minute) = match parts[..] {
        [hour, minute] => (hour, minute),
        [hour, minute, second] => {
            two(second.split('.').next().unwrap_or_default(), 60)?;
            (hour, minute)
        }
        _ => return None,
    };
    let minute = i64::from(two(hour, 24)? * 60 + two(minute, 60)?) - i64::from(zone.unwrap_or(0));
    let minute = u32::try_from(minute.rem_euclid(i64::from(MINUTES_A_DAY))).ok()?;
    Some(Start { minute, zone })
}

/// When trashes are due.
#[derive(Debug, Default)]
pub(crate) struct Purges {
    /// Those with a schedule, as far as namespaces are known.
    next: BTreeMap<Place, UTime>,
    /// The one that is being emptied.
    running: Option<Place>,
    /// When namespaces were last asked for.
    asked: Option<Mono>,
}

impl Purges {
    /// What is scheduled, the next one first.
    pub fn scheduled(&self) -> Vec<(UTime, &Place)> {
        let mut all: Vec<_> = self.next.iter().map(|(place, at)| (*at, place)).collect();
        all.sort();
        all
    }
}

/// The schedule that a trash follows.
fn schedule_of<'a>(state: &'a State, (pool, nspace): &Place) -> Option<&'a BTreeSet<Item>> {
    let nearest = Level { pool: Some(*pool), nspace: Some(nspace.clone()) };
    let of_pool = Level { pool: Some(*pool), nspace: None };
    let levels = [nearest, of_pool, Level::default()];
    levels.iter().find_map(|level| state.purges.get(&level.key()))
}

fn next_run(state: &State, place: &Place, now: UTime) -> Option<UTime> {
    schedule_of(state, place)?.iter().map(|item| item.next_after(now)).min()
}

fn is_for_images(map: &OsdMap, pool: PoolId) -> bool {
    map.pool(pool).is_some_and(|p| p.application_metadata.contains_key("rbd"))
}

impl Cluster {
    /// A pool for images, by its name.
    pub fn pool_of_images(&self, name: &str) -> Option<PoolId> {
        self.map().pool_by_name(name).filter(|pool| is_for_images(self.map(), *pool))
    }

    /// Another line of a schedule.
    pub fn add_purge(&mut self, now: Now, level: &Level, item: Item) {
        let mut items = self.state.purges.get(&level.key()).cloned().unwrap_or_default();
        items.insert(item);
        self.set_purges(now, level, items);
    }

    /// One line less of a schedule, or none any more.
    pub fn remove_purge(&mut self, now: Now, level: &Level, item: Option<Item>) {
        let mut items = self.state.purges.get(&level.key()).cloned().unwrap_or_default();
        match item {
            Some(item) => drop(items.remove(&item)),
            None => items.clear(),
        }
        self.set_purges(now, level, items);
    }

    fn set_purges(&mut self, now: Now, level: &Level, items: BTreeSet<Item>) {
        let key = level.key();
        if items.is_empty() {
            self.draft.remove(keys::purge(&key));
            self.state.purges.remove(&key);
        } else {
            self.draft.put(keys::purge(&key), denc::encode(&items));
            self.state.purges.insert(key, items);
        }
        // What is due stays due.
        let state = &self.state;
        let places = std::mem::take(&mut self.purges.next).into_iter().filter_map(|(place, at)| {
            let next = next_run(state, &place, now.wall)?;
            Some((place, if at <= now.wall { at } else { next }))
        });
        self.purges.next = places.collect();
        self.purges.asked = None;
    }

    /// Pools whose namespaces are to be asked for now, for a schedule may concern them.
    pub fn pools_to_ask(&mut self, now: Now) -> Vec<PoolId> {
        let is_fresh = self.purges.asked.is_some_and(|at| now.mono.since(at) < REFRESH_EVERY);
        let nothing = self.state.purges.is_empty() && self.purges.next.is_empty();
        if is_fresh || nothing {
            return Vec::new();
        }
        let map = self.map().clone();
        let levels = self.state.purges.keys().filter_map(|key| Level::from_key(key));
        let (gone, levels): (Vec<_>, Vec<_>) = levels.partition(|l| l.name(&map).is_none());
        for level in gone {
            self.set_purges(now, &level, BTreeSet::new());
        }
        let concerned = |pool: &PoolId| levels.iter().any(|l| l.pool.is_none_or(|p| p == *pool));
        let wanted = |pool: &PoolId| is_for_images(&map, *pool) && concerned(pool);
        self.purges.asked = Some(now.mono);
        self.purges.next.retain(|(pool, _), _| wanted(pool));
        map.pools.keys().copied().filter(wanted).collect()
    }

    /// These are the namespaces of a pool, but for the one that has no name.
    pub fn found_namespaces(&mut self, now: Now, pool: PoolId, names: &[String]) {
        let names: BTreeSet<String> = names.iter().cloned().chain([String::new()]).collect();
        self.purges.next.retain(|(p, name), _| *p != pool || names.contains(name));
        for name in names {
            let place = (pool, name);
            let Some(at) = next_run(&self.state, &place, now.wall) else { continue };
            // One that is due stays so; one that is further away than the next was set by a wrong clock.
            let next = self.purges.next.entry(place).or_insert(at);
            *next = at.min(*next);
        }
    }

    /// The trash to be emptied now, if none is being emptied. It counts as begun.
    pub fn begin_purge(&mut self, now: Now) -> Option<Place> {
        if self.purges.running.is_some() {
            return None;
        }
        let (at, place) = self.purges.scheduled().into_iter().next()?;
        let place = (at <= now.wall).then(|| place.clone())?;
        self.purges.running = Some(place.clone());
        Some(place)
    }

    /// A trash is empty, or as far as it can be.
    pub fn purge_ended(&mut self, now: Now, result: Result<(), client::ClientError>) {
        let Some(place) = self.purges.running.take() else { return };
        if let Err(error) = result {
            let pool = self.map().pool_name(place.0).unwrap_or("a removed pool").to_owned();
            let text =
                format!("not all of the trash of {pool}/{} could be removed: {error}", place.1);
            self.say(now, Severity::Warn, text);
        }
        match next_run(&self.state, &place, now.wall) {
            Some(at) => drop(self.purges.next.insert(place, at)),
            None => drop(self.purges.next.remove(&place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::Encoder;

    #[test]
    fn intervals_and_times_of_day() {
        for (text, minutes) in
            [("15m", Some(15)), ("15", Some(15)), ("3h", Some(180)), ("2d", Some(2880))]
        {
            assert_eq!(parse_interval(text), minutes);
        }
        for text in ["", "m", "5x", "0m", "-1d", "1.5h", "4294967295d", "1d1h"] {
            assert_eq!(parse_interval(text), None, "{text}");
        }
        let interval = |minutes| Item::new(minutes, None).interval();
        assert_eq!([15, 180, 2880, 90].map(interval), ["15m", "3h", "2d", "90m"]);
        for (text, minute, shown) in [
            ("10:30", 630, "10:30:00"),
            ("10:30:59", 630, "10:30:00"),
            ("2026-01-01T00:07:00", 7, "00:07:00"),
            ("2026-01-01 00:07:00.5Z", 7, "00:07:00+00:00"),
            ("01:00+02:00", 23 * 60, "01:00:00+02:00"),
            ("01:00+0530", 19 * 60 + 30, "01:00:00+05:30"),
            ("23:30-01", 30, "23:30:00-01:00"),
        ] {
            let start = parse_start(text);
            assert_eq!(start.map(|s| s.minute), Some(minute), "{text}");
            assert_eq!(Item::new(15, start).start().as_deref(), Some(shown), "{text}");
        }
        for text in [
            "",
            "nonsense",
            "24:00",
            "10:60",
            "10",
            "1:30",
            "yesterday 10:30",
            "10:30+",
            "10:30+é",
            "10:30Zulu",
            "10:30:61",
        ] {
            assert_eq!(parse_start(text), None, "{text}");
        }
        let same = |text| Item::new(15, parse_start(text));
        assert_eq!(same("10:30Z"), same("10:30"));
        assert_eq!(same("12:30+02:00"), same("10:30"));
    }

    #[test]
    fn an_item_of_a_mon_before_knows_no_zone() {
        let mut e = Encoder::new();
        e.section(1, 1, |e| {
            15u32.encode(e);
            Some(7u32).encode(e);
        });
        let item: Item = denc::decode(&e.into_bytes()).unwrap();
        assert_eq!((item, item.zone_minutes), (Item::new(15, parse_start("00:07")), None));
    }

    #[test]
    fn an_item_is_due_again_and_again() {
        let at = |minute: u32| UTime { sec: minute * 60, nsec: 0 };
        let every =
            |minutes, start_minute: Option<u32>| Item { minutes, start_minute, zone_minutes: None };
        let day = 20_000 * MINUTES_A_DAY;
        for (item, now, next) in [
            (every(15, None), day, day + 15),
            (every(15, None), day + 14, day + 15),
            (every(15, Some(7)), day, day + 7),
            (every(15, Some(7)), day + 7, day + 22),
            (every(MINUTES_A_DAY, Some(630)), day, day + 630),
            (every(MINUTES_A_DAY, Some(630)), day + 630, day + MINUTES_A_DAY + 630),
        ] {
            assert_eq!(item.next_after(at(now)), at(next), "{item:?} at {now}");
        }
    }

    #[test]
    fn levels_are_named_and_lie_in_each_other() {
        let pool = Some(PoolId(2));
        let all = Level::default();
        let of_pool = Level { pool, nspace: None };
        let unnamed = Level { pool, nspace: Some(String::new()) };
        let named = Level { pool, nspace: Some("n".to_owned()) };
        for (level, key) in [(&all, ""), (&of_pool, "2"), (&unnamed, "2/"), (&named, "2/n")] {
            assert_eq!(level.key(), key);
            assert_eq!(Level::from_key(key).as_ref(), Some(level));
        }
        assert!(of_pool.is_below(&all) && named.is_below(&all) && named.is_below(&of_pool));
        assert!(!of_pool.is_below(&of_pool) && !named.is_below(&unnamed) && !all.is_below(&named));
        assert!(
            all.has(&(PoolId(9), "n".to_owned())) && !unnamed.has(&(PoolId(2), "n".to_owned()))
        );
    }
}
