//! The messages of one session: numbered, kept until acknowledged, received once.
//!
//! Each message gets the next sequence number when it is queued and keeps it for good. In a lossless
//! session it stays in the queue until the peer acknowledged it; after a reconnect everything not
//! acknowledged is written again, and the receiver drops what it has already. So nothing is lost,
//! doubled or out of order, whatever point the connection was cut at.

use super::policy::{ACK_MAX_BYTES, ACK_MAX_MESSAGES};
use crate::ProtocolError;
use crate::frame::{FrameWriter, Tag};
use crate::msg::{HEADER_BYTES, OutMessage};
use std::collections::VecDeque;

/// One end of a session.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub lossy: bool,
    /// Chosen by the end that dialled first; 0 = none yet, or lossy.
    pub client_cookie: u64,
    /// Chosen by the end that accepted; 0 = the session was never open, or is lossy.
    pub server_cookie: u64,
    /// Counts reconnects; the larger attempt wins.
    pub connect_seq: u64,
    /// Our number for the present connection attempt.
    pub global_seq: u64,
    /// The peer's number for its newest connection attempt.
    pub peer_global_seq: u64,
    /// The last message received.
    in_seq: u64,
    /// What the peer knows of `in_seq`.
    told_seq: u64,
    /// Bytes received since the peer was told.
    untold_bytes: usize,
    /// Messages to write, and (lossless) written but not acknowledged. The front is the oldest.
    queue: VecDeque<(u64, OutMessage)>,
    /// How many of the queue were written to the present connection.
    written: usize,
    /// The last number given.
    out_seq: u64,
    /// The last number ever written to a connection.
    sent_seq: u64,
    queued_bytes: usize,
}

fn cost(message: &OutMessage) -> usize {
    message.len().saturating_add(HEADER_BYTES)
}

impl Session {
    pub fn new(lossy: bool) -> Self {
        Session { lossy, ..Session::default() }
    }

    /// Forgets everything: both ends start again from message 1.
    pub fn reset(&mut self) {
        *self = Session { lossy: self.lossy, global_seq: self.global_seq, ..Session::default() };
    }

    /// Bytes and messages in the queue.
    pub fn queued(&self) -> (usize, usize) {
        (self.queued_bytes, self.queue.len())
    }

    /// Whether there is something to write to the present connection.
    pub fn has_unwritten(&self) -> bool {
        self.written < self.queue.len()
    }

    /// The last message received.
    pub fn in_seq(&self) -> u64 {
        self.in_seq
    }

    /// The last message that was ever written.
    pub fn sent_seq(&self) -> u64 {
        self.sent_seq
    }

    pub fn push(&mut self, message: OutMessage) {
        self.out_seq = self.out_seq.saturating_add(1);
        self.queued_bytes = self.queued_bytes.saturating_add(cost(&message));
        self.queue.push_back((self.out_seq, message));
    }

    fn pop(&mut self) -> Option<(u64, OutMessage)> {
        let (seq, message) = self.queue.pop_front()?;
        self.queued_bytes = self.queued_bytes.saturating_sub(cost(&message));
        self.written = self.written.saturating_sub(1);
        Some((seq, message))
    }

    /// Writes everything that was not written to the present connection.
    pub fn write(&mut self, w: &mut FrameWriter) {
        if !self.has_unwritten() {
            return;
        }
        if self.lossy {
            while let Some((seq, message)) = self.pop() {
                write_message(w, seq, self.in_seq, &message);
                self.sent_seq = seq;
            }
        } else {
            for (seq, message) in self.queue.iter().skip(self.written) {
                write_message(w, *seq, self.in_seq, message);
                self.sent_seq = self.sent_seq.max(*seq);
            }
            self.written = self.queue.len();
        }
        self.told();
    }

    /// Writes an ACK if the peer is to be told now.
    pub fn write_ack(&mut self, w: &mut FrameWriter) {
        if self.has_untold() {
            w.control(Tag::Ack, &self.in_seq);
            self.told();
        }
    }

    fn told(&mut self) {
        self.told_seq = self.in_seq;
        self.untold_bytes = 0;
    }

    /// Whether messages came that the peer waits to be told of.
    pub fn has_untold(&self) -> bool {
        !self.lossy && self.in_seq > self.told_seq
    }

    /// Whether so much came that the peer should be told without delay.
    pub fn must_tell(&self) -> bool {
        let messages = self.in_seq.saturating_sub(self.told_seq);
        self.has_untold() && (messages >= ACK_MAX_MESSAGES || self.untold_bytes >= ACK_MAX_BYTES)
    }

    /// A message came: is it new?
    pub fn receive(&mut self, seq: u64, bytes: usize) -> Result<bool, ProtocolError> {
        if seq <= self.in_seq {
            return Ok(false);
        }
        let wanted = self.in_seq.saturating_add(1);
        if !self.lossy && seq != wanted {
            return Err(ProtocolError::Gap { wanted, got: seq });
        }
        self.in_seq = seq;
        self.untold_bytes = self.untold_bytes.saturating_add(bytes);
        Ok(true)
    }

    /// The peer received everything up to `acked`.
    pub fn acked(&mut self, acked: u64) -> Result<(), ProtocolError> {
        if self.lossy {
            return Ok(());
        }
        if acked > self.sent_seq {
            let sent = self.sent_seq;
            return Err(ProtocolError::AckedUnsent { acked, sent });
        }
        while self.queue.front().is_some_and(|(seq, _)| *seq <= acked) {
            self.pop();
        }
        Ok(())
    }

    /// A new connection: the peer has everything up to `acked`, the rest is written again.
    pub fn resume(&mut self, acked: u64) -> Result<(), ProtocolError> {
        self.acked(acked)?;
        self.written = 0;
        // The peer learned our `in_seq` with the ident.
        self.told();
        Ok(())
    }

    /// The session begins with this connection: the peer has received nothing, and sent nothing.
    pub fn begin(&mut self) {
        self.in_seq = 0;
        self.written = 0;
        self.told();
    }

    /// The session was open and messages were exchanged.
    pub fn was_used(&self) -> bool {
        let oldest = self.queue.front().map(|(seq, _)| *seq);
        let acked = oldest.unwrap_or(self.sent_seq.saturating_add(1)) > 1;
        self.in_seq > 0 || acked
    }
}

fn write_message(w: &mut FrameWriter, seq: u64, ack_seq: u64, m: &OutMessage) {
    w.message(&m.header(seq, ack_seq), &m.front, &m.middle, (&m.data, m.data_crc));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msg::{MPing, Payload};

    fn session(messages: u64) -> Session {
        let mut s = Session::new(false);
        for tid in 1..=messages {
            s.push(MPing {}.encode().with_tid(tid));
        }
        s
    }

    #[test]
    fn what_was_not_acknowledged_is_written_again() {
        let (mut s, mut w) = (session(3), FrameWriter::new());
        s.write(&mut w);
        assert!(!s.has_unwritten());
        s.acked(1).unwrap();
        assert_eq!(s.queued().1, 2);
        s.resume(2).unwrap();
        assert!(s.has_unwritten());
        assert_eq!(s.queue.front().unwrap().0, 3);
    }

    #[test]
    fn acknowledging_the_future_is_an_error() {
        let (mut s, mut w) = (session(3), FrameWriter::new());
        assert!(s.acked(1).is_err());
        s.write(&mut w);
        assert!(s.acked(4).is_err());
        assert!(s.acked(3).is_ok());
        assert_eq!(s.queued(), (0, 0));
        assert!(s.was_used());
    }

    #[test]
    fn a_message_is_received_once_and_without_gap() {
        let mut s = session(0);
        assert!(s.receive(1, 10).unwrap());
        assert!(!s.receive(1, 10).unwrap());
        assert!(s.receive(3, 10).is_err());
        assert!(s.has_untold() && !s.must_tell());
        assert!(s.receive(2, ACK_MAX_BYTES).unwrap());
        assert!(s.must_tell());
        let mut w = FrameWriter::new();
        s.write_ack(&mut w);
        assert!(!s.has_untold());
    }

    #[test]
    fn a_lossy_session_keeps_nothing() {
        let (mut s, mut w) = (session(3), FrameWriter::new());
        s.lossy = true;
        s.write(&mut w);
        assert_eq!(s.queued(), (0, 0));
        assert!(s.receive(7, 1).unwrap());
        assert!(s.acked(99).is_ok());
    }
}
