//! Repair: an object whose data here turns out to be damaged comes anew from another copy.
//!
//! Every block is verified when it is read. A client's request that meets a damaged one waits while
//! the object is pulled, and is then run again; so does a push to another copy that met it. Only
//! when nobody has a good copy the request fails with EIO. A replica that is asked for an object that
//! it cannot read says that it does not have it, and gets it when the primary has found a good copy.
//!
//! What cannot be repaired by fetching an object is damage to the store's metadata: see
//! [`Daemon::metadata_is_damaged`].

use crate::daemon::Daemon;
use crate::object::ObjectMeta;
use io::Effects;
use store::StoreError;
use types::{HObject, PgId};

impl Daemon {
    /// Reading failed for a client's request or a push of a PG that we lead. Whether another copy
    /// will bring what was damaged: then the request is to be run again when it has.
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
        tracing::warn!("osd.{}: pg {pgid}: {object} is fetched anew: {error}", self.cfg.id);
        self.perf.repairs += 1;
        let mut txn = host.transaction();
        host.put_meta(&mut txn, vec![record]);
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
}
