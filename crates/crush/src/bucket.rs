//! Buckets: items, their weights, and what each algorithm derives from them (`crush/builder.c`).
#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use crate::map::ItemId;
use crate::straw::straw_lengths;

/// A tree bucket's node numbers are bytes, so it holds no more items.
pub const MAX_TREE_ITEMS: usize = 64;

/// How a bucket chooses among its items (`crush_algorithm`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// All items have the same weight; a permutation decides.
    Uniform = 1,
    /// A linked list: good when items are only ever added.
    List = 2,
    /// A binary tree.
    Tree = 3,
    /// The longest straw wins; kept for old maps.
    Straw = 4,
    /// The longest straw wins, and a changed weight moves only what it must. The default.
    Straw2 = 5,
}

impl Algorithm {
    /// All of them, the one for new buckets first (`get_default_bucket_alg`).
    pub const PREFERRED: [Algorithm; 5] =
        [Algorithm::Straw2, Algorithm::Straw, Algorithm::Tree, Algorithm::List, Algorithm::Uniform];

    /// The algorithm with this number on the wire.
    pub fn from_wire(n: u8) -> Option<Self> {
        Self::PREFERRED.into_iter().find(|alg| alg.wire() == n)
    }

    /// The number on the wire.
    pub fn wire(self) -> u8 {
        self as u8
    }

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Uniform => "uniform",
            Algorithm::List => "list",
            Algorithm::Tree => "tree",
            Algorithm::Straw => "straw",
            Algorithm::Straw2 => "straw2",
        }
    }
}

/// The weights of a bucket's items, as its algorithm keeps them. All are 16.16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weights {
    /// One weight for every item.
    Uniform(u32),
    /// The weight of each item, and of it with all before it.
    List {
        /// Of each item.
        items: Vec<u32>,
        /// Of each item and all before it.
        sums: Vec<u32>,
    },
    /// The nodes of a binary tree in in-order numbering: item `i` is node `2i + 1`, and node
    /// `nodes.len() / 2` is the root. Node 0 is not used.
    Tree(Vec<u32>),
    /// The weight of each item, and the straw length it gives.
    Straw {
        /// Of each item.
        items: Vec<u32>,
        /// 16.16 factors on the hash.
        straws: Vec<u32>,
    },
    /// The weight of each item.
    Straw2(Vec<u32>),
}

/// An inner node of the hierarchy (`crush_bucket`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub(crate) id: ItemId,
    pub(crate) kind: u16,
    pub(crate) hash: u8,
    pub(crate) weight: u32,
    pub(crate) items: Vec<ItemId>,
    pub(crate) weights: Weights,
}

/// Why a bucket cannot be as it was asked to be.
pub(crate) type Refusal = &'static str;

const SUM_OVERFLOW: Refusal = "the sum of the weights does not fit 16.16 bits";
const UNEQUAL: Refusal = "uniform bucket items must all have identical weights";
const TREE_FULL: Refusal = "a tree bucket holds at most 64 items";

impl Bucket {
    /// A bucket of these items. `straw_version` is the tunable `straw_calc_version`.
    pub(crate) fn new(
        id: ItemId,
        kind: u16,
        alg: Algorithm,
        hash: u8,
        items: &[(ItemId, u32)],
        straw_version: u8,
    ) -> Result<Self, Refusal> {
        let ids = items.iter().map(|&(item, _)| item).collect();
        let weights: Vec<u32> = items.iter().map(|&(_, weight)| weight).collect();
        let (weights, weight) = Weights::new(alg, weights, straw_version)?;
        Ok(Bucket { id, kind, hash, weight, items: ids, weights })
    }

    /// Its id, below 0.
    pub fn id(&self) -> ItemId {
        self.id
    }

    /// Its type (host, rack, ...): a key of the map's type names, above 0.
    pub fn kind(&self) -> u16 {
        self.kind
    }

    /// Its hash function; 0 is rjenkins1, the only one there is.
    pub fn hash(&self) -> u8 {
        self.hash
    }

    /// Its weight, the sum of its items' unless an editor said otherwise.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Its items: devices and buckets.
    #[inline]
    pub fn items(&self) -> &[ItemId] {
        &self.items
    }

    /// What its algorithm works on.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        match self.weights {
            Weights::Uniform(_) => Algorithm::Uniform,
            Weights::List { .. } => Algorithm::List,
            Weights::Tree(_) => Algorithm::Tree,
            Weights::Straw { .. } => Algorithm::Straw,
            Weights::Straw2(_) => Algorithm::Straw2,
        }
    }

    /// The weight of the item at `pos`; 0 where there is none.
    pub fn item_weight(&self, pos: usize) -> u32 {
        let weight = match &self.weights {
            Weights::Uniform(w) => self.items.get(pos).map(|_| w),
            Weights::List { items, .. } | Weights::Straw { items, .. } | Weights::Straw2(items) => {
                items.get(pos)
            }
            Weights::Tree(nodes) => tree_leaf(pos).and_then(|node| nodes.get(node)),
        };
        weight.copied().unwrap_or(0)
    }

    /// The items with their weights.
    pub fn entries(&self) -> impl Iterator<Item = (ItemId, u32)> {
        self.items.iter().enumerate().map(|(pos, &item)| (item, self.item_weight(pos)))
    }

    /// Where an item stands.
    pub fn position(&self, item: ItemId) -> Option<usize> {
        self.items.iter().position(|&i| i == item)
    }

    /// Appends an item.
    pub(crate) fn add_item(
        &mut self,
        item: ItemId,
        weight: u32,
        straw_version: u8,
    ) -> Result<(), Refusal> {
        let mut entries: Vec<_> = self.entries().collect();
        entries.push((item, weight));
        self.rebuild(&entries, straw_version)
    }

    /// Removes the item at `pos`; those after it move up. (In a tree bucket Ceph leaves a hole with
    /// weight 0, in which it later finds a device that is not there.)
    pub(crate) fn remove_at(&mut self, pos: usize, straw_version: u8) -> Result<(), Refusal> {
        let entries: Vec<_> =
            self.entries().enumerate().filter(|&(i, _)| i != pos).map(|(_, entry)| entry).collect();
        self.rebuild(&entries, straw_version)
    }

    /// Sets the weight of the item at `pos`. In a uniform bucket it becomes that of all items.
    pub(crate) fn set_weight(
        &mut self,
        pos: usize,
        weight: u32,
        straw_version: u8,
    ) -> Result<(), Refusal> {
        let uniform = self.algorithm() == Algorithm::Uniform;
        let mut entries: Vec<_> = self.entries().collect();
        for (i, entry) in entries.iter_mut().enumerate() {
            if i == pos || uniform {
                entry.1 = weight;
            }
        }
        self.rebuild(&entries, straw_version)
    }

    /// Lets a straw bucket choose by straw2: it keeps items and weights, and its own weight.
    pub(crate) fn straw_to_straw2(&mut self) {
        if let Weights::Straw { items, .. } = &mut self.weights {
            self.weights = Weights::Straw2(std::mem::take(items));
        }
    }

    fn rebuild(&mut self, entries: &[(ItemId, u32)], straw_version: u8) -> Result<(), Refusal> {
        let empty_uniform = match (&self.weights, entries) {
            (&Weights::Uniform(w), []) => Some(w),
            _ => None,
        };
        let mut new =
            Bucket::new(self.id, self.kind, self.algorithm(), self.hash, entries, straw_version)?;
        if let Some(w) = empty_uniform {
            new.weights = Weights::Uniform(w);
        }
        *self = new;
        Ok(())
    }
}

impl Weights {
    /// What `alg` keeps for items of these weights, and the sum.
    fn new(alg: Algorithm, items: Vec<u32>, straw_version: u8) -> Result<(Self, u32), Refusal> {
        let sum = items.iter().try_fold(0u32, |sum, &w| sum.checked_add(w)).ok_or(SUM_OVERFLOW)?;
        let weights = match alg {
            Algorithm::Uniform => {
                let one = items.first().copied().unwrap_or(0);
                if items.iter().any(|&w| w != one) {
                    return Err(UNEQUAL);
                }
                Weights::Uniform(one)
            }
            Algorithm::List => {
                let mut sum = 0u32;
                let sums = items.iter().map(|&w| {
                    sum = sum.saturating_add(w);
                    sum
                });
                Weights::List { sums: sums.collect(), items }
            }
            Algorithm::Tree => Weights::Tree(tree_nodes(&items)?),
            Algorithm::Straw => {
                Weights::Straw { straws: straw_lengths(&items, straw_version), items }
            }
            Algorithm::Straw2 => Weights::Straw2(items),
        };
        Ok((weights, sum))
    }
}

/// The node of a tree bucket's item.
pub(crate) fn tree_leaf(pos: usize) -> Option<usize> {
    pos.checked_mul(2)?.checked_add(1)
}

/// The distance of a tree node to its two children: half of its lowest set bit. 0 for leaves.
pub(crate) fn tree_step(node: usize) -> usize {
    (node & node.wrapping_neg()) >> 1
}

/// The weights of all nodes; every inner node has the sum of its two children.
fn tree_nodes(items: &[u32]) -> Result<Vec<u32>, Refusal> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    if items.len() > MAX_TREE_ITEMS {
        return Err(TREE_FULL);
    }
    let size = items.len().next_power_of_two().saturating_mul(2);
    let mut nodes = vec![0u32; size];
    for (pos, &weight) in items.iter().enumerate() {
        let mut node = tree_leaf(pos).ok_or(TREE_FULL)?;
        let root = size >> 1;
        loop {
            let sum = nodes.get_mut(node).ok_or(TREE_FULL)?;
            *sum = sum.checked_add(weight).ok_or(SUM_OVERFLOW)?;
            if node == root {
                break;
            }
            // The parent's lowest set bit is the next higher one than ours.
            let low = node & node.wrapping_neg();
            node = (node & !low) | low << 1;
        }
    }
    Ok(nodes)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    fn bucket(alg: Algorithm, weights: &[u32]) -> Bucket {
        let items: Vec<_> = weights.iter().copied().enumerate().collect();
        let items: Vec<_> = items.iter().map(|&(i, w)| (i as i32, w)).collect();
        Bucket::new(-1, 1, alg, 0, &items, 1).unwrap()
    }

    #[test]
    fn a_tree_sums_up_to_its_root() {
        for n in 1..=MAX_TREE_ITEMS {
            let weights: Vec<u32> = (1..=n as u32).collect();
            let b = bucket(Algorithm::Tree, &weights);
            let Weights::Tree(nodes) = &b.weights else {
                panic!("not a tree");
            };
            assert_eq!(nodes[nodes.len() / 2], b.weight);
            for node in (2..nodes.len()).step_by(2) {
                let step = tree_step(node);
                assert_eq!(nodes[node], nodes[node - step] + nodes[node + step]);
            }
            assert!(b.entries().map(|(_, w)| w).eq(weights.iter().copied()));
        }
        let too_many = [(0, 1); MAX_TREE_ITEMS + 1];
        assert!(Bucket::new(-1, 1, Algorithm::Tree, 0, &too_many, 1).is_err());
    }

    #[test]
    fn editing_keeps_sums_for_every_algorithm() {
        for alg in Algorithm::PREFERRED {
            let mut b = bucket(alg, &[7, 7, 7]);
            b.add_item(9, 7, 1).unwrap();
            b.remove_at(1, 1).unwrap();
            assert_eq!(b.items, [0, 2, 9]);
            assert_eq!(b.weight, 21);
            b.set_weight(2, 9, 1).unwrap();
            assert_eq!(b.weight, b.entries().map(|(_, w)| w).sum::<u32>());
            assert!(b.add_item(10, u32::MAX, 1).is_err());
            assert_eq!(b.items, [0, 2, 9], "a refused edit changes nothing");
        }
    }
}
