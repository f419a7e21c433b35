//! What this machine is, for `ceph osd metadata` and `ceph mon metadata`, in Ceph's words.

use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// CPU time of this process.
pub fn cpu_time() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
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
    facts.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

/// The value of `key` in lines of `key SEPARATOR value`.
fn field<'a>(text: &'a str, key: &str, separator: char) -> &'a str {
    let pairs = text.lines().filter_map(|l| l.split_once(separator));
    pairs.into_iter().find(|(k, _)| k.trim() == key).map_or("", |(_, v)| v.trim())
}

/// The kernel's description of the disk that a file or block device is on.
fn queue_of(path: &Path) -> Option<PathBuf> {
    let meta = fs::metadata(path).ok()?;
    let dev = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let sys = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition has no queue of its own: that of its disk counts.
    let own = sys.join("queue");
    if own.is_dir() { Some(own) } else { Some(sys.parent()?.join("queue")) }
}

/// `hdd` or `ssd` by what the kernel says, `nvme` by the driver's name; empty when it says nothing.
pub fn device_class(path: &Path) -> String {
    let Some(queue) = queue_of(path) else {
        return String::new();
    };
    let disk = queue.parent().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
    if disk.is_some_and(|d| d.starts_with("nvme")) {
        return "nvme".to_owned();
    }
    match fs::read_to_string(queue.join("rotational")).unwrap_or_default().trim() {
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
    fn this_machine_says_who_it_is() {
        let facts = facts();
        assert!(!facts["hostname"].is_empty() && !facts["kernel_version"].is_empty(), "{facts:?}");
        assert!(facts["mem_total_kb"].parse::<u64>().unwrap() > 0);
        assert!(["", "hdd", "ssd", "nvme"].contains(&&*device_class(Path::new("/"))));
    }
}
