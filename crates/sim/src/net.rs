//! Simulated connections: ordered bytes, cut and delayed as the seed says.

use crate::world::NodeId;
use bytes::{Bytes, BytesMut};
use io::AlignedBuf;
use io::net::{ConnId, SendLimit};
use std::collections::VecDeque;
use types::Mono;

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    /// The other end: its node, and its name there.
    pub peer: Option<(NodeId, ConnId)>,
    /// Nothing is handed to the core.
    pub paused: bool,
    /// Bytes that have arrived and are not handed over.
    pub arrived: VecDeque<Bytes>,
    /// The next bytes go here.
    pub fill: Option<(AlignedBuf, usize)>,
    /// Bytes taken out of `arrived` of which the other end does not know yet.
    pub taken_bytes: usize,
    /// Bytes sent by this end that the other one's core has not been handed.
    pub unsent_bytes: usize,
    pub send_limit: SendLimit,
    /// Bytes sent by this end arrive no earlier than this: order is kept.
    pub last_arrival: Mono,
}

impl End {
    pub fn new(peer: Option<(NodeId, ConnId)>) -> Self {
        End {
            peer,
            paused: false,
            arrived: VecDeque::new(),
            fill: None,
            taken_bytes: 0,
            unsent_bytes: 0,
            send_limit: SendLimit::default(),
            last_arrival: Mono::default(),
        }
    }

    /// What to hand to the core next: a filled buffer, or bytes.
    pub fn take(&mut self) -> Option<Handed> {
        if self.paused || self.send_limit.is_over() {
            return None;
        }
        while let Some((mut buf, from)) = self.fill.take() {
            let Some(mut data) = self.arrived.pop_front() else {
                self.fill = Some((buf, from));
                return None;
            };
            let n = data.len().min(buf.len() - from);
            buf.as_mut_slice()[from..from + n].copy_from_slice(&data.split_to(n));
            self.taken_bytes += n;
            if !data.is_empty() {
                self.arrived.push_front(data);
            }
            if from + n == buf.len() {
                return Some(Handed::Filled(buf));
            }
            self.fill = Some((buf, from + n));
        }
        let data = self.arrived.pop_front()?;
        self.taken_bytes += data.len();
        Some(Handed::Bytes(data))
    }
}

pub(crate) enum Handed {
    Bytes(Bytes),
    Filled(AlignedBuf),
}

/// What a receive gives at most.
const RECEIVE_BYTES: usize = 256 << 10;

/// Cuts what is sent into pieces, at places the seed gives. The pieces share one allocation, as those
/// of a real receive buffer do.
pub(crate) fn cut(pieces: &[Bytes], rng: &mut io::Rng) -> Vec<Bytes> {
    let mut all = BytesMut::new();
    pieces.iter().for_each(|p| all.extend_from_slice(p));
    let mut all = all.freeze();
    let mut out = Vec::new();
    while !all.is_empty() {
        // Mostly as much as there is, sometimes small pieces, sometimes single bytes.
        let most = all.len().min(RECEIVE_BYTES);
        let n = match rng.u32(..16) {
            0 => 1,
            1..4 => rng.usize(1..=most.min(100)),
            4..8 => rng.usize(1..=most.min(5000)),
            _ => most,
        };
        out.push(all.split_to(n));
    }
    out
}
