//! Encodings of our own: between daemons, in a PG's records, on command lines.
//!
//! There are many small types: the first byte of an input chooses one.

use crate::corpus::{CLUSTER, OSD, addrs, blob, object, own, pg, version};
use crate::targets::again;
use admin::command::{CommandTable, Def};
use admin::server::AdminServer;
use bytes::Bytes;
use denc::{Decode, Encode};
use io::net::{ConnId, ListenId, NetEvent, PeerAddr};
use io::{Effects, Now};
use peer::*;
use pg::*;
use std::collections::BTreeMap;
use types::{Epoch, Eversion, HObject, OsdId, ReqId, UTime};

type Feed = fn(&[u8]) -> bool;

/// A type: how it is fed, and a value of it.
struct Kind(Feed, Vec<u8>);

fn kind<T: Decode + Encode + PartialEq>(value: T) -> Kind {
    Kind(again::<T>, own(&value))
}

const EPOCH: Epoch = Epoch(9);

fn entry() -> LogEntry {
    LogEntry {
        kind: EntryKind::Modify,
        object: object(),
        version: version(8),
        prior_version: version(7),
        reqid: ReqId::default(),
        user_version: 5,
        mtime: UTime::ZERO,
        result: 0,
        op_returns: vec![OpReturn { rval: -5, outdata: blob() }],
        changed: Some((4096, 10)),
        lost_after: Some(version(1)),
    }
}

fn info() -> PgInfo {
    let mut info = PgInfo::new(pg(), History::default());
    info.last_update = version(8);
    info.last_backfill = object();
    info
}

fn segment() -> LogSegment {
    let mut segment = LogSegment::default();
    segment.entries.push(entry());
    segment
}

fn message(body: Body) -> Kind {
    let msg = PgMsg { pgid: pg(), epoch: EPOCH, interval: EPOCH, body };
    kind(PgPeering { msg, readers: vec![PriorReader { osd: OSD, epoch: EPOCH, left_ms: 750 }] })
}

fn image() -> ImageIo {
    let (nspace, id) = ("n".to_owned(), "105e1f".to_owned());
    let (writes, write_bytes, write_us) = (2, 8192, 300);
    let (reads, read_bytes, read_us) = (1, 512, 80);
    ImageIo {
        pool: pg().pool,
        nspace,
        id,
        writes,
        write_bytes,
        write_us,
        reads,
        read_bytes,
        read_us,
    }
}

fn stat() -> PgStat {
    PgStat {
        pgid: pg(),
        state: 3,
        state_since: UTime::ZERO,
        epoch: EPOCH,
        last_update: version(8),
        log_tail: version(2),
        log_entries: 6,
        log_dups: 0,
        up: vec![OSD, OsdId(1)],
        acting: vec![OSD],
        up_primary: 2,
        acting_primary: 2,
        mapping_epoch: EPOCH,
        created: EPOCH,
        last_epoch_clean: EPOCH,
        sums: ObjectSums::default(),
        degraded: 1,
        misplaced: 2,
        unfound: 3,
        io: IoCounts::default(),
        recovered_objects: 4,
        recovered_bytes: 5,
        blocked_by: vec![OsdId(1)],
        snaps_to_trim: 1,
        scrub: scrub::ScrubRecord::default(),
        trimmed: Default::default(),
    }
}

fn to_the_mon() -> Vec<Kind> {
    let metadata = BTreeMap::from([("hostname".to_owned(), "h".to_owned())]);
    vec![
        kind(OsdBoot {
            cluster: CLUSTER,
            osd: OSD,
            uuid: CLUSTER,
            client_addrs: addrs(),
            cluster_addrs: addrs(),
            hb_back_addrs: addrs(),
            hb_front_addrs: addrs(),
            was_alive: true,
            newest_map: EPOCH,
            store_bytes: 1 << 40,
            device_class: "ssd".to_owned(),
            location: vec![("host".to_owned(), "h".to_owned())],
            metadata,
            durable_txn: 7,
        }),
        kind(OsdRefusal { why: "it is another one".to_owned() }),
        kind(OsdWhoIsThere { number: 3 }),
        kind(OsdHere { osd: OSD, number: 3 }),
        kind(OsdAlive { osd: OSD, want: EPOCH }),
        kind(OsdPgTemp { epoch: EPOCH, wants: vec![(pg(), vec![OSD, OsdId(1)])] }),
        kind(OsdGoingDown { osd: OSD, up_from: EPOCH }),
        kind(OsdReport {
            pools: Some(vec![PoolUsage { pool: pg().pool, allocated: 4096, stored: 5 }]),
            seq: 7,
            osd: OSD,
            up_from: EPOCH,
            space: OsdSpace::default(),
            pgs_held: 1,
            commit_latency_us: 80,
            slow_requests: 0,
            oldest_request_s: 0,
            compressed: vec![PoolCompressed {
                pool: pg().pool,
                original: 3,
                allocated: 2,
                stored: 1,
            }],
            pgs: vec![stat()],
            durable_txn: 7,
            own_damage: "a node".to_owned(),
            wall: types::UTime::ZERO,
            full: true,
            images: Some(ImageCounts { over_ms: 5000, images: vec![image()] }),
            options: vec![OptionSaid {
                name: "osd_max_backfills".to_owned(),
                said: vec![("mon".to_owned(), "2".to_owned())],
            }],
        }),
        kind(ImagesAsked { for_ms: 60_000 }),
        kind(OsdFailure {
            reporter: OSD,
            target: OsdId(1),
            up_from: EPOCH,
            silent_ms: 3100,
            what: FailureKind::Silent,
        }),
        kind(PgCreates {
            epoch: EPOCH,
            pgs: vec![PgCreate {
                pgid: pg(),
                history: History::default(),
                past: PastIntervals::default(),
            }],
        }),
    ]
}

fn between_osds() -> Vec<Kind> {
    let (pgid, epoch, interval) = (pg(), EPOCH, EPOCH);
    let cursor = PushCursor { data_offset: 4096, omap_after: blob(), ..PushCursor::default() };
    vec![
        kind(RepOp {
            pgid,
            epoch,
            interval,
            records: vec![own(&record()).into()].into(),
            trim_to: version(1),
            txn: transaction(),
            data: Default::default(),
            data_crc: denc::KnownCrc::NONE,
        }),
        kind(RepAck { pgid, interval, version: version(8), missed: vec![version(7)], full: true }),
        kind(Pull {
            pgid,
            epoch,
            interval,
            object: object(),
            need: version(8),
            cursor: cursor.clone(),
            urgent: true,
            have: version(7),
            shares: Some(version(6)),
            shared: vec![(0, 4096)],
        }),
        kind(Push {
            pgid,
            epoch,
            interval,
            object: object(),
            pulled: true,
            exists: true,
            version: version(8),
            size: 10,
            meta: blob(),
            attrs: vec![("_".into(), blob())],
            omap_header: blob(),
            omap: vec![(blob(), blob())],
            extents: vec![(0, 10)],
            from: cursor.clone(),
            next: cursor.clone(),
            urgent: false,
            base: version(7),
            base_snap: types::SnapId(4),
            shared: vec![(0, 4096)],
            data: Bytes::new(),
        }),
        kind(PushAck {
            pgid,
            epoch,
            interval,
            object: object(),
            version: version(8),
            next: cursor,
            fate: PartFate::WholeWanted,
        }),
        kind(Hurry { pgid, interval, object: object() }),
        kind(Scan { pgid, epoch, interval, begin: object(), max: 512 }),
        kind(ScanReply {
            pgid,
            epoch,
            interval,
            begin: HObject::min(),
            end: HObject::max(),
            objects: vec![(object(), version(8))],
        }),
        kind(BackfillProgress { pgid, epoch, interval, to: object() }),
        kind(BackfillProgressAck { pgid, epoch, interval, to: object() }),
        kind(Heartbeat { answer: true, asked_ns: 1 << 40, epoch, full: true, txn_bytes: 4 << 20 }),
        kind(LeaseAsk { asked_ns: 1 << 40, up_from: epoch }),
        kind(LeaseGrant { asked_ns: 1 << 40, epoch }),
    ]
}

fn scrubs() -> Vec<Kind> {
    let (pgid, epoch, interval) = (pg(), EPOCH, EPOCH);
    vec![
        kind(ScrubReserve { pgid, epoch, interval, what: Reserve::Grant }),
        kind(ScrubAsk {
            pgid,
            epoch,
            interval,
            number: 3,
            begin: HObject::min(),
            end: object(),
            deep: true,
        }),
        kind(ScrubList {
            pgid,
            epoch,
            interval,
            number: 3,
            end: object(),
            failed: false,
            objects: vec![scrubbed()],
        }),
        kind(ScrubOrder { epoch, pgs: vec![pgid], deep: true, repair: false }),
        kind(RecoveryPlace {
            pgid,
            epoch,
            interval,
            what: Place::Ask { priority: 180, backfill: true },
        }),
        kind(RecoveryPlace { pgid, epoch, interval, what: Place::TooFull }),
        kind(RecoveryOrder { epoch, pgs: vec![pgid], backfill: true, cancel: false }),
    ]
}

fn peering() -> Vec<Kind> {
    let missing = || {
        let mut missing = Missing::default();
        missing.set(object(), version(8), Eversion::ZERO);
        missing
    };
    let notify = Notify {
        info: info(),
        past: PastIntervals::default(),
        lack: Lack { objects: 1, newest: version(2) },
    };
    vec![
        message(Body::Query(Query::Log { since: version(2) }, History::default())),
        message(Body::Notify(Box::new(notify))),
        message(Body::Log { info: Box::new(info()), log: segment(), missing: missing() }),
        message(Body::Activate { info: Box::new(info()), log: segment(), backfill: true }),
        message(Body::Activated(Box::new(info()))),
        message(Body::History(History::default())),
        message(Body::Remove),
        message(Body::Bad(Box::new(object()), version(3))),
    ]
}

fn scrubbed() -> scrub::ScrubObject {
    scrub::ScrubObject {
        object: object(),
        version: version(8),
        size: 4096,
        meta: blob(),
        attrs: vec![("_a".into(), blob())],
        digests: Some(scrub::Digests::default()),
        errors: scrub::copy_error::READ,
    }
}

fn record() -> LogRecord {
    LogRecord { entry: entry(), sums: ObjectSums::default(), last_user_version: 5 }
}

fn records() -> Vec<Kind> {
    let info = InfoRecord { info: info(), past: PastIntervals::default(), epoch: EPOCH, pg_num: 8 };
    let dup = Dup {
        reqid: ReqId::default(),
        version: version(3),
        user_version: 2,
        result: 0,
        op_returns: Vec::new(),
        hash: Some(7),
    };
    let txn = Kind(decode_txn, transaction().to_vec());
    vec![kind(record()), kind(info), kind(dup), txn]
}

fn transaction() -> Bytes {
    let mut txn = store::Transaction::new(7);
    txn.write(&object().to_key(), 0, blob());
    txn.remove(&object().to_key());
    let (mut meta, mut data) = (denc::Encoder::new(), smallvec::SmallVec::<[Bytes; 4]>::new());
    txn.encode_to(&mut meta, &mut data);
    meta.into_bytes()
}

fn decode_txn(bytes: &[u8]) -> bool {
    let meta = Bytes::copy_from_slice(bytes);
    store::Transaction::decode_from(&meta, (&blob(), denc::KnownCrc::NONE)).is_ok()
}

fn kinds() -> Vec<Kind> {
    [to_the_mon(), between_osds(), scrubs(), peering(), records()].into_iter().flatten().collect()
}

pub fn samples() -> Vec<Vec<u8>> {
    let tagged = |(i, k): (usize, Kind)| [&[i as u8][..], &k.1].concat();
    kinds().into_iter().enumerate().map(tagged).collect()
}

pub fn feed(bytes: &[u8]) -> bool {
    thread_local! {
        static FEEDS: Vec<Feed> = kinds().into_iter().map(|k| k.0).collect();
    }
    let Some((which, rest)) = bytes.split_first() else { return false };
    FEEDS.with(|all| all[usize::from(*which) % all.len()](rest))
}

pub fn key_samples() -> Vec<Vec<u8>> {
    let snapped = HObject { snap: types::SnapId(4), ..object() };
    [object(), snapped, HObject::min(), HObject::max()]
        .iter()
        .map(|o| o.to_key().as_bytes().to_vec())
        .collect()
}

// ---- what people and tools type ----

pub fn command_samples() -> Vec<Vec<u8>> {
    [
        r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"yes":true,"format":"json"}"#,
        r#"{"prefix":"osd out","ids":["0","osd.1","any"],"target":["mon",""]}"#,
        r#"{"prefix":"config set","who":"osd.0","name":"x","value":"1.5","force":false}"#,
        r#"{"prefix":"pg map","pgid":"1.2a"}"#,
        "{\"prefix\":\"perf dump\"}\0",
        "status\n",
    ]
    .iter()
    .map(|s| s.as_bytes().to_vec())
    .collect()
}

const COMMANDS: [&str; 4] = [
    "osd pool create <pool:Poolname> [pg_num:Int,0] [yes:Bool]",
    "osd out <ids:String>...",
    "config set <who:String> <name:String> <value:String> [force:Bool]",
    "pg map <pgid:Pgid>",
];

pub fn command(bytes: &[u8]) -> bool {
    thread_local! {
        static TABLE: CommandTable<()> =
            CommandTable::new(COMMANDS.map(|sig| Def::write(sig, "mon", "", ())));
    }
    let on_socket = on_admin_socket(bytes);
    let text = String::from_utf8_lossy(bytes);
    TABLE.with(|t| match t.parse(&text) {
        Err(_) => on_socket,
        Ok((_, args)) => {
            let _ = (args.osds("ids"), args.pgid("pgid"), args.int("pg_num"), args.flag("yes"));
            let _ = (args.text("value"), args.format(), args.floats("value"), args.addr("who"));
            true
        }
    })
}

/// Sends bytes to an admin socket. Whether they became a request.
fn on_admin_socket(bytes: &[u8]) -> bool {
    let (listen, conn) = (ListenId(1), ConnId(1));
    let mut server = AdminServer::new(listen, "socket".into());
    let (now, mut fx, mut out) = (Now::default(), Effects::new(), Vec::new());
    let accepted = NetEvent::Accepted { listen, conn, peer: PeerAddr::Unix };
    server.handle(now, accepted, &mut fx, &mut out);
    let data = Bytes::copy_from_slice(bytes);
    server.handle(now, NetEvent::Received { conn, data }, &mut fx, &mut out);
    !out.is_empty()
}

pub fn conf_samples() -> Vec<Vec<u8>> {
    [
        "[global]\nfsid = 11111111-2222-3333-4444-5555deadbeef\nmon host = [v2:127.0.0.1:3300]\n",
        "mon_host=1.2.3.4, [::1]:3300 [v1:10.0.0.1:6789,v2:10.0.0.1:3300/0] # x\n[osd]\nx = y\n",
        "1.5TiB",
        "64K",
        "3.1f",
        "11111111-2222-3333-4444-5555deadbeef",
    ]
    .iter()
    .map(|s| s.as_bytes().to_vec())
    .collect()
}
