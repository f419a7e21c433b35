//! Class `lock`: advisory locks on an object, kept in its attributes `lock.<name>` (guide §6.2).

use crate::input::args;
use crate::object::if_found;
use crate::{CallError, CallResult, Method, Object};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::BTreeMap;
use types::{AddrType, EntityAddr, EntityName, Errno, UTime};

/// The methods.
pub const METHODS: &[Method] = &[
    Method::write("lock", "lock", lock),
    Method::write("lock", "unlock", unlock),
    Method::write("lock", "break_lock", break_lock),
    Method::read("lock", "get_info", get_info),
    Method::read("lock", "list_locks", list_locks),
    Method::read("lock", "assert_locked", assert_locked),
    Method::write("lock", "set_cookie", set_cookie),
];

const PREFIX: &str = "lock.";

/// One holder.
const EXCLUSIVE: u8 = 1;
/// Many holders.
const SHARED: u8 = 2;
/// One holder; the object goes with the lock.
const EPHEMERAL: u8 = 3;

/// Who holds the lock may take it again.
const MAY_RENEW: u8 = 1;
/// The lock must be held, and is taken again.
const MUST_RENEW: u8 = 2;

/// Who holds a lock. One client may hold a shared lock several times, with different cookies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct LockerId {
    name: EntityName,
    cookie: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Locker {
    /// Zero for never.
    expiration: UTime,
    addr: EntityAddr,
    description: Bytes,
}

/// A lock; type 0 before it was ever held. Also the reply of `get_info`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Lock {
    lockers: BTreeMap<LockerId, Locker>,
    kind: u8,
    /// All holders give the same.
    tag: Bytes,
}

#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct LockArgs {
    name: Bytes,
    kind: u8,
    cookie: Bytes,
    tag: Bytes,
    description: Bytes,
    duration: UTime,
    flags: u8,
}

#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct UnlockArgs {
    name: Bytes,
    cookie: Bytes,
}

#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct BreakArgs {
    name: Bytes,
    locker: EntityName,
    cookie: Bytes,
}

#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct NameArgs {
    name: Bytes,
}

#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct LocksReply {
    names: Vec<Bytes>,
}

#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct AssertArgs {
    name: Bytes,
    kind: u8,
    cookie: Bytes,
    tag: Bytes,
}

#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct SetCookieArgs {
    name: Bytes,
    kind: u8,
    cookie: Bytes,
    tag: Bytes,
    new_cookie: Bytes,
}

fn attribute(name: &[u8]) -> Vec<u8> {
    [PREFIX.as_bytes(), name].concat()
}

/// The lock as it stands, without holders whose time is over; ENOENT without an object.
fn load(o: &mut dyn Object, name: &[u8]) -> CallResult<Lock> {
    let value = match o.get_xattr(&attribute(name)) {
        Err(CallError::Fail(Errno::ENODATA)) => return Ok(Lock::default()),
        value => value?,
    };
    let mut lock: Lock = denc::decode(&value).map_err(|_| Errno::EIO)?;
    let now = o.now();
    lock.lockers.retain(|_, l| l.expiration.is_zero() || l.expiration >= now);
    Ok(lock)
}

fn save(o: &mut dyn Object, name: &[u8], lock: &Lock) -> CallResult<()> {
    o.set_xattr(&attribute(name), denc::encode(lock))
}

fn check_name_and_kind(name: &[u8], kind: u8) -> CallResult<()> {
    let known = matches!(kind, EXCLUSIVE | SHARED | EPHEMERAL);
    if known && !name.is_empty() { Ok(()) } else { Err(Errno::EINVAL.into()) }
}

fn lock(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: LockArgs = args(input)?;
    check_name_and_kind(&a.name, a.kind)?;
    let (may_renew, must_renew) = (a.flags & MAY_RENEW != 0, a.flags & MUST_RENEW != 0);
    if may_renew && must_renew {
        return Err(Errno::EINVAL.into());
    }
    let mut lock = if_found(load(o, &a.name))?.unwrap_or_default();
    if lock.kind == EPHEMERAL && lock.lockers.is_empty() {
        // Its last holder's time was over before it was let go: begin with a new object.
        if_found(o.remove())?;
    }
    let (name, addr) = o.caller();
    let id = LockerId { name, cookie: a.cookie };
    if !lock.lockers.is_empty() && lock.tag != a.tag {
        return Err(Errno::EBUSY.into());
    }
    match lock.lockers.remove(&id) {
        Some(_) if !may_renew && !must_renew => return Err(Errno::EEXIST.into()),
        None if must_renew => return Err(Errno::ENOENT.into()),
        _ => {}
    }
    if !lock.lockers.is_empty() && (a.kind != SHARED || lock.kind != a.kind) {
        return Err(Errno::EBUSY.into());
    }
    let expiration = match a.duration.is_zero() {
        true => UTime::ZERO,
        false => o.now().plus(a.duration.as_duration()),
    };
    // A client may speak msgr v1 or v2; what tells it apart is the rest of its address.
    let addr = addr.with_kind(AddrType::LEGACY);
    lock.lockers.insert(id, Locker { expiration, addr, description: a.description });
    lock.kind = a.kind;
    lock.tag = a.tag;
    save(o, &a.name, &lock)?;
    Ok(Bytes::new())
}

/// Takes the lock away from `id`; ENOENT when it does not hold it.
fn release(o: &mut dyn Object, name: &[u8], id: &LockerId) -> CallResult<Bytes> {
    let mut lock = load(o, name)?;
    lock.lockers.remove(id).ok_or(Errno::ENOENT)?;
    match lock.kind {
        EPHEMERAL => o.remove()?,
        _ => save(o, name, &lock)?,
    }
    Ok(Bytes::new())
}

fn unlock(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: UnlockArgs = args(input)?;
    let (name, _) = o.caller();
    release(o, &a.name, &LockerId { name, cookie: a.cookie })
}

fn break_lock(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: BreakArgs = args(input)?;
    release(o, &a.name, &LockerId { name: a.locker, cookie: a.cookie })
}

fn get_info(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: NameArgs = args(input)?;
    Ok(denc::encode(&load(o, &a.name)?))
}

fn list_locks(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    let name =
        |attr: Bytes| attr.starts_with(PREFIX.as_bytes()).then(|| attr.slice(PREFIX.len()..));
    let names = o.get_xattrs()?.into_iter().filter_map(|(attr, _)| name(attr)).collect();
    Ok(denc::encode(&LocksReply { names }))
}

/// The lock, if the caller holds it just so; EBUSY if not.
fn held(o: &mut dyn Object, a: &AssertArgs) -> CallResult<(Lock, LockerId)> {
    check_name_and_kind(&a.name, a.kind)?;
    let lock = load(o, &a.name)?;
    let (name, _) = o.caller();
    let id = LockerId { name, cookie: a.cookie.clone() };
    if lock.kind == a.kind && lock.tag == a.tag && lock.lockers.contains_key(&id) {
        Ok((lock, id))
    } else {
        Err(Errno::EBUSY.into())
    }
}

fn assert_locked(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    held(o, &args(input)?)?;
    Ok(Bytes::new())
}

fn set_cookie(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let SetCookieArgs { name, kind, cookie, tag, new_cookie } = args(input)?;
    let a = AssertArgs { name, kind, cookie, tag };
    let (mut lock, old) = held(o, &a)?;
    let new = LockerId { name: old.name, cookie: new_cookie };
    if lock.lockers.contains_key(&new) {
        return Err(Errno::EBUSY.into());
    }
    if let Some(locker) = lock.lockers.remove(&old) {
        lock.lockers.insert(new, locker);
    }
    save(o, &a.name, &lock)?;
    Ok(Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemObject;
    use Errno as E;

    fn lock(o: &mut MemObject, client: u64, kind: u8, cookie: &'static str) -> Result<(), E> {
        flagged(o, client, kind, cookie, "tag", 0, 0)
    }

    fn flagged(
        o: &mut MemObject,
        client: u64,
        kind: u8,
        cookie: &'static str,
        tag: &'static str,
        duration_s: u32,
        flags: u8,
    ) -> Result<(), E> {
        o.client = client;
        let a = LockArgs {
            name: "l".into(),
            kind,
            cookie: cookie.into(),
            tag: tag.into(),
            description: "d".into(),
            duration: UTime { sec: duration_s, nsec: 0 },
            flags,
        };
        o.run("lock.lock", a)
    }

    fn unlock(o: &mut MemObject, client: u64, cookie: &'static str) -> Result<(), E> {
        o.client = client;
        o.run("lock.unlock", UnlockArgs { name: "l".into(), cookie: cookie.into() })
    }

    fn info(o: &mut MemObject) -> Lock {
        o.get("lock.get_info", NameArgs { name: "l".into() }).unwrap()
    }

    #[test]
    fn one_holder_at_a_time() {
        let mut o = MemObject::new();
        assert_eq!(lock(&mut o, 1, EXCLUSIVE, "c"), Ok(()));
        assert_eq!(lock(&mut o, 1, EXCLUSIVE, "c"), Err(E::EEXIST));
        assert_eq!(lock(&mut o, 1, EXCLUSIVE, "other"), Err(E::EBUSY));
        assert_eq!(lock(&mut o, 2, EXCLUSIVE, "c"), Err(E::EBUSY));
        assert_eq!(lock(&mut o, 2, SHARED, "c"), Err(E::EBUSY));
        assert_eq!(unlock(&mut o, 2, "c"), Err(E::ENOENT));
        let held = info(&mut o);
        let (id, locker) = held.lockers.first_key_value().unwrap();
        assert_eq!(id.name, MemObject::client_inst(1).0);
        assert_eq!(locker.addr, MemObject::client_inst(1).1.with_kind(AddrType::LEGACY));
        assert_eq!(unlock(&mut o, 1, "c"), Ok(()));
        assert_eq!(unlock(&mut o, 1, "c"), Err(E::ENOENT));
        // Kind and tag stay.
        assert_eq!(info(&mut o), Lock { lockers: [].into(), kind: EXCLUSIVE, tag: "tag".into() });
        assert_eq!(lock(&mut o, 2, EXCLUSIVE, "c"), Ok(()));
        let locks: LocksReply = o.get("lock.list_locks", ()).unwrap();
        assert_eq!(locks.names, ["l"]);
    }

    #[test]
    fn many_share_with_one_tag() {
        let mut o = MemObject::new();
        assert_eq!(lock(&mut o, 1, SHARED, "a"), Ok(()));
        assert_eq!(lock(&mut o, 1, SHARED, "b"), Ok(()));
        assert_eq!(lock(&mut o, 2, SHARED, "a"), Ok(()));
        assert_eq!(flagged(&mut o, 3, SHARED, "a", "other", 0, 0), Err(E::EBUSY));
        assert_eq!(lock(&mut o, 3, EXCLUSIVE, "a"), Err(E::EBUSY));
        assert_eq!(info(&mut o).lockers.len(), 3);
        let locker = MemObject::client_inst(1).0;
        let a = BreakArgs { name: "l".into(), locker, cookie: "a".into() };
        assert_eq!(o.run("lock.break_lock", &a), Ok(()));
        assert_eq!(o.run("lock.break_lock", &a), Err(E::ENOENT));
        assert_eq!(info(&mut o).lockers.len(), 2);
    }

    #[test]
    fn renewal() {
        let mut o = MemObject::new();
        assert_eq!(flagged(&mut o, 1, EXCLUSIVE, "c", "", 0, MUST_RENEW), Err(E::ENOENT));
        assert_eq!(flagged(&mut o, 1, EXCLUSIVE, "c", "", 9, MAY_RENEW), Ok(()));
        assert_eq!(flagged(&mut o, 1, EXCLUSIVE, "c", "", 9, MUST_RENEW), Ok(()));
        assert_eq!(flagged(&mut o, 1, EXCLUSIVE, "c", "", 9, MAY_RENEW), Ok(()));
        assert_eq!(flagged(&mut o, 1, EXCLUSIVE, "c", "", 9, 3), Err(E::EINVAL));
        assert_eq!(flagged(&mut o, 2, EXCLUSIVE, "c", "", 9, MAY_RENEW), Err(E::EBUSY));
        o.now.sec += 10;
        assert_eq!(info(&mut o).lockers.len(), 0);
        assert_eq!(flagged(&mut o, 2, EXCLUSIVE, "c", "", 9, 0), Ok(()));
    }

    #[test]
    fn an_ephemeral_lock_takes_its_object_along() {
        let mut o = MemObject::new();
        assert_eq!(lock(&mut o, 1, EPHEMERAL, "c"), Ok(()));
        assert_eq!(lock(&mut o, 2, EPHEMERAL, "c"), Err(E::EBUSY));
        assert_eq!(unlock(&mut o, 1, "c"), Ok(()));
        assert!(!o.state.exists);
        assert_eq!(flagged(&mut o, 1, EPHEMERAL, "c", "", 5, 0), Ok(()));
        o.state.data = b"old".to_vec();
        o.now.sec += 6;
        assert_eq!(lock(&mut o, 2, EPHEMERAL, "c"), Ok(()));
        assert!(o.state.data.is_empty(), "what the first holder left is gone");
        assert_eq!(info(&mut o).lockers.len(), 1);
    }

    #[test]
    fn who_asserts_a_lock_must_hold_it_just_so() {
        let mut o = MemObject::empty();
        let a = |kind, cookie: &'static str, tag: &'static str| AssertArgs {
            name: "l".into(),
            kind,
            cookie: cookie.into(),
            tag: tag.into(),
        };
        assert_eq!(o.run("lock.assert_locked", a(1, "c", "tag")), Err(E::EBUSY));
        lock(&mut o, 1, EXCLUSIVE, "c").unwrap();
        assert_eq!(o.run("lock.assert_locked", a(1, "c", "tag")), Ok(()));
        assert_eq!(o.run("lock.assert_locked", a(2, "c", "tag")), Err(E::EBUSY));
        assert_eq!(o.run("lock.assert_locked", a(1, "d", "tag")), Err(E::EBUSY));
        assert_eq!(o.run("lock.assert_locked", a(1, "c", "")), Err(E::EBUSY));
        assert_eq!(o.run("lock.assert_locked", a(0, "c", "tag")), Err(E::EINVAL));
        o.client = 2;
        assert_eq!(o.run("lock.assert_locked", a(1, "c", "tag")), Err(E::EBUSY));
        let absent = &mut MemObject::new();
        assert_eq!(absent.run("lock.assert_locked", a(1, "c", "tag")), Err(E::ENOENT));
    }

    #[test]
    fn a_cookie_is_changed_only_by_its_holder() {
        let mut o = MemObject::new();
        lock(&mut o, 1, SHARED, "a").unwrap();
        lock(&mut o, 1, SHARED, "b").unwrap();
        let mut set = |client, from: &'static str, to: &'static str| {
            o.client = client;
            let a = SetCookieArgs {
                name: "l".into(),
                kind: SHARED,
                cookie: from.into(),
                tag: "tag".into(),
                new_cookie: to.into(),
            };
            o.run("lock.set_cookie", a)
        };
        assert_eq!(set(1, "a", "b"), Err(E::EBUSY));
        assert_eq!(set(2, "a", "c"), Err(E::EBUSY));
        assert_eq!(set(1, "a", "c"), Ok(()));
        assert_eq!(set(1, "a", "d"), Err(E::EBUSY));
    }

    #[test]
    fn types_are_encoded_as_ceph_does() {
        use crate::corpus::check_type;
        check_type::<LockerId>("rados__cls__lock__locker_id_t");
        check_type::<Locker>("rados__cls__lock__locker_info_t");
        check_type::<Lock>("rados__cls__lock__lock_info_t");
        check_type::<Lock>("cls_lock_get_info_reply");
        check_type::<LockArgs>("cls_lock_lock_op");
        check_type::<UnlockArgs>("cls_lock_unlock_op");
        check_type::<BreakArgs>("cls_lock_break_op");
        check_type::<NameArgs>("cls_lock_get_info_op");
        check_type::<LocksReply>("cls_lock_list_locks_reply");
        check_type::<AssertArgs>("cls_lock_assert_op");
        check_type::<SetCookieArgs>("cls_lock_set_cookie_op");
    }

    #[test]
    fn wrong_input() {
        let mut o = MemObject::empty();
        assert_eq!(lock(&mut o, 1, 0, "c"), Err(E::EINVAL));
        assert_eq!(lock(&mut o, 1, 4, "c"), Err(E::EINVAL));
        let unnamed = NameArgs { name: Bytes::new() };
        assert_eq!(o.get::<_, Lock>("lock.get_info", unnamed), Ok(Lock::default()));
        o.state.xattrs.insert("lock.l".into(), "rubbish".into());
        assert_eq!(lock(&mut o, 1, EXCLUSIVE, "c"), Err(E::EIO));
    }
}
