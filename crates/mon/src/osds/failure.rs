//! OSDs that others find silent.
//!
//! An OSD is marked down when enough others, on different hosts, have not heard from it for longer
//! than the grace. The grace grows with how often an OSD was marked down though it lived, so that a
//! slow machine does not come and go. Source: Ceph `mon/OSDMonitor.cc: prepare_failure,
//! check_failure`; what differs: reports are weighed together and a moment after they came, those
//! against the most accused OSD first, and whoever is marked down by them is not heard any more. So
//! when two halves accuse each other the larger one stays. And where fewer hosts are there than have
//! to report, those that are there suffice.

use crate::cluster::Cluster;
use crate::show::place_of;
use io::Now;
use maps::{OsdMap, OsdXInfo};
use peer::{FailureKind, OsdFailure};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;
use std::time::Duration;
use types::{Epoch, Mono, OsdId, UTime};

/// Reports are weighed so long after the first one came: the others are on their way.
pub(crate) const WEIGH_AFTER: Duration = Duration::from_millis(300);
/// A report that was not repeated for so long is void.
const REPORT_LIFE: Duration = Duration::from_secs(20);

/// What is said of an OSD.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    up_from: Epoch,
    reports: BTreeMap<OsdId, Report>,
}

#[derive(Debug)]
struct Report {
    /// Since when the reporter has had no answer.
    since: Mono,
    at: Mono,
}

/// Enough is said against an OSD.
struct Case {
    reporters: usize,
    silent: Duration,
    grace: Duration,
}

/// The OSDs that are up, but for those that are condemned. All may be accused at once: what they stand in is looked up
/// once, not for each of them.
struct Living {
    /// What each shares its fate with.
    subtrees: BTreeMap<OsdId, i32>,
    /// How many are in each of these.
    counts: BTreeMap<i32, usize>,
}

impl Living {
    fn of(map: &OsdMap, level: &str) -> Self {
        let crush = map.crush();
        let level = crush.type_id(level).and_then(|l| u16::try_from(l).ok()).filter(|l| *l > 0);
        let parents = crush.parents();
        let subtree = |id: OsdId| {
            let mut above = successors(parents.get(&id.0), |bucket| parents.get(&bucket.id()));
            let found = above.find(|bucket| Some(bucket.kind()) == level);
            found.map_or(id.0, |bucket| bucket.id())
        };
        let subtrees: BTreeMap<OsdId, i32> = map.up_osds().map(|id| (id, subtree(id))).collect();
        let mut counts = BTreeMap::new();
        subtrees.values().for_each(|subtree| *counts.entry(*subtree).or_default() += 1);
        Living { subtrees, counts }
    }

    fn remove(&mut self, id: OsdId) {
        let Some(subtree) = self.subtrees.remove(&id) else { return };
        if let Entry::Occupied(mut count) = self.counts.entry(subtree) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// How many subtrees have somebody who could speak of this one.
    fn subtrees_without(&self, id: OsdId) -> usize {
        let own = self.subtrees.get(&id).and_then(|subtree| self.counts.get(subtree));
        self.counts.len() - usize::from(own == Some(&1))
    }
}

impl Cluster {
    /// An OSD speaks of another one. Whether there is something to weigh.
    pub fn failure(&mut self, now: Now, m: &OsdFailure) -> bool {
        let map = self.map().clone();
        let current = map.osd(m.target).map(|o| o.info.up_from) == Some(m.up_from);
        if !current || !map.is_up(m.target) || !map.is_up(m.reporter) || m.reporter == m.target {
            return false;
        }
        let (target, reporter) = (m.target, m.reporter);
        match m.what {
            FailureKind::Answers => {
                if let Some(failure) = self.failures.get_mut(&target) {
                    failure.reports.remove(&reporter);
                    tracing::debug!("osd.{reporter} hears osd.{target} again");
                }
                false
            }
            FailureKind::Refused if self.may_mark_down(target) && !self.draft.touches(target) => {
                let why = format!("reported immediately failed by osd.{reporter}");
                self.mark_down(now, target, &why);
                false
            }
            FailureKind::Refused | FailureKind::Silent => {
                tracing::debug!(
                    "osd.{reporter} reports osd.{target}: silent for {} ms",
                    m.silent_ms
                );
                let failure = self.failures.entry(target).or_default();
                if failure.up_from != m.up_from {
                    *failure = Failure { up_from: m.up_from, ..Failure::default() };
                }
                let silent = Duration::from_millis(m.silent_ms).as_nanos();
                let silent = u64::try_from(silent).unwrap_or(u64::MAX);
                let since = Mono(now.mono.0.saturating_sub(silent));
                failure.reports.insert(reporter, Report { since, at: now.mono });
                true
            }
        }
    }

    /// Marks those down that enough others accuse.
    pub fn failed_osds(&mut self, now: Now) {
        self.forget_void_reports(now);
        if self.failures.is_empty() {
            return;
        }
        let mut living =
            Living::of(self.map(), self.settings.str("mon_osd_reporter_subtree_level"));
        let mut accused: Vec<OsdId> = self.failures.keys().copied().collect();
        accused.sort_by_key(|id| Reverse(self.failures.get(id).map_or(0, |f| f.reports.len())));
        for id in accused {
            let Some(case) = self.weigh(now, id, &living) else { continue };
            if self.draft.touches(id) || !self.may_mark_down(id) || !self.enough_are_up() {
                continue;
            }
            living.remove(id);
            self.failures.remove(&id);
            let level = self.settings.str("mon_osd_reporter_subtree_level").to_owned();
            let text = format!(
                "failed ({}) ({} reporters from different {level} after {:.1} >= grace {:.1})",
                place_of(self.map(), id.0),
                case.reporters,
                case.silent.as_secs_f64(),
                case.grace.as_secs_f64(),
            );
            self.mark_down(now, id, &text);
        }
    }

    fn forget_void_reports(&mut self, now: Now) {
        let map = self.map().clone();
        self.failures.retain(|target, failure| {
            let lives = map.osd(*target).map(|o| o.info.up_from) == Some(failure.up_from);
            let heard =
                |by: &OsdId, r: &Report| map.is_up(*by) && now.mono.since(r.at) < REPORT_LIFE;
            failure.reports.retain(|by, r| heard(by, r));
            lives && map.is_up(*target) && !failure.reports.is_empty()
        });
    }

    fn weigh(&self, now: Now, id: OsdId, living: &Living) -> Option<Case> {
        let failure = self.failures.get(&id)?;
        let heard = || failure.reports.iter().filter(|(by, _)| living.subtrees.contains_key(by));
        let silent = now.mono.since(heard().map(|(_, r)| r.since).min()?);
        let reporters: Vec<OsdId> = heard().map(|(by, _)| *by).collect();
        let grace = self.grace(now, id, reporters.iter().copied());
        if silent < grace {
            return None;
        }
        let wanted = self.settings.uint("mon_osd_min_down_reporters");
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let wanted = wanted.min(living.subtrees_without(id)).max(1);
        let places: BTreeSet<_> = reporters.iter().map(|by| living.subtrees.get(by)).collect();
        let reporters = reporters.len();
        (places.len() >= wanted).then_some(Case { reporters, silent, grace })
    }

    /// The configured grace, and what the OSD's and its accusers' pasts add.
    fn grace(&self, now: Now, id: OsdId, by: impl ExactSizeIterator<Item = OsdId>) -> Duration {
        let grace = self.settings.float("osd_heartbeat_grace");
        if !self.settings.bool("mon_osd_adjust_heartbeat_grace") {
            return types::seconds(grace);
        }
        let accusers = by.len().max(1) as f64;
        let theirs: f64 = by.map(|o| self.laggy(now, o)).sum();
        types::seconds(grace + self.laggy(now, id) + theirs / accusers)
    }

    /// For how many seconds an OSD is likely to be silent though it lives.
    fn laggy(&self, now: Now, id: OsdId) -> f64 {
        let Some(osd) = self.map().osd(id) else { return 0.0 };
        let halflife = self.settings.float("mon_osd_laggy_halflife").max(1.0);
        let age = now.wall.as_duration().saturating_sub(osd.xinfo.down_stamp.as_duration());
        let decay = (-std::f64::consts::LN_2 * age.as_secs_f64() / halflife).exp();
        decay * f64::from(osd.xinfo.laggy_interval) * osd.xinfo.laggy_probability()
    }

    /// What a boot says of the OSD's past: whether it was marked down though it lived.
    pub fn learn_laggy(&self, now: Now, xinfo: OsdXInfo, was_alive: bool) -> OsdXInfo {
        let weight = self.settings.float("mon_osd_laggy_weight");
        let old = (xinfo.laggy_probability() * (1.0 - weight), f64::from(xinfo.laggy_interval));
        let (share, interval) = if was_alive && xinfo.down_stamp != UTime::ZERO {
            let down = now.wall.as_duration().saturating_sub(xinfo.down_stamp.as_duration());
            let most = self.settings.float("mon_osd_laggy_max_interval");
            let down = down.as_secs_f64().min(most);
            (old.0 + weight, down * weight + old.1 * (1.0 - weight))
        } else {
            (old.0, old.1 * (1.0 - weight))
        };
        OsdXInfo {
            laggy_probability: (share.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32,
            laggy_interval: interval.round() as u32,
            ..xinfo
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use crush::{CrushMap, Location, WEIGHT_ONE};
    use maps::{OsdAddrs, OsdMapFlags, WEIGHT_IN};
    use types::AddrVec;

    /// A cluster whose OSDs stand on these hosts, all up.
    fn cluster_of(hosts: &[i32]) -> Cluster {
        let mut bench = Bench::new();
        let hosts: Vec<(i32, i32)> = (0..).zip(hosts.iter().copied()).collect();
        let place = |inc: &mut maps::Incremental, map: &OsdMap| {
            let mut crush = CrushMap::clone(map.crush());
            inc.new_max_osd = Some(8);
            for id in map.up_osds().filter(|id| id.0 >= hosts.len() as i32) {
                inc.mark_down(id);
            }
            for &(id, host) in &hosts {
                let at = Location::parse(&[&format!("host=t{host}"), "root=default"]).unwrap();
                crush.create_or_move_item(id, WEIGHT_ONE, &format!("osd.{id}"), &at).unwrap();
                if !map.is_up(OsdId(id)) {
                    let client = AddrVec::msgr2("10.0.0.9:6800".parse().unwrap(), id as u32 + 1);
                    inc.mark_up(OsdId(id), OsdAddrs { client, ..OsdAddrs::default() });
                    inc.new_weight.insert(OsdId(id), WEIGHT_IN);
                }
            }
            inc.set_crush(&crush);
        };
        bench.c.change(place).unwrap();
        bench.commit();
        bench.c
    }

    fn at(tenths: u64) -> Now {
        let mono = Mono(1_000_000_000_000 + tenths * 100_000_000);
        Now { mono, wall: UTime { sec: 1_800_000_000, nsec: 0 } }
    }

    fn report(c: &mut Cluster, reporter: i32, target: i32, what: FailureKind, t: u64) -> bool {
        let up_from = c.map().osd(OsdId(target)).unwrap().info.up_from;
        let (reporter, target) = (OsdId(reporter), OsdId(target));
        c.failure(at(t), &OsdFailure { reporter, target, up_from, silent_ms: 3100, what })
    }

    const NOBODY: [i32; 0] = [];

    fn down(c: &Cluster) -> Vec<i32> {
        let map = c.map();
        let known = |id: &OsdId| map.osd(*id).is_some_and(|o| o.info.up_from.0 > 0);
        let here = map.existing_osds().filter(known);
        here.filter(|id| c.state.osdmap.is_up(*id) && map.is_down(*id)).map(|id| id.0).collect()
    }

    #[test]
    fn two_hosts_must_say_it() {
        // osd.0 and osd.1 are on one host.
        let mut c = cluster_of(&[0, 0, 1, 2]);
        assert!(report(&mut c, 0, 3, FailureKind::Silent, 0));
        assert!(report(&mut c, 1, 3, FailureKind::Silent, 0));
        c.failed_osds(at(1));
        assert_eq!(down(&c), NOBODY);
        assert!(report(&mut c, 2, 3, FailureKind::Silent, 1));
        c.failed_osds(at(1));
        assert_eq!(down(&c), [3]);
        assert!(c.failures.is_empty());
    }

    /// What all stand in is looked at once, and who is condemned is neither a witness nor one that could be.
    #[test]
    fn those_who_live_are_counted_by_what_they_stand_in() {
        let c = cluster_of(&[0, 0, 1, 2]);
        let mut living = Living::of(c.map(), "host");
        let without = |living: &Living| [0, 2, 3].map(|id| living.subtrees_without(OsdId(id)));
        assert_eq!(without(&living), [3, 2, 2]);
        for id in 0..4 {
            let host = c.map().crush().ancestor_of_type(id, 1);
            assert_eq!(living.subtrees.get(&OsdId(id)).copied(), host);
        }
        living.remove(OsdId(3));
        living.remove(OsdId(3));
        assert_eq!(without(&living), [2, 1, 2]);
        living.remove(OsdId(1));
        assert_eq!(without(&living), [1, 1, 2]);
        let each = Living::of(c.map(), "no such level");
        assert!(each.subtrees.iter().all(|(id, subtree)| id.0 == *subtree));
    }

    #[test]
    fn what_is_taken_back_or_old_does_not_count() {
        let mut c = cluster_of(&[0, 1, 2, 3]);
        report(&mut c, 0, 3, FailureKind::Silent, 0);
        report(&mut c, 1, 3, FailureKind::Silent, 0);
        report(&mut c, 1, 3, FailureKind::Answers, 1);
        c.failed_osds(at(2));
        assert_eq!(down(&c), NOBODY);
        report(&mut c, 1, 3, FailureKind::Silent, 250);
        c.failed_osds(at(250));
        assert_eq!(down(&c), NOBODY, "the other report is older than {REPORT_LIFE:?}");
        report(&mut c, 0, 3, FailureKind::Silent, 251);
        c.failed_osds(at(251));
        assert_eq!(down(&c), [3]);
    }

    #[test]
    fn of_two_parts_that_accuse_each_other_the_larger_stays() {
        let mut c = cluster_of(&[0, 1, 2]);
        for (by, of) in [(2, 0), (2, 1), (0, 2), (1, 2)] {
            report(&mut c, by, of, FailureKind::Silent, 0);
        }
        c.failed_osds(at(1));
        assert_eq!(down(&c), [2]);
        // With two only, one of them must stay.
        let mut c = cluster_of(&[0, 1]);
        report(&mut c, 1, 0, FailureKind::Silent, 0);
        report(&mut c, 0, 1, FailureKind::Silent, 0);
        c.failed_osds(at(1));
        assert_eq!(down(&c).len(), 1);
    }

    #[test]
    fn a_refused_connection_needs_no_second_witness_but_flags_hold() {
        let mut c = cluster_of(&[0, 1, 2]);
        c.change(|inc, map| inc.new_flags = Some(map.flags.with(OsdMapFlags::NODOWN))).unwrap();
        report(&mut c, 0, 2, FailureKind::Refused, 0);
        c.failed_osds(at(1));
        assert_eq!(down(&c), NOBODY);
        c.change(|inc, map| inc.new_flags = Some(map.flags.without(OsdMapFlags::NODOWN))).unwrap();
        assert!(!report(&mut c, 0, 2, FailureKind::Refused, 2));
        assert_eq!(down(&c), [2]);
    }

    #[test]
    fn whoever_was_marked_down_wrongly_gets_more_time() {
        let c = cluster_of(&[0, 1, 2]);
        let down_stamp = UTime { sec: 1_800_000_000 - 100, nsec: 0 };
        let fresh = OsdXInfo { down_stamp, ..OsdXInfo::default() };
        let once = c.learn_laggy(at(0), fresh, true);
        assert_eq!(once.laggy_interval, 30);
        assert!((once.laggy_probability() - 0.3).abs() < 1e-6);
        let twice = c.learn_laggy(at(0), once, true);
        assert!(twice.laggy_probability() > once.laggy_probability());
        let well = c.learn_laggy(at(0), twice, false);
        assert!(well.laggy_probability() < twice.laggy_probability());
        assert!(well.laggy_interval < twice.laggy_interval);
    }
}
