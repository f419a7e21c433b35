//! Cutting received bytes into frames.

use super::{
    DATA_SEGMENT, FILL_MIN_BYTES, FILL_MIN_REST_BYTES, FrameMode, LATE_ABORTED, LATE_COMPLETE,
    LATE_MASK, MAX_SEGMENTS, PREAMBLE_BYTES, Preamble, SEGMENT_SEED, Tag,
};
use crate::ProtocolError;
use bytes::{Bytes, BytesMut};
use denc::{KnownCrc, crc32c};
use io::AlignedBuf;

/// A gathering buffer starts no larger than this whatever the preamble claims, and grows with the
/// bytes that really come.
const GATHER_START_BYTES: usize = 1 << 20;

/// A whole frame whose checksums are right.
#[derive(Clone, Debug)]
pub struct Frame {
    /// What it is.
    pub preamble: Preamble,
    /// All behind the preamble, or all up to the data segment when that was received apart.
    body: Bytes,
    /// The data segment and what follows, when received apart.
    /// (Of data that was passed over there is only what follows it.)
    apart: Option<Bytes>,
    data_crc: KnownCrc,
}

impl Frame {
    fn new(preamble: Preamble, body: Bytes, apart: Option<Bytes>) -> Self {
        Frame { preamble, body, apart, data_crc: KnownCrc::NONE }
    }

    /// Bytes of the data segment that were passed over.
    pub fn left_out_bytes(&self) -> usize {
        if self.preamble.data_left_out { self.preamble.len(DATA_SEGMENT) } else { 0 }
    }

    /// What it is.
    pub fn tag(&self) -> Tag {
        self.preamble.tag
    }

    /// Offset of segment `i` in the body.
    fn offset(&self, i: usize) -> usize {
        let crc = if i > 0 && self.preamble.len(0) > 0 { super::CRC_BYTES } else { 0 };
        let before = self.preamble.lens.iter().take(i);
        before.fold(crc, |sum, &len| sum.saturating_add(len as usize))
    }

    fn slice(&self, i: usize) -> &[u8] {
        let len = self.preamble.len(i);
        match &self.apart {
            Some(data) if i == DATA_SEGMENT => data.get(..len).unwrap_or_default(),
            _ => {
                let from = self.offset(i);
                self.body.get(from..from.saturating_add(len)).unwrap_or_default()
            }
        }
    }

    /// Segment 0.
    pub fn head(&self) -> &[u8] {
        self.slice(0)
    }

    /// Segment `i`, sharing the memory it was received into.
    pub fn segment(&self, i: usize) -> Bytes {
        let slice = self.slice(i);
        if slice.is_empty() {
            return Bytes::new();
        }
        match &self.apart {
            Some(data) if i == DATA_SEGMENT => data.slice_ref(slice),
            _ => self.body.slice_ref(slice),
        }
    }

    /// The checksum of the data segment.
    pub fn data_crc(&self) -> KnownCrc {
        self.data_crc
    }

    /// The bytes behind the last segment: late status and the crcs of segments 1 to 3.
    fn epilogue(&self) -> &[u8] {
        let bytes = self.apart.as_ref().unwrap_or(&self.body);
        let at = bytes.len().saturating_sub(super::EPILOGUE_BYTES);
        bytes.get(at..).unwrap_or_default()
    }

    /// Checks crcs and late status; `false` for a frame that its sender aborted.
    fn verify(&mut self) -> Result<bool, ProtocolError> {
        let head_len = self.preamble.len(0);
        if head_len > 0 {
            let stored = self.body.get(head_len..).and_then(|b| b.first_chunk());
            self.check_crc(0, stored.copied())?;
        }
        let count = usize::from(self.preamble.segments);
        if count == 1 {
            return Ok(true);
        }
        let Some((&status, crcs)) = self.epilogue().split_first() else {
            return Err(ProtocolError::LateStatus(0));
        };
        match status & LATE_MASK {
            LATE_COMPLETE => {}
            LATE_ABORTED => return Ok(false),
            _ => return Err(ProtocolError::LateStatus(status)),
        }
        let last = count.min(MAX_SEGMENTS);
        let mut crc = 0;
        for (segment, stored) in (1..last).zip(crcs.chunks_exact(super::CRC_BYTES)) {
            crc = self.check_crc(segment, stored.first_chunk().copied())?;
        }
        if last > DATA_SEGMENT {
            self.data_crc = KnownCrc::of(crc);
        }
        Ok(true)
    }

    fn check_crc(&self, segment: usize, stored: Option<[u8; 4]>) -> Result<u32, ProtocolError> {
        let stored = u32::from_le_bytes(stored.unwrap_or_default());
        let computed = match segment {
            // Of data that was passed over it was taken on the way.
            DATA_SEGMENT => self.data_crc.or_of(self.slice(segment)),
            _ => crc32c(SEGMENT_SEED, self.slice(segment)),
        };
        if stored == computed {
            return Ok(computed);
        }
        Err(ProtocolError::SegmentCrc { tag: self.tag(), segment, stored, computed })
    }
}

/// What the reader is in the middle of.
#[derive(Debug)]
enum State {
    /// Of a preamble, `have` bytes came.
    Preamble { bytes: [u8; PREAMBLE_BYTES], have: usize },
    /// Gathering what follows the preamble, `want` bytes: all, or all before the data segment.
    Gather { preamble: Preamble, buf: BytesMut, want: usize },
    /// Receiving a large data segment, with the epilogue behind it, into an aligned buffer.
    Data {
        preamble: Preamble,
        body: Bytes,
        buf: AlignedBuf,
        have: usize,
        /// The buffer is away, being filled by the network.
        lent: bool,
    },
    /// Hardly ever: see there.
    PassOver(Box<PassOver>),
    /// A long frame is read when there is room for it. Whether that was said.
    Room { preamble: Preamble, said: bool },
}

/// A data segment that is too large is passed over; then what is behind it is gathered.
#[derive(Debug)]
struct PassOver {
    preamble: Preamble,
    body: Bytes,
    /// Of the segment so many bytes are still to come.
    left: usize,
    crc: u32,
    behind: Vec<u8>,
}

const BETWEEN_FRAMES: State = State::Preamble { bytes: [0; PREAMBLE_BYTES], have: 0 };

/// Cuts a stream of received bytes into frames.
///
/// A frame that is whole in one piece of received bytes is never copied: its segments are slices.
/// One that spans pieces is gathered, each byte copied once. A large data segment goes into an
/// [`AlignedBuf`] from its first byte on: what came already is copied there, the rest is received
/// straight into it when the owner passes [`FrameReader::take_fill`] to the network.
#[derive(Debug)]
pub struct FrameReader {
    mode: FrameMode,
    state: State,
    chunk: Bytes,
    messages: bool,
    asks_for_room: bool,
    /// The frame it is in the middle of was given room.
    has_room: bool,
}

impl Default for FrameReader {
    fn default() -> Self {
        FrameReader {
            mode: FrameMode::Crc,
            state: BETWEEN_FRAMES,
            chunk: Bytes::new(),
            messages: true,
            asks_for_room: false,
            has_room: false,
        }
    }
}

impl FrameReader {
    /// Between two frames, in crc mode.
    pub fn new() -> Self {
        Self::default()
    }

    /// For a connection whose session is not open yet: the preamble of a MESSAGE is an error, so
    /// that nobody makes us wait for a large frame before it is known who he is.
    pub fn without_messages() -> Self {
        FrameReader { messages: false, ..Self::default() }
    }

    /// The session is open: MESSAGE frames are read from now on.
    pub fn allow_messages(&mut self) {
        self.messages = true;
    }

    /// Long frames that are not there as a whole are read when there is room for them from now on.
    pub fn ask_for_room(&mut self) {
        self.asks_for_room = true;
    }

    /// Bytes of a long frame that waits for [`FrameReader::give_room`]; told once.
    pub fn wants_room(&mut self) -> Option<usize> {
        let State::Room { preamble, said } = &mut self.state else {
            return None;
        };
        (!std::mem::replace(said, true)).then(|| preamble.held_bytes())
    }

    /// There is room for the frame that waits; [`FrameReader::next_frame`] goes on with it.
    pub fn give_room(&mut self) {
        if let State::Room { preamble, .. } = self.state {
            self.has_room = true;
            self.gather(preamble);
        }
    }

    /// Whether the reader is in the middle of a frame that was given room.
    pub fn has_room(&self) -> bool {
        self.has_room
    }

    /// How the bytes are protected.
    pub fn mode(&self) -> FrameMode {
        self.mode
    }

    /// Takes in received bytes.
    ///
    /// # Panics
    /// When frames of the last piece were not all taken out, or a fill is under way: both are
    /// faults of the caller.
    pub fn feed(&mut self, data: Bytes) {
        assert!(!self.is_lent(), "bytes past a fill that is under way");
        if self.chunk.is_empty() {
            self.chunk = data;
            return;
        }
        assert!(matches!(self.state, State::Room { .. }), "received bytes are read up first");
        // They were on their way when nothing more was to be received.
        self.chunk = [&self.chunk[..], &data[..]].concat().into();
    }

    /// Takes back the buffer of [`FrameReader::take_fill`], now full.
    ///
    /// # Panics
    /// When no such buffer is away, or this one has another length.
    pub fn filled(&mut self, filled: AlignedBuf) {
        let State::Data { preamble, buf, have, lent, .. } = &mut self.state else {
            panic!("a filled buffer that was never lent");
        };
        assert!(*lent, "a filled buffer that was never lent");
        assert_eq!(filled.len(), preamble.data_and_after(), "another buffer");
        *have = filled.len();
        *buf = filled;
        *lent = false;
    }

    /// The buffer that the next bytes should be received into, and how many bytes are in it
    /// already, if the reader is in a large data segment. To be asked for when no more received
    /// bytes are at hand; [`FrameReader::filled`] gives it back.
    pub fn take_fill(&mut self) -> Option<(AlignedBuf, usize)> {
        let State::Data { buf, have, lent, .. } = &mut self.state else {
            return None;
        };
        if *lent || buf.len().saturating_sub(*have) < FILL_MIN_REST_BYTES {
            return None;
        }
        *lent = true;
        Some((std::mem::take(buf), *have))
    }

    /// Whether [`FrameReader::take_fill`] would give a buffer.
    pub fn wants_fill(&self) -> bool {
        match &self.state {
            State::Data { buf, have, lent, .. } => {
                !*lent && buf.len().saturating_sub(*have) >= FILL_MIN_REST_BYTES
            }
            _ => false,
        }
    }

    /// Whether the last frame ended where the received bytes end.
    pub fn is_between_frames(&self) -> bool {
        self.chunk.is_empty() && matches!(self.state, State::Preamble { have: 0, .. })
    }

    /// Whether a buffer is away.
    fn is_lent(&self) -> bool {
        matches!(self.state, State::Data { lent: true, .. })
    }

    /// Whether received bytes are left that were not read yet.
    pub fn has_bytes(&self) -> bool {
        !self.chunk.is_empty()
    }

    /// Up to `n` received bytes as they are; for the banner, which is no frame.
    pub(crate) fn take_raw(&mut self, n: usize) -> Bytes {
        self.chunk.split_to(n.min(self.chunk.len()))
    }

    /// The next whole frame, `None` when more bytes are needed.
    ///
    /// # Errors
    /// When the bytes are no frame. The reader is of no use after that.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, ProtocolError> {
        loop {
            let whole = match &self.state {
                State::Preamble { .. } => self.read_preamble()?,
                State::Gather { .. } => self.read_gather(),
                State::Data { .. } => self.read_data(),
                State::PassOver(_) => self.pass_over(),
                State::Room { .. } => Step::More,
            };
            match whole {
                Step::More => return Ok(None),
                Step::On => {}
                Step::Frame(mut frame) => {
                    self.has_room = false;
                    if frame.verify()? {
                        return Ok(Some(frame));
                    }
                }
            }
        }
    }

    fn read_preamble(&mut self) -> Result<Step, ProtocolError> {
        let State::Preamble { bytes, have } = &mut self.state else {
            return Ok(Step::On);
        };
        let whole = if *have == 0 { self.chunk.first_chunk() } else { None };
        let preamble = if let Some(whole) = whole {
            let preamble = Preamble::parse(whole)?;
            self.chunk.truncate_front(PREAMBLE_BYTES);
            preamble
        } else {
            let room = bytes.get_mut(*have..).unwrap_or_default();
            let n = room.len().min(self.chunk.len());
            for (to, from) in room.iter_mut().zip(self.chunk.iter()) {
                *to = *from;
            }
            *have = have.saturating_add(n);
            self.chunk.truncate_front(n);
            if *have < PREAMBLE_BYTES {
                return Ok(Step::More);
            }
            Preamble::parse(bytes)?
        };
        if preamble.tag == Tag::Message && !self.messages {
            return Err(ProtocolError::Unexpected {
                tag: Tag::Message,
                phase: "the session was not open",
            });
        }
        Ok(self.begin(preamble))
    }

    /// The preamble is known: where does the rest go?
    fn begin(&mut self, preamble: Preamble) -> Step {
        self.state = BETWEEN_FRAMES;
        let all = preamble.before_data().saturating_add(preamble.data_and_after());
        if self.chunk.len() >= all && !preamble.data_left_out {
            return Step::Frame(Frame::new(preamble, self.chunk.split_to(all), None));
        }
        if self.asks_for_room && preamble.held_bytes() >= FILL_MIN_BYTES {
            self.state = State::Room { preamble, said: false };
        } else {
            self.gather(preamble);
        }
        Step::On
    }

    /// A frame that is not here as a whole.
    #[inline]
    fn gather(&mut self, preamble: Preamble) {
        let all = preamble.before_data().saturating_add(preamble.data_and_after());
        let large = preamble.tag == Tag::Message && preamble.len(DATA_SEGMENT) >= FILL_MIN_BYTES;
        let want = if large { preamble.before_data() } else { all };
        self.state = if large && self.chunk.len() >= want {
            let body = self.chunk.split_to(want);
            data_state(preamble, body)
        } else {
            State::Gather {
                preamble,
                buf: BytesMut::with_capacity(want.min(GATHER_START_BYTES)),
                want,
            }
        };
    }

    fn read_gather(&mut self) -> Step {
        let State::Gather { preamble, buf, want } = &mut self.state else {
            return Step::On;
        };
        let n = want.saturating_sub(buf.len()).min(self.chunk.len());
        buf.extend_from_slice(&self.chunk.split_to(n));
        if buf.len() < *want {
            return Step::More;
        }
        let preamble = *preamble;
        let body = std::mem::take(buf).freeze();
        if preamble.before_data().saturating_add(preamble.data_and_after()) == body.len() {
            self.state = BETWEEN_FRAMES;
            return Step::Frame(Frame::new(preamble, body, None));
        }
        self.state = data_state(preamble, body);
        Step::On
    }

    fn read_data(&mut self) -> Step {
        let State::Data { preamble, body, buf, have, lent } = &mut self.state else {
            return Step::On;
        };
        if *lent {
            return Step::More;
        }
        let room = buf.as_mut_slice().get_mut(*have..).unwrap_or_default();
        let n = room.len().min(self.chunk.len());
        let piece = self.chunk.split_to(n);
        if let Some(room) = room.get_mut(..n) {
            room.copy_from_slice(&piece);
        }
        *have = have.saturating_add(n);
        if *have < buf.len() {
            return Step::More;
        }
        let apart = Some(std::mem::take(buf).freeze());
        let frame = Frame::new(*preamble, std::mem::take(body), apart);
        self.state = BETWEEN_FRAMES;
        Step::Frame(frame)
    }

    fn pass_over(&mut self) -> Step {
        let State::PassOver(over) = &mut self.state else {
            return Step::On;
        };
        let data = self.chunk.split_to(over.left.min(self.chunk.len()));
        over.left = over.left.saturating_sub(data.len());
        over.crc = crc32c(over.crc, &data);
        let n = super::EPILOGUE_BYTES.saturating_sub(over.behind.len()).min(self.chunk.len());
        over.behind.extend_from_slice(&self.chunk.split_to(n));
        if over.behind.len() < super::EPILOGUE_BYTES {
            return Step::More;
        }
        let (body, behind) = (std::mem::take(&mut over.body), std::mem::take(&mut over.behind));
        let mut frame = Frame::new(over.preamble, body, Some(behind.into()));
        frame.data_crc = KnownCrc::of(over.crc);
        self.state = BETWEEN_FRAMES;
        Step::Frame(frame)
    }
}

fn data_state(preamble: Preamble, body: Bytes) -> State {
    if preamble.data_left_out {
        let (left, behind) = (preamble.len(DATA_SEGMENT), Vec::new());
        let over = PassOver { preamble, body, left, crc: SEGMENT_SEED, behind };
        return State::PassOver(Box::new(over));
    }
    State::Data {
        preamble,
        body,
        buf: AlignedBuf::for_overwrite(preamble.data_and_after()),
        have: 0,
        lent: false,
    }
}

enum Step {
    /// More bytes are needed.
    More,
    /// The state changed: look again.
    On,
    /// A whole frame, not verified yet.
    Frame(Frame),
}

/// Dropping bytes from the front of a piece.
trait TruncateFront {
    fn truncate_front(&mut self, n: usize);
}

impl TruncateFront for Bytes {
    fn truncate_front(&mut self, n: usize) {
        bytes::Buf::advance(self, n);
    }
}
