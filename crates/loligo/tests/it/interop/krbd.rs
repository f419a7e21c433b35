//! Block images that a Linux kernel maps (krbd), in a virtual machine whose network is the host's own.

use super::cluster::{Cluster, is_foreign};
use super::guest::{Guest, PATIENCE, Plan, SHELL, exported, is_clean, new_file_system, sum_of};
use super::images::Images;
use loligo::wait::Deadline;
use std::time::Duration;

const DISK_MIB: u64 = 128;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// In the order in which they can be loaded.
const MODULES: [&str; 7] = [
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
    "lib/libcrc32c.ko",
    "net/dns_resolver/dns_resolver.ko",
    "net/ceph/libceph.ko",
    "drivers/block/rbd.ko",
];

/// QEMU's network passes on to the host's 127.0.0.1 what is sent there; the guest has no such address itself. `map
/// IMAGE [SNAP [OPTIONS]]` and `unmap NUMBER` are what `rbd map` and `rbd unmap` do in the end.
const INIT: &str = "#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
for m in /modules/*; do insmod $m; done
echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add 127.0.0.0/8 via 10.0.2.2
mkdir /data /other
map() { echo \"$MON name=admin,ms_mode=crc${3:+,$3} $POOL $1 ${2:--}\" >/sys/bus/rbd/add_single_major; }
unmap() { echo $1 >/sys/bus/rbd/remove_single_major; }
sum() { sha256sum $1 | cut -d ' ' -f 1; }
";

fn boot(i: &Images) -> Guest {
    let devices = ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"];
    let devices = devices.map(str::to_owned);
    let (mon, pool) = (i.pool.cluster.mon_port(), &i.pool.name);
    let init = format!("{INIT}MON=127.0.0.1:{mon}\nPOOL={pool}\n{SHELL}");
    let dir = i.file("");
    Guest::boot(&Plan { dir: &dir, init: &init, modules: &MODULES, devices: &devices })
}

/// The image `vm` with an empty file system.
fn make_image(i: &Images) {
    let root = i.file("root");
    std::fs::create_dir(&root).unwrap();
    let disk = new_file_system(i, &root, DISK_MIB);
    i.rbd("import --no-progress").arg(&disk).arg("vm").ok();
}

#[track_caller]
fn until(otherwise: &str, is_so: impl FnMut() -> bool) {
    assert!(Deadline::after(PATIENCE).until(LOOK_EVERY, is_so), "{otherwise}");
}

/// A cluster of its own: OSDs are killed, and PGs split and merge.
#[test]
fn a_kernel_maps_an_image_and_holds_on_to_it() {
    if is_foreign() {
        return;
    }
    let c: &'static Cluster = Box::leak(Box::new(Cluster::start(3, "1G")));
    let i = Images::on(c, "krbd");
    make_image(&i);
    let mut guest = boot(&i);

    guest.sh("map vm && mount -t ext4 /dev/rbd0 /data");
    guest.sh("dd if=/dev/urandom of=/data/kept bs=1M count=6 conv=fsync 2>/dev/null");
    guest.sh("dd if=/dev/zero of=/data/gone bs=1M count=40 conv=fsync 2>/dev/null");
    let sum = guest.sh("sum /data/kept");
    // The kernel zeroes the parts of objects and removes none: sizes do not tell, but the disks.
    let used_mib = || {
        let nodes = c.ask("osd df")["nodes"].as_array().unwrap().clone();
        nodes.iter().map(|osd| osd["kb_used_data"].as_u64().unwrap()).sum::<u64>() / 1024
    };
    let full_mib = 3 * (6 + 40);
    until("what was written is not seen", || used_mib() >= full_mib);
    guest.sh("rm /data/gone; sync; fstrim /data");
    until("a trim frees nothing", || used_mib() + 3 * 30 <= full_mib);

    // The lock goes to who makes a snapshot, and comes back.
    guest.sh("write_on /data & while [ ! -e /dev/count ]; do :; done");
    guest.writes_on();
    i.ok("snap create --no-progress vm@live");
    guest.writes_on();

    // OSDs go and come, and its PGs change.
    for osd in 0..3 {
        c.kill(&format!("osd.{osd}"));
        guest.writes_on();
        c.dev("start").ok();
        c.wait_until_clean(PATIENCE);
    }
    for pg_num in [32, 4, 16] {
        let pool = i.pool.name.clone();
        c.ceph().args(["osd", "pool", "set", &pool, "pg_num", &pg_num.to_string()]).ok();
        until("the PGs do not become as many as wanted", || {
            guest.writes_on();
            c.ask(&format!("osd pool get {pool} pg_num"))["pg_num"].as_u64() == Some(pg_num)
        });
        guest.writes_on();
    }
    guest.sh("touch /dev/stop; while [ ! -e /dev/stopped ]; do :; done");
    c.wait_until_clean(PATIENCE);

    // The snapshot, and a clone of it whose objects are copied up.
    i.ok("clone --rbd-default-clone-format 2 vm@live child");
    guest
        .sh("map vm live read_from_replica=balance && mount -t ext4 -o ro,noload /dev/rbd1 /other");
    assert_eq!(guest.sh("sum /other/kept"), sum);
    guest.sh("umount /other && unmap 1");
    guest.sh("map child && mount -t ext4 /dev/rbd1 /other");
    guest.sh("dd if=/dev/urandom of=/other/more bs=1M count=3 conv=fsync 2>/dev/null");
    assert_eq!(guest.sh("sum /other/kept"), sum);
    let more = guest.sh("sum /other/more");
    guest.sh("umount /other && unmap 1");
    assert_eq!(guest.sh("sum /data/kept"), sum);
    guest.sh("umount /data && unmap 0");
    guest.power_off();

    let (end, child) = (exported(&i, "vm"), exported(&i, "child"));
    for disk in [&end, &child] {
        is_clean(disk);
        assert_eq!(sum_of(&i, disk, "/kept"), sum);
    }
    assert_eq!(sum_of(&i, &child, "/more"), more);
    for image in ["vm", "child"] {
        let checked = i.rbd("object-map check --no-progress").arg(image).run();
        assert!(checked.status.success(), "{checked:?}");
        let status = i.json(&format!("status {image}"));
        assert!(status["watchers"].as_array().is_none_or(Vec::is_empty), "{status}");
        let flags = i.json(&format!("info {image}"))["flags"].clone();
        assert!(flags.as_array().is_none_or(Vec::is_empty), "{image}: {flags}");
    }
}

/// The next kernel takes the lock away, when the watch is over by which the dead one would have been asked.
#[test]
fn a_kernel_takes_the_image_over_from_one_that_died() {
    let i = Images::new("krbd-dead");
    make_image(&i);
    let mut guest = boot(&i);
    guest.sh("map vm && mount -t ext4 /dev/rbd0 /data");
    guest.sh("dd if=/dev/urandom of=/data/kept bs=1M count=2 conv=fsync 2>/dev/null");
    let sum = guest.sh("sum /data/kept");
    guest.sh("write_on /data & while [ ! -e /dev/count ]; do :; done");
    guest.writes_on();
    let holder = i.json("lock ls vm")[0]["address"].as_str().unwrap().to_owned();
    guest.kill();

    let mut guest = boot(&i);
    guest.sh("map vm && mount -t ext4 /dev/rbd0 /data");
    assert_eq!(guest.sh("sum /data/kept"), sum);
    guest.sh("dd if=/dev/urandom of=/data/more bs=1M count=2 conv=fsync 2>/dev/null");
    let listed = i.pool.cluster.ceph().args(["osd", "blocklist", "ls"]).text();
    assert!(listed.contains(&holder), "{holder} is not among: {listed}");
    guest.sh("umount /data && unmap 0");
    guest.power_off();
    let end = exported(&i, "vm");
    is_clean(&end);
    assert_eq!(sum_of(&i, &end, "/kept"), sum);
}
