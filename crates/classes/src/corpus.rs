//! Our methods and types against what real clients and OSDs of Ceph 16.2.15 said (`vectors`).

use crate::testing::MemObject;
use bytes::Bytes;
use denc::{Decode, Encode};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use types::{EntityAddr, EntityName, Errno, UTime};

fn vectors(path: &str) -> Value {
    let path = format!("{}/../../vectors/{path}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))).unwrap()
}

pub fn unhex(hex: &str) -> Bytes {
    let digit = |i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// Decodes all samples of a type and encodes them again.
pub fn check_type<T: Encode + Decode>(name: &str) {
    let samples = vectors(&format!("enc/{name}.json"));
    let tests = samples["tests"].as_array().unwrap();
    assert!(!tests.is_empty(), "{name}");
    for test in tests {
        let bytes = unhex(test["hex"].as_str().unwrap());
        let value: T = denc::decode_all(&bytes).unwrap_or_else(|e| panic!("{name}: {e}: {test}"));
        assert_eq!(denc::encode(&value), bytes, "{name} {test}");
        for cut in 0..bytes.len() {
            assert!(denc::decode::<T>(&bytes.slice(..cut)).is_err(), "{name} cut at {cut}");
        }
    }
}

/// The captured calls, and which of the methods were tried.
struct Calls {
    calls: Value,
    tried: RefCell<BTreeSet<String>>,
}

impl Calls {
    fn call(&self, method: &str, i: usize) -> &Value {
        self.tried.borrow_mut().insert(method.to_owned());
        &self.calls[method][i]
    }

    /// Makes a captured call; its answer must be the captured one.
    fn check(&self, o: &mut MemObject, method: &str, i: usize) {
        let (call, answer) = self.make(o, method, i);
        let expected = match call["result"].as_i64().unwrap() {
            0 => Ok(unhex(call["out"].as_str().unwrap())),
            errno => Err(Errno(-errno as i32)),
        };
        assert_eq!(answer, expected, "{method} {i}: {call}");
    }

    /// Makes several captured calls, each the first of its method.
    fn check_all(&self, o: &mut MemObject, methods: &str) {
        methods.split_whitespace().for_each(|method| self.check(o, method, 0));
    }

    /// Makes a captured call.
    fn make(&self, o: &mut MemObject, method: &str, i: usize) -> (&Value, Result<Bytes, Errno>) {
        let call = self.call(method, i);
        let input = unhex(call["in"].as_str().unwrap_or_else(|| panic!("no {method} {i}")));
        (call, o.call(method, input))
    }

    /// A part of a captured answer, decoded: what the cluster made up.
    fn part<T: Decode>(&self, method: &str, i: usize, from: usize) -> T {
        let out = unhex(self.call(method, i)["out"].as_str().unwrap());
        denc::decode(&out.slice(from..)).unwrap()
    }
}

fn create_input(size: u64, id: &str) -> Bytes {
    denc::encode(&((size, 22u8, 0x3du64), format!("rbd_data.{id}"), -1i64))
}

#[test]
fn captured_calls_have_the_captured_answers() {
    let calls = Calls { calls: vectors("cls/methods.json"), tried: RefCell::default() };
    new_image(&calls);
    object_maps(&calls);
    snapshots(&calls);
    clones(&calls);
    directory(&calls);
    others(&calls);
    locks(&calls);
    let all: BTreeSet<String> =
        calls.calls.as_object().unwrap().keys().map(String::clone).collect();
    let untried: Vec<_> = all.difference(&calls.tried.borrow()).cloned().collect();
    assert_eq!(untried, [""; 0]);
}

fn new_image(c: &Calls) {
    let mut o = MemObject::empty();
    o.now = c.part("rbd.get_create_timestamp", 0, 0);
    c.check_all(
        &mut o,
        "rbd.create rbd.get_size rbd.get_features rbd.get_object_prefix rbd.get_data_pool
         rbd.get_create_timestamp rbd.get_access_timestamp rbd.get_modify_timestamp rbd.get_flags
         rbd.get_snapcontext rbd.parent_get rbd.parent_overlap_get rbd.image_group_get
         rbd.get_all_features lock.get_info",
    );
    assert_eq!(c.make(&mut o, "rbd.create", 0).1, Err(Errno::EEXIST));
    let before = o.now;
    o.now = UTime { sec: before.sec + 1, nsec: 0 };
    c.check_all(&mut o, "rbd.set_access_timestamp rbd.set_modify_timestamp rbd.set_size");
    assert_eq!(o.get::<_, UTime>("rbd.get_modify_timestamp", ()), Ok(o.now));
    assert_eq!(o.get::<_, UTime>("rbd.get_create_timestamp", ()), Ok(before));
    assert_eq!(o.ask("rbd.get_size", u64::MAX - 1), Ok(denc::encode(&(22u8, 0x80_0000u64))));

    let mut striped = MemObject::empty();
    c.check(&mut striped, "rbd.create", 1);
    c.check(&mut striped, "rbd.set_stripe_unit_count", 0);
    let stripes = striped.get::<_, (u64, u64)>("rbd.get_stripe_unit_count", ());
    assert_eq!(stripes, Ok((65536, 4)));

    let mut id = MemObject::empty();
    assert_eq!(c.make(&mut id, "rbd.get_id", 0).1, Err(Errno::ENOENT));
    c.check_all(&mut id, "rbd.set_id rbd.get_id");
    c.check(&mut MemObject::empty(), "rbd.set_id", 1);
    c.check(&mut MemObject::new(), "rbd.get_id", 1);
}

fn object_maps(c: &Calls) {
    let mut o = MemObject::new();
    c.check_all(&mut o, "rbd.object_map_resize rbd.object_map_load");
    c.check(&mut o, "lock.lock", 1);
    c.check_all(&mut o, "lock.assert_locked rbd.object_map_update");
    c.check(&mut o, "rbd.object_map_update", 1);
    c.check(&mut o, "lock.unlock", 0);
    let mut o = MemObject::new();
    c.check_all(&mut o, "rbd.object_map_save");
    c.check(&mut o, "rbd.object_map_load", 1);
    c.check_all(&mut o, "rbd.object_map_snap_add rbd.object_map_snap_remove");
    c.check(&mut o, "rbd.object_map_snap_remove", 1);
}

fn snapshots(c: &Calls) {
    let mut o = MemObject::empty();
    o.call("rbd.create", create_input(64 << 20, "1072aa3b6021")).unwrap();
    // The answer's last four bytes are the number of clones, eight before them the time.
    let made = unhex(c.call("rbd.snapshot_get", 0)["out"].as_str().unwrap());
    o.now = denc::decode(&made.slice(made.len() - 12..)).unwrap();
    o.run("rbd.snapshot_add", ("s1", 4u64)).unwrap();
    c.check(&mut o, "rbd.snapshot_get", 0);
    c.check(&mut o, "rbd.get_snapcontext", 1);
    c.check_all(&mut o, "rbd.get_protection_status rbd.children_list rbd.set_protection_status");
    assert_eq!(c.make(&mut o, "rbd.snapshot_trash_add", 0).1, Err(Errno::EBUSY));
    assert_eq!(c.make(&mut o, "rbd.snapshot_remove", 0).1, Err(Errno::EBUSY));
    o.run("rbd.set_protection_status", (4u64, 0u8)).unwrap();
    c.check_all(&mut o, "rbd.snapshot_rename rbd.snapshot_trash_add");
    // All but the random name, and s2 for s1.
    let (call, answer) = c.make(&mut o, "rbd.snapshot_get", 1);
    let (expected, answer) = (unhex(call["out"].as_str().unwrap()), answer.unwrap());
    let name = expected.windows(4).position(|w| w == [36, 0, 0, 0]).unwrap() + 4;
    assert_eq!(answer[..name], expected[..name]);
    assert_eq!(answer[name + 36..], expected[name + 36..]);
    assert_eq!(o.get::<_, u64>("rbd.op_features_get", ()), Ok(8));
    c.check_all(&mut o, "rbd.snapshot_remove rbd.set_features rbd.set_flags");
    assert_eq!(o.get::<_, u64>("rbd.op_features_get", ()), Ok(0));
    assert_eq!(o.get::<_, (u64, u64)>("rbd.get_features", 0u64), Ok((0x25, 0x25)));
    c.check_all(&mut o, "rbd.metadata_set rbd.metadata_get");
    c.check(&mut o, "rbd.metadata_list", 2);
    c.check_all(&mut o, "rbd.metadata_remove");
    c.check(&mut o, "rbd.metadata_list", 1);
    c.check(&mut o, "rbd.metadata_set", 1);
    c.check(&mut o, "rbd.metadata_list", 3);
    c.check(&mut o, "rbd.metadata_list", 4);
    c.check(&mut MemObject::empty(), "rbd.metadata_list", 0);
    c.check(&mut MemObject::new(), "rbd.metadata_list", 5);

    let mut o = MemObject::empty();
    o.call("rbd.create", create_input(1 << 20, "108af39bd8ea")).unwrap();
    c.check_all(&mut o, "rbd.snapshot_add");
    let made = unhex(c.call("rbd.snapshot_get", 2)["out"].as_str().unwrap());
    o.now = denc::decode(&made.slice(made.len() - 12..)).unwrap();
    o.run("rbd.snapshot_remove", 6u64).unwrap();
    c.check(&mut o, "rbd.snapshot_add", 0);
    c.check(&mut o, "rbd.snapshot_get", 2);
}

fn clones(c: &Calls) {
    let mut child = MemObject::empty();
    child.call("rbd.create", create_input(64 << 20, "107e3c2030a2")).unwrap();
    c.check_all(&mut child, "rbd.parent_attach rbd.op_features_set");
    c.check(&mut child, "rbd.parent_get", 1);
    c.check(&mut child, "rbd.parent_overlap_get", 1);
    c.check_all(&mut child, "rbd.parent_detach");
    c.check(&mut child, "rbd.parent_get", 0);

    let mut parent = MemObject::empty();
    parent.call("rbd.create", create_input(8 << 20, "10bef43ff2da")).unwrap();
    parent.run("rbd.snapshot_add", ("s", 8u64)).unwrap();
    c.check_all(&mut parent, "rbd.child_attach rbd.op_features_get");
    c.check(&mut parent, "rbd.children_list", 1);
    c.check_all(&mut parent, "rbd.child_detach");

    let mut children = MemObject::empty();
    c.check(&mut MemObject::new(), "rbd.get_children", 0);
    c.check(&mut children, "rbd.get_children", 1);
    c.check_all(&mut children, "rbd.add_child");
    c.check(&mut children, "rbd.get_children", 2);
    c.check_all(&mut children, "rbd.remove_child");
    let mut data = MemObject::new();
    c.check_all(&mut data, "rbd.sparse_copyup");
    assert!(data.state.exists);
}

fn directory(c: &Calls) {
    let mut o = MemObject::new();
    o.run("rbd.dir_add_image", ("img1", "1072aa3b6021")).unwrap();
    c.check(&mut o, "rbd.dir_add_image", 1);
    c.check_all(&mut o, "rbd.dir_list rbd.dir_get_id rbd.dir_get_name");
    c.check(&mut o, "rbd.dir_get_name", 1);
    c.check(&mut o, "rbd.dir_get_name", 2);
    o.run("rbd.dir_add_image", ("imp2", "10bc3af2ceb9")).unwrap();
    c.check_all(&mut o, "rbd.dir_rename_image rbd.dir_remove_image rbd.dir_state_set");
    c.check_all(&mut o, "rbd.dir_state_assert rbd.dir_add_image");
    o.run("rbd.dir_remove_image", ("qimg", "10e61a6d12c5")).unwrap();
    c.check(&mut o, "rbd.dir_add_image", 2);
    for (name, id) in [("imp1", "108af39bd8ea"), ("imp3", "10bef43ff2da"), ("c2", "10dade748e4d")] {
        o.run("rbd.dir_add_image", (name, id)).unwrap();
    }
    c.check(&mut o, "rbd.dir_list", 1);
}

fn others(c: &Calls) {
    let mut trash = MemObject::new();
    c.check(&mut trash, "rbd.trash_list", 0);
    c.check_all(&mut trash, "rbd.trash_add");
    let added = unhex(c.call("rbd.trash_add", 0)["in"].as_str().unwrap());
    let (id, spec) = added.split_at(4 + 12);
    assert_eq!(trash.call("rbd.trash_get", id).unwrap(), spec);
    c.check(&mut trash, "rbd.trash_get", 1);
    assert_eq!(c.make(&mut trash, "rbd.trash_add", 0).1, Err(Errno::EEXIST));
    assert_eq!(c.make(&mut trash, "rbd.trash_state_set", 0).1, Err(Errno::ESTALE));
    c.check_all(&mut trash, "rbd.trash_remove");
    c.check(&mut trash, "rbd.trash_list", 1);
    let spec = unhex(c.call("rbd.trash_get", 0)["out"].as_str().unwrap());
    trash.call("rbd.trash_add", [id, &spec].concat()).unwrap();
    c.check_all(&mut trash, "rbd.trash_get rbd.trash_state_set rbd.trash_remove");

    let mut namespaces = MemObject::new();
    c.check_all(&mut namespaces, "rbd.namespace_add rbd.namespace_list");
    c.check(&mut MemObject::new(), "rbd.mirror_image_get", 0);
    c.check(&mut MemObject::empty(), "rbd.mirror_image_remove", 0);
    for class_or_method in ["nocls.x", "lock.nomethod"] {
        c.check(&mut MemObject::empty(), class_or_method, 0);
    }
}

fn locks(c: &Calls) {
    let mut header = MemObject::empty();
    c.check(&mut header, "lock.lock", 0);
    c.check(&mut header, "lock.unlock", 1);
    c.check(&mut header, "lock.get_info", 1);
    let user = (Bytes::from_static(b"rbd_lock"), 2u8, Bytes::from_static(b"lk"));
    let rest = ((Bytes::new(), Bytes::new()), (UTime::ZERO, 0u8));
    let mut e = denc::Encoder::new();
    e.section(1, 1, |e| {
        e.put(&user).put(&rest);
    });
    header.client = 0x109a;
    header.call("lock.lock", e.into_bytes()).unwrap();
    c.check_all(&mut header, "lock.break_lock");

    let mut map = MemObject::empty();
    c.check(&mut map, "lock.unlock", 2);
    c.check(&mut map, "lock.lock", 1);
    c.check(&mut map, "lock.lock", 3);

    // With the address of the captured client the answer is the same to the byte.
    let mut o = MemObject::new();
    let id = 4 + 6 + 6;
    let name: EntityName = c.part("lock.get_info", 2, id);
    let locker = id + 9 + 4 + 2 + 6;
    let addr: EntityAddr = c.part("lock.get_info", 2, locker + 8);
    o.inst = Some((name, addr));
    c.check(&mut o, "lock.lock", 2);
    c.check(&mut o, "lock.get_info", 2);
    c.check_all(&mut o, "lock.list_locks");
}
