//! A virtual machine with its disk in a block image.
//!
//! QEMU emulates the processor, so this needs no rights. The kernel and busybox come from Debian's
//! packages, which `./check packages` unpacks into the folder `guest` of the target folder.

use super::images::{Images, MIB};
use super::tool::{Running, Tool};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DISK_MIB: u64 = 256;
/// Some seconds are enough on a machine that is idle.
const PATIENCE: Duration = Duration::from_secs(180);
/// `e2fsck` replayed the journal, or changed something.
const E2FSCK_CHANGED: i32 = 1;

/// In the order in which they can be loaded.
const MODULES: [&str; 6] = [
    "virtio/virtio_ring.ko",
    "virtio/virtio.ko",
    "virtio/virtio_pci_modern_dev.ko",
    "virtio/virtio_pci_legacy_dev.ko",
    "virtio/virtio_pci.ko",
    "block/virtio_blk.ko",
];

/// Finds the image and runs the system on it.
const FIRST_INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for m in /modules/*; do /bin/busybox insmod $m; done
/bin/busybox mount -t ext4 /dev/vda /new
/bin/busybox mount -o move /dev /new/dev
exec /bin/busybox switch_root /new /init
";

/// A shell for the test: each line is run, and its end is said.
const INIT: &str = "#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
stty -echo </dev/console
write_on() {
  n=0
  while [ -e /proc/self ] && [ ! -e /dev/stop ]; do
    n=$((n + 1))
    dd if=/dev/urandom of=/data/$((n % 50)) bs=4k count=3 conv=fsync 2>/dev/null || break
    echo $n >/dev/count
  done
  : >/dev/stopped
}
echo guest: ready
while read -r line; do eval \"$line\"; echo \"guest: ended with $?\"; done
";

/// The unpacked packages.
fn packages() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target =
        target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let guest = target.join("guest");
    assert!(guest.is_dir(), "{} is not there; ./check packages makes it", guest.display());
    guest
}

fn only_entry(dir: &Path, prefix: &str) -> PathBuf {
    let all = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut found = all
        .map(|e| e.unwrap().path())
        .filter(|p| p.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
    found.next().unwrap_or_else(|| panic!("no {prefix} in {}", dir.display()))
}

/// One entry of an initial file system ("newc" of cpio).
fn cpio(out: &mut Vec<u8>, name: &str, mode: u32, data: &[u8]) {
    let pad = |out: &mut Vec<u8>| out.resize(out.len().next_multiple_of(4), 0);
    let mut header = "070701".to_owned();
    // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name, checksum
    let fields = [0, mode, 0, 0, 1, 0, data.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    fields.iter().for_each(|field| header += &format!("{field:08x}"));
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    pad(out);
    out.extend_from_slice(data);
    pad(out);
}

fn first_file_system(packages: &Path) -> Vec<u8> {
    const DIR: u32 = 0o040_755;
    const FILE: u32 = 0o100_755;
    let mut out = Vec::new();
    for dir in ["bin", "dev", "new", "modules"] {
        cpio(&mut out, dir, DIR, &[]);
    }
    cpio(&mut out, "init", FILE, FIRST_INIT.as_bytes());
    let busybox = std::fs::read(packages.join("bin/busybox")).unwrap();
    cpio(&mut out, "bin/busybox", FILE, &busybox);
    let drivers = only_entry(&packages.join("lib/modules"), "").join("kernel/drivers");
    for (n, module) in MODULES.iter().enumerate() {
        let data = std::fs::read(drivers.join(module)).unwrap();
        cpio(&mut out, &format!("modules/{n}"), FILE, &data);
    }
    cpio(&mut out, "TRAILER!!!", 0, &[]);
    out
}

/// A disk with the system on it, as a file.
fn disk(i: &Images, packages: &Path) -> PathBuf {
    let root = i.file("root");
    for dir in ["bin", "dev", "proc", "data"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    std::fs::copy(packages.join("bin/busybox"), root.join("bin/busybox")).unwrap();
    std::fs::write(root.join("init"), INIT).unwrap();
    Tool::new("chmod").arg("755").arg(root.join("init")).ok();
    let disk = i.file("disk");
    let make = Tool::new("mke2fs").args(["-q", "-t", "ext4", "-b", "4096", "-d"]);
    make.arg(&root).arg(&disk).arg(format!("{DISK_MIB}M")).ok();
    disk
}

/// A running machine.
struct Guest {
    qemu: Running,
    console: BufReader<UnixStream>,
    monitor: BufReader<UnixStream>,
}

impl Guest {
    fn boot(i: &Images, packages: &Path, image: &str) -> Self {
        let first = i.file("initrd");
        std::fs::write(&first, first_file_system(packages)).unwrap();
        let (console, monitor) = (i.file("console"), i.file("monitor"));
        let drive = i.qemu_name(image);
        let qemu = Tool::new("qemu-system-x86_64")
            .args(["-accel", "tcg", "-machine", "q35,hpet=off", "-m", "192", "-nodefaults"])
            .args(["-display", "none", "-no-reboot"])
            .args(["-append", "console=ttyS0 quiet panic=-1", "-kernel"])
            .arg(only_entry(&packages.join("boot"), "vmlinuz"))
            .arg("-initrd")
            .arg(&first)
            .arg("-drive")
            .arg(format!("file={drive},format=raw,if=none,id=disk,discard=unmap,cache=writeback"))
            .args(["-device", "virtio-blk-pci,drive=disk"])
            .arg("-chardev")
            .arg(format!("socket,id=console,path={},server=on,wait=on", console.display()))
            .args(["-serial", "chardev:console", "-qmp"])
            .arg(format!("unix:{},server=on,wait=off", monitor.display()))
            .limit(PATIENCE * 2)
            .start();
        let connect = |path: &Path| {
            let mut stream = None;
            loligo::wait::Deadline::after(PATIENCE).until(Duration::from_millis(50), || {
                stream = UnixStream::connect(path).ok();
                stream.is_some()
            });
            let stream = stream.unwrap_or_else(|| panic!("no {}", path.display()));
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            BufReader::new(stream)
        };
        let console = connect(&console);
        let mut guest = Guest { qemu, console, monitor: connect(&monitor) };
        guest.until("guest: ready");
        guest.answer("QMP");
        guest.command("qmp_capabilities", json!({}));
        guest
    }

    /// What the console says before a line that begins so, and the line's rest.
    fn until(&mut self, wanted: &str) -> (String, String) {
        let mut said = String::new();
        loop {
            let mut line = Vec::new();
            let read = self.console.read_until(b'\n', &mut line);
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            assert!(read.is_ok_and(|n| n > 0), "no {wanted:?}, but: {said}{line}");
            if let Some(rest) = line.strip_prefix(wanted) {
                return (said, rest.to_owned());
            }
            said += &line;
            said.push('\n');
        }
    }

    /// A line of shell that must succeed: what it says.
    fn sh(&mut self, line: &str) -> String {
        writeln!(self.console.get_mut(), "{line}").unwrap();
        let (said, code) = self.until("guest: ended with ");
        assert_eq!(code, "0", "{line}: {said}");
        said.trim().to_owned()
    }

    fn answer(&mut self, key: &str) -> Value {
        loop {
            let mut line = String::new();
            self.monitor.read_line(&mut line).unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            assert!(message.get("error").is_none(), "{message}");
            // Events come in between.
            if let Some(value) = message.get(key) {
                return value.clone();
            }
        }
    }

    /// A command to QEMU's monitor that must succeed.
    fn command(&mut self, name: &str, arguments: Value) -> Value {
        let message = json!({"execute": name, "arguments": arguments});
        writeln!(self.monitor.get_mut(), "{message}").unwrap();
        self.answer("return")
    }

    /// The writer in the background writes another few files, or this fails.
    fn writes_on(&mut self) {
        self.sh("n=$(cat /dev/count); while [ $(cat /dev/count) -lt $((n + 5)) ]; do :; done");
    }

    fn power_off(mut self) {
        self.sh("sync; mount -o remount,ro /");
        writeln!(self.console.get_mut(), "poweroff -f").unwrap();
        let ran = self.qemu.wait();
        assert!(ran.status.success(), "{ran:?}");
    }
}

/// The content of an image or snapshot as a file.
fn exported(i: &Images, image: &str) -> PathBuf {
    let path = i.file(&format!("exported-{image}"));
    i.rbd("export --no-progress").arg(image).arg(&path).ok();
    path
}

fn is_clean(disk: &Path) {
    Tool::new("e2fsck").args(["-f", "-n"]).arg(disk).ok();
}

/// SHA-256 of a file of the guest, looked for from outside.
fn sum_of(i: &Images, disk: &Path, path: &str) -> String {
    let out = i.file("dumped");
    Tool::new("debugfs").arg("-R").arg(format!("dump {path} {}", out.display())).arg(disk).ok();
    let said = Tool::new("sha256sum").arg(&out).text();
    said.split(' ').next().unwrap().to_owned()
}

#[test]
fn a_virtual_machine_lives_on_an_image() {
    let i = Images::new("qemu-guest");
    let packages = packages();
    let disk = disk(&i, &packages);
    let made = Tool::new("qemu-img").args(["convert", "-f", "raw", "-O", "raw"]).arg(&disk);
    made.arg(i.qemu_name("vm")).ok();
    let mut guest = Guest::boot(&i, &packages, "vm");

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
    guest.sh("write_on & while [ ! -e /dev/count ]; do :; done");
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
    guest.power_off();

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
    let mut guest = Guest::boot(&i, &packages, "vm");
    assert_eq!(guest.sh("sha256sum /data/kept | cut -d ' ' -f 1"), sum);
    guest.power_off();
}
