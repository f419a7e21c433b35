//! Versions of an object share their data on a copy that is brought them, as where they were made.

use crate::admin::ask;
use crate::basic::{read, write_full};
use crate::client::object;
use crate::cluster::{Cluster, Options, output};
use crate::scrub::scrub;
use std::time::Duration;
use types::testing::{Bug, Probe, hits_of, plant, take_hits};
use types::{HObject, OsdId, PoolId, SnapId};
use wire::msg::op::{Extent, OpCode};
use wire::msg::op_data::xattr_op;
use wire::msg::{OsdOp, SnapContext};

const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;
const BLOCKS: usize = 200;
const BYTES: u64 = (BLOCKS * BLOCK) as u64;
/// Blocks that are written after each snapshot.
const CHANGED: usize = 5;

/// An object under snapshots, and what each of them must show.
struct Image {
    target: HObject,
    snaps: Vec<SnapId>,
    now: Vec<u8>,
    then: Vec<(SnapId, Vec<u8>)>,
}

impl Image {
    /// One in a pool of so many copies, with one PG.
    fn new(c: &mut Cluster, copies: u8, name: &str) -> Self {
        c.on_mon(|m| m.create_pool(1, "rbd", copies, 1, 1));
        c.wait_clean();
        let mut now = vec![0; BYTES as usize];
        let fill = |(i, block): (usize, &mut [u8])| block.fill(i as u8 + 1);
        now.chunks_mut(BLOCK).enumerate().for_each(fill);
        let image = Image { target: object(1, name), snaps: Vec::new(), now, then: Vec::new() };
        image.write(c, write_full(&image.now));
        image
    }

    fn write(&self, c: &mut Cluster, op: OsdOp) {
        let seq = self.snaps.first().copied().unwrap_or_default();
        let snapc = SnapContext { seq, snaps: self.snaps.clone().into() };
        assert_eq!(c.write_under(self.target.clone(), vec![op], snapc, 0).result, 0);
    }

    fn put(&mut self, c: &mut Cluster, offset: usize, data: &[u8]) {
        self.now[offset..][..data.len()].copy_from_slice(data);
        let args = Extent { offset: offset as u64, length: data.len() as u64, ..Extent::default() };
        self.write(c, OsdOp::new(OpCode::WRITE, args).with_indata(data.to_vec()));
    }

    fn snap(&mut self) -> SnapId {
        let id = SnapId(self.snaps.len() as u64 + 1);
        self.snaps.insert(0, id);
        self.then.push((id, self.now.clone()));
        id
    }

    /// Takes a snapshot, and changes some blocks, of which one is a part and one becomes a hole.
    fn take_snap(&mut self, c: &mut Cluster) {
        let id = self.snap();
        for i in 0..CHANGED {
            let block = (id.0 as usize * 31 + i * 17) % BLOCKS;
            self.put(c, block * BLOCK, &[200 + id.0 as u8; BLOCK]);
        }
        let at = (id.0 as usize * 43) % BLOCKS * BLOCK;
        self.put(c, at + 100, b"a part of a block");
        let hole = (id.0 as usize * 59) % BLOCKS * BLOCK;
        self.now[hole..][..BLOCK].fill(0);
        let args = Extent { offset: hole as u64, length: BLOCK as u64, ..Extent::default() };
        self.write(c, OsdOp::new(OpCode::ZERO, args));
    }

    #[track_caller]
    fn check(&self, c: &mut Cluster) {
        for (snap, then) in self.then.iter().chain([&(SnapId::HEAD, self.now.clone())]) {
            let got =
                c.call(HObject { snap: *snap, ..self.target.clone() }, vec![read(0, 0)], false);
            assert_eq!(got.result, 0);
            assert!(output(&got, 0) == *then, "snapshot {snap} shows something else");
        }
    }

    /// What `osd` alone has is right.
    #[track_caller]
    fn check_on(&self, c: &mut Cluster, osd: usize) {
        for other in (0..c.osds.len()).filter(|o| *o != osd) {
            stop(c, other);
        }
        c.run_until(PATIENCE, |c| c.client.borrow().primary_of(&self.target) == OsdId(osd as i32));
        self.check(c);
    }

    fn assert_no_errors(&self, c: &mut Cluster) {
        let pgid = c.mon.borrow().stats.keys().copied().next().expect("a PG");
        let record = scrub(c, pgid, true, false);
        assert_eq!(record.errors(), 0, "{record:?}");
    }

    /// OSDs that have it, and one that does not.
    fn places(&self, c: &Cluster) -> (Vec<usize>, Option<usize>) {
        let pgid = c.mon.borrow().stats.keys().copied().next().expect("a PG");
        let acting = c.mon.borrow().map.pg_to_up_acting(pgid).acting;
        let holders: Vec<_> = acting.iter().map(|osd| osd.0 as usize).collect();
        let other = (0..c.osds.len()).find(|osd| !holders.contains(osd));
        (holders, other)
    }
}

fn stop(c: &mut Cluster, osd: usize) {
    c.off[osd] = true;
    let node = c.osds[osd];
    c.world.stop(node);
    c.run_until(PATIENCE, |c| {
        c.world.exit_of(node).is_some() && !c.client.borrow().map.is_up(OsdId(osd as i32))
    });
}

/// What data takes on an OSD.
fn data_bytes(c: &mut Cluster, osd: usize) -> u64 {
    ask(c, osd as i32, "store usage")["data_bytes"].as_u64().expect("a number")
}

/// What recovery has sent, or fetched.
fn moved_bytes(c: &Cluster) -> u64 {
    c.mon.borrow().stats.values().map(|s| s.recovered_bytes).sum()
}

/// An OSD that had nothing is filled with an object that has eight snapshots. Each was brought whole before.
#[test]
fn a_filled_copy_takes_no_more_space_than_the_one_it_comes_from() {
    for (seed, chunk) in [(1, "8388608"), (2, "65536")] {
        let mut c = Cluster::new(
            seed,
            3,
            &Options::from([("osd_recovery_max_chunk".into(), chunk.into())]),
        );
        let mut image = Image::new(&mut c, 2, "disk");
        (0..8).for_each(|_| image.take_snap(&mut c));
        let (holders, new) = image.places(&c);
        let new = new.expect("an OSD without it");
        let before = data_bytes(&mut c, holders[0]);
        take_hits();
        c.on_mon(|m| m.set_weight(OsdId(holders[1] as i32), 0));
        c.pass(Duration::from_secs(1));
        c.run_until(PATIENCE, |c| c.mon.borrow().all_clean() && image.places(c).0.contains(&new));
        assert_eq!(hits_of(Probe::SharedSent), 8);
        let after = data_bytes(&mut c, new);
        assert!(after <= before + before / 10, "{after} bytes for {before}");
        c.pass(Duration::from_secs(6));
        let moved = moved_bytes(&c);
        assert!(moved < BYTES * 3 / 2, "{moved} bytes were sent for {BYTES} and a few blocks");
        image.assert_no_errors(&mut c);
        image.check_on(&mut c, new);
    }
}

/// What a copy that was away has of the head is what the first clone shows that was made meanwhile, but for what was
/// written before that.
#[test]
fn a_copy_that_was_away_makes_clones_of_its_head() {
    for seed in 0..4 {
        let mut c = Cluster::new(seed, 3, &Options::new());
        let mut image = Image::new(&mut c, 3, "disk");
        image.take_snap(&mut c);
        let away = image.places(&c).0[seed as usize % 3];
        stop(&mut c, away);
        // The last time it is not known what the head misses: the object has grown.
        if seed < 3 {
            image.put(&mut c, 3 * BLOCK + 7, b"before the clone");
        } else {
            image.now.resize(BYTES as usize + 1000, 0);
            image.put(&mut c, BYTES as usize + 500, &[9; 500]);
        }
        (0..3).for_each(|_| image.take_snap(&mut c));
        take_hits();
        c.start(away);
        c.run_until(PATIENCE, |c| c.mon.borrow().map.is_up(OsdId(away as i32)));
        c.wait_clean();
        // Three clones and the head.
        assert_eq!((seed, hits_of(Probe::SharedSent), hits_of(Probe::WholeWanted)), (seed, 4, 0));
        let other = (0..3).find(|osd| *osd != away).expect("another");
        let (here, there) = (data_bytes(&mut c, away), data_bytes(&mut c, other));
        assert!(here <= there + there / 10, "seed {seed}: {here} bytes for {there}");
        image.assert_no_errors(&mut c);
        c.on_mon(|m| m.set_min_size(1, 1));
        image.check_on(&mut c, away);
    }
}

/// A block that all versions share is damaged, and of one of them that is found. Made of the one before it, it would
/// stay so.
#[test]
fn a_damaged_copy_is_not_made_of_what_it_shares_with_others() {
    for snap in [SnapId(2), SnapId::HEAD] {
        let mut c = Cluster::new(7, 3, &Options::new());
        let mut image = Image::new(&mut c, 3, "disk");
        (0..2).for_each(|_| image.take_snap(&mut c));
        let shared = (0..BLOCKS).find(|b| {
            let at = |data: &[u8]| data[b * BLOCK..][..BLOCK].to_vec();
            image.then.iter().all(|(_, then)| at(then) == at(&image.now))
        });
        let block = shared.expect("a block that is the same in all");
        let node = c.osds[image.places(&c).0[0]];
        assert!(!c.world.disk(node, 0).damage(&[block as u8 + 1; BLOCK]).is_empty());
        take_hits();
        let target = HObject { snap, ..image.target.clone() };
        let got = c.call(target, vec![read((block * BLOCK) as u64, 10)], false);
        assert_eq!((got.result, output(&got, 0)), (0, vec![block as u8 + 1; 10].into()));
        image.check(&mut c);
        assert_eq!(hits_of(Probe::DamageFound), 3, "each version is repaired once");
        c.wait_clean();
        image.assert_no_errors(&mut c);
    }
}

/// A head travels in small parts to a copy that is filled, while clients write to it: to what was sent, to what is to
/// be sent, and to what it shares with its clone, which is not.
#[test]
fn what_is_written_while_an_object_is_on_its_way_comes_too() {
    let mut beside = 0;
    for seed in 0..6 {
        let chunk = ("osd_recovery_max_chunk".into(), "8192".into());
        let mut c = Cluster::new(seed, 3, &Options::from([chunk]));
        let mut image = Image::new(&mut c, 2, "disk");
        (0..2).for_each(|_| image.take_snap(&mut c));
        let (holders, new) = image.places(&c);
        let new = new.expect("an OSD without it");
        take_hits();
        c.on_mon(|m| m.set_weight(OsdId(holders[1] as i32), 0));
        let is_filled = |c: &Cluster, image: &Image| {
            c.mon.borrow().all_clean() && image.places(c).0.contains(&new)
        };
        for i in 0.. {
            let at = (i * 7919 + seed as usize * 61) % (BYTES as usize - 600);
            image.put(&mut c, at, &[i as u8; 600]);
            if is_filled(&c, &image) {
                break;
            }
        }
        assert!(hits_of(Probe::SharedSent) > 0);
        beside += hits_of(Probe::WriteBesidePush);
        image.assert_no_errors(&mut c);
        image.check_on(&mut c, new);
    }
    assert!(beside > 0);
}

/// What an object's record says that its clones have in common is wrong: it says that nothing was ever written. The
/// blocks say otherwise.
#[test]
fn what_is_said_to_be_shared_and_is_not_is_sent() {
    plant(Some(Bug::OverlapTooWide));
    let mut c = Cluster::new(1, 3, &Options::new());
    let mut image = Image::new(&mut c, 2, "disk");
    (0..3).for_each(|_| image.take_snap(&mut c));
    let (holders, new) = image.places(&c);
    let new = new.expect("an OSD without it");
    take_hits();
    c.on_mon(|m| m.set_weight(OsdId(holders[1] as i32), 0));
    c.run_until(PATIENCE, |c| c.mon.borrow().all_clean() && image.places(c).0.contains(&new));
    assert_eq!(hits_of(Probe::SharedSent), 3);
    image.check_on(&mut c, new);
    plant(None);
}

/// A clone serves fewer snapshots than before, while a copy of it is away: that is all that it is brought.
#[test]
fn a_clone_that_was_trimmed_is_not_brought_anew() {
    let mut c = Cluster::new(1, 4, &Options::new());
    let mut image = Image::new(&mut c, 3, "disk");
    image.snap();
    image.take_snap(&mut c);
    let away = image.places(&c).0[1];
    stop(&mut c, away);
    c.on_mon(|m| m.set_weight(OsdId(away as i32), 0));
    c.pass(Duration::from_secs(1));
    c.wait_clean();
    c.on_mon(|m| m.remove_snap(1, SnapId(1)));
    c.pass(Duration::from_secs(1));
    c.wait_trimmed(PoolId(1));
    image.then.remove(0);
    image.snaps.pop();
    c.pass(Duration::from_secs(6));
    let before = moved_bytes(&c);
    take_hits();
    c.start(away);
    c.on_mon(|m| m.set_weight(OsdId(away as i32), 0x10000));
    c.run_until(PATIENCE, |c| c.mon.borrow().all_clean() && image.places(c).0.contains(&away));
    // It and the head, of which the record was changed.
    assert_eq!((hits_of(Probe::ChangesSent), hits_of(Probe::SharedSent)), (2, 0));
    c.pass(Duration::from_secs(6));
    assert_eq!(moved_bytes(&c) - before, 0);
    image.assert_no_errors(&mut c);
    c.on_mon(|m| m.set_min_size(1, 1));
    image.check_on(&mut c, away);
}

const ROTTEN: &str = "an-attribute-of-the-first-clone";

/// Behind the head of the store and its log.
fn has_rotten_attr(at: u64, block: &[u8]) -> bool {
    at > 5 << 20 && block.windows(ROTTEN.len()).any(|w| w == ROTTEN.as_bytes())
}

/// Of one clone nobody knows any more where its blocks are. That is no reason not to send the next one, which shares
/// most of them.
#[test]
fn what_is_wrong_with_one_version_keeps_no_other_from_being_sent() {
    let mut c = Cluster::new(1, 2, &Options::new());
    let mut image = Image::new(&mut c, 2, "disk");
    let (holders, _) = image.places(&c);
    let (source, away) = (holders[0], holders[1]);
    stop(&mut c, away);
    c.on_mon(|m| m.set_min_size(1, 1));
    c.on_mon(|m| m.set_affinity(OsdId(away as i32), 0));
    // Other rows stand around those of the first clone.
    let fill = |i: u8| xattr_op(OpCode::SETXATTR, &[b'b', i], &[b'f'; 1000], 0, 0);
    (0..20).for_each(|i| image.write(&mut c, fill(i)));
    for first_attr in ["before", ROTTEN, "behind", "now"] {
        image.write(&mut c, xattr_op(OpCode::SETXATTR, b"a", first_attr.as_bytes(), 0, 0));
        image.take_snap(&mut c);
    }
    let node = c.osds[source];
    c.off[source] = true;
    c.world.stop(node);
    c.run_until(PATIENCE, |c| c.world.exit_of(node).is_some());
    let mut rng = io::Rng::with_seed(1);
    let rotten = (0..4).filter_map(|_| c.world.disk(node, 0).rot(has_rotten_attr, 0, &mut rng));
    assert!(rotten.count() > 0, "it is somewhere");
    c.start(source);
    c.start(away);
    take_hits();
    c.run_until(PATIENCE, |_| hits_of(Probe::Pushed) >= 3);
    assert!(hits_of(Probe::SentWithoutBase) > 0);
    let of_clone = |snap| HObject { snap: SnapId(snap), ..image.target.clone() };
    let got = c.call(of_clone(3), vec![read(0, 0)], false);
    assert_eq!(got.result, 0);
}
