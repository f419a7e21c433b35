//! A virtual machine with its disk in a block image.

use super::guest::{Guest, Plan, SHELL, exported, is_clean, new_file_system, packages, sum_of};
use super::images::{Images, MIB};
use super::tool::Tool;
use serde_json::json;
use std::path::PathBuf;

const DISK_MIB: u64 = 256;
/// `e2fsck` replayed the journal, or changed something.
const E2FSCK_CHANGED: i32 = 1;

/// Finds the image and runs the system on it.
const FIRST_INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for m in /modules/*; do /bin/busybox insmod $m; done
/bin/busybox mount -t ext4 /dev/vda /new
/bin/busybox mount -o move /dev /new/dev
exec /bin/busybox switch_root /new /init
";

/// The system's own.
const INIT: &str = "#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
";

/// A disk with the system on it, as a file.
fn disk(i: &Images) -> PathBuf {
    let root = i.file("root");
    for dir in ["bin", "dev", "proc", "data"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    std::fs::copy(packages().join("bin/busybox"), root.join("bin/busybox")).unwrap();
    std::fs::write(root.join("init"), format!("{INIT}{SHELL}")).unwrap();
    Tool::new("chmod").arg("755").arg(root.join("init")).ok();
    new_file_system(i, &root, DISK_MIB)
}

fn boot(i: &Images, image: &str) -> Guest {
    let name = i.qemu_name(image);
    let drive = format!("file={name},format=raw,if=none,id=disk,discard=unmap,cache=writeback");
    let devices = ["-drive", &drive, "-device", "virtio-blk-pci,drive=disk"].map(str::to_owned);
    let modules = ["drivers/block/virtio_blk.ko"];
    let dir = i.file("");
    Guest::boot(&Plan { dir: &dir, init: FIRST_INIT, modules: &modules, devices: &devices })
}

fn power_off(mut guest: Guest) {
    guest.sh("sync; mount -o remount,ro /");
    guest.power_off();
}

#[test]
fn a_virtual_machine_lives_on_an_image() {
    let i = Images::new("qemu-guest");
    let disk = disk(&i);
    let made = Tool::new("qemu-img").args(["convert", "-f", "raw", "-O", "raw"]).arg(&disk);
    made.arg(i.qemu_name("vm")).ok();
    let mut guest = boot(&i, "vm");

    guest.sh("dd if=/dev/urandom of=/data/kept bs=1M count=6 conv=fsync 2>/dev/null");
    guest.sh("dd if=/dev/zero of=/data/gone bs=1M count=40 conv=fsync 2>/dev/null");
    let sum = guest.sh("sha256sum /data/kept | cut -d ' ' -f 1");
    let used = || i.json("du vm")["images"][0]["used_size"].as_u64().unwrap();
    let before = used();
    guest.sh("rm /data/gone; sync; fstrim /");
    let after = used();
    // Said twice: whether it was late tells the guest's doing from ours.
    assert!(after + 30 * MIB <= before, "{before} before, {after} after a trim, then {}", used());

    // A snapshot while it writes, and one while its file system holds still.
    guest.sh("write_on /data & while [ ! -e /dev/count ]; do :; done");
    guest.writes_on();
    i.ok("snap create --no-progress vm@live");
    guest.writes_on();
    guest.sh("fsfreeze --freeze /");
    let named = json!({"device": "disk", "name": "frozen"});
    guest.command("blockdev-snapshot-internal-sync", named);
    guest.sh("fsfreeze --unfreeze /");
    guest.writes_on();
    guest.sh("touch /dev/stop; while [ ! -e /dev/stopped ]; do :; done");
    assert_eq!(guest.sh("sha256sum /data/kept | cut -d ' ' -f 1"), sum);
    power_off(guest);

    is_clean(&exported(&i, "vm@frozen"));
    let live = exported(&i, "vm@live");
    let replayed = Tool::new("e2fsck").arg("-p").arg(&live).run();
    assert!(replayed.status.code().is_some_and(|c| c <= E2FSCK_CHANGED), "{replayed:?}");
    is_clean(&live);
    let end = exported(&i, "vm");
    is_clean(&end);
    for disk in [&live, &end] {
        assert_eq!(sum_of(&i, disk, "/data/kept"), sum);
    }

    // It starts again from what was written.
    let mut guest = boot(&i, "vm");
    assert_eq!(guest.sh("sha256sum /data/kept | cut -d ' ' -f 1"), sum);
    power_off(guest);
}
