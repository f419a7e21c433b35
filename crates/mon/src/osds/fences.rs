//! Until when clients are shut out.
//!
//! Whoever applies a map leaves an entry of the blocklist as it is when it is added again, as Ceph does, so
//! that an entry's time in the map is that of its first order. A later order that lasts longer is kept here
//! beside the map, and the entry stays until the longest of them is over.

use crate::cluster::Cluster;
use crate::store::keys;
use admin::CommandError;
use io::Now;
use maps::BlocklistAddr;
use std::collections::BTreeSet;
use types::UTime;

/// By so much, in milliseconds, our clock may be ahead of that of most OSDs, and still end fences.
const TRUSTED_AHEAD_MS: i64 = 60_000;

impl Cluster {
    /// Shuts a client out until then.
    ///
    /// # Errors
    /// When the map cannot be changed.
    pub fn fence(&mut self, addr: BlocklistAddr, until: UTime) -> Result<(), CommandError> {
        self.change(|inc, _| {
            inc.old_blocklist.retain(|a| *a != addr);
            inc.new_blocklist.insert(addr, until);
        })?;
        let shown = self.map().blocklist.get(&addr).copied().unwrap_or_default();
        if until > shown {
            let name = addr.addr().to_string();
            self.draft.put(format!("{}{name}", keys::FENCE), denc::encode(&until));
            self.state.fences.insert(name, until);
        }
        Ok(())
    }

    /// Lets clients in again.
    ///
    /// # Errors
    /// When the map cannot be changed.
    pub fn unfence(&mut self, addrs: BTreeSet<BlocklistAddr>) -> Result<(), CommandError> {
        for addr in &addrs {
            let name = addr.addr().to_string();
            if self.state.fences.remove(&name).is_some() {
                self.draft.remove(format!("{}{name}", keys::FENCE));
            }
        }
        self.change(|inc, _| {
            let known: BTreeSet<BlocklistAddr> = inc.old_blocklist.iter().copied().collect();
            inc.new_blocklist.retain(|addr, _| !addrs.contains(addr));
            inc.old_blocklist.extend(addrs.into_iter().filter(|addr| !known.contains(addr)));
        })
    }

    /// All that are shut out, and until when.
    pub fn fences(&self) -> impl Iterator<Item = (&BlocklistAddr, UTime)> {
        self.map().blocklist.iter().map(|(addr, until)| (addr, self.end_of_fence(addr, *until)))
    }

    /// Until when a client is shut out that has this end in the map.
    fn end_of_fence(&self, addr: &BlocklistAddr, until: UTime) -> UTime {
        let longer = self.state.fences.get(&addr.addr().to_string());
        longer.map_or(until, |longer| until.max(*longer))
    }

    /// Lets clients back whose time is over: by our clock, if most OSDs agree with it.
    pub fn expire_blocklist(&mut self, now: Now) {
        // Most have not even come to the end in the map: names are looked up for none of these.
        let ended = self.map().blocklist.iter().filter(|(_, until)| **until <= now.wall);
        let over = ended.filter(|(addr, until)| self.end_of_fence(addr, **until) <= now.wall);
        let over: BTreeSet<BlocklistAddr> = over.map(|(addr, _)| *addr).collect();
        if !over.is_empty() && self.is_clock_trusted() {
            let done = self.unfence(over);
            debug_assert!(done.is_ok());
        }
    }

    /// Whether no more than half of the OSDs say that our clock is far ahead, and any says something.
    fn is_clock_trusted(&self) -> bool {
        let stats = || self.pgmap.living(self.map());
        let behind = stats().filter(|(_, s)| s.clock_ahead_ms < -TRUSTED_AHEAD_MS).count();
        let all = stats().count();
        all > 0 && behind * 2 <= all
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::bench::Bench;
    use serde_json::json;
    use std::time::Duration;

    fn add(bench: &mut Bench, seconds: f64) {
        let addr = "10.0.0.1:0/7";
        bench.run(&json!({
            "prefix": "osd blocklist", "blocklistop": "add", "addr": addr, "expire": seconds
        }));
    }

    fn is_fenced_after(bench: &mut Bench, seconds: u64) -> bool {
        bench.pass(Duration::from_secs(seconds));
        bench.again();
        let now = bench.now();
        bench.c.expire_blocklist(now);
        bench.commit();
        !bench.c.map().blocklist.is_empty()
    }

    #[test]
    fn a_second_order_that_lasts_longer_counts() {
        let mut bench = Bench::new();
        add(&mut bench, 10.0);
        add(&mut bench, 60.0);
        add(&mut bench, 20.0);
        assert!(is_fenced_after(&mut bench, 11));
        assert!(!bench.c.state.fences.is_empty());
        assert!(!is_fenced_after(&mut bench, 50));
        assert!(bench.c.state.fences.is_empty());
    }

    #[test]
    fn one_that_is_removed_is_forgotten() {
        let mut bench = Bench::new();
        add(&mut bench, 10.0);
        add(&mut bench, 60.0);
        bench.run(&json!({"prefix": "osd blocklist clear"}));
        assert!(bench.c.state.fences.is_empty() && bench.c.map().blocklist.is_empty());
        add(&mut bench, 10.0);
        assert!(!is_fenced_after(&mut bench, 11));
    }

    /// It was set by a wrong clock, or the mon's host starts with one.
    #[test]
    fn a_clock_that_is_ahead_of_all_others_lets_nobody_in() {
        let mut bench = Bench::new();
        add(&mut bench, 3600.0);
        bench.clocks_behind_s = 7200;
        assert!(is_fenced_after(&mut bench, 7200));
        bench.clocks_behind_s = 0;
        assert!(!is_fenced_after(&mut bench, 1));
    }
}
