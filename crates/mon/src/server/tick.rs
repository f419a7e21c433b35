//! What goes by the clock.

use super::Server;
use io::Now;

impl Server {
    pub(super) fn tick(&mut self, now: Now) {
        let every = self.cluster.settings.duration("mon_tick_interval_ms");
        self.next_tick = now.mono.after(every);
        let c = &mut self.cluster;
        c.silent_osds(now);
        c.failed_osds(now);
        c.auto_out(now);
        c.full_osds(now);
        let map = c.state.osdmap.clone();
        c.pgmap.tick(now, &map);
        let sums = c.pgmap.sums(&map);
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
        c.age_identities(now);
        c.age_crashes(now);
        c.scrubs.look_again();
        // A lost order is no reason for a PG that never comes.
        self.order_pgs(|_| true);
    }
}
