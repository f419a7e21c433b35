//! Watches and notifies through the real `rados`.

use super::cluster::shared;
use loligo::wait::Deadline;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(100);

#[test]
fn a_notify_reaches_a_watcher_and_its_answer_comes_back() {
    let pool = shared().pool("watch");
    pool.put("bell", b"");
    assert_eq!(pool.ok("listwatchers bell"), "");
    let watch = pool.rados().args(["watch", "bell"]).open_stdin().start();
    let mut listed = String::new();
    let there = Deadline::after(Duration::from_secs(20)).until(LOOK_EVERY, || {
        listed = pool.ok("listwatchers bell");
        !listed.is_empty()
    });
    assert!(there, "nobody watches");
    assert!(listed.contains("watcher=127.0.0.1:0/") && listed.contains("cookie="), "{listed}");
    let notified = pool.rados().args(["notify", "bell", "ding dong"]).text();
    assert!(notified.contains("reply client."), "{notified}");
    assert!(!notified.contains("timeout client."), "{notified}");
    assert!(notified.contains("ding dong"), "{notified}");
    let said = watch.end_stdin();
    assert!(String::from_utf8_lossy(&said.out).contains("NOTIFY cookie"), "{said:?}");
    assert_eq!(pool.ok("listwatchers bell"), "", "it unwatches when it ends in good order");
}

#[test]
fn a_notify_without_watchers_ends_at_once() {
    let pool = shared().pool("notify");
    pool.put("bell", b"");
    let notified = pool.rados().args(["notify", "bell", "x"]).limit(Duration::from_secs(15)).text();
    assert!(!notified.contains("client."), "{notified}");
    let err = pool.rados().args(["notify", "missing", "x"]).fails(1);
    assert!(err.contains("No such file or directory"), "{err}");
}

#[test]
fn a_watcher_that_dies_is_dropped_after_its_timeout() {
    let pool = shared().pool("watch-dies");
    pool.put("bell", b"");
    let watch = pool.rados().args(["watch", "bell"]).open_stdin().start();
    let count = || pool.ok("listwatchers bell").lines().count();
    assert!(Deadline::after(Duration::from_secs(20)).until(LOOK_EVERY, || count() == 1));
    watch.kill();
    // 30 s after its last ping.
    let gone = Deadline::after(Duration::from_secs(60)).until(LOOK_EVERY, || count() == 0);
    assert!(gone, "it still watches: {}", pool.ok("listwatchers bell"));
}
