//! I/O of clients by image, for `rbd perf image iostat` and `iotop`.
//!
//! While somebody asks, and for a minute after, OSDs count ([`ImagesAsked`]) and say in their reports what each
//! image had of each of them. What comes of it are the commands `rbd perf image stats` and `counters` of Ceph's
//! module `rbd_support` (`perf.py`). Nothing of it is stored.

mod names;

use names::Names;
use peer::{ImageCounts, ImageIo, ImagesAsked};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Mono, OsdId, PoolId};
use wire::LinkId;

pub(crate) use names::MAX_NAMES;

/// So long after the last question nobody wants to know any more (`QUERY_EXPIRE_INTERVAL`).
const WANTED_FOR: Duration = Duration::from_secs(60);
/// How often OSDs are told that somebody still wants to know.
const TELL_EVERY: Duration = Duration::from_secs(20);
/// What an OSD said so long ago says nothing of the present. OSDs report twice in it.
const STALE_AFTER: Duration = Duration::from_secs(12);
/// Images that are remembered, at most. When there are so many, those that no OSD spoke of lately are forgotten, every
/// now and then; others are passed over.
const MAX_IMAGES: usize = 16_384;
/// How often.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// Counters of an image.
pub(crate) const COUNTERS: usize = 6;

/// What is counted, by the names and in the order of Ceph. Latencies are in nanoseconds.
pub(crate) const COUNTER_NAMES: [&str; COUNTERS] =
    ["write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency"];

/// A pool and a namespace of it: images in it are listed in one place.
pub(crate) type Place = (PoolId, String);
/// Where an image is listed, and its id.
type ImageKey = (Place, String);

/// One image, as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ImageStats {
    pub place: Place,
    pub name: String,
    /// In each second of late; latencies as means.
    pub rates: [f64; COUNTERS],
    /// Sums since somebody began to ask.
    pub sums: [u64; COUNTERS],
}

/// What an OSD said last.
#[derive(Debug)]
struct Latest {
    at: Mono,
    over: Duration,
    images: BTreeMap<ImageKey, [u64; COUNTERS]>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Images {
    /// When somebody asked last. To ask changes nothing of the cluster, so that commands that only read do it.
    asked_at: Cell<Option<Mono>>,
    /// Which sessions of OSDs were told, and when.
    told: BTreeMap<OsdId, (LinkId, Mono)>,
    latest: BTreeMap<OsdId, Latest>,
    sums: BTreeMap<ImageKey, [u64; COUNTERS]>,
    names: Names,
    /// When images were last forgotten.
    forgot_at: Option<Mono>,
}

impl Images {
    /// Somebody wants to know.
    pub fn ask(&self, now: Mono) {
        self.asked_at.set(Some(now));
    }

    /// Whom to tell that it is wanted, and what. Forgets everything when it is not wanted any more.
    pub fn orders(
        &mut self,
        now: Mono,
        links: &BTreeMap<OsdId, LinkId>,
    ) -> Vec<(LinkId, ImagesAsked)> {
        let Some(asked_at) = self.asked_at.get() else { return Vec::new() };
        if now.since(asked_at) >= WANTED_FOR {
            *self = Self::default();
            return Vec::new();
        }
        let mut out = Vec::new();
        let for_ms = u32::try_from(WANTED_FOR.as_millis()).unwrap_or(u32::MAX);
        for (&osd, &link) in links {
            let told = self.told.get(&osd).filter(|(l, _)| *l == link);
            if told.is_none_or(|(_, at)| now.since(*at) >= TELL_EVERY) {
                self.told.insert(osd, (link, now));
                out.push((link, ImagesAsked { for_ms }));
            }
        }
        out
    }

    /// Takes in what an OSD counted.
    pub fn report(&mut self, now: Mono, osd: OsdId, counts: ImageCounts) {
        if self.asked_at.get().is_none() {
            return;
        }
        if self.sums.len() >= MAX_IMAGES {
            self.forget_idle(now);
        }
        let over = Duration::from_millis(counts.over_ms.into());
        let mut images = BTreeMap::new();
        for io in counts.images.into_iter().take(MAX_IMAGES) {
            let counted = counters(&io);
            let key = ((io.pool, io.nspace), io.id);
            if self.sums.len() >= MAX_IMAGES && !self.sums.contains_key(&key) {
                continue;
            }
            self.names.want(now, &key.0, &key.1);
            let sums = self.sums.entry(key.clone()).or_default();
            for (sum, n) in sums.iter_mut().zip(counted) {
                *sum = sum.saturating_add(n);
            }
            images.insert(key, counted);
        }
        self.latest.insert(osd, Latest { at: now, over, images });
    }

    /// Makes room: of images that come and go, somebody may want to know for months.
    fn forget_idle(&mut self, now: Mono) {
        if self.forgot_at.is_some_and(|at| now.since(at) < FORGET_EVERY) {
            return;
        }
        self.forgot_at = Some(now);
        let lately = self.latest.values().filter(|l| now.since(l.at) < STALE_AFTER);
        let spoken_of: BTreeSet<&ImageKey> = lately.flat_map(|l| l.images.keys()).collect();
        self.sums.retain(|key, _| spoken_of.contains(key));
        let places: BTreeSet<&Place> = self.sums.keys().map(|(place, _)| place).collect();
        self.names.retain(|place| places.contains(place));
    }

    /// Lists that are to be read for the names of images.
    pub fn names_due(&mut self) -> Vec<Place> {
        self.names.due()
    }

    /// Such a list, ids by name, or `None` when it cannot be read.
    pub fn names_read(
        &mut self,
        now: Mono,
        place: &Place,
        names: Option<BTreeMap<String, String>>,
    ) {
        self.names.answered(now, place, names);
    }

    /// The images of these places of which something is known, in no particular order.
    pub fn stats(&self, now: Mono, wanted: impl Fn(&Place) -> bool) -> Vec<ImageStats> {
        let rates = self.rates(now);
        let known = self.sums.iter().filter(|((place, _), _)| wanted(place));
        let known = known.filter_map(|(key, sums)| {
            let name = self.names.get(&key.0, &key.1)?.to_owned();
            let rates = rates.get(key).copied().unwrap_or_default();
            Some(ImageStats { place: key.0.clone(), name, rates, sums: *sums })
        });
        known.collect()
    }

    /// Of all images that OSDs spoke of lately. (To ask each OSD for each image takes seconds where there are many.)
    fn rates(&self, now: Mono) -> BTreeMap<&ImageKey, [f64; COUNTERS]> {
        let mut all: BTreeMap<&ImageKey, [f64; COUNTERS]> = BTreeMap::new();
        let said = self.latest.values();
        for said in said.filter(|l| now.since(l.at) < STALE_AFTER && !l.over.is_zero()) {
            for (key, counted) in &said.images {
                for (rate, n) in all.entry(key).or_default().iter_mut().zip(counted) {
                    *rate += *n as f64 / said.over.as_secs_f64();
                }
            }
        }
        all.values_mut().for_each(|rates| {
            let [writes, reads, _, _, write_latency, read_latency] = rates;
            let mean = |ns: f64, ops: f64| if ops > 0.0 { ns / ops } else { 0.0 };
            *write_latency = mean(*write_latency, *writes);
            *read_latency = mean(*read_latency, *reads);
        });
        all
    }
}

fn counters(io: &ImageIo) -> [u64; COUNTERS] {
    let ns = |us: u64| us.saturating_mul(1000);
    [io.writes, io.reads, io.write_bytes, io.read_bytes, ns(io.write_us), ns(io.read_us)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(id: &str, name: &str) -> Option<BTreeMap<String, String>> {
        Some([(name.to_owned(), id.to_owned())].into())
    }

    fn at(s: u64) -> Mono {
        Mono::default().after(Duration::from_secs(s))
    }

    fn said(id: &str, writes: u64, over_s: u32) -> ImageCounts {
        let io = ImageIo {
            pool: PoolId(2),
            id: id.into(),
            writes,
            write_bytes: writes * 4096,
            write_us: writes * 300,
            ..ImageIo::default()
        };
        ImageCounts { over_ms: over_s * 1000, images: vec![io] }
    }

    #[test]
    fn what_osds_say_becomes_rates_of_images_with_names() {
        let mut images = Images::default();
        images.report(at(1), OsdId(0), said("a1", 10, 5));
        assert!(images.names_due().is_empty(), "nobody wants to know");
        images.ask(at(2));
        images.report(at(5), OsdId(0), said("a1", 10, 5));
        images.report(at(6), OsdId(1), said("a1", 30, 10));
        assert!(images.stats(at(6), |_| true).is_empty(), "it has no name yet");
        let place = (PoolId(2), String::new());
        assert_eq!(images.names_due(), std::slice::from_ref(&place));
        assert!(images.names_due().is_empty(), "it is being read");
        images.names_read(at(7), &(PoolId(3), String::new()), list("a1", "wrong"));
        images.names_read(at(7), &place, list("a1", "disk"));
        let [disk] = &images.stats(at(7), |_| true)[..] else { panic!("one image") };
        assert_eq!((disk.name.as_str(), disk.place.0), ("disk", PoolId(2)));
        assert_eq!(disk.rates, [5.0, 0.0, 20480.0, 0.0, 300_000.0, 0.0]);
        assert_eq!(disk.sums, [40, 0, 40 * 4096, 0, 12_000_000, 0]);
        assert!(images.stats(at(7), |(pool, _)| *pool == PoolId(3)).is_empty());
        let [idle] = &images.stats(at(20), |_| true)[..] else { panic!("it is known still") };
        assert_eq!(idle.rates, [0.0; COUNTERS]);
        assert_eq!(idle.sums, disk.sums);
    }

    #[test]
    fn osds_are_told_again_and_again_while_it_is_wanted() {
        let mut images = Images::default();
        let link = |n| LinkId(n);
        let mut links = BTreeMap::from([(OsdId(0), link(5))]);
        assert!(images.orders(at(0), &links).is_empty());
        images.ask(at(0));
        assert_eq!(images.orders(at(0), &links), [(link(5), ImagesAsked { for_ms: 60_000 })]);
        assert!(images.orders(at(1), &links).is_empty());
        links.insert(OsdId(0), link(6));
        assert_eq!(images.orders(at(2), &links).len(), 1, "a new session");
        assert_eq!(images.orders(at(22), &links).len(), 1, "time has passed");
        images.report(at(22), OsdId(0), said("a1", 10, 5));
        assert!(images.orders(at(60), &links).is_empty());
        assert!(images.sums.is_empty(), "nobody asks any more");
    }

    #[test]
    fn images_that_are_gone_take_no_room_for_ever() {
        let mut images = Images::default();
        images.ask(at(0));
        let io = |n: usize| ImageIo {
            pool: PoolId(2),
            id: format!("{n:x}"),
            writes: 1,
            ..ImageIo::default()
        };
        let many = |from: usize, n: usize| ImageCounts {
            over_ms: 5000,
            images: (from..from + n).map(io).collect(),
        };
        images.report(at(1), OsdId(0), many(0, MAX_IMAGES));
        images.report(at(2), OsdId(1), many(MAX_IMAGES, 1));
        assert_eq!(images.sums.len(), MAX_IMAGES, "all are in use");
        images.report(at(61), OsdId(0), many(7, 1));
        images.report(at(62), OsdId(1), many(MAX_IMAGES, 1));
        images.report(at(63), OsdId(2), many(8, 1));
        let left: Vec<&str> = images.sums.keys().map(|(_, id)| id.as_str()).collect();
        assert_eq!(left, ["4000", "7", "8"]);
    }

    #[test]
    fn a_list_that_cannot_be_read_or_lacks_an_image_is_read_again_later() {
        let mut images = Images::default();
        let place = (PoolId(2), String::new());
        images.ask(at(0));
        images.report(at(1), OsdId(0), said("a1", 10, 5));
        assert_eq!(images.names_due(), std::slice::from_ref(&place));
        images.names_read(at(2), &place, None);
        images.report(at(3), OsdId(0), said("a1", 10, 5));
        assert!(images.names_due().is_empty(), "not at once");
        images.report(at(20), OsdId(0), said("a1", 10, 5));
        assert_eq!(images.names_due(), std::slice::from_ref(&place));
        images.names_read(at(20), &place, list("a0", "other"));
        images.report(at(21), OsdId(0), said("a1", 10, 5));
        assert!(images.names_due().is_empty());
        images.report(at(40), OsdId(0), said("a1", 10, 5));
        assert_eq!(images.names_due().len(), 1, "it is in no list");
    }
}
