//! The cluster's log: what happened to the cluster, for `ceph log last` and `ceph -w`.

use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::VecDeque;
use types::{AddrVec, EntityName, EntityType, UTime, Uuid};
use wire::PeerInfo;
use wire::msg::{Message, OutMessage, PaxosHeader, Payload, kind};

/// Entries that are kept, in memory only.
const KEPT: usize = 1000;
/// Longest text of an entry. What is longer is cut.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// Entries in one message: at their longest, some 400 KiB.
pub(crate) const ENTRIES_PER_MESSAGE: usize = 100;

/// Who said something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Speaker {
    /// As it is configured: `mon.a`, `client.admin`.
    pub name: String,
    /// As the cluster counts it: `mon.0`, `client.4123`.
    pub rank: EntityName,
    pub addrs: AddrVec,
}

impl Speaker {
    /// The other end of a link.
    pub fn of(peer: &PeerInfo) -> Self {
        let name = format!("{}.{}", peer.auth_name.kind.name(), peer.auth_name.id);
        Speaker { name, rank: peer.name, addrs: peer.addrs.clone() }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub stamp: UTime,
    pub who: Speaker,
    pub seq: u64,
    pub level: Level,
    pub text: String,
}

/// How important an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Debug,
    Info,
    Sec,
    Warn,
    Error,
}

impl Level {
    /// `[INF]`
    pub fn tag(self) -> &'static str {
        match self {
            Level::Debug => "DBG",
            Level::Info => "INF",
            Level::Sec => "SEC",
            Level::Warn => "WRN",
            Level::Error => "ERR",
        }
    }

    /// `info`
    pub fn from_name(name: &str) -> Option<Level> {
        Some(match name {
            "debug" => Level::Debug,
            "info" => Level::Info,
            "sec" => Level::Sec,
            "warn" => Level::Warn,
            "error" => Level::Error,
            _ => return None,
        })
    }
}

/// The newest entries.
#[derive(Debug, Default)]
pub(crate) struct ClusterLog {
    entries: VecDeque<LogEntry>,
    /// The number of the newest one.
    pub seq: u64,
}

impl ClusterLog {
    /// Numbers entries by the mon's life first: who follows the log across a restart takes nothing that is
    /// not newer than what it has.
    pub fn begin_life(&mut self, life: u32) {
        self.seq = self.seq.max(u64::from(life) << 32);
    }

    /// Notes something, here and in the daemon's own log.
    pub fn add(&mut self, stamp: UTime, who: Speaker, level: Level, text: impl Into<String>) {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        match level {
            Level::Debug => tracing::debug!("{text}"),
            Level::Info | Level::Sec => tracing::info!("{text}"),
            Level::Warn => tracing::warn!("{text}"),
            Level::Error => tracing::error!("{text}"),
        }
        if self.entries.len() >= KEPT {
            self.entries.pop_front();
        }
        self.seq += 1;
        self.entries.push_back(LogEntry { stamp, who, seq: self.seq, level, text });
    }

    /// The last entries, oldest first.
    pub fn last(&self, count: usize, at_least: Level) -> Vec<&LogEntry> {
        let wanted: Vec<_> = self.entries.iter().filter(|e| e.level >= at_least).collect();
        let skip = wanted.len().saturating_sub(count);
        wanted.into_iter().skip(skip).collect()
    }

    /// The entries after a number.
    pub fn after(&self, seq: u64, at_least: Level) -> Vec<LogEntry> {
        let newer = self.entries.iter().filter(|e| e.seq > seq && e.level >= at_least);
        newer.cloned().collect()
    }
}

/// MLog (52): entries of the log, for who is subscribed to it.
///
/// `hdr, fsid, vec<LogEntry>`; LogEntry V(5,5): `EntityName name, entity_name_t rank, addrvec, utime,
/// u64 seq, u16 level, str text, str channel`.
#[derive(Clone, Debug)]
pub(crate) struct MLog {
    /// The log's version: a client takes no message whose version it has.
    pub paxos: PaxosHeader,
    pub fsid: Uuid,
    pub entries: Vec<LogEntry>,
}

impl Payload for MLog {
    const TYPE: u16 = kind::LOG;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn decode(m: &Message) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(&m.front);
        Ok(MLog { paxos: d.get()?, fsid: d.get()?, entries: d.get()? })
    }

    fn encode(self) -> OutMessage {
        let mut e = Encoder::with_capacity(64 + 128 * self.entries.len());
        e.put(&self.paxos).put(&self.fsid).put(&self.entries);
        OutMessage::new::<Self>(e.into_bytes())
    }
}

const CHANNEL: &str = "cluster";

impl Encode for LogEntry {
    fn encode(&self, e: &mut Encoder) {
        e.section(5, 5, |e| {
            let id = self.who.name.split_once('.').map_or("", |(_, id)| id).to_owned();
            e.put(&u32::from(self.who.rank.kind.0)).put(&id);
            e.put(&self.who.rank).put(&self.who.addrs).put(&self.stamp).put(&self.seq);
            e.put(&(self.level as u16)).put(&self.text).put(&CHANNEL.to_owned());
        });
    }
}

impl Decode for LogEntry {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(5, |d, _| {
            let (kind, id): (u32, String) = (d.get()?, d.get()?);
            let kind = EntityType(u8::try_from(kind).unwrap_or(0));
            let name = format!("{}.{id}", kind.name());
            let who = Speaker { name, rank: d.get()?, addrs: d.get()? };
            let (stamp, seq, level) = (d.get()?, d.get()?, d.get::<u16>()?);
            let levels = [Level::Debug, Level::Info, Level::Sec, Level::Warn];
            let level = levels.get(usize::from(level)).copied().unwrap_or(Level::Error);
            let text = d.get()?;
            d.get::<String>()?;
            Ok(LogEntry { stamp, who, seq, level, text })
        })
    }
}

impl crate::cluster::Cluster {
    /// Notes something in the log.
    pub fn say(&mut self, now: io::Now, level: Level, text: impl Into<String>) {
        let rank = EntityName { kind: EntityType::MON, num: 0 };
        let name = format!("mon.{}", self.name);
        let who = Speaker { name, rank, addrs: self.addrs.clone() };
        self.log.add(now.wall, who, level, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut log = ClusterLog::default();
        log.add(UTime::ZERO, Speaker::default(), Level::Info, format!("x{}", "ä".repeat(99_999)));
        assert_eq!(log.last(1, Level::Info)[0].text.len(), MAX_TEXT_BYTES - 1);
    }

    #[test]
    fn is_bounded_and_can_be_followed() {
        let who = Speaker {
            name: "mon.a".into(),
            rank: EntityName { kind: EntityType::MON, num: 0 },
            addrs: AddrVec::default(),
        };
        let mut log = ClusterLog::default();
        for n in 0..2 * KEPT {
            let level = if n % 2 == 0 { Level::Info } else { Level::Warn };
            log.add(UTime::ZERO, who.clone(), level, n.to_string());
        }
        assert_eq!(log.after(0, Level::Debug).len(), KEPT);
        assert_eq!(log.after(log.seq - 4, Level::Warn).len(), 2);
        let last: Vec<&str> = log.last(2, Level::Warn).iter().map(|e| e.text.as_str()).collect();
        assert_eq!(last, ["1997", "1999"]);
        let entries = log.after(log.seq - 4, Level::Warn);
        let paxos = PaxosHeader { version: log.seq };
        let message = MLog { paxos, fsid: Uuid([3; 16]), entries: entries.clone() }.encode();
        let read: MLog = message.into_message().decode().expect("it can be read");
        assert_eq!((read.paxos, read.fsid, read.entries), (paxos, Uuid([3; 16]), entries));
    }
}
