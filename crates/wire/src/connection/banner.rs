//! The banner, the only bytes of a connection that are no frame:
//! `"ceph v2\n", u16 length (16), u64 supported, u64 required` messenger features.

use crate::ProtocolError;
use crate::frame::{BANNER_MAGIC, BANNER_PAYLOAD_BYTES, FrameReader, MSGR2_REVISION_1};
use bytes::Bytes;

/// Bytes of magic and length.
const HEAD_BYTES: usize = 10;
/// The longest payload that is read; later revisions may append.
const MAX_PAYLOAD_BYTES: usize = 256;

/// Appends our banner: revision 1 supported, nothing required.
pub(super) fn write(out: &mut Vec<u8>) {
    out.extend_from_slice(BANNER_MAGIC);
    out.extend_from_slice(&BANNER_PAYLOAD_BYTES.to_le_bytes());
    out.extend_from_slice(&MSGR2_REVISION_1.to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
}

/// Gathers the peer's banner.
#[derive(Debug, Default)]
pub(super) struct BannerReader {
    have: Vec<u8>,
}

impl BannerReader {
    /// Takes what there is; `true` when the banner is whole and says what we can live with.
    pub fn read(&mut self, reader: &mut FrameReader) -> Result<bool, ProtocolError> {
        loop {
            let want = self.want()?;
            if self.have.len() == want {
                break;
            }
            let more = reader.take_raw(want.saturating_sub(self.have.len()));
            if more.is_empty() {
                return Ok(false);
            }
            self.have.extend_from_slice(&more);
            // A wrong byte ends it at once, however few there are.
            let seen = self.have.len().min(BANNER_MAGIC.len());
            if self.have.get(..seen) != BANNER_MAGIC.get(..seen) {
                return Err(ProtocolError::NotMsgr2);
            }
        }
        let payload = Bytes::from(std::mem::take(&mut self.have)).slice(HEAD_BYTES..);
        let bytes = payload.len();
        let (supported, required): (u64, u64) =
            denc::decode(&payload).map_err(|_| ProtocolError::BannerLength { bytes })?;
        if supported & MSGR2_REVISION_1 == 0 || required & !MSGR2_REVISION_1 != 0 {
            return Err(ProtocolError::BannerFeatures { supported, required });
        }
        Ok(true)
    }

    /// How long the banner is, as far as its first bytes tell.
    fn want(&self) -> Result<usize, ProtocolError> {
        let Some(&[lo, hi]) = self.have.get(BANNER_MAGIC.len()..HEAD_BYTES) else {
            return Ok(HEAD_BYTES);
        };
        let bytes = usize::from(u16::from_le_bytes([lo, hi]));
        if bytes < usize::from(BANNER_PAYLOAD_BYTES) || bytes > MAX_PAYLOAD_BYTES {
            return Err(ProtocolError::BannerLength { bytes });
        }
        Ok(HEAD_BYTES.saturating_add(bytes))
    }
}
