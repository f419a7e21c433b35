//! `ceph rbd task`: work on images in the background, see `crate::tasks`.

use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, look, read, write};
use crate::tasks::{Action, Answer as Seen, Found, ImageSpec, Question};
use admin::{Answer, CommandError};
use types::{Errno, PoolId};

pub(super) const COMMANDS: &[CommandDef] = &[
    look(
        "rbd task add flatten <image_spec:String>",
        "mgr",
        "flattens a clone in the background",
        ask_image,
        add_flatten,
    ),
    look(
        "rbd task add remove <image_spec:String>",
        "mgr",
        "removes an image in the background",
        ask_removable,
        add_remove,
    ),
    look(
        "rbd task add trash remove <image_id_spec:String>",
        "mgr",
        "removes an image from the trash in the background",
        ask_trashed,
        add_trash_remove,
    ),
    look(MIGRATE_EXECUTE, "mgr", "not supported: see `rbd migration execute`", ask_image, migrate),
    look(MIGRATE_COMMIT, "mgr", "not supported: see `rbd migration commit`", ask_image, migrate),
    look(MIGRATE_ABORT, "mgr", "not supported: see `rbd migration abort`", ask_image, migrate),
    write("rbd task cancel <task_id:String>", "mgr", "stops a task, or does not begin it", cancel),
    read("rbd task list [task_id:String]", "mgr", "lists tasks that wait or run", list),
];

const MIGRATE_EXECUTE: &str = "rbd task add migration execute <image_spec:String>";
const MIGRATE_COMMIT: &str = "rbd task add migration commit <image_spec:String>";
const MIGRATE_ABORT: &str = "rbd task add migration abort <image_spec:String>";

/// The pool of images that nobody says another one of (`rbd_default_pool`).
const DEFAULT_POOL: &str = "rbd";

/// `[POOL/[NAMESPACE/]]IMAGE`
fn image_spec(call: &Call, name: &str) -> Result<ImageSpec, CommandError> {
    let text = call.args.text(name);
    let parts: Vec<&str> = text.split('/').collect();
    let (pool, nspace, image) = match parts[..] {
        [image] => (DEFAULT_POOL, "", image),
        [pool, image] if !pool.is_empty() => (pool, "", image),
        [pool, nspace, image] if !pool.is_empty() && !nspace.is_empty() => (pool, nspace, image),
        _ => ("", "", ""),
    };
    if image.is_empty() || image.contains('@') {
        return Err(CommandError::invalid(format_args!("Invalid image spec: {text}")));
    }
    let [pool, nspace, image] = [pool, nspace, image].map(str::to_owned);
    Ok(ImageSpec { pool, nspace, image })
}

fn pool_of(c: &Cluster, spec: &ImageSpec) -> Result<PoolId, CommandError> {
    let none = || {
        let why = format_args!("error opening pool '{}'", spec.pool);
        CommandError::not_found(format_args!("[errno 2] RADOS object not found ({why})"))
    };
    c.map().pool_by_name(&spec.pool).ok_or_else(none)
}

fn no_image(why: impl std::fmt::Display) -> CommandError {
    CommandError::not_found(format_args!("[errno 2] RBD image not found ({why})"))
}

// ---- to be known first ----

fn ask_image(c: &Cluster, call: &Call) -> Result<Option<Question>, CommandError> {
    let spec = image_spec(call, "image_spec")?;
    Ok(Some(Question::Image(pool_of(c, &spec)?, spec.nspace, spec.image)))
}

fn ask_removable(c: &Cluster, call: &Call) -> Result<Option<Question>, CommandError> {
    let spec = image_spec(call, "image_spec")?;
    Ok(Some(Question::Removable(pool_of(c, &spec)?, spec.nspace, spec.image)))
}

fn ask_trashed(c: &Cluster, call: &Call) -> Result<Option<Question>, CommandError> {
    let spec = image_spec(call, "image_id_spec")?;
    Ok(Some(Question::Trashed(pool_of(c, &spec)?, spec.nspace, spec.image)))
}

// ---- then ----

/// Takes on what `check` has nothing against, unless it was taken on before.
fn add(
    c: &mut Cluster,
    action: Action,
    spec: &ImageSpec,
    seen: &Seen,
    message: String,
    check: impl Fn(&Found) -> Result<(), CommandError>,
) -> Reply {
    let id = seen.as_ref().ok().map(|found| found.id.as_str());
    if let Some(task) = c.tasks.find(action, spec, id) {
        return Ok(Answer::json_line(task));
    }
    let found = match seen {
        Ok(found) => found,
        Err(e) if e.errno == Errno::ENOENT && action == Action::TrashRemove => {
            return Err(no_image("error retrieving image from trash"));
        }
        Err(e) if e.errno == Errno::ENOENT => {
            return Err(no_image(format_args!("Image {spec} does not exist")));
        }
        Err(e) => return Err(super::failed(e)),
    };
    check(found)?;
    c.add_task(action, spec, &found.id, message).map(Answer::json_line)
}

fn add_flatten(c: &mut Cluster, call: &Call, seen: &Seen) -> Reply {
    let spec = image_spec(call, "image_spec")?;
    let message = format!("Flattening image {spec}");
    add(c, Action::Flatten, &spec, seen, message, |found| {
        if !found.has_parent {
            return Err(no_image(format_args!("Image {spec} does not have a parent")));
        }
        if found.has_journal {
            let text = format_args!(
                "image {spec} has the feature journaling, and is not flattened in the background; \
                 `rbd flatten {spec}` does it"
            );
            return Err(CommandError::unsupported(text));
        }
        Ok(())
    })
}

fn add_remove(c: &mut Cluster, call: &Call, seen: &Seen) -> Reply {
    let spec = image_spec(call, "image_spec")?;
    let message = format!("Removing image {spec}");
    add(c, Action::Remove, &spec, seen, message, |found| match found.has_snaps {
        false => Ok(()),
        true => {
            let why = format_args!("Image {spec} has snapshots");
            Err(CommandError::busy(format_args!("[errno 16] RBD image is busy ({why})")))
        }
    })
}

fn add_trash_remove(c: &mut Cluster, call: &Call, seen: &Seen) -> Reply {
    let spec = image_spec(call, "image_id_spec")?;
    let message = format!("Removing image {spec} from trash");
    add(c, Action::TrashRemove, &spec, seen, message, |_| Ok(()))
}

/// An image that migrates is more than our client can open; `rbd` moves it itself.
fn migrate(_: &mut Cluster, call: &Call, seen: &Seen) -> Reply {
    let spec = image_spec(call, "image_spec")?;
    let refuse = |why: std::fmt::Arguments<'_>| {
        CommandError::invalid(format_args!("[errno 22] RBD invalid argument ({why})"))
    };
    Err(match seen {
        Ok(_) => refuse(format_args!("Image {spec} is not migrating")),
        Err(e) if e.errno == Errno::ENOENT => refuse(format_args!(
            "Image {spec} is not migrating; one that does has the name of where it goes to"
        )),
        Err(_) => CommandError::unsupported(format_args!(
            "images are not migrated in the background; `rbd migration` with the last word of this \
             command does at once what the task would do"
        )),
    })
}

fn no_task(id: &str) -> CommandError {
    CommandError::not_found(format_args!("No such task {id}"))
}

fn cancel(c: &mut Cluster, call: &Call) -> Reply {
    let id = call.args.text("task_id");
    if c.cancel_task(&id) { Ok(Answer::ok()) } else { Err(no_task(&id)) }
}

fn list(c: &Cluster, call: &Call) -> Reply {
    match call.args.str("task_id") {
        Some(id) => c.tasks.json_of(&id).map(Answer::json).ok_or_else(|| no_task(&id)),
        None => Ok(Answer::json(c.tasks.json())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use crate::tasks::Tasks;
    use serde_json::{Value, json};

    /// A clone, a parent, and an image in the trash.
    fn bench() -> (Bench, PoolId) {
        let mut bench = Bench::new();
        let create = json!({"prefix": "osd pool create", "pool": "rbd", "pg_num": 8});
        assert_eq!(bench.run(&create).0, 0);
        let pool = bench.c.map().pool_by_name("rbd").unwrap();
        let found = |id: &str, has_parent, has_snaps| Found {
            id: id.into(),
            has_parent,
            has_snaps,
            ..Found::default()
        };
        let journaled = Found { has_journal: true, ..found("4", true, false) };
        let images = [
            ("clone", found("1", true, false)),
            ("parent", found("2", false, true)),
            ("journaled", journaled),
        ];
        for (name, found) in images {
            let (nspace, name) = (String::new(), name.to_owned());
            let removed = Question::Removable(pool, nspace.clone(), name.clone());
            bench.images.insert(removed, found.clone());
            bench.images.insert(Question::Image(pool, nspace, name), found);
        }
        // What it is a clone of is gone.
        let orphan = Question::Removable(pool, String::new(), "orphan".to_owned());
        bench.images.insert(orphan, found("5", true, false));
        let trashed = Question::Trashed(pool, "n".to_owned(), "3".to_owned());
        bench.images.insert(trashed, found("3", false, false));
        (bench, pool)
    }

    fn add(bench: &mut Bench, what: &str, spec: &str) -> Result<Value, (i32, String)> {
        let field = if what == "trash remove" { "image_id_spec" } else { "image_spec" };
        let prefix = format!("rbd task add {what}");
        let (r, outs, out) = bench.run(&json!({"prefix": prefix, field: spec}));
        if r == 0 { Ok(serde_json::from_slice(&out).unwrap()) } else { Err((r, outs)) }
    }

    fn list(bench: &mut Bench) -> Value {
        let (_, _, out) = bench.run(&json!({"prefix": "rbd task list"}));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn what_cannot_be_done_is_refused_in_the_words_of_ceph() {
        let (mut bench, _) = bench();
        for (what, spec, errno, text) in [
            (
                "migration execute",
                "clone",
                -22,
                "[errno 22] RBD invalid argument (Image rbd/clone is not migrating)",
            ),
            (
                "migration commit",
                "no",
                -22,
                "[errno 22] RBD invalid argument (Image rbd/no is not migrating; one that does has \
                 the name of where it goes to)",
            ),
            ("migration abort", "clone@s", -22, "Invalid image spec: clone@s"),
            (
                "flatten",
                "journaled",
                -95,
                "image rbd/journaled has the feature journaling, and is not flattened in the \
                 background; `rbd flatten rbd/journaled` does it",
            ),
            ("flatten", "no", -2, "[errno 2] RBD image not found (Image rbd/no does not exist)"),
            ("flatten", "no/x", -2, "[errno 2] RADOS object not found (error opening pool 'no')"),
            (
                "flatten",
                "rbd/parent",
                -2,
                "[errno 2] RBD image not found (Image rbd/parent does not have a parent)",
            ),
            (
                "remove",
                "parent",
                -16,
                "[errno 16] RBD image is busy (Image rbd/parent has snapshots)",
            ),
            ("remove", "a@b", -22, "Invalid image spec: a@b"),
            ("remove", "a//b", -22, "Invalid image spec: a//b"),
            ("flatten", "x/y/z/w", -22, "Invalid image spec: x/y/z/w"),
            (
                "trash remove",
                "3",
                -2,
                "[errno 2] RBD image not found (error retrieving image from trash)",
            ),
        ] {
            assert_eq!(add(&mut bench, what, spec), Err((errno, text.to_owned())));
        }
        assert_eq!(list(&mut bench), json!([]));
    }

    /// Who removes a clone does not need what it is a clone of.
    #[test]
    fn a_clone_whose_parent_is_gone_is_removed() {
        let (mut bench, _) = bench();
        assert!(add(&mut bench, "flatten", "orphan").is_err());
        let task = add(&mut bench, "remove", "orphan").unwrap();
        assert_eq!(task["refs"]["image_id"], "5");
    }

    #[test]
    fn tasks_are_kept_and_found_again() {
        let (mut bench, _) = bench();
        let flatten = add(&mut bench, "flatten", "clone").unwrap();
        let refs = json!({
            "action": "flatten", "pool_name": "rbd", "pool_namespace": "", "image_name": "clone",
            "image_id": "1",
        });
        assert_eq!((&flatten["sequence"], &flatten["refs"]), (&json!(1), &refs));
        assert_eq!(flatten["message"], "Flattening image rbd/clone");
        assert_eq!(add(&mut bench, "flatten", "rbd/clone").unwrap(), flatten, "the same one");
        let trash = add(&mut bench, "trash remove", "rbd/n/3").unwrap();
        assert_eq!(trash["message"], "Removing image rbd/n/3 from trash");
        assert_eq!(list(&mut bench), json!([flatten, trash]));
        // After a restart of the mon.
        bench.c.tasks = Tasks::load(&bench.c.state);
        assert_eq!(list(&mut bench), json!([flatten, trash]));
        let cancel = |bench: &mut Bench, id: &Value| {
            let (r, outs, _) = bench.run(&json!({"prefix": "rbd task cancel", "task_id": id}));
            (r, outs)
        };
        assert_eq!(cancel(&mut bench, &trash["id"]).0, 0);
        let gone = format!("No such task {}", trash["id"].as_str().unwrap());
        assert_eq!(cancel(&mut bench, &trash["id"]), (-2, gone));
        assert_eq!(list(&mut bench), json!([flatten]));
        let next = add(&mut bench, "remove", "clone").unwrap();
        assert_eq!(next["sequence"], 3);
    }

    fn error(errno: Errno) -> client::ClientError {
        client::ClientError { errno, what: "work".into(), why: "why".into(), reply: None }
    }

    #[test]
    fn a_task_that_fails_for_now_is_tried_again() {
        let (mut bench, _) = bench();
        let task = add(&mut bench, "flatten", "clone").unwrap();
        let begin = |bench: &mut Bench| {
            let due = bench.c.tasks.due(bench.now()).map(|(n, _)| n);
            due.inspect(|n| bench.c.tasks.begin(bench.now(), *n))
        };
        for wait_s in [30, 60, 90] {
            assert_eq!(begin(&mut bench), Some(1));
            assert_eq!(begin(&mut bench), None, "one at a time");
            bench.c.tasks.set_progress(0.25);
            let shown = list(&mut bench);
            assert_eq!(
                (&shown[0]["in_progress"], &shown[0]["progress"]),
                (&json!(true), &json!(0.25))
            );
            let (_, _, out) = bench.run(&json!({"prefix": "progress"}));
            let out = String::from_utf8_lossy(&out).into_owned();
            let bar = "      [=======.....";
            assert!(out.starts_with("Flattening image rbd/clone (") && out.contains(bar), "{out}");
            let now = bench.now();
            bench.c.task_ended(now, Err(error(Errno::EBUSY)));
            assert_eq!(
                bench.c.tasks.next_deadline(),
                Some(now.mono.after(std::time::Duration::from_secs(wait_s)))
            );
            assert_eq!(begin(&mut bench), None, "not yet");
            bench.sleep(std::time::Duration::from_secs(wait_s));
        }
        let shown = &list(&mut bench)[0];
        assert_eq!(shown["retry_message"], "work: EBUSY (why)");
        assert_eq!((&shown["retry_attempts"], &shown["id"]), (&json!(3), &task["id"]));
        assert!(shown.get("in_progress").is_none());
        begin(&mut bench);
        bench.c.task_ended(bench.now(), Ok(()));
        assert_eq!(list(&mut bench), json!([]));
        // Whoever asks again, for the answer was lost, is told of it.
        assert_eq!(add(&mut bench, "flatten", "clone").unwrap()["id"], task["id"]);
        // What can never be done is not tried again.
        let remove = add(&mut bench, "remove", "clone").unwrap();
        begin(&mut bench);
        bench.c.task_ended(bench.now(), Err(error(Errno::ENOENT)));
        assert_eq!(list(&mut bench), json!([]));
        assert_ne!(add(&mut bench, "remove", "clone").unwrap()["id"], remove["id"]);
    }

    #[test]
    fn a_task_that_is_being_done_stops_when_it_is_canceled() {
        let (mut bench, _) = bench();
        let task = add(&mut bench, "flatten", "clone").unwrap();
        bench.c.tasks.begin(bench.now(), 1);
        assert!(!bench.c.must_stop_task());
        let cancel = json!({"prefix": "rbd task cancel", "task_id": task["id"]});
        assert_eq!(bench.run(&cancel).0, 0);
        assert!(bench.c.must_stop_task() && bench.c.state.tasks.is_empty());
        assert_eq!(list(&mut bench)[0]["canceled"], true);
        bench.c.task_ended(bench.now(), Err(error(Errno::ECANCELED)));
        assert!(!bench.c.must_stop_task());
        assert_eq!(list(&mut bench), json!([]));
        assert_ne!(add(&mut bench, "flatten", "clone").unwrap()["id"], task["id"]);
    }
}
