//! Objects through the real `rados`: contents, names, errors.

use super::cluster::{is_foreign, pattern, shared};

#[test]
fn files_of_all_sizes_come_back_identical() {
    let pool = shared().pool("files");
    let dir = tempfile::tempdir().unwrap();
    for (i, len) in [0, 1, 4095, 4096, 65536, (4 << 20) + 1, 100 << 20].into_iter().enumerate() {
        let (file, back) = (dir.path().join("file"), dir.path().join("back"));
        let name = format!("file-{len}");
        std::fs::write(&file, pattern(len, i as u8)).unwrap();
        pool.rados().args(["put", &name]).arg(&file).ok();
        pool.rados().args(["get", &name]).arg(&back).ok();
        assert!(std::fs::read(&file).unwrap() == std::fs::read(&back).unwrap(), "{len} bytes");
        let stat = pool.ok(&format!("stat {name}"));
        assert!(stat.contains(&format!("size {len}")), "{stat}");
    }
    assert_eq!(pool.ls().len(), 7);
    if !is_foreign() {
        for osd in ["osd.0", "osd.1", "osd.2"] {
            shared().ceph().args(["tell", osd, "cache", "drop"]).ok();
        }
    }
    assert!(pool.get("file-65536") == pattern(65536, 4), "read anew from the disk");
}

#[test]
fn overwriting_shrinks_and_grows() {
    let pool = shared().pool("overwrite");
    for len in [5000, 100, 0, 9000, 1 << 20, 3] {
        let data = pattern(len, 3);
        pool.put("x", &data);
        assert!(pool.get("x") == data, "{len}");
    }
    // Written at an offset: the gap reads as zeros.
    pool.rados().args(["put", "x", "-", "--offset", "10000"]).stdin("tail").ok();
    let data = pool.get("x");
    assert_eq!((data.len(), &data[10000..]), (10004, &b"tail"[..]));
    assert!(data[..3] == pattern(3, 3)[..] && data[3..10000].iter().all(|b| *b == 0));
}

#[test]
fn append_and_truncate() {
    let pool = shared().pool("append");
    for piece in ["one ", "two ", "three"] {
        pool.rados().args(["append", "log", "-"]).stdin(piece).ok();
    }
    assert_eq!(pool.get("log"), b"one two three");
    pool.ok("truncate log 7");
    assert_eq!(pool.get("log"), b"one two");
    pool.ok("truncate log 10");
    assert_eq!(pool.get("log"), b"one two\0\0\0");
    pool.ok("truncate log 0");
    assert_eq!(pool.get("log"), b"");
    pool.rados().args(["append", "log", "-"]).stdin("again").ok();
    assert_eq!(pool.get("log"), b"again");
}

#[test]
fn removed_objects_are_gone_and_missing_ones_enoent() {
    let pool = shared().pool("rm");
    pool.put("a", b"x");
    pool.put("b", b"y");
    pool.ok("rm a");
    assert_eq!(pool.ls(), ["b"]);
    const FAILED: i32 = 1;
    for line in ["stat a", "rm a", "get a -", "getxattr a k", "stat never"] {
        let err = pool.rados().args(line.split(' ')).fails(FAILED);
        assert!(err.contains("No such file or directory"), "{line}: {err}");
    }
    pool.put("a", b"again");
    assert_eq!(pool.get("a"), b"again");
    pool.ok("rm a b");
    assert!(pool.ls().is_empty());
}

#[test]
fn create_makes_an_empty_object() {
    let pool = shared().pool("create");
    pool.ok("create x");
    assert!(pool.ok("stat x").contains("size 0"));
    assert_eq!(pool.get("x"), b"");
    let err = pool.rados().args(["create", "x"]).fails(1);
    assert!(err.contains("File exists"), "{err}");
    pool.ok("touch y");
    assert_eq!(pool.ls(), ["x", "y"]);
}

#[test]
fn hundreds_of_objects_are_listed_once_each() {
    let pool = shared().pool("ls");
    let mut client = pool.cluster.client();
    let id = client.pool(&pool.name).unwrap();
    let mut names: Vec<String> = (0..3000).map(|i| format!("object {i} ü")).collect();
    names.sort();
    let submitted: Vec<_> = names
        .iter()
        .map(|n| {
            let object = client::Object::new(id, n.as_str());
            client.submit(client::ObjectOp::new(object).create(true)).unwrap()
        })
        .collect();
    for id in submitted {
        assert!(matches!(client.wait(id).unwrap(), client::Outcome::Op(Ok(_))));
    }
    assert_eq!(pool.ls(), names);
    let mut own: Vec<String> =
        client.list(id, Some(b"")).unwrap().iter().map(|o| o.name.to_string()).collect();
    own.sort();
    assert_eq!(own, names);
}

#[test]
fn namespaces_and_locator_keys_keep_objects_apart() {
    let pool = shared().pool("ns");
    let in_ns = |ns: &str| pool.rados().args(["-N", ns]);
    pool.put("x", b"default");
    in_ns("one").args(["put", "x", "-"]).stdin("one").ok();
    in_ns("two").args(["put", "x", "-"]).stdin("two").ok();
    in_ns("two").args(["put", "y", "-"]).stdin("y").ok();
    assert_eq!(pool.get("x"), b"default");
    assert_eq!(in_ns("one").args(["get", "x", "-"]).text(), "one");
    assert_eq!(in_ns("two").args(["get", "x", "-"]).text(), "two");
    assert_eq!(pool.ls(), ["x"]);
    let mut two: Vec<String> = in_ns("two").arg("ls").text().lines().map(str::to_owned).collect();
    two.sort();
    assert_eq!(two, ["x", "y"]);
    let all = pool.rados().args(["ls", "--all"]).text();
    let mut all: Vec<Vec<&str>> = all.lines().map(|l| l.split('\t').collect()).collect();
    all.sort();
    assert_eq!(all, [vec!["", "x"], vec!["one", "x"], vec!["two", "x"], vec!["two", "y"]]);
    in_ns("one").args(["rm", "x"]).ok();
    assert_eq!(pool.get("x"), b"default");

    pool.rados().args(["--object-locator", "k", "put", "z", "-"]).stdin("by key").ok();
    assert_eq!(pool.rados().args(["--object-locator", "k", "get", "z", "-"]).text(), "by key");
    pool.rados().args(["stat", "z"]).fails(1);
}

#[test]
fn objects_are_copied_within_and_between_pools() {
    let (a, b) = (shared().pool("cp-a"), shared().pool("cp-b"));
    let data = pattern(300_000, 9);
    a.put("source", &data);
    a.ok("setxattr source colour blue");
    a.ok("setomapval source key value");
    a.ok("cp source copy");
    assert!(a.get("copy") == data);
    assert_eq!(a.ok("getxattr copy colour"), "blue");
    assert!(a.ok("listomapvals copy").contains("key"));
    a.rados().args(["cp", "source", "there", "--target-pool", &b.name]).ok();
    assert!(b.get("there") == data);
    assert_eq!(a.ls(), ["copy", "source"]);
    assert_eq!(b.ls(), ["there"]);
}

#[test]
fn pools_are_listed_and_counted() {
    let pool = shared().pool("df");
    pool.put("x", &pattern(50_000, 1));
    let pools = shared().rados().arg("lspools").text();
    assert!(pools.lines().any(|l| l == pool.name), "{pools}");
    let counted = loligo::wait::Deadline::after(std::time::Duration::from_secs(60)).until(
        std::time::Duration::from_millis(500),
        || {
            let df = shared().rados().args(["df", "-f", "json"]).json();
            assert!(df["total_space"].as_str().is_some() || df["total_space"].is_u64(), "{df}");
            let pools = df["pools"].as_array().unwrap();
            let own = pools.iter().find(|p| p["name"] == pool.name.as_str()).unwrap();
            let n = |key: &str| own[key].as_str().map_or(own[key].as_u64(), |s| s.parse().ok());
            n("num_objects") == Some(1) && n("size_bytes").is_some_and(|b| b >= 50_000)
        },
    );
    assert!(counted, "{}", shared().rados().arg("df").text());
    let text = shared().rados().arg("df").text();
    assert!(text.contains("total_objects") && text.contains("USED"), "{text}");
}

#[test]
fn impossible_requests_get_cephs_errors() {
    let pool = shared().pool("errors");
    let long = "n".repeat(3000);
    let err = pool.rados().args(["put", &long, "-"]).stdin("x").fails(1);
    assert!(err.contains("File name too long"), "{err}");
    let err = pool.rados().args(["put", "x", "-", "--offset", "200000000"]).stdin("x").fails(1);
    assert!(err.contains("File too large"), "{err}");
    let err = pool.rados().args(["truncate", "y", "200000000"]).run().err;
    assert!(err.is_empty() || err.contains("File too large"), "{err}");
    let err = shared().rados().args(["-p", "no-such-pool", "ls"]).run();
    assert!(!err.status.success() && err.err.contains("No such file or directory"), "{err:?}");
    pool.put("x", b"x");
    let name = "a".repeat(200);
    let err = pool.rados().args(["setxattr", "x", &name, "v"]).fails(1);
    assert!(err.contains("File name too long"), "{err}");
}
