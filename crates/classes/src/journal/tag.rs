//! Tags: whenever an image gets another owner, its entries get another tag. Tags of a class follow
//! each other, and one is needed as long as a client has entries of it to read.

use super::types::{Client, Tag};
use super::{CLIENT, NEXT_TAG_CLASS, NEXT_TAG_TID, all_clients, get};
use crate::input::args;
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use denc::Decode;
use std::collections::BTreeMap;
use types::Errno;

const PREFIX: &str = "tag_";

fn key(tid: u64) -> String {
    format!("{PREFIX}{tid:016x}")
}

/// All tags in order; EINVAL when one does not stand where it should.
fn all(o: &mut dyn Object) -> CallResult<Vec<Tag>> {
    let listed = omap::list_as::<Tag>(o, PREFIX, b"", omap::ALL)?;
    let in_place = |(name, tag): (Bytes, Tag)| {
        let stands = name[..] == *format!("{:016x}", tag.tid).as_bytes();
        if stands { Ok(tag) } else { Err(Errno::EINVAL.into()) }
    };
    listed.into_iter().map(in_place).collect()
}

/// The newest tag of each class among those before the first that `least` is in.
fn in_use(tags: &[Tag], least: u64) -> BTreeMap<u64, u64> {
    let mut newest = BTreeMap::new();
    for tag in tags {
        newest.insert(tag.class, tag.tid);
        if tag.tid >= least {
            break;
        }
    }
    newest
}

/// Removes the tags that no client needs any more.
pub fn expire(o: &mut dyn Object, clients: &[Client]) -> CallResult<()> {
    let connected = clients.iter().filter(|c| c.state != Client::DISCONNECTED);
    let committed: Vec<_> = connected.map(|c| &c.committed.positions).collect();
    if committed.iter().any(|positions| positions.is_empty()) {
        return Ok(());
    }
    let Some(least) = committed.into_iter().flatten().map(|p| p.tag).min() else {
        return Ok(());
    };
    let tags = all(o)?;
    let newest = in_use(&tags, least);
    let is_over = |t: &&Tag| newest.get(&t.class).is_some_and(|&newest| t.tid < newest);
    let over: Vec<Bytes> = tags
        .iter()
        .take_while(|t| t.tid < least)
        .filter(is_over)
        .map(|t| key(t.tid).into())
        .collect();
    if over.is_empty() { Ok(()) } else { o.omap_remove(&over) }
}

pub fn get_tag(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let tid: u64 = args(input)?;
    Ok(denc::encode(&get::<Tag>(o, key(tid).as_bytes())?))
}

pub fn tag_create(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (tid, mut class, data): (u64, u64, Bytes) = args(input)?;
    if omap::has(o, key(tid).as_bytes())? {
        return Err(Errno::EEXIST.into());
    }
    if tid != get::<u64>(o, NEXT_TAG_TID)? {
        return Err(Errno::ESTALE.into());
    }
    let next_class: u64 = get(o, NEXT_TAG_CLASS)?;
    if class == Tag::NEW_CLASS {
        class = next_class;
        omap::put(o, NEXT_TAG_CLASS, &next_class.wrapping_add(1))?;
    } else if class >= next_class {
        return Err(Errno::EINVAL.into());
    }
    let clients = all_clients(o)?;
    expire(o, &clients)?;
    omap::put(o, NEXT_TAG_TID, &tid.wrapping_add(1))?;
    omap::put(o, key(tid).as_bytes(), &Tag { tid, class, data })?;
    Ok(Bytes::new())
}

#[derive(Decode)]
struct ListArgs {
    /// Zero for the beginning.
    after: u64,
    max: u64,
    client: Bytes,
    class: Option<u64>,
}

pub fn tag_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: ListArgs = args(input)?;
    let client: Client = get(o, &omap::key(CLIENT, &a.client))?;
    let least = client.committed.positions.iter().map(|p| p.tag).min();
    let tags = all(o)?;
    let newest = least.map(|least| in_use(&tags, least)).unwrap_or_default();
    let wanted = |t: &Tag| {
        (a.after == 0 || t.tid > a.after)
            && t.tid >= newest.get(&t.class).copied().unwrap_or(0)
            && a.class.is_none_or(|class| class == t.class)
    };
    let max = usize::try_from(a.max).unwrap_or(usize::MAX);
    let found: Vec<Tag> = tags.into_iter().filter(wanted).take(max).collect();
    Ok(denc::encode(&found))
}
