//! Random requests on images against a model of bytes, while OSDs crash and clients die.
//!
//! Requests in flight together do not overlap, so the model knows what each byte must be. At the end
//! every image is read whole, at its head and at every snapshot, and its object map is compared with
//! the objects there are.
//!
//! `IMAGE_FIRST=n IMAGE_SEEDS=m` runs other seeds, `IMAGE_SAY=1` tells what is done.

use super::cluster::{Cluster, PATIENCE};
use bytes::Bytes;
use client::image::{
    Change, CloneFormat, CloneImage, CreateImage, ImageId, ImageOutcome, ImageRequest, OpenImage,
    SnapKind, SnapShown, feature,
};
use client::{Object, ObjectOp};
use io::Rng;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use types::PoolId;

const MAX_BYTES: u64 = 200_000;
const MAX_IMAGES: usize = 4;

/// What an image must be like.
struct Model {
    name: String,
    handle: ImageId,
    order: u8,
    data_pool: PoolId,
    bytes: Vec<u8>,
    snaps: BTreeMap<String, Vec<u8>>,
    /// Name and snapshot of the image that it is a clone of.
    parent: Option<(String, String)>,
    format: CloneFormat,
}

enum Expected {
    Read(Vec<u8>, u64),
    Done,
}

struct Fsx {
    c: Cluster,
    rng: Rng,
    images: Vec<Model>,
    made: u32,
    loud: bool,
    restless: bool,
    /// A client died in the middle of a change: object maps may say of more objects that they exist.
    died_amid: bool,
}

impl Fsx {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut c = Cluster::new(seed, rng.usize(2..=3), 2);
        // PGs that only one OSD has got so far go with it.
        c.wait(PATIENCE, |c| {
            let stat = c.command(0, r#"{"prefix":"pg stat"}"#.to_owned());
            stat.starts_with(b"16 pgs: 16 active+clean;").then_some(())
        });
        let restless = rng.bool();
        if rng.bool() {
            let break_ppm = rng.u32(0..1000);
            c.world.set_faults(sim::Faults {
                break_ppm,
                slow_disk_ppm: 1000,
                ..sim::Faults::default()
            });
        }
        let loud = std::env::var_os("IMAGE_SAY").is_some();
        let mut fsx = Fsx { c, rng, images: Vec::new(), made: 0, loud, restless, died_amid: false };
        fsx.make();
        fsx
    }

    fn say(&self, what: fmt::Arguments<'_>) {
        if self.loud {
            eprintln!("{:?} {what}", self.c.world.now());
        }
    }

    /// A spec with random features and stripes.
    fn spec(&mut self) -> CreateImage {
        self.made += 1;
        let size = self.rng.u64(0..MAX_BYTES);
        let order = self.rng.u8(12..=15);
        let (lock, map) = (feature::EXCLUSIVE_LOCK, feature::OBJECT_MAP);
        let features = match self.rng.u8(0..5) {
            0 => feature::LAYERING,
            1 => feature::LAYERING | lock,
            2 => feature::LAYERING | lock | map | feature::FAST_DIFF,
            _ => feature::DEFAULT,
        };
        let mut spec = CreateImage::new(self.c.pool, &format!("i{}", self.made), size);
        (spec.order, spec.features) = (order, features);
        if self.rng.u8(0..3) == 0 {
            spec.stripe_unit = Some(1 << self.rng.u8(9..=order));
            spec.stripe_count = Some(self.rng.u64(1..6));
        }
        if self.rng.u8(0..3) == 0 {
            spec.data_pool = Some(self.c.data_pool);
        }
        spec
    }

    fn make(&mut self) {
        let spec = self.spec();
        self.say(format_args!("make {spec:?}"));
        let handle = self.c.made(0, spec.clone());
        self.images.push(Model {
            name: spec.name,
            handle,
            order: spec.order,
            data_pool: spec.data_pool.unwrap_or(spec.pool),
            bytes: vec![0; spec.size as usize],
            snaps: BTreeMap::new(),
            parent: None,
            format: CloneFormat::V2,
        });
    }

    /// Some requests that do not overlap, at once.
    fn load(&mut self) {
        let mut running: Vec<(ImageRequest, String, Expected)> = Vec::new();
        for i in 0..self.images.len() {
            let size = self.images[i].bytes.len() as u64;
            let mut at = self.rng.u64(0..=size);
            while at < size && self.rng.u8(0..8) > 0 {
                let whole = 1u64 << self.images[i].order;
                let most = [1, 600, whole, 4 * whole][self.rng.usize(0..4)];
                if self.rng.u8(0..4) == 0 {
                    // Along an object.
                    at = at.next_multiple_of(whole).min(size);
                }
                let len = self.rng.u64(0..=most).min(size - at);
                let len = if self.rng.u8(0..4) == 0 { whole.min(size - at) } else { len };
                if len > 0 {
                    running.push(self.request(i, at, len));
                }
                at += len + self.rng.u64(0..=whole / 2);
            }
        }
        for (id, what, expected) in running {
            self.check(id, &what, expected);
        }
    }

    fn request(&mut self, i: usize, at: u64, len: u64) -> (ImageRequest, String, Expected) {
        let kind = self.rng.u8(0..10);
        let image = &mut self.images[i];
        let range = at as usize..(at + len) as usize;
        let handle = image.handle;
        let verb = match kind {
            0..=2 => "read",
            3..=4 => "discard",
            _ => "write",
        };
        let what = format!("{verb} {at}+{len} of {}", image.name);
        let (id, expected) = match verb {
            "read" => {
                let expected = image.bytes[range].to_vec();
                let id = self.c.act(0, |now, h| h.images.read(now, &mut h.client, handle, at, len));
                (id, Expected::Read(expected, at))
            }
            "discard" => {
                image.bytes[range].fill(0);
                let id =
                    self.c.act(0, |now, h| h.images.discard(now, &mut h.client, handle, at, len));
                (id, Expected::Done)
            }
            _ => {
                let mark = self.rng.u8(..);
                let fill = |n: usize| (n as u8).wrapping_mul(7).wrapping_add(mark);
                let data: Vec<u8> = range.clone().map(fill).collect();
                image.bytes[range].copy_from_slice(&data);
                let data = Bytes::from(data);
                let id =
                    self.c.act(0, |now, h| h.images.write(now, &mut h.client, handle, at, data));
                (id, Expected::Done)
            }
        };
        self.say(format_args!("{what}"));
        (id.expect("there is room"), what, expected)
    }

    fn check(&mut self, id: ImageRequest, what: &str, expected: Expected) {
        match (self.c.end(0, id), expected) {
            (ImageOutcome::Read(got), Expected::Read(bytes, at)) => {
                let got = got.unwrap_or_else(|e| panic!("{what}: {e}")).into_bytes();
                same(&got, &bytes, at, what);
            }
            (ImageOutcome::Done(result), Expected::Done) => {
                result.unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            (other, _) => panic!("{what}: {other:?}"),
        }
    }

    fn change(&mut self, i: usize, change: Change) {
        let (name, handle) = (self.images[i].name.clone(), self.images[i].handle);
        self.say(format_args!("{change:?} of {name}"));
        let result = match self.rng.u8(0..4) {
            // Another client wants it: whoever holds the lock does it, or lets it go.
            0 => {
                let spec = OpenImage::new(self.c.pool, &name);
                let handle = self.c.open(1, spec).expect("it opens");
                let result = self.c.change(1, handle, change.clone());
                self.c.close(1, handle);
                result
            }
            _ => self.c.change(0, handle, change.clone()),
        };
        result.unwrap_or_else(|e| panic!("{change:?} of {name}: {e}"));
    }

    /// Something with an image as a whole.
    fn maintain(&mut self) {
        let i = self.rng.usize(0..self.images.len());
        match self.rng.u8(0..14) {
            0..=2 => self.resize(i),
            3..=4 => self.snapshot(i),
            5 => self.rollback(i),
            6 => self.remove_snapshot(i),
            7 => self.make_clone(i),
            8 => self.flatten(i),
            9 => self.reopen(i),
            10 => {
                if self.images.len() < MAX_IMAGES {
                    self.make();
                }
            }
            11 => self.die(),
            _ => self.die_amid(i),
        }
    }

    fn resize(&mut self, i: usize) {
        let size = self.rng.u64(0..MAX_BYTES);
        self.change(i, Change::Resize { size, allow_shrink: true });
        self.images[i].bytes.resize(size as usize, 0);
    }

    fn snapshot(&mut self, i: usize) {
        self.made += 1;
        let name = format!("s{}", self.made);
        self.change(i, Change::SnapCreate(name.clone()));
        let bytes = self.images[i].bytes.clone();
        self.images[i].snaps.insert(name, bytes);
    }

    fn some_snap(&mut self, i: usize) -> Option<String> {
        let names: Vec<_> = self.images[i].snaps.keys().cloned().collect();
        (!names.is_empty()).then(|| names[self.rng.usize(0..names.len())].clone())
    }

    fn rollback(&mut self, i: usize) {
        let Some(snap) = self.some_snap(i) else { return };
        self.change(i, Change::SnapRollback(snap.clone()));
        self.images[i].bytes = self.images[i].snaps[&snap].clone();
    }

    fn is_parent(&self, i: usize, snap: &str) -> bool {
        let name = &self.images[i].name;
        let is = |m: &Model| m.parent.as_ref().is_some_and(|(p, s)| p == name && s == snap);
        self.images.iter().any(is)
    }

    fn remove_snapshot(&mut self, i: usize) {
        let Some(snap) = self.some_snap(i) else { return };
        if self.is_parent(i, &snap) {
            return;
        }
        self.change(i, Change::SnapRemove(snap.clone(), SnapKind::User));
        self.images[i].snaps.remove(&snap);
    }

    fn make_clone(&mut self, i: usize) {
        let Some(snap) = self.some_snap(i) else { return };
        if self.images.len() >= MAX_IMAGES {
            return;
        }
        let mut child = self.spec();
        child.features |= feature::LAYERING;
        let format = if self.rng.bool() { CloneFormat::V1 } else { CloneFormat::V2 };
        let name = self.images[i].name.clone();
        let shown = self.c.info(0, self.images[i].handle);
        let protected = shown.snaps.iter().any(|s| s.name == snap && s.is_protected);
        if format == CloneFormat::V1 && !protected {
            self.change(i, Change::SnapProtect(snap.clone()));
        }
        self.say(format_args!("clone {name}@{snap} as {child:?} {format:?}"));
        let parent = OpenImage::new(self.c.pool, &name).at_snap(&snap);
        let spec = CloneImage { parent, child: child.clone(), format };
        let id = self.c.act(0, |now, h| h.images.clone_image(now, &mut h.client, spec));
        let ImageOutcome::Created(result) = self.c.end(0, id) else { panic!("it ends otherwise") };
        result.unwrap_or_else(|e| panic!("clone of {name}@{snap}: {e}"));
        let handle = self.c.open(0, OpenImage::new(self.c.pool, &child.name)).expect("it opens");
        let bytes = self.images[i].snaps[&snap].clone();
        self.images.push(Model {
            name: child.name,
            handle,
            order: child.order,
            data_pool: child.data_pool.unwrap_or(child.pool),
            // Without a byte of the parent there is none.
            parent: (!bytes.is_empty()).then_some((name, snap)),
            bytes,
            snaps: BTreeMap::new(),
            format,
        });
    }

    fn flatten(&mut self, i: usize) {
        if self.c.info(0, self.images[i].handle).overlap == 0 {
            return;
        }
        self.change(i, Change::Flatten);
        self.flattened(i);
    }

    fn flattened(&mut self, i: usize) {
        let info = self.c.info(0, self.images[i].handle);
        let deep = info.features & feature::DEEP_FLATTEN != 0;
        if deep || self.images[i].snaps.is_empty() {
            self.forget_parent(i);
        }
    }

    fn forget_parent(&mut self, i: usize) {
        let Some((parent, snap)) = self.images[i].parent.take() else { return };
        let Some(p) = self.images.iter().position(|m| m.name == parent) else { return };
        let protected = self.images[i].format == CloneFormat::V1;
        let others = |m: &Model| {
            m.parent.as_ref().is_some_and(|(p, s)| (p, s) == (&parent, &snap))
                && m.format == CloneFormat::V1
        };
        if protected && !self.images.iter().any(others) {
            self.change(p, Change::SnapUnprotect(snap));
        }
    }

    fn reopen(&mut self, i: usize) {
        let (name, handle) = (self.images[i].name.clone(), self.images[i].handle);
        self.say(format_args!("reopen {name}"));
        self.c.close(0, handle);
        self.images[i].handle =
            self.c.open(0, OpenImage::new(self.c.pool, &name)).expect("it opens");
    }

    /// The client dies without a word. Its locks are broken by its next life.
    fn die(&mut self) {
        self.say(format_args!("the client dies"));
        self.c.restart_host(0);
        for i in 0..self.images.len() {
            let spec = OpenImage::new(self.c.pool, &self.images[i].name);
            self.images[i].handle = self.c.open(0, spec).expect("it opens");
        }
    }

    /// The client dies in the middle of a change. What is left of it can be done.
    fn die_amid(&mut self, i: usize) {
        let snap = self.some_snap(i);
        let change = match (self.rng.u8(0..5), snap) {
            (0, _) => Change::Resize { size: self.rng.u64(0..MAX_BYTES), allow_shrink: true },
            (1, Some(snap)) => Change::SnapRollback(snap),
            (2, Some(snap)) if !self.is_parent(i, &snap) => {
                Change::SnapRemove(snap, SnapKind::User)
            }
            (3, _) if self.c.info(0, self.images[i].handle).overlap > 0 => Change::Flatten,
            _ => {
                self.made += 1;
                Change::SnapCreate(format!("s{}", self.made))
            }
        };
        let (handle, amid) = (self.images[i].handle, change.clone());
        self.c.act(0, |now, h| h.images.change(now, &mut h.client, handle, amid));
        let wait = Duration::from_micros(self.rng.u64(0..20_000));
        self.say(format_args!("{change:?} of {} for {wait:?}, then", self.images[i].name));
        self.died_amid = true;
        self.c.pass(wait);
        self.die();
        let shown = self.c.info(0, self.images[i].handle);
        match change {
            Change::Resize { size, .. } => {
                self.change(i, change);
                self.images[i].bytes.resize(size as usize, 0);
            }
            Change::SnapRollback(ref snap) => {
                self.images[i].bytes = self.images[i].snaps[snap].clone();
                self.change(i, change);
            }
            Change::SnapRemove(name, _) => {
                self.images[i].snaps.remove(&name);
                // Under another name and kind, if it was on its way.
                let known = |s: &&SnapShown| self.images[i].snaps.contains_key(&s.name);
                if let Some(left) = shown.snaps.iter().find(|s| !known(s)) {
                    let kind = match left.is_trashed {
                        true => SnapKind::Trash(name),
                        false => SnapKind::User,
                    };
                    self.change(i, Change::SnapRemove(left.name.clone(), kind));
                }
            }
            Change::SnapCreate(name) => {
                if shown.snaps.iter().any(|s| s.name == name) {
                    let bytes = self.images[i].bytes.clone();
                    self.images[i].snaps.insert(name, bytes);
                }
            }
            _ if shown.overlap > 0 => self.flatten(i),
            _ => self.flattened(i),
        }
    }

    fn fault(&mut self) {
        let osd = self.rng.usize(0..self.c.osds.len());
        match self.rng.u8(0..4) {
            0 => self.c.crash_osd(osd),
            _ => (0..self.c.osds.len()).for_each(|osd| self.c.start_osd(osd)),
        }
        // A write needs two of three.
        if self.c.off.iter().filter(|off| **off).count() * 2 >= self.c.osds.len() {
            (0..self.c.osds.len()).for_each(|osd| self.c.start_osd(osd));
        }
    }

    fn run(&mut self) {
        for _ in 0..self.rng.u32(10..60) {
            if self.restless {
                self.fault();
            }
            self.load();
            if self.rng.u8(0..3) == 0 {
                self.maintain();
            }
        }
        (0..self.c.osds.len()).for_each(|osd| self.c.start_osd(osd));
        self.verify();
        // The watches of dead clients are over then.
        self.c.pass(Duration::from_secs(60));
        self.remove_all();
    }

    fn verify(&mut self) {
        let existing: BTreeMap<PoolId, Vec<String>> =
            [self.c.pool, self.c.data_pool].into_iter().map(|p| (p, self.c.objects(p))).collect();
        for i in 0..self.images.len() {
            let (name, handle) = (self.images[i].name.clone(), self.images[i].handle);
            let len = self.images[i].bytes.len() as u64;
            assert_eq!(self.c.info(0, handle).size, len, "size of {name}");
            let got = self.c.read(0, handle, 0, len).expect("it is read");
            same(&got, &self.images[i].bytes, 0, &name);
            for (snap, bytes) in self.images[i].snaps.clone() {
                let spec = OpenImage::new(self.c.pool, &name).at_snap(&snap);
                let at = self.c.open(0, spec).expect("it opens");
                let got = self.c.read(0, at, 0, bytes.len() as u64).expect("it is read");
                same(&got, &bytes, 0, &format!("{name}@{snap}"));
                self.c.close(0, at);
            }
            self.check_map(i, &existing);
        }
    }

    /// What the object map calls nonexistent does not exist, and the other way round.
    fn check_map(&mut self, i: usize, existing: &BTreeMap<PoolId, Vec<String>>) {
        let info = self.c.info(0, self.images[i].handle);
        if info.features & feature::OBJECT_MAP == 0 {
            return;
        }
        let name = &self.images[i].name;
        if self.died_amid && info.flags != 0 {
            // It is not trusted, then.
            return;
        }
        assert_eq!(info.flags, 0, "flags of {name}");
        let map = Object::new(self.c.pool, format!("rbd_object_map.{}", info.id));
        let name = name.clone();
        let reply = self.c.op(0, ObjectOp::new(map).call("rbd", "object_map_load", ""));
        let raw = reply.expect("the map is loaded").bytes(0).expect("bytes");
        let count = u64::from_le_bytes(raw[10..18].try_into().expect("8 bytes"));
        let data = &raw[18..];
        for object in 0..count {
            let state = data[object as usize / 4] >> (6 - object % 4 * 2) & 3;
            let data_name = format!("{}.{object:016x}", info.prefix);
            let pool = self.images[i].data_pool;
            // Deleted objects that a snapshot has are listed, too.
            let exists = existing[&pool].contains(&data_name)
                && self.c.op(0, ObjectOp::new(Object::new(pool, data_name)).read(0, 0)).is_ok();
            if self.died_amid {
                assert!(state != 0 || !exists, "object {object} of {name} exists");
                continue;
            }
            assert_ne!(state, 2, "object {object} of {name} is left pending");
            assert_eq!(state != 0, exists, "object {object} of {name}: state {state}");
        }
    }

    fn remove_all(&mut self) {
        // Clones first.
        while let Some(i) = (0..self.images.len()).rev().find(|i| {
            !self
                .images
                .iter()
                .any(|m| m.parent.as_ref().is_some_and(|(p, _)| *p == self.images[*i].name))
        }) {
            for snap in self.images[i].snaps.keys().cloned().collect::<Vec<_>>() {
                let handle = self.images[i].handle;
                let shown = self.c.info(0, handle);
                if shown.snaps.iter().any(|s| s.name == snap && s.is_protected) {
                    self.change(i, Change::SnapUnprotect(snap.clone()));
                }
                self.change(i, Change::SnapRemove(snap.clone(), SnapKind::User));
            }
            let image = self.images.remove(i);
            self.c.close(0, image.handle);
            let spec = OpenImage::new(self.c.pool, &image.name);
            self.c.remove(0, spec).unwrap_or_else(|e| panic!("removing {}: {e}", image.name));
        }
        assert!(self.images.is_empty());
        // What only removed snapshots had is trimmed by and by.
        self.c.wait(PATIENCE, |c| {
            let is_list = |o: &String| ["rbd_directory", "rbd_children"].contains(&&**o);
            let left = c.objects(c.pool).into_iter().filter(|o| !is_list(o)).count();
            (left + c.objects(c.data_pool).len() == 0).then_some(())
        });
    }
}

#[track_caller]
fn same(got: &[u8], expected: &[u8], at: u64, what: &str) {
    if got != expected {
        let first = got.iter().zip(expected).position(|(a, b)| a != b);
        let place = first.map(|i| (i as u64 + at, got[i], expected[i]));
        panic!("{what}: {} bytes for {}, different at {place:?}", got.len(), expected.len());
    }
}

#[test]
fn images_are_what_was_written_to_them() {
    let number = |name, default| {
        std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok()).unwrap_or(default)
    };
    let first = number("IMAGE_FIRST", 1);
    for seed in first..first + number("IMAGE_SEEDS", 12) {
        eprintln!("seed {seed} (IMAGE_FIRST={seed} IMAGE_SEEDS=1 repeats it)");
        let mut fsx = Fsx::new(seed);
        fsx.c.world.run_for(Duration::from_millis(10));
        fsx.run();
    }
}
