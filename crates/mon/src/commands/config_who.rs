//! Whose an option is: sections of the configuration database and their masks, and who is told what by them. Source:
//! Ceph `mon/ConfigMap.cc`.

use crate::cluster::Cluster;
use crush::CrushMap;
use serde_json::{Map, Value};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Whose option it is: section and masks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Who<'a> {
    /// Empty for `global`.
    pub kind: &'a str,
    pub id: Option<&'a str>,
    pub masks: Vec<(&'a str, &'a str)>,
}

/// The mask that is for a device class; all others are for places in the CRUSH map.
const CLASS: &str = "class";

/// What is stored says this.
pub(super) fn parse_who(text: &str) -> Option<Who<'_>> {
    let mut who = Who { kind: "", id: None, masks: Vec::new() };
    let mut sections = Vec::new();
    for part in text.split('/') {
        match part.split_once(':') {
            Some((_, "")) => return None,
            Some(mask) => who.masks.push(mask),
            None => sections.push(part),
        }
    }
    // `class:ssd` is for everybody with such a device.
    let section = match sections[..] {
        [] => "global",
        [one] => one,
        _ => return None,
    };
    let (kind, id) = match section.split_once('.') {
        Some((kind, id)) if !id.is_empty() => (kind, Some(id)),
        Some(_) => return None,
        None => (section, None),
    };
    match kind {
        "global" if id.is_none() => Some(who),
        "mon" | "mgr" | "osd" | "mds" | "client" => Some(Who { kind, id, ..who }),
        _ => None,
    }
}

/// The section and masks that a command names, as they are stored: so that one is not stored twice.
pub(super) fn section_of(who: &Who<'_>) -> String {
    let mut out = if who.kind.is_empty() { "global".to_owned() } else { who.kind.to_owned() };
    if let Some(id) = who.id {
        out.push_str(&format!(".{id}"));
    }
    let (classes, places): (Vec<_>, Vec<_>) =
        who.masks.iter().partition(|(kind, _)| *kind == CLASS);
    places
        .iter()
        .chain(&classes)
        .for_each(|(kind, value)| out.push_str(&format!("/{kind}:{value}")));
    out
}

/// The section and masks of an option that is to be set: at most one class and one place, of a type that there is.
/// (Ceph takes the last of several, and masks that never fit.)
pub(super) fn new_section(c: &Cluster, text: &str) -> Option<String> {
    let who = parse_who(text)?;
    let is_class = |(kind, _): &&(&str, &str)| *kind == CLASS;
    let classes = who.masks.iter().filter(is_class).count();
    let known = |kind: &str| kind == CLASS || c.map().crush().type_id(kind).is_some();
    let good = classes <= 1
        && who.masks.len() - classes <= 1
        && who.masks.iter().all(|(kind, _)| known(kind));
    good.then(|| section_of(&who))
}

/// How specific it is: what a later one says wins. Sections come first, then masks, of which the one for the smallest
/// part of the hierarchy wins (`MaskedOption::get_precision`).
fn rank(crush: &CrushMap, who: &Who<'_>) -> (usize, Reverse<i32>, usize) {
    let section = match (who.kind, who.id) {
        ("", _) => 0,
        (_, None) => 1,
        (_, Some(id)) => 2 + id.matches('.').count(),
    };
    let places = who.masks.iter().filter(|(kind, _)| *kind != CLASS);
    let level = places.filter_map(|(kind, _)| crush.type_id(kind)).min();
    let has_class = who.masks.iter().any(|(kind, _)| *kind == CLASS);
    let level = level.unwrap_or(if has_class { i32::MAX - 1 } else { i32::MAX });
    (section, Reverse(level), who.masks.len())
}

/// Whether an id, as of `client.a.b`, is this one or begins with its parts.
fn is_of(id: Option<&str>, of: &str) -> bool {
    let rest = id.and_then(|id| id.strip_prefix(of));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Where somebody is: what masks are compared with.
pub(super) type Place = BTreeMap<String, String>;

fn kind_and_id(entity: &str) -> (&str, Option<&str>) {
    entity.split_once('.').map_or((entity, None), |(kind, id)| (kind, Some(id)))
}

/// Everything an entity is told, with the section each value comes from. If it is more than one, as the mon is the
/// mgr, the most specific section of all of them wins, and of equal ones that of the later name.
pub(super) fn resolve(
    c: &Cluster,
    entities: &[&str],
    place: &Place,
) -> BTreeMap<String, (String, String)> {
    let mut fitting = Vec::new();
    for (section, options) in &c.state.config {
        let Some(who) = parse_who(section) else { continue };
        let is_for = |(kind, id)| {
            let same = who.kind.is_empty() || who.kind == kind;
            same && who.id.is_none_or(|of| is_of(id, of))
        };
        let there = who.masks.iter().all(|(k, v)| place.get(*k).is_some_and(|p| p == v));
        if there && entities.iter().any(|entity| is_for(kind_and_id(entity))) {
            fitting.push((rank(c.map().crush(), &who), section, options));
        }
    }
    fitting.sort_by_key(|f| f.0);
    let mut all = BTreeMap::new();
    for (_, section, options) in fitting {
        for (name, value) in options {
            all.insert(name.clone(), (value.clone(), section.clone()));
        }
    }
    all
}

/// Where an OSD or client is: on its host, which may be known to CRUSH.
pub(super) fn place(c: &Cluster, entity: &str, hostname: &str) -> Place {
    let mut place = Place::new();
    // Looking it up is work for every session at every change, and for masks only.
    if !c.state.config.keys().any(|section| section.contains(':')) {
        return place;
    }
    let crush = c.map().crush();
    let mut add = |id: i32| {
        let above = crush.location_path(id).into_iter();
        place.extend(above.map(|(kind, name)| (kind.to_owned(), name.to_owned())));
    };
    if let Some(host) = crush.item_id(hostname) {
        add(host);
    }
    let osd = entity.strip_prefix("osd.").and_then(|id| id.parse::<i32>().ok());
    osd.into_iter().for_each(&mut add);
    if !hostname.is_empty() {
        place.entry("host".into()).or_insert_with(|| hostname.to_owned());
    }
    if let Some(class) = osd.and_then(|id| crush.item_class(id)) {
        place.insert(CLASS.into(), class.to_owned());
    }
    place
}

/// Section and masks.
pub(super) fn split_mask(section: &str) -> (String, String) {
    let (who, mask) = section.split_once('/').unwrap_or((section, ""));
    (who.to_owned(), mask.to_owned())
}

/// `osd/class:ssd`, `osd/host:node1`: what it is limited to.
pub(super) fn mask_json(mask: &str) -> Map<String, Value> {
    let mut out = Map::new();
    for (kind, value) in mask.split('/').filter_map(|mask| mask.split_once(':')) {
        if kind == CLASS {
            out.insert("device_class".into(), value.into());
        } else {
            out.insert("location_type".into(), kind.into());
            out.insert("location_value".into(), value.into());
        }
    }
    out
}
