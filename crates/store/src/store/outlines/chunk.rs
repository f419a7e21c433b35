//! What is kept of the rows of 1 MiB of an object.

use crate::codec::Decoded;
use crate::keys::SHARD_BLOCKS;
use crate::patch::Patch;
use crate::rows::Shard;

/// Shards that are kept and forgotten together: 1 MiB of an object.
pub(super) const CHUNK_SHARDS: usize = 8;
/// Blocks of a chunk.
const CHUNK_BLOCKS: usize = CHUNK_SHARDS * SHARD_BLOCKS as usize;
/// Two checksums take so many bytes.
const TWO_BYTES: usize = 7;
/// Rounds of the clock that a chunk stays without being used.
pub(super) const LIVES: u8 = 7;

/// The lower 28 bits of a block's crc32c.
///
/// They tell every change of a single bit, every change within 12 neighbouring bits, and all but 5 of the
/// 536,854,528 changes of two bits; of all other damage one in 268 million passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BriefCrc(u32);

impl BriefCrc {
    /// Bits that are kept.
    const BITS: usize = 28;
    const MASK: u32 = (1 << BriefCrc::BITS) - 1;

    pub fn of(crc: u32) -> BriefCrc {
        BriefCrc(crc & BriefCrc::MASK)
    }

    pub fn bits(self) -> u32 {
        self.0
    }
}

/// Brief checksums of all blocks of a chunk, two in 7 bytes: the first one in the lower bits.
pub(super) struct Sums([[u8; TWO_BYTES]; CHUNK_BLOCKS / 2]);

const _: () = assert!(size_of::<Sums>() == 896 && TWO_BYTES * 8 == 2 * BriefCrc::BITS);

impl Sums {
    pub fn new() -> Box<Sums> {
        Box::new(Sums([[0; TWO_BYTES]; CHUNK_BLOCKS / 2]))
    }

    fn two(&self, block: usize) -> u64 {
        let [a, b, c, d, e, f, g] = self.0[block / 2];
        u64::from_le_bytes([a, b, c, d, e, f, g, 0])
    }

    fn get(&self, block: usize) -> BriefCrc {
        BriefCrc::of((self.two(block) >> (block % 2 * BriefCrc::BITS)) as u32)
    }

    fn set(&mut self, block: usize, crc: u32) {
        let shift = block % 2 * BriefCrc::BITS;
        let others = self.two(block) & !(u64::from(BriefCrc::MASK) << shift);
        let two = others | u64::from(BriefCrc::of(crc).0) << shift;
        self.0[block / 2].copy_from_slice(&two.to_le_bytes()[..TWO_BYTES]);
    }
}

/// The blocks of one shard: a run of slots, whose blocks stand behind each other.
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    first: u8,
    /// Slots of the run; 0: there is no outline.
    len: u8,
}

impl Span {
    pub fn has(self, slot: u8) -> bool {
        slot >= self.first && slot - self.first < self.len
    }

    fn is_known(self) -> bool {
        self.len > 0
    }
}

/// Where the first slot of each shard stands, or would.
enum Places {
    /// All shards stand behind each other, and the chunk's first slot here.
    Run(u64),
    Each(Box<[u64; CHUNK_SHARDS]>),
}

impl Places {
    fn get(&self, shard: usize) -> u64 {
        match self {
            Places::Run(first) => first.wrapping_add(shard as u64 * SHARD_BLOCKS),
            Places::Each(firsts) => firsts[shard],
        }
    }
}

/// Object, and which MiB of it.
pub(super) type ChunkId = (u64, u32);

/// The outlines of a chunk's shards.
pub(super) struct Chunk {
    /// Its id is of both.
    object: u64,
    number: u32,
    /// So many times the clock passes it by, unless it is of use until then.
    pub lives: u8,
    /// Of which shards the checksums are known, bit by bit.
    summed: u8,
    spans: [Span; CHUNK_SHARDS],
    places: Places,
    sums: Option<Box<Sums>>,
}

const _: () = assert!(size_of::<Chunk>() == 56);

impl Chunk {
    pub fn new((object, number): ChunkId) -> Self {
        let (spans, places) = (Default::default(), Places::Run(0));
        Chunk { object, number, lives: LIVES, summed: 0, spans, places, sums: None }
    }

    pub fn id(&self) -> ChunkId {
        (self.object, self.number)
    }

    pub fn has_sums(&self) -> bool {
        self.sums.is_some()
    }

    /// Gives it memory for checksums, of which none is known yet.
    pub fn give_sums(&mut self, sums: Box<Sums>) {
        self.summed = 0;
        self.sums = Some(sums);
    }

    /// Takes that memory away. Where the blocks stand it still knows.
    pub fn take_sums(&mut self) -> Option<Box<Sums>> {
        self.summed = 0;
        self.sums.take()
    }

    /// The slots of a shard that are known, if any are.
    pub fn span(&self, shard: usize) -> Option<Span> {
        self.spans.get(shard).copied().filter(|span| span.is_known())
    }

    /// Where the first slot of a shard stands, or would.
    pub fn first(&self, shard: usize) -> u64 {
        self.places.get(shard)
    }

    /// Whether nothing more can be known of a shard; `has_room`: the chunk could have memory for checksums.
    pub fn is_complete(&self, shard: usize, has_room: bool) -> bool {
        let without = self.sums.is_none() && !has_room;
        self.spans[shard].is_known() && (without || self.is_summed(shard))
    }

    fn is_summed(&self, shard: usize) -> bool {
        self.summed >> shard & 1 == 1
    }

    /// The checksum of a slot of a shard.
    pub fn sum(&self, shard: usize, slot: u8) -> Option<BriefCrc> {
        let is_known = self.is_summed(shard) && self.spans[shard].has(slot);
        let sums = self.sums.as_ref().filter(|_| is_known)?;
        Some(sums.get(block_of(shard, slot)))
    }

    /// Takes the encoded row of a shard.
    pub fn note(&mut self, shard: usize, row: &[u8]) {
        self.forget(shard);
        let Some((start, first, len)) = Shard::single_run(row) else { return };
        if !matches!(self.note_sums(shard, row), Ok(true)) {
            return;
        }
        self.put_place(shard, start.wrapping_sub(u64::from(first)));
        self.spans[shard] = Span { first, len };
        self.summed |= u8::from(self.sums.is_some()) << shard;
    }

    /// Whether the blocks of a row are their shard's own; notes their checksums.
    fn note_sums(&mut self, shard: usize, row: &[u8]) -> Decoded<bool> {
        Shard::visit(row, 0..SHARD_BLOCKS as usize, |i, slot| {
            if let Some(sums) = &mut self.sums {
                sums.set(block_of(shard, i as u8), slot.crc);
            }
        })
    }

    /// Takes the checksums that are new.
    pub fn patch(&mut self, shard: usize, patch: &Patch) {
        if let Some(sums) = self.sums.as_mut() {
            for (slot, crc) in patch.slots() {
                sums.set(block_of(shard, *slot), *crc);
            }
        }
    }

    /// Knows nothing of a shard.
    pub fn forget(&mut self, shard: usize) {
        self.spans[shard] = Span::default();
        self.summed &= !(1 << shard);
    }

    /// Where the first slot of a shard stands, which has no outline at the moment.
    fn put_place(&mut self, shard: usize, first: u64) {
        let is_alone = !self.spans.iter().any(|span| span.is_known());
        match &mut self.places {
            places if is_alone => {
                *places = Places::Run(first.wrapping_sub(shard as u64 * SHARD_BLOCKS));
            }
            Places::Each(firsts) => firsts[shard] = first,
            places if places.get(shard) == first => {}
            places => {
                let mut firsts = std::array::from_fn(|shard| places.get(shard));
                firsts[shard] = first;
                *places = Places::Each(Box::new(firsts));
            }
        }
    }
}

fn block_of(shard: usize, slot: u8) -> usize {
    shard * SHARD_BLOCKS as usize + usize::from(slot)
}
