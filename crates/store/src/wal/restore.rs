//! What a mount puts back into the log's state.

use super::format::{self, Header};
use super::{Batch, Pending, State, Wal};

impl Wal {
    /// A batch found in the log. Its blocks count only when [`Wal::restore_block`] says so; they are
    /// not kept in memory, which would take longer than all the rest.
    pub fn restore(&mut self, header: &Header, crc: u32, places: Vec<u64>) {
        let open = self.batches.pop_back().expect("there is always an open batch");
        assert!(open.is_empty() && open.seq == header.seq, "batches are restored in order");
        let mut batch = Batch::new(header.seq);
        (batch.at, batch.head_blocks) = (header.at, u64::from(header.head_blocks));
        batch.state = State::Durable;
        batch.blocks = places;
        batch.decided = header.decided;
        self.batches.push_back(Box::new(batch));
        self.batches.push_back(Box::new(Batch::new(header.seq + 1)));
        self.next_at = header.at + header.blocks();
        self.next_issue = header.seq + 1;
        self.durable_seq = header.seq;
        (self.life, self.last_crc) = (header.life, crc);
    }

    /// A block of a restored batch that is to be put in place.
    pub fn restore_block(&mut self, place: u64, pending: Pending) {
        self.batch_mut(pending.seq).live += 1;
        if let Some(old) = self.overlay.insert(place, pending) {
            self.settle(old.seq, old.index);
        }
    }

    /// A block that was freed.
    pub fn restore_freed(&mut self, place: u64) {
        if let Some(old) = self.overlay.remove(place) {
            self.settle(old.seq, old.index);
        }
    }

    /// All is restored. A new life begins with a batch of its own unless `life` is the last one's.
    pub fn begin_life(&mut self, life: u64) {
        if life != self.life {
            (self.life, self.last_crc) = (life, 0);
        }
    }

    /// Closes a batch that says which transactions of earlier ones must be passed over. False when the log
    /// has no room for it.
    pub fn seal_dropped(&mut self, dropped: &[u64]) -> bool {
        let batch = self.open();
        assert!(batch.is_empty(), "the first batch of a life");
        if !dropped.is_empty() {
            format::encode_dropped(&mut batch.records, dropped);
            batch.count = 1;
        }
        let total = batch.total_blocks();
        let has_room = self.next_at - self.tail.at + total <= self.place.blocks;
        if has_room {
            self.seal();
        }
        has_room
    }

    /// Everything up to `txn` is recorded.
    pub fn set_recorded(&mut self, txn: u64) {
        self.recorded = self.recorded.max(txn);
    }
}
