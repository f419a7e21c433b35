//! Object maps that are not right: the header says so, until somebody makes them anew
//! (`object_map/InvalidateRequest.cc`).
//!
//! A map that could not be changed is not trusted here from that moment on. Others trust it until the header has
//! the flag: whatever makes the map a lie (an object that comes to be, a map that begins anew) waits for that.

use super::format::{FAST_DIFF_INVALID, MAP_INVALID, feature};
use super::script::Desk;
use super::state::{Image, LockState, Shared};
use crate::error::ClientError;
use crate::op::ObjectOp;
use types::{Errno, SnapId};

/// Has the header say that an object map is not right. It does when this has ended well.
pub async fn invalidate_map(desk: &Desk, slot: usize, snap: SnapId) -> Result<(), ClientError> {
    let Some(op) = desk.with(|s| s.image_mut(slot).distrust_map(snap)) else { return Ok(()) };
    desk.op(op).await?;
    desk.with(|s| {
        let image = s.image_mut(slot);
        image.unmarked.remove(&snap);
        // For a refresh that has read the flags as they were.
        image.mark_map(snap);
        image.head_changes += 1;
    });
    Ok(())
}

/// The same for the maps of all snapshots.
pub async fn invalidate_snapshot_maps(desk: &Desk, slot: usize) -> Result<(), ClientError> {
    let snaps: Vec<SnapId> =
        desk.with(|s| s.image(slot).head.snaps.iter().map(|s| s.info.id).collect());
    for snap in snaps {
        invalidate_map(desk, slot, snap).await?;
    }
    Ok(())
}

impl Image {
    fn invalid_bits(&self) -> u64 {
        let fast_diff = if self.head.has(feature::FAST_DIFF) { FAST_DIFF_INVALID } else { 0 };
        MAP_INVALID | fast_diff
    }

    fn map_flags(&mut self, snap: SnapId) -> Option<&mut u64> {
        match snap {
            SnapId::HEAD => Some(&mut self.head.flags),
            id => self.head.snaps.iter_mut().find(|s| s.info.id == id).map(|s| &mut s.flags),
        }
    }

    fn mark_map(&mut self, snap: SnapId) {
        let bits = self.invalid_bits();
        if let Some(flags) = self.map_flags(snap) {
            *flags |= bits;
        }
    }

    /// Does not trust an object map any more. The request that has the header say so, unless it does.
    fn distrust_map(&mut self, snap: SnapId) -> Option<ObjectOp> {
        let bits = self.invalid_bits();
        let flags = *self.map_flags(snap)?;
        if flags & bits == bits && !self.unmarked.contains(&snap) {
            return None;
        }
        self.unmarked.insert(snap);
        self.mark_map(snap);
        self.head_changes += 1;
        let input = denc::encode(&(bits, bits, snap));
        Some(ObjectOp::new(self.header()).call("rbd", "set_flags", input).as_write())
    }

    /// The header was read: what it does not say yet still counts.
    pub fn mark_unmarked(&mut self) {
        for snap in std::mem::take(&mut self.unmarked) {
            self.mark_map(snap);
            self.unmarked.insert(snap);
        }
    }

    /// The lock is gone, and with it what is known of the map.
    pub fn drop_map(&mut self) {
        self.map = None;
        self.unmarked.clear();
    }
}

impl Shared {
    /// A change of the object map failed that has to do with an object: it goes on when the header says that the
    /// map is not right.
    pub fn map_failed(&mut self, slot: usize, object: u64, error: &ClientError) {
        tracing::warn!(%error, "the object map is marked as invalid");
        self.spawn_for(slot, move |desk| async move {
            let marked = invalidate_map(&desk, slot, SnapId::HEAD).await;
            desk.with(|s| {
                let has_lock =
                    matches!(s.image(slot).lock, LockState::Locked | LockState::Releasing);
                let kept = match has_lock {
                    true => Ok(()),
                    false => Err(s.error(slot, Errno::EBUSY, "change of", "its lock is lost")),
                };
                s.map_changed(slot, object, marked.and(kept));
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::io::Kind;
    use super::super::object_map::State;
    use super::super::stage::Stage;
    use super::*;

    const MAP: &str = "rbd_object_map.1: lock.assert_locked+rbd.object_map_update";
    const FLAG: &str = "rbd_header.1: rbd.set_flags";

    #[test]
    fn an_object_is_written_when_the_header_says_that_its_map_is_wrong() {
        let mut stage = Stage::new();
        let slot = stage.locked();
        let write = stage.submit(slot, Kind::Write, 2, 100);
        let map = stage.take(MAP);
        stage.fail(map, Errno::ETIMEDOUT);
        assert!(!stage.is_asked("data."), "the map may say that there is nothing");
        let flag = stage.take(FLAG);
        stage.fail(flag, Errno::ETIMEDOUT);
        assert_eq!(stage.end(write), Some(Err(Errno::ETIMEDOUT)));
        // It is tried again, also after the header was read.
        stage.with(|s| {
            s.image_mut(slot).refresh_needed = true;
            s.want_refresh(slot);
        });
        stage.run();
        stage.serve();
        assert!(stage.with(|s| !s.image(slot).map_is_valid()));
        let write = stage.submit(slot, Kind::Write, 2, 100);
        let map = stage.take(MAP);
        stage.fail(map, Errno::EIO);
        assert!(!stage.is_asked("data."));
        let flag = stage.take(FLAG);
        stage.ok(flag);
        let data = stage.take("data.0000000000000002: ");
        stage.ok(data);
        assert_eq!(stage.end(write), Some(Ok(())));
        // Once.
        stage.submit(slot, Kind::Write, 3, 100);
        let map = stage.take(MAP);
        stage.fail(map, Errno::EIO);
        assert!(stage.is_asked("data.") && !stage.is_asked(FLAG));
    }

    #[test]
    fn a_damaged_map_is_not_made_anew_before_the_header_says_so() {
        let mut stage = Stage::new();
        stage.map = vec![State::Exists; 4];
        let slot = stage.open();
        for answer in [Err(Errno::EIO), Ok(())] {
            let lock =
                stage.script(|desk| async move { super::super::maintain::lock(&desk, slot).await });
            let load = stage.until("rbd.object_map_load");
            stage.fail(load, Errno::EINVAL);
            assert_eq!(stage.asked.len(), 1, "{:?}", stage.asked);
            let flag = stage.take(FLAG);
            match answer {
                Ok(()) => {
                    stage.ok(flag);
                    assert!(stage.is_asked("rbd.object_map_resize"));
                    stage.serve();
                    assert!(lock.take().unwrap().is_ok());
                }
                Err(errno) => {
                    stage.fail(flag, errno);
                    stage.serve();
                    assert_eq!(lock.take().unwrap().unwrap_err().errno, errno);
                }
            }
        }
    }

    #[test]
    fn what_waits_for_a_change_of_the_map_is_not_written_when_the_lock_is_lost() {
        let mut stage = Stage::new();
        let slot = stage.locked();
        let writes = [(); 3].map(|()| stage.submit(slot, Kind::Write, 2, 100));
        let map = stage.take(MAP);
        stage.fail(map, Errno::EBUSY);
        assert!(!stage.is_asked("data."), "{:?}", stage.asked);
        for write in writes {
            assert_eq!(stage.end(write), Some(Err(Errno::EBUSY)));
        }
    }
}
