//! A load with a model: writers that know what was acknowledged, and a check of everything against it.
//!
//! The writers live through whatever happens to the cluster: their requests are sent again when it is
//! back, with the same identity, so an append that had happened must not happen twice.

use super::cluster::{Cluster, pattern};
use client::{ClientError, Object, ObjectOp};
use loligo::SyncClient;
use loligo::conf::ClientConf;
use loligo::wait::Deadline;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;
use types::PoolId;

/// Objects that are written over and over.
const OBJECTS: u64 = 64;
/// Requests of a writer in flight.
const IN_FLIGHT: usize = 8;
/// A request gives up after this: longer than any restart.
pub const PATIENCE: Duration = Duration::from_secs(120);
const LOG: &str = "log";

/// What is known of an object: the newest version acknowledged, and the newest one sent.
#[derive(Clone, Copy, Default)]
struct Known {
    acked: u64,
    sent: u64,
}

type Book = BTreeMap<String, Known>;

/// What writers and checks share.
#[derive(Default)]
pub struct Shared {
    book: Mutex<Book>,
    stop: AtomicBool,
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    fn known(&self, name: &str) -> Known {
        self.book().get(name).copied().unwrap_or_default()
    }

    fn sent(&self, name: &str) -> u64 {
        let mut book = self.book();
        let known = book.entry(name.to_owned()).or_default();
        known.sent += 1;
        known.sent
    }

    fn acked(&self, name: &str, version: u64) {
        let mut book = self.book();
        let known = book.get_mut(name).unwrap();
        known.acked = known.acked.max(version);
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

fn name_of(i: u64) -> String {
    format!("object-{i}")
}

/// Sizes on both sides of every border of the store: part of a block, blocks, big writes.
pub fn content(i: u64, version: u64) -> Vec<u8> {
    const SIZES: [usize; 6] = [1, 4096, 5000, 65_536, 70_001, 400_000];
    let size = SIZES[((i + version) % SIZES.len() as u64) as usize];
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(pattern(size, (i * 31 + version) as u8));
    bytes
}

/// Replaces objects, several at a time, each with at most one request in flight.
fn write_over(client: &mut SyncClient, pool: PoolId, shared: &Shared) -> Result<(), ClientError> {
    let mut waiting = Vec::new();
    let mut next = 0;
    while !shared.stopped() || !waiting.is_empty() {
        if waiting.len() == IN_FLIGHT || shared.stopped() {
            let (id, name, version): (_, String, u64) = waiting.remove(0);
            match client.wait(id).expect("the client runs") {
                client::Outcome::Op(result) => drop(result?),
                other => panic!("{other:?}"),
            }
            shared.acked(&name, version);
            continue;
        }
        let i = next % OBJECTS;
        next += 1;
        let name = name_of(i);
        let version = shared.sent(&name);
        let object = Object::new(pool, name.as_str());
        let op = ObjectOp::new(object).write_full(content(i, version));
        waiting.push((client.submit(op).expect("the client runs"), name, version));
    }
    Ok(())
}

/// Appends numbers to one object, one after the other.
fn append(client: &mut SyncClient, pool: PoolId, shared: &Shared) -> Result<(), ClientError> {
    while !shared.stopped() {
        let number = shared.sent(LOG);
        let op = ObjectOp::new(Object::new(pool, LOG)).append(number.to_le_bytes().to_vec());
        client.op(op)?;
        shared.acked(LOG, number);
    }
    Ok(())
}

/// Reads everything, and compares it with what may be there.
pub fn check(client: &mut SyncClient, pool: PoolId, shared: &Shared) {
    for i in 0..OBJECTS {
        let name = name_of(i);
        let least = shared.known(&name).acked;
        if least == 0 {
            continue;
        }
        let bytes = client.get(Object::new(pool, name.as_str())).unwrap();
        let most = shared.known(&name).sent;
        let version = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        assert!((least..=most).contains(&version), "{name}: {version} not in {least}..={most}");
        assert!(bytes == content(i, version), "{name}, version {version}, has other bytes");
    }
    let least = shared.known(LOG).acked;
    if least == 0 {
        return;
    }
    let bytes = client.get(Object::new(pool, LOG)).unwrap();
    let most = shared.known(LOG).sent;
    let numbers = bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap()));
    let numbers: Vec<u64> = numbers.collect();
    let last = numbers.len() as u64;
    assert_eq!(bytes.len() % 8, 0);
    assert!((least..=most).contains(&last), "{last} appends, not {least}..={most}");
    let in_order = numbers.iter().zip(1..).all(|(n, wanted)| *n == wanted);
    assert!(in_order, "an append is lost, twice or out of order: {numbers:?}");
}

impl Shared {
    /// Writes acknowledged.
    pub fn acked_writes(&self) -> u64 {
        self.book().values().map(|k| k.acked).sum()
    }

    /// Whether everything was answered.
    pub fn is_settled(&self) -> bool {
        self.book().values().all(|k| k.acked == k.sent)
    }
}

/// Ends the writers, also when a check fails: nobody would end them then.
pub struct StopAtEnd<'a>(pub &'a Shared);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

pub fn wait_for_progress(shared: &Shared) {
    let before = shared.acked_writes();
    let moves = || shared.acked_writes() > before + 200;
    let moves = Deadline::after(PATIENCE).until(Duration::from_millis(10), moves);
    assert!(moves, "the writers do not get on: {} acknowledged", shared.acked_writes());
}

pub fn client_of(c: &Cluster) -> SyncClient {
    SyncClient::connect(&ClientConf::load(c.conf()).unwrap(), PATIENCE).unwrap()
}

/// The writers, each with a client of its own.
pub struct Writers<'s>([ScopedJoinHandle<'s, Result<(), ClientError>>; 2]);

impl<'s> Writers<'s> {
    pub fn start(scope: &'s Scope<'s, '_>, c: &Cluster, pool: PoolId, shared: &'s Shared) -> Self {
        let writers: [fn(&mut SyncClient, PoolId, &Shared) -> _; 2] = [write_over, append];
        Writers(writers.map(|write| {
            let mut client = client_of(c);
            scope.spawn(move || {
                let ended = write(&mut client, pool, shared);
                if let Err(e) = &ended {
                    eprintln!("a writer ended: {e}");
                }
                ended
            })
        }))
    }

    /// They end without an error.
    pub fn join(self) {
        self.0.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
    }
}

/// Does `deeds` while the writers are at work; then everything must be there, and the stores whole.
pub fn under_load(c: &Cluster, deeds: impl FnOnce(&mut SyncClient, PoolId, &Shared)) {
    let mut reader = client_of(c);
    let pool = reader.pool("rbd").unwrap();
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let writers = Writers::start(scope, c, pool, &shared);
        let stop = StopAtEnd(&shared);
        deeds(&mut reader, pool, &shared);
        drop(stop);
        writers.join();
    });
    check(&mut reader, pool, &shared);
    assert!(shared.is_settled(), "everything was answered");
    eprintln!("{} writes acknowledged", shared.acked_writes());
    reader.close().unwrap();
    c.wait_until_clean(PATIENCE);
    c.stop_and_check_stores();
}
