//! What a scrub changes in the PG's machine: copies that are to be replaced, and its record.

use super::{ScrubRecord, Source, Verdict};
use crate::missing::MissingItem;
use crate::msg::Body;
use crate::persist::{MetaOp, put_missing};
use crate::pg::{Fx, Pg, Stage};
use types::{Eversion, HObject, OsdId};

impl Pg {
    /// As the primary: bad copies count as missing, and recovery replaces them. Gives the record
    /// changes, or `None` when the object cannot be repaired now. What [`Source::Deleted`] leaves on
    /// the primary the host removes.
    pub fn repair_copies(&mut self, verdict: &Verdict) -> Option<Vec<MetaOp>> {
        assert!(self.is_primary(), "{}: a replica repairs nothing by itself", self.info.pgid);
        let need = match verdict.source {
            Source::Copy(_, version) => version,
            Source::Deleted => Eversion::ZERO,
            Source::None => return None,
        };
        let object = &verdict.object;
        if self.stage != Stage::Active || self.is_missing_anywhere(object) {
            return None;
        }
        self.forget_failures(object);
        // First of all others: what is missing there is not fetched from there.
        let others: Vec<OsdId> = verdict.bad().filter(|o| *o != self.me).collect();
        for osd in &others {
            if let Some(missing) = self.peers.get_mut(osd).and_then(|p| p.missing.as_mut()) {
                missing.set(object.clone(), need, Eversion::ZERO);
            }
        }
        let mine = verdict.bad().any(|o| o == self.me) && verdict.source != Source::Deleted;
        self.look_again(object);
        if !mine {
            return Some(Vec::new());
        }
        // It may be readable, and yet not be what it should be: never is it what is left when no other copy is.
        let record = self.bring_anew(object, MissingItem::new(need, Eversion::ZERO));
        if record.is_none() {
            for osd in &others {
                if let Some(missing) = self.peers.get_mut(osd).and_then(|p| p.missing.as_mut()) {
                    missing.remove(object);
                }
            }
        }
        record.map(|r| vec![r])
    }

    /// As the primary: members whose copies of `object` count as missing hear of it, and write it down.
    /// When the interval ends before they are brought the object, the next primary hears of it from them.
    pub fn tell_of_bad_copies(&self, object: &HObject, fx: &mut Fx) {
        for (osd, peer) in &self.peers {
            let item = peer.missing.as_ref().and_then(|m| m.get(object));
            let acts = self.mapping.acting.contains(osd);
            if let Some(item) = item.filter(|i| acts && i.need > Eversion::ZERO) {
                self.send(*osd, Body::Bad(Box::new(object.clone()), item.need), fx);
            }
        }
    }

    /// As a replica: the primary found our copy of `object` to be bad.
    pub(crate) fn on_bad_copy(&mut self, object: &HObject, need: Eversion, fx: &mut Fx) {
        let known = need > self.info.last_update || self.missing.contains(object);
        if self.stage != Stage::Replica || known {
            return;
        }
        let item = MissingItem::new(need, Eversion::ZERO);
        self.missing.set(object.clone(), item.need, item.have);
        fx.meta.push(put_missing(object, &item));
    }

    /// As the primary: whether some member is being brought this object anyway.
    pub fn is_missing_anywhere(&self, object: &HObject) -> bool {
        let missing = |p: &crate::pg::Peer| p.missing.as_ref().is_some_and(|m| m.contains(object));
        self.missing.contains(object) || self.peers.values().any(missing)
    }

    /// As the primary: a scrub is over. Every holder hears of it.
    pub fn scrubbed(&mut self, record: ScrubRecord, fx: &mut Fx) {
        assert!(record.changes > self.info.history.scrub.changes, "a record only grows");
        self.info.history.scrub = record;
        self.info_dirty = true;
        self.share_history(fx);
        self.flush_info(fx);
    }
}
