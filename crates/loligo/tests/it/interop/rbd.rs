//! Block images through the real `rbd`, librbd and fio.

use super::cluster::{pattern, shared};
use super::images::{EBUSY, EEXIST, EINVAL, ENOENT, EROFS, Images, MIB};
use loligo::wait::Deadline;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Exit codes of `rbd` are errno.
const ERANGE: i32 = 34;
const ENOTEMPTY: i32 = 39;
const EDQUOT: i32 = 122;

#[test]
fn an_image_lives_and_dies() {
    let i = Images::new("rbd-life");
    let data = shared().pool("rbd-life-data");
    i.ok("create plain --size 64M");
    i.ok("create striped --size 64M --object-size 1M --stripe-unit 64K --stripe-count 4");
    i.ok(&format!("create apart --size 64M --data-pool {}", data.name));
    assert_eq!(i.names("ls"), ["apart", "plain", "striped"]);
    let info = i.json("info striped");
    assert_eq!((&info["stripe_unit"], &info["stripe_count"]), (&65536.into(), &4.into()));
    assert_eq!(i.json("info apart")["data_pool"], data.name.as_str());
    let plain = i.json("info plain");
    assert_eq!((&plain["size"], &plain["objects"]), (&(64 * MIB).into(), &16.into()));
    let features = ["layering", "exclusive-lock", "object-map", "fast-diff", "deep-flatten"];
    assert_eq!(plain["features"], serde_json::json!(features));
    for image in ["plain", "striped", "apart"] {
        i.scribble(image);
    }
    let names = data.ls();
    assert!(names.iter().filter(|name| name.starts_with("rbd_data.")).count() > 4, "{names:?}");
    i.ok("resize plain --size 80M");
    assert_eq!(i.json("info plain")["size"], 80 * MIB);
    i.fails("resize plain --size 8M", EINVAL);
    i.ok("resize plain --size 8M --allow-shrink");
    assert_eq!(i.content("plain").len() as u64, 8 * MIB);
    assert_eq!(i.json("du plain")["images"][0]["provisioned_size"], 8 * MIB);
    assert_eq!(i.json("status plain")["watchers"], serde_json::json!([]));
    i.ok("rename plain renamed");
    i.fails("rename striped renamed", EEXIST);
    i.fails("create renamed --size 1M", EEXIST);
    i.fails("info plain", ENOENT);
    let stats = i.json(&format!("pool stats {}", i.pool.name));
    assert_eq!(stats["images"]["count"], 3);
    for image in ["renamed", "striped", "apart"] {
        i.ok(&format!("rm --no-progress {image}"));
    }
    i.fails("rm --no-progress renamed", ENOENT);
    for pool in [&data, &i.pool] {
        let left = pool.ls();
        let of_an_image = |name: &&String| name.contains("data") || name.contains("header");
        assert_eq!(left.iter().find(of_an_image), None, "{left:?}");
    }
}

#[test]
fn snapshots_keep_what_was() {
    let i = Images::new("rbd-snaps");
    let old = pattern(9 * MIB as usize, 1);
    i.import("x", &old);
    i.ok("snap create --no-progress x@a");
    i.scribble("x");
    let new = i.content("x");
    assert!(new != old && i.content("x@a") == old);
    i.ok("snap create --no-progress x@b");
    i.fails("snap create --no-progress x@b", EEXIST);
    i.ok("snap rename x@b x@c");
    assert_eq!(i.names("snap ls x"), ["a", "c"]);
    assert!(!i.json("diff x --from-snap a").as_array().unwrap().is_empty());
    assert_eq!(i.json("diff x --from-snap c"), serde_json::json!([]));
    assert_eq!(i.json("du x")["images"].as_array().unwrap().len(), 3);
    i.ok("snap protect x@a");
    i.fails("snap rm --no-progress x@a", EBUSY);
    let left = i.ok("snap purge --no-progress x");
    assert!(left.contains("which is protected"), "{left}");
    i.ok("snap unprotect x@a");
    i.ok("snap create --no-progress x@c2");
    i.ok("snap rollback --no-progress x@a");
    assert!(i.content("x") == old && i.content("x@c2") == new);
    i.ok("snap limit set x --limit 2");
    i.fails("snap create --no-progress x@d", EDQUOT);
    i.fails("snap limit set x --limit 1", ERANGE);
    i.ok("snap limit clear x");
    i.fails("rm --no-progress x", ENOTEMPTY);
    i.fails("snap rm --no-progress x@nosuch", ENOENT);
    i.ok("snap rm --no-progress x@a");
    assert!(i.content("x") == old && i.content("x@c2") == new);
    i.ok("snap purge --no-progress x");
    assert_eq!(i.names("snap ls x"), [""; 0]);
    i.ok("rm --no-progress x");
}

#[test]
fn clones_of_both_formats() {
    let i = Images::new("rbd-clones");
    let data = pattern(17 * MIB as usize, 2);
    i.import("parent", &data);
    i.ok("snap create --no-progress parent@s");
    i.fails("clone --rbd-default-clone-format 1 parent@s early", EINVAL);
    i.ok("snap protect parent@s");
    i.ok("clone --rbd-default-clone-format 1 parent@s one");
    i.ok("snap create --no-progress parent@t");
    i.ok("clone --rbd-default-clone-format 2 parent@t two");
    assert_eq!(i.json("children parent@s")[0]["image"], "one");
    assert_eq!(i.json("children parent@t")[0]["image"], "two");
    assert_eq!(i.json("info one")["parent"]["snapshot"], "s");
    // librbd says why.
    let said = i.fails("snap unprotect parent@s", EBUSY);
    assert!(said.contains("at least 1 child(ren)"), "{said}");
    i.fails("rm --no-progress parent", ENOTEMPTY);
    // A snapshot that has clones of format 2 can be removed: it waits for them in its trash.
    i.ok("snap rm --no-progress parent@t");
    for clone in ["one", "two"] {
        assert!(i.content(clone) == data);
        i.scribble(clone);
        let written = i.content(clone);
        assert!(written != data);
        i.ok(&format!("snap create --no-progress {clone}@mine"));
        i.scribble(clone);
        let after = i.content(clone);
        i.ok(&format!("flatten --no-progress {clone}"));
        assert!(i.content(clone) == after && i.content(&format!("{clone}@mine")) == written);
        assert_eq!(i.json(&format!("info {clone}"))["parent"], Value::Null);
    }
    assert!(i.content("parent") == data);
    i.ok("snap unprotect parent@s");
    i.ok("snap purge --no-progress parent");
    i.ok("rm --no-progress parent");
}

#[test]
fn copies_exports_and_differences() {
    let i = Images::new("rbd-copies");
    let mut data = pattern(6 * MIB as usize, 3);
    data.resize(20 * MIB as usize, 0);
    i.import("x", &data);
    assert!(i.content("x") == data);
    let base = i.json("du x")["images"][0]["used_size"].as_u64().unwrap();
    assert!(base <= 8 * MIB, "zeros were not written: {base}");
    i.ok("snap create --no-progress x@a");
    i.scribble("x");
    i.ok("snap create --no-progress x@b");
    i.scribble("x");
    let (at_a, at_b, now) = (i.content("x@a"), i.content("x@b"), i.content("x"));
    i.ok("cp --no-progress x flat");
    assert!(i.content("flat") == now && i.names("snap ls flat").is_empty());
    i.ok("deep cp --no-progress x deep");
    assert!(i.content("deep@a") == at_a && i.content("deep@b") == at_b && i.content("deep") == now);

    let path = |name: &str| i.file(name).to_str().unwrap().to_owned();
    let whole = path("whole");
    i.ok(&format!("export --no-progress --export-format 2 x {whole}"));
    i.ok(&format!("import --no-progress --export-format 2 {whole} whole"));
    assert!(i.content("whole@a") == at_a && i.content("whole") == now);

    let (d0, d1, d2, merged) = (path("d0"), path("d1"), path("d2"), path("merged"));
    i.ok(&format!("export-diff --no-progress x@a {d0}"));
    i.ok(&format!("export-diff --no-progress --from-snap a x@b {d1}"));
    i.ok(&format!("export-diff --no-progress --from-snap b --whole-object x {d2}"));
    i.ok(&format!("merge-diff --no-progress {d0} {d1} {merged}"));
    i.ok("create by-diff --size 20M");
    i.ok(&format!("import-diff --no-progress {merged} by-diff"));
    assert!(i.content("by-diff@b") == at_b && i.names("snap ls by-diff") == ["b"]);
    i.ok(&format!("import-diff --no-progress {d2} by-diff"));
    assert!(i.content("by-diff") == now);
    i.fails(&format!("import-diff --no-progress {d1} by-diff"), EINVAL);
}

#[test]
fn features_object_maps_and_sparse_images() {
    let i = Images::new("rbd-features");
    let mut data = vec![0; 12 * MIB as usize];
    data[5 * MIB as usize..6 * MIB as usize].copy_from_slice(&pattern(MIB as usize, 4));
    i.ok("create x --size 12M");
    i.scribble("x");
    i.ok("feature disable x fast-diff object-map");
    i.scribble("x");
    i.ok("feature enable x object-map fast-diff");
    let flags = &i.json("info x")["flags"];
    assert_eq!(flags, &serde_json::json!(["object map invalid", "fast diff invalid"]));
    i.ok("object-map rebuild --no-progress x");
    assert_eq!(i.json("info x")["flags"], serde_json::json!([]));
    i.ok("object-map check --no-progress x");
    i.fails("feature disable x layering", EINVAL);
    i.ok("feature disable x deep-flatten");
    i.fails("feature enable x deep-flatten", EINVAL);

    // Zeros that were written take space until they are looked for.
    i.ok("create zeros --size 12M");
    let file = i.file("zeros");
    std::fs::write(&file, &data).unwrap();
    let whole = "import --no-progress --sparse-size 16M";
    i.rbd(whole).arg(&file).arg("full").ok();
    let before = i.content("full");
    i.ok("sparsify --no-progress full");
    assert!(i.content("full") == before && before == data);
    let used: u64 =
        i.json("diff full").as_array().unwrap().iter().map(|d| d["length"].as_u64().unwrap()).sum();
    assert!(used <= 2 * MIB, "{used} bytes are left");
}

#[test]
fn metadata_locks_and_settings() {
    let i = Images::new("rbd-meta");
    i.ok("create x --size 8M");
    i.ok("image-meta set x key value");
    assert_eq!(i.ok("image-meta get x key"), "value");
    assert_eq!(i.json("image-meta ls x"), serde_json::json!({"key": "value"}));
    i.ok("image-meta rm x key");
    i.fails("image-meta get x key", ENOENT);
    i.ok("config image set x rbd_cache false");
    assert_eq!(i.ok("config image get x rbd_cache"), "false");
    i.ok("config image rm x rbd_cache");
    let pool = &i.pool.name;
    i.ok(&format!("config pool set {pool} rbd_cache false"));
    assert_eq!(i.ok(&format!("config pool get {pool} rbd_cache")), "false");
    i.ok(&format!("config pool rm {pool} rbd_cache"));

    i.ok("lock add x mine");
    i.fails("lock add x other", EBUSY);
    let locks = i.json("lock ls x");
    assert_eq!(locks[0]["id"], "mine");
    let locker = locks[0]["locker"].as_str().unwrap();
    i.ok(&format!("lock rm x mine {locker}"));
    assert_eq!(i.json("lock ls x"), serde_json::json!([]));
    i.ok("lock add --shared t x a");
    i.ok("lock add --shared t x b");
    assert_eq!(i.json("lock ls x").as_array().unwrap().len(), 2);
}

#[test]
fn trash_namespaces_and_groups() {
    let i = Images::new("rbd-sets");
    let pool = i.pool.name.as_str();
    for image in ["a", "b", "c"] {
        i.ok(&format!("create {image} --size 8M"));
        i.scribble(image);
    }
    i.ok("trash mv a");
    i.ok("trash mv b --expires-at tomorrow");
    assert_eq!(i.names("ls"), ["c"]);
    let trash = i.json("trash ls");
    let id = |name: &str| {
        let entry = trash.as_array().unwrap().iter().find(|t| t["name"] == name).unwrap();
        entry["id"].as_str().unwrap().to_owned()
    };
    i.ok(&format!("trash restore {}", id("b")));
    i.ok("trash purge --no-progress");
    assert_eq!(i.json("trash ls"), serde_json::json!([]));
    i.fails(&format!("trash rm --no-progress {}", id("a")), ENOENT);

    i.ok(&format!("namespace create {pool}/apart"));
    i.fails(&format!("namespace create {pool}/apart"), EEXIST);
    i.ok(&format!("create {pool}/apart/b --size 8M"));
    assert_eq!(i.names(&format!("ls {pool}/apart")), ["b"]);
    assert_eq!(i.names(&format!("namespace ls {pool}")), ["apart"]);
    i.fails(&format!("namespace rm {pool}/apart"), EBUSY);
    i.ok(&format!("rm --no-progress {pool}/apart/b"));
    i.ok(&format!("namespace rm {pool}/apart"));

    i.ok("group create g");
    i.ok("group image add g b");
    i.ok("group image add g c");
    assert_eq!(i.json("group image ls g").as_array().unwrap().len(), 2);
    let before = (i.content("b"), i.content("c"));
    i.ok("group snap create g@s");
    i.fails("group snap create g@s", EEXIST);
    i.scribble("b");
    i.scribble("c");
    i.ok("group snap rename g@s t");
    i.ok("group snap rollback --no-progress g@t");
    assert!((i.content("b"), i.content("c")) == before);
    assert_eq!(i.json("group snap ls g")[0]["snapshot"], "t");
    assert!(!i.rbd("rm --no-progress b").run().status.success(), "it is in a group");
    i.ok("group snap rm g@t");
    i.ok("group image rm g b");
    i.ok("group rename g h");
    i.ok("group rm h");
    i.ok("rm --no-progress c");
}

#[test]
fn images_migrate() {
    let i = Images::new("rbd-migration");
    let data = shared().pool("rbd-migration-data");
    i.import("x", &pattern(9 * MIB as usize, 5));
    i.ok("snap create --no-progress x@s");
    i.scribble("x");
    let (now, then) = (i.content("x"), i.content("x@s"));
    i.ok(&format!("migration prepare x y --data-pool {}", data.name));
    assert_eq!(i.json("status y")["migration"]["state"], "prepared");
    assert!(i.content("y") == now, "it can be used at once");
    i.ok("migration execute --no-progress y");
    i.ok("migration commit --no-progress y");
    assert!(i.content("y") == now && i.content("y@s") == then);
    i.fails("info x", ENOENT);
    i.ok("migration prepare y z");
    i.scribble("z");
    let changed = i.content("z");
    i.ok("migration abort --no-progress z");
    assert!(i.content("y") == changed && i.content("y@s") == then, "changes are taken back along");
    assert_eq!(i.names("ls"), ["y"]);
}

#[test]
fn journals_and_mirroring() {
    let i = Images::new("rbd-journal");
    let pool = i.pool.name.as_str();
    i.ok("create x --size 8M --image-feature exclusive-lock,journaling");
    i.scribble("x");
    let clients = i.json("journal status --image x");
    assert!(clients.to_string().contains("client"), "{clients}");
    i.ok("snap create --no-progress x@s");
    i.ok("journal inspect --image x");
    i.ok("journal reset --image x");
    i.scribble("x");
    i.ok(&format!("mirror pool enable {pool} image"));
    i.ok("mirror image enable x journal");
    assert_eq!(i.json("info x")["mirroring"]["state"], "enabled");
    i.ok("mirror image demote x");
    i.ok("mirror image promote x");
    let peer = i.ok(&format!("mirror pool peer add {pool} client.far@away"));
    let info = i.json(&format!("mirror pool info {pool}"));
    assert_eq!(
        (&info["mode"], &info["peers"][0]["uuid"]),
        (&"image".into(), &peer.as_str().into())
    );
    let err = i.fails(&format!("mirror pool peer add {pool} client.far@away"), EINVAL);
    assert!(err.contains("multiple RX peers"), "{err}");
    i.fails(&format!("mirror pool disable {pool}"), EBUSY);
    i.ok(&format!("mirror pool status {pool}"));
    i.ok("mirror image disable x");
    i.ok(&format!("mirror pool peer remove {pool} {peer}"));
    i.ok(&format!("mirror pool disable {pool}"));
    assert_eq!(i.json("info x")["features"], serde_json::json!(["exclusive-lock"]));
    i.ok("feature enable x journaling");
    i.scribble("x");
    i.ok("feature disable x journaling");
    i.ok("snap purge --no-progress x");
    i.ok("rm --no-progress x");
    assert!(!i.pool.ls().iter().any(|name| name.contains("journal")));
}

/// No copy but the primary's does: librbd asks that one then, instead of waiting for ever.
#[test]
fn reads_that_any_copy_may_answer_are_answered() {
    let i = Images::new("rbd-any-copy");
    let data = pattern(20 * MIB as usize, 7);
    i.import("x", &data);
    for policy in ["balance", "localize"] {
        let export = format!("--rbd-read-from-replica-policy {policy} export --no-progress x -");
        assert!(i.rbd(&export).ok() == data, "{policy}");
    }
}

#[test]
fn two_writers_take_turns() {
    let i = Images::new("rbd-turns");
    i.ok("create x --size 16M");
    let bench =
        "bench --io-type write --io-size 4K --io-threads 4 --io-total 2M --io-pattern rand x";
    let both = [i.rbd(bench).start(), i.rbd(bench).start()];
    for running in both {
        let ran = running.wait();
        assert!(ran.status.success(), "{ran:?}");
    }
    i.ok("object-map check --no-progress x");
}

#[test]
fn a_killed_holder_is_shut_out() {
    let i = Images::new("rbd-killed");
    i.ok("create x --size 16M");
    let long =
        "bench --io-type write --io-size 4K --io-threads 4 --io-total 64G --io-pattern rand x";
    let running = i.rbd(long).start();
    let holds = || i.json("lock ls x").as_array().is_some_and(|locks| locks.len() == 1);
    assert!(Deadline::after(Duration::from_secs(30)).until(Duration::from_millis(200), holds));
    let holder = i.json("lock ls x")[0]["address"].as_str().unwrap().to_owned();
    running.kill();
    // Its watch is over after 30 s; then the next writer blocklists it and takes the lock.
    i.scribble("x");
    let listed = i.pool.cluster.ceph().args(["osd", "blocklist", "ls"]).text();
    assert!(listed.contains(&holder), "{holder} is not in {listed}");
    i.pool.cluster.ceph().args(["osd", "blocklist", "rm", &holder]).ok();
    i.ok("object-map check --no-progress x");
    i.ok("rm --no-progress x");
}

/// A removal takes the lock for itself before it looks for watchers, and refuses it to others
/// meanwhile. A writer that asks in this moment is told EROFS and ends; so it is with Ceph, too.
#[test]
fn an_image_in_use_is_not_removed() {
    let i = Images::new("rbd-in-use");
    i.ok("create x --size 16M");
    let long =
        "bench --io-type write --io-size 4K --io-threads 4 --io-total 64G --io-pattern rand x";
    let mut writer = i.rbd(long).start();
    let holds = || i.json("lock ls x").as_array().is_some_and(|locks| locks.len() == 1);
    let soon = || Deadline::after(Duration::from_secs(30));
    assert!(soon().until(Duration::from_millis(50), holds));
    for _ in 0..3 {
        if !writer.is_running() {
            break;
        }
        let err = i.fails("rm --no-progress x", EBUSY);
        assert!(err.contains("image still has watchers"), "{err}");
        // It has the lock again, or was refused it: it never waits for ever.
        let goes_on = || !writer.is_running() || holds();
        assert!(soon().until(Duration::from_millis(50), goes_on));
    }
    let ended = !writer.is_running();
    let ran = writer.kill();
    assert!(!ended || ran.status.code() == Some(EROFS), "{ran:?}");
    assert_eq!(i.names("ls"), ["x"]);
}

#[test]
fn the_rest_of_the_commands() {
    let i = Images::new("rbd-rest");
    let pool = i.pool.name.as_str();
    i.import("x", &pattern(5 * MIB as usize, 7));
    i.ok("snap create --no-progress x@s");
    let long = i.json("ls --long");
    let listed: Vec<_> = long.as_array().unwrap().iter().map(|e| &e["snapshot"]).collect();
    assert_eq!(listed, [&Value::Null, &Value::from("s")]);
    for line in ["read --io-pattern rand", "read --io-pattern seq", "rw --io-pattern rand"] {
        i.ok(&format!("bench --io-type {line} --io-size 4K --io-total 512K x"));
    }
    // Differences to the byte and to the object, of a clone with and without its parent.
    i.ok("snap protect x@s");
    i.ok("clone x@s y");
    i.ok("bench --io-type write --io-size 4K --io-total 4K --io-pattern seq y");
    let sum = |line: &str| {
        let extents = i.json(line);
        extents.as_array().unwrap().iter().map(|e| e["length"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(sum("diff --whole-object y"), 5 * MIB);
    assert_eq!(sum("diff x@s"), 5 * MIB);
    assert_eq!(i.json("children --descendants x")[0]["image"], "y");
    assert_eq!(i.json("children --all x")[0]["image"], "y");
    i.ok("flatten --no-progress y");
    i.ok("snap unprotect x@s");
    i.ok("config global set global rbd_cache false");
    assert_eq!(i.ok("config global get global rbd_cache"), "false");
    i.ok("config global rm global rbd_cache");
    assert!(i.json(&format!("config pool ls {pool}")).as_array().unwrap().len() > 20);
    assert!(i.json("config image ls x").as_array().unwrap().len() > 20);
    i.ok("resize --no-progress --size 0 --allow-shrink y");
    assert_eq!(i.content("y"), b"");
    i.ok("trash mv y");
    assert_eq!(i.json("trash ls --all --long").as_array().unwrap().len(), 1);
    i.ok("trash purge --no-progress --expired-before 2090-01-01");
    assert_eq!(i.json("trash ls"), serde_json::json!([]));

    // What a journal holds is written to the image when that is closed, so nothing is left in it.
    i.ok("feature enable x journaling");
    i.scribble("x");
    assert!(i.json("journal info --image x")["journal_id"].is_string());
    let journal = i.file("journal");
    i.rbd("journal export --image x --path").arg(&journal).ok();
    assert!(journal.metadata().unwrap().len() > 0);
    i.ok("mirror pool info");
}

/// I/O by image is shown by its name, wherever the image keeps its data.
#[test]
fn io_is_shown_by_image() {
    let i = Images::new("rbd-io");
    let (pool, data) = (i.pool.name.as_str(), shared().pool("rbd-io-data"));
    i.ok(&format!("create plain --size 8M --data-pool {}", data.name));
    i.ok(&format!("namespace create {pool}/apart"));
    i.ok(&format!("create {pool}/apart/b --size 8M"));
    let both = [
        ("plain".to_owned(), pool.to_owned()),
        (format!("{pool}/apart/b"), format!("{pool}/apart")),
    ];
    for (image, place) in &both {
        let ask = format!("rbd perf image counters {place}");
        let shown =
            Deadline::after(Duration::from_secs(90)).poll(Duration::from_millis(200), || {
                i.scribble(image);
                let counted = shared().ask(&ask);
                assert_eq!(counted["counter_descriptors"][0], "write_ops");
                let counters = counted["counters"].as_array().unwrap().clone();
                (!counters.is_empty()).then_some((counted, counters))
            });
        let (counted, counters) = shown.expect("OSDs report what they count");
        assert_eq!(counted["pool_descriptors"]["0"], place.as_str(), "{counted}");
        let name = format!("0/{}", image.rsplit('/').next().unwrap());
        let values = &counters[0][&name];
        assert!(
            values[0].as_u64() >= Some(16) && values[2].as_u64() >= Some(64 << 10),
            "{counted}"
        );
        assert!(values[4].as_u64() > Some(0) && values[1] == 0, "{counted}");
    }
    // It shows what goes on, and waits until something does.
    let is_shown = AtomicBool::new(false);
    let io = std::thread::scope(|scope| {
        scope.spawn(|| {
            let enough = Deadline::after(Duration::from_secs(60));
            while !is_shown.load(Ordering::Relaxed) && !enough.is_over() {
                i.scribble(&both[1].0);
            }
        });
        let io =
            i.rbd(&format!("perf image iostat --iterations 1 --format json {}", both[1].1)).run();
        is_shown.store(true, Ordering::Relaxed);
        serde_json::from_slice::<Value>(&io.out).expect("JSON")
    });
    let images = io.as_array().expect("a list of images");
    let mine = images.iter().find(|o| o["pool"] == pool && o["pool_namespace"] == "apart");
    assert_eq!(mine.expect("it was busy lately")["image"], "b");
    let said = i.fails("perf image iostat nowhere", ENOENT);
    assert!(said.contains("nowhere"), "{said}");
}
