//! What the cluster says about itself.

use crate::SyncClient;
use crate::failure::Failure;
use client::ClientError;
use serde_json::{Value, json};

/// The part of `ceph -s` that matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// HEALTH_OK, HEALTH_WARN or HEALTH_ERR.
    pub status: String,
    /// The messages of what is wrong.
    pub checks: Vec<String>,
    /// OSDs in the map.
    pub osds: u64,
    /// OSDs that are up.
    pub osds_up: u64,
    /// PGs there should be.
    pub pgs: u64,
    /// PGs by state.
    pub pg_states: Vec<(String, u64)>,
    /// Pools.
    pub pools: u64,
    /// Bytes free and in all.
    pub bytes: (u64, u64),
}

impl Health {
    /// Asks the mon.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn ask(client: &mut SyncClient) -> Result<Self, ClientError> {
        let reply = client.command(&json!({"prefix": "status", "format": "json"}))?;
        let value: Value = serde_json::from_slice(&reply.data).unwrap_or_default();
        Ok(Self::from_status(&value))
    }

    fn from_status(v: &Value) -> Self {
        let number = |path: &str| v.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        let text = |v: &Value, path: &str| {
            v.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let checks = v.pointer("/health/checks").and_then(Value::as_object);
        let states = v.pointer("/pgmap/pgs_by_state").and_then(Value::as_array);
        let state = |s: &Value| {
            let count = s.pointer("/count").and_then(Value::as_u64).unwrap_or(0);
            (text(s, "/state_name"), count)
        };
        Health {
            status: text(v, "/health/status"),
            checks: checks
                .into_iter()
                .flat_map(|c| c.values().map(|check| text(check, "/summary/message")))
                .collect(),
            osds: number("/osdmap/num_osds"),
            osds_up: number("/osdmap/num_up_osds"),
            pgs: number("/pgmap/num_pgs"),
            pg_states: states.into_iter().flatten().map(state).collect(),
            pools: number("/pgmap/num_pools"),
            bytes: (number("/pgmap/bytes_avail"), number("/pgmap/bytes_total")),
        }
    }

    /// Whether every PG is active+clean.
    pub fn is_clean(&self) -> bool {
        let clean = self.pg_states.iter().filter(|(s, _)| s == "active+clean");
        self.pgs > 0 && clean.map(|(_, n)| n).sum::<u64>() == self.pgs
    }

    /// The states of the PGs, for people.
    pub fn pg_summary(&self) -> String {
        let known: u64 = self.pg_states.iter().map(|(_, n)| n).sum();
        let unknown = self.pgs.saturating_sub(known);
        let unknown = (unknown > 0).then(|| format!("{unknown} unknown"));
        let states = self.pg_states.iter().map(|(s, n)| format!("{n} {s}"));
        states.chain(unknown).collect::<Vec<_>>().join(", ")
    }
}

/// A pool that wants more copies than there are OSDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    id: u64,
    /// Its name.
    pub name: String,
    /// Copies that it wants.
    pub size: u64,
}

/// The pools that want more copies than there are OSDs: their PGs cannot be clean.
///
/// # Errors
/// When the mon does not answer.
pub fn beyond_osds(client: &mut SyncClient, osds: usize) -> Result<Vec<Beyond>, Failure> {
    let dump = client.must(&json!({"prefix": "osd dump"}))?;
    let pools = dump["pools"].as_array().into_iter().flatten().filter_map(|pool| {
        let (id, size) = (pool["pool"].as_u64()?, pool["size"].as_u64()?);
        Some(Beyond { id, name: pool["pool_name"].as_str()?.to_owned(), size })
    });
    Ok(pools.filter(|pool| pool.size > osds as u64).collect())
}

/// Whether the PGs of all other pools are active+clean.
///
/// # Errors
/// When the mon does not answer.
pub fn others_are_clean(client: &mut SyncClient, but: &[Beyond]) -> Result<bool, Failure> {
    let dump = client.must(&json!({"prefix": "pg dump", "dumpcontents": ["pgs"]}))?;
    let is_other = |pg: &&Value| {
        let pool = pg["pgid"].as_str().and_then(|pgid| pgid.split_once('.')?.0.parse().ok());
        !but.iter().any(|beyond| Some(beyond.id) == pool)
    };
    let pgs = dump["pg_stats"].as_array().into_iter().flatten().filter(is_other);
    let states: Vec<&Value> = pgs.map(|pg| &pg["state"]).collect();
    Ok(!states.is_empty() && states.iter().all(|state| *state == "active+clean"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_ceph_writes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/cli/status.json");
        let text = std::fs::read_to_string(path).unwrap();
        let health = Health::from_status(&serde_json::from_str(&text).unwrap());
        assert!(health.status.starts_with("HEALTH_"), "{health:?}");
        assert!(health.osds > 0 && health.pgs > 0 && !health.pg_states.is_empty(), "{health:?}");
        assert!(health.bytes.0 <= health.bytes.1 && health.bytes.1 > 0);
    }

    #[test]
    fn clean_means_every_pg() {
        let states = |s: &[(&str, u64)]| s.iter().map(|(s, n)| ((*s).to_owned(), *n)).collect();
        let mut health = Health { pgs: 32, ..Health::default() };
        assert!(!health.is_clean());
        health.pg_states = states(&[("active+clean", 31), ("peering", 1)]);
        assert!(!health.is_clean());
        health.pg_states = states(&[("active+clean", 32)]);
        assert!(health.is_clean());
        health.pgs = 40;
        assert!(!health.is_clean());
        assert_eq!(health.pg_summary(), "32 active+clean, 8 unknown");
    }
}
