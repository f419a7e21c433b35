//! Listings of the pool in the middle of all, and one at the end.

use super::Run;
use client::{ClientError, ListCursor, Page, RequestId};

/// Of 256 turns without a listing, in how many one begins.
const RATE: u8 = 32;
/// Entries that a page may have at most, beside what the OSDs allow.
const MAX_PAGE: u64 = 12;

impl Run {
    pub(super) fn begin_listing(&mut self) {
        if self.rng.u8(..) < RATE && !self.load.is_listing() {
            let client = self.rng.usize(0..self.plan.clients);
            self.list(client);
        }
    }

    /// One from the beginning, by this client. None may be under way.
    pub(super) fn list(&mut self, client: usize) {
        self.ask_page(client, self.load.before_all());
    }

    fn ask_page(&mut self, client: usize, from: ListCursor) {
        let most = self.rng.u64(1..=MAX_PAGE);
        let asked = from.clone();
        let id = self.rig.as_user(client, |now, c| c.list(now, asked, most));
        self.load.page_asked(client, id, from, self.rig.world.now());
    }

    /// A page came: the next one is asked for.
    pub(super) fn page_came(
        &mut self,
        client: usize,
        id: RequestId,
        page: Result<Page, ClientError>,
    ) -> Result<(), String> {
        if let Some(next) = self.load.page(client, id, page, self.rig.world.now())? {
            self.ask_page(client, next);
        }
        Ok(())
    }
}
