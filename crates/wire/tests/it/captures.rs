//! Real conversations through frames and connections.

use crate::vectors::{Stream, streams};
use bytes::Bytes;
use denc::{Encode, KnownCrc};
use types::{EntityAddr, EntityType};
use wire::Message;
use wire::connection::auth::NoneRequest;
use wire::connection::{ConnEvent, Connection, message_of};
use wire::frame::{ClientIdent, Frame, FrameReader, FrameWriter, Hello, ServerIdent, Tag};

/// Bytes of a banner.
const BANNER: usize = 26;

struct Raw(Bytes);

impl Encode for Raw {
    fn encode(&self, e: &mut denc::Encoder) {
        e.put_raw(&self.0);
    }
}

/// All frames behind the banner, up to the first that is none.
fn frames(stream: &Stream, piece: usize) -> (Vec<Frame>, bool) {
    let (mut reader, mut out) = (FrameReader::new(), Vec::new());
    let body = stream.bytes.slice(BANNER..);
    for chunk in body.chunks(piece) {
        reader.feed(body.slice_ref(chunk));
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => out.push(frame),
                Ok(None) => break,
                Err(_) => return (out, false),
            }
        }
    }
    (out, true)
}

fn rewrite(frames: &[Frame]) -> Vec<u8> {
    let mut w = FrameWriter::new();
    for frame in frames {
        if frame.tag() == Tag::Message {
            let m = message_of(frame).unwrap();
            // Also in pieces: the checksum runs over all of them.
            let (a, b) = (m.data.len() / 3, m.data.len());
            let data = [m.data.slice(..a), m.data.slice(a..b)];
            w.message(&m.header, &m.front, &m.middle, (&data, KnownCrc::NONE));
        } else {
            w.control(frame.tag(), &Raw(frame.segment(0)));
        }
    }
    w.take().concat()
}

#[test]
fn every_captured_frame_is_written_as_it_was_read() {
    let mut messages = 0;
    for stream in streams("none-") {
        for piece in [1, 33, 1000, 1 << 20] {
            let (frames, whole) = frames(&stream, piece);
            assert!(whole, "{}", stream.name);
            assert!(rewrite(&frames) == stream.bytes[BANNER..], "{}", stream.name);
            let of_tag = |f: &&Frame| f.tag() == Tag::Message;
            messages += frames.iter().filter(of_tag).count();
        }
    }
    // As frames.json counts them.
    assert_eq!(messages / 4, 1199);
}

#[test]
fn the_unencrypted_part_of_cephx_conversations_is_read() {
    for stream in streams("cephx-") {
        let (frames, whole) = frames(&stream, 777);
        let rewritten = rewrite(&frames);
        assert!(stream.bytes[BANNER..].starts_with(&rewritten));
        let tags: Vec<_> = frames.iter().map(Frame::tag).collect();
        assert!(tags.len() >= 3, "{}", stream.name);
        let secure = stream.name.contains("secure-all")
            || (stream.name.contains("secure-mon") && stream.server() == EntityType::MON);
        assert_eq!(whole, !secure, "{}", stream.name);
    }
}

/// What went over one end of a replayed connection.
#[derive(Default)]
struct Replay {
    messages: Vec<Message>,
    tx: Vec<u8>,
    ready: bool,
}

/// Feeds a captured stream to our end, which answers as the real one did.
fn replay(mut c: Connection, stream: &Stream, piece: usize, other: &[Frame]) -> Replay {
    let mut r = Replay::default();
    let global_id = denc::decode(&find(other, Tag::AuthDone)).unwrap_or(0);
    for chunk in stream.bytes.chunks(piece) {
        c.feed(stream.bytes.slice_ref(chunk));
        while let Some(event) = c.next_event().unwrap() {
            match event {
                ConnEvent::Auth { .. } => c.auth_done(global_id),
                ConnEvent::ClientIdent(ident) => {
                    let server: ServerIdent =
                        denc::decode_all(&find(other, Tag::ServerIdent)).unwrap();
                    assert!(server.addrs.0.contains(&ident.target));
                    c.server_ident(&server);
                }
                ConnEvent::Authenticated { .. } => {
                    let ident: ClientIdent =
                        denc::decode_all(&find(other, Tag::ClientIdent)).unwrap();
                    c.client_ident(&ident).unwrap();
                }
                ConnEvent::ServerIdent(_) => c.set_ready(),
                ConnEvent::Message(m) => r.messages.push(m),
                ConnEvent::Hello(_) | ConnEvent::Ack(_) => {}
                other => panic!("{other:?}"),
            }
        }
        r.tx.extend(c.take_tx());
    }
    r.ready = c.is_at_rest();
    r
}

fn find(frames: &[Frame], tag: Tag) -> Bytes {
    let frame = frames.iter().find(|f| f.tag() == tag);
    frame.map(|f| f.segment(0)).unwrap_or_default()
}

fn hello(frames: &[Frame]) -> Hello {
    denc::decode_all(&find(frames, Tag::Hello)).unwrap()
}

/// The bytes of the other direction up to the open session.
fn handshake_of(stream: &Stream, frames: &[Frame]) -> Vec<u8> {
    let is_ident = |f: &Frame| matches!(f.tag(), Tag::ClientIdent | Tag::ServerIdent);
    let end = frames.iter().position(is_ident).unwrap();
    let mut bytes = stream.bytes[..BANNER].to_vec();
    bytes.extend(rewrite(&frames[..=end]));
    bytes
}

#[test]
fn our_server_end_understands_real_clients_and_answers_as_a_real_server() {
    for stream in streams("none-").iter().filter(|s| s.is_c2s()) {
        let other = stream.other();
        let (theirs, _) = frames(&other, 1 << 20);
        for piece in [1, 13, 4096] {
            let end = Connection::accept(stream.server(), hello(&theirs).peer_addr);
            let r = replay(end, stream, piece, &theirs);
            assert!(r.ready, "{}", stream.name);
            assert!(!r.messages.is_empty());
            let handshake = handshake_of(&other, &theirs);
            assert!(r.tx.starts_with(&handshake), "{}", stream.name);
        }
    }
}

#[test]
fn our_client_end_understands_real_servers_and_speaks_as_a_real_client() {
    for stream in streams("none-").iter().filter(|s| !s.is_c2s()) {
        let other = stream.other();
        let (theirs, _) = frames(&other, 1 << 20);
        let auth: wire::frame::AuthRequest =
            denc::decode_all(&find(&theirs, Tag::AuthRequest)).unwrap();
        let request: NoneRequest = denc::decode_all(&auth.payload).unwrap();
        for piece in [1, 13, 4096] {
            // In one of them an OSD is the client, for COPY_FROM.
            let (me, to) = (hello(&theirs).entity, stream.server());
            let end = Connection::dial(me, to, hello(&theirs).peer_addr, request.clone());
            let r = replay(end, stream, piece, &theirs);
            assert!(r.ready, "{}", stream.name);
            assert!(!r.messages.is_empty());
            let handshake = handshake_of(&other, &theirs);
            assert!(r.tx.starts_with(&handshake), "{}", stream.name);
        }
    }
}

#[test]
fn cephx_is_answered_with_the_methods_there_are() {
    let stream = &streams("cephx-crc-rados-get")[0];
    assert!(stream.is_c2s());
    let mut c = Connection::accept(EntityType::MON, EntityAddr::default());
    let (frames, _) = frames(stream, 1 << 20);
    c.take_tx();
    let mut w = FrameWriter::new();
    for tag in [Tag::Hello, Tag::AuthRequest] {
        w.control(tag, &Raw(find(&frames, tag)));
    }
    c.feed([stream.bytes[..BANNER].to_vec(), w.take().concat()].concat().into());
    assert!(c.next_event().unwrap().is_none());
    let mut reader = FrameReader::new();
    reader.feed(c.take_tx().into());
    let answer = reader.next_frame().unwrap().unwrap();
    let bad: wire::frame::AuthBadMethod = denc::decode_all(&answer.segment(0)).unwrap();
    assert_eq!((answer.tag(), bad.method, bad.result), (Tag::AuthBadMethod, 2, -95));
    assert_eq!((bad.allowed_methods, bad.allowed_modes), (vec![1], vec![1]));
}
