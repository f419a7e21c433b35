//! `ceph health mute`: alerts that shall be silent for a while.

use super::Checks;
use crate::cluster::Cluster;
use crate::pgmap::Sums;
use crate::state::Mute;
use crate::store::keys;
use io::Now;

impl Cluster {
    /// Silences an alert.
    pub fn mute(&mut self, code: &str, mute: Mute) {
        self.draft.put(format!("{}{code}", keys::MUTE), denc::encode(&mute));
        self.state.mutes.insert(code.to_owned(), mute);
    }

    /// Lets it sound again.
    pub fn unmute(&mut self, code: &str) {
        if self.state.mutes.remove(code).is_some() {
            self.draft.remove(format!("{}{code}", keys::MUTE));
        }
    }

    /// Ends mutes whose time is over, and those that are not sticky when their alert is gone or
    /// worse than it was. A mon that has just started does not know yet what is gone.
    pub fn age_mutes(&mut self, now: Now, checks: &Checks, sums: &Sums) {
        let knows = self.pgmap.is_whole(self.map(), sums);
        let over = |code: &String, mute: &Mute| {
            let expired = !mute.until.is_zero() && mute.until <= now.wall;
            let check = checks.0.get(code);
            let changed = check.map_or(knows, |c| c.count > mute.count);
            expired || (!mute.sticky && changed)
        };
        let ended: Vec<String> = self
            .state
            .mutes
            .iter()
            .filter(|(code, mute)| over(code, mute))
            .map(|(code, _)| code.clone())
            .collect();
        for code in ended {
            self.unmute(&code);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::bench::Bench;
    use crate::pgmap::PgMap;
    use serde_json::json;

    fn age(bench: &mut Bench) -> bool {
        let now = bench.now();
        let sums = bench.c.pgmap.sums(bench.c.map());
        let checks = bench.c.checks(now, &sums);
        bench.c.age_mutes(now, &checks, &sums);
        bench.commit();
        bench.c.state.mutes.contains_key("PG_DEGRADED")
    }

    /// What OSDs report is not there before they do.
    #[test]
    fn a_mon_that_starts_ends_no_mute_of_what_it_has_not_heard_of_yet() {
        let mut bench = Bench::new();
        bench.run(&json!({"prefix": "osd pool create", "pool": "a", "pg_num": 8}));
        let pool = bench.c.pool_id("a").unwrap().0.to_string();
        bench.write(json!({pool: [1000, 1_000_000]}).as_object().unwrap());
        let some = types::OsdId(1);
        bench.stop(some);
        let (r, outs, _) = bench.run(&json!({"prefix": "health mute", "code": "PG_DEGRADED"}));
        assert_eq!(r, 0, "{outs}");
        assert!(age(&mut bench));
        bench.c.pgmap = PgMap::default();
        assert!(age(&mut bench));
        bench.again();
        assert!(age(&mut bench));
        bench.start(some);
        assert!(!age(&mut bench));
    }
}
