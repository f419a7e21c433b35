//! Repair: an object whose data here turns out to be damaged comes anew from another copy.
//!
//! Every block is verified when it is read. A client's request that meets a damaged one waits while
//! the object is pulled, and is then run again; so does a push to another copy that met it. Only
//! when no copy is good the request fails with EIO. Where the damaged copy is the only one of its
//! version, and others have an older state of the object, it is unfound: requests wait until the
//! operator goes back to that (see [`crate::unfound`]). A replica that is asked for an object that
//! it cannot read says that it does not have it, and gets it when the primary has found a good copy.
//!
//! What cannot be repaired by fetching an object is damage to the store's metadata: see
//! [`Daemon::metadata_is_damaged`].

use crate::daemon::Daemon;
use crate::object::ObjectMeta;
use crate::push::Sending;
use crate::recover::{for_each_of, take_of};
use io::Effects;
use peer::Push;
use store::StoreError;
use types::testing::{Probe, hit};
use types::{HObject, OsdId, PgId};
use wire::msg::Payload;

impl Daemon {
    /// Reading failed for a client's request or a push of a PG that we lead. Whether what was damaged
    /// counts as missing: then the request is to be run again when another copy has brought it.
    pub(crate) fn begin_repair(
        &mut self,
        pgid: PgId,
        error: &StoreError,
        fx: &mut Effects,
    ) -> Option<HObject> {
        let key = error.object()?;
        let object = key.decode().ok()?;
        let stat = self.store.stat(key).ok().flatten()?;
        let version = ObjectMeta::decode(&stat.meta).ok()?.version;
        let host = self.pgs.get_mut(&pgid)?;
        if !host.pg.is_primary() || object.pool != pgid.pool {
            return None;
        }
        if host.pg.missing().contains(&object) {
            return Some(object);
        }
        let record = host.pg.repair(&object, version)?;
        let becomes = if host.pg.is_unfound(&object) { "unfound" } else { "fetched anew" };
        tracing::warn!("osd.{}: pg {pgid}: {object} is {becomes}: {error}", self.cfg.id);
        self.perf.repairs += 1;
        hit(Probe::DamageFound);
        let mut txn = host.transaction();
        host.put_meta(&mut txn, [record]);
        host.dirty = true;
        self.submit(pgid, txn, Vec::new(), fx);
        self.note_recovering(pgid);
        self.report_soon();
        Some(object)
    }

    /// Whether an error is of a kind that no copy of an object repairs: the store has lost part of
    /// what it knows. The OSD ends where others have all that it has, and they take over; where they
    /// do not, what can be read still counts for more.
    pub(crate) fn metadata_is_damaged(
        &mut self,
        pgid: PgId,
        error: &StoreError,
        fx: &mut Effects,
    ) -> bool {
        let StoreError::BadMetadata { .. } = error else { return false };
        let complete = |h: &crate::host::PgHost| h.pg.has_complete_peer();
        if !self.pgs.get(&pgid).is_some_and(complete) {
            return false;
        }
        let id = self.cfg.id;
        fx.exit(
            1,
            format!(
                "osd.{id} stops: pg {pgid}: {error}. Its data is on the other copies; check the \
                 store with `loligo store fsck`, and make it anew if that names damage"
            ),
        );
        true
    }

    /// Our copy of an object is damaged: it cannot be the source.
    pub(crate) fn cannot_send(
        &mut self,
        pgid: PgId,
        to: OsdId,
        object: HObject,
        why: &StoreError,
        fx: &mut Effects,
    ) {
        if self.metadata_is_damaged(pgid, why, fx) {
            return;
        }
        let epoch = self.maps.epoch();
        let key = (to, object.clone());
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let interval = host.interval();
        let Some(sending) = host.transfers.sending.get_mut(&key) else { return };
        if sending.pulled {
            host.transfers.sending.remove(&key);
            let push = Push::absent(pgid, epoch, interval, object);
            self.send_peer(to, push.encode(), fx);
            return;
        }
        *sending = Sending { waits_for_repair: true, ..Sending::default() };
        if self.begin_repair(pgid, why, fx).is_none()
            && let Some(host) = self.pgs.get_mut(&pgid)
        {
            // Else it would be the next one to be pushed, again and again.
            host.pg.cannot_read(&object);
        }
        self.end_vain_pushes(pgid, &object);
        self.note_recovering(pgid);
        self.report_soon();
    }

    /// When nobody has a good copy of an object it is not pushed. The PG stays degraded and says so.
    fn end_vain_pushes(&mut self, pgid: PgId, object: &HObject) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        if host.pg.missing().contains(object) && !host.pg.is_unfound(object) {
            return;
        }
        let ended = take_of(&mut host.transfers.sending, object, |s| s.waits_for_repair);
        // Others may have come by what is damaged here already.
        host.pg.pushed_in_vain(object, &ended);
    }

    /// A good copy of an object is here: pushes that waited for it begin.
    pub(crate) fn begin_waiting_pushes(&mut self, pgid: PgId, object: &HObject, fx: &mut Effects) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        let mut targets = Vec::new();
        for_each_of(&mut host.transfers.sending, object, |to, sending| {
            if std::mem::take(&mut sending.waits_for_repair) {
                targets.push(to);
            }
        });
        for to in targets {
            self.push_part(pgid, to, object.clone(), fx);
        }
    }

    /// Another copy did not have the object that we asked it for.
    pub(crate) fn source_failed(
        &mut self,
        pgid: PgId,
        from: OsdId,
        object: &HObject,
        fx: &mut Effects,
    ) {
        let Some(host) = self.pgs.get_mut(&pgid) else { return };
        hit(Probe::SourceFailed);
        let was_missing = host.pg.missing().contains(object);
        if let Some(record) = host.pg.source_failed(object, from) {
            tracing::error!(
                "osd.{}: pg {pgid}: no copy of {object} is whole; what cannot be read is answered \
                 with an error",
                self.cfg.id
            );
            let mut txn = host.transaction();
            host.put_meta(&mut txn, [record]);
            self.submit(pgid, txn, Vec::new(), fx);
        }
        if was_missing {
            self.end_vain_pushes(pgid, object);
        }
        self.note_recovering(pgid);
        self.report_soon();
        self.release_object(pgid, object, fx);
    }
}
