//! Building frames.

use super::{
    ALIGNMENTS, CRC_BYTES, EPILOGUE_BYTES, FrameMode, LATE_COMPLETE, PREAMBLE_BYTES, Preamble,
    SEGMENT_SEED, Tag,
};
use crate::msg::{HEADER_BYTES, Header};
use bytes::{Bytes, BytesMut};
use denc::{Encode, Encoder, KnownCrc, crc32c};
use io::net::SendBuf;

/// A piece shorter than this is copied beside its neighbours: one more entry in the list of pieces
/// would cost the kernel more.
pub const INLINE_MAX_BYTES: usize = 2048;
/// Allocation unit of the buffer that frames are built in.
const BLOCK_BYTES: usize = 64 << 10;

/// Builds frames one after the other, as a list of pieces to send.
///
/// Small parts are written into one buffer; larger ones become pieces of their own without being
/// copied. One writer serves all connections of a process: [`FrameWriter::take`] ends what belongs
/// to one of them.
#[derive(Debug)]
pub struct FrameWriter {
    mode: FrameMode,
    buf: BytesMut,
    pieces: SendBuf,
}

impl Default for FrameWriter {
    fn default() -> Self {
        FrameWriter {
            mode: FrameMode::Crc,
            buf: BytesMut::with_capacity(BLOCK_BYTES),
            pieces: SendBuf::new(),
        }
    }
}

impl FrameWriter {
    /// With nothing written, in crc mode.
    pub fn new() -> Self {
        Self::default()
    }

    /// How the bytes are protected.
    pub fn mode(&self) -> FrameMode {
        self.mode
    }

    /// Appends bytes that are frames already.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Appends a control frame.
    pub fn control<T: Encode + ?Sized>(&mut self, tag: Tag, payload: &T) {
        let mut frame = Vec::new();
        put_control(&mut frame, tag, payload);
        self.raw(&frame);
    }

    /// Appends a MESSAGE frame.
    ///
    /// # Panics
    /// When a segment has 4 GiB or more.
    pub fn message(
        &mut self,
        header: &Header,
        front: &Bytes,
        middle: &Bytes,
        data: (&[Bytes], KnownCrc),
    ) {
        let (data, known_crc) = data;
        let data_len = data.iter().map(Bytes::len).sum::<usize>();
        let lens = [HEADER_BYTES, front.len(), middle.len(), data_len].map(segment_len);
        let preamble = Preamble::new(Tag::Message, lens);
        // The most that can be written in here; larger parts are not.
        let fixed = PREAMBLE_BYTES + HEADER_BYTES + CRC_BYTES + EPILOGUE_BYTES;
        let inline = [front.len(), middle.len(), data_len];
        let inline = inline.map(|len| len.min(INLINE_MAX_BYTES));
        self.buf.reserve(inline.iter().fold(fixed, |sum, &n| sum.saturating_add(n)));

        self.raw(&preamble.to_bytes());
        let header = header.to_bytes();
        self.raw(&header);
        self.raw(&crc32c(SEGMENT_SEED, &header).to_le_bytes());
        if preamble.segments == 1 {
            return;
        }
        let mut crcs = [0; 3];
        let [front_crc, middle_crc, data_crc] = &mut crcs;
        *front_crc = self.segment(std::slice::from_ref(front));
        if preamble.segments > 2 {
            *middle_crc = self.segment(std::slice::from_ref(middle));
        }
        if preamble.segments > 3 {
            *data_crc = match data {
                [one] if known_crc.is_some() => {
                    self.piece(one);
                    known_crc.or_of(one)
                }
                pieces => self.segment(pieces),
            };
        }
        self.raw(&[LATE_COMPLETE]);
        for crc in crcs {
            self.raw(&crc.to_le_bytes());
        }
    }

    /// Appends the pieces of a segment and gives its crc.
    fn segment(&mut self, pieces: &[Bytes]) -> u32 {
        let mut crc = SEGMENT_SEED;
        for piece in pieces {
            crc = crc32c(crc, piece);
            self.piece(piece);
        }
        crc
    }

    fn piece(&mut self, piece: &Bytes) {
        if piece.len() < INLINE_MAX_BYTES {
            self.raw(piece);
        } else {
            self.cut();
            self.pieces.push(piece.clone());
        }
    }

    /// Makes what was written into the buffer a piece.
    fn cut(&mut self) {
        if !self.buf.is_empty() {
            self.pieces.push(self.buf.split().freeze());
        }
    }

    /// Everything written since the last call, ready to be sent.
    pub fn take(&mut self) -> SendBuf {
        self.cut();
        std::mem::take(&mut self.pieces)
    }
}

fn segment_len(len: usize) -> u32 {
    u32::try_from(len).expect("a segment of 4 GiB cannot be sent")
}

/// Appends a control frame to `out`.
pub(crate) fn put_control<T: Encode + ?Sized>(out: &mut Vec<u8>, tag: Tag, payload: &T) {
    let at = out.len();
    out.extend_from_slice(&[0; PREAMBLE_BYTES]);
    let mut e = Encoder::append_to(std::mem::take(out));
    e.put(payload);
    *out = e.into_vec();
    let start = at.saturating_add(PREAMBLE_BYTES);
    let payload = out.get(start..).unwrap_or_default();
    let preamble = Preamble::new(tag, [segment_len(payload.len()), 0, 0, 0]);
    let crc = crc32c(SEGMENT_SEED, payload);
    if !preamble.is_empty() {
        out.extend_from_slice(&crc.to_le_bytes());
    }
    if let Some(place) = out.get_mut(at..start) {
        place.copy_from_slice(&preamble.to_bytes());
    }
}

const _: () = assert!(ALIGNMENTS.len() == super::MAX_SEGMENTS);

#[cfg(test)]
mod tests {
    use super::super::FrameReader;
    use super::*;

    fn header(tid: u64) -> Header {
        Header { seq: 1, tid, kind: 42, ..Header::default() }
    }

    fn one(data: &Bytes) -> (&[Bytes], KnownCrc) {
        (std::slice::from_ref(data), KnownCrc::NONE)
    }

    fn read_back(pieces: &SendBuf) -> Vec<super::super::Frame> {
        let mut reader = FrameReader::new();
        reader.feed(pieces.concat().into());
        std::iter::from_fn(|| reader.next_frame().unwrap()).collect()
    }

    /// Who sends it is to be told, and nobody holds it in memory.
    #[test]
    fn data_beyond_the_bound_is_passed_over_and_checked() {
        let data = Bytes::from(vec![9; super::super::MAX_MESSAGE_FRAME_BYTES as usize]);
        let small = Bytes::from_static(b"small");
        let mut w = FrameWriter::new();
        w.message(&header(1), &small, &Bytes::new(), one(&data));
        w.message(&header(2), &small, &Bytes::new(), one(&small));
        let pieces = w.take();
        for damaged in [false, true] {
            let mut reader = FrameReader::new();
            let mut frames = Vec::new();
            for piece in pieces.iter().flat_map(|p| p.chunks(1 << 20).map(|c| p.slice_ref(c))) {
                let mut piece = piece.clone();
                if damaged && piece.len() == 1 << 20 {
                    piece = [&piece[1..], &[8]].concat().into();
                }
                reader.feed(piece);
                assert!(!reader.wants_fill());
                match reader.next_frame() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => continue,
                    Err(why) => {
                        let is_it =
                            matches!(why, crate::ProtocolError::SegmentCrc { segment: 3, .. });
                        assert!(damaged && is_it, "{why}");
                        return;
                    }
                }
                frames.extend(std::iter::from_fn(|| reader.next_frame().unwrap()));
            }
            let [first, second] = &frames[..] else { panic!("{} frames", frames.len()) };
            assert_eq!((first.left_out_bytes(), second.left_out_bytes()), (data.len(), 0));
            assert_eq!((first.segment(1), first.segment(3)), (small.clone(), Bytes::new()));
            assert_eq!((second.segment(1), second.segment(3)), (small.clone(), small.clone()));
        }
        panic!("the damage was not seen");
    }

    #[test]
    fn large_parts_are_not_copied_and_small_ones_share_a_piece() {
        let (small, large) = (Bytes::from(vec![1; 100]), Bytes::from(vec![2; 4096]));
        let mut w = FrameWriter::new();
        w.control(Tag::Ack, &7u64);
        w.message(&header(1), &small, &Bytes::new(), one(&small));
        w.message(&header(2), &small, &Bytes::new(), one(&large));
        w.message(&header(3), &Bytes::new(), &Bytes::new(), (&[], KnownCrc::NONE));
        let pieces = w.take();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert!(w.take().is_empty());

        let frames = read_back(&pieces);
        let tags: Vec<_> = frames.iter().map(|f| f.tag()).collect();
        assert_eq!(tags, [Tag::Ack, Tag::Message, Tag::Message, Tag::Message]);
        assert_eq!(frames[1].segment(1), small);
        assert_eq!(frames[1].segment(3), small);
        assert_eq!(frames[2].segment(3), large);
        assert_eq!(frames[3].preamble.segments, 1);
    }

    #[test]
    fn a_known_checksum_is_sent_as_it_is_and_found_out_by_the_reader() {
        let data = Bytes::from(vec![2; 4096]);
        let crc = KnownCrc::NONE.or_of(&data);
        let send = |pieces: &[Bytes], crc| {
            let mut w = FrameWriter::new();
            w.message(&header(1), &Bytes::new(), &Bytes::new(), (pieces, KnownCrc::of(crc)));
            let mut reader = FrameReader::new();
            reader.feed(w.take().concat().into());
            reader.next_frame()
        };
        let one = std::slice::from_ref(&data);
        let frame = send(one, crc).unwrap().unwrap();
        assert_eq!(frame.data_crc().or_of(b"something else"), crc);
        assert!(send(one, crc ^ 1).is_err());
        // Of several pieces it is worked out.
        assert!(send(&[data.slice(..5), data.slice(5..)], crc ^ 1).is_ok());
    }

    #[test]
    fn an_empty_middle_is_a_segment_when_data_follows() {
        let mut w = FrameWriter::new();
        let data = Bytes::from_static(b"data");
        w.message(&header(1), &Bytes::new(), &Bytes::new(), one(&data));
        let frames = read_back(&w.take());
        assert_eq!(frames[0].preamble.segments, 4);
        assert_eq!((frames[0].segment(1).len(), frames[0].segment(3)), (0, data));
    }
}
