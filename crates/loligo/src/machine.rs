//! What this machine is, for `ceph osd metadata` and `ceph mon metadata`, in Ceph's words.

use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// CPU time of this process.
pub fn cpu_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// What one of the kernel's clocks says.
pub fn clock(id: ClockId) -> Duration {
    let t = clock_gettime(id);
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// The machine's name.
pub fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

/// Facts that every daemon gives.
pub fn facts() -> BTreeMap<String, String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let release = read("/etc/os-release");
    let os = |key: &str| field(&release, key, '=').trim_matches('"').to_owned();
    let (cpu, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let kib = |key: &str| field(&memory, key, ':').trim_end_matches("kB").trim().to_owned();
    let facts = [
        ("arch", std::env::consts::ARCH.to_owned()),
        ("ceph_release", admin::common::RELEASE.to_owned()),
        ("ceph_version", admin::common::version_line()),
        ("ceph_version_short", admin::common::VERSION.to_owned()),
        ("cpu", field(&cpu, "model name", ':').to_owned()),
        ("distro", os("ID")),
        ("distro_description", os("PRETTY_NAME")),
        ("distro_version", os("VERSION_ID")),
        ("hostname", hostname()),
        ("kernel_description", read("/proc/sys/kernel/version")),
        ("kernel_version", read("/proc/sys/kernel/osrelease")),
        ("mem_swap_kb", kib("SwapTotal")),
        ("mem_total_kb", kib("MemTotal")),
        ("os", "Linux".to_owned()),
    ];
    let mut facts: BTreeMap<String, String> =
        facts.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    add_container(&mut facts, |name| std::env::var(name).ok());
    facts
}

/// In a container, what its environment says of it; the host is the node then (`common/util.cc`, `collect_sys_info`).
fn add_container(facts: &mut BTreeMap<String, String>, var: impl Fn(&str) -> Option<String>) {
    let var = |name: &str| var(name).filter(|value| !value.is_empty());
    let names = ["POD_NAME", "CONTAINER_NAME", "CONTAINER_IMAGE"];
    let is_in_one = names.iter().any(|name| var(name).is_some());
    for name in names.into_iter().chain(["POD_NAMESPACE"]).filter(|_| is_in_one) {
        facts.extend(var(name).map(|value| (name.to_ascii_lowercase(), value)));
    }
    if let Some(node) = var("NODE_NAME").filter(|_| is_in_one) {
        let own = facts.insert("hostname".to_owned(), node);
        facts.extend(own.map(|name| ("container_hostname".to_owned(), name)));
    }
}

/// The value of `key` in lines of `key SEPARATOR value`.
fn field<'a>(text: &'a str, key: &str, separator: char) -> &'a str {
    let pairs = text.lines().filter_map(|l| l.split_once(separator));
    pairs.into_iter().find(|(k, _)| k.trim() == key).map_or("", |(_, v)| v.trim())
}

/// A disk as the kernel describes it.
struct Disk {
    /// `nvme0n1`, also of a partition.
    name: String,
    /// Its folder in `/sys`.
    sys: PathBuf,
    /// Whether the path names it or a part of it, not a file on it.
    is_device: bool,
}

impl Disk {
    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.sys.join(file)).unwrap_or_default().trim().to_owned()
    }

    fn queue(&self, file: &str) -> String {
        self.read(&format!("queue/{file}"))
    }

    /// Vendor, model and serial number, as far as it says them.
    fn id(&self) -> String {
        let serial = Some(self.read("device/serial")).filter(|s| !s.is_empty());
        let parts = [
            self.read("device/vendor"),
            self.read("device/model"),
            serial.unwrap_or_else(|| self.read("serial")),
        ];
        // The vendor of a virtual disk or an NVMe is the number of who makes the bus.
        let known = parts.iter().filter(|p| !p.is_empty() && !p.starts_with("0x"));
        known.map(|p| p.replace(' ', "_")).collect::<Vec<_>>().join("_")
    }
}

/// Facts about a disk of an OSD under the names that tools look for: `bluestore_bdev` for the one
/// with the data, `bluefs_wal` for that of the log (`blk/kernel/KernelDevice.cc`, `collect_metadata`).
pub fn disk_facts(prefix: &str, path: &Path, bytes: u64) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut say = |name: &str, value: String| {
        if !value.is_empty() {
            facts.insert(format!("{prefix}_{name}"), value);
        }
    };
    say("size", bytes.to_string());
    say("path", path.display().to_string());
    say("driver", "io_uring".to_owned());
    let Some(disk) = disk_of(path) else { return facts };
    let class = device_class(path);
    say("type", if class == "hdd" { class } else { "ssd".to_owned() });
    say("rotational", disk.queue("rotational"));
    say("block_size", io::BLOCK_BYTES.to_string());
    say("access_mode", if disk.is_device { "blk" } else { "file" }.to_owned());
    // A file gives its blocks back by holes.
    let discards =
        !disk.is_device || disk.queue("discard_max_bytes").parse().is_ok_and(|n: u64| n > 0);
    say("support_discard", u8::from(discards).to_string());
    say("devices", disk.name.clone());
    if disk.is_device {
        say("dev_node", format!("/dev/{}", disk.name));
        say("model", disk.read("device/model"));
    }
    facts
}

/// The disks of an OSD, and what they say they are: `devices` and `device_ids`.
pub fn devices<'a>(paths: impl Iterator<Item = &'a Path>) -> BTreeMap<String, String> {
    let disks: BTreeMap<String, String> =
        paths.filter_map(disk_of).map(|disk| (disk.name.clone(), disk.id())).collect();
    let names = disks.keys().cloned().collect::<Vec<_>>().join(",");
    let ids =
        disks.iter().filter(|(_, id)| !id.is_empty()).map(|(name, id)| format!("{name}={id}"));
    let ids = ids.collect::<Vec<_>>().join(",");
    BTreeMap::from([("devices".to_owned(), names), ("device_ids".to_owned(), ids)])
}

/// The disk that a file or block device is on, if it is one.
fn disk_of(path: &Path) -> Option<Disk> {
    let meta = fs::metadata(path).ok()?;
    let is_device = meta.file_type().is_block_device();
    let dev = if is_device { meta.rdev() } else { meta.dev() };
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let sys = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition has no queue of its own: that of its disk counts.
    let sys = if sys.join("queue").is_dir() { sys } else { sys.parent()?.to_owned() };
    let name = sys.file_name()?.to_string_lossy().into_owned();
    sys.join("queue").is_dir().then_some(Disk { name, sys, is_device })
}

/// `hdd` or `ssd` by what the kernel says, `nvme` by the driver's name; empty when it says nothing.
pub fn device_class(path: &Path) -> String {
    let Some(disk) = disk_of(path) else {
        return String::new();
    };
    if disk.name.starts_with("nvme") {
        return "nvme".to_owned();
    }
    match &*disk.queue("rotational") {
        "0" => "ssd".to_owned(),
        "1" => "hdd".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_lines() {
        let text = "ID=debian\nPRETTY_NAME=\"Debian 12\"\nmodel name\t: Fast\n";
        assert_eq!(field(text, "ID", '='), "debian");
        assert_eq!(field(text, "model name", ':'), "Fast");
        assert_eq!(field(text, "absent", '='), "");
    }

    #[test]
    fn a_container_is_told_by_its_environment() {
        let said = |env: &[(&str, &str)]| {
            let mut facts = BTreeMap::from([("hostname".to_owned(), "inside".to_owned())]);
            let of = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
            add_container(&mut facts, of);
            facts.into_iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(said(&[("NODE_NAME", "node"), ("POD_NAME", "")]), "hostname=inside");
        let image = ("CONTAINER_IMAGE", "loligo:1");
        assert_eq!(said(&[image]), "container_image=loligo:1 hostname=inside");
        assert_eq!(
            said(&[image, ("NODE_NAME", "node")]),
            "container_hostname=inside container_image=loligo:1 hostname=node"
        );
    }

    #[test]
    fn this_machine_says_who_it_is() {
        let facts = facts();
        assert!(!facts["hostname"].is_empty() && !facts["kernel_version"].is_empty(), "{facts:?}");
        assert!(facts["mem_total_kb"].parse::<u64>().unwrap() > 0);
        assert!(["", "hdd", "ssd", "nvme"].contains(&&*device_class(Path::new("/"))));
        let here = std::env::current_dir().unwrap();
        let facts = disk_facts("bluestore_bdev", &here, 4096);
        assert_eq!(facts["bluestore_bdev_size"], "4096");
        let is_on_a_disk = disk_of(&here).is_some();
        assert_eq!(facts.contains_key("bluestore_bdev_devices"), is_on_a_disk, "{facts:?}");
        assert_eq!(devices([&*here, &*here].into_iter())["devices"].is_empty(), !is_on_a_disk);
    }
}
