//! Namespaces of a pool of images (`librbd/api/Namespace.cc`).

use super::script::Desk;
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use types::{Errno, PoolId};

/// Names of one answer.
const LISTED_AT_ONCE: u64 = 1024;

/// Their names, without the one that has none.
pub async fn list(desk: &Desk, pool: PoolId) -> Result<Vec<String>, ClientError> {
    let mut all: Vec<String> = Vec::new();
    loop {
        let after = all.last().cloned().unwrap_or_default();
        let input = denc::encode(&(after, LISTED_AT_ONCE));
        let object = Object::new(pool, "rbd_namespace");
        let page = desk.op(ObjectOp::new(object).call("rbd", "namespace_list", input)).await;
        let page: Vec<String> = match page {
            Ok(reply) => reply.get(0)?,
            Err(error) if error.errno == Errno::ENOENT => return Ok(all),
            Err(error) => return Err(error),
        };
        let is_last = (page.len() as u64) < LISTED_AT_ONCE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}
