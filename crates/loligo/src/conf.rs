//! `ceph.conf`: the part a client needs to find its cluster, read and written.

use crate::failure::{Context, Failure};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use types::{AddrVec, Uuid};

/// The port of Ceph's monitors (msgr2).
pub const DEFAULT_MON_PORT: u16 = 3300;

/// Where a cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConf {
    /// The cluster, if the file says.
    pub fsid: Option<Uuid>,
    /// Its monitors.
    pub mons: Vec<AddrVec>,
}

impl ClientConf {
    /// From `--conf`, `CEPH_CONF`, or Ceph's usual place.
    ///
    /// # Errors
    /// When the file cannot be read or names no monitor.
    pub fn find(path: Option<&Path>) -> Result<Self, Failure> {
        let from_env = || std::env::var_os("CEPH_CONF").map(PathBuf::from);
        let path = path.map(Path::to_owned).or_else(from_env);
        Self::load(&path.unwrap_or_else(|| "/etc/ceph/ceph.conf".into()))
    }

    /// From this file.
    ///
    /// # Errors
    /// See [`ClientConf::find`].
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let what = || format!("cannot read {}", path.display());
        let text = std::fs::read_to_string(path).context(what)?;
        Self::parse(&text).context(what)
    }

    /// Reads the `[global]` section (and what stands before any section).
    ///
    /// # Errors
    /// When there is no monitor in it, or an address cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut conf = ClientConf { fsid: None, mons: Vec::new() };
        let mut section = "global".to_owned();
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or("").trim();
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']'))
                && !line.contains('=')
            {
                section = name.trim().to_owned();
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| section == "global") else {
                continue;
            };
            match key.trim().replace([' ', '-'], "_").as_str() {
                "fsid" => {
                    let parsed = value.trim().parse();
                    conf.fsid = Some(parsed.map_err(|e| format!("fsid = {}: {e}", value.trim()))?);
                }
                "mon_host" => conf.mons = parse_mon_host(value)?,
                _ => {}
            }
        }
        if conf.mons.is_empty() {
            return Err("there is no `mon host` in its [global] section".to_owned());
        }
        Ok(conf)
    }
}

/// `[v2:1.2.3.4:3300,v1:1.2.3.4:6789],10.0.0.7 10.0.0.8:3300`: one entry a monitor; v1 addresses are
/// of no use and left out.
fn parse_mon_host(value: &str) -> Result<Vec<AddrVec>, String> {
    let mut mons = Vec::new();
    let mut rest = value.trim();
    while !rest.is_empty() {
        let (entry, tail) = match rest.strip_prefix('[') {
            // An IPv6 address stands in brackets, too: it begins with a digit or colon.
            Some(inner) if inner.starts_with('v') || inner.starts_with("any:") => {
                closed(inner).ok_or_else(|| format!("`{rest}` has no closing bracket"))?
            }
            _ => rest.split_once([',', ' ', '\t']).unwrap_or((rest, "")),
        };
        rest = tail.trim_start_matches([',', ' ', '\t']);
        let v2 = entry.split(',').find_map(|a| {
            let plain = a.trim();
            let bare = plain.strip_prefix("v2:").or_else(|| plain.strip_prefix("any:"));
            match (bare, plain.starts_with("v1:")) {
                (_, true) => None,
                (bare, false) => Some(bare.unwrap_or(plain)),
            }
        });
        if let Some(text) = v2 {
            let addr = text.split_once('/').map_or(text, |(addr, _nonce)| addr);
            mons.push(AddrVec::msgr2(parse_addr(addr)?, 0));
        }
    }
    Ok(mons)
}

/// What stands before the closing bracket, and what after it. IPv6 addresses between have brackets of their own.
fn closed(text: &str) -> Option<(&str, &str)> {
    let mut open = 0_usize;
    let end = text.find(|c: char| {
        match c {
            '[' => open += 1,
            ']' if open == 0 => return true,
            ']' => open -= 1,
            _ => {}
        }
        false
    })?;
    let (inside, rest) = text.split_at(end);
    Some((inside, rest.strip_prefix(']')?))
}

fn parse_addr(text: &str) -> Result<SocketAddr, String> {
    if let Ok(addr) = text.parse() {
        return Ok(addr);
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(ip) => Ok(SocketAddr::new(ip, DEFAULT_MON_PORT)),
        Err(_) => Err(format!("`{text}` in `mon host` is no address: IP or IP:PORT is expected")),
    }
}

/// The file that clients of a development cluster read.
pub fn dev_conf(dir: &Path, fsid: Uuid, mon: SocketAddr) -> String {
    let dir = dir.display();
    format!(
        "# Written by `loligo dev start`; it is written anew each time.\n\
         [global]\n\
         fsid = {fsid}\n\
         mon host = [v2:{mon}]\n\
         auth client required = none\n\
         auth cluster required = none\n\
         auth service required = none\n\
         ms mon client mode = crc\n\
         admin socket = {dir}/$name.asok\n\
         run dir = {dir}\n\
         log file =\n\
         err to stderr = true\n\
         [client]\n\
         admin socket =\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mons(value: &str) -> Result<Vec<String>, String> {
        let show = |v: Vec<AddrVec>| v.iter().map(ToString::to_string).collect();
        parse_mon_host(value).map(show)
    }

    #[test]
    fn monitors_are_found_in_every_form_people_write() {
        assert_eq!(mons("[v2:127.0.0.1:3300]"), Ok(vec!["v2:127.0.0.1:3300/0".into()]));
        let both = "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0],[v1:10.0.0.2:6789,v2:10.0.0.2:3301]";
        let expected = vec!["v2:10.0.0.1:3300/0".to_owned(), "v2:10.0.0.2:3301/0".into()];
        assert_eq!(mons(both), Ok(expected));
        let plain = vec!["v2:10.0.0.7:3300/0".to_owned(), "v2:10.0.0.8:99/0".into()];
        assert_eq!(mons("10.0.0.7, 10.0.0.8:99"), Ok(plain));
        assert_eq!(mons("[::1]:3300"), Ok(vec!["v2:[::1]:3300/0".into()]));
        let (first, second) =
            ("[v2:[fd00::1]:3300/0,v1:[fd00::1]:6789/0]", "[v2:[fd00::2]:3301/0]");
        let expected = vec!["v2:[fd00::1]:3300/0".to_owned(), "v2:[fd00::2]:3301/0".into()];
        assert_eq!(mons(&format!("{first} {second}")), Ok(expected.clone()));
        assert_eq!(mons(&format!("{first},{second}")), Ok(expected));
        assert_eq!(mons("fd00::1 [fd00::2]").map(|all| all.len()), Ok(2));
        assert_eq!(mons("v1:10.0.0.1:6789"), Ok(vec![]));
        assert!(mons("mon.example.org").is_err());
        assert!(mons("[v2:10.0.0.1:3300").is_err());
        assert!(mons("[v2:[fd00::1]:3300").is_err());
    }

    #[test]
    fn only_the_global_section_counts() {
        let text = "# x\n[global]\nfsid = 11111111-2222-3333-4444-5555deadbeef ; c\n\
                    mon_host=1.2.3.4\n[mon.a]\nmon host = 9.9.9.9\n";
        let conf = ClientConf::parse(text).unwrap();
        assert_eq!(conf.mons, [AddrVec::msgr2("1.2.3.4:3300".parse().unwrap(), 0)]);
        assert_eq!(conf.fsid.unwrap().to_string(), "11111111-2222-3333-4444-5555deadbeef");
        assert!(ClientConf::parse("[global]\n").unwrap_err().contains("mon host"));
        assert!(ClientConf::parse("mon host = 1.2.3.4\nfsid = no").is_err());
    }

    #[test]
    fn what_is_written_can_be_read() {
        let fsid = Uuid::from_random(5);
        for addr in ["127.0.0.1:7000", "[::1]:7000"] {
            let text = dev_conf(Path::new("/x"), fsid, addr.parse().unwrap());
            let conf = ClientConf::parse(&text).unwrap();
            assert_eq!(conf.fsid, Some(fsid));
            assert_eq!(conf.mons[0].to_string(), format!("v2:{addr}/0"));
        }
    }
}
