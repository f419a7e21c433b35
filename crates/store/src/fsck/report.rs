//! What a check found.

use crate::config::Identity;
use std::fmt;
use types::ObjectKey;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is lost, but it is not as it should be: a spare copy is bad, space is leaked.
    Note,
    /// Something cannot be read, or cannot be trusted.
    Damage,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Where on the devices.
    pub place: String,
    /// The object it concerns, if it is one.
    pub object: Option<ObjectKey>,
    /// What it is, and what it means.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.severity {
            Severity::Note => "note",
            Severity::Damage => "damage",
        };
        write!(f, "{kind}: {}", self.place)?;
        if let Some(object) = &self.object {
            write!(f, ": object {object:?}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Findings beyond this are only counted.
pub const MAX_FINDINGS: usize = 10_000;

/// Objects from the first name on; up to the second one, or all.
pub(super) type Names = (ObjectKey, Option<ObjectKey>);

/// The outcome of a check.
#[derive(Clone, Debug, Default)]
pub struct FsckReport {
    /// Whose store it is, if a superblock could be read.
    pub identity: Option<Identity>,
    /// Whether it was closed in order and not mounted since.
    pub clean: bool,
    /// What was found, up to [`MAX_FINDINGS`].
    pub findings: Vec<Finding>,
    /// Findings that did not fit.
    pub more_findings: u64,
    /// Those of them that are damage. None is, as long as a note can give way to it.
    pub more_damage: u64,
    /// Names of objects whose records cannot be read, or may be missing.
    pub(super) lost_names: Vec<Names>,
    /// Objects seen.
    pub objects: u64,
    /// Their logical bytes.
    pub object_bytes: u64,
    /// Blocks of objects whose checksums were compared.
    pub blocks_checked: u64,
    /// Tree nodes read.
    pub nodes: u64,
    /// Log batches read.
    pub log_batches: u64,
    /// Blocks that hold data.
    pub data_blocks: u64,
    /// Of these, blocks that several extents share.
    pub shared_blocks: u64,
    /// Blocks that hold tree nodes.
    pub node_blocks: u64,
    /// What the space is used for, in bytes, by reason; complete only when nothing is damaged.
    pub space: SpaceReport,
}

/// Space by what it is used for, in bytes. `system`, `log`, `data`, `metadata` and `free` add up to
/// `total`; the others are parts of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceReport {
    /// The data device.
    pub total: u64,
    /// Superblocks and the room around them.
    pub system: u64,
    /// The log, when it is on the data device.
    pub log: u64,
    /// Of the log, wherever it is: what a mount would read.
    pub log_used: u64,
    /// Blocks of objects.
    pub data: u64,
    /// Of these: bytes behind the ends of objects and of compressed extents, which their last blocks
    /// have room for.
    pub padding: u64,
    /// Blocks that several objects share.
    pub shared: u64,
    /// What objects that share blocks would take more if each had its own.
    pub saved_by_sharing: u64,
    /// Blocks of compressed extents.
    pub compressed: u64,
    /// Bytes of objects that they hold, each object's for itself.
    pub compressed_original: u64,
    /// Tree nodes.
    pub metadata: u64,
    /// Free.
    pub free: u64,
    /// Of the free space, what is kept for removals and bookkeeping, without what checkpoints need.
    pub reserve: u64,
}

impl FsckReport {
    /// Whether nothing at all was found.
    pub fn is_good(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether anything is damaged.
    pub fn is_damaged(&self) -> bool {
        self.more_damage > 0 || self.findings.iter().any(|f| f.severity == Severity::Damage)
    }

    /// Whether objects with names from the first one on, before the second one, may be there without being listed.
    pub fn may_lack(&self, from: &ObjectKey, to: &ObjectKey) -> bool {
        let touches = |(lost, end): &Names| lost < to && end.as_ref().is_none_or(|end| end > from);
        self.lost_names.iter().any(touches)
    }

    /// Objects of such names may not be listed.
    pub(super) fn lost_names(&mut self, names: Names) {
        if self.lost_names.len() < MAX_FINDINGS {
            self.lost_names.push(names);
        } else {
            self.lost_all_names();
        }
    }

    /// Any object may be missing.
    pub(super) fn lost_all_names(&mut self) {
        self.lost_names = vec![(ObjectKey::from_bytes(&[]), None)];
    }

    pub(super) fn add(&mut self, finding: Finding) {
        let is_damage = finding.severity == Severity::Damage;
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
            return;
        }
        self.more_findings += 1;
        let is_note = |f: &Finding| f.severity == Severity::Note;
        // Once damage was only counted no note was left, and none came after it.
        let may_fit = is_damage && self.more_damage == 0;
        match self.findings.iter().rposition(is_note).filter(|_| may_fit) {
            Some(at) => {
                self.findings.remove(at);
                self.findings.push(finding);
            }
            None => self.more_damage += u64::from(is_damage),
        }
    }

    /// Damage of which no more is said.
    pub(super) fn count_damage(&mut self, count: u64) {
        self.more_findings += count;
        self.more_damage += count;
    }

    pub(super) fn damage(&mut self, place: impl Into<String>, what: impl Into<String>) {
        let (place, what) = (place.into(), what.into());
        self.add(Finding { severity: Severity::Damage, place, object: None, what });
    }

    pub(super) fn note(&mut self, place: impl Into<String>, what: impl Into<String>) {
        let (place, what) = (place.into(), what.into());
        self.add(Finding { severity: Severity::Note, place, object: None, what });
    }

    pub(super) fn object(
        &mut self,
        object: Option<&ObjectKey>,
        place: impl Into<String>,
        what: impl Into<String>,
    ) {
        let (place, what, object) = (place.into(), what.into(), object.cloned());
        self.add(Finding { severity: Severity::Damage, place, object, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_however_many_notes_there_are() {
        let mut report = FsckReport::default();
        for _ in 0..MAX_FINDINGS {
            report.note("somewhere", "space is lost");
        }
        assert!(!report.is_damaged());
        for n in 0..MAX_FINDINGS {
            report.damage(n.to_string(), "it is gone");
        }
        assert!(report.is_damaged() && report.findings.iter().all(|f| f.what == "it is gone"));
        assert_eq!((report.more_findings, report.more_damage), (MAX_FINDINGS as u64, 0));
        report.damage("there", "it is gone");
        report.note("somewhere", "space is lost");
        assert_eq!((report.more_findings, report.more_damage), (MAX_FINDINGS as u64 + 2, 1));
        assert_eq!(report.findings.len(), MAX_FINDINGS);
    }

    #[test]
    fn names_that_are_lost_are_those_of_a_range() {
        let key = |bytes: &[u8]| ObjectKey::from_bytes(bytes);
        let mut report = FsckReport::default();
        report.lost_names((key(b"d"), Some(key(b"f"))));
        for (from, to, lacks) in [(b"a", b"d", false), (b"a", b"e", true), (b"f", b"g", false)] {
            assert_eq!(report.may_lack(&key(from), &key(to)), lacks);
        }
        for _ in 0..MAX_FINDINGS {
            report.lost_names((key(b"x"), Some(key(b"y"))));
        }
        assert!(report.may_lack(&key(b"a"), &key(b"b")));
    }
}
