//! An ext4 in an image, and files in it with a model. QEMU shows the image as a file (FUSE), a loop device
//! makes a disk of it, and the kernel writes there as in a virtual machine: its journal, its flushes, its
//! discards. Needs root.

use super::cluster::Cluster;
use super::load::{Shared, content};
use super::tool::{Running, Tool};
use loligo::wait::Deadline;
use rustix::fs::{Advice, fadvise};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files that are written over and over.
const FILES: u64 = 24;
/// Of so many changes of a file one is that it is removed.
const REMOVED_EVERY: u64 = 7;
const START_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A mounted one. When a test fails, QEMU is ended first: whoever waits for the disk gets an error.
pub struct ImageFs {
    /// The image as a file, and where it is mounted.
    file: PathBuf,
    at: PathBuf,
    qemu: Option<Running>,
}

impl ImageFs {
    /// Makes the image with an ext4 in it, and mounts it.
    pub fn make(c: &Cluster, image: &str, size_mib: u64) -> Self {
        let rbd = Tool::new("rbd").env("CEPH_CONF", c.conf());
        rbd.args(["create", image, "--size", &size_mib.to_string()]).ok();
        let (file, at) =
            (c.dir().join(format!("{image}.img")), c.dir().join(format!("{image}.fs")));
        File::create(&file).unwrap();
        std::fs::create_dir_all(&at).unwrap();
        let conf = c.conf().display().to_string();
        let disk =
            format!("driver=rbd,node-name=disk,pool=rbd,image={image},conf={conf},discard=unmap");
        let shown =
            format!("type=fuse,id=disk,node-name=disk,mountpoint={},writable=on", file.display());
        let qemu = Tool::new("qemu-storage-daemon").args(["--blockdev", &disk, "--export", &shown]);
        let fs = ImageFs { qemu: Some(qemu.start()), file, at };
        let is_shown = || std::fs::metadata(&fs.file).is_ok_and(|m| m.len() == size_mib << 20);
        assert!(Deadline::after(START_LIMIT).until(LOOK_EVERY, is_shown), "QEMU shows no image");
        Tool::new("mkfs.ext4").args(["-q", "-F"]).arg(&fs.file).ok();
        fs.mount();
        fs
    }

    fn mount(&self) {
        // Past the host's cache, and gone with the mount.
        let disk =
            Tool::new("losetup").args(["--direct-io=on", "--find", "--show"]).arg(&self.file);
        let disk = disk.text();
        Tool::new("mount").args(["-o", "discard", disk.trim()]).arg(&self.at).ok();
        Tool::new("losetup").args(["--detach", disk.trim()]).ok();
    }

    /// Where the files are.
    pub fn root(&self) -> PathBuf {
        self.at.clone()
    }

    /// Everything is written, and the image is as after the end of a virtual machine.
    pub fn unmount(mut self) {
        Tool::new("umount").arg(&self.at).ok();
        let ran = self.qemu.take().expect("it runs until here").end();
        assert!(ran.status.success(), "{ran:?}");
    }
}

impl Drop for ImageFs {
    fn drop(&mut self) {
        if self.qemu.take().is_some() {
            Tool::new("umount").arg("--lazy").arg(&self.at).run();
        }
    }
}

/// Files, each with its newest version; none for those that were removed.
#[derive(Default)]
pub struct Files {
    versions: BTreeMap<u64, Option<u64>>,
    changes: u64,
}

fn name_of(file: u64) -> String {
    format!("file-{file}")
}

impl Files {
    /// Changes files and reads them again, until the load is to stop.
    pub fn live(root: &Path, shared: &Shared) -> Self {
        let mut files = Files::default();
        while !shared.stopped() {
            files.change(root);
            files.check(root, files.changes * 7 % FILES);
        }
        files
    }

    /// As editors do it: what has a name is whole, and stays when the power fails.
    fn change(&mut self, root: &Path) {
        let file = self.changes % FILES;
        self.changes += 1;
        let (path, draft) = (root.join(name_of(file)), root.join("draft"));
        let is_there = self.versions.get(&file).is_some_and(Option::is_some);
        if is_there && self.changes.is_multiple_of(REMOVED_EVERY) {
            std::fs::remove_file(path).unwrap();
            self.versions.insert(file, None);
            return;
        }
        let mut to = File::create(&draft).unwrap();
        to.write_all(&content(file, self.changes)).unwrap();
        to.sync_all().unwrap();
        std::fs::rename(draft, path).unwrap();
        File::open(root).unwrap().sync_all().unwrap();
        self.versions.insert(file, Some(self.changes));
    }

    fn check(&self, root: &Path, file: u64) {
        let name = name_of(file);
        let found = File::open(root.join(&name));
        let Some(version) = self.versions.get(&file).copied().flatten() else {
            assert!(found.is_err(), "{name} was removed");
            return;
        };
        let mut found = found.unwrap_or_else(|e| panic!("{name}, version {version}: {e}"));
        // Not from the cache.
        fadvise(&found, 0, None, Advice::DontNeed).unwrap();
        let mut bytes = Vec::new();
        found.read_to_end(&mut bytes).unwrap();
        assert!(bytes == content(file, version), "{name}, version {version}, has other bytes");
    }

    /// Changes so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Reads the image by another client: its file system must be whole, and every file in it.
    pub fn check_image(&self, c: &Cluster, image: &str) {
        let (copy, at) = (c.dir().join("copy.img"), c.dir().join("copy.fs"));
        let rbd = Tool::new("rbd").env("CEPH_CONF", c.conf());
        rbd.args(["export", "--no-progress", image]).arg(&copy).ok();
        Tool::new("e2fsck").args(["-f", "-n"]).arg(&copy).ok();
        std::fs::create_dir_all(&at).unwrap();
        Tool::new("mount").args(["-o", "loop,ro"]).arg(&copy).arg(&at).ok();
        (0..FILES).for_each(|file| self.check(&at, file));
        Tool::new("umount").arg(&at).ok();
    }
}
