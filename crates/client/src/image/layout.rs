//! Where an image's bytes are: from the image to its objects and back (`osdc/Striper.cc`).
//!
//! An image is cut into units; `count` units side by side are a stripe; `count` objects that stripes
//! run over are a set. Without striping a unit is an object. All numbers are checked when a layout
//! is made, so that no offset below [`MAX_IMAGE_BYTES`] overflows.

use smallvec::SmallVec;

/// The smallest and the largest order (log2 of an object's bytes), as librbd has them.
pub const ORDERS: std::ops::RangeInclusive<u8> = 12..=25;
/// The largest size we open or make: the map of objects would not fit much earlier.
pub const MAX_IMAGE_BYTES: u64 = 1 << 60;
/// The most objects side by side.
const MAX_STRIPE_COUNT: u64 = 1 << 20;

/// How an image is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    object_bytes: u64,
    unit: u64,
    count: u64,
}

/// A range of an object and the place of its first byte in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the object.
    pub object: u64,
    /// First byte in the object.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// First byte in the image.
    pub image_at: u64,
}

/// Ranges (offset, length) of an image.
pub type Ranges = SmallVec<[(u64, u64); 1]>;

impl Layout {
    /// A layout; `None` when the numbers make no sense.
    pub fn new(order: u8, unit: u64, count: u64) -> Option<Self> {
        if !ORDERS.contains(&order) {
            return None;
        }
        let object_bytes = 1 << order;
        let fits = unit > 0 && unit <= object_bytes && object_bytes.checked_rem(unit) == Some(0);
        let sane = fits && (1..=MAX_STRIPE_COUNT).contains(&count);
        // One object after the other: then units do not matter.
        let unit = if count == 1 { object_bytes } else { unit };
        sane.then_some(Layout { object_bytes, unit, count })
    }

    /// Bytes of a whole object.
    pub fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    /// Objects of a set.
    pub fn stripe_count(&self) -> u64 {
        self.count
    }

    /// Bytes of a set of objects.
    pub fn period(&self) -> u64 {
        self.object_bytes * self.count
    }

    /// Whether objects follow each other whole.
    pub fn is_plain(&self) -> bool {
        self.unit == self.object_bytes
    }

    /// How many objects an image of this size has.
    pub fn objects(&self, size: u64) -> u64 {
        let periods = size.div_ceil(self.period());
        let rest = size % self.period();
        let first_stripe = self.unit * self.count;
        let missing =
            if rest > 0 && rest < first_stripe { self.count - rest.div_ceil(self.unit) } else { 0 };
        periods * self.count - missing
    }

    /// The piece that begins at this byte of the image and has at most `len` bytes.
    pub fn piece(&self, image_at: u64, len: u64) -> Piece {
        let block = image_at / self.unit;
        let in_unit = image_at % self.unit;
        let len = len.min(self.unit - in_unit);
        if self.is_plain() {
            return Piece { object: block, at: in_unit, len, image_at };
        }
        let (stripe, pos) = (block / self.count, block % self.count);
        let per_object = self.object_bytes / self.unit;
        let object = stripe / per_object * self.count + pos;
        Piece { object, at: stripe % per_object * self.unit + in_unit, len, image_at }
    }

    /// All pieces of a range of the image, in the image's order.
    pub fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let (layout, end) = (*self, offset + len);
        let mut at = offset;
        std::iter::from_fn(move || {
            let piece = (at < end).then(|| layout.piece(at, end - at))?;
            at += piece.len;
            Some(piece)
        })
    }

    /// The same, with neighbours in one object put together: by object, each with its pieces.
    pub fn by_object(&self, offset: u64, len: u64) -> Vec<SmallVec<[Piece; 4]>> {
        let mut pieces: Vec<Piece> = self.pieces(offset, len).collect();
        pieces.sort_by_key(|p| (p.object, p.at));
        let mut runs: Vec<SmallVec<[Piece; 4]>> = Vec::new();
        for piece in pieces {
            let follows = |run: &SmallVec<[Piece; 4]>| {
                run.last().is_some_and(|l| l.object == piece.object && l.at + l.len == piece.at)
            };
            match runs.last_mut().filter(|run| follows(run)) {
                Some(run) => run.push(piece),
                None => runs.push(SmallVec::from_iter([piece])),
            }
        }
        runs
    }

    /// Which byte of the image a byte of an object is, and how many follow it in both.
    pub fn in_image(&self, object: u64, at: u64) -> (u64, u64) {
        let in_unit = at % self.unit;
        let per_object = self.object_bytes / self.unit;
        let (set, pos) = (object / self.count, object % self.count);
        let stripe = set * per_object + at / self.unit;
        let block = stripe * self.count + pos;
        (block * self.unit + in_unit, self.unit - in_unit)
    }

    /// The ranges of the image that a range of an object holds, as far as they lie before `end`.
    pub fn ranges(&self, object: u64, at: u64, len: u64, end: u64) -> Ranges {
        let mut ranges = Ranges::new();
        let mut done = 0;
        while done < len {
            let (image_at, run) = self.in_image(object, at + done);
            let run = run.min(len - done);
            if image_at < end {
                ranges.push((image_at, run.min(end - image_at)));
            }
            done += run;
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_images_are_cut_at_objects() {
        let l = Layout::new(22, 1 << 22, 1).unwrap();
        let mib4 = 4 << 20;
        let pieces: Vec<_> = l.pieces(mib4 - 10, 20).collect();
        assert_eq!(pieces[0], Piece { object: 0, at: mib4 - 10, len: 10, image_at: mib4 - 10 });
        assert_eq!(pieces[1], Piece { object: 1, at: 0, len: 10, image_at: mib4 });
        assert_eq!((l.objects(0), l.objects(1), l.objects(mib4 + 1)), (0, 1, 2));
        assert_eq!(l.objects(10 << 40), (10 << 40) / mib4);
    }

    #[test]
    fn striped_images_go_there_and_back() {
        // Objects of 16 KiB, units of 4 KiB, 3 side by side.
        let l = Layout::new(14, 4096, 3).unwrap();
        assert_eq!(l.piece(0, 9999), Piece { object: 0, at: 0, len: 4096, image_at: 0 });
        assert_eq!(l.piece(4096, 10).object, 1);
        assert_eq!(l.piece(3 * 4096, 10), Piece { object: 0, at: 4096, len: 10, image_at: 12288 });
        assert_eq!(l.piece(12 * 4096, 1).object, 3, "the next set");
        for at in [0, 1, 4095, 5000, 12_288, 49_151, 49_152, 100_000] {
            let p = l.piece(at, u64::MAX);
            assert_eq!(l.in_image(p.object, p.at), (at, p.len));
        }
        for (object, end) in (0..5).flat_map(|o| [(o, 1), (o, 4096), (o, 8193), (o, 50_000)]) {
            let has_some = !l.ranges(object, 0, l.object_bytes(), end).is_empty();
            assert_eq!(l.in_image(object, 0).0 < end, has_some, "its first byte is the first");
        }
        let bytes: u64 = l.by_object(100, 60_000).iter().flatten().map(|p| p.len).sum();
        assert_eq!(bytes, 60_000);
        assert!(l.by_object(0, 49_152).iter().all(|run| run.len() == 4));
        // One byte needs one object, one stripe needs three.
        assert_eq!((l.objects(1), l.objects(4097), l.objects(12_288)), (1, 2, 3));
        assert_eq!((l.objects(12_289), l.objects(49_152), l.objects(49_153)), (3, 3, 4));
        assert_eq!(l.ranges(0, 0, 16_384, 13_000)[..], [(0, 4096), (12_288, 712)]);
    }

    #[test]
    fn nonsense_is_no_layout() {
        for (order, unit, count) in
            [(11, 512, 1), (26, 1, 1), (22, 0, 1), (22, 3, 1), (22, 4096, 0)]
        {
            assert_eq!(Layout::new(order, unit, count), None);
        }
        assert_eq!(Layout::new(22, 1 << 23, 1), None);
    }
}
