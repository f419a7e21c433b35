//! Counting anew what accounts have, where that was not done from the beginning, or was done wrong.

use super::Mount;
use crate::error::MountError;
use crate::fsck::{Fsck, FsckReport, Recounted};
use crate::store::Store;
use crate::store::inflight::Io;
use io::Effects;
use io::disk::DiskDone;

impl Mount {
    /// Begins to count, if it has to be done: all rows are read. Then it goes on with repairs.
    pub(super) fn begin_recount(&mut self, fx: &mut Effects) -> Result<(), MountError> {
        let is_counted =
            self.replay.as_ref().is_none_or(|r| r.accounts.total().data == r.alloc.data_blocks());
        if is_counted || self.config.account_of.is_none() {
            return self.begin_repair(fx);
        }
        let Some(replay) = self.replay.take() else { return Ok(()) };
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
        match accounts {
            Some(accounts) => replay.accounts.replace(accounts),
            None => {
                let path = self.path();
                self.warnings.push(format!(
                    "{path}: what each pool takes cannot be counted, since some of the store's records are damaged; \
                     `loligo store fsck` says which"
                ));
            }
        }
        self.replay = Some(replay);
        self.begin_repair(fx)
    }
}
