//! OSDs that stay down are marked out, so that their data is copied elsewhere.

use crate::cluster::Cluster;
use crate::log::Level;
use io::Now;
use maps::{OsdMapFlags, OsdState, WEIGHT_OUT};
use std::collections::BTreeMap;
use std::time::Duration;
use types::OsdId;

impl Cluster {
    /// Notes since when OSDs are down.
    pub fn watch_down(&mut self, now: Now) {
        let map = self.map().clone();
        self.down_since.retain(|&id, _| map.exists(id) && map.is_down(id));
        for id in map.existing_osds().filter(|&id| map.is_down(id)) {
            self.down_since.entry(id).or_insert(now.mono);
        }
    }

    /// Marks those out that have been down for too long. That time begins anew when what kept an OSD in, or out, ends
    /// (`OSDMonitor::tick`).
    pub fn auto_out(&mut self, now: Now) {
        self.watch_down(now);
        let after = self.settings.duration("mon_osd_down_out_interval");
        if after == Duration::ZERO || self.map().flags.contains(OsdMapFlags::NOOUT) {
            return;
        }
        let mut whole = BTreeMap::new();
        for (id, since) in self.down_since.clone() {
            if self.draft.touches(id) {
                continue;
            }
            if !self.may_be_out(id) || self.whole_subtree_down(id, &mut whole) {
                self.down_since.insert(id, now.mono);
            } else if now.mono.since(since) >= after {
                self.mark_out(now, id, &format!("has been down for {} seconds", after.as_secs()));
            }
        }
    }

    pub(super) fn may_mark_out(&self, id: OsdId) -> bool {
        !self.draft.touches(id)
            && self.may_be_out(id)
            && !self.whole_subtree_down(id, &mut BTreeMap::new())
    }

    /// Whether an OSD is in, and need not stay in.
    fn may_be_out(&self, id: OsdId) -> bool {
        let map = self.map();
        if map.is_out(id) || map.effective_flags(id).contains(OsdState::NOOUT) {
            return false;
        }
        let osds = map.existing_osds().count().max(1);
        let share = map.in_osds().count() as f64 / osds as f64;
        let is_enough = share >= self.settings.float("mon_osd_min_in_ratio");
        if !is_enough {
            tracing::debug!("osd.{id} stays in: only {share:.2} of the OSDs are in");
        }
        is_enough
    }

    /// Whether everything below the first bucket of the limiting type, or of a larger one, is down: then it is the
    /// bucket's fault (power, a switch), and copying all that elsewhere would not help. `whole` remembers it of
    /// buckets.
    fn whole_subtree_down(&self, id: OsdId, whole: &mut BTreeMap<i32, bool>) -> bool {
        let map = self.map();
        let crush = map.crush();
        let limit = crush.type_id(self.settings.str("mon_osd_down_out_subtree_limit"));
        let limit = limit.and_then(|l| u16::try_from(l).ok()).filter(|l| *l > 0);
        let Some(limit) = limit else { return false };
        let bucket = crush.ancestors(id.0).find(|bucket| bucket.kind() >= limit);
        let Some(bucket) = bucket else { return false };
        *whole.entry(bucket.id()).or_insert_with(|| {
            crush.devices_below(bucket.id()).into_iter().all(|osd| map.is_down(OsdId(osd)))
        })
    }

    pub(super) fn mark_out(&mut self, now: Now, id: OsdId, why: &str) {
        let done = self.change(|inc, map| {
            inc.new_weight.insert(id, WEIGHT_OUT);
            if !map.state(id).contains(OsdState::AUTOOUT) {
                inc.toggle_state(id, OsdState::AUTOOUT);
            }
            if let Some(osd) = map.osd(id) {
                let old_weight = map.weight(id);
                inc.new_xinfo.insert(id, maps::OsdXInfo { old_weight, ..osd.xinfo });
            }
        });
        if done.is_ok() {
            self.say(now, Level::Info, format!("Marking osd.{id} out ({why})"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::bench::Bench;
    use serde_json::{Value, json};
    use std::time::Duration;
    use types::OsdId;

    const MINUTE: Duration = Duration::from_secs(60);

    fn done(bench: &mut Bench, cmd: Value) {
        let (r, outs, _) = bench.run(&cmd);
        assert_eq!(r, 0, "{cmd}: {outs}");
    }

    fn tick(bench: &mut Bench) {
        let now = bench.now();
        bench.c.auto_out(now);
        bench.commit();
    }

    fn minutes(bench: &mut Bench, n: u32) {
        for _ in 0..n {
            bench.pass(MINUTE);
            tick(bench);
        }
    }

    fn is_in(bench: &Bench, id: i32) -> bool {
        bench.c.map().is_in(OsdId(id))
    }

    /// Two stand in one rack, the third one in another.
    fn with_a_rack() -> Bench {
        let mut bench = Bench::new();
        for (id, rack) in [(0, "r0"), (1, "r0"), (2, "r1")] {
            let place = [format!("host=n{id}"), format!("rack={rack}"), "root=default".into()];
            let set = json!({"prefix": "osd crush set", "id": id, "weight": 1.0, "args": place});
            done(&mut bench, set);
        }
        bench
    }

    #[test]
    fn the_time_of_those_in_a_rack_that_was_down_begins_when_it_returns() {
        let mut bench = with_a_rack();
        (0..2).for_each(|id| bench.stop(OsdId(id)));
        minutes(&mut bench, 15);
        assert!(is_in(&bench, 0) && is_in(&bench, 1));
        // The first of them is there, the other one still boots.
        bench.start(OsdId(0));
        tick(&mut bench);
        minutes(&mut bench, 9);
        assert!(is_in(&bench, 1));
        minutes(&mut bench, 2);
        assert!(!is_in(&bench, 1));
    }

    /// They stand in no rack, and in something larger.
    #[test]
    fn where_everything_is_down_nobody_is_out() {
        let mut bench = Bench::new();
        let set = |bench: &mut Bench, ratio: &str| {
            let source = admin::settings::Source::File;
            bench.c.settings.set(source, "mon_osd_min_in_ratio", ratio).unwrap();
        };
        set(&mut bench, "0");
        (0..3).for_each(|id| bench.stop(OsdId(id)));
        minutes(&mut bench, 60);
        assert_eq!(bench.c.map().in_osds().count(), 3);
    }

    #[test]
    fn the_time_of_one_that_a_flag_kept_in_begins_when_the_flag_goes() {
        let mut bench = with_a_rack();
        let flag = |bench: &mut Bench, word: &str| {
            let prefix = format!("osd {word}-group");
            done(bench, json!({"prefix": prefix, "flags": "noout", "who": ["n1"]}));
        };
        flag(&mut bench, "set");
        bench.stop(OsdId(1));
        minutes(&mut bench, 60);
        flag(&mut bench, "unset");
        tick(&mut bench);
        assert!(is_in(&bench, 1));
        minutes(&mut bench, 10);
        assert!(!is_in(&bench, 1));
    }

    #[test]
    fn who_is_taken_in_by_hand_stays_for_the_whole_time() {
        let mut bench = with_a_rack();
        bench.stop(OsdId(1));
        minutes(&mut bench, 60);
        assert!(!is_in(&bench, 1));
        done(&mut bench, json!({"prefix": "osd in", "ids": ["1"]}));
        tick(&mut bench);
        minutes(&mut bench, 9);
        assert!(is_in(&bench, 1));
        minutes(&mut bench, 1);
        assert!(!is_in(&bench, 1));
    }
}
