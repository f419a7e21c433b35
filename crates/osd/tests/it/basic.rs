//! Requests against a healthy cluster, and one that is switched off.

use crate::client::object;
use crate::cluster::{Cluster, output};
use types::Errno;
use wire::msg::OsdOp;
use wire::msg::op::{Extent, OpCode};

fn write_full(data: &[u8]) -> OsdOp {
    let args = Extent { length: data.len() as u64, ..Extent::default() };
    OsdOp::new(OpCode::WRITEFULL, args).with_indata(data.to_vec())
}

fn read(offset: u64, length: u64) -> OsdOp {
    OsdOp::new(OpCode::READ, Extent { offset, length, ..Extent::default() })
}

fn stat() -> OsdOp {
    OsdOp::new(OpCode::STAT, Extent::default())
}

fn with_pool(seed: u64, osds: i32, size: u8) -> Cluster {
    let mut c = Cluster::new(seed, osds, Default::default());
    c.on_mon(|m| m.create_pool(1, "rbd", size, 1.max(size - 1), 8));
    c.wait_clean();
    c
}

#[test]
fn what_is_written_is_read() {
    let mut c = with_pool(1, 3, 3);
    assert_eq!(c.call(object(1, "a"), vec![stat()], false).result, -Errno::ENOENT.0);
    let data: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
    let reply = c.call(object(1, "a"), vec![write_full(&data)], true);
    assert_eq!(reply.result, 0);
    assert!(reply.user_version > 0);
    let got = c.call(object(1, "a"), vec![read(0, 0), stat()], false);
    assert_eq!(got.result, 0);
    assert_eq!(output(&got, 0), data);
    let got = c.call(object(1, "a"), vec![read(99_990, 4096)], false);
    assert_eq!(output(&got, 0), data[99_990..]);
}

#[test]
fn everything_survives_a_power_cut() {
    let mut c = with_pool(2, 3, 3);
    let names: Vec<_> = (0..40).map(|i| format!("object{i}")).collect();
    let data = |i: usize| vec![i as u8 + 1; 1000 * (i + 1)];
    for (i, name) in names.iter().enumerate() {
        assert_eq!(c.call(object(1, name), vec![write_full(&data(i))], true).result, 0);
    }
    (0..3).for_each(|i| c.crash(i));
    (0..3).for_each(|i| c.start(i));
    for (i, name) in names.iter().enumerate() {
        let got = c.call(object(1, name), vec![read(0, 0)], false);
        assert_eq!(got.result, 0, "{name}");
        assert_eq!(output(&got, 0), data(i), "{name}");
    }
    c.wait_clean();
}
