use super::*;
use crate::codec::block_crc;
use crate::rows::{Shard, Slot};
use io::BLOCK_BYTES;

fn note(known: &Outlines, id: ShardId, row: &[u8]) {
    let (chunk, _) = chunk_of(id);
    known.0.borrow_mut().admit(chunk, true);
    known.note(id, row);
}

fn crc(i: usize) -> u32 {
    (i as u32 + 1).wrapping_mul(0x9e37_79b9)
}

fn row(first: usize, len: usize, place: u64) -> Vec<u8> {
    let mut shard = Shard::default();
    for i in 0..len {
        shard.slots[first + i] = Slot::plain(place + i as u64, crc(first + i));
    }
    shard.encode().to_vec()
}

fn patch(slot: u8, crc: u32) -> Patch {
    let mut patch = Patch::default();
    patch.set(slot, crc);
    patch
}

fn brief(i: usize) -> Option<BriefCrc> {
    Some(BriefCrc::of(crc(i)))
}

/// What each flipped bit of a block changes in its checksum, in the order of the bits.
fn changes_of_bits() -> Vec<u32> {
    let mut block = [0; BLOCK_BYTES];
    let none = block_crc(&block);
    let flipped = (0..BLOCK_BYTES * 8).map(|bit| {
        block[bit / 8] ^= 1 << (bit % 8);
        let crc = block_crc(&block);
        block[bit / 8] ^= 1 << (bit % 8);
        crc ^ none
    });
    flipped.collect()
}

#[test]
fn a_brief_checksum_tells_small_damage() {
    let bits: Vec<u32> = changes_of_bits().into_iter().map(|c| BriefCrc::of(c).bits()).collect();
    assert!(bits.iter().all(|&change| change != 0));
    // Every way to change the first of twelve neighbours and any others of them, one of these at a time.
    for twelve in bits.windows(12) {
        let mut change = twelve[0];
        for way in 1..1u32 << 11 {
            assert!(change != 0);
            change ^= twelve[1 + way.trailing_zeros() as usize];
        }
    }
    let mut sorted = bits;
    sorted.sort_unstable();
    let same = sorted.chunk_by(|a, b| a == b).map(|same| same.len() * (same.len() - 1) / 2);
    assert_eq!(same.sum::<usize>(), 5, "changes of two bits that pass");
}

#[test]
fn each_block_that_is_there_has_its_place_and_checksum() {
    let known = Outlines::new(1 << 20);
    note(&known, (7, 3), &row(3, 6, 1 << 40));
    note(&known, (7, 4), &row(0, 32, 5));
    assert_eq!([4, 5, 8].map(|slot| known.sum((7, 3), slot)), [4, 5, 8].map(brief));
    assert_eq!([2, 9].map(|slot| known.sum((7, 3), slot)), [None; 2]);
    assert!((0..32).all(|slot| known.sum((7, 4), slot) == brief(slot.into())));
    let places = known.places((7, 3)).unwrap();
    assert_eq!((places(2), places(3), places(9)), (None, Some(1 << 40), None));
    assert!(known.places((7, 5)).is_none() && known.places((8, 3)).is_none());
    assert_eq!((known.sum((7, 5), 0), known.sum((8, 3), 3)), (None, None));
}

#[test]
fn a_change_is_never_missed() {
    let known = Outlines::new(1 << 20);
    let id = (7, 3);
    note(&known, id, &row(0, 32, 100));
    known.patch(id, &patch(5, 17));
    assert_eq!(known.sum(id, 5), Some(BriefCrc::of(17)));
    assert_eq!([4, 6].map(|slot| known.sum(id, slot)), [4, 6].map(brief));
    known.note(id, &row(0, 32, 500));
    assert_eq!((known.places(id).unwrap()(5), known.sum(id, 5)), (Some(505), brief(5)));
    known.forget(id);
    assert!(known.places(id).is_none() && known.sum(id, 5).is_none());
    known.patch(id, &patch(5, 17));
    assert!(known.places(id).is_none() && known.sum(id, 5).is_none());
}

#[test]
fn shards_stand_anywhere() {
    let known = Outlines::new(1 << 20);
    // Together, elsewhere, and together with the first ones again.
    let firsts = [100, 132, 5000, 196];
    for (number, first) in (8..).zip(firsts) {
        note(&known, (7, number), &row(4, 28, first + 4));
    }
    for (number, first) in (8..).zip(firsts) {
        let places = known.places((7, number)).unwrap();
        assert_eq!((places(3), places(4), places(31)), (None, Some(first + 4), Some(first + 31)));
    }
    // One that is alone says where all are.
    (9..12).for_each(|number| known.forget((7, number)));
    note(&known, (7, 8), &row(0, 32, 9000));
    note(&known, (7, 9), &row(0, 32, 9032));
    assert_eq!(known.places((7, 9)).unwrap()(0), Some(9032));
    note(&known, (7, 10), &row(0, 32, 9064));
    assert_eq!(known.places((7, 10)).unwrap()(1), Some(9065));
}

#[test]
fn blocks_that_others_refer_to_have_no_outline() {
    let known = Outlines::new(1 << 20);
    let mut shard = Shard::decode(&row(0, 32, 100)).unwrap();
    shard.slots.iter_mut().for_each(|s| s.shared = true);
    note(&known, (1, 1), &shard.encode());
    assert!(known.places((1, 1)).is_none() && known.sum((1, 1), 0).is_none());
    shard.slots.iter_mut().for_each(|s| s.shared = false);
    shard.slots[9].phys = 1000;
    note(&known, (1, 1), &shard.encode());
    assert!(known.places((1, 1)).is_none() && known.sum((1, 1), 0).is_none());
}

/// Memory for so many chunks with all their checksums, of which there may be more without.
const ROOM: usize = 10 * (CHUNK_BYTES + SUMS_BYTES);

#[test]
fn it_keeps_to_its_budget_and_what_is_used() {
    let known = Outlines::new(ROOM);
    let most = ROOM / CHUNKS_PART / CHUNK_BYTES;
    let mut lost = 0;
    for n in 0..1000 {
        note(&known, (n, 0), &row(0, 32, 100 + n));
        assert!(known.places((0, 0)).is_some());
        if known.sum((0, 0), 0).is_none() {
            lost += 1;
            note(&known, (0, 0), &row(0, 32, 100));
        }
        assert!(known.bytes() <= ROOM);
    }
    // New chunks take memory from checksums, wherever the clock stands; each wish for it moves that by one.
    assert!(lost < 100, "{lost}");
    let there: Vec<_> = (0..1000).filter(|n| known.places((*n, 0)).is_some()).collect();
    assert!(there.len() == most && there[0] == 0 && there[1] > 500, "{there:?}");
    let summed = there.iter().filter(|n| known.sum((**n, 0), 0).is_some()).count();
    assert!((8..=10).contains(&summed), "{summed}");
    let none = Outlines::new(0);
    note(&none, (1, 1), &row(0, 32, 100));
    assert!(none.places((1, 1)).is_none() && none.bytes() == 0);
}

#[test]
fn checksums_go_first_when_there_is_less_room_and_come_again() {
    let mut known = Outlines::new(ROOM);
    let shards: Vec<ShardId> = (0..10).map(|n| (n, 0)).collect();
    shards.iter().for_each(|id| note(&known, *id, &row(0, 32, 100)));
    let summed = |known: &Outlines| shards.iter().filter(|id| known.sum(**id, 9).is_some()).count();
    assert_eq!(summed(&known), 10);
    known.set_room(ROOM * 4 / 5);
    let places = shards.iter().filter(|id| known.places(**id).is_some()).count();
    assert_eq!((places, summed(&known)), (10, 7));
    assert!(known.bytes() <= ROOM * 4 / 5);
    // What was changed meanwhile is not mistaken for what is known.
    shards.iter().for_each(|id| known.patch(*id, &patch(9, 4)));
    assert_eq!(summed(&known), 7);
    let complete =
        |known: &Outlines| shards.iter().filter(|id| known.0.borrow().is_complete(**id)).count();
    assert_eq!(complete(&known), 10, "there is no room for more");
    known.set_room(ROOM);
    assert_eq!(complete(&known), 7, "rows that come with others are looked at for checksums");
    shards.iter().for_each(|id| assert!(known.0.borrow_mut().admit((id.0, 0), false)));
    assert_eq!(summed(&known), 7, "memory for checksums, but not yet what they are");
    assert_eq!(known.0.borrow().with_sums, 10);
    shards.iter().for_each(|id| known.note(*id, &row(0, 32, 100)));
    assert_eq!(summed(&known), 10);
    known.set_room(0);
    assert_eq!((known.bytes(), known.places((0, 0)).is_none()), (0, true));
}

#[test]
fn checksums_go_to_what_is_wanted_when_others_are_not() {
    let known = Outlines::new(ROOM);
    let shards: Vec<ShardId> = (0..12).map(|n| (n, 0)).collect();
    shards.iter().for_each(|id| note(&known, *id, &row(0, 32, 100)));
    let wanted = (11, 0);
    assert!(known.places(wanted).is_some() && known.sum(wanted, 0).is_none());
    let mut wishes = 0;
    while known.sum(wanted, 0).is_none() {
        wishes += 1;
        note(&known, wanted, &row(0, 32, 100));
        assert!(known.bytes() <= ROOM && wishes < 200);
    }
    // Not before the clock went round some times, and nobody used what had them.
    assert!(wishes > 12, "{wishes} wishes");
    let without = shards.iter().filter(|id| known.sum(**id, 0).is_none()).count();
    let places = shards.iter().filter(|id| known.places(**id).is_some()).count();
    assert_eq!((without, places), (3, 12));
}
