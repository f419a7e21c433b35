//! `rbd` is killed in the middle of operations of many steps. What it leaves can be listed, and the
//! operation finished or the image removed, as with Ceph.

use super::cluster::pattern;
use super::crash;
use super::images::{EBUSY, EEXIST, EINVAL, ENOENT, EROFS, Images, MIB};
use super::tool::Ran;
use loligo::wait::Deadline;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The dead client's watch ends after 30 s; until then removals are refused.
const PATIENCE: Duration = Duration::from_secs(90);
const PARENT: &str = "parent@s";

/// Something that `rbd` does in many steps to the image `x`.
struct Operation {
    name: &'static str,
    prepare: fn(&Killed<'_>),
    /// Words with `x` for the image, `y` for another name.
    line: &'static str,
    finish: fn(&Killed<'_>),
}

/// One image whose client is killed.
struct Killed<'i> {
    images: &'i Images,
    /// Stands for `x`.
    image: String,
    data: &'i [u8],
}

impl Killed<'_> {
    /// A line for this image: `x` and `x@...` are it, `y` is another name.
    fn line(&self, line: &str) -> String {
        let word = |word: &str| match word.strip_prefix('x') {
            Some("") => self.image.clone(),
            Some(snap) if snap.starts_with('@') => format!("{}{snap}", self.image),
            _ if word == "y" => self.other(),
            _ => word.to_owned(),
        };
        line.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }

    fn other(&self) -> String {
        format!("{}-other", self.image)
    }

    fn ok(&self, line: &str) -> String {
        self.images.ok(&self.line(line))
    }

    /// Runs it until nobody seems to use the image any more; it must succeed, or end so. Its code. (A rollback
    /// does not ask for the lock: while whoever has it seems to live, it says EROFS.)
    fn ends(&self, line: &str, accepted: &[i32]) -> i32 {
        let mut ran: Option<Ran> = None;
        Deadline::after(PATIENCE).until(Duration::from_millis(500), || {
            let now = self.images.rbd(&self.line(line)).run();
            let busy = matches!(now.status.code(), Some(EBUSY | EROFS));
            ran = Some(now);
            !busy
        });
        let ran = ran.expect("it was run");
        let code = ran.status.code().unwrap_or(-1);
        assert!(code == 0 || accepted.contains(&code), "{ran:?}");
        code
    }

    fn import(&self) {
        self.images.import(&self.image, self.data);
    }

    fn import_with_snapshot(&self) {
        self.import();
        self.ok("snap create --no-progress x@s");
    }

    fn has(&self, image: &str, content: &[u8]) {
        assert!(self.images.content(&self.line(image)) == content, "{} is damaged", self.image);
    }

    /// It is taken away and made anew.
    fn again(&self, line: &str, content: &[u8]) {
        self.ends("rm --no-progress x", &[ENOENT]);
        self.ok(line);
        self.has("x", content);
        self.remove();
    }

    fn remove(&self) {
        self.ends("snap purge --no-progress x", &[]);
        self.ends("rm --no-progress x", &[]);
    }
}

const OPERATIONS: [Operation; 11] = [
    Operation {
        name: "create",
        prepare: |_| (),
        line: "create x --size 3M",
        finish: |k| k.again("create x --size 3M", &[0; 3 * MIB as usize]),
    },
    Operation {
        name: "import",
        prepare: |k| {
            // The file is there for what is killed.
            k.import();
            k.remove();
        },
        line: "import --no-progress FILE x",
        finish: |k| {
            k.ends("rm --no-progress x", &[ENOENT]);
            k.import();
            k.has("x", k.data);
            k.remove();
        },
    },
    Operation {
        name: "clone",
        prepare: |_| (),
        line: "clone parent@s x",
        finish: |k| k.again("clone parent@s x", k.data),
    },
    Operation {
        name: "flatten",
        prepare: |k| drop(k.ok("clone parent@s x")),
        line: "flatten --no-progress x",
        finish: |k| {
            k.has("x", k.data);
            // librbd notes in the object map what it is about to copy, and a second attempt skips
            // what is noted: with the map it loses what the first one had not copied, and a map made
            // anew is no better. So it does with real Ceph 16.2.15.
            k.ends("feature disable x fast-diff object-map", &[]);
            k.ends("flatten --no-progress x", &[EINVAL]);
            k.has("x", k.data);
            assert!(k.images.json(&k.line("info x"))["parent"].is_null());
            k.remove();
        },
    },
    Operation {
        name: "snap create",
        prepare: |k| k.import(),
        line: "snap create --no-progress x@s",
        finish: |k| {
            k.ends("snap create --no-progress x@s", &[EEXIST]);
            k.has("x@s", k.data);
            k.remove();
        },
    },
    Operation {
        name: "snap rm",
        prepare: |k| k.import_with_snapshot(),
        line: "snap rm --no-progress x@s",
        finish: |k| {
            k.ends("snap rm --no-progress x@s", &[ENOENT]);
            assert_eq!(k.images.names(&k.line("snap ls x")), [""; 0]);
            k.has("x", k.data);
            k.remove();
        },
    },
    Operation {
        name: "snap rollback",
        prepare: |k| {
            k.import_with_snapshot();
            k.ok("resize --no-progress x --size 16M");
            k.images.scribble(&k.image);
        },
        line: "snap rollback --no-progress x@s",
        finish: |k| {
            k.has("x@s", k.data);
            k.ends("snap rollback --no-progress x@s", &[]);
            k.has("x", k.data);
            k.remove();
        },
    },
    Operation {
        name: "resize",
        prepare: |k| k.import(),
        line: "resize --no-progress x --size 1M --allow-shrink",
        finish: |k| {
            // It may have that size already.
            k.ends("resize --no-progress x --size 1M --allow-shrink", &[EINVAL]);
            k.has("x", &k.data[..MIB as usize]);
            k.ok("resize --no-progress x --size 9M");
            let mut grown = k.data[..MIB as usize].to_vec();
            grown.resize(9 * MIB as usize, 0);
            k.has("x", &grown);
            k.remove();
        },
    },
    Operation {
        name: "rename",
        prepare: |k| k.import(),
        line: "rename x y",
        finish: |k| {
            // Either name leads to it; both do when it died in between.
            let at = if k.ends("info x", &[ENOENT]) == 0 { "x" } else { "y" };
            k.has(&k.line(at), k.data);
            k.ends(&format!("rm --no-progress {at}"), &[]);
            k.ends("rm --no-progress y", &[ENOENT]);
            k.ends("rm --no-progress x", &[ENOENT]);
        },
    },
    Operation {
        name: "trash mv",
        prepare: |k| k.import(),
        line: "trash mv x",
        finish: |k| {
            k.ends("trash mv x", &[ENOENT]);
            let trash = k.images.json("trash ls");
            let mut entries = trash.as_array().unwrap().iter();
            let mine = entries.find(|e| e["name"] == k.image.as_str());
            let mine = mine.unwrap_or_else(|| panic!("{} is not in {trash}", k.image));
            k.ok(&format!("trash restore {}", mine["id"].as_str().unwrap()));
            k.has("x", k.data);
            k.remove();
        },
    },
    Operation {
        name: "rm",
        prepare: |k| k.import(),
        line: "rm --no-progress x",
        finish: |k| {
            k.ends("rm --no-progress x", &[ENOENT]);
            k.import();
            k.has("x", k.data);
            k.remove();
        },
    },
];

/// Runs `rbd` until it has sent so many requests to OSDs, and kills it then. How many it sent.
fn kill_after(k: &Killed<'_>, line: &str, requests: usize) -> usize {
    let file = k.images.file("import");
    let words = k.line(line).replace("FILE", file.to_str().unwrap());
    let mut child: Child = Command::new("rbd")
        .args(words.split(' '))
        .args(["--debug-ms", "1", "--log-to-stderr=true", "--err-to-stderr=true"])
        .envs(k.images.environment())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut sent = 0;
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        if line.contains("-->") && line.contains("osd_op(") {
            sent += 1;
            if sent == requests {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    sent
}

#[test]
fn a_killed_client_leaves_nothing_that_cannot_be_finished() {
    let i = Images::new("rbd-kills");
    let data = pattern(9 * MIB as usize, 6);
    i.import("parent", &data);
    i.ok(&format!("snap create --no-progress {PARENT}"));
    i.ok(&format!("snap protect {PARENT}"));
    let kills = crash::kills();
    let mut killed = Vec::new();
    for (o, operation) in OPERATIONS.iter().enumerate() {
        let image = |n| Killed { images: &i, image: format!("image-{o}-{n}"), data: &data };
        // Once to its end: so many requests it takes.
        let whole = image(0);
        (operation.prepare)(&whole);
        let requests = kill_after(&whole, operation.line, usize::MAX);
        assert!(requests > 4, "{} takes {requests} requests", operation.name);
        killed.push((operation, whole));
        for n in 1..=kills {
            let k = image(n);
            (operation.prepare)(&k);
            let at = (requests * n as usize / (kills as usize + 1)).max(1);
            kill_after(&k, operation.line, at);
            // It can be looked at, at once.
            i.ok("ls");
            i.ok("trash ls --all");
            let info = k.images.rbd(&k.line("info x")).run();
            assert!(matches!(info.status.code(), Some(0 | ENOENT)), "{}: {info:?}", operation.name);
            killed.push((operation, k));
        }
    }
    for (operation, k) in &killed {
        (operation.finish)(k);
    }
    assert_eq!(i.names("ls"), ["parent"]);
    assert!(i.content("parent") == data);
    i.ok(&format!("snap unprotect {PARENT}"));
    i.ok(&format!("snap rm --no-progress {PARENT}"));
    i.ok("rm --no-progress parent");
    let left: Vec<_> = i.pool.ls().into_iter().filter(|o| o.starts_with("rbd_data")).collect();
    assert_eq!(left, [""; 0], "data of images that are gone");
}
