//! All rows of a store are in: what they say together, against bitmaps and counts.

use super::{Fsck, FsckReport, SpaceReport};
use crate::alloc::Allocator;
use crate::config::{HEAD_BLOCKS, TAIL_BLOCKS, reserve_blocks};
use crate::mount::replay::Replay;
use crate::superblock::Superblock;
use io::BLOCK_BYTES;

const GIVEN_UP: &str = "what each pool takes is not known, and no start of the OSD counts it; `loligo store count` does";

impl Fsck {
    /// All rows are in: compares sums.
    pub(super) fn compare(&mut self) -> Option<FsckReport> {
        self.report.nodes = self.walk.nodes;
        let Some(mut replay) = self.replay.take() else { return self.finish() };
        let sb = self.sb.clone().expect("the superblock was chosen before");
        self.report.clean = sb.clean && self.report.log_batches == 0;
        self.report.shared_blocks = self.rows.shared_blocks();
        self.report.data_blocks = self.rows.seen_blocks();
        self.report.node_blocks = self.walk.pages.iter().map(|p| u64::from(p.blocks)).sum();
        self.report.space = self.space(&sb, &replay);
        if self.incomplete {
            self.report.note("the whole store", "space and counts cannot be compared any more");
            return self.finish();
        }
        self.rows.compare(&replay.alloc, sb.total_blocks, &mut self.report);
        self.compare_nodes(&mut replay.alloc);
        let r = &self.report;
        let found = (r.objects, r.object_bytes, r.shared_blocks);
        let t = replay.totals;
        if found != (t.objects, t.bytes, t.shared) {
            let what = format!(
                "objects, bytes and shared blocks are counted as {:?}, but there are {found:?}",
                (t.objects, t.bytes, t.shared)
            );
            self.report.note("the store's counts", what);
        }
        self.compare_accounts(&replay);
        self.finish()
    }

    /// Sums of all data that are not known to be right are counted anew by a mount, and not told here; what compression
    /// did was always counted.
    fn compare_accounts(&mut self, replay: &Replay) {
        let (counted, found) = (&replay.accounts, self.rows.accounts());
        if counted.is_given_up() {
            self.report.note("the counts of accounts", GIVEN_UP);
            return;
        }
        let (all, all_found) = (counted.total(), found.total());
        let is_known = counted.is_known(replay.alloc.data_blocks());
        let is_right = match (is_known, self.config.account_of) {
            (true, Some(_)) => counted.iter().eq(found.iter()),
            (true, None) => all == all_found,
            (false, _) => all.packed == all_found.packed,
        };
        if !is_right {
            let [counted, found] = [counted, &found].map(|a| a.iter().collect::<Vec<_>>());
            let what = format!("they say {counted:?}, but there are {found:?}");
            self.report.note("the counts of accounts", what);
        }
    }

    /// What the space is used for.
    fn space(&self, sb: &Superblock, replay: &Replay) -> SpaceReport {
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_BYTES as u64);
        let (r, packed) = (&self.report, self.rows.accounts().total().packed);
        let log = if sb.wal.dev == 0 { sb.wal.blocks } else { 0 };
        let system = HEAD_BLOCKS + TAIL_BLOCKS;
        let used = [system, log, r.data_blocks, r.node_blocks].iter().sum();
        let free = sb.total_blocks.saturating_sub(used);
        SpaceReport {
            total: bytes(sb.total_blocks),
            system: bytes(system),
            log: bytes(log),
            log_used: bytes(replay.wal.used_blocks()),
            data: bytes(r.data_blocks),
            padding: self.rows.padding(),
            shared: bytes(r.shared_blocks),
            saved_by_sharing: bytes(self.rows.more_uses()),
            compressed: bytes(packed.blocks),
            compressed_original: bytes(packed.content),
            metadata: bytes(r.node_blocks),
            free: bytes(free),
            reserve: bytes(reserve_blocks(&self.config, sb.total_blocks).min(free)),
        }
    }

    fn compare_nodes(&mut self, alloc: &mut Allocator) {
        if let Err(block) = alloc.finish_load() {
            self.report.damage(format!("block {block}"), "data stands in a fixed area");
            return;
        }
        for ptr in &self.walk.pages {
            if !alloc.adopt_page(ptr.block, ptr.blocks) {
                let what = "a tree node stands where something else does";
                self.report.damage(format!("block {}", ptr.block), what);
            }
        }
    }
}
