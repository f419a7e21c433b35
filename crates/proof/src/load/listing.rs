//! A listing of the pool, page by page. To the history of each object that nobody changed meanwhile its end is an answer
//! to whether there is one, asked when the listing began.

use super::Load;
use crate::linear::Record;
use crate::object::{Action, Answer, Op};
use client::{ClientError, ListCursor, Page, RequestId};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use types::Errno;
use wire::msg::op_data::ListedObject;

/// One that is under way.
pub(super) struct Listing {
    pub(super) client: usize,
    /// Its page that is under way, from here on.
    page: RequestId,
    from: ListCursor,
    /// When it began, in the order of events and in simulated time.
    invoked: u64,
    since: Duration,
    seen: BTreeSet<u64>,
}

impl Load {
    /// Whether one is under way.
    pub fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// Where one begins.
    pub fn before_all(&self) -> ListCursor {
        ListCursor::new(self.pool, None)
    }

    /// A page was asked for: of the listing that is under way, or of a new one.
    pub fn page_asked(&mut self, client: usize, page: RequestId, from: ListCursor, now: Duration) {
        if let Some(listing) = &mut self.listing {
            (listing.page, listing.from) = (page, from);
            return;
        }
        let (invoked, seen) = (self.tick(), BTreeSet::new());
        self.listing = Some(Listing { client, page, from, invoked, since: now, seen });
    }

    /// A page came. Where the next one begins, if there is one.
    ///
    /// # Errors
    /// A story, when it cannot be right whatever happened.
    pub fn page(
        &mut self,
        client: usize,
        id: RequestId,
        page: Result<Page, ClientError>,
        now: Duration,
    ) -> Result<Option<ListCursor>, String> {
        let is_it = |l: &mut Listing| (l.client, l.page) == (client, id);
        let Some(mut listing) = self.listing.take_if(is_it) else { return Ok(None) };
        let page = match page {
            Ok(page) => page,
            // A damaged row of which the good copies are away.
            Err(why) if why.errno == Errno::EIO && self.may_be_unreadable => {
                self.unreadable += 1;
                return Ok(None);
            }
            Err(why) => return Err(format!("the pool cannot be listed: {why}")),
        };
        self.see(&mut listing, page.objects)?;
        if page.next.is_end() {
            self.listed(listing, now);
            return Ok(None);
        }
        self.listing = Some(listing);
        Ok(Some(page.next))
    }

    fn see(&self, listing: &mut Listing, objects: Vec<ListedObject>) -> Result<(), String> {
        for ListedObject { name, .. } in objects {
            let text = name.to_string();
            let number = text.strip_prefix("object").and_then(|n| n.parse().ok());
            let Some(number) = number.filter(|n| self.histories.contains_key(n)) else {
                return Err(format!("nobody wrote {name}, and it is listed"));
            };
            if !listing.seen.insert(number) {
                return Err(format!("{name} is listed twice, at last from {:?}", listing.from));
            }
        }
        Ok(())
    }

    /// All that is there was seen.
    fn listed(&mut self, listing: Listing, now: Duration) {
        let Listing { client, invoked, since, seen, .. } = listing;
        let answered = Some(self.tick());
        self.answered += 1;
        for (object, history) in &mut self.histories {
            // As with Ceph, what is being written may be listed, and then not come about.
            if history.records.iter().any(|record| may_change_it(record, invoked)) {
                continue;
            }
            let answer = Some(Answer::Listed(seen.contains(object)));
            let op = Op { client, action: Action::List, snaps: Rc::default(), seq: 0, answer };
            history.records.push(Record { invoked, answered, op });
            history.times.push((since, Some(now)));
        }
    }
}

/// Whether a request may make or remove its object at some moment after this one.
fn may_change_it(record: &Record<Op>, moment: u64) -> bool {
    // What trimming takes away may be listed until then.
    let looks = matches!(record.op.action, Action::Read(_) | Action::List | Action::Trim(_));
    !looks && record.answered.is_none_or(|answered| answered > moment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use client::OpReply;
    use types::PoolId;

    const POOL: PoolId = PoolId(1);

    /// Two objects were made, another one is being made, and these are listed.
    fn listed(names: &[&str]) -> Result<(), String> {
        let mut load = Load::new(&Plan::new(1), POOL);
        for object in [1, 2] {
            let (object, op, _) = load.request(1, object, Action::CreateExclusive);
            let id = RequestId(load.tick());
            load.sent(object, op, id, Duration::ZERO);
            load.answer(1, id, Ok(OpReply::default()), Duration::ZERO)?;
        }
        let (object, op, _) = load.request(1, 4, Action::CreateExclusive);
        let id = RequestId(load.tick());
        load.sent(object, op, id, Duration::ZERO);
        let (page, from) = (RequestId(load.tick()), load.before_all());
        load.page_asked(1, page, from, Duration::ZERO);
        let mut listing = load.listing.take().expect("it is under way");
        let one = |name: &&str| ListedObject { name: (*name).into(), ..ListedObject::default() };
        load.see(&mut listing, names.iter().map(one).collect())?;
        load.listed(listing, Duration::ZERO);
        load.check()
    }

    #[test]
    fn what_is_there_is_listed_once_and_nothing_else() {
        assert_eq!(listed(&["object1", "object2"]), Ok(()));
        assert_eq!(listed(&["object4", "object1", "object2"]), Ok(()));
        assert!(listed(&["object1"]).is_err_and(|why| why.starts_with("object2 ")));
        assert!(listed(&["object1", "object2", "object1"]).is_err_and(|why| why.contains("twice")));
        assert!(
            listed(&["object1", "object2", "object3"]).is_err_and(|why| why.contains("nobody"))
        );
    }
}
