//! Checks of what daemons that crashed have left behind.

use super::{Checks, Severity};
use crate::cluster::Cluster;
use io::Now;

/// So many are named.
const MAX_LINES: usize = 30;

pub(super) fn check(c: &Cluster, now: Now, checks: &mut Checks) {
    let recent = c.settings.duration("mgr/crash/warn_recent_interval");
    let since = now.wall.as_duration().saturating_sub(recent);
    let new = c.crashes.iter().filter(|(_, crash)| crash.is_new());
    let new: Vec<_> = new.filter(|(_, crash)| crash.stamp.as_duration() > since).collect();
    if new.is_empty() {
        return;
    }
    let lines = new.iter().take(MAX_LINES).map(|(_, crash)| crash.line());
    let more = new.len().saturating_sub(MAX_LINES);
    let more = (more > 0).then(|| format!("and {more} more"));
    let summary = format!("{} daemons have recently crashed", new.len());
    checks
        .add("RECENT_CRASH", Severity::Warn, new.len(), summary)
        .detail(lines.chain(more))
        .hint("'ceph crash ls-new' and 'ceph crash info ID' show what happened, 'ceph crash archive-all' ends this");
}
