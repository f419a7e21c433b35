//! What a primary has pulled, and had no space for.
//!
//! How large an object is shows only when it comes. One that did not fit is not pulled again before the host says that
//! there is room for it; others are. A new interval knows of none.

use crate::pg::Pg;
use types::HObject;
use types::testing::{Probe, hit};

/// What an object takes at least, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullSize {
    /// Its data.
    pub data: u64,
    /// All of it.
    pub all: u64,
}

impl Pg {
    /// As the primary: there was no space for an object that was on its way here.
    pub fn did_not_fit(&mut self, object: &HObject, size: PullSize) {
        hit(Probe::PullRefused);
        self.recovery.unfitting.insert(object.clone(), size);
        self.give_up(object, None);
    }

    /// Objects that did not fit, and are not to be pulled.
    pub fn unfitting(&self) -> impl ExactSizeIterator<Item = (&HObject, PullSize)> {
        self.recovery.unfitting.iter().map(|(object, size)| (object, *size))
    }

    /// Whether an object is one of them.
    pub fn is_unfitting(&self, object: &HObject) -> bool {
        self.recovery.unfitting.contains_key(object)
    }

    /// There is room for one of them, or nobody misses it any more.
    pub fn may_pull_again(&mut self, object: &HObject) {
        self.recovery.unfitting.remove(object);
        self.look_again(object);
        if self.recovery.damaged.contains_key(object) {
            // A repair waits for it.
            self.hurry(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::left_out::{at, copy, object, peer, pulled};
    use crate::missing::Missing;
    use crate::pg::Stage;
    use crate::recovery::Need;
    use crate::status::StateBits;
    use types::{Eversion, SnapId};

    /// Nothing at all was pulled any more, also when the object was deleted.
    #[test]
    fn what_does_not_fit_keeps_nothing_else_from_being_pulled() {
        let mut pg = copy(Stage::Active, &[1, 2]);
        peer(&mut pg, 2, Missing::default());
        let (large, clone) = (object(), object().at_snap(SnapId(4)));
        let small = HObject { hash: 8, ..object() };
        for (i, o) in [&clone, &large, &small].into_iter().enumerate() {
            pg.missing.set(o.clone(), at(5, 5 + i as u64), Eversion::ZERO);
        }
        assert_eq!(pulled(pg.next_recovery()).as_ref(), Some(&clone));
        let size = PullSize { data: 100, all: 110 };
        pg.did_not_fit(&clone, size);
        assert!(pg.unfitting().eq([(&clone, size)]));
        // A head comes after its clones.
        [&clone, &large].into_iter().for_each(|o| pg.hurry(o));
        assert_eq!(pg.next_urgent(true, true), None);
        assert_eq!(pulled(pg.next_recovery()).as_ref(), Some(&small));
        pg.arrived(&small, at(5, 7));
        pg.pulled(&small, &mut crate::Fx::default());
        assert_eq!((pg.need(), pg.unfound_count()), (Need::Nothing, 0));
        assert!(pg.state().has(StateBits::RECOVERY_TOOFULL), "{}", pg.state());
        pg.may_pull_again(&clone);
        assert_eq!(pg.need(), Need::Recovery);
        assert_eq!(pulled(pg.next_recovery()).as_ref(), Some(&clone));
    }
}
