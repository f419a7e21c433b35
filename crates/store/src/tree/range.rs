//! Which nodes the rows of a range are in, found by their parents alone.

use super::cache::PageCache;
use super::node::PagePtr;
use super::{Tree, TreeMiss, fetch};

/// The nodes of a range, as far as they are known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeNodes {
    /// Those that are not in memory, in order; no more than were asked for.
    pub missing: Vec<PagePtr>,
    /// Leaves, in memory or not.
    pub leaves: u64,
}

/// What is looked for.
pub(crate) struct RangeSearch<'a> {
    pub pages: &'a PageCache,
    /// Whether nothing between two keys is wanted.
    pub hidden: &'a dyn Fn(&[u8], &[u8]) -> bool,
    /// Nodes that are asked for together.
    pub most: usize,
}

impl Tree {
    /// The nodes of `from..to`.
    pub fn nodes_of(
        &self,
        search: &RangeSearch<'_>,
        from: &[u8],
        to: &[u8],
    ) -> Result<RangeNodes, TreeMiss> {
        let mut out = RangeNodes::default();
        if let Some(root) = self.root
            && from < to
        {
            search.visit((root, self.level), (from, to), &mut out)?;
        }
        Ok(out)
    }
}

impl RangeSearch<'_> {
    /// Goes through a node, of which what is in `low..high` is wanted.
    fn visit(
        &self,
        (ptr, level): (PagePtr, u8),
        (low, high): (&[u8], &[u8]),
        out: &mut RangeNodes,
    ) -> Result<(), TreeMiss> {
        out.leaves += u64::from(level == 0);
        if !self.pages.contains(ptr) {
            if out.missing.len() < self.most {
                out.missing.push(ptr);
            }
            return Ok(());
        }
        if level == 0 {
            return Ok(());
        }
        let node = fetch(self.pages, ptr, level)?;
        let first = node.child_index(low);
        let starts = (first..node.count()).map(|i| (i, node.key(i)));
        // The first child also has what is before its key.
        for (i, start) in starts.take_while(|(i, key)| *i == first || key.as_slice() < high) {
            let end = (i + 1 < node.count()).then(|| node.key(i + 1));
            let start = start.as_slice().max(low);
            let end = end.as_ref().map_or(high, |key| key.as_slice().min(high));
            if !(self.hidden)(start, end) {
                self.visit((node.child(i), level - 1), (start, end), out)?;
            }
        }
        Ok(())
    }
}
