//! Methods of object classes: with damaged input, on an object whose stored values are damaged, too.
//!
//! An input is the method's name (`class.method`), a zero byte, and the method's input; the object
//! answers every question with a piece of the same bytes.

use ::classes::{CallResult, Object, OmapPage, Stat};
use bytes::Bytes;
use serde_json::Value;
use types::{ClientId, EntityAddr, EntityName, Errno, SnapId, UTime};

/// Entries of each page of the omap.
const PAGE: usize = 3;

/// Captured calls of real clients.
pub fn samples() -> Vec<Vec<u8>> {
    let all: Value =
        serde_json::from_slice(&crate::corpus::one("vectors/cls/methods.json")).unwrap_or_default();
    let mut samples = Vec::new();
    for (method, calls) in all.as_object().into_iter().flatten() {
        for call in calls.as_array().into_iter().flatten() {
            let input = call["in"].as_str().and_then(crate::corpus::hex).unwrap_or_default();
            samples.push([method.as_bytes(), b"\0", &input].concat());
        }
    }
    samples
}

/// Calls the method. Whether there is one and it succeeded.
pub fn feed(bytes: &[u8]) -> bool {
    let mut parts = bytes.splitn(2, |b| *b == 0);
    let (Some(name), Some(input)) = (parts.next(), parts.next()) else { return false };
    let mut words = name.splitn(2, |b| *b == b'.');
    let (Some(class), Some(method)) = (words.next(), words.next()) else { return false };
    let Ok(method) = ::classes::find(class, method) else { return false };
    let input = Bytes::copy_from_slice(input);
    let mut object = Junk { bytes: input.clone(), asked: 0 };
    (method.run)(&mut object, &input).is_ok()
}

/// An object that answers with pieces of some bytes.
struct Junk {
    bytes: Bytes,
    asked: usize,
}

impl Junk {
    /// Each question gets another piece; now and then there is nothing.
    fn piece(&mut self) -> CallResult<Bytes> {
        self.asked += 1;
        if self.asked % 5 == 4 {
            return Err(Errno::ENOENT.into());
        }
        let from = (self.asked * 7) % (self.bytes.len() + 1);
        Ok(self.bytes.slice(from..))
    }

    fn entries(&mut self) -> Vec<(Bytes, Bytes)> {
        let pair = |_| Some((self.piece().ok()?, self.piece().ok()?));
        (0..PAGE).filter_map(pair).collect()
    }
}

impl Object for Junk {
    fn stat(&mut self) -> CallResult<Option<Stat>> {
        let size = self.bytes.len() as u64;
        Ok(self.piece().ok().map(|_| Stat { size, mtime: UTime::ZERO }))
    }
    fn read(&mut self, _: u64, _: u64) -> CallResult<Bytes> {
        self.piece()
    }
    fn create(&mut self, _: bool) -> CallResult<()> {
        Ok(())
    }
    fn write(&mut self, _: u64, _: Bytes) -> CallResult<()> {
        Ok(())
    }
    fn write_full(&mut self, _: Bytes) -> CallResult<()> {
        Ok(())
    }
    fn zero(&mut self, _: u64, _: u64) -> CallResult<()> {
        Ok(())
    }
    fn truncate(&mut self, _: u64) -> CallResult<()> {
        Ok(())
    }
    fn remove(&mut self) -> CallResult<()> {
        Ok(())
    }
    fn get_xattr(&mut self, _: &[u8]) -> CallResult<Bytes> {
        self.piece()
    }
    fn get_xattrs(&mut self) -> CallResult<Vec<(Bytes, Bytes)>> {
        Ok(self.entries())
    }
    fn set_xattr(&mut self, _: &[u8], _: Bytes) -> CallResult<()> {
        Ok(())
    }
    fn remove_xattr(&mut self, _: &[u8]) -> CallResult<()> {
        Ok(())
    }
    fn omap_get(&mut self, _: &[u8]) -> CallResult<Bytes> {
        self.piece()
    }
    fn omap_list(&mut self, after: &[u8], prefix: &[u8], _: u64) -> CallResult<OmapPage> {
        // Nonsense within the contract: keys with the prefix, in order, behind `after`.
        let start = if after.starts_with(prefix) { after } else { prefix };
        let with_start = |(key, value): (Bytes, Bytes)| ([start, &key].concat().into(), value);
        let mut entries: Vec<(Bytes, Bytes)> = self.entries().into_iter().map(with_start).collect();
        entries.retain(|(key, _)| key > after);
        entries.sort();
        entries.dedup_by(|a, b| a.0 == b.0);
        // A listing that never ended would be a bug of the object, not of the method.
        Ok(OmapPage { entries, more: self.asked < 20 * PAGE })
    }
    fn omap_header(&mut self) -> CallResult<Bytes> {
        self.piece()
    }
    fn omap_set(&mut self, _: Vec<(Bytes, Bytes)>) -> CallResult<()> {
        Ok(())
    }
    fn omap_remove(&mut self, _: &[Bytes]) -> CallResult<()> {
        Ok(())
    }
    fn omap_clear(&mut self) -> CallResult<()> {
        Ok(())
    }
    fn omap_set_header(&mut self, _: Bytes) -> CallResult<()> {
        Ok(())
    }
    fn watchers(&mut self) -> CallResult<Vec<(EntityName, EntityAddr)>> {
        Ok(vec![self.caller()])
    }
    fn caller(&self) -> (EntityName, EntityAddr) {
        (EntityName::client(ClientId(7)), EntityAddr::default())
    }
    fn version(&self) -> u64 {
        3
    }
    fn snap_seq(&self) -> SnapId {
        SnapId(2)
    }
    fn now(&self) -> UTime {
        UTime::ZERO
    }
    fn random(&mut self, out: &mut [u8]) {
        out.fill(4);
    }
}
