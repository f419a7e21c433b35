//! Reading the store when a mon starts.

use super::{ClusterRecord, FORMAT, keys};
use crate::state::{Pruned, State};
use bytes::Bytes;
use denc::Decode;
use io::kv::KvOp;
use maps::{MonMap, OsdMap};
use std::collections::BTreeMap;
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
        Ok(State {
            fsid: record.fsid,
            monmap,
            osdmap: Arc::new(map),
            first_epoch,
            pruned: self.pruned()?,
            config,
            config_log: self.numbered(keys::CONFIG_LOG, |n: u64| n)?,
            config_key: self.below(keys::CONFIG_KEY).map(|(k, v)| (k, v.clone())).collect(),
            osd_metadata,
            store_marks: self.numbered(keys::STORE_MARK, OsdId)?,
            gone: self.named(keys::GONE)?,
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

    /// Not there as long as nothing was pruned.
    fn pruned(&self) -> Result<Pruned, String> {
        let bytes = self.pairs.get(keys::OSDMAP_PRUNED.as_bytes());
        bytes.map_or(Ok(Pruned::default()), |bytes| decoded(keys::OSDMAP_PRUNED, bytes))
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

fn decoded<T: Decode>(key: &str, bytes: &Bytes) -> Result<T, String> {
    denc::decode(bytes).map_err(|e| format!("the value of {key}: {e}"))
}
