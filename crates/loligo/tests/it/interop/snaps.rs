//! Pool snapshots through the real `rados`.

use super::cluster::{Pool, pattern, shared};

/// An object at a snapshot; `None` when it was not there, or there is no such snapshot.
fn at(pool: &Pool, snap: &str, name: &str) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("then");
    let ran = pool.rados().args(["-s", snap, "get", name]).arg(&file).run();
    if ran.status.success() {
        return Some(std::fs::read(&file).unwrap());
    }
    assert!(ran.err.contains("No such file or directory"), "{ran:?}");
    None
}

#[test]
fn a_snapshot_keeps_what_was_and_rollback_brings_it_back() {
    let pool = shared().pool("snaps");
    let old = pattern(200_000, 1);
    pool.put("x", &old);
    pool.ok("setxattr x k old");
    pool.put("deleted", b"was here");
    pool.ok("mksnap before");
    assert!(pool.ok("lssnap").contains("before"));
    let new = pattern(90_000, 2);
    pool.put("x", &new);
    pool.ok("setxattr x k new");
    pool.ok("rm deleted");
    pool.put("later", b"new object");
    assert!(at(&pool, "before", "x") == Some(old.clone()));
    assert_eq!(at(&pool, "before", "deleted"), Some(b"was here".to_vec()));
    assert_eq!(at(&pool, "before", "later"), None);
    assert!(pool.get("x") == new);

    let listed = pool.ok("listsnaps x");
    let rows: Vec<Vec<&str>> = listed.lines().map(|l| l.split('\t').collect()).collect();
    assert_eq!(rows[2..], [vec!["1", "1", "200000", "[]"], vec!["head", "-", "90000"]], "{listed}");
    pool.ok("rollback x before");
    assert!(pool.get("x") == old);
    assert_eq!(pool.ok("getxattr x k"), "old");
    pool.ok("rollback deleted before");
    assert_eq!(pool.get("deleted"), b"was here");
    pool.ok("rmsnap before");
    assert!(!pool.ok("lssnap").contains("before"));
    assert_eq!(at(&pool, "before", "x"), None);
    assert!(pool.get("x") == old);
}

#[test]
fn several_snapshots_each_see_their_own_time() {
    let pool = shared().pool("snaps-many");
    for i in 0..5u8 {
        pool.put("x", &pattern(50_000 + usize::from(i) * 1000, i));
        if i % 2 == 0 {
            pool.put(&format!("only-{i}"), b"x");
        }
        pool.ok(&format!("mksnap s{i}"));
    }
    pool.put("x", b"now");
    for i in 0..5u8 {
        let then = Some(pattern(50_000 + usize::from(i) * 1000, i));
        assert!(at(&pool, &format!("s{i}"), "x") == then, "s{i}");
    }
    pool.ok("rmsnap s2");
    for i in [0u8, 1, 3, 4] {
        let then = Some(pattern(50_000 + usize::from(i) * 1000, i));
        assert!(at(&pool, &format!("s{i}"), "x") == then, "s{i} after rmsnap");
    }
    let err = pool.rados().args(["mksnap", "s1"]).fails(1);
    assert!(err.contains("File exists"), "{err}");
}
