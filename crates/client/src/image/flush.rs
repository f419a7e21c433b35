//! Which writes a flush waits for: all that were taken on before it.
//!
//! Writes are counted by generation; a flush ends the current one.

use super::ImageRequest;
use std::collections::VecDeque;

/// Counts the writes of an image that are not ended.
#[derive(Debug)]
pub struct Flushes {
    /// Generation of the first count.
    first: u64,
    /// Writes of each generation, the current one last.
    counts: VecDeque<u64>,
    /// Flushes that wait until this generation and all before are over.
    waiting: VecDeque<(u64, ImageRequest)>,
}

impl Default for Flushes {
    fn default() -> Self {
        Flushes { first: 0, counts: VecDeque::from([0]), waiting: VecDeque::new() }
    }
}

impl Flushes {
    /// A write is taken on; its generation.
    pub fn write(&mut self) -> u64 {
        if let Some(count) = self.counts.back_mut() {
            *count += 1;
        }
        self.first + self.counts.len() as u64 - 1
    }

    /// A write of this generation has ended. The next flush that is over must be asked for.
    pub fn ended(&mut self, generation: u64) {
        let at = (generation - self.first) as usize;
        if let Some(count) = self.counts.get_mut(at) {
            *count -= 1;
        }
        while self.counts.len() > 1 && self.counts.front() == Some(&0) {
            self.counts.pop_front();
            self.first += 1;
        }
    }

    /// A flush; `true` when there is nothing to wait for.
    pub fn flush(&mut self, id: ImageRequest) -> bool {
        if self.counts.iter().all(|count| *count == 0) {
            return true;
        }
        self.waiting.push_back((self.first + self.counts.len() as u64 - 1, id));
        self.counts.push_back(0);
        false
    }

    /// The next flush that is over.
    pub fn next_over(&mut self) -> Option<ImageRequest> {
        let (generation, id) = *self.waiting.front()?;
        if generation >= self.first {
            return None;
        }
        self.waiting.pop_front();
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_waits_for_what_was_before_it() {
        let mut f = Flushes::default();
        assert!(f.flush(ImageRequest(1)));
        let (a, b) = (f.write(), f.write());
        assert!(!f.flush(ImageRequest(2)));
        let c = f.write();
        assert!(!f.flush(ImageRequest(3)));
        assert!(!f.flush(ImageRequest(4)));
        let d = f.write();
        f.ended(c);
        assert_eq!(f.next_over(), None);
        f.ended(a);
        assert_eq!(f.next_over(), None);
        f.ended(b);
        let over: Vec<_> = std::iter::from_fn(|| f.next_over()).collect();
        assert_eq!(over, [ImageRequest(2), ImageRequest(3), ImageRequest(4)]);
        f.ended(d);
        assert!(f.flush(ImageRequest(5)));
    }
}
