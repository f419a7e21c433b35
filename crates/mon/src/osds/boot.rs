//! An OSD says that it is there: it comes into the map.

use super::identity::LastLife;
use super::register::{make_room, recreate};
use super::rounded_tib;
use crate::cluster::Cluster;
use crate::log::Level;
use crate::store::keys;
use admin::CommandError;
use crush::{CrushMap, Location, weight_from_f64};
use io::Now;
use maps::{Incremental, OsdAddrs, OsdMap, OsdMapFlags, OsdState, WEIGHT_IN, WEIGHT_OUT};
use peer::OsdBoot;
use types::Uuid;
use wire::LinkId;

/// What becomes of a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BootAnswer {
    /// It is (or already was) in the map.
    Up,
    /// Something of it is being changed: to be looked at again after the commit.
    Later,
    /// The process that is up as this OSD is to be asked whether it lives, on this session, by this
    /// number. To be looked at again then.
    Ask(LinkId, u64),
    /// A flag keeps it down. It will ask again.
    Held,
    /// It cannot be: why.
    Refused(String),
}

/// Bits of features that every daemon of ours has.
pub(crate) const FEATURES: u64 = 0x3f01_cfbd_fffd_ffff;

impl Cluster {
    /// Takes an OSD into the map that speaks on a session.
    pub fn boot(&mut self, now: Now, link: LinkId, boot: &OsdBoot) -> BootAnswer {
        let answer = self.try_boot(now, link, boot);
        match &answer {
            BootAnswer::Refused(why) => self.refused(now, boot, why),
            BootAnswer::Up => {
                self.accepted(boot);
                self.claim(boot.osd, link);
            }
            BootAnswer::Later | BootAnswer::Ask(..) | BootAnswer::Held => {}
        }
        answer
    }

    fn try_boot(&mut self, now: Now, link: LinkId, boot: &OsdBoot) -> BootAnswer {
        if let Err(why) = self.may_boot(boot) {
            return BootAnswer::Refused(why);
        }
        let id = boot.osd;
        if self.draft.touches(id) {
            return BootAnswer::Later;
        }
        let map = self.map().clone();
        if map.is_up(id) {
            let osd = map.osd(id);
            let same = osd.is_some_and(|o| {
                o.client_addrs == boot.client_addrs && o.cluster_addrs == boot.cluster_addrs
            });
            if same {
                return BootAnswer::Up;
            }
            return match self.last_life(now, id, link) {
                LastLife::Ask(old, number) => BootAnswer::Ask(old, number),
                LastLife::Asked => BootAnswer::Later,
                LastLife::Goes => BootAnswer::Refused(format!(
                    "osd.{id} runs already{}, and now a second process at {} says it is osd.{id}, \
                     with the same store: one of the two disks is a copy of the other. Stop the \
                     second one",
                    osd.map(|o| format!(" at {}", o.client_addrs)).unwrap_or_default(),
                    boot.client_addrs
                )),
                LastLife::Over => {
                    // It started anew before its end was noticed.
                    self.save_mark(id);
                    let down = self.change(|inc, _| inc.mark_down(id));
                    down.map_or_else(|e| BootAnswer::Refused(e.text), |()| BootAnswer::Later)
                }
            };
        }
        if let Err(why) = self.rolled_back(boot) {
            return BootAnswer::Refused(why);
        }
        if map.effective_flags(id).contains(OsdState::NOUP) || map.flags.contains(OsdMapFlags::NOUP)
        {
            tracing::debug!("osd.{id} boots, but the flag noup keeps it down");
            return BootAnswer::Held;
        }
        if let Err(e) = self.bring_up(now, &map, boot) {
            return BootAnswer::Refused(e.text);
        }
        self.draft.put(keys::osd(id), denc::encode(&boot.metadata));
        self.state.osd_metadata.insert(id, boot.metadata.clone());
        self.say(now, Level::Info, format!("osd.{id} {} boot", boot.client_addrs));
        BootAnswer::Up
    }

    /// Whether this OSD belongs here.
    fn may_boot(&self, boot: &OsdBoot) -> Result<(), String> {
        let id = boot.osd;
        if boot.cluster != self.state.fsid {
            return Err(format!(
                "osd.{id} was made for the cluster {}, this one is {}; start it with that \
                 cluster's mon, or make its store anew",
                boot.cluster, self.state.fsid
            ));
        }
        self.check_osd_id(id).map_err(|e| e.text)?;
        if boot.uuid.is_nil()
            || boot.client_addrs.v2().is_none()
            || boot.cluster_addrs.v2().is_none()
        {
            return Err(format!("osd.{id} boots without uuid or addresses"));
        }
        self.was_gone(boot)?;
        let map = self.map();
        let other = map.osd_by_uuid(&boot.uuid).filter(|&other| other != id);
        if let Some(other) = other {
            return Err(format!("the store of osd.{id} is the one of osd.{other}"));
        }
        let known = map.osd(id).filter(|_| map.exists(id)).map_or(Uuid::NIL, |o| o.uuid);
        let free = known.is_nil() || map.state(id).contains(OsdState::DESTROYED);
        if known != boot.uuid && !free {
            return Err(format!(
                "osd.{id} has the store {known} in this cluster, but {} boots under its number; if \
                 the old disk is gone, 'ceph osd destroy {id}' or 'ceph osd purge {id}' frees it",
                boot.uuid
            ));
        }
        Ok(())
    }

    fn bring_up(&mut self, now: Now, before: &OsdMap, boot: &OsdBoot) -> Result<(), CommandError> {
        let (id, had) = (boot.osd, self.had(boot.osd));
        let no_in = before.flags.contains(OsdMapFlags::NOIN)
            || before.effective_flags(id).contains(OsdState::NOIN);
        let crush = self.crush_place(before, boot);
        let past = before.osd(id).filter(|o| o.uuid == boot.uuid).map(|o| o.xinfo);
        let learned = self.learn_laggy(now, past.unwrap_or_default(), boot.was_alive);
        self.edit(|inc, map| {
            let info = map.osd(id).filter(|_| map.exists(id));
            let state = map.state(id);
            let is_new = info.is_none_or(|o| o.uuid != boot.uuid) || state.contains(OsdState::NEW);
            if !map.exists(id) {
                make_room(inc, map, id, had);
                inc.new_uuid.insert(id, boot.uuid);
                inc.new_weight.insert(id, WEIGHT_OUT);
                inc.toggle_state(id, OsdState::NEW);
            } else if info.is_none_or(|o| o.uuid != boot.uuid) {
                recreate(inc, map, id, boot.uuid);
            }
            let addrs = OsdAddrs {
                client: boot.client_addrs.clone(),
                cluster: boot.cluster_addrs.clone(),
                hb_back: boot.hb_back_addrs.clone(),
                hb_front: boot.hb_front_addrs.clone(),
            };
            inc.mark_up(id, addrs);
            let xinfo = info.map(|o| o.xinfo).unwrap_or_default();
            let pending = inc.new_xinfo.get(&id).copied().unwrap_or(learned);
            inc.new_xinfo.insert(id, maps::OsdXInfo { features: FEATURES, ..pending });
            // What was made anew is to be filled, even if what was there before had been taken out.
            let comes_in = (is_new || state.contains(OsdState::AUTOOUT)) && !no_in;
            if comes_in {
                let old = if xinfo.old_weight > 0 { xinfo.old_weight } else { WEIGHT_IN };
                let has = info.is_some() && map.weight(id) > WEIGHT_OUT;
                let weight = if has { map.weight(id) } else { old };
                take_in(inc, id, weight);
            }
            if let Some(crush) = crush {
                inc.set_crush(&crush);
            }
            Ok(())
        })
    }

    /// The CRUSH map with the OSD where it says it stands, if that is a change.
    fn crush_place(&self, map: &OsdMap, boot: &OsdBoot) -> Option<CrushMap> {
        let id = boot.osd.0;
        let mut crush = CrushMap::clone(map.crush());
        if self.settings.bool("osd_crush_update_on_start") || !crush.is_placed(id) {
            let initial = self.settings.float("osd_crush_initial_weight");
            let weight = if initial < 0.0 { rounded_tib(boot.store_bytes) } else { initial };
            let place = self.location(boot);
            let moved = weight_from_f64(weight).and_then(|weight| {
                crush.create_or_move_item(id, weight, &format!("osd.{id}"), &place)
            });
            if let Err(e) = moved {
                let who = boot.osd;
                tracing::warn!("osd.{who} is not moved to {place} in the CRUSH map: {e}");
                crush = CrushMap::clone(map.crush());
            }
        }
        let class = boot.device_class.as_str();
        let classless = crush.item_class(id).is_none() && crush.item_name(id).is_some();
        let update = self.settings.bool("osd_class_update_on_start");
        if classless
            && !class.is_empty()
            && update
            && let Err(e) = crush.set_device_class(id, class)
        {
            tracing::warn!("osd.{id} does not get the device class {class}: {e}");
        }
        (crush != **map.crush()).then_some(crush)
    }

    /// Where it says it stands; below its host if it says nothing.
    fn location(&self, boot: &OsdBoot) -> Location {
        let mut place = boot.location.clone();
        place.retain(|(_, name)| crush::is_valid_name(name));
        let has = |place: &[(String, String)], kind: &str| place.iter().any(|(k, _)| k == kind);
        if place.is_empty() {
            let host = boot.metadata.get("hostname").map(String::as_str).unwrap_or("unknown");
            let good = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
            // Ceph names hosts by their first word.
            let host: String =
                host.split('.').next().unwrap_or_default().chars().map(good).collect();
            place.push(("host".into(), if host.is_empty() { "unknown".into() } else { host }));
        }
        if !has(&place, "root") {
            place.push(("root".into(), "default".into()));
        }
        place.into_iter().collect()
    }
}

/// Gives an OSD its weight; that also ends `autoout` and `new`.
fn take_in(inc: &mut Incremental, id: types::OsdId, weight: u32) {
    inc.new_weight.insert(id, weight);
    // The map clears the bits itself when it applies a weight: turned over as well they would be
    // set again.
    if let Some(turned) = inc.new_state.get_mut(&id) {
        *turned = turned.without(OsdState::NEW | OsdState::AUTOOUT);
        if turned.0 == 0 {
            inc.new_state.remove(&id);
        }
    }
}
