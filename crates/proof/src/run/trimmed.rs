//! In the end nothing is left of removed snapshots.

use super::{ANSWERED_WITHIN, Run, Unwell, has_words};
use crate::load::READER;
use crate::rig::TICK;
use client::{Completion, Outcome};
use serde_json::Value;
use std::time::Duration;
use types::Errno;

/// Until all is trimmed once all PGs are clean.
const TRIMMED_WITHIN: Duration = Duration::from_secs(120);
/// What states say of PGs that have something to trim.
const TRIMS: [&str; 3] = ["snaptrim", "snaptrim_wait", "snaptrim_error"];

impl Run {
    /// No PG has anything to trim, and the mon has heard that of all of them.
    pub(super) fn wait_trimmed(&mut self) -> Result<(), Unwell> {
        let end = self.rig.world.now() + TRIMMED_WITHIN;
        loop {
            let map = self.rig.ask(r#"{"prefix":"osd dump","format":"json"}"#);
            let queues = map["removed_snaps_queue"].as_array().expect("a map says what is removed");
            let is_purged =
                queues.iter().all(|of| of["snaps"].as_array().is_some_and(Vec::is_empty));
            let trims = |s: &Value| TRIMS.iter().any(|word| has_words(s, &[*word]));
            if is_purged && !self.pg_stats().iter().any(trims) {
                return Ok(());
            }
            if self.rig.world.now() > end {
                return Err(Unwell::Waits(format!(
                    "removed snapshots are not trimmed {TRIMMED_WITHIN:?} after all PGs are clean: \
                     {queues:?}\n{}",
                    self.pgs()
                )));
            }
            self.rig.pass(100 * TICK);
            self.hear()?;
        }
    }

    /// Every clone serves a snapshot that exists, unless objects went back to what they were before their clones were
    /// trimmed.
    pub(super) fn no_clone_is_left(&mut self, is_whole: bool) -> Result<(), String> {
        if !is_whole {
            return Ok(());
        }
        for object in self.load.objects() {
            let ask = self.load.clones_of(object);
            let sent = self.rig.as_user(READER, |now, c| c.submit(now, ask));
            let id = sent.map_err(|why| why.to_string())?;
            let mut answer = None;
            self.rig.wait(ANSWERED_WITHIN, TICK, |rig| {
                answer = rig.done(READER).into_iter().find(|c| c.id == id);
                answer.is_some()
            });
            let clones = match answer {
                Some(Completion { outcome: Outcome::Op(Ok(reply)), .. }) => reply.snaps(0),
                Some(Completion { outcome: Outcome::Op(Err(why)), .. }) => Err(why),
                other => {
                    return Err(format!("object{object}: its clones are not listed: {other:?}"));
                }
            };
            let left = match clones {
                Ok(clones) => self.load.left_over(clones),
                Err(why) if why.errno == Errno::ENOENT => Vec::new(),
                Err(why) => {
                    return Err(format!("object{object}: its clones are not listed: {why}"));
                }
            };
            if !left.is_empty() {
                return Err(format!(
                    "object{object}: clones are left that no snapshot needs: {left:?}"
                ));
            }
        }
        Ok(())
    }
}
