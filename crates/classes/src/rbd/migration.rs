//! Images on the move to another pool or layout: the header's key `migration`.

use super::header::feature;
use super::old;
use super::types::MigrationSpec;
use crate::input::args;
use crate::{CallResult, Object, omap};
use bytes::Bytes;
use types::Errno;

const KEY: &[u8] = b"migration";

/// Where it is written that an image migrates.
enum Mark {
    /// In its features.
    Features(u64),
    /// In the text that a header of format 1 begins with.
    Text,
}

/// How the image is marked, and whether it says that it migrates.
fn mark(o: &mut dyn Object) -> CallResult<(Mark, bool)> {
    if let Some(features) = omap::find::<u64>(o, b"features")? {
        return Ok((Mark::Features(features), features & feature::MIGRATING != 0));
    }
    let text = o.read(0, old::TEXT.len() as u64)?;
    if &text[..] == old::MIGRATING_TEXT {
        Ok((Mark::Text, true))
    } else if &text[..] == old::TEXT {
        Ok((Mark::Text, false))
    } else {
        Err(Errno::ENXIO.into())
    }
}

fn load(o: &mut dyn Object) -> CallResult<MigrationSpec> {
    match mark(o)? {
        (_, true) => omap::get(o, KEY),
        (_, false) => Err(Errno::EINVAL.into()),
    }
}

pub fn migration_set(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let spec: MigrationSpec = args(input)?;
    if omap::has(o, KEY)? {
        return Err(Errno::EEXIST.into());
    }
    match mark(o)? {
        (Mark::Text, true) => return Err(Errno::EEXIST.into()),
        (Mark::Text, false) if spec.end != MigrationSpec::SOURCE => {
            return Err(Errno::EINVAL.into());
        }
        (Mark::Text, false) => o.write(0, Bytes::from_static(old::MIGRATING_TEXT))?,
        (Mark::Features(_), true) if spec.end != MigrationSpec::DESTINATION => {
            return Err(Errno::EEXIST.into());
        }
        (Mark::Features(_), true) => {}
        (Mark::Features(features), false) => {
            omap::put(o, b"features", &(features | feature::MIGRATING))?;
        }
    }
    omap::put(o, KEY, &spec)?;
    Ok(Bytes::new())
}

pub fn migration_set_state(o: &mut dyn Object, input: &Bytes) -> CallResult<Bytes> {
    let (state, state_description): (u8, Bytes) = args(input)?;
    let spec = MigrationSpec { state, state_description, ..load(o)? };
    omap::put(o, KEY, &spec)?;
    Ok(Bytes::new())
}

pub fn migration_get(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    Ok(denc::encode(&load(o)?))
}

pub fn migration_remove(o: &mut dyn Object, _: &Bytes) -> CallResult<Bytes> {
    omap::remove_any(o, &[Bytes::from_static(KEY)])?;
    match mark(o)? {
        (Mark::Text, true) => o.write(0, Bytes::from_static(old::TEXT))?,
        (Mark::Text, false) => return Err(Errno::EINVAL.into()),
        (Mark::Features(features), true) => {
            omap::put(o, b"features", &(features & !feature::MIGRATING))?;
        }
        (Mark::Features(_), false) => {}
    }
    Ok(Bytes::new())
}
