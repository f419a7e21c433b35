//! A virtual machine for the tests.
//!
//! QEMU emulates the processor, so this needs no rights. The kernel and busybox come from Debian's
//! packages, which `./check packages` unpacks into the folder `guest` of the target folder.

use super::images::Images;
use super::tool::{Running, Tool};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Some seconds are enough on a machine that is idle.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// What every machine needs to find its devices; in the order in which they can be loaded.
const MODULES: [&str; 5] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci.ko",
];
/// A shell for the test, the end of every init: each line is run, and its end is said. `write_on FOLDER` writes files
/// there until `/dev/stop` is there, and counts them in `/dev/count`.
pub const SHELL: &str = "
stty -echo </dev/console
write_on() {
  n=0
  while [ -e /proc/self ] && [ ! -e /dev/stop ]; do
    n=$((n + 1))
    dd if=/dev/urandom of=$1/$((n % 50)) bs=4k count=3 conv=fsync 2>/dev/null || break
    echo $n >/dev/count
  done
  : >/dev/stopped
}
echo guest: ready
while read -r line; do eval \"$line\"; echo \"guest: ended with $?\"; done
";

/// What a machine begins with.
pub struct Plan<'a> {
    /// Where its files are put.
    pub dir: &'a Path,
    /// Its first file system's `/init`: a script for busybox.
    pub init: &'a str,
    /// Kernel modules besides those of every machine, as they lie in the folder `kernel`; found in `/modules` in this
    /// order.
    pub modules: &'a [&'a str],
    /// Its devices: arguments of QEMU.
    pub devices: &'a [String],
}

/// The unpacked packages.
pub fn packages() -> PathBuf {
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

fn first_file_system(plan: &Plan<'_>) -> Vec<u8> {
    const DIR: u32 = 0o040_755;
    const FILE: u32 = 0o100_755;
    let packages = packages();
    let mut out = Vec::new();
    for dir in ["bin", "dev", "proc", "sys", "new", "modules"] {
        cpio(&mut out, dir, DIR, &[]);
    }
    cpio(&mut out, "init", FILE, plan.init.as_bytes());
    let busybox = std::fs::read(packages.join("bin/busybox")).unwrap();
    cpio(&mut out, "bin/busybox", FILE, &busybox);
    let all = only_entry(&packages.join("lib/modules"), "").join("kernel");
    for (n, module) in MODULES.iter().chain(plan.modules).enumerate() {
        let data = std::fs::read(all.join(module)).unwrap_or_else(|e| panic!("{module}: {e}"));
        cpio(&mut out, &format!("modules/{n:02}"), FILE, &data);
    }
    cpio(&mut out, "TRAILER!!!", 0, &[]);
    out
}

/// A running machine.
pub struct Guest {
    qemu: Running,
    console: BufReader<UnixStream>,
    monitor: BufReader<UnixStream>,
}

impl Guest {
    pub fn boot(plan: &Plan<'_>) -> Self {
        let file = |name: &str| plan.dir.join(name);
        let (first, console, monitor) = (file("initrd"), file("console"), file("monitor"));
        std::fs::write(&first, first_file_system(plan)).unwrap();
        let qemu = Tool::new("qemu-system-x86_64")
            .args(["-accel", "tcg", "-machine", "q35,hpet=off", "-m", "192", "-nodefaults"])
            .args(["-display", "none", "-no-reboot"])
            .args(["-append", "console=ttyS0 quiet panic=-1", "-kernel"])
            .arg(only_entry(&packages().join("boot"), "vmlinuz"))
            .arg("-initrd")
            .arg(&first)
            .args(plan.devices)
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
    pub fn sh(&mut self, line: &str) -> String {
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
    pub fn command(&mut self, name: &str, arguments: Value) -> Value {
        let message = json!({"execute": name, "arguments": arguments});
        writeln!(self.monitor.get_mut(), "{message}").unwrap();
        self.answer("return")
    }

    /// `write_on` in the background writes another few files, or this fails.
    pub fn writes_on(&mut self) {
        self.sh("n=$(cat /dev/count); while [ $(cat /dev/count) -lt $((n + 5)) ]; do :; done");
    }

    /// The machine is switched off, whatever it is at.
    pub fn kill(self) {
        self.qemu.kill();
    }

    /// Ends the machine; its file systems are written out before.
    pub fn power_off(mut self) {
        writeln!(self.console.get_mut(), "sync; poweroff -f").unwrap();
        let ran = self.qemu.wait();
        assert!(ran.status.success(), "{ran:?}");
    }
}

/// The content of an image or snapshot as a file.
pub fn exported(i: &Images, image: &str) -> PathBuf {
    let path = i.file(&format!("exported-{image}"));
    i.rbd("export --no-progress").arg(image).arg(&path).ok();
    path
}

/// An ext4 file system without fault.
pub fn is_clean(disk: &Path) {
    Tool::new("e2fsck").args(["-f", "-n"]).arg(disk).ok();
}

/// SHA-256 of a file of the guest, looked for from outside.
pub fn sum_of(i: &Images, disk: &Path, path: &str) -> String {
    let out = i.file("dumped");
    Tool::new("debugfs").arg("-R").arg(format!("dump {path} {}", out.display())).arg(disk).ok();
    let said = Tool::new("sha256sum").arg(&out).text();
    said.split(' ').next().unwrap().to_owned()
}

/// A new ext4 file system with what is in a folder, as a file.
pub fn new_file_system(i: &Images, root: &Path, mib: u64) -> PathBuf {
    let disk = i.file("disk");
    let make = Tool::new("mke2fs").args(["-q", "-t", "ext4", "-b", "4096", "-d"]);
    make.arg(root).arg(&disk).arg(format!("{mib}M")).ok();
    disk
}
