//! A PG's state by the names operators know. Source: Ceph `osd/osd_types.h: PG_STATE_*`,
//! `pg_state_string`.

use crate::info::PgInfo;
use crate::missing::Missing;
use crate::pg::{Pg, Stage};
use crate::recovery::{Gate, Need};
use std::fmt;
use types::{HObject, OsdId};

/// A set of states. Their names are Ceph's; the numbers are seen by our own daemons only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateBits(pub u64);

macro_rules! states {
    ($($name:ident = $bit:literal, $text:literal;)*) => {
        impl StateBits {
            $(#[doc = concat!("`", $text, "`")] pub const $name: StateBits = StateBits(1 << $bit);)*
            const NAMES: &'static [(StateBits, &'static str)] = &[$((StateBits::$name, $text),)*];
        }
    };
}

// In the order in which Ceph prints them.
states! {
    STALE = 14, "stale";
    CREATING = 0, "creating";
    ACTIVE = 1, "active";
    ACTIVATING = 26, "activating";
    CLEAN = 2, "clean";
    RECOVERY_WAIT = 20, "recovery_wait";
    RECOVERY_TOOFULL = 31, "recovery_toofull";
    RECOVERING = 7, "recovering";
    FORCED_RECOVERY = 29, "forced_recovery";
    DOWN = 4, "down";
    RECOVERY_UNFOUND = 32, "recovery_unfound";
    BACKFILL_UNFOUND = 33, "backfill_unfound";
    UNDERSIZED = 10, "undersized";
    DEGRADED = 17, "degraded";
    REMAPPED = 18, "remapped";
    PREMERGE = 28, "premerge";
    SCRUBBING = 8, "scrubbing";
    DEEP_SCRUB = 25, "deep";
    INCONSISTENT = 11, "inconsistent";
    PEERING = 12, "peering";
    REPAIR = 13, "repair";
    BACKFILL_WAIT = 15, "backfill_wait";
    BACKFILLING = 22, "backfilling";
    FORCED_BACKFILL = 30, "forced_backfill";
    BACKFILL_TOOFULL = 24, "backfill_toofull";
    INCOMPLETE = 23, "incomplete";
    PEERED = 27, "peered";
    SNAPTRIM = 5, "snaptrim";
    SNAPTRIM_WAIT = 6, "snaptrim_wait";
    SNAPTRIM_ERROR = 3, "snaptrim_error";
    LAGGY = 35, "laggy";
    WAIT = 36, "wait";
}

impl StateBits {
    /// Whether all of `other` is set.
    pub fn has(self, other: StateBits) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOrAssign for StateBits {
    fn bitor_assign(&mut self, other: StateBits) {
        self.0 |= other.0;
    }
}

impl fmt::Display for StateBits {
    /// `active+clean`; `unknown` when nothing is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (_, name) in Self::NAMES.iter().filter(|(bit, _)| self.has(*bit)) {
            if !std::mem::take(&mut first) {
                f.write_str("+")?;
            }
            f.write_str(name)?;
        }
        if first { f.write_str("unknown") } else { Ok(()) }
    }
}

impl Pg {
    /// The state of a PG we lead.
    pub fn state(&self) -> StateBits {
        let mut bits = StateBits::default();
        match &self.stage {
            Stage::Stray | Stage::Replica => return bits,
            Stage::Down => bits |= StateBits::DOWN,
            Stage::Incomplete => bits |= StateBits::INCOMPLETE,
            Stage::Activating { .. } => bits |= StateBits::ACTIVATING,
            Stage::Active => self.active_bits(&mut bits),
            Stage::GetInfo { .. }
            | Stage::WaitActing { .. }
            | Stage::GetLog { .. }
            | Stage::GetMissing { .. }
            | Stage::WaitUpThru { .. } => bits |= StateBits::PEERING,
        }
        if self.info.history.last_epoch_started.0 == 0 && self.stage != Stage::Active {
            bits |= StateBits::CREATING;
        }
        if self.acting_count() < self.rules.size as usize {
            bits |= StateBits::UNDERSIZED;
        }
        if self.mapping.up != self.mapping.acting {
            bits |= StateBits::REMAPPED;
        }
        bits
    }

    fn active_bits(&self, bits: &mut StateBits) {
        let full = self.acting_count() >= self.rules.size as usize;
        *bits |= if self.accepts_io() { StateBits::ACTIVE } else { StateBits::PEERED };
        if self.is_premerge() {
            *bits |= StateBits::PREMERGE;
        }
        if self.degraded_count() > 0 || !full {
            *bits |= StateBits::DEGRADED;
        }
        if self.degraded_count() > 0 {
            *bits |= self.recovery_bit();
        } else if self.is_backfilling() {
            *bits |= match self.gate() {
                _ if !self.can_backfill() => StateBits::BACKFILL_UNFOUND,
                Gate::Open => StateBits::BACKFILLING,
                Gate::Wait => StateBits::BACKFILL_WAIT,
                Gate::TooFull => StateBits::BACKFILL_TOOFULL,
            };
        } else if full
            && self.info.history.last_epoch_clean >= self.info.history.same_interval_since
        {
            *bits |= StateBits::CLEAN;
        }
    }

    /// Unfound objects show when they are all that is left, and so do those that nobody can read, and those that do
    /// not fit.
    fn recovery_bit(&self) -> StateBits {
        let none_comes = || self.unfound_count() > 0 || !self.recovery.unreadable.is_empty();
        let nothing_to_do = self.need() == Need::Nothing;
        let unfound = nothing_to_do && none_comes();
        match self.gate() {
            _ if unfound && self.is_backfilling() => StateBits::BACKFILL_UNFOUND,
            _ if unfound => StateBits::RECOVERY_UNFOUND,
            _ if nothing_to_do && self.unfitting().len() > 0 => StateBits::RECOVERY_TOOFULL,
            _ if self.moving_count() > 0 => StateBits::RECOVERING,
            Gate::Open => StateBits::RECOVERING,
            Gate::Wait => StateBits::RECOVERY_WAIT,
            Gate::TooFull => StateBits::RECOVERY_TOOFULL,
        }
    }

    /// OSDs that peering waits for.
    pub fn blocked_by(&self) -> Vec<OsdId> {
        match &self.stage {
            Stage::GetInfo { waiting } | Stage::GetMissing { waiting } => {
                waiting.iter().copied().collect()
            }
            Stage::Activating { waiting } => {
                waiting.iter().copied().filter(|o| *o != self.me).collect()
            }
            Stage::GetLog { from } => vec![*from],
            Stage::Down => self.prior.blocked_by.iter().copied().collect(),
            _ => Vec::new(),
        }
    }
}

/// Another holder, as the primary knows it.
#[derive(Clone, Copy, Debug)]
pub struct PeerView<'a> {
    /// Who.
    pub osd: OsdId,
    /// What it said of its copy.
    pub info: &'a PgInfo,
    /// Objects it is missing, if that is known.
    pub missing: Option<&'a Missing>,
}

impl Pg {
    /// As the primary: the other holders.
    pub fn peers(&self) -> impl Iterator<Item = PeerView<'_>> {
        self.peers.iter().map(|(osd, peer)| PeerView {
            osd: *osd,
            info: &peer.info,
            missing: peer.missing.as_ref(),
        })
    }

    /// Members that are being filled, and up to which object they are complete.
    pub fn backfills(&self) -> impl Iterator<Item = (OsdId, &HObject)> {
        self.backfills.iter().map(|(osd, b)| (*osd, b.reached()))
    }
}
