//! Class `refcount`: an object that is removed with its last reference. References are named by
//! tags, in the attribute `refcount`.

use crate::input::args;
use crate::{CallError, CallResult, Method, Object};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use types::Errno;

/// The methods.
pub const METHODS: &[Method] = &[
    Method::write("refcount", "get", get),
    Method::write("refcount", "put", put),
    Method::write("refcount", "set", set),
    Method::read("refcount", "read", read),
];

const ATTRIBUTE: &[u8] = b"refcount";
/// Tag of the one reference that an object without any is taken to have.
const WILDCARD: Bytes = Bytes::new();

/// obj_refcount V(2,1).
#[derive(Debug, Default, Encode, Decode)]
#[denc(v = 2, compat = 1)]
struct References {
    tags: BTreeMap<Bytes, bool>,
    /// Given back already: doing so again changes nothing.
    #[denc(since = 2)]
    retired: BTreeSet<Bytes>,
}

/// Input of `get` and `put`: V(1,1).
#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct TagArgs {
    tag: Bytes,
    /// An object without references is taken to have one.
    implicit: bool,
}

/// Input of `set` and answer of `read`: V(1,1).
#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Tags {
    tags: Vec<Bytes>,
}

#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct ReadArgs {
    implicit: bool,
}

fn load(o: &mut dyn Object, implicit: bool) -> CallResult<References> {
    match o.get_xattr(ATTRIBUTE) {
        Err(CallError::Fail(Errno::ENODATA)) => {
            let tags = implicit.then_some((WILDCARD, true)).into_iter().collect();
            Ok(References { tags, ..References::default() })
        }
        value => Ok(denc::decode(&value?).map_err(|_| Errno::EIO)?),
    }
}

fn save(o: &mut dyn Object, references: &References) -> CallResult<Bytes> {
    o.set_xattr(ATTRIBUTE, denc::encode(references))?;
    Ok(Bytes::new())
}

fn remove(o: &mut dyn Object) -> CallResult<Bytes> {
    o.remove()?;
    Ok(Bytes::new())
}

fn get(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: TagArgs = args(input)?;
    let mut references = load(o, a.implicit)?;
    references.tags.insert(a.tag, true);
    save(o, &references)
}

fn put(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: TagArgs = args(input)?;
    let mut references = load(o, a.implicit)?;
    if references.tags.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let named = references.tags.contains_key(&a.tag);
    let tag = if named || !a.implicit { a.tag.clone() } else { WILDCARD };
    if references.retired.contains(&a.tag) || references.tags.remove(&tag).is_none() {
        return Ok(Bytes::new());
    }
    references.retired.insert(a.tag);
    if references.tags.is_empty() { remove(o) } else { save(o, &references) }
}

fn set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let Tags { tags } = args(input)?;
    if tags.is_empty() {
        return remove(o);
    }
    let tags = tags.into_iter().map(|tag| (tag, true)).collect();
    save(o, &References { tags, ..References::default() })
}

fn read(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: ReadArgs = args(input)?;
    let tags = load(o, a.implicit)?.tags.into_keys().collect();
    Ok(denc::encode(&Tags { tags }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemObject;
    use Errno as E;

    fn tag(tag: &'static str, implicit: bool) -> TagArgs {
        TagArgs { tag: tag.into(), implicit }
    }

    fn tags(o: &mut MemObject, implicit: bool) -> Vec<Bytes> {
        o.get::<_, Tags>("refcount.read", ReadArgs { implicit }).unwrap().tags
    }

    #[test]
    fn the_object_goes_with_its_last_reference() {
        let mut o = MemObject::empty();
        assert_eq!(o.run("refcount.put", tag("a", false)), Err(E::EINVAL));
        assert_eq!(o.run("refcount.get", tag("a", false)), Ok(()));
        assert_eq!(o.run("refcount.get", tag("b", false)), Ok(()));
        assert_eq!(tags(&mut o, false), ["a", "b"]);
        assert_eq!(o.run("refcount.put", tag("x", false)), Ok(()));
        assert_eq!(o.run("refcount.put", tag("a", false)), Ok(()));
        assert_eq!(o.run("refcount.get", tag("a", false)), Ok(()));
        assert_eq!(o.run("refcount.put", tag("a", false)), Ok(()), "is retired: no change");
        assert_eq!(tags(&mut o, false), ["a", "b"]);
        let one = Tags { tags: vec!["c".into()] };
        assert_eq!(o.run("refcount.set", one), Ok(()));
        assert_eq!(o.run("refcount.put", tag("c", false)), Ok(()));
        assert!(!o.state.exists);
    }

    #[test]
    fn an_object_may_have_a_reference_without_a_name() {
        let mut o = MemObject::empty();
        assert_eq!(tags(&mut o, true), [""]);
        assert_eq!(o.run("refcount.get", tag("a", true)), Ok(()));
        assert_eq!(tags(&mut o, true), ["", "a"]);
        assert_eq!(o.run("refcount.put", tag("other", true)), Ok(()));
        assert_eq!(tags(&mut o, true), ["a"]);
        assert_eq!(o.run("refcount.set", Tags { tags: vec![] }), Ok(()));
        assert!(!o.state.exists);
        assert_eq!(o.run("refcount.get", tag("a", true)), Err(E::ENOENT));
    }
}
