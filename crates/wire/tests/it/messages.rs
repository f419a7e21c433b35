//! Typed messages: what real Ceph wrote is read and written as it was.

use crate::vectors::{json, streams, unhex};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::BTreeMap;
use std::fmt::Debug;
use wire::frame::{FrameReader, Tag};
use wire::msg::op_data as od;
use wire::msg::*;

/// Every captured message: from the streams that are not encrypted, and from live-messages.json.
fn captured() -> Vec<Message> {
    let mut out = Vec::new();
    for stream in streams("").iter() {
        let mut reader = FrameReader::new();
        reader.feed(stream.bytes.slice(26..));
        while let Ok(Some(frame)) = reader.next_frame() {
            if frame.tag() == Tag::Message {
                out.push(wire::connection::message_of(&frame).unwrap());
            }
        }
    }
    for m in json("enc/live-messages.json").as_array().unwrap() {
        let number = |name: &str| m["header"][name].as_u64().unwrap();
        let part = |name: &str| unhex(m[name].as_str().unwrap());
        out.push(Message {
            header: Header {
                seq: number("seq"),
                tid: number("tid"),
                kind: number("type") as u16,
                priority: number("prio") as u16,
                version: number("ver") as u16,
                data_off: number("data_off") as u16,
                ack_seq: number("ack"),
                compat: number("compat") as u16,
                ..Header::default()
            },
            front: part("front"),
            middle: part("middle"),
            data: part("data"),
            ..Message::default()
        });
    }
    out
}

/// Decodes, encodes, and compares with what was captured, header included.
fn same<P: Payload>(m: &Message) {
    let typed: P = m.decode().unwrap_or_else(|e| panic!("{:?}: {e}", m.header));
    let out = typed.encode().with_tid(m.header.tid);
    assert_eq!(out.header(m.header.seq, m.header.ack_seq), m.header);
    let again = out.into_message();
    let what = kind::name(m.header.kind);
    assert!(again.front == m.front, "front of {what:?} differs");
    assert!(again.middle == m.middle, "middle of {what:?} differs");
    assert!(again.data == m.data, "data of {what:?} differs");
}

/// The check for a type of message, if we know it.
fn check_of(kind: u16) -> Option<fn(&Message)> {
    Some(match kind {
        kind::PING => same::<MPing>,
        kind::MON_MAP => same::<MMonMap>,
        kind::MON_GET_MAP => same::<MMonGetMap>,
        kind::MON_GET_OSDMAP => same::<MMonGetOsdMap>,
        kind::STATFS => same::<MStatfs>,
        kind::STATFS_REPLY => same::<MStatfsReply>,
        kind::MON_SUBSCRIBE => same::<MMonSubscribe>,
        kind::AUTH => same::<MAuth>,
        kind::AUTH_REPLY => same::<MAuthReply>,
        kind::MON_GET_VERSION => same::<MMonGetVersion>,
        kind::MON_GET_VERSION_REPLY => same::<MMonGetVersionReply>,
        kind::MDS_MAP => same::<MMdsMap>,
        kind::OSD_MAP => same::<MOsdMap>,
        kind::OSD_OP => same::<MOsdOp>,
        kind::OSD_OPREPLY => same::<MOsdOpReply>,
        kind::WATCH_NOTIFY => same::<MWatchNotify>,
        kind::POOLOP_REPLY => same::<MPoolOpReply>,
        kind::POOLOP => same::<MPoolOp>,
        kind::MON_COMMAND => same::<MMonCommand>,
        kind::MON_COMMAND_ACK => same::<MMonCommandAck>,
        kind::GETPOOLSTATS => same::<MGetPoolStats>,
        kind::GETPOOLSTATSREPLY => same::<MGetPoolStatsReply>,
        kind::CONFIG => same::<MConfig>,
        kind::COMMAND => same::<MCommand>,
        kind::COMMAND_REPLY => same::<MCommandReply>,
        kind::MGR_MAP => same::<MMgrMap>,
        kind::MGR_COMMAND => same::<MMgrCommand>,
        kind::MGR_COMMAND_REPLY => same::<MMgrCommandReply>,
        _ => return None,
    })
}

#[test]
fn every_captured_message_of_a_known_type_is_written_as_it_was_read() {
    let mut unknown = BTreeMap::new();
    let mut known = 0;
    for m in captured() {
        match check_of(m.header.kind) {
            Some(check) => {
                check(&m);
                known += 1;
            }
            None => *unknown.entry(m.header.kind).or_insert(0) += 1,
        }
    }
    assert!(known > 1300, "{known}");
    // Of clients of an MDS; and between daemons: 0x4f PG_CREATED..., 0x705, 0x706 to and from a mgr.
    let all: Vec<u16> = unknown.keys().copied().collect();
    assert_eq!(
        all,
        [
            kind::CLIENT_SESSION,
            kind::CLIENT_REQUEST,
            kind::CLIENT_REPLY,
            0x4f,
            kind::CLIENT_CAPS,
            0x705,
            0x706
        ]
    );
}

fn exact<T: Decode + Encode + Debug>(bytes: &Bytes, what: impl Debug) {
    let value: T = denc::decode_all(bytes).unwrap_or_else(|e| panic!("{what:?}: {e}"));
    assert!(denc::encode(&value) == *bytes, "{what:?}: {value:?}");
}

/// Input of an operation, byte for byte; `false` for one that is plain bytes.
fn check_input(op: &OsdOp) -> bool {
    let d = &op.indata;
    match op.code {
        OpCode::GETXATTR | OpCode::SETXATTR | OpCode::CMPXATTR | OpCode::RMXATTR => {
            let (name, value) = od::xattr_in(op).unwrap();
            let args = op.args.xattr();
            let again = od::xattr_op(op.code, &name, &value, args.cmp_op, args.cmp_mode);
            assert_eq!((&again.indata, again.args), (d, op.args));
        }
        OpCode::CALL => {
            let again = od::CallIn::of(op).unwrap().into_op();
            assert_eq!((&again.indata, again.args), (d, op.args));
        }
        OpCode::OMAPGETKEYS => exact::<od::OmapGetKeysIn>(d, op),
        OpCode::OMAPGETVALS => exact::<od::OmapGetValsIn>(d, op),
        OpCode::OMAPGETVALSBYKEYS | OpCode::OMAPRMKEYS => exact::<od::Keys>(d, op),
        OpCode::OMAPSETVALS => exact::<od::Values>(d, op),
        OpCode::OMAP_CMP => exact::<od::OmapCmpIn>(d, op),
        OpCode::OMAPRMKEYRANGE => exact::<od::OmapRmKeyRangeIn>(d, op),
        OpCode::NOTIFY => exact::<od::NotifyIn>(d, op),
        OpCode::NOTIFY_ACK => exact::<od::NotifyAckIn>(d, op),
        OpCode::PGNLS => exact::<types::HObject>(d, op),
        OpCode::COPY_FROM => exact::<od::CopyFromIn>(d, op),
        OpCode::COPY_FROM2 => exact::<od::CopyFrom2In>(d, op),
        OpCode::CHECKSUM => {
            od::checksum_in(op).unwrap();
        }
        _ => return false,
    }
    true
}

/// Output of an operation, byte for byte; `false` for one that is plain bytes.
fn check_output(op: &ReplyOp) -> bool {
    let d = &op.output();
    match op.code {
        OpCode::STAT => exact::<od::StatOut>(d, op),
        OpCode::MAPEXT => exact::<od::Extents>(d, op),
        OpCode::SPARSE_READ => {
            exact::<od::SparseReadOut>(d, op);
            let out: od::SparseReadOut = denc::decode(d).unwrap();
            let halves = [out.data.slice(..1), out.data.slice(1..)];
            let pieces = od::SparseReadOut::pieces(&out.extents, halves);
            assert_eq!(pieces.concat(), d[..]);
        }
        OpCode::CHECKSUM => {
            let kind = op.args.checksum().kind;
            let width = if kind == op::checksum_kind::XXHASH64 { 8 } else { 4 };
            let number = |b: &[u8]| b.iter().rev().fold(0, |n, &x| n << 8 | u64::from(x));
            let values: Vec<u64> = d[4..].chunks(width).map(number).collect();
            assert_eq!(od::checksum_out(kind, &values), d);
        }
        OpCode::GETXATTRS | OpCode::OMAPGETVALSBYKEYS => exact::<od::Values>(d, op),
        OpCode::OMAPGETKEYS => exact::<od::OmapGetKeysOut>(d, op),
        OpCode::OMAPGETVALS => exact::<od::OmapGetValsOut>(d, op),
        OpCode::LIST_WATCHERS => exact::<od::ListWatchersOut>(d, op),
        OpCode::LIST_SNAPS => exact::<od::ListSnapsOut>(d, op),
        OpCode::NOTIFY => exact::<od::NotifyOut>(d, op),
        OpCode::PGNLS => exact::<od::PgnlsOut>(d, op),
        _ => return false,
    }
    true
}

#[test]
fn input_and_output_of_captured_operations_is_written_as_it_was_read() {
    let (mut inputs, mut outputs) = (BTreeMap::new(), BTreeMap::new());
    for m in captured() {
        if m.header.kind == kind::OSD_OP {
            for op in m.decode::<MOsdOp>().unwrap().ops {
                if !op.indata.is_empty() && check_input(&op) {
                    *inputs.entry(op.code).or_insert(0) += 1;
                }
            }
        } else if m.header.kind == kind::OSD_OPREPLY {
            for op in m.decode::<MOsdOpReply>().unwrap().ops {
                if op.rval >= 0 && !op.is_empty() && check_output(&op) {
                    *outputs.entry(op.code).or_insert(0) += 1;
                }
            }
        } else if m.header.kind == kind::WATCH_NOTIFY {
            let m: MWatchNotify = m.decode().unwrap();
            if m.event == WatchEvent::NotifyComplete {
                exact::<od::NotifyReplies>(&m.data, m.cookie);
            }
        }
    }
    println!("inputs {inputs:?}\noutputs {outputs:?}");
    assert!(inputs.len() >= 13, "{inputs:?}");
    assert!(outputs.len() >= 9, "{outputs:?}");
}

/// Every instance of `enc/NAME.json`.
fn instances<T: Decode + Encode + Debug>(name: &str) {
    let tests = json(&format!("enc/{name}.json"));
    let tests = tests["tests"].as_array().unwrap();
    assert!(!tests.is_empty());
    for test in tests {
        exact::<T>(&unhex(test["hex"].as_str().unwrap()), name);
    }
}

#[test]
fn instances_of_types_are_written_as_they_were_read() {
    instances::<ObjectStatSum>("object_stat_sum_t");
    instances::<ObjectStatCollection>("object_stat_collection_t");
    instances::<PoolStat>("pool_stat_t");
    instances::<SnapContext>("SnapContext");
    instances::<ObjectLocator>("object_locator_t");
    instances::<Redirect>("request_redirect_t");
    instances::<od::WatchItem>("watch_item_t");
    instances::<od::ListWatchersOut>("obj_list_watch_response_t");
    instances::<od::CloneInfo>("clone_info");
    instances::<od::ListSnapsOut>("obj_list_snap_response_t");
    instances::<od::PgnlsOut>("pg_nls_response_t");
}

#[test]
fn names_of_statistics_are_ceph_s() {
    let tests = json("enc/object_stat_sum_t.json");
    let test = &tests["tests"][0];
    let sum: ObjectStatSum = denc::decode(&unhex(test["hex"].as_str().unwrap())).unwrap();
    let want = |name: &str| test["dump"][name].as_i64().unwrap();
    assert_eq!(sum.num_objects_unfound, want("num_objects_unfound"));
    assert_eq!(sum.num_rd_kb, want("num_read_kb"));
    assert_eq!(sum.num_omap_keys, want("num_omap_keys"));
    assert_eq!(i64::from(sum.num_evict_mode_some), want("num_evict_mode_some"));
    assert_eq!(sum.num_objects_repaired, want("num_objects_repaired"));
}

#[test]
fn replies_echo_the_request() {
    let requests = captured();
    let request = requests.iter().find(|m| m.header.kind == kind::OSD_OP);
    let request: MOsdOp = request.unwrap().decode().unwrap();
    let reply = MOsdOpReply::answer(&request, types::Epoch(7));
    let codes = |code: &OpCode| *code;
    assert_eq!(
        reply.ops.iter().map(|op| codes(&op.code)).collect::<Vec<_>>(),
        request.ops.iter().map(|op| codes(&op.code)).collect::<Vec<_>>()
    );
    assert_eq!(reply.flags, i64::from(request.flags & !7 | 5));
    let refused = MOsdOpReply::refuse(&request, types::Epoch(7), types::Errno::ENOSPC);
    assert_eq!((refused.result, refused.flags), (-28, i64::from(request.flags & 5)));
    assert_eq!(refused.retry_attempt, request.retry_attempt);
}

/// As `net/ceph/mon_client.c: __send_subscribe` writes it.
#[test]
fn what_a_kernel_subscribes_to_is_understood() {
    let mut front = vec![1, 0, 0, 0, 6, 0, 0, 0];
    front.extend_from_slice(b"osdmap");
    front.extend_from_slice(&7_u64.to_le_bytes());
    front.push(Subscription::ONETIME);
    let mut message = MMonSubscribe::default().encode().into_message();
    message.header.version = 2;
    message.front = front.into();
    let wanted: MMonSubscribe = message.decode().unwrap();
    let osdmap = Subscription { start: 7, flags: Subscription::ONETIME };
    assert_eq!(wanted.what, [("osdmap".to_owned(), osdmap)].into());
    assert_eq!(wanted.hostname, "");
}

#[test]
fn messages_of_other_types_and_newer_versions_are_refused() {
    let ping = MPing {}.encode().into_message();
    assert!(ping.decode::<MPing>().is_ok());
    assert!(ping.decode::<MMonGetMap>().is_err());
    let mut newer = ping;
    newer.header.compat = 2;
    assert!(newer.decode::<MPing>().is_err());
}
