//! Class `hello`: Ceph's example of a class, with which people try out whether class methods work
//! (`src/cls/hello/cls_hello.cc`).

use crate::{CallResult, Method, Object};
use bytes::Bytes;
use types::Errno;

/// The methods. Not those that show what a method must not do.
pub const METHODS: &[Method] = &[
    Method::read("hello", "say_hello", say),
    Method::write("hello", "record_hello", record),
    Method::read("hello", "replay", replay),
    Method::write("hello", "turn_it_to_11", turn_it_to_11),
    Method::write("hello", "writes_dont_return_data", change),
];

/// Bytes of the longest name.
const NAME_MAX_BYTES: usize = 100;
/// Bytes that are read back.
const REPLAY_BYTES: u64 = 1100;

fn greeting(name: &Bytes) -> CallResult<Bytes> {
    if name.len() > NAME_MAX_BYTES {
        return Err(Errno::EINVAL.into());
    }
    let name: &[u8] = if name.is_empty() { b"world" } else { name };
    Ok([b"Hello, ", name, b"!"].concat().into())
}

/// `client.4123 127.0.0.1:0/123`, as an attribute.
fn note_caller(o: &mut dyn Object, attribute: &[u8]) -> CallResult<()> {
    let (name, addr) = o.caller();
    o.set_xattr(attribute, format!("{name} {addr}").into())
}

fn say(_: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    greeting(input)
}

fn record(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let text = greeting(input)?;
    if o.stat()?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    o.write_full(text)?;
    note_caller(o, b"said_by")?;
    Ok(Bytes::new())
}

fn replay(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    o.read(0, REPLAY_BYTES)
}

fn turn_it_to_11(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    if !input.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let text = o.read(0, REPLAY_BYTES)?;
    o.write_full(text.to_ascii_uppercase().into())?;
    note_caller(o, b"amplified_by")?;
    Ok(Bytes::new())
}

/// What a request changes and what it answers are two things: a repeated one gets no answer of its own.
fn change(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    if !input.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    o.set_xattr(b"foo", Bytes::from_static(b"bar"))?;
    Ok(Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemObject;

    #[test]
    fn what_was_said_is_recorded_once_and_made_louder() {
        let mut o = MemObject::new();
        assert_eq!(o.call("hello.record_hello", "bob"), Ok(Bytes::new()));
        assert_eq!(o.call("hello.record_hello", "eve"), Err(Errno::EEXIST));
        assert_eq!(o.call("hello.replay", ""), Ok("Hello, bob!".into()));
        assert_eq!(o.call("hello.turn_it_to_11", "x"), Err(Errno::EINVAL));
        assert_eq!(o.call("hello.turn_it_to_11", ""), Ok(Bytes::new()));
        assert_eq!(o.call("hello.replay", ""), Ok("HELLO, BOB!".into()));
        assert_eq!(o.call("hello.say_hello", ""), Ok("Hello, world!".into()));
        assert_eq!(o.call("hello.say_hello", [b'x'; 101]), Err(Errno::EINVAL));
        assert_eq!(o.call("hello.writes_dont_return_data", "x"), Err(Errno::EINVAL));
        assert_eq!(o.call("hello.writes_dont_return_data", ""), Ok(Bytes::new()));
        let by = &o.state.xattrs[&b"said_by"[..]];
        assert!(by.starts_with(b"client.1 ") && by.ends_with(b"127.0.0.1:0/1"), "{by:?}");
    }
}
