//! Entry points for fuzzing: any bytes may come in, nothing may panic.

use crate::connection::{ConnEvent, Connection};
use crate::frame::FrameReader;
use crate::msg::op_data as od;
use crate::msg::*;
use bytes::Bytes;
use denc::{Decode, Encode};
use types::{EntityAddr, EntityType, HObject};

/// Feeds `data` to a frame reader and to both ends of a connection, in pieces whose lengths come
/// from the first byte.
pub fn fuzz_frames(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    let piece = usize::from(first).saturating_add(1);
    let mut reader = FrameReader::new();
    for chunk in rest.chunks(piece) {
        reader.feed(Bytes::copy_from_slice(chunk));
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => {
                    let _ = crate::connection::message_of(&frame).map(|m| fuzz_one(&m));
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    let acceptor = Connection::accept(EntityType::OSD, EntityAddr::default());
    fuzz_connection(acceptor, rest, piece);
}

/// Feeds bytes to a connection and answers its questions; ends at the first error.
fn fuzz_connection(mut connection: Connection, data: &[u8], piece: usize) {
    for chunk in data.chunks(piece) {
        if let Some((mut buf, from)) = connection.take_fill() {
            let room = buf.as_mut_slice().get_mut(from..).unwrap_or_default();
            for (to, byte) in room.iter_mut().zip(chunk) {
                *to = *byte;
            }
            connection.filled(buf);
        } else {
            connection.feed(Bytes::copy_from_slice(chunk));
        }
        loop {
            match connection.next_event() {
                Ok(Some(ConnEvent::Auth { global_id, .. })) => connection.auth_done(global_id),
                Ok(Some(ConnEvent::ClientIdent(_) | ConnEvent::Reconnect(_))) => {
                    connection.set_ready();
                }
                Ok(Some(ConnEvent::Message(m))) => fuzz_one(&m),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// Decodes `data` as every message there is: its first two bytes choose where front and data meet.
pub fn fuzz_messages(data: &[u8]) {
    let Some(([lo, hi], rest)) = data.split_first_chunk() else {
        return;
    };
    let rest = Bytes::copy_from_slice(rest);
    let cut = usize::from(u16::from_le_bytes([*lo, *hi])).min(rest.len());
    let message = Message {
        header: Header::default(),
        front: rest.slice(..cut),
        middle: Bytes::new(),
        data: rest.slice(cut..),
        ..Message::default()
    };
    fuzz_all(&message);
}

/// Decodes a message as its type says.
fn fuzz_one(message: &Message) {
    let kind = message.header.kind;
    for check in ALL {
        check(message, Some(kind));
    }
}

fn fuzz_all(message: &Message) {
    for check in ALL {
        check(message, None);
    }
    let op = OsdOp {
        indata: message.data.clone(),
        args: OpArgs(message.front.first_chunk().copied().unwrap_or([0; 28])),
        ..OsdOp::default()
    };
    fuzz_op_data(&op);
}

/// Reads an operation's input and output as everything they could be.
fn fuzz_op_data(op: &OsdOp) {
    let _ = (od::xattr_in(op), od::CallIn::of(op), od::checksum_in(op));
    data_round_trip::<od::StatOut>(op);
    data_round_trip::<od::Extents>(op);
    data_round_trip::<od::SparseReadOut>(op);
    data_round_trip::<od::Values>(op);
    data_round_trip::<od::Keys>(op);
    data_round_trip::<od::OmapGetKeysIn>(op);
    data_round_trip::<od::OmapGetKeysOut>(op);
    data_round_trip::<od::OmapGetValsIn>(op);
    data_round_trip::<od::OmapGetValsOut>(op);
    data_round_trip::<od::OmapCmpIn>(op);
    data_round_trip::<od::OmapRmKeyRangeIn>(op);
    data_round_trip::<od::CopyFromIn>(op);
    data_round_trip::<od::CopyFrom2In>(op);
    data_round_trip::<od::ListWatchersOut>(op);
    data_round_trip::<od::ListSnapsOut>(op);
    data_round_trip::<od::NotifyIn>(op);
    data_round_trip::<od::NotifyAckIn>(op);
    data_round_trip::<od::NotifyReplies>(op);
    data_round_trip::<od::PgnlsOut>(op);
    data_round_trip::<HObject>(op);
    data_round_trip::<Redirect>(op);
}

/// What can be decoded must survive being encoded and decoded again.
fn data_round_trip<T: Decode + Encode + PartialEq>(op: &OsdOp) {
    if let Ok(value) = od::input::<T>(op) {
        let again = denc::decode::<T>(&denc::encode(&value));
        assert!(again == Ok(value), "decodes differently the second time");
    }
}

type Check = fn(&Message, Option<u16>);

/// Decodes as `P` (if it is of that type), encodes, decodes again: the same must come out.
fn round_trip<P: Payload + Clone + PartialEq>(message: &Message, kind: Option<u16>) {
    if kind.is_some_and(|k| k != P::TYPE) {
        return;
    }
    let mut message = message.clone();
    message.header =
        Header { kind: P::TYPE, version: P::VERSION, compat: P::COMPAT, ..message.header };
    if let Ok(value) = message.decode::<P>() {
        let again = value.clone().encode().into_message().decode::<P>();
        assert!(again == Ok(value), "decodes differently the second time");
    }
}

const ALL: &[Check] = &[
    round_trip::<MPing>,
    round_trip::<MAuth>,
    round_trip::<MAuthReply>,
    round_trip::<MOsdBackoff>,
    round_trip::<MCommand>,
    round_trip::<MCommandReply>,
    round_trip::<MMgrCommand>,
    round_trip::<MMgrCommandReply>,
    round_trip::<MMonMap>,
    round_trip::<MOsdMap>,
    round_trip::<MMgrMap>,
    round_trip::<MMdsMap>,
    round_trip::<MFsMap>,
    round_trip::<MFsMapUser>,
    round_trip::<MMonGetMap>,
    round_trip::<MConfig>,
    round_trip::<MMonSubscribe>,
    round_trip::<MMonGetOsdMap>,
    round_trip::<MMonGetVersion>,
    round_trip::<MMonGetVersionReply>,
    round_trip::<MMonCommand>,
    round_trip::<MMonCommandAck>,
    round_trip::<MPoolOp>,
    round_trip::<MPoolOpReply>,
    round_trip::<MStatfs>,
    round_trip::<MStatfsReply>,
    round_trip::<MGetPoolStats>,
    round_trip::<MGetPoolStatsReply>,
    round_trip::<MOsdOp>,
    round_trip::<MOsdOpReply>,
    round_trip::<MWatchNotify>,
];
