//! Class `cas`: chunks of data that are kept as long as somebody refers to them (`src/cls/cas`).
//! References are objects; one may refer several times. They are in the attribute `chunk_refs`.

use crate::input::args;
use crate::{CallError, CallResult, Method, Object};
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use types::{Errno, HObject};

/// The methods.
pub const METHODS: &[Method] = &[
    Method::write("cas", "chunk_create_or_get_ref", create_or_get),
    Method::write("cas", "chunk_get_ref", get),
    Method::write("cas", "chunk_put_ref", put),
    Method::read("cas", "references_chunk", references),
];

const ATTRIBUTE: &[u8] = b"chunk_refs";
/// `create_or_get`: the chunk, if it is there, must have this content.
const FLAG_VERIFY: u64 = 1;
/// There is no such reference.
const ENOLINK: Errno = Errno(67);
/// The content is another.
const ENOMSG: Errno = Errno(42);

/// chunk_refs_t V(1,1), in its exact form: the class itself never writes another.
#[derive(Debug, Default)]
struct References {
    /// In Ceph's order of objects.
    by_object: Vec<HObject>,
}

impl References {
    const BY_OBJECT: u8 = 1;

    fn add(&mut self, source: HObject) {
        let at = self.by_object.partition_point(|o| *o <= source);
        self.by_object.insert(at, source);
    }

    /// Whether there was one.
    fn remove(&mut self, source: &HObject) -> bool {
        let found = self.by_object.iter().position(|o| o == source);
        found.map(|at| self.by_object.remove(at)).is_some()
    }
}

impl Encode for References {
    fn encode(&self, e: &mut Encoder) {
        e.section(1, 1, |e| {
            e.put(&Self::BY_OBJECT);
            e.section(1, 1, |e| {
                e.put(&self.by_object);
            });
        });
    }
}

impl Decode for References {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(1, |d, _| {
            let form: u8 = d.get()?;
            if form != Self::BY_OBJECT {
                return Err(d.invalid("form of chunk references"));
            }
            let mut by_object: Vec<HObject> = d.section(1, |d, _| d.get())?;
            by_object.sort();
            Ok(References { by_object })
        })
    }
}

#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct CreateArgs {
    source: HObject,
    flags: u64,
    data: Bytes,
}

#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct RefArgs {
    source: HObject,
}

/// ENOENT without an object.
fn load(o: &mut dyn Object) -> CallResult<References> {
    match o.get_xattr(ATTRIBUTE) {
        Err(CallError::Fail(Errno::ENODATA)) => Ok(References::default()),
        value => Ok(denc::decode(&value?).map_err(|_| Errno::EIO)?),
    }
}

fn save(o: &mut dyn Object, references: &References) -> CallResult<Bytes> {
    o.set_xattr(ATTRIBUTE, denc::encode(references))?;
    Ok(Bytes::new())
}

fn create_or_get(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: CreateArgs = args(input)?;
    let mut references = match load(o) {
        Err(CallError::Fail(Errno::ENOENT)) => {
            o.write_full(a.data)?;
            References::default()
        }
        loaded => {
            let loaded = loaded?;
            if a.flags & FLAG_VERIFY != 0 && o.read(0, u64::MAX)? != a.data {
                return Err(ENOMSG.into());
            }
            loaded
        }
    };
    references.add(a.source);
    save(o, &references)
}

fn get(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: RefArgs = args(input)?;
    let mut references = load(o)?;
    references.add(a.source);
    save(o, &references)
}

fn put(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: RefArgs = args(input)?;
    let mut references = load(o)?;
    if !references.remove(&a.source) {
        return Err(ENOLINK.into());
    }
    if references.by_object.is_empty() {
        o.remove()?;
        return Ok(Bytes::new());
    }
    save(o, &references)
}

/// Whether the object's manifest names a chunk. There are no manifests here.
fn references(_: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let _chunk: Bytes = args(input)?;
    Err(ENOLINK.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemObject;

    fn source(name: &str) -> HObject {
        HObject { name: name.into(), ..HObject::default() }
    }

    fn create(o: &mut MemObject, name: &str, flags: u64, data: &'static str) -> Result<(), Errno> {
        let source = source(name);
        o.run("cas.chunk_create_or_get_ref", CreateArgs { source, flags, data: data.into() })
    }

    #[test]
    fn a_chunk_goes_with_its_last_reference() {
        let mut o = MemObject::new();
        let with = |name: &str| RefArgs { source: source(name) };
        assert_eq!(o.run("cas.chunk_get_ref", with("a")), Err(Errno::ENOENT));
        assert_eq!(create(&mut o, "a", FLAG_VERIFY, "data"), Ok(()));
        assert_eq!(o.state.data, b"data");
        assert_eq!(create(&mut o, "b", FLAG_VERIFY, "other"), Err(ENOMSG));
        assert_eq!(create(&mut o, "b", 0, "other"), Ok(()));
        assert_eq!(o.run("cas.chunk_get_ref", with("b")), Ok(()));
        assert_eq!(o.state.data, b"data");
        for name in ["b", "a"] {
            assert_eq!(o.run("cas.chunk_put_ref", with(name)), Ok(()));
        }
        assert_eq!(o.run("cas.chunk_put_ref", with("a")), Err(ENOLINK));
        assert_eq!(o.run("cas.references_chunk", "chunk"), Err(ENOLINK));
        assert_eq!(o.run("cas.chunk_put_ref", with("b")), Ok(()));
        assert!(!o.state.exists);
    }

    #[test]
    fn references_that_cannot_be_read_are_an_error() {
        let mut o = MemObject::empty();
        o.state.xattrs.insert("chunk_refs".into(), "rubbish".into());
        let with = RefArgs { source: source("a") };
        assert_eq!(o.run("cas.chunk_get_ref", with), Err(Errno::EIO));
    }
}
