//! Random transactions.

use crate::rig::key;
use bytes::Bytes;
use fastrand::Rng;
use io::{AlignedBuf, BLOCK_BYTES};
use store::{Algorithm, Compress, Transaction};
use types::ObjectKey;

/// What is generated.
#[derive(Clone, Debug)]
pub struct Gen {
    /// Objects `first..first + objects`.
    pub first: u64,
    pub objects: u64,
    /// Largest object, in blocks.
    pub blocks: u64,
    /// Largest write, in blocks.
    pub write_blocks: u64,
    pub ops: usize,
    pub flavour: Flavour,
}

/// Which ops come most often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    Mixed,
    /// No data.
    Rows,
    /// Clones of what is written.
    Clones,
    /// One write per transaction.
    Writes,
    /// Objects as those of an image: written whole, then block by block.
    Images,
}

impl Flavour {
    pub fn any(rng: &mut Rng) -> Flavour {
        [Flavour::Mixed, Flavour::Rows, Flavour::Clones, Flavour::Writes][rng.usize(0..4)]
    }

    fn roll(self, rng: &mut Rng) -> u8 {
        let often = rng.u8(0..10) < 8;
        match self {
            Flavour::Rows if often => [55, 60, 80, 89, 93][rng.usize(0..5)],
            Flavour::Clones if often => [10, 66, 67, 72, 49][rng.usize(0..5)],
            Flavour::Writes if often => 10,
            _ => rng.u8(0..100),
        }
    }
}

impl Default for Gen {
    fn default() -> Self {
        Gen { first: 0, objects: 6, blocks: 70, write_blocks: 20, ops: 4, flavour: Flavour::Mixed }
    }
}

/// The account of an object: a hundred of them are of one, as far as random transactions go.
pub fn account_of(object: &ObjectKey) -> u64 {
    let number = object.as_bytes().strip_prefix(b"obj").and_then(|n| str::from_utf8(n).ok());
    number.and_then(|n| n.parse::<u64>().ok()).filter(|n| *n < 400).map_or(0, |n| n / 100)
}

/// Half of all transactions compress what they write; most of what is written can be.
pub fn any_compress(rng: &mut Rng) -> Option<Compress> {
    let algorithm = [Algorithm::Lz4, Algorithm::Zstd][rng.usize(0..2)];
    let compress = Compress {
        algorithm,
        required_per_mille: [875, 1000, 300][rng.usize(0..3)],
        min_blob_bytes: [4 << 10, 8 << 10, 32 << 10][rng.usize(0..3)],
        max_blob_bytes: [8 << 10, 20 << 10, 64 << 10, 128 << 10][rng.usize(0..4)],
    };
    rng.bool().then_some(compress)
}

fn data(rng: &mut Rng, len: usize) -> Bytes {
    let (a, b) = (rng.u8(..), rng.u8(1..));
    let mut buf = AlignedBuf::zeroed(len);
    let mut x = a;
    // Often there is much to be gained by compressing, sometimes little, or nothing.
    let noise = [0, 0, 0, 400, 800, 1000][rng.usize(0..6)];
    for (i, byte) in buf.as_mut_slice().iter_mut().enumerate() {
        if i % 1000 < noise {
            *byte = rng.u8(..);
            continue;
        }
        if i % 61 == 0 {
            x = x.wrapping_mul(5).wrapping_add(b);
        }
        *byte = x;
    }
    buf.freeze()
}

fn small(rng: &mut Rng, prefix: &str) -> Bytes {
    format!("{prefix}{}", rng.u8(0..12)).into_bytes().into()
}

fn value(rng: &mut Rng) -> Bytes {
    let len = match rng.u8(0..40) {
        0 => rng.usize(0..70_000),
        1..4 => rng.usize(0..5000),
        _ => rng.usize(0..60),
    };
    vec![rng.u8(..); len].into()
}

impl Gen {
    fn object(&self, rng: &mut Rng) -> ObjectKey {
        key(self.first + rng.u64(0..self.objects))
    }

    fn range(&self, rng: &mut Rng) -> (u64, u64) {
        let block = BLOCK_BYTES as u64;
        let (mut at, mut len) =
            (rng.u64(0..self.blocks * block), rng.u64(1..self.write_blocks * block));
        match rng.u8(0..4) {
            0 => len = rng.u64(1..3000),
            1 => {
                at = at / block * block;
                len = len.next_multiple_of(block);
            }
            _ => {}
        }
        (at, len)
    }

    /// Writes a whole object, or a block of it.
    fn image_op(&self, rng: &mut Rng, txn: &mut Transaction) {
        let (o, blocks) = (self.object(rng), self.blocks);
        let (at, len) = match rng.u8(0..4) {
            0 => (0, blocks),
            _ => (rng.u64(0..blocks), 1),
        };
        txn.write(&o, at * BLOCK_BYTES as u64, data(rng, len as usize * BLOCK_BYTES));
    }

    /// Adds one op.
    pub fn op(&self, rng: &mut Rng, txn: &mut Transaction) {
        if self.flavour == Flavour::Images && rng.u8(0..20) > 0 {
            return self.image_op(rng, txn);
        }
        let o = self.object(rng);
        let (at, len) = self.range(rng);
        match self.flavour.roll(rng) {
            0..4 => {
                txn.touch(&o);
            }
            4..34 => {
                txn.write(&o, at, data(rng, len as usize));
            }
            34..42 => {
                txn.zero(&o, at, len);
            }
            42..48 => {
                txn.truncate(&o, at);
            }
            48..51 => {
                txn.remove(&o);
            }
            51..55 => {
                txn.set_meta(&o, value(rng).slice(..0).to_vec().into());
            }
            55..58 => {
                txn.set_meta(&o, small(rng, "meta"));
            }
            58..62 => {
                txn.set_attr(&o, small(rng, "a"), value(rng));
            }
            62..64 => {
                txn.rm_attr(&o, small(rng, "a"));
            }
            64..65 => {
                txn.rm_attrs(&o);
            }
            65..70 => self.two(rng, txn, |txn, a, b| {
                txn.clone_object(a, b);
            }),
            70..76 => {
                let to = self.range(rng).0;
                // Often the offsets agree within a block.
                let to = if rng.bool() { to / 4096 * 4096 + at % 4096 } else { to };
                self.two(rng, txn, |txn, a, b| {
                    txn.clone_range(a, at, len, b, to);
                });
            }
            76..78 => self.two(rng, txn, |txn, a, b| {
                txn.rename(a, b);
            }),
            78..88 => {
                let n = rng.usize(0..6);
                let entries = (0..n).map(|_| (small(rng, "k"), value(rng))).collect();
                txn.omap_set(&o, entries);
            }
            88..92 => {
                txn.omap_remove(&o, vec![small(rng, "k"), small(rng, "k")]);
            }
            92..95 => {
                txn.omap_remove_range(&o, small(rng, "k"), small(rng, "k"));
            }
            95..97 => {
                txn.omap_clear(&o);
            }
            _ => {
                let header = if rng.bool() { value(rng) } else { Bytes::new() };
                txn.omap_set_header(&o, header);
            }
        }
    }

    fn two(
        &self,
        rng: &mut Rng,
        txn: &mut Transaction,
        f: impl FnOnce(&mut Transaction, &ObjectKey, &ObjectKey),
    ) {
        let (a, b) = (self.object(rng), self.object(rng));
        if a != b {
            f(txn, &a, &b);
        }
    }

    pub fn txn(&self, rng: &mut Rng, sequencer: u64) -> Transaction {
        let mut txn = Transaction::new(sequencer);
        txn.account = account_of(&key(self.first));
        txn.compress = any_compress(rng).filter(|_| self.flavour != Flavour::Images);
        for _ in 0..rng.usize(1..=self.ops) {
            self.op(rng, &mut txn);
        }
        txn
    }
}
