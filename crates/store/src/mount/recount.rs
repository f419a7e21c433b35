//! Counting anew what accounts have, where that was not done from the beginning, or was done wrong.
//!
//! An OSD can do without: so it is waited for only where it takes some seconds, and what could not be counted once is
//! not tried again. [`COUNT_ALL`] is for who has the time.

use super::Mount;
use super::replay::Replay;
use crate::config::COUNT_ALL;
use crate::error::MountError;
use crate::fsck::{Fsck, FsckReport, Recounted};
use crate::store::Store;
use crate::store::inflight::Io;
use io::Effects;
use io::disk::DiskDone;

impl Mount {
    /// Begins to count, if it has to be done: all rows are read. Then it goes on with repairs.
    pub(super) fn begin_recount(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        let Some(replay) = self.replay.take() else { return Ok(()) };
        let is_known = replay.accounts.is_known(replay.alloc.data_blocks());
        let is_wanted = self.config.recount_blocks == COUNT_ALL || !is_known;
        if !is_wanted || self.config.account_of.is_none() {
            self.replay = Some(replay);
            return self.begin_repair(fx);
        }
        if let Some(why) = self.why_not_counted(&replay) {
            return self.give_up(replay, why, fx);
        }
        let (devices, sb) = (self.devices.clone(), self.sb().clone());
        let first_token = self.io.next_token();
        let mut recount = Fsck::recount((devices, &self.config), (sb, replay), first_token);
        match recount.start_recount(fx) {
            Some(report) => self.end_recount(recount, &report, fx),
            None => {
                self.recount = Some(Box::new(recount));
                Ok(())
            }
        }
    }

    fn why_not_counted(&self, replay: &Replay) -> Option<&'static str> {
        let most = self.config.recount_blocks;
        if most == COUNT_ALL {
            None
        } else if replay.accounts.is_given_up() {
            Some("an earlier start did not do it; `loligo store count` does, while the OSD is down")
        } else {
            let is_long = self.walk.tree.leaf_blocks > most;
            is_long.then_some("it takes long; `loligo store count` does it, while the OSD is down")
        }
    }

    fn give_up(
        &mut self,
        mut replay: Replay,
        why: &str,
        fx: &mut Effects,
    ) -> Result<(), MountError> {
        replay.accounts.give_up();
        self.replay = Some(replay);
        let path = self.path();
        self.warnings.push(format!(
            "{path}: what each pool takes is not counted in this store, only estimated: {why}"
        ));
        self.begin_repair(fx)
    }

    /// A read of it ended.
    pub(super) fn recount_read(
        &mut self,
        done: DiskDone,
        fx: &mut Effects,
    ) -> Result<Option<Store>, MountError> {
        let Some(mut recount) = self.recount.take() else { return Ok(None) };
        match recount.handle(done, fx) {
            Some(report) => self.end_recount(*recount, &report, fx)?,
            None => self.recount = Some(recount),
        }
        self.finish_if_written()
    }

    fn end_recount(
        &mut self,
        recount: Fsck,
        report: &FsckReport,
        fx: &mut Effects,
    ) -> Result<(), MountError> {
        let Recounted { mut replay, accounts, next_token } = recount.recounted(report);
        self.io = Io::new(next_token);
        let Some(accounts) = accounts else {
            let why = "some of its records are damaged; `loligo store fsck` says which";
            if self.config.recount_blocks == COUNT_ALL {
                return Err(self.damaged("what each pool takes cannot be counted", why));
            }
            return self.give_up(replay, why, fx);
        };
        replay.accounts.replace(accounts, replay.alloc.data_blocks());
        self.replay = Some(replay);
        self.begin_repair(fx)
    }

    /// Of the nodes of the tree those that have been read to count what accounts have, and how many there are.
    pub fn counted_nodes(&self) -> Option<(u64, u64)> {
        let tree = &self.walk.tree;
        self.recount.as_ref().map(|recount| (recount.nodes(), tree.leaves + tree.inner))
    }
}
