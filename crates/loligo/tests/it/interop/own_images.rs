//! Our own client of block images and librbd on the same images at the same time.
//!
//! A model of bytes says what each must read; who does the next thing is drawn by lot. In the end
//! `rbd export` gives the model, and `rbd object-map check` finds nothing.
//!
//! `LOLIGO_IT_IMAGE_STEPS=5000` makes it long, `LOLIGO_IT_SEED=7` another one.

use super::cluster::{Cluster, Pool, is_foreign, pattern, shared};
use super::tool::Tool;
use client::image::{
    Change, CloneFormat, CloneImage, CreateImage, ImageId, OpenImage, SnapKind, feature,
};
use io::Rng;
use loligo::SyncClient;
use loligo::wait::Deadline;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::PoolId;

const STEPS_ENV: &str = "LOLIGO_IT_IMAGE_STEPS";
const SEED_ENV: &str = "LOLIGO_IT_SEED";
const MAX_BYTES: u64 = 3 << 20;
const MAX_IMAGES: usize = 4;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// librbd in a process of its own.
struct Librbd {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Librbd {
    fn start(cluster: &Cluster, pool: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/interop/own_images.py");
        let mut child = Command::new("/usr/bin/python3")
            .env("CEPH_CONF", cluster.conf())
            .arg(script)
            .arg(pool)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Librbd { child, stdin, stdout }
    }

    /// Does something; its answer, or error.
    fn try_do(&mut self, what: &str, mut ask: Value) -> Result<Value, String> {
        ask["do"] = what.into();
        writeln!(self.stdin, "{ask}").expect("it reads");
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it answers");
        assert!(!line.is_empty(), "librbd's process ended at {ask}");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        match answer.get("error") {
            Some(error) => Err(error.to_string()),
            None => Ok(answer["ok"].clone()),
        }
    }

    #[track_caller]
    fn run(&mut self, what: &str, ask: Value) -> Value {
        let shown = ask.to_string();
        let cut = shown.len().min(200);
        self.try_do(what, ask).unwrap_or_else(|e| panic!("{what} {}: {e}", &shown[..cut]))
    }
}

impl Drop for Librbd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let n = chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = DIGITS[(n >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() { digit as char } else { '=' });
        }
    }
    out
}

fn unbase64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let text = text.trim_end_matches('=').as_bytes();
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.chunks(4) {
        let n = chunk.iter().fold(0u32, |n, c| n << 6 | u32::from(value(*c)));
        let n = n << (6 * (4 - chunk.len()));
        out.extend(&n.to_be_bytes()[1..chunk.len()]);
    }
    out
}

struct Model {
    name: String,
    order: u8,
    bytes: Vec<u8>,
    snaps: BTreeMap<String, Vec<u8>>,
    parent: Option<(String, String)>,
    /// Open in our client.
    ours: Option<ImageId>,
    map: bool,
    rolled_back: bool,
}

struct Game<'a> {
    pool: &'a Pool,
    id: PoolId,
    client: SyncClient,
    librbd: Librbd,
    rng: Rng,
    images: Vec<Model>,
    made: u32,
    loud: bool,
}

impl<'a> Game<'a> {
    fn new(pool: &'a Pool, seed: u64) -> Self {
        let mut client = pool.cluster.client();
        let id = client.pool(&pool.name).unwrap();
        let librbd = Librbd::start(pool.cluster, &pool.name);
        let loud = std::env::var_os("LOLIGO_IT_SAY").is_some();
        let rng = Rng::with_seed(seed);
        Game { pool, id, client, librbd, rng, images: Vec::new(), made: 0, loud }
    }

    fn say(&self, who: bool, what: &str) {
        if self.loud {
            eprintln!("{}: {what}", if who { "ours" } else { "librbd" });
        }
    }

    /// Our handle of an image, opened if need be.
    fn handle(&mut self, i: usize) -> ImageId {
        if let Some(handle) = self.images[i].ours {
            return handle;
        }
        let spec = OpenImage::new(self.id, &self.images[i].name);
        let handle = self.client.open_image(spec).unwrap();
        self.images[i].ours = Some(handle);
        handle
    }

    fn make(&mut self) {
        self.made += 1;
        let ours = self.rng.bool();
        let mut spec = CreateImage::new(self.id, &format!("i{}", self.made), 0);
        spec.size = self.rng.u64(0..MAX_BYTES);
        spec.order = self.rng.u8(14..=20);
        if self.rng.u8(0..4) == 0 {
            spec.features = feature::LAYERING | feature::EXCLUSIVE_LOCK;
        }
        if self.rng.u8(0..3) == 0 {
            spec.stripe_unit = Some(1 << self.rng.u8(12..=spec.order));
            spec.stripe_count = Some(self.rng.u64(2..6));
        }
        self.say(ours, &format!("{spec:?}"));
        let (name, size, order) = (spec.name.clone(), spec.size, spec.order);
        let map = spec.features & feature::OBJECT_MAP != 0;
        if ours {
            self.client.create_image(spec).unwrap();
        } else {
            let (unit, count) = (spec.stripe_unit, spec.stripe_count);
            let ask = json!({"image": name, "size": size, "order": order, "features": spec.features,
                "stripe_unit": unit, "stripe_count": count});
            self.librbd.run("create", ask);
        }
        let bytes = vec![0; size as usize];
        let (snaps, parent) = (BTreeMap::new(), None);
        self.images.push(Model {
            name,
            order,
            bytes,
            snaps,
            parent,
            ours: None,
            map,
            rolled_back: false,
        });
    }

    fn range(&mut self, i: usize) -> (u64, u64) {
        let size = self.images[i].bytes.len() as u64;
        let whole = 1u64 << self.images[i].order;
        let mut at = self.rng.u64(0..=size);
        if self.rng.u8(0..3) == 0 {
            at = at / whole * whole;
        }
        let most = [512, 5000, whole, 3 * whole][self.rng.usize(0..4)];
        let len = if self.rng.u8(0..4) == 0 { whole } else { self.rng.u64(1..=most) };
        (at, len.min(size - at))
    }

    fn step(&mut self) {
        let i = self.rng.usize(0..self.images.len());
        let ours = self.rng.bool();
        match self.rng.u8(0..40) {
            0..=11 => self.write(i, ours),
            12..=17 => self.discard(i, ours),
            18..=25 => self.read(i, ours),
            26..=27 => self.resize(i, ours),
            28..=30 => self.snapshot(i, ours),
            31 => self.rollback(i, ours),
            32..=33 => self.remove_snapshot(i, ours),
            34 => self.make_clone(i, ours),
            35 => self.flatten(i, ours),
            36..=37 => self.close(i, ours),
            38 => self.read_snapshot(i, ours),
            _ if self.images.len() < MAX_IMAGES => self.make(),
            _ => self.read(i, ours),
        }
    }

    fn write(&mut self, i: usize, ours: bool) {
        let (at, len) = self.range(i);
        if len == 0 {
            return;
        }
        let data = pattern(len as usize, self.rng.u8(..));
        let name = self.images[i].name.clone();
        self.say(ours, &format!("write {at}+{len} of {name}"));
        self.images[i].bytes[at as usize..(at + len) as usize].copy_from_slice(&data);
        if ours {
            let handle = self.handle(i);
            self.client.write_image(handle, at, data).unwrap();
        } else {
            self.librbd.run("write", json!({"image": name, "at": at, "data": base64(&data)}));
        }
    }

    fn discard(&mut self, i: usize, ours: bool) {
        let (at, len) = self.range(i);
        if len == 0 {
            return;
        }
        let name = self.images[i].name.clone();
        self.say(ours, &format!("discard {at}+{len} of {name}"));
        self.images[i].bytes[at as usize..(at + len) as usize].fill(0);
        if ours {
            let handle = self.handle(i);
            self.client.discard_image(handle, at, len).unwrap();
        } else {
            let verb = if self.rng.bool() { "discard" } else { "write_zeroes" };
            self.librbd.run(verb, json!({"image": name, "at": at, "len": len}));
        }
    }

    fn read(&mut self, i: usize, ours: bool) {
        let (at, len) = self.range(i);
        if len == 0 {
            return;
        }
        let name = self.images[i].name.clone();
        self.say(ours, &format!("read {at}+{len} of {name}"));
        let got = if ours {
            let handle = self.handle(i);
            self.client.read_image(handle, at, len).unwrap().into_bytes().to_vec()
        } else {
            let got = self.librbd.run("read", json!({"image": name, "at": at, "len": len}));
            unbase64(got.as_str().unwrap())
        };
        let expected = &self.images[i].bytes[at as usize..(at + len) as usize];
        same(&got, expected, &format!("read {at}+{len} of {name}, ours: {ours}"));
    }

    fn read_snapshot(&mut self, i: usize, ours: bool) {
        let Some(snap) = self.some_snap(i) else { return };
        let name = self.images[i].name.clone();
        let len = self.images[i].snaps[&snap].len() as u64;
        if len == 0 {
            return;
        }
        self.say(ours, &format!("read all of {name}@{snap}"));
        let got = if ours {
            let spec = OpenImage::new(self.id, &name).at_snap(&snap);
            let at = self.client.open_image(spec).unwrap();
            let got = self.client.read_image(at, 0, len).unwrap().into_bytes().to_vec();
            self.client.close_image(at).unwrap();
            got
        } else {
            let ask = json!({"image": name, "snap": snap, "at": 0, "len": len});
            unbase64(self.librbd.run("read", ask).as_str().unwrap())
        };
        same(&got, &self.images[i].snaps[&snap], &format!("{name}@{snap}, ours: {ours}"));
    }

    /// A change of an image as a whole, by whom it may be.
    fn change(&mut self, i: usize, ours: bool, change: Change) {
        let name = self.images[i].name.clone();
        self.say(ours, &format!("{change:?} of {name}"));
        if ours {
            let handle = self.handle(i);
            let result = self.client.change_image(handle, change.clone());
            return result.unwrap_or_else(|e| panic!("{change:?} of {name}: {e}"));
        }
        let (verb, ask) = match change {
            Change::Resize { size, .. } => ("resize", json!({"image": name, "size": size})),
            Change::SnapCreate(s) => ("snap_create", json!({"image": name, "snap": s})),
            Change::SnapRemove(s, _) => ("snap_remove", json!({"image": name, "snap": s})),
            Change::SnapProtect(s) => ("snap_protect", json!({"image": name, "snap": s})),
            Change::SnapUnprotect(s) => ("snap_unprotect", json!({"image": name, "snap": s})),
            Change::SnapRollback(s) => ("snap_rollback", json!({"image": name, "snap": s})),
            Change::Flatten => ("flatten", json!({"image": name})),
            Change::SnapRename(..) => unreachable!("nobody renames"),
        };
        self.librbd.run(verb, ask);
    }

    fn resize(&mut self, i: usize, ours: bool) {
        let size = self.rng.u64(0..MAX_BYTES);
        self.change(i, ours, Change::Resize { size, allow_shrink: true });
        self.images[i].bytes.resize(size as usize, 0);
    }

    fn snapshot(&mut self, i: usize, ours: bool) {
        self.made += 1;
        let name = format!("s{}", self.made);
        self.change(i, ours, Change::SnapCreate(name.clone()));
        let bytes = self.images[i].bytes.clone();
        self.images[i].snaps.insert(name, bytes);
    }

    fn some_snap(&mut self, i: usize) -> Option<String> {
        let names: Vec<_> = self.images[i].snaps.keys().cloned().collect();
        (!names.is_empty()).then(|| names[self.rng.usize(0..names.len())].clone())
    }

    fn rollback(&mut self, i: usize, ours: bool) {
        let Some(snap) = self.some_snap(i) else { return };
        if !ours {
            // For this librbd takes the lock only if nobody has it.
            self.close(i, true);
        }
        self.change(i, ours, Change::SnapRollback(snap.clone()));
        self.images[i].bytes = self.images[i].snaps[&snap].clone();
        self.images[i].rolled_back = true;
    }

    fn has_clones(&self, i: usize, snap: &str) -> bool {
        let name = &self.images[i].name;
        let is = |m: &Model| m.parent.as_ref().is_some_and(|(p, s)| p == name && s == snap);
        self.images.iter().any(is)
    }

    fn is_protected(&mut self, i: usize, snap: &str) -> bool {
        let handle = self.handle(i);
        let mut protected = None;
        // News of what librbd did may be on their way.
        let known =
            Deadline::after(Duration::from_secs(20)).until(Duration::from_millis(2), || {
                let info = self.client.image_info(handle).unwrap();
                let found = info.snaps.iter().find(|s| s.name == snap && !s.is_trashed);
                protected = found.map(|s| s.is_protected);
                protected.is_some()
            });
        assert!(known, "{}@{snap} is not known", self.images[i].name);
        protected == Some(true)
    }

    fn remove_snapshot(&mut self, i: usize, ours: bool) {
        let Some(snap) = self.some_snap(i) else { return };
        if self.has_clones(i, &snap) {
            return;
        }
        if self.is_protected(i, &snap) {
            let other = self.rng.bool();
            self.change(i, other, Change::SnapUnprotect(snap.clone()));
        }
        self.change(i, ours, Change::SnapRemove(snap.clone(), SnapKind::User));
        self.images[i].snaps.remove(&snap);
    }

    fn make_clone(&mut self, i: usize, ours: bool) {
        let Some(snap) = self.some_snap(i) else { return };
        if self.images.len() >= MAX_IMAGES {
            return;
        }
        self.made += 1;
        let format = if self.rng.bool() { CloneFormat::V1 } else { CloneFormat::V2 };
        if format == CloneFormat::V1 && !self.is_protected(i, &snap) {
            let other = self.rng.bool();
            self.change(i, other, Change::SnapProtect(snap.clone()));
        }
        let (parent, name) = (self.images[i].name.clone(), format!("c{}", self.made));
        // librbd takes the parent's stripes over, which must fit.
        let order = self.rng.u8(self.images[i].order..=20);
        self.say(ours, &format!("clone {parent}@{snap} as {name}, order {order}, {format:?}"));
        if ours {
            let child = CreateImage { order, ..CreateImage::new(self.id, &name, 0) };
            let parent = OpenImage::new(self.id, &parent).at_snap(&snap);
            self.client.clone_image(CloneImage { parent, child, format }).unwrap();
        } else {
            // The library from Python does not let one choose the format.
            let number = if format == CloneFormat::V1 { "1" } else { "2" };
            let (size, spec) = (format!("{}B", 1u64 << order), format!("{parent}@{snap}"));
            let clone = self.rbd().args(["clone", "--rbd-default-clone-format", number]);
            let child = format!("{}/{name}", self.pool.name);
            clone.args(["--object-size", &size, &spec, &child]).ok();
        }
        let bytes = self.images[i].snaps[&snap].clone();
        // librbd gives a clone its parent's features.
        let map = if ours { true } else { self.images[i].map };
        self.images.push(Model {
            name,
            order,
            parent: Some((parent, snap)),
            bytes,
            snaps: BTreeMap::new(),
            ours: None,
            map,
            rolled_back: false,
        });
    }

    fn flatten(&mut self, i: usize, ours: bool) {
        let handle = self.handle(i);
        let settled =
            Deadline::after(Duration::from_secs(20)).until(Duration::from_millis(2), || {
                let size = self.client.image_info(handle).unwrap().size;
                size == self.images[i].bytes.len() as u64
            });
        assert!(settled, "news of a size do not arrive");
        let info = self.client.image_info(handle).unwrap();
        if info.parent.is_none() || info.overlap == 0 {
            return;
        }
        self.change(i, ours, Change::Flatten);
        if info.features & feature::DEEP_FLATTEN != 0 || self.images[i].snaps.is_empty() {
            self.images[i].parent = None;
        }
    }

    fn close(&mut self, i: usize, ours: bool) {
        let name = self.images[i].name.clone();
        self.say(ours, &format!("close {name}"));
        if !ours {
            self.librbd.run("close", json!({"image": name}));
        } else if let Some(handle) = self.images[i].ours.take() {
            self.client.close_image(handle).unwrap();
        }
    }

    fn rbd(&self) -> Tool {
        let rbd = Tool::new("rbd").env("CEPH_CONF", self.pool.cluster.conf());
        rbd.args(["-p", &self.pool.name])
    }

    /// The tool finds the object map right.
    fn check_map(&self, spec: &str, rolled_back: bool) {
        // A discard beyond an object's end changes nothing, but librbd notes a change: that is 1
        // for 3.
        // After a rollback the map is the snapshot's, with what was clean then: that is 3 for 1, also
        // when librbd does it all by itself.
        let forgiven = |line: &&str| {
            line.contains("marked as 1, but should be 3")
                || rolled_back && line.contains("marked as 3, but should be 1")
        };
        let check = self.rbd().args(["object-map", "check", "--no-progress", spec]);
        let said = check.args(["--log-to-stderr", "true"]).run();
        assert!(said.status.success(), "{said:?}");
        let errors = said.err.lines().filter(|line| line.contains("object map error"));
        let bad: Vec<&str> = errors.filter(|line| !forgiven(line)).collect();
        assert!(bad.is_empty(), "{spec}: {bad:?}");
    }

    /// Everything is closed, and the tool agrees with the model.
    fn verify(&mut self) {
        for i in 0..self.images.len() {
            self.close(i, true);
            self.close(i, false);
        }
        for image in &self.images {
            let name = &image.name;
            let all = self.rbd().args(["export", "--no-progress", name, "-"]).ok();
            same(&all, &image.bytes, &format!("export of {name}"));
            for (snap, bytes) in &image.snaps {
                let spec = format!("{name}@{snap}");
                let all = self.rbd().args(["export", "--no-progress", &spec, "-"]).ok();
                same(&all, bytes, &format!("export of {spec}"));
            }
            let info = self.rbd().args(["info", "--format", "json", name]).json();
            assert_eq!(info["flags"], json!([]), "{info}");
            if image.map {
                self.check_map(name, image.rolled_back);
                for snap in image.snaps.keys() {
                    self.check_map(&format!("{name}@{snap}"), image.rolled_back);
                }
            }
            self.rbd().args(["diff", name]).ok();
            self.rbd().args(["du", name]).ok();
        }
    }
}

#[track_caller]
fn same(got: &[u8], expected: &[u8], what: &str) {
    if got != expected {
        let first = got.iter().zip(expected).position(|(a, b)| a != b);
        let place = first.map(|i| (i, got[i], expected[i]));
        panic!("{what}: {} bytes for {}, different at {place:?}", got.len(), expected.len());
    }
}

#[test]
fn our_client_and_librbd_share_images() {
    let pool = shared().pool("images-shared");
    let seed = number(SEED_ENV, 1);
    let mut game = Game::new(&pool, seed);
    game.make();
    for _ in 0..number(STEPS_ENV, 250) {
        game.step();
    }
    game.verify();
}

/// Says stop when it goes.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn images_are_whole_while_osds_are_killed() {
    if is_foreign() {
        return;
    }
    static CLUSTER: std::sync::OnceLock<Cluster> = std::sync::OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| Cluster::start(3, "1G"));
    let pool = cluster.pool("images-killed");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let mut victim = 0;
            while !stop.load(Ordering::Relaxed) {
                cluster.kill(&format!("osd.{victim}"));
                cluster.dev("start").ok();
                cluster.wait_until_clean(Duration::from_secs(120));
                victim = (victim + 1) % 3;
            }
        });
        // Also when a step panics: the scope waits for the killer.
        let guard = Stop(&stop);
        let mut game = Game::new(&pool, number(SEED_ENV, 2));
        game.make();
        for _ in 0..number(STEPS_ENV, 250) {
            game.step();
        }
        drop(guard);
        killer.join().unwrap();
        game.verify();
    });
}

/// A lock that one has and the other wants, both ways, and an image that is removed at last.
#[test]
fn the_lock_goes_between_our_client_and_librbd() {
    let pool = shared().pool("images-lock");
    let mut c = pool.cluster.client();
    let id = c.pool(&pool.name).unwrap();
    let mut librbd = Librbd::start(pool.cluster, &pool.name);
    c.create_image(CreateImage { order: 20, ..CreateImage::new(id, "x", 8 << 20) }).unwrap();
    let x = c.open_image(OpenImage::new(id, "x")).unwrap();
    let mut model = vec![0; 8 << 20];
    for round in 0..6usize {
        let data = pattern(100_000, round as u8);
        let at = round * 1_000_000;
        model[at..at + data.len()].copy_from_slice(&data);
        let ours = round % 2 == 0;
        if ours {
            c.write_image(x, at as u64, data).unwrap();
        } else {
            librbd.run("write", json!({"image": "x", "at": at, "data": base64(&data)}));
        }
        assert_eq!(c.image_info(x).unwrap().is_locked, ours);
        if round > 0 {
            assert_eq!(librbd.run("owner", json!({"image": "x"})), json!(!ours));
        }
    }
    // What librbd asks for while we have the lock we do for it, and keep the lock.
    c.write_image(x, 0, pattern(10, 9)).unwrap();
    model[..10].copy_from_slice(&pattern(10, 9));
    librbd.run("snap_create", json!({"image": "x", "snap": "s"}));
    librbd.run("resize", json!({"image": "x", "size": 9 << 20}));
    model.resize(9 << 20, 0);
    assert!(c.image_info(x).unwrap().is_locked, "it was done by us");
    // What we do not do for others they do under the lock.
    let refused = librbd.try_do("snap_create", json!({"image": "x", "snap": "s"}));
    assert!(refused.unwrap_err().contains("exists"));
    let all = c.read_image(x, 0, 9 << 20).unwrap().into_bytes();
    same(&all, &model, "x");
    assert_eq!(librbd.run("size", json!({"image": "x"})), 9 << 20);
    c.change_image(x, Change::SnapRemove("s".into(), SnapKind::User)).unwrap();
    c.close_image(x).unwrap();
    librbd.run("close", json!({"image": "x"}));
    librbd.run("remove", json!({"image": "x"}));
    let left = pool.ls();
    assert!(!left.iter().any(|o| o.contains("rbd_data") || o.contains("rbd_header")), "{left:?}");
}

#[test]
fn ten_tebibytes_with_stripes_in_a_namespace_and_a_data_pool() {
    let pool = shared().pool("images-large");
    let data = shared().pool("images-large-data");
    let mut c = pool.cluster.client();
    let id = c.pool(&pool.name).unwrap();
    let rbd = || Tool::new("rbd").env("CEPH_CONF", pool.cluster.conf());
    let apart = format!("{}/apart", pool.name);
    rbd().args(["namespace", "create", &apart]).ok();
    let mut spec = CreateImage::new(id, "huge", 10 << 40);
    spec.nspace = "apart".into();
    spec.data_pool = Some(c.pool(&data.name).unwrap());
    (spec.stripe_unit, spec.stripe_count) = (Some(65_536), Some(4));
    c.create_image(spec).unwrap();
    let open = || OpenImage::new(id, "huge").in_namespace("apart");
    let huge = c.open_image(open()).unwrap();
    let bytes = pattern(700_000, 3);
    let places = [0, (5 << 40) + 12_345, (10 << 40) - 700_000];
    for at in places {
        c.write_image(huge, at, bytes.clone()).unwrap();
    }
    for at in places {
        assert!(c.read_image(huge, at, 700_000).unwrap().into_bytes() == bytes, "at {at}");
    }
    let hole = c.read_image(huge, 1 << 40, 1 << 20).unwrap();
    assert!(hole.segments().is_empty());
    c.change_image(huge, Change::Resize { size: 1 << 20, allow_shrink: true }).unwrap();
    c.close_image(huge).unwrap();
    let name = format!("{apart}/huge");
    let info = rbd().args(["info", "--format", "json", &name]).json();
    assert_eq!((&info["size"], &info["stripe_count"]), (&json!(1 << 20), &json!(4)), "{info}");
    let mut expected = bytes.clone();
    expected.resize(1 << 20, 0);
    same(&rbd().args(["export", "--no-progress", &name, "-"]).ok(), &expected, "export");
    rbd().args(["object-map", "check", "--no-progress", &name]).ok();
    c.remove_image(open()).unwrap();
    assert_eq!(data.ls(), [""; 0]);
}
