//! Tests: a flush makes durable what had completed when it was asked for, and nothing else.

use crate::{NodeId, World};
use io::disk::{DevId, DiskOp, DiskToken, WriteMode};
use io::{BLOCK_BYTES, Core, Effects, Event, Now};
use smallvec::smallvec;
use std::time::Duration;
use types::Mono;

const SOON: Duration = Duration::from_secs(1);
const DEV: DevId = DevId(0);
const WRITE: DiskToken = DiskToken(1);
const FLUSH: (DiskToken, DiskOp) = (DiskToken(2), DiskOp::Flush { dev: DEV });

/// Writes a block, and flushes when it is written, or at once.
struct Writer {
    waits: bool,
}

impl Core for Writer {
    fn handle(&mut self, _: Now, event: Event, fx: &mut Effects) {
        match event {
            Event::Start => {
                let (data, mode) = (smallvec![vec![1; BLOCK_BYTES].into()], WriteMode::Plain);
                fx.disk.push((WRITE, DiskOp::Write { dev: DEV, offset: 0, data, mode }));
                if !self.waits {
                    fx.disk.push(FLUSH);
                }
            }
            Event::Disk(done) if done.token == WRITE && self.waits => fx.disk.push(FLUSH),
            _ => {}
        }
    }
    fn end_turn(&mut self, _: Now, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}

/// Of so many worlds, in how many what was written is not whole after a crash.
fn lost(waits: bool, worlds: u64) -> usize {
    let is_lost = |seed: &u64| {
        let mut world = World::new(*seed);
        let boot = Box::new(move |_: &[_], _| Box::new(Writer { waits }) as Box<dyn Core>);
        let node: NodeId = world.add_node(&[1 << 20], false, boot);
        world.start(node);
        world.run_for(SOON);
        world.crash(node);
        let block = world.disk(node, 0).read(0, BLOCK_BYTES).expect("it can be read");
        block.iter().any(|byte| *byte != 1)
    };
    (0..worlds).filter(is_lost).count()
}

#[test]
fn a_flush_that_is_asked_for_too_early_makes_nothing_durable() {
    assert_eq!(lost(true, 100), 0);
    assert!(lost(false, 100) > 50);
}
