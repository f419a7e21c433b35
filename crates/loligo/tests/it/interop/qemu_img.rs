//! Block images through QEMU's tools.

use super::cluster::pattern;
use super::images::{Images, MIB};
use super::tool::{Ran, Tool};
use serde_json::Value;

/// `qemu-img compare` says so when the contents differ.
const DIFFERENT: i32 = 1;
/// Everything else that goes wrong.
const FAILED: i32 = 1;

impl Images {
    /// How QEMU names an image, or a snapshot as `image@snap`.
    pub fn qemu_name(&self, image: &str) -> String {
        let conf = self.pool.cluster.conf().display();
        format!("rbd:{}/{image}:conf={conf}", self.pool.name)
    }

    /// `qemu-img ...`: an image of the pool is written `%name`.
    fn qemu_img(&self, line: &str) -> Tool {
        let words = line.split(' ').map(|word| match word.strip_prefix('%') {
            Some(image) => self.qemu_name(image),
            None => word.to_owned(),
        });
        Tool::new("qemu-img").args(words)
    }

    fn qemu_ok(&self, line: &str) -> String {
        self.qemu_img(line).text()
    }

    fn qemu_info(&self, image: &str) -> Value {
        self.qemu_img(&format!("info -f raw --output=json %{image}")).json()
    }

    /// Commands of `qemu-io`, one after the other, through one opening of the image.
    fn qemu_io(&self, image: &str, commands: &[&str]) -> Ran {
        let tool = Tool::new("qemu-io").args(["-f", "raw", "-d", "unmap", "-t", "none"]);
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        tool.args(commands).arg(self.qemu_name(image)).run()
    }

    /// [`Images::qemu_io`] that must do it all, and find the patterns it is to read.
    pub fn qemu_io_ok(&self, image: &str, commands: &[&str]) {
        let ran = self.qemu_io(image, commands);
        let said = String::from_utf8_lossy(&ran.out);
        // Wrong patterns and failed commands are said, and do not always make it fail.
        let well = ran.status.success() && !said.contains("failed") && !said.contains("error");
        assert!(well, "{ran:?}");
    }
}

#[test]
fn images_are_made_measured_and_resized() {
    let i = Images::new("qemu-life");
    i.qemu_ok("create -f raw %x 64M");
    assert_eq!(i.json("info x")["size"], 64 * MIB);
    assert_eq!(i.qemu_info("x")["virtual-size"], 64 * MIB);
    i.qemu_img("create -f raw %x 64M").fails(FAILED);
    i.qemu_ok("create -f raw -o cluster_size=1M %small 16M");
    assert_eq!(i.json("info small")["object_size"], MIB);
    i.qemu_ok("resize -f raw %x 96M");
    assert_eq!(i.json("info x")["size"], 96 * MIB);
    i.qemu_img("resize -f raw %x 8M").fails(FAILED);
    i.qemu_ok("resize -f raw --shrink %x 8M");
    assert_eq!(i.qemu_info("x")["virtual-size"], 8 * MIB);
    let err = i.qemu_img("info -f raw %nosuch").fails(FAILED);
    assert!(err.contains("No such file or directory"), "{err}");
    let err = i.qemu_img("info -f raw %x@nosuch").fails(FAILED);
    assert!(err.contains("No such file or directory"), "{err}");
}

#[test]
fn images_are_converted_and_compared() {
    let i = Images::new("qemu-convert");
    // Data, a hole, and an end within a sector's cluster.
    let mut data = pattern(3 * MIB as usize + 512, 1);
    data[MIB as usize..2 * MIB as usize].fill(0);
    let raw = i.file("raw");
    std::fs::write(&raw, &data).unwrap();
    let (raw, qcow) = (raw.display(), i.file("qcow2"));
    let qcow = qcow.display();
    i.qemu_ok(&format!("convert -f raw -O raw {raw} %x"));
    assert!(i.content("x") == data);
    i.qemu_ok(&format!("compare -f raw -F raw {raw} %x"));
    // Out of order, many at once, into an image that is there.
    i.qemu_ok(&format!("convert -n -W -m 16 -f raw -O raw {raw} %x"));
    i.qemu_ok(&format!("convert -f raw -O qcow2 %x {qcow}"));
    i.qemu_ok(&format!("compare -f qcow2 -F raw {qcow} %x"));
    // A format of QEMU's own within an image.
    i.qemu_ok(&format!("convert -f qcow2 -O raw {qcow} %y"));
    i.qemu_ok("convert -f raw -O qcow2 %x %inner");
    i.qemu_ok("check -f qcow2 %inner");
    i.qemu_ok("compare -f qcow2 -F raw %inner %y");
    i.qemu_io_ok("y", &["write -P 7 2M 512"]);
    i.qemu_img("compare -f raw -F raw %x %y").fails(DIFFERENT);
}

#[test]
fn internal_snapshots_are_those_of_rbd() {
    let i = Images::new("qemu-snaps");
    let data = pattern(5 * MIB as usize, 2);
    i.import("x", &data);
    i.qemu_ok("snapshot -c one %x");
    assert_eq!(i.names("snap ls x"), ["one"]);
    i.qemu_io_ok("x", &["write -P 1 0 2M", "discard 4M 1M"]);
    i.ok("snap create --no-progress x@two");
    let listed = i.qemu_ok("snapshot -l %x");
    assert!(listed.contains("one") && listed.contains("two"), "{listed}");
    let raw = i.file("raw");
    std::fs::write(&raw, &data).unwrap();
    i.qemu_ok(&format!("compare -f raw -F raw {} %x@one", raw.display()));
    i.qemu_img("compare -f raw -F raw %x %x@one").fails(DIFFERENT);
    i.qemu_ok("compare -f raw -F raw %x %x@two");
    i.qemu_ok("snapshot -a one %x");
    assert!(i.content("x") == data);
    i.qemu_ok("snapshot -d two %x");
    i.qemu_img("snapshot -d two %x").fails(FAILED);
    assert_eq!(i.names("snap ls x"), ["one"]);
}

#[test]
fn reads_writes_zeroes_and_discards() {
    let i = Images::new("qemu-io");
    i.qemu_ok("create -f raw %x 32M");
    i.qemu_io_ok(
        "x",
        &[
            "aio_write -P 1 0 64k",
            "aio_write -P 2 64k 4M",
            "aio_flush",
            "read -P 1 0 64k",
            "read -P 2 64k 4M",
            "read -P 0 8M 1M",
            "write -P 3 8M 8M",
            "write -z -u 9M 5M",
            "read -P 3 8M 1M",
            "read -P 0 9M 5M",
            "read -P 3 14M 2M",
            "discard 0 16M",
            "flush",
            "read -P 0 0 16M",
            "write -P 9 31M 1M",
        ],
    );
    assert_eq!(i.json("du x")["images"][0]["used_size"], 4 * MIB, "what was discarded is gone");
    let ran = i.qemu_io("x", &["write -P 1 32M 512"]);
    assert!(!ran.status.success(), "behind the end: {ran:?}");
    i.qemu_io_ok("x", &["read -P 9 31M 1M"]);
}

#[test]
fn qemu_benches() {
    let i = Images::new("qemu-bench");
    i.qemu_ok("create -f raw %x 32M");
    i.qemu_ok("bench -f raw -t none -c 1000 -d 32 -s 4k -S 20k -w --pattern=5 %x");
    i.qemu_ok("bench -f raw -t none -c 1000 -d 32 -s 4k -S 20k -w --flush-interval=64 %x");
    i.qemu_ok("bench -f raw -t none -c 1000 -d 32 -s 64k %x");
    i.qemu_io_ok("x", &["read -P 0 4k 4k"]);
}
