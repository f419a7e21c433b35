//! What every cluster store must do, run on all of them.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use io::kv::{ClusterStore, KvAnswer, KvBatch, KvOp, KvToken, KvVersion};
use kv::{Embedded, Memory, Unusable};

fn ask(store: &mut dyn ClusterStore, op: KvOp) -> KvAnswer {
    store.submit(KvToken(7), op);
    let done = store.poll().expect("these stores answer at once");
    assert_eq!(done.token, KvToken(7));
    assert!(store.poll().is_none());
    done.result.unwrap()
}

fn commit(store: &mut dyn ClusterStore, from: u64, changes: &[(&str, Option<&str>)]) -> KvAnswer {
    let mut batch = KvBatch::default();
    for (k, v) in changes {
        match v {
            Some(v) => batch.put(k.as_bytes().to_vec(), v.as_bytes().to_vec()),
            None => batch.remove(k.as_bytes().to_vec()),
        }
    }
    ask(store, KvOp::Commit { from: KvVersion(from), batch })
}

fn scan(
    store: &mut dyn ClusterStore,
    from: &'static str,
    to: &'static str,
    max: usize,
) -> Vec<String> {
    let (from, to) = (Bytes::from_static(from.as_bytes()), Bytes::from_static(to.as_bytes()));
    match ask(store, KvOp::Scan { from, to, max }) {
        KvAnswer::Pairs(pairs, _) => {
            let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
            pairs.iter().map(|(k, v)| format!("{}={}", text(k), text(v))).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn conforms(store: &mut dyn ClusterStore) {
    assert_eq!(scan(store, "", "z", 10), Vec::<String>::new());
    let first = commit(store, 0, &[("b", Some("2")), ("a", Some("1")), ("a", Some("one"))]);
    assert_eq!(first, KvAnswer::Committed(KvVersion(1)));
    assert_eq!(scan(store, "", "z", 10), ["a=one", "b=2"]);
    // Made from an old version: refused, and nothing is changed.
    assert_eq!(commit(store, 0, &[("a", None)]), KvAnswer::Conflict(KvVersion(1)));
    assert_eq!(scan(store, "a", "b", 10), ["a=one"]);
    let second = commit(store, 1, &[("a", None), ("missing", None), ("c", Some(""))]);
    assert_eq!(second, KvAnswer::Committed(KvVersion(2)));
    assert_eq!(scan(store, "", "z", 10), ["b=2", "c="]);
    assert_eq!(scan(store, "", "z", 1), ["b=2"]);
    assert_eq!(scan(store, "z", "a", 10), Vec::<String>::new());
    let get = |key: &'static str| KvOp::Get { key: Bytes::from_static(key.as_bytes()) };
    assert_eq!(ask(store, get("c")), KvAnswer::Value(Some(Bytes::new())));
    assert_eq!(ask(store, get("a")), KvAnswer::Value(None));
}

#[test]
fn memory_conforms() {
    conforms(&mut Memory::default());
}

#[test]
fn embedded_conforms_and_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mon.redb");
    let mut store = Embedded::open(&path).unwrap();
    conforms(&mut store);
    let err = Embedded::open(&path).err().expect("one process at a time");
    assert_eq!(err.kind, Unusable::InUse);
    assert!(err.to_string().contains("in use by another process"), "{err}");
    drop(store);
    let mut again = Embedded::open(&path).unwrap();
    let KvAnswer::Space(Some(space)) = ask(&mut again, KvOp::Space) else { panic!("no room") };
    assert_eq!(space.store_bytes, std::fs::metadata(&path).unwrap().len());
    let (available, all) = (space.available_bytes, space.disk_bytes);
    assert!(available > 0 && available <= all && space.store_bytes <= all, "{space:?}");
    assert_eq!(scan(&mut again, "", "z", 10), ["b=2", "c="]);
    assert_eq!(commit(&mut again, 2, &[]), KvAnswer::Committed(KvVersion(3)));
}

#[test]
fn a_file_that_is_something_else_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mon.redb");
    std::fs::write(&path, "these are not the pages you are looking for").unwrap();
    let err = Embedded::open(&path).err().expect("it is no store");
    assert_eq!(err.kind, Unusable::Damaged, "{err}");
    assert_eq!(std::fs::read(&path).unwrap().len(), 43);
    let err = Embedded::open(&path.join("store")).err().expect("it is in no folder");
    assert_eq!(err.kind, Unusable::Other, "{err}");
}

#[test]
fn random_commits_equal_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Embedded::open(&dir.path().join("mon.redb")).unwrap();
    let mut model = Memory::default();
    let mut rng = fastrand::Rng::with_seed(7);
    for version in 0..60 {
        let mut batch = KvBatch::default();
        for _ in 0..rng.usize(..8) {
            let key = vec![rng.u8(..6), rng.u8(..6)];
            if rng.bool() { batch.put(key, vec![rng.u8(..)]) } else { batch.remove(key) }
        }
        let op = KvOp::Commit { from: KvVersion(version), batch };
        assert_eq!(ask(&mut store, op.clone()), ask(&mut model, op));
        let all = KvOp::Scan { from: Bytes::new(), to: Bytes::from_static(&[255]), max: 999 };
        assert_eq!(ask(&mut store, all.clone()), ask(&mut model, all));
    }
}
