//! Attributes and omap through the real `rados`.

use super::cluster::shared;

#[test]
fn attributes_are_set_listed_and_removed() {
    let pool = shared().pool("xattr");
    pool.put("x", b"data");
    for (key, value) in [("colour", "blue"), ("shape", "round"), ("empty", "")] {
        pool.rados().args(["setxattr", "x", key, value]).ok();
    }
    assert_eq!(pool.ok("getxattr x colour"), "blue");
    let list = pool.ok("listxattr x");
    assert_eq!(list.lines().collect::<Vec<_>>(), ["colour", "empty", "shape"]);
    pool.ok("setxattr x colour red");
    assert_eq!(pool.ok("getxattr x colour"), "red");
    pool.ok("rmxattr x shape");
    let err = pool.rados().args(["getxattr", "x", "shape"]).fails(1);
    assert!(err.contains("No data available"), "{err}");
    assert_eq!(pool.ok("listxattr x").lines().count(), 2);
    let large = "v".repeat(20_000);
    pool.rados().args(["setxattr", "x", "large"]).arg(&large).ok();
    assert_eq!(pool.ok("getxattr x large"), large);
    assert_eq!(pool.get("x"), b"data");
    // An attribute makes the object.
    pool.ok("setxattr new k v");
    assert!(pool.ok("stat new").contains("size 0"));
    // A full write keeps them, a removal takes them away.
    pool.put("x", b"other");
    assert_eq!(pool.ok("getxattr x colour"), "red");
    pool.ok("rm x");
    pool.put("x", b"fresh");
    assert_eq!(pool.ok("listxattr x"), "");
}

#[test]
fn omap_is_set_listed_and_removed() {
    let pool = shared().pool("omap");
    for (key, value) in [("b", "two"), ("a", "one"), ("c", "three")] {
        pool.rados().args(["setomapval", "x", key, value]).ok();
    }
    assert_eq!(pool.ok("listomapkeys x").lines().collect::<Vec<_>>(), ["a", "b", "c"]);
    let values = pool.ok("listomapvals x");
    for part in ["a", "one", "two", "three", "value (5 bytes)"] {
        assert!(values.contains(part), "{values}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("value");
    pool.rados().args(["getomapval", "x", "b"]).arg(&file).ok();
    assert_eq!(std::fs::read(&file).unwrap(), b"two");
    pool.rados().args(["setomapval", "x", "b"]).stdin("from stdin").ok();
    pool.rados().args(["getomapval", "x", "b"]).arg(&file).ok();
    assert_eq!(std::fs::read(&file).unwrap(), b"from stdin");
    pool.ok("rmomapkey x b");
    assert_eq!(pool.ok("listomapkeys x").lines().collect::<Vec<_>>(), ["a", "c"]);
    let missing = pool.rados().args(["getomapval", "x", "b"]).run();
    assert!(!missing.status.success(), "{missing:?}");
    pool.ok("clearomap x");
    assert_eq!(pool.ok("listomapkeys x"), "");
}

#[test]
fn the_omap_header_is_kept() {
    let pool = shared().pool("omap-header");
    pool.put("x", b"data");
    pool.ok("setomapheader x first");
    let shown = pool.ok("getomapheader x");
    assert!(shown.contains("header (5 bytes)") && shown.contains("first"), "{shown}");
    pool.ok("setomapval x k v");
    assert!(pool.ok("getomapheader x").contains("first"));
    assert_eq!(pool.get("x"), b"data");
}

#[test]
fn long_omaps_are_listed_whole() {
    let pool = shared().pool("omap-long");
    let script = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "import rados\n\
         c = rados.Rados(conffile='')\n\
         c.connect()\n\
         i = c.open_ioctx('{}')\n\
         keys = ['key%05d' % n for n in range(5000)]\n\
         with rados.WriteOpCtx() as op:\n\
         \x20   i.set_omap(op, tuple(keys), tuple(b'v' * 100 for k in keys))\n\
         \x20   i.operate_write_op(op, 'x')\n",
        pool.name
    );
    std::fs::write(script.path(), text).unwrap();
    pool.cluster.python(script.path()).ok();
    let keys = pool.ok("listomapkeys x");
    let keys: Vec<&str> = keys.lines().collect();
    assert_eq!((keys.len(), keys[0], keys[4999]), (5000, "key00000", "key04999"));
    assert!(keys.is_sorted());
}
