use crate::run;
use bytes::Bytes;
use io::disk::{DevId, DiskError, DiskOp, DiskToken, WriteMode};
use io::{AlignedBuf, Event};
use rustix::fs::{Mode, OFlags};
use smallvec::smallvec;
use std::path::PathBuf;
use std::process::Command;
use types::Mono;
use uring::{Open, Unusable, open};

const DEV: DevId = DevId(0);
const MIB: u64 = 1 << 20;

fn block(fill: u8, blocks: usize) -> Bytes {
    let mut buf = AlignedBuf::zeroed(4096 * blocks);
    buf.as_mut_slice().fill(fill);
    buf.freeze()
}

#[test]
fn what_is_written_is_read_back_aligned_or_not() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let device = open(&dir.path().join("disk"), Open::Create { bytes: MIB }).unwrap();
    assert_eq!(device.info.bytes, MIB);
    let mut step = 0;
    run(vec![device], |_, event, fx| {
        let op = match (&event, step) {
            (Event::Start, _) => DiskOp::Write {
                dev: DEV,
                offset: 8192,
                data: smallvec![block(1, 1), block(2, 2)],
                mode: WriteMode::Durable,
            },
            (Event::Disk(done), 1) => {
                done.result.as_ref().unwrap();
                // Pieces that are neither aligned nor whole blocks.
                let piece = block(3, 1);
                let data = smallvec![piece.slice(1..3001), piece.slice(..1096)];
                DiskOp::Write { dev: DEV, offset: 0, data, mode: WriteMode::Plain }
            }
            (Event::Disk(_), 2) => DiskOp::Flush { dev: DEV },
            (Event::Disk(_), 3) => DiskOp::Read { dev: DEV, offset: 0, len: 5 * 4096 },
            (Event::Disk(done), 4) => {
                let data = done.result.as_ref().unwrap();
                let fills: Vec<u8> = data.chunks(4096).map(|c| c[77]).collect();
                assert_eq!(fills, [3, 0, 1, 2, 2]);
                assert!(AlignedBuf::is_aligned(data));
                DiskOp::Discard { dev: DEV, offset: 8192, len: 4096 }
            }
            (Event::Disk(done), 5) => {
                done.result.as_ref().unwrap();
                DiskOp::Read { dev: DEV, offset: MIB, len: 4096 }
            }
            (Event::Disk(done), _) => {
                // Beyond the end: an error, never fewer bytes.
                assert_eq!(done.result, Err(DiskError::Short { done: 0, wanted: 4096 }));
                fx.exit(0, "done");
                return;
            }
            _ => return,
        };
        step += 1;
        fx.disk.push((DiskToken(step), op));
    });
}

/// Nobody is woken for them, and yet they end, also when nothing else happens; more of them than their ring
/// takes at once, too.
#[test]
fn writes_that_nobody_waits_for_end() {
    const WRITES: u64 = 200;
    let dir = tempfile::tempdir_in(".").unwrap();
    let bytes = WRITES * 4096;
    let device = open(&dir.path().join("disk"), Open::Create { bytes }).unwrap();
    let mut ended = 0;
    run(vec![device], |_, event, fx| match event {
        Event::Start => {
            for n in 0..WRITES {
                let data = smallvec![block(n as u8, 1)];
                let mode = WriteMode::Lazy;
                let op = DiskOp::Write { dev: DEV, offset: n * 4096, data, mode };
                fx.disk.push((DiskToken(n), op));
            }
        }
        Event::Disk(done) if done.token.0 < WRITES => {
            assert_eq!(done.result, Ok(Bytes::new()));
            ended += 1;
            if ended == WRITES {
                let read = DiskOp::Read { dev: DEV, offset: 0, len: bytes as usize };
                fx.disk.push((DiskToken(WRITES), read));
            }
        }
        Event::Disk(done) => {
            let data = done.result.unwrap();
            assert!(data.chunks(4096).enumerate().all(|(n, c)| c.iter().all(|b| *b == n as u8)));
            fx.exit(0, "done");
        }
        _ => {}
    });
    assert_eq!(ended, WRITES);
}

#[test]
fn a_write_of_more_pieces_than_the_kernel_takes_is_written_whole() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let bytes = 1500 * 4096;
    let device = open(&dir.path().join("disk"), Open::Create { bytes }).unwrap();
    let mut step = 0;
    run(vec![device], |_, event, fx| {
        let op = match (&event, step) {
            (Event::Start, _) => {
                let data = (0..1500).map(|n: u32| block(n as u8, 1)).collect();
                DiskOp::Write { dev: DEV, offset: 0, data, mode: WriteMode::Plain }
            }
            (Event::Disk(done), 1) => {
                done.result.as_ref().unwrap();
                DiskOp::Read { dev: DEV, offset: 0, len: bytes as usize }
            }
            (Event::Disk(done), _) => {
                let data = done.result.as_ref().unwrap();
                let mut blocks = data.chunks(4096).enumerate();
                assert!(blocks.all(|(n, c)| c.iter().all(|b| *b == n as u8)));
                fx.exit(0, "done");
                return;
            }
            _ => return,
        };
        step += 1;
        fx.disk.push((DiskToken(step), op));
    });
}

#[test]
fn many_operations_in_flight_all_end() {
    const MANY: u64 = 2000;
    let dir = tempfile::tempdir_in(".").unwrap();
    let device = open(&dir.path().join("disk"), Open::Create { bytes: 16 * MIB }).unwrap();
    let mut seen = vec![false; MANY as usize];
    let (mut turn, mut in_turn) = (Mono::default(), 0);
    run(vec![device], |now, event, fx| match event {
        Event::Start => {
            for i in 0..MANY {
                let op = DiskOp::Write {
                    dev: DEV,
                    offset: i * 4096,
                    data: smallvec![block(i as u8, 1)],
                    mode: WriteMode::Plain,
                };
                fx.disk.push((DiskToken(i), op));
            }
        }
        Event::Disk(done) => {
            done.result.unwrap();
            assert!(!std::mem::replace(&mut seen[done.token.0 as usize], true));
            // What they bring about does not wait for all of them.
            in_turn = if turn == now.mono { in_turn + 1 } else { 1 };
            turn = now.mono;
            assert!(in_turn <= 32, "a turn takes up a few");
            if seen.iter().all(|s| *s) {
                fx.exit(0, "done");
            }
        }
        _ => {}
    });
}

#[test]
fn a_device_is_locked_and_clear_errors_are_given() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let path = dir.path().join("disk");
    assert!(open(&path, Open::Existing).unwrap_err().to_string().contains("no such file"));
    let held = open(&path, Open::Create { bytes: MIB }).unwrap();
    let err = open(&path, Open::Existing).unwrap_err().to_string();
    assert!(err.contains("in use by another process"), "{err}");
    drop(held);
    // An existing file is not touched by Create.
    assert_eq!(open(&path, Open::Create { bytes: 9 * MIB }).unwrap().info.bytes, MIB);
    let err = open(dir.path(), Open::Existing).unwrap_err().to_string();
    assert!(!err.is_empty());
    let huge = Open::Create { bytes: 1 << 50 };
    let big = dir.path().join("big");
    assert!(open(&big, huge).is_err());
    assert!(!big.exists(), "no half-made file stays");
}

/// What is mounted, or somebody's in another way, is not opened for writing.
#[test]
fn a_block_device_that_somebody_has_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk");
    std::fs::write(&file, vec![0; 1 << 20]).unwrap();
    let made = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
    let Some(made) = made.ok().filter(|made| made.status.success()) else {
        eprintln!("no loop device can be made here: nothing was tested");
        return;
    };
    let device = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim());
    let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    let somebody = rustix::fs::open(&device, flags, Mode::empty());
    let opened = open(&device, Open::Existing).map(drop);
    let looked_at = open(&device, Open::ReadOnly).map(drop);
    let had = somebody.is_ok();
    drop(somebody);
    let free = open(&device, Open::Existing).map(drop);
    let gone = Command::new("losetup").arg("--detach").arg(&device).status();
    assert!(had && gone.is_ok_and(|s| s.success()));
    assert_eq!(opened.map_err(|e| e.kind), Err(Unusable::InUse));
    assert!(looked_at.is_ok() && free.is_ok());
}
