//! An OSD goes under load: killed, stopped in order, or silent though it lives. How long `rados
//! bench` waits at most, reading and writing, and that everything is whole again afterwards.
//!
//! `LOLIGO_IT_STRICT=1` holds it to the figures that are promised; else a busy machine gets more.

use super::cluster::Cluster;
use super::tool::Ran;
use loligo::wait::Deadline;
use rustix::process::Signal;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How an OSD goes, and how long clients may wait then, in milliseconds: promised, and here.
const WAYS: [(&str, Signal, u64, u64); 3] = [
    ("killed", Signal::KILL, 1000, 4000),
    ("stopped in order", Signal::TERM, 300, 4000),
    ("silent", Signal::STOP, 5000, 9000),
];

/// The longest wait that `rados bench` tells, in milliseconds.
fn longest_ms(ran: Ran) -> u64 {
    assert!(ran.status.success(), "{ran:?}");
    let out = String::from_utf8(ran.out).unwrap();
    let line = out.lines().find(|l| l.starts_with("Max latency"));
    let seconds: f64 = line.and_then(|l| l.split_whitespace().last()?.parse().ok()).unwrap();
    (seconds * 1000.0) as u64
}

fn up_osds(c: &Cluster) -> u64 {
    c.ask("status")["osdmap"]["num_up_osds"].as_u64().unwrap()
}

fn objects(c: &Cluster) -> u64 {
    c.ask("status")["pgmap"]["num_objects"].as_u64().unwrap_or(0)
}

#[test]
fn clients_hardly_notice_an_osd_that_goes() {
    let strict = std::env::var_os("LOLIGO_IT_STRICT").is_some();
    let c = Cluster::start(3, "3G");
    let bench = |line: &str| c.rados().args(["-p", "rbd", "bench"]).args(line.split(' '));
    bench("2 write -b 4096 -t 16 --no-cleanup --run-name base").ok();
    for (n, (way, signal, promised_ms, here_ms)) in WAYS.into_iter().enumerate() {
        let before = objects(&c);
        let write = format!("9 write -b 4096 -t 16 --no-cleanup --run-name w{n}");
        let writing = bench(&write).start();
        let reading = bench("9 rand -t 16 --run-name base").start();
        let busy = || objects(&c) > before + 100;
        assert!(Deadline::after(PATIENCE).until(LOOK_EVERY, busy), "nothing is written");
        c.signal("osd.1", signal);
        let wrote = longest_ms(writing.wait());
        let read = longest_ms(reading.wait());
        let most_ms = if strict { promised_ms } else { here_ms };
        eprintln!("osd.1 {way}: writes waited {wrote} ms at most, reads {read} ms");
        assert!(wrote <= most_ms && read <= most_ms, "{way}: {wrote} and {read} ms of {most_ms}");
        assert!(Deadline::after(PATIENCE).until(LOOK_EVERY, || up_osds(&c) == 2), "{way}");
        if signal == Signal::STOP {
            // It finds out by itself that it was marked down, and comes back.
            c.signal("osd.1", Signal::CONT);
        } else {
            c.dev("start").ok();
        }
        assert!(Deadline::after(PATIENCE).until(LOOK_EVERY, || up_osds(&c) == 3), "{way}");
        c.wait_until_clean(PATIENCE);
    }
    let log = c.ceph().args(["log", "last", "100"]).text();
    assert!(log.contains("osd.1 marked itself down"), "{log}");
    assert!(log.contains("reporters from different host after"), "{log}");
}
