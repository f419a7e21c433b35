//! Pools of block images, used through the real `rbd`.

use super::cluster::{Cluster, Pool, shared};
use super::tool::Tool;
use serde_json::Value;
use std::path::PathBuf;
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;
/// Exit codes of `rbd` are errno.
pub const ENOENT: i32 = 2;
pub const EBUSY: i32 = 16;
pub const EROFS: i32 = 30;
pub const EEXIST: i32 = 17;
pub const EINVAL: i32 = 22;
pub const EOPNOTSUPP: i32 = 95;

/// A pool for images, and a folder for files.
pub struct Images {
    pub pool: Pool,
    dir: TempDir,
}

impl Images {
    /// A pool of the cluster that all tests share.
    pub fn new(name: &str) -> Self {
        Self::on(shared(), name)
    }

    pub fn on(cluster: &'static Cluster, name: &str) -> Self {
        let pool = cluster.pool(name);
        let images = Images { pool, dir: tempfile::tempdir().unwrap() };
        images.ok(&format!("pool init {}", images.pool.name));
        images
    }

    /// `rbd ...` with this pool as the default, without progress on stderr.
    pub fn rbd(&self, line: &str) -> Tool {
        let tool = Tool::new("rbd");
        let tool = self.environment().into_iter().fold(tool, |t, (key, value)| t.env(key, value));
        tool.args(line.split(' '))
    }

    /// What tells Ceph's tools of this cluster and pool.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let conf = self.pool.cluster.conf().to_str().unwrap().to_owned();
        [("CEPH_CONF", conf), ("CEPH_ARGS", format!("--rbd-default-pool {}", self.pool.name))]
    }

    /// Runs a line of `rbd` that must succeed; gives its output.
    pub fn ok(&self, line: &str) -> String {
        self.rbd(line).text().trim_end().to_owned()
    }

    pub fn json(&self, line: &str) -> Value {
        self.rbd(line).args(["--format", "json"]).json()
    }

    pub fn fails(&self, line: &str, code: i32) -> String {
        self.rbd(line).fails(code)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The whole content of an image or snapshot.
    pub fn content(&self, image: &str) -> Vec<u8> {
        self.rbd(&format!("export {image} -")).args(["--no-progress"]).ok()
    }

    /// Makes an image with a content.
    pub fn import(&self, image: &str, data: &[u8]) {
        let file = self.file("import");
        std::fs::write(&file, data).unwrap();
        self.rbd("import --no-progress").arg(&file).arg(image).ok();
    }

    /// Some random writes.
    pub fn scribble(&self, image: &str) {
        self.ok(&format!(
            "bench --io-type write --io-size 4K --io-threads 8 --io-total 512K --io-pattern rand {image}"
        ));
    }

    /// Names of what `rbd ls` and the like give.
    pub fn names(&self, line: &str) -> Vec<String> {
        let listed = self.json(line);
        let name = |v: &Value| v["name"].as_str().or(v.as_str()).unwrap().to_owned();
        listed.as_array().unwrap().iter().map(name).collect()
    }
}
