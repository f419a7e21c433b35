//! Reading the store when a mon starts.

use super::{ClusterRecord, FORMAT, keys};
use crate::osds::GoneStore;
use crate::state::State;
use bytes::Bytes;
use denc::Decode;
use io::kv::KvOp;
use maps::{MonMap, OsdMap};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use types::{Epoch, OsdId, PoolId};

/// Keys that are read at once.
const PAGE: usize = 1000;

/// What to do next while the store is read.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// Ask this.
    Next(KvOp),
    /// The store is empty.
    Empty,
    /// That is all.
    All(Box<State>),
}

/// Reads page by page, then the newest map.
#[derive(Debug, Default)]
pub(crate) struct Loader {
    pairs: BTreeMap<Bytes, Bytes>,
    range: Option<(Epoch, Epoch)>,
}

impl Loader {
    /// The first question.
    pub fn start(&self) -> KvOp {
        self.scan(Bytes::from_static(keys::STATE_FROM.as_bytes()))
    }

    fn scan(&self, from: Bytes) -> KvOp {
        KvOp::Scan { from, to: Bytes::from_static(keys::STATE_TO.as_bytes()), max: PAGE }
    }

    /// A page.
    ///
    /// # Errors
    /// A sentence, when what is there cannot be used.
    pub fn page(&mut self, pairs: Vec<(Bytes, Bytes)>) -> Result<Loaded, String> {
        let more = pairs.len() >= PAGE;
        let last = pairs.last().map(|(k, _)| k.clone());
        self.pairs.extend(pairs);
        if let (true, Some(last)) = (more, last) {
            let after = [&last[..], &[0]].concat();
            return Ok(Loaded::Next(self.scan(after.into())));
        }
        if self.pairs.is_empty() {
            return Ok(Loaded::Empty);
        }
        let record: ClusterRecord = self.value(keys::CLUSTER)?;
        if record.format > FORMAT {
            return Err(format!(
                "it was written by a newer version ({}); this one knows format {FORMAT}",
                record.made_by
            ));
        }
        let range: (Epoch, Epoch) = self.value(keys::OSDMAP)?;
        self.range = Some(range);
        Ok(Loaded::Next(KvOp::Get { key: keys::full(range.1).into() }))
    }

    /// The newest map.
    ///
    /// # Errors
    /// A sentence, when it is damaged.
    pub fn newest_map(self, value: Option<Bytes>) -> Result<Loaded, String> {
        let (first, last) = self.range.unwrap_or_default();
        let bytes = value.ok_or_else(|| format!("the OSDMap of epoch {last} is missing"))?;
        let map: OsdMap =
            denc::decode(&bytes).map_err(|e| format!("the OSDMap of epoch {last}: {e}"))?;
        if map.epoch != last {
            return Err(format!("the OSDMap of epoch {last} says it is of epoch {}", map.epoch));
        }
        self.state(first, map).map(|state| Loaded::All(Box::new(state)))
    }

    fn state(&self, first_epoch: Epoch, map: OsdMap) -> Result<State, String> {
        let record: ClusterRecord = self.value(keys::CLUSTER)?;
        let monmap: MonMap = self.value(keys::MONMAP)?;
        if map.fsid != record.fsid || monmap.fsid != record.fsid {
            return Err("its maps are of different clusters".into());
        }
        let mut config: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for (key, value) in self.below(keys::CONFIG) {
            let text = String::from_utf8_lossy(value).into_owned();
            let parsed = keys::parse_config(&key);
            let (who, name) = parsed.ok_or_else(|| format!("the key of the option {key}"))?;
            config.entry(who).or_default().insert(name, text);
        }
        let osd_metadata = self.numbered(keys::OSD, OsdId)?;
        let gone: BTreeMap<String, GoneStore> = self.named(keys::GONE)?;
        let osd_numbers = self.optional(keys::OSD_NUMBERS)?;
        Ok(State {
            fsid: record.fsid,
            monmap,
            osd_numbers: osd_numbers.unwrap_or_else(|| numbers_of_old(&map, &gone)),
            osdmap: Arc::new(map),
            first_epoch,
            // Not there as long as nothing was pruned.
            pruned: self.optional(keys::OSDMAP_PRUNED)?.unwrap_or_default(),
            config,
            config_log: self.numbered(keys::CONFIG_LOG, |n: u64| n)?,
            config_key: self.below(keys::CONFIG_KEY).map(|(k, v)| (k, v.clone())).collect(),
            osd_metadata,
            store_marks: self.numbered(keys::STORE_MARK, OsdId)?,
            gone,
            creating: self.numbered(keys::CREATING, PoolId)?,
            global_ids_to: self.value(keys::GLOBAL_ID)?,
            mgr_epoch: self.value(keys::MGR_EPOCH)?,
            auth: self.named(keys::AUTH)?,
            mutes: self.named(keys::MUTE)?,
            fences: self.named(keys::FENCE)?,
            tasks: self.numbered(keys::TASK, |n: u64| n)?,
            purges: self.named(keys::PURGE)?,
        })
    }

    fn value<T: Decode>(&self, key: &str) -> Result<T, String> {
        let bytes = self.pairs.get(key.as_bytes());
        decoded(key, bytes.ok_or_else(|| format!("the key {key} is missing"))?)
    }

    fn optional<T: Decode>(&self, key: &str) -> Result<Option<T>, String> {
        self.pairs.get(key.as_bytes()).map(|bytes| decoded(key, bytes)).transpose()
    }

    /// The keys with a start, without it.
    fn below<'a>(&'a self, start: &'a str) -> impl Iterator<Item = (String, &'a Bytes)> {
        let from = Bytes::copy_from_slice(start.as_bytes());
        let in_it = self.pairs.range(from..).take_while(|(k, _)| k.starts_with(start.as_bytes()));
        in_it.map(|(k, v)| {
            let rest = k.get(start.len()..).unwrap_or_default();
            (String::from_utf8_lossy(rest).into_owned(), v)
        })
    }

    fn named<V: Decode>(&self, start: &str) -> Result<BTreeMap<String, V>, String> {
        self.below(start).map(|(key, v)| Ok((key.clone(), decoded(&key, v)?))).collect()
    }

    fn numbered<N: FromStr, K: Ord, V: Decode>(
        &self,
        start: &str,
        make: impl Fn(N) -> K,
    ) -> Result<BTreeMap<K, V>, String> {
        let all = self.below(start).map(|(key, value)| {
            let number = key.parse().map_err(|_| format!("the key {start}{key}"))?;
            Ok((make(number), decoded(&key, value)?))
        });
        all.collect()
    }
}

/// Numbers that OSDs may have had in a cluster of a version that did not write them down: all there is room for, and
/// those of stores that are known to be gone.
fn numbers_of_old(map: &OsdMap, gone: &BTreeMap<String, GoneStore>) -> BTreeSet<OsdId> {
    map.osd_ids().chain(gone.values().map(|gone| OsdId(gone.osd))).collect()
}

fn decoded<T: Decode>(key: &str, bytes: &Bytes) -> Result<T, String> {
    denc::decode(bytes).map_err(|e| format!("the value of {key}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MonConfig, NewCluster};
    use crate::store::fresh;
    use io::Now;
    use maps::Incremental;
    use types::{Mono, UTime, Uuid};

    /// A store in which there is room for two OSDs, with these keys beside what a new cluster's has.
    fn loaded(more: &[(&str, Bytes)]) -> State {
        let now = Now { mono: Mono(1), wall: UTime { sec: 1_700_000_000, nsec: 0 } };
        let cfg = MonConfig::new("a", "127.0.0.1:7001".parse().unwrap());
        let (state, batch) = fresh(&cfg, &NewCluster::new(Uuid::from_random(7)), now).unwrap();
        let mut loader = Loader::default();
        let put = batch.changes.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let more = more.iter().map(|(key, value)| (Bytes::from(key.to_string()), value.clone()));
        assert!(matches!(loader.page(put.chain(more).collect()), Ok(Loaded::Next(_))));
        let mut map = OsdMap::clone(&state.osdmap);
        let mut inc = Incremental::after(&map);
        inc.new_max_osd = Some(2);
        map.apply(&inc).unwrap();
        loader.state(Epoch(1), map).unwrap()
    }

    #[test]
    fn numbers_of_osds_are_read() {
        let numbers: BTreeSet<OsdId> = [OsdId(1), OsdId(7)].into();
        let state = loaded(&[(keys::OSD_NUMBERS, denc::encode(&numbers))]);
        assert_eq!(state.osd_numbers, numbers);
    }

    /// Then each may be one that an OSD had.
    #[test]
    fn older_versions_did_not_write_numbers_down() {
        let gone = denc::encode(&GoneStore { osd: 9, ..GoneStore::default() });
        let state = loaded(&[("s/gone/11111111-2222-3333-4444-555555555555", gone)]);
        assert_eq!(state.osd_numbers, [OsdId(0), OsdId(1), OsdId(9)].into());
    }
}
