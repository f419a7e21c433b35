//! 140 epochs of a real cluster.

use crate::samples::{EPOCHS, full, full_bytes, inc, inc_bytes};
use bytes::Bytes;
use maps::{Incremental, MapError, OsdMap};
use types::Epoch;

#[test]
fn every_map_and_incremental_encodes_to_the_same_bytes() {
    for epoch in EPOCHS {
        assert_eq!(denc::encode(&full(epoch)), full_bytes(epoch), "full {epoch}");
        assert_eq!(denc::encode(&inc(epoch)), inc_bytes(epoch), "inc {epoch}");
    }
}

#[test]
fn applying_each_incremental_gives_the_next_map_byte_for_byte() {
    let mut map = OsdMap::default();
    for epoch in EPOCHS {
        let inc = inc(epoch);
        map.apply_checked(&inc).unwrap();
        let (bytes, crc) = map.encode_with_crc();
        assert_eq!(bytes, full_bytes(epoch), "epoch {epoch}");
        assert_eq!(crc, inc.full_crc);
        assert_eq!(map, full(epoch));
    }
}

#[test]
fn a_wrong_checksum_is_an_error() {
    for bytes in [full_bytes(72), inc_bytes(72)] {
        for at in [40, bytes.len() / 2, bytes.len() - 9, bytes.len() - 1] {
            let mut bad = bytes.to_vec();
            bad[at] ^= 1;
            let bad = Bytes::from(bad);
            assert!(denc::decode::<OsdMap>(&bad).is_err(), "{at}");
            assert!(denc::decode::<Incremental>(&bad).is_err(), "{at}");
        }
    }
}

#[test]
fn an_incremental_that_does_not_fit_is_refused_and_changes_nothing() {
    let before = full(71);
    let mut map = before.clone();
    let wrong_epoch = map.apply(&inc(73));
    let (map_epoch, inc_epoch) = (Epoch(71), Epoch(73));
    assert_eq!(wrong_epoch, Err(MapError::WrongEpoch { map: map_epoch, inc: inc_epoch }));
    let mut other = inc(72);
    other.fsid.0[0] ^= 1;
    assert!(matches!(map.apply(&other), Err(MapError::WrongCluster { .. })));
    let mut beyond = inc(72);
    beyond.new_weight.insert(types::OsdId(9), 1);
    let refused = MapError::NoSuchOsd { id: 9, max_osd: 3 };
    assert_eq!(map.apply(&beyond), Err(refused));
    let mut crc = inc(72);
    crc.full_crc ^= 1;
    assert!(matches!(map.apply_checked(&crc), Err(MapError::WrongFullCrc { .. })));
    assert_eq!(map, before);
}
