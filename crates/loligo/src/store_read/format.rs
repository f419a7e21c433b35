//! The file that `loligo store export` writes: a PG's objects, format 2.
//!
//! Numbers are little-endian. The file is a row of sections, each:
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 1 | kind |
//! | 1 | 3 | 0 |
//! | 4 | 4 | number of the section, from 0 |
//! | 8 | 4 | bytes of the body |
//! | 12 | 4 | crc32c (start 0xffffffff, not inverted) of the 12 bytes before and the body |
//! | 16 | n | body |
//!
//! | kind | body |
//! |---|---|
//! | 1 begin, once, first | magic `LoligoEX` (8), format 2 (2), 0 (2), `pg_num` of the pool (4), cluster (16), store (16), OSD (4), pool (8), PG's seed (4) |
//! | 2 object begins | size (8), length of its key (4), the key ([`types::ObjectKey`]), the owner's record |
//! | 3 data | offset (8), the bytes; what no section covers is a hole |
//! | 4 attribute | length of its name (4), the name, the value |
//! | 5 omap header | the header |
//! | 6 omap entry | length of its key (4), the key, the value |
//! | 7 object ends | 0: whole; 1: a part could not be read, it is not to be imported (1) |
//! | 8 end, once, last | whole objects (8), damaged objects (8), 1: objects may be missing in the file, since the store's list of them is damaged; 0: none is (1) |
//! | 9 map, at most once, second | epoch (4), the full OSD map of that epoch: the newest one that the PG's record knows |
//!
//! Format 1, which is read as well, does not say whether objects may be missing.
//!
//! With the map an OSD that has none as old any more can find out what happened to the PG since: it begins with it,
//! and asks the mon for those after it.
//!
//! The PG's own object (its info and log) is the last: a PG is there when that is there, so an
//! import that breaks off leaves no PG.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

use bytes::Bytes;
use std::fmt;
use std::io::{Error, ErrorKind, Read, Write};
use store::MAX_VALUE_BYTES;
use types::{Epoch, ObjectKey, OsdId, PgId, PoolId, Uuid};

const MAGIC: [u8; 8] = *b"LoligoEX";
const FORMAT: u16 = 2;
/// The format in which the end does not say whether objects are missing.
const FORMAT_UNSURE: u16 = 1;
const HEAD_BYTES: usize = 16;
/// Longest body: the longest value with its name, and room.
const MAX_BODY_BYTES: usize = MAX_VALUE_BYTES + (1 << 20);

/// Whose PG it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    pub pg_num: u32,
    pub cluster: Uuid,
    pub store: Uuid,
    pub osd: OsdId,
    pub pgid: PgId,
}

/// A section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Begin(Begin),
    Map { epoch: Epoch, map: Bytes },
    Object { size: u64, key: ObjectKey, meta: Bytes },
    Data { offset: u64, data: Bytes },
    Attr { name: Bytes, value: Bytes },
    Header(Bytes),
    Omap { key: Bytes, value: Bytes },
    ObjectEnd { whole: bool },
    End { whole: u64, damaged: u64, is_incomplete: bool },
}

/// Why a file is no export, or a damaged one.
#[derive(Debug)]
pub(crate) struct Malformed {
    /// Which section.
    number: u32,
    what: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "section {}: {}", self.number, self.what)
    }
}

fn crc(head: &[u8], body: &[u8]) -> u32 {
    denc::crc32c(denc::crc32c(0xffff_ffff, head), body)
}

fn named(name: &[u8], value: &[u8]) -> Vec<Vec<u8>> {
    vec![(name.len() as u32).to_le_bytes().to_vec(), name.to_vec(), value.to_vec()]
}

impl Section {
    fn parts(&self) -> (u8, Vec<Vec<u8>>) {
        match self {
            Section::Begin(b) => {
                let mut out = MAGIC.to_vec();
                out.extend(FORMAT.to_le_bytes());
                out.extend([0; 2]);
                out.extend(b.pg_num.to_le_bytes());
                out.extend(b.cluster.0);
                out.extend(b.store.0);
                out.extend(b.osd.0.to_le_bytes());
                out.extend(b.pgid.pool.0.to_le_bytes());
                out.extend(b.pgid.seed.to_le_bytes());
                (1, vec![out])
            }
            Section::Map { epoch, map } => (9, vec![epoch.0.to_le_bytes().to_vec(), map.to_vec()]),
            Section::Object { size, key, meta } => {
                let mut parts = named(key.as_bytes(), meta);
                parts.insert(0, size.to_le_bytes().to_vec());
                (2, parts)
            }
            Section::Data { offset, data } => {
                (3, vec![offset.to_le_bytes().to_vec(), data.to_vec()])
            }
            Section::Attr { name, value } => (4, named(name, value)),
            Section::Header(header) => (5, vec![header.to_vec()]),
            Section::Omap { key, value } => (6, named(key, value)),
            Section::ObjectEnd { whole } => (7, vec![vec![u8::from(!*whole)]]),
            Section::End { whole, damaged, is_incomplete } => {
                let counts = [whole.to_le_bytes(), damaged.to_le_bytes()].concat();
                (8, vec![counts, vec![u8::from(*is_incomplete)]])
            }
        }
    }

    fn parse(kind: u8, body: Bytes) -> Result<Section, &'static str> {
        let mut body = Cut(body);
        let section = match kind {
            1 => Section::Begin(begin(&mut body)?),
            2 => {
                let size = u64::from_le_bytes(body.array()?);
                let key = ObjectKey::from_bytes(&body.counted()?);
                Section::Object { size, key, meta: body.rest() }
            }
            3 => Section::Data { offset: u64::from_le_bytes(body.array()?), data: body.rest() },
            4 => Section::Attr { name: body.counted()?, value: body.rest() },
            5 => Section::Header(body.rest()),
            6 => Section::Omap { key: body.counted()?, value: body.rest() },
            7 => match body.array()? {
                [0] => Section::ObjectEnd { whole: true },
                [1] => Section::ObjectEnd { whole: false },
                _ => return Err("an end of an object that is neither whole nor damaged"),
            },
            8 => {
                let whole = u64::from_le_bytes(body.array()?);
                let damaged = u64::from_le_bytes(body.array()?);
                let is_incomplete = match body.rest()[..] {
                    [] | [0] => false,
                    [1] => true,
                    _ => return Err("an end that does not say whether objects are missing"),
                };
                Section::End { whole, damaged, is_incomplete }
            }
            9 => {
                let epoch = Epoch(u32::from_le_bytes(body.array()?));
                Section::Map { epoch, map: body.rest() }
            }
            _ => return Err("its kind is unknown; a newer program may have written it"),
        };
        if body.0.is_empty() { Ok(section) } else { Err("it is longer than it should be") }
    }
}

fn begin(body: &mut Cut) -> Result<Begin, &'static str> {
    if body.array()? != MAGIC {
        return Err("it is not an export of `loligo store export`");
    }
    if ![FORMAT, FORMAT_UNSURE].contains(&u16::from_le_bytes(body.array()?)) {
        return Err("its format is unknown; a newer program may have written it");
    }
    body.array::<2>()?;
    let pg_num = u32::from_le_bytes(body.array()?);
    let (cluster, store) = (Uuid(body.array()?), Uuid(body.array()?));
    let osd = OsdId(i32::from_le_bytes(body.array()?));
    let pool = PoolId(i64::from_le_bytes(body.array()?));
    let pgid = PgId { pool, seed: u32::from_le_bytes(body.array()?) };
    if pg_num == 0 || pgid.seed >= pg_num {
        return Err("its PG cannot be");
    }
    Ok(Begin { pg_num, cluster, store, osd, pgid })
}

/// Bytes at the start of a file that tell whether an export was begun in it.
pub(crate) const START_BYTES: usize = HEAD_BYTES + MAGIC.len();

/// Whether a file that starts so is an export, or the beginning of one.
pub(crate) fn is_begun(start: &[u8]) -> bool {
    start.is_empty() || start.get(HEAD_BYTES..).is_some_and(|body| body.starts_with(&MAGIC))
}

/// A body that is cut into its parts.
struct Cut(Bytes);

impl Cut {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let head = *self.0.first_chunk::<N>().ok_or("it ends too early")?;
        self.0 = self.0.slice(N..);
        Ok(head)
    }

    fn counted(&mut self) -> Result<Bytes, &'static str> {
        let len = u32::from_le_bytes(self.array()?) as usize;
        if len > self.0.len() {
            return Err("it ends too early");
        }
        Ok(self.0.split_to(len))
    }

    fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.0)
    }
}

/// Writes sections.
pub(crate) struct Writer<W> {
    out: W,
    number: u32,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W) -> Self {
        Writer { out, number: 0 }
    }

    /// Appends a section.
    pub(crate) fn put(&mut self, section: &Section) -> Result<(), Error> {
        let (kind, parts) = section.parts();
        let body = parts.concat();
        let mut head = vec![kind, 0, 0, 0];
        head.extend(self.number.to_le_bytes());
        head.extend((body.len() as u32).to_le_bytes());
        let crc = crc(&head, &body);
        self.number = self.number.checked_add(1).ok_or(ErrorKind::FileTooLarge)?;
        self.out.write_all(&head)?;
        self.out.write_all(&crc.to_le_bytes())?;
        self.out.write_all(&body)
    }

    /// Hands everything to the file.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.out.flush()
    }
}

/// Reads sections, and holds their order against the format.
pub(crate) struct Reader<R> {
    input: R,
    number: u32,
    in_object: bool,
    objects: (u64, u64),
    over: bool,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(input: R) -> Self {
        Reader { input, number: 0, in_object: false, objects: (0, 0), over: false }
    }

    fn malformed(&self, what: impl Into<String>) -> Malformed {
        Malformed { number: self.number, what: what.into() }
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<(), Malformed> {
        self.input.read_exact(buf).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => self.malformed("the file ends within it"),
            _ => self.malformed(format!("reading it failed: {e}")),
        })
    }

    /// The next section; none behind the last one.
    pub(crate) fn next(&mut self) -> Result<Option<Section>, Malformed> {
        if self.over {
            let mut more = [0];
            return match self.input.read(&mut more) {
                Ok(0) => Ok(None),
                _ => Err(self.malformed("there is more behind the end")),
            };
        }
        let mut head = [0; HEAD_BYTES];
        self.fill(&mut head)?;
        let ([a, b, c, d], rest) = ([head[0], head[1], head[2], head[3]], &head);
        let word = |at: usize| {
            let bytes = rest.get(at..).and_then(|b| b.first_chunk::<4>());
            bytes.map_or(0, |b| u32::from_le_bytes(*b))
        };
        let (number, len, sum) = (word(4), word(8) as usize, word(12));
        if [b, c, d] != [0; 3] || number != self.number || len > MAX_BODY_BYTES {
            return Err(self.malformed("its head is damaged, or it does not belong here"));
        }
        let mut body = vec![0; len];
        self.fill(&mut body)?;
        if crc(head.get(..12).unwrap_or_default(), &body) != sum {
            return Err(self.malformed("it does not have its checksum"));
        }
        let section = Section::parse(a, body.into()).map_err(|what| self.malformed(what))?;
        self.check_order(&section)?;
        self.number = self.number.saturating_add(1);
        Ok(Some(section))
    }

    fn check_order(&mut self, section: &Section) -> Result<(), Malformed> {
        let fits = match section {
            Section::Begin(_) => self.number == 0,
            Section::Map { .. } => self.number == 1,
            Section::Object { .. } => !self.in_object && self.number > 0,
            Section::End { whole, damaged, .. } => {
                !self.in_object && self.objects == (*whole, *damaged) && self.number > 0
            }
            _ => self.in_object,
        };
        match section {
            Section::Object { .. } => self.in_object = true,
            Section::ObjectEnd { whole } => {
                self.in_object = false;
                let count = if *whole { &mut self.objects.0 } else { &mut self.objects.1 };
                *count = count.saturating_add(1);
            }
            Section::End { .. } => self.over = true,
            _ => {}
        }
        if fits { Ok(()) } else { Err(self.malformed("it does not belong here")) }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    fn sections() -> Vec<Section> {
        let b = |s: &'static str| Bytes::from_static(s.as_bytes());
        vec![
            Section::Begin(Begin {
                pg_num: 8,
                cluster: Uuid([1; 16]),
                store: Uuid([2; 16]),
                osd: OsdId(3),
                pgid: PgId { pool: PoolId(4), seed: 5 },
            }),
            Section::Map { epoch: types::Epoch(6), map: b("map") },
            Section::Object { size: 9, key: ObjectKey::from_bytes(b"key"), meta: b("meta") },
            Section::Data { offset: 4096, data: b("data") },
            Section::Attr { name: b("name"), value: b("") },
            Section::Header(b("header")),
            Section::Omap { key: b("k"), value: b("v") },
            Section::ObjectEnd { whole: true },
            Section::Object { size: 0, key: ObjectKey::from_bytes(b"other"), meta: b("") },
            Section::ObjectEnd { whole: false },
            Section::End { whole: 1, damaged: 1, is_incomplete: true },
        ]
    }

    fn written() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        sections().iter().for_each(|s| writer.put(s).unwrap());
        writer.out
    }

    fn read(bytes: &[u8]) -> Result<Vec<Section>, Malformed> {
        let mut reader = Reader::new(bytes);
        let mut out = Vec::new();
        while let Some(section) = reader.next()? {
            out.push(section);
        }
        Ok(out)
    }

    #[test]
    fn what_is_written_can_be_read() {
        assert_eq!(read(&written()).unwrap(), sections());
    }

    /// Files of before stay readable.
    #[test]
    fn a_file_of_format_1_is_read() {
        let good = written();
        let (mut old, end) = (good[..good.len() - HEAD_BYTES - 17].to_vec(), good.len() - 17);
        let mut end = good[end - HEAD_BYTES..good.len() - 1].to_vec();
        end[8] = 16;
        let sum = crc(&end[..12], &end[16..]);
        end[12..16].copy_from_slice(&sum.to_le_bytes());
        old[HEAD_BYTES + 8] = FORMAT_UNSURE as u8;
        let sum = crc(&old[..12], &old[16..HEAD_BYTES + 64]);
        old[12..16].copy_from_slice(&sum.to_le_bytes());
        let mut expected = sections();
        expected.pop();
        expected.push(Section::End { whole: 1, damaged: 1, is_incomplete: false });
        assert_eq!(read(&[old, end].concat()).unwrap(), expected);
    }

    #[test]
    fn every_damage_is_seen() {
        let good = written();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            assert!(read(&bad).is_err(), "byte {at}");
            assert!(read(&good[..at]).is_err(), "cut at {at}");
        }
        assert!(read(&[&good[..], &[0]].concat()).is_err());
        // A section that is missing, or stands twice.
        let first = HEAD_BYTES + 64;
        let again = [&good[..first], &good[..]].concat();
        assert!(read(&again).is_err() && read(&good[first..]).is_err());
    }
}
