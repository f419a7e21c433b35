//! Commands of tests, by Ceph's names (`OSD.cc: TestOpsSocketHook`), that change one copy of an object
//! behind the back of everything else. And those that begin a scrub from here.

use crate::daemon::Daemon;
use crate::host::{account, sequencer};
use admin::{Answer, Args, CommandError};
use bytes::Bytes;
use pg::scrub::Kind;
use store::Transaction;
use types::{HObject, ObjectKey, PgId, SnapId};

impl Daemon {
    /// `scrub PGID`, `deep_scrub PGID`, `repair PGID`
    pub(crate) fn scrub_command(
        &mut self,
        args: &Args,
        kind: Kind,
    ) -> Result<Answer, CommandError> {
        let pgid = args.pgid("pgid").ok_or_else(|| CommandError::invalid("no pgid specified"))?;
        if !self.request_scrub(pgid, kind) {
            let id = self.cfg.id;
            let why = format_args!("osd.{id} is not the primary of {pgid}");
            return Err(CommandError::not_found(why));
        }
        Ok(Answer::message(format_args!("{} of pg {pgid} will begin", kind.name())))
    }

    /// The copy here of the object that a command names.
    fn copy_here(&self, args: &Args) -> Result<(PgId, ObjectKey), CommandError> {
        let (pool_name, full) = (args.text("pool"), args.text("objname"));
        let (nspace, name) = full.split_once('/').unwrap_or(("", &full));
        let map = self.maps.current();
        let pool = map
            .pool_by_name(&pool_name)
            .ok_or_else(|| CommandError::not_found(format_args!("Invalid pool '{pool_name}'")))?;
        let raw = map.object_to_pg(pool, nspace.as_bytes(), b"", name.as_bytes());
        let pgid = raw.and_then(|raw| Some((raw.seed, map.raw_pg_to_pg(raw)?)));
        let Some((hash, pgid)) = pgid.filter(|(_, p)| self.pgs.contains_key(p)) else {
            let text = format_args!("no copy of '{full}' belongs here");
            return Err(CommandError::not_found(text));
        };
        let object = HObject {
            pool,
            hash,
            nspace: nspace.into(),
            name: name.into(),
            snap: SnapId::HEAD,
            ..HObject::min()
        };
        Ok((pgid, object.to_key()))
    }

    /// Changes the copy here of the object that a command names.
    pub(crate) fn inject(
        &mut self,
        args: &Args,
        change: impl FnOnce(&mut Transaction, &ObjectKey),
    ) -> Result<Answer, CommandError> {
        let (pgid, key) = self.copy_here(args)?;
        let mut txn = Transaction::new(sequencer(pgid));
        txn.may_use_reserve = true;
        txn.account = account(pgid);
        change(&mut txn, &key);
        self.scrubs.injected.push((pgid, txn));
        Ok(Answer::message("ok"))
    }

    pub(crate) fn set_omap_val(&mut self, args: &Args) -> Result<Answer, CommandError> {
        let bytes = |name: &str| Bytes::copy_from_slice(args.text(name).as_bytes());
        let pair = (bytes("key"), bytes("val"));
        self.inject(args, |txn, key| {
            txn.touch(key);
            txn.omap_set(key, vec![pair]);
        })
    }

    pub(crate) fn remove_omap_key(&mut self, args: &Args) -> Result<Answer, CommandError> {
        let name = Bytes::copy_from_slice(args.text("key").as_bytes());
        self.inject(args, |txn, key| {
            txn.touch(key);
            txn.omap_remove(key, vec![name]);
        })
    }

    pub(crate) fn truncate_copy(&mut self, args: &Args) -> Result<Answer, CommandError> {
        let len = args.int("len").and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        self.inject(args, |txn, key| {
            txn.touch(key);
            txn.truncate(key, len);
        })
    }

    pub(crate) fn remove_copy(&mut self, args: &Args) -> Result<Answer, CommandError> {
        self.inject(args, |txn, key| {
            txn.remove(key);
        })
    }
}
