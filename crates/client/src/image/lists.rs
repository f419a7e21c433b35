//! What a pool has: images by name (`rbd_directory`), and namespaces (`rbd_namespace`).

use super::script::Desk;
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use denc::Decode;
use std::collections::BTreeMap;
use types::{ByteString, Errno, PoolId};

/// Names of one answer.
const LISTED_AT_ONCE: u64 = 1024;

/// One answer of a method that lists; without the object there is nothing.
async fn page<T: Decode + Default>(
    desk: &Desk,
    object: Object,
    method: &str,
    after: &str,
) -> Result<T, ClientError> {
    let input = denc::encode(&(after, LISTED_AT_ONCE));
    match desk.op(ObjectOp::new(object).call("rbd", method, input)).await {
        Ok(reply) => Ok(reply.get(0)?),
        Err(error) if error.errno == Errno::ENOENT => Ok(T::default()),
        Err(error) => Err(error),
    }
}

/// What such a method lists by key; not many more than `max`.
pub async fn by_key<V: Decode>(
    desk: &Desk,
    object: Object,
    method: &str,
    max: usize,
) -> Result<BTreeMap<String, V>, ClientError> {
    let mut all: BTreeMap<String, V> = BTreeMap::new();
    loop {
        let after = all.last_key_value().map(|(key, _)| key.clone()).unwrap_or_default();
        let more: BTreeMap<String, V> = page(desk, object.clone(), method, &after).await?;
        let is_last = (more.len() as u64) < LISTED_AT_ONCE;
        all.extend(more);
        if is_last || all.len() >= max {
            return Ok(all);
        }
    }
}

/// Ids of the images of a namespace, by name; not many more than `max`.
pub async fn images(
    desk: &Desk,
    pool: PoolId,
    nspace: ByteString,
    max: usize,
) -> Result<BTreeMap<String, String>, ClientError> {
    let object = Object::new(pool, "rbd_directory").in_namespace(nspace);
    by_key(desk, object, "dir_list", max).await
}

/// Names of the namespaces of a pool, without the one that has none.
pub async fn namespaces(desk: &Desk, pool: PoolId) -> Result<Vec<String>, ClientError> {
    let object = Object::new(pool, "rbd_namespace");
    let mut all: Vec<String> = Vec::new();
    loop {
        let after = all.last().cloned().unwrap_or_default();
        let more: Vec<String> = page(desk, object.clone(), "namespace_list", &after).await?;
        let is_last = (more.len() as u64) < LISTED_AT_ONCE;
        all.extend(more);
        if is_last {
            return Ok(all);
        }
    }
}
