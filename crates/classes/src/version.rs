//! Class `version`: a version of an object that clients count, and conditions on it. It lies in the
//! attribute `ceph.objclass.version`.

use crate::input::args;
use crate::{CallError, CallResult, Method, Object};
use bytes::Bytes;
use denc::{Decode, Encode};
use types::Errno;

/// The methods.
pub const METHODS: &[Method] = &[
    Method::write("version", "set", set),
    Method::write("version", "inc", inc),
    Method::write("version", "inc_conds", inc),
    Method::read("version", "read", read),
    Method::read("version", "check_conds", check_conds),
];

const ATTRIBUTE: &[u8] = b"ceph.objclass.version";
const TAG_CHARS: usize = 24;
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// obj_version V(1,1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Version {
    number: u64,
    /// Random, so that an object made anew has another version.
    tag: Bytes,
}

/// obj_version_cond V(1,1).
#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Condition {
    than: Version,
    kind: u32,
}

impl Condition {
    fn holds(&self, v: &Version) -> bool {
        let than = &self.than;
        match self.kind {
            1 => v == than,
            2 => v.number > than.number,
            3 => v.number >= than.number,
            4 => v.number < than.number,
            5 => v.number <= than.number,
            6 => v.tag == than.tag,
            7 => v.tag != than.tag,
            _ => true,
        }
    }
}

/// Input of `set` and answer of `read`: V(1,1).
#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct VersionArgs {
    version: Version,
}

/// Input of the others: V(1,1).
#[derive(Debug, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct ConditionArgs {
    /// Not used.
    version: Version,
    conditions: Vec<Condition>,
}

fn load(o: &mut dyn Object) -> CallResult<Option<Version>> {
    match o.get_xattr(ATTRIBUTE) {
        Err(CallError::Fail(Errno::ENODATA | Errno::ENOENT)) => Ok(None),
        value => Ok(Some(denc::decode(&value?).map_err(|_| Errno::EIO)?)),
    }
}

fn save(o: &mut dyn Object, version: &Version) -> CallResult<Bytes> {
    o.set_xattr(ATTRIBUTE, denc::encode(version))?;
    Ok(Bytes::new())
}

fn first(o: &mut dyn Object) -> Version {
    let mut random = [0; TAG_CHARS];
    o.random(&mut random);
    let tag = random.iter().map(|&byte| BASE64[usize::from(byte % 64)]).collect();
    Version { number: 1, tag }
}

fn check(conditions: &[Condition], version: &Version) -> CallResult<()> {
    let all = conditions.iter().all(|c| c.holds(version));
    if all { Ok(()) } else { Err(Errno::ECANCELED.into()) }
}

fn set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: VersionArgs = args(input)?;
    save(o, &a.version)
}

fn inc(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: ConditionArgs = args(input)?;
    let mut version = match load(o)? {
        Some(version) => version,
        None => first(o),
    };
    check(&a.conditions, &version)?;
    version.number = version.number.wrapping_add(1);
    save(o, &version)
}

fn read(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    let version = load(o)?.unwrap_or_default();
    Ok(denc::encode(&VersionArgs { version }))
}

fn check_conds(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let a: ConditionArgs = args(input)?;
    check(&a.conditions, &load(o)?.unwrap_or_default())?;
    Ok(Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemObject;
    use Errno as E;

    fn conditions(kind: u32, than: &Version) -> ConditionArgs {
        let condition = Condition { than: than.clone(), kind };
        ConditionArgs { version: Version::default(), conditions: vec![condition] }
    }

    fn now(o: &mut MemObject) -> Version {
        o.get::<_, VersionArgs>("version.read", ()).unwrap().version
    }

    #[test]
    fn a_version_is_counted_under_conditions() {
        let mut o = MemObject::empty();
        assert_eq!(now(&mut o), Version::default());
        assert_eq!(o.run("version.inc", conditions(0, &Version::default())), Ok(()));
        let v = now(&mut o);
        assert_eq!((v.number, v.tag.len()), (2, TAG_CHARS));
        let other_tag = Version { tag: "t".into(), ..v.clone() };
        let below = Version { number: 1, ..v.clone() };
        let above = Version { number: 3, ..v.clone() };
        let holds = [(1, &v), (2, &below), (3, &v), (4, &above), (5, &v), (6, &v), (7, &other_tag)];
        let fails =
            [(1, &other_tag), (2, &v), (3, &above), (4, &v), (5, &below), (6, &other_tag), (7, &v)];
        for (kind, than) in holds {
            assert_eq!(o.run("version.check_conds", conditions(kind, than)), Ok(()), "{kind}");
        }
        for (kind, than) in fails {
            let answer = o.run("version.check_conds", conditions(kind, than));
            assert_eq!(answer, Err(E::ECANCELED), "{kind}");
        }
        assert_eq!(o.run("version.inc_conds", conditions(1, &v)), Ok(()));
        assert_eq!(o.run("version.inc_conds", conditions(1, &v)), Err(E::ECANCELED));
        assert_eq!(now(&mut o), above);
        assert_eq!(o.run("version.set", VersionArgs { version: other_tag.clone() }), Ok(()));
        assert_eq!(now(&mut o), other_tag);
    }
}
