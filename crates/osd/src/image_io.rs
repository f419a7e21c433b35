//! Clients' I/O by image, counted while the mon asks for it (`rbd perf image iostat`).
//!
//! In Ceph the mgr has OSDs match the names of objects with a regular expression (`rbd_support/perf.py`); here
//! the OSD knows the names that librbd gives.

use crate::config::REPORT_INTERVAL_S;
use crate::daemon::Daemon;
use peer::{ImageCounts, ImageIo, ImagesAsked};
use std::time::Duration;
use types::{HObject, HashMap, Mono, PoolId};

/// Images that are counted between two reports, at most; others are passed over.
const MAX_IMAGES: usize = 4096;

/// Which image: the pool of its header, its namespace, its id.
type Key = (PoolId, String, String);

/// The counts since the last report.
#[derive(Debug, Default)]
pub struct ImagesIo {
    /// Until when they are asked for.
    until: Option<Mono>,
    since: Mono,
    images: HashMap<Key, ImageIo>,
}

impl ImagesIo {
    /// The mon wants to hear of it for some time. Whether that is new.
    pub fn ask(&mut self, now: Mono, for_time: Duration) -> bool {
        let is_new = self.until.replace(now.after(for_time)).is_none();
        if is_new {
            self.since = now;
        }
        is_new
    }

    /// Whether somebody wants to know.
    pub fn is_asked_for(&self) -> bool {
        self.until.is_some()
    }

    /// Counts a request that was answered: whether it wrote, the bytes it brought or took, and its time.
    pub fn count(&mut self, object: &HObject, write: bool, bytes: u64, took: Duration) {
        let Some((pool, id)) = image_of(&object.name) else { return };
        let Ok(nspace) = std::str::from_utf8(&object.nspace) else { return };
        let key = (pool.unwrap_or(object.pool), nspace.to_owned(), id.to_owned());
        if self.images.len() >= MAX_IMAGES && !self.images.contains_key(&key) {
            return;
        }
        let (pool, nspace, id) = key.clone();
        let new = || ImageIo { pool, nspace, id, ..ImageIo::default() };
        let io = self.images.entry(key).or_insert_with(new);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if write {
            io.writes += 1;
            io.write_bytes += bytes;
            io.write_us += took_us;
        } else {
            io.reads += 1;
            io.read_bytes += bytes;
            io.read_us += took_us;
        }
    }

    /// What the mon is to hear now: nothing when it does not want to, or heard it lately.
    pub fn report(&mut self, now: Mono) -> Option<ImageCounts> {
        let until = self.until?;
        if until <= now {
            *self = Self::default();
            return None;
        }
        let over = now.since(self.since);
        if over < Duration::from_secs(REPORT_INTERVAL_S) {
            return None;
        }
        self.since = now;
        let over_ms = u32::try_from(over.as_millis()).unwrap_or(u32::MAX);
        Some(ImageCounts { over_ms, images: self.images.drain().map(|(_, io)| io).collect() })
    }
}

impl Daemon {
    pub(crate) fn on_images_asked(&mut self, m: ImagesAsked) {
        let now = self.now.mono;
        if self.images_io.ask(now, Duration::from_millis(m.for_ms.into())) {
            self.next_report = now.after(Duration::from_secs(REPORT_INTERVAL_S));
        }
    }
}

/// Which image an object holds data or the journal of: the pool, if the name tells it, and the id. The names
/// are `rbd_data.ID.NUMBER`, and `rbd_data.POOL.ID.NUMBER` in a data pool; `journal_data` likewise.
fn image_of(name: &[u8]) -> Option<(Option<PoolId>, &str)> {
    let name = std::str::from_utf8(name).ok()?;
    let rest = name.strip_prefix("rbd_data.").or_else(|| name.strip_prefix("journal_data."))?;
    let (first, rest) = rest.split_once('.')?;
    let in_data_pool = || Some((PoolId(first.parse().ok()?), rest.split_once('.')?.0));
    match in_data_pool() {
        Some((pool, id)) => Some((Some(pool), id)),
        None => Some((None, first)),
    }
    .filter(|(_, id)| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_the_names_of_their_objects() {
        let of = |name: &'static str| image_of(name.as_bytes());
        assert_eq!(of("rbd_data.105e1f.0000000000000001"), Some((None, "105e1f")));
        assert_eq!(of("rbd_data.7.105e1f.0000000000000001"), Some((Some(PoolId(7)), "105e1f")));
        // An id of digits alone.
        assert_eq!(of("rbd_data.105.0000000000000001"), Some((None, "105")));
        assert_eq!(of("journal_data.2.105e1f.0"), Some((Some(PoolId(2)), "105e1f")));
        for other in ["rbd_header.105e1f", "rbd_data.105e1f", "rbd_data..0", "x", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn counts_only_while_it_is_asked_to_and_tells_each_count_once() {
        let at = |s| Mono::default().after(Duration::from_secs(s));
        let mut io = ImagesIo::default();
        assert!(!io.is_asked_for());
        assert_eq!(io.report(at(0)), None);
        io.ask(at(1), Duration::from_secs(60));
        let object = HObject { name: "rbd_data.a.0".into(), pool: PoolId(3), ..HObject::min() };
        io.count(&object, true, 4096, Duration::from_micros(150));
        io.count(&object, false, 512, Duration::from_micros(50));
        assert_eq!(io.report(at(2)), None, "not twice within the interval of reports");
        let counts = io.report(at(11)).unwrap();
        assert_eq!(counts.over_ms, 10_000);
        let want = ImageIo {
            pool: PoolId(3),
            nspace: String::new(),
            id: "a".into(),
            writes: 1,
            write_bytes: 4096,
            write_us: 150,
            reads: 1,
            read_bytes: 512,
            read_us: 50,
        };
        assert_eq!(counts.images, [want]);
        assert_eq!(io.report(at(21)).unwrap().images, []);
        assert_eq!(io.report(at(62)), None);
        assert!(!io.is_asked_for());
    }

    #[test]
    fn keeps_to_its_bound() {
        let mut io = ImagesIo::default();
        io.ask(Mono::default(), Duration::from_secs(60));
        for n in 0..MAX_IMAGES + 10 {
            let name = format!("rbd_data.{n:x}a.0");
            let object = HObject { name: name.as_str().into(), ..HObject::min() };
            io.count(&object, true, 1, Duration::ZERO);
        }
        assert_eq!(io.images.len(), MAX_IMAGES);
    }
}
