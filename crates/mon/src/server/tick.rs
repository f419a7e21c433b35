//! What goes by the clock.

use super::Server;
use io::Now;

impl Server {
    pub(super) fn tick(&mut self, now: Now) {
        let every = self.cluster.settings.duration("mon_tick_interval_ms");
        self.next_tick = now.mono.after(every);
        self.tick_put_off = false;
        self.asks_for_space = true;
        let c = &mut self.cluster;
        if c.cut_off(now).is_none() {
            c.silent_osds(now);
            c.failed_osds(now);
            c.auto_out(now);
        }
        c.full_osds(now);
        let map = c.state.osdmap.clone();
        let sums = c.pgmap.tick(now, &map);
        c.quotas(now, &sums);
        c.adjust_pgs(now.mono);
        let work = sums.total.num_objects_degraded + sums.total.num_objects_misplaced;
        c.slow_out(now, work == 0);
        c.balance(now, &sums);
        let checks = c.checks(now, &sums);
        c.log_health(now, &checks);
        c.age_mutes(now, &checks, &sums);
        c.expire_blocklist(now);
        c.purge_snaps();
        c.trim_maps();
        c.prune_maps();
        c.age_identities(now);
        c.age_crashes(now);
        c.scrubs.look_again();
        // A lost order is no reason for a PG that never comes.
        self.order_pgs(|_| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MonConfig;
    use crate::commands::bench::Bench;
    use crate::kv::Kv;
    use crate::server::Input;
    use io::kv::{KvAnswer, KvOp, KvSpace, KvToken, KvVersion};
    use io::{Effects, Rng};
    use std::time::Duration;
    use types::Mono;
    use wire::LinkId;

    fn server() -> (Server, Now) {
        let Bench { c, .. } = Bench::new();
        let now = c.started;
        let cfg = MonConfig::new("a", "127.0.0.1:7001".parse().unwrap());
        (Server::new(&cfg, &mut Rng::with_seed(1), c), now)
    }

    /// The commit that begins at the end of this turn.
    fn commit_of(server: &mut Server, now: Now, kv: &mut Kv) -> KvToken {
        let mut fx = Effects::default();
        server.end_turn(now, kv, &mut fx);
        let commits = std::mem::take(&mut fx.kv);
        let is_commit = |op: &KvOp| matches!(op, KvOp::Commit { .. });
        commits.into_iter().find(|(_, op)| is_commit(op)).expect("a commit").0
    }

    /// It is put off so that what is here is heard first. Where what comes during a commit makes the next one, and each
    /// takes long, it has to come all the same.
    #[test]
    fn slow_commits_without_end_do_not_keep_the_clock_from_being_looked_at() {
        let (mut server, mut now) = server();
        let mut kv = Kv::default();
        server.cluster.draft.put("key", "value");
        let mut ticks = 0;
        for n in 0..8 {
            let next_tick = server.next_tick;
            let token = commit_of(&mut server, now, &mut kv);
            ticks += usize::from(server.next_tick != next_tick);
            now.mono = now.mono.after(Duration::from_secs(6));
            // Ids are given out by the thousand.
            server.cluster.next_global_id = server.cluster.state.global_ids_to;
            server.waiting.push_back(Input::WantsGlobalId(LinkId(n)));
            let done = KvAnswer::Committed(KvVersion::default());
            server.on_kv(now, &mut kv, token, done, &mut Effects::default()).unwrap();
        }
        assert_eq!(ticks, 4, "with every second commit");
    }

    /// How much room there is, it asks its store again and again.
    #[test]
    fn a_store_without_room_is_heard_of() {
        let (mut server, now) = server();
        let mut kv = Kv::default();
        for _ in 0..2 {
            let mut fx = Effects::default();
            server.next_tick = Mono(0);
            server.end_turn(now, &mut kv, &mut fx);
            let mut asked = 0;
            for (token, op) in std::mem::take(&mut fx.kv) {
                let answer = match op {
                    KvOp::Space => {
                        asked += 1;
                        let (disk_bytes, available_bytes) = (100, 4);
                        let space = KvSpace { store_bytes: 1, disk_bytes, available_bytes };
                        KvAnswer::Space(Some(space))
                    }
                    KvOp::Commit { .. } => KvAnswer::Committed(KvVersion::default()),
                    other => panic!("{other:?}"),
                };
                server.on_kv(now, &mut kv, token, answer, &mut fx).unwrap();
            }
            assert_eq!(asked, 1);
            let health = server.cluster.health(now).text(false);
            assert!(health.contains("mon a is very low on available space"), "{health}");
        }
    }
}
