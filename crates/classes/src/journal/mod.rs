//! Class `journal`: the journal of an image. Its header (`journal.<id>`) knows the objects in use,
//! the readers and the tags; entries are appended to `journal_data.*`.

mod tag;
#[cfg(test)]
mod tests;
mod types;

use crate::input::{ListArgs, args};
use crate::{CallResult, Method, Object, Run, omap};
use ::types::Errno;
use bytes::Bytes;
use types::{Client, SetPosition};

const fn read(name: &'static str, run: Run) -> Method {
    Method::read("journal", name, run)
}

const fn write(name: &'static str, run: Run) -> Method {
    Method::write("journal", name, run)
}

/// The methods.
pub const METHODS: &[Method] = &[
    write("create", create),
    read("get_order", |o, _| number::<u8>(o, ORDER)),
    read("get_splay_width", |o, _| number::<u8>(o, SPLAY_WIDTH)),
    read("get_pool_id", |o, _| number::<i64>(o, POOL_ID)),
    read("get_minimum_set", |o, _| number::<u64>(o, MINIMUM_SET)),
    write("set_minimum_set", set_minimum_set),
    read("get_active_set", |o, _| number::<u64>(o, ACTIVE_SET)),
    write("set_active_set", set_active_set),
    read("get_client", get_client),
    write("client_register", client_register),
    write("client_update_data", client_update_data),
    write("client_update_state", client_update_state),
    write("client_unregister", client_unregister),
    write("client_commit", client_commit),
    read("client_list", client_list),
    read("get_next_tag_tid", |o, _| number::<u64>(o, NEXT_TAG_TID)),
    read("get_tag", tag::get_tag),
    write("tag_create", tag::tag_create),
    read("tag_list", tag::tag_list),
    write("guard_append", guard_append),
    write("append", append),
];

const ORDER: &[u8] = b"order";
const SPLAY_WIDTH: &[u8] = b"splay_width";
const POOL_ID: &[u8] = b"pool_id";
const MINIMUM_SET: &[u8] = b"minimum_set";
const ACTIVE_SET: &[u8] = b"active_set";
const NEXT_TAG_TID: &[u8] = b"next_tag_tid";
const NEXT_TAG_CLASS: &[u8] = b"next_tag_class";
const CLIENT: &str = "client_";

/// The value of a key; unlike in other classes EINVAL when it cannot be decoded.
fn get<T: denc::Decode>(o: &mut dyn Object, key: &[u8]) -> CallResult<T> {
    args(&o.omap_get(key)?)
}

/// Answers with the number under a key.
fn number<T: denc::Decode + denc::Encode>(o: &mut dyn Object, key: &[u8]) -> CallResult<Bytes> {
    Ok(denc::encode(&get::<T>(o, key)?))
}

fn create(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (order, splay_width, pool): (u8, u8, i64) = args(input)?;
    if omap::has(o, ORDER)? {
        return Err(Errno::EEXIST.into());
    }
    let zero = denc::encode(&0u64);
    let entries = [
        (ORDER, denc::encode(&order)),
        (SPLAY_WIDTH, denc::encode(&splay_width)),
        (POOL_ID, denc::encode(&pool)),
        (ACTIVE_SET, zero.clone()),
        (MINIMUM_SET, zero.clone()),
        (NEXT_TAG_TID, zero.clone()),
        (NEXT_TAG_CLASS, zero),
    ];
    o.omap_set(entries.map(|(key, value)| (Bytes::from_static(key), value)).into())?;
    Ok(Bytes::new())
}

/// Moves one of the two sets on, but never back.
fn advance(o: &mut dyn Object, key: &[u8], set: u64) -> CallResult<Bytes> {
    let old: u64 = get(o, key)?;
    if set < old {
        return Err(Errno::ESTALE.into());
    }
    if set > old {
        omap::put(o, key, &set)?;
    }
    Ok(Bytes::new())
}

fn set_minimum_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let set: u64 = args(input)?;
    if set > get::<u64>(o, ACTIVE_SET)? {
        return Err(Errno::EINVAL.into());
    }
    advance(o, MINIMUM_SET, set)
}

fn set_active_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let set: u64 = args(input)?;
    if set < get::<u64>(o, MINIMUM_SET)? {
        return Err(Errno::EINVAL.into());
    }
    advance(o, ACTIVE_SET, set)
}

fn client(o: &mut dyn Object, id: &[u8]) -> CallResult<Client> {
    get(o, &omap::key(CLIENT, id))
}

fn save(o: &mut dyn Object, client: &Client) -> CallResult<Bytes> {
    omap::put(o, &omap::key(CLIENT, &client.id), client)?;
    Ok(Bytes::new())
}

/// Clients after one. The image itself is a client with an empty id, so that nothing has to be
/// before all of them.
fn list(o: &mut dyn Object, after: &[u8], max: u64) -> CallResult<Vec<Client>> {
    let last = if after.is_empty() { Bytes::new() } else { omap::key(CLIENT, after) };
    let listed = omap::list_after_key(o, CLIENT, last, max)?;
    listed.iter().map(|(_, client)| omap::stored(client)).collect()
}

fn all_clients(o: &mut dyn Object) -> CallResult<Vec<Client>> {
    list(o, b"", omap::ALL)
}

fn get_client(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: Bytes = args(input)?;
    Ok(denc::encode(&client(o, &id)?))
}

fn client_register(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (id, data): (Bytes, Bytes) = args(input)?;
    get::<u8>(o, ORDER)?;
    if omap::has(o, &omap::key(CLIENT, &id))? {
        return Err(Errno::EEXIST.into());
    }
    let committed = least_committed(&all_clients(o)?);
    save(o, &Client { id, data, committed, state: Client::CONNECTED })
}

/// How far all clients that matter came; nowhere when one has not begun.
fn least_committed(clients: &[Client]) -> SetPosition {
    let connected = clients.iter().filter(|c| c.state != Client::DISCONNECTED);
    let begun = |c: &Client| c.committed.positions.first().map(|p| (p.tag, p.entry));
    let least = connected.min_by_key(|c| begun(c));
    least.map(|c| c.committed.clone()).unwrap_or_default()
}

fn client_update_data(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (id, data): (Bytes, Bytes) = args(input)?;
    let client = Client { data, ..client(o, &id)? };
    save(o, &client)
}

fn client_update_state(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (id, state): (Bytes, u8) = args(input)?;
    let client = Client { state, ..client(o, &id)? };
    save(o, &client)
}

fn client_unregister(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let id: Bytes = args(input)?;
    let key = omap::key(CLIENT, &id);
    o.omap_get(&key)?;
    omap::remove(o, &key)?;
    // It is still seen, as this request's changes are not.
    let mut others = all_clients(o)?;
    others.retain(|c| c.id != id);
    tag::expire(o, &others)?;
    Ok(Bytes::new())
}

fn client_commit(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (id, committed): (Bytes, SetPosition) = args(input)?;
    let splay_width: u8 = get(o, SPLAY_WIDTH)?;
    if committed.positions.len() > usize::from(splay_width) {
        return Err(Errno::EINVAL.into());
    }
    let old = client(o, &id)?;
    if old.committed == committed {
        return Ok(Bytes::new());
    }
    save(o, &Client { committed, ..old })
}

fn client_list(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (after, max): ListArgs = args(input)?;
    Ok(denc::encode(&list(o, &after, max)?))
}

/// Size of a data object; EOVERFLOW when it is full.
fn size_below(o: &mut dyn Object, max: u64) -> CallResult<u64> {
    match o.stat()? {
        None => Ok(0),
        Some(stat) if stat.size < max => Ok(stat.size),
        Some(_) => Err(Errno::EOVERFLOW.into()),
    }
}

fn guard_append(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    size_below(o, args(input)?)?;
    Ok(Bytes::new())
}

/// Ceph pads what is appended to its allocation unit when all clients can skip that; our store has
/// no use for it.
fn append(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (max, data): (u64, Bytes) = args(input)?;
    if max == 0 {
        return Err(Errno::EOVERFLOW.into());
    }
    let end = size_below(o, max)?;
    o.write(end, data)?;
    Ok(Bytes::new())
}
