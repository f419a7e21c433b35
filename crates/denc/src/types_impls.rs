//! Encodings of the types of crate `types` (guide §1.4, §2.2; Ceph `include/types.h`,
//! `msg/msg_types.h`, `osd/osd_types.h`, `common/hobject.cc`).

use crate::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use types::{
    AddrType, AddrVec, ByteString, ClientId, EntityAddr, EntityName, EntityType, Epoch, Eversion,
    HObject, Mono, OsdId, PgId, PoolId, ReqId, ShardId, SnapId, SpgId, UTime, Uuid,
};

macro_rules! newtypes {
    ($($t:ident),*) => {$(
        impl Encode for $t {
            fn encode(&self, e: &mut Encoder) {
                self.0.encode(e);
            }
        }
        impl Decode for $t {
            fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                d.get().map($t)
            }
        }
    )*};
}

newtypes!(Epoch, OsdId, PoolId, ShardId, SnapId, EntityType, ClientId, AddrType, Mono);

impl Encode for Uuid {
    fn encode(&self, e: &mut Encoder) {
        e.put_raw(&self.0);
    }
}

impl Decode for Uuid {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.take_array().map(Uuid)
    }
}

impl Encode for UTime {
    fn encode(&self, e: &mut Encoder) {
        self.sec.encode(e);
        self.nsec.encode(e);
    }
}

impl Decode for UTime {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(UTime { sec: d.get()?, nsec: d.get()? })
    }
}

impl Encode for ByteString {
    fn encode(&self, e: &mut Encoder) {
        e.put_bytes(self);
    }
}

impl Decode for ByteString {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let n = d.count()?;
        Ok(d.take_slice(n)?.into())
    }
}

impl Encode for Eversion {
    fn encode(&self, e: &mut Encoder) {
        self.version.encode(e);
        self.epoch.encode(e);
    }
}

impl Decode for Eversion {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let version = d.get()?;
        Ok(Eversion { epoch: d.get()?, version })
    }
}

/// pg_t: `u8 1, i64 pool, u32 seed, i32 -1` (17 bytes).
impl Encode for PgId {
    fn encode(&self, e: &mut Encoder) {
        e.put(&1u8).put(&self.pool).put(&self.seed).put(&-1i32);
    }
}

impl Decode for PgId {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.get::<u8>()?;
        let pgid = PgId { pool: d.get()?, seed: d.get()? };
        d.get::<i32>()?;
        Ok(pgid)
    }
}

impl Encode for SpgId {
    fn encode(&self, e: &mut Encoder) {
        e.section(1, 1, |e| {
            e.put(&self.pgid).put(&self.shard);
        });
    }
}

impl Decode for SpgId {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(1, |d, _| Ok(SpgId { pgid: d.get()?, shard: d.get()? }))
    }
}

impl Encode for EntityName {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.kind).put(&self.num);
    }
}

impl Decode for EntityName {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(EntityName { kind: d.get()?, num: d.get()? })
    }
}

impl Encode for ReqId {
    fn encode(&self, e: &mut Encoder) {
        e.section(2, 2, |e| {
            e.put(&self.name).put(&self.tid).put(&self.inc);
        });
    }
}

impl Decode for ReqId {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.section(2, |d, _| {
            let name = d.get()?;
            let tid = d.get()?;
            Ok(ReqId { name, inc: d.get()?, tid })
        })
    }
}

impl Encode for HObject {
    fn encode(&self, e: &mut Encoder) {
        e.section(4, 3, |e| {
            e.put(&self.key).put(&self.name).put(&self.snap).put(&self.hash);
            e.put(&self.max).put(&self.nspace).put(&self.pool);
        });
    }
}

impl Decode for HObject {
    /// `max` makes it exactly the maximum; pool -1 with nothing set is the minimum of old peers.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let o = d.section(4, |d, v| {
            let key = d.get()?;
            let name = d.get()?;
            let (snap, hash) = (d.get()?, d.get()?);
            let max = d.get()?;
            let (nspace, pool) = if v >= 4 {
                (d.get()?, d.get()?)
            } else {
                (ByteString::default(), HObject::MIN_POOL)
            };
            Ok(HObject { pool, hash, nspace, key, name, snap, max })
        })?;
        let unset = o.pool == PoolId(-1) && o.snap == SnapId(0) && o.hash == 0;
        Ok(match o {
            o if o.max => HObject::max(),
            o if unset && o.name.is_empty() => HObject::min(),
            o => o,
        })
    }
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// Size of Linux's sockaddr_in6.
const SOCKADDR_IN6_BYTES: usize = 28;
/// The marker byte before an entity_addr_t in the ADDR2 form.
const ADDR2_MARK: u8 = 1;
/// The marker byte before an entity_addrvec_t.
const ADDRVEC_MARK: u8 = 2;

impl Encode for EntityAddr {
    fn encode(&self, e: &mut Encoder) {
        e.put(&ADDR2_MARK);
        e.section(1, 1, |e| {
            e.put(&self.kind).put(&self.nonce);
            match self.sock {
                // Family 0 in the longest form there is, as Ceph writes a blank address.
                None => e.framed(|e| e.put_raw(&[0; SOCKADDR_IN6_BYTES])),
                Some(sock) => e.framed(|e| encode_sockaddr(sock, e)),
            }
        });
    }
}

/// Linux's sockaddr_in (16 bytes) or sockaddr_in6 (28 bytes), the family little-endian.
fn encode_sockaddr(sock: SocketAddr, e: &mut Encoder) {
    match sock {
        SocketAddr::V4(s) => {
            e.put(&AF_INET);
            e.put_raw(&s.port().to_be_bytes());
            e.put_raw(&s.ip().octets());
            e.put_raw(&[0; 8]);
        }
        SocketAddr::V6(s) => {
            e.put(&AF_INET6);
            e.put_raw(&s.port().to_be_bytes());
            e.put(&s.flowinfo());
            e.put_raw(&s.ip().octets());
            e.put(&s.scope_id());
        }
    }
}

impl Decode for EntityAddr {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mark: u8 = d.get()?;
        if mark != ADDR2_MARK {
            return Err(d.invalid("an address in a form before ADDR2"));
        }
        decode_addr_body(d)
    }
}

fn decode_addr_body(d: &mut Decoder<'_>) -> Result<EntityAddr, DecodeError> {
    d.section(1, |d, _| {
        let (kind, nonce) = (d.get()?, d.get()?);
        let sock = d.framed(decode_sockaddr)?;
        Ok(EntityAddr { kind, nonce, sock })
    })
}

fn decode_sockaddr(d: &mut Decoder<'_>) -> Result<Option<SocketAddr>, DecodeError> {
    if d.remaining() == 0 {
        return Ok(None);
    }
    match d.get::<u16>()? {
        0 => Ok(None),
        AF_INET => {
            let port = u16::from_be_bytes(d.take_array()?);
            let ip = Ipv4Addr::from(d.take_array::<4>()?);
            Ok(Some(SocketAddr::new(IpAddr::V4(ip), port)))
        }
        AF_INET6 => {
            let port = u16::from_be_bytes(d.take_array()?);
            let flow = d.get()?;
            let ip = Ipv6Addr::from(d.take_array::<16>()?);
            let scope = if d.remaining() >= 4 { d.get()? } else { 0 };
            Ok(Some(SocketAddr::V6(SocketAddrV6::new(ip, port, flow, scope))))
        }
        _ => Err(d.invalid("an address family that is neither IPv4 nor IPv6")),
    }
}

impl Encode for AddrVec {
    fn encode(&self, e: &mut Encoder) {
        e.put(&ADDRVEC_MARK).put(&self.0);
    }
}

impl Decode for AddrVec {
    /// Also reads a single address (mark 1), as old peers send it.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match d.get::<u8>()? {
            ADDRVEC_MARK => Ok(AddrVec(d.get()?)),
            ADDR2_MARK => Ok(AddrVec(vec![decode_addr_body(d)?])),
            _ => Err(d.invalid("an address vector in a form before ADDR2")),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{decode_all, encode};
    use bytes::Bytes;
    use std::fmt::Debug;
    use types::*;

    fn round_trip<T: crate::Encode + crate::Decode + PartialEq + Debug>(value: &T) -> Bytes {
        let bytes = encode(value);
        assert_eq!(&decode_all::<T>(&bytes).unwrap(), value);
        for cut in 0..bytes.len() {
            assert!(decode_all::<T>(&bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
        bytes
    }

    #[test]
    fn addresses() {
        let v4 = EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 9);
        assert_eq!(round_trip(&v4).len(), 1 + 6 + 12 + 16);
        round_trip(&EntityAddr::msgr2("[::1]:6800".parse().unwrap(), 9));
        assert_eq!(round_trip(&EntityAddr::default()).len(), 1 + 6 + 12 + 28);
        round_trip(&AddrVec(vec![v4, v4.with_kind(AddrType::LEGACY)]));
        assert_eq!(&encode(&AddrVec::default())[..], &[2, 0, 0, 0, 0]);
    }

    #[test]
    fn names_and_versions() {
        let pg = PgId::new(PoolId(3), 0x1c);
        assert_eq!(round_trip(&pg).len(), 17);
        round_trip(&SpgId { pgid: pg, shard: ShardId::NONE });
        round_trip(&ReqId { name: EntityName::client(ClientId(4)), inc: 0, tid: 77 });
        let v = encode(&Eversion::new(Epoch(2), 1));
        assert_eq!(&v[..], &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        round_trip(&HObject::min());
        round_trip(&HObject::max());
    }
}
