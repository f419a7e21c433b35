//! `ceph health mute`: alerts that shall be silent for a while.

use super::Checks;
use crate::cluster::Cluster;
use crate::state::Mute;
use crate::store::keys;
use io::Now;

impl Cluster {
    /// Silences an alert.
    pub fn mute(&mut self, code: &str, mute: Mute) {
        self.draft.put(format!("{}{code}", keys::MUTE), denc::encode(&mute));
        self.state.mutes.insert(code.to_owned(), mute);
    }

    /// Lets it sound again.
    pub fn unmute(&mut self, code: &str) {
        if self.state.mutes.remove(code).is_some() {
            self.draft.remove(format!("{}{code}", keys::MUTE));
        }
    }

    /// Ends mutes whose time is over, and those that are not sticky when their alert is gone or
    /// worse than it was.
    pub fn age_mutes(&mut self, now: Now, checks: &Checks) {
        let over = |code: &String, mute: &Mute| {
            let expired = !mute.until.is_zero() && mute.until <= now.wall;
            let check = checks.0.get(code);
            let changed = check.is_none_or(|c| c.count > mute.count);
            expired || (!mute.sticky && changed)
        };
        let ended: Vec<String> = self
            .state
            .mutes
            .iter()
            .filter(|(code, mute)| over(code, mute))
            .map(|(code, _)| code.clone())
            .collect();
        for code in ended {
            self.unmute(&code);
        }
    }
}
