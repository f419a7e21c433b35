//! Blocks that several extents share.

use super::{Plan, Planned};
use crate::alloc::Run;
use crate::keys;
use crate::rows::{REFS_BLOCKS, Refs};

impl Plan<'_> {
    fn refs(&self, region: u64) -> Planned<Refs> {
        match self.get(&keys::refs(region))? {
            None => Ok(Refs::default()),
            Some(row) => Refs::decode(&row).or_else(|why| self.problem(why.0)),
        }
    }

    fn put_refs(&mut self, region: u64, refs: &Refs) {
        let row = (!refs.is_empty()).then(|| refs.encode());
        self.put(keys::refs(region), row);
    }

    /// One more extent refers to each block of a run.
    pub(super) fn add_references(&mut self, run: Run) -> Planned<()> {
        let mut at = run.start;
        while at < run.end() {
            let region = at / REFS_BLOCKS;
            let end = ((region + 1) * REFS_BLOCKS).min(run.end());
            let mut refs = self.refs(region)?;
            for block in at..end {
                let count = &mut refs.counts[(block % REFS_BLOCKS) as usize];
                if *count == 0 {
                    *count = 1;
                    self.out.delta.shared += 1;
                }
                if *count == u32::MAX {
                    return self.problem("a reference count is impossible");
                }
                *count += 1;
            }
            self.put_refs(region, &refs);
            at = end;
        }
        Ok(())
    }

    /// One extent less refers to each block of a run; those that it was the last for are freed.
    pub(super) fn drop_references(&mut self, run: Run) -> Planned<()> {
        let mut at = run.start;
        while at < run.end() {
            let region = at / REFS_BLOCKS;
            let end = ((region + 1) * REFS_BLOCKS).min(run.end());
            let mut refs = self.refs(region)?;
            let mut changed = false;
            for block in at..end {
                let count = &mut refs.counts[(block % REFS_BLOCKS) as usize];
                changed |= *count > 0;
                match *count {
                    0 => self.free_block(block),
                    2 => {
                        *count = 0;
                        self.out.delta.shared -= 1;
                    }
                    _ => *count -= 1,
                }
            }
            if changed {
                self.put_refs(region, &refs);
            }
            at = end;
        }
        Ok(())
    }

    /// Whether no other extent refers to a block that once was shared.
    pub(super) fn is_sole_owner(&self, block: u64) -> Planned<bool> {
        let refs = self.refs(block / REFS_BLOCKS)?;
        Ok(refs.counts[(block % REFS_BLOCKS) as usize] == 0)
    }
}
