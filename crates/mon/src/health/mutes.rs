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

    /// Ends mutes whose time is over, and those that are not sticky when their alert is gone or worse than it was at
    /// its best since (`HealthMonitor::check_mutes`). A mon that has just started does not know yet what is gone or
    /// better.
    pub fn age_mutes(&mut self, now: Now, checks: &Checks, sums: &Sums) {
        let knows = self.pgmap.is_whole(self.map(), sums);
        let mut better = Vec::new();
        let mut over = |code: &String, mute: &Mute| {
            if !mute.until.is_zero() && mute.until <= now.wall {
                return true;
            }
            match checks.0.get(code) {
                _ if mute.sticky => false,
                None => knows,
                // Of what cannot be counted, the text says whether it is the same.
                Some(check) if mute.count == 0 => knows && check.summary != mute.summary,
                Some(check) => {
                    if knows && check.count < mute.count {
                        better.push((code.clone(), Mute { count: check.count, ..mute.clone() }));
                    }
                    check.count > mute.count
                }
            }
        };
        let mutes = self.state.mutes.iter();
        let ended = mutes.filter(|(code, mute)| over(code, mute)).map(|(code, _)| code.clone());
        let ended: Vec<String> = ended.collect();
        for code in ended {
            self.unmute(&code);
        }
        for (code, mute) in better {
            self.mute(&code, mute);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::bench::Bench;
    use crate::pgmap::PgMap;
    use crate::state::Mute;
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

    fn mute(bench: &mut Bench, count: i64, summary: &str) {
        let summary = summary.to_owned();
        let mute = Mute { until: types::UTime::ZERO, sticky: false, summary, count };
        bench.c.mute("PG_DEGRADED", mute);
        bench.commit();
    }

    fn count(bench: &Bench) -> Option<i64> {
        bench.c.state.mutes.get("PG_DEGRADED").map(|m| m.count)
    }

    /// Else as many could fail anew as were well again in the meantime.
    #[test]
    fn a_mute_ends_when_it_is_worse_than_it_was_at_its_best() {
        let mut bench = Bench::new();
        bench.run(&json!({"prefix": "osd pool create", "pool": "a", "pg_num": 8}));
        let pool = bench.c.pool_id("a").unwrap().0.to_string();
        bench.write(json!({pool: [1000, 1_000_000]}).as_object().unwrap());
        bench.stop(types::OsdId(1));
        let found = |bench: &Bench| bench.c.health(bench.now()).checks.0["PG_DEGRADED"].clone();
        let check = found(&bench);
        assert!(check.count > 0);
        mute(&mut bench, check.count + 2, &check.summary);
        // Not all was heard of: it may be no better.
        bench.comes_up_and_says_nothing(types::OsdId(1));
        assert!(age(&mut bench));
        assert_eq!(count(&bench), Some(check.count + 2));
        bench.stop(types::OsdId(1));
        assert!(age(&mut bench));
        assert_eq!(count(&bench), Some(check.count));
        // What is not counted is the same while its text is.
        mute(&mut bench, 0, &check.summary);
        assert!(age(&mut bench));
        mute(&mut bench, 0, "otherwise");
        assert!(!age(&mut bench));
    }
}
