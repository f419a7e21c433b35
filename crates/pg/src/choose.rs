//! Which copy's log counts, and who should act. Source: Ceph `osd/PeeringState.cc:
//! find_best_info, calc_replicated_acting`.

use crate::info::PgInfo;
use crate::intervals::{Mapping, OsdSet};
use crate::missing::Lack;
use std::collections::{BTreeMap, BTreeSet};
use types::testing::{Bug, planted};
use types::{Epoch, Eversion, OsdId};

/// The outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Whose log is authoritative.
    pub auth: OsdId,
    /// Who should act, the primary first.
    pub want: OsdSet,
    /// Members of the up set that must be backfilled before they can act.
    pub backfill: BTreeSet<OsdId>,
}

/// The copy whose log is authoritative, or `None` when no copy that is heard of can be trusted to
/// hold every acknowledged write (the PG is incomplete).
///
/// `lacks` says what copies are missing. A copy takes over a write into its log also when it cannot
/// do it (for lack of space, or of what it is made upon). If all that could lose it in a crash, and only
/// such entries are left, they were never acknowledged, and do not count: they would stand for data that
/// nobody has. (Ceph lets a write wait until all acting copies have the object.)
pub fn authoritative(
    infos: &BTreeMap<OsdId, PgInfo>,
    lacks: &BTreeMap<OsdId, Lack>,
    me: OsdId,
) -> Option<OsdId> {
    let newest_start = infos.values().flat_map(|i| {
        let own = if i.is_complete() { i.last_epoch_started } else { Epoch::ZERO };
        [i.history.last_epoch_started, own]
    });
    let newest_start = newest_start.max().unwrap_or_default();
    if planted(Bug::WrongAuthority) {
        let longest = infos.iter().filter(|(_, i)| i.is_complete());
        return longest.max_by_key(|(_, i)| i.last_update.version).map(|(osd, _)| *osd);
    }
    // Every copy that took part in the newest activation has all that was acknowledged before it;
    // the shortest of them is a lower bound of what counts.
    let started = || infos.iter().filter(|(_, i)| i.last_epoch_started >= newest_start);
    let heads: BTreeSet<Eversion> = started().map(|(_, i)| i.last_update).collect();
    let acceptable = *heads.first()?;
    // What is beyond another's head was not acknowledged.
    let has_its_tail = |osd: &OsdId, head: Eversion| {
        let shorter = heads.range(..head).next_back();
        shorter.is_none_or(|s| lacks.get(osd).is_none_or(|l| l.newest <= *s))
    };
    let counts = |head: Eversion| {
        let same = started().filter(|(_, i)| i.last_update == head && i.is_complete());
        head == acceptable || same.map(|(osd, _)| osd).any(|osd| has_its_tail(osd, head))
    };
    let complete = || started().filter(|(_, i)| i.is_complete());
    // Newest head, then the longest log, then ourselves (no log to fetch), then the smallest id.
    let rank = |osd: OsdId, i: &PgInfo| {
        (i.last_update, std::cmp::Reverse(i.log_tail), osd == me, std::cmp::Reverse(osd))
    };
    let rank = |(osd, info): &(&OsdId, &PgInfo)| rank(**osd, info);
    let best = complete().filter(|(_, i)| counts(i.last_update)).max_by_key(rank);
    best.or_else(|| complete().max_by_key(rank)).map(|(osd, _)| *osd)
}

/// A copy that misses more objects than this does not lead while another one could: every client
/// would wait for them (Ceph's `osd_force_auth_primary_missing_objects`, there 100). One that is full must miss
/// nothing: it has no space for what it misses, and they would wait until somebody makes some.
pub const LEADER_MISSES_AT_MOST: u64 = 10;

/// Who should act: members of the up set whose log connects to the authoritative one, filled up
/// with other holders of the PG. `lacks` says what copies miss, `full` which members of the up set have no space.
pub fn choose(
    infos: &BTreeMap<OsdId, PgInfo>,
    lacks: &BTreeMap<OsdId, Lack>,
    full: &BTreeSet<OsdId>,
    mapping: &Mapping,
    size: u32,
    me: OsdId,
) -> Option<Choice> {
    let auth = authoritative(infos, lacks, me)?;
    let best = infos.get(&auth)?;
    let tail = best.log_tail;
    let connects = |osd: OsdId| infos.get(&osd).is_some_and(|i| can_catch_up(i, tail));
    let leads_well = |osd: OsdId| {
        let behind = |i: &PgInfo| {
            best.last_update.version.saturating_sub(i.last_update.version)
                + lacks.get(&osd).map_or(0, |l| l.objects)
        };
        let most = if full.contains(&osd) { 0 } else { LEADER_MISSES_AT_MOST };
        connects(osd) && infos.get(&osd).map(behind).is_some_and(|n| n <= most)
    };
    let up_primary = mapping.up_primary.filter(|p| connects(*p));
    let better = || mapping.up.iter().copied().find(|o| leads_well(*o));
    let primary = up_primary.filter(|p| leads_well(*p)).or_else(better);
    let primary = primary.or(up_primary).unwrap_or(auth);
    let mut want: OsdSet = OsdSet::new();
    want.push(primary);
    let mut backfill = BTreeSet::new();
    for osd in mapping.up.iter().copied().filter(|o| *o != primary && o.is_some()) {
        if connects(osd) {
            want.push(osd);
        } else {
            backfill.insert(osd);
        }
    }
    let mut others: Vec<_> = infos
        .iter()
        .filter(|(osd, _)| !want.contains(osd) && !backfill.contains(*osd) && connects(**osd))
        .map(|(osd, info)| {
            // Those that act keep their places: what is known of them changes while a PG peers.
            let place = mapping.acting.iter().position(|o| o == osd);
            let newest = place.is_none().then_some(std::cmp::Reverse(info.last_update));
            (place.unwrap_or(usize::MAX), newest, *osd)
        })
        .collect();
    others.sort_unstable();
    for (_, _, osd) in others {
        if want.len() < size as usize {
            want.push(osd);
        }
    }
    Some(Choice { auth, want, backfill })
}

/// Whether a copy can be brought up to date from a log that reaches back to `tail`.
fn can_catch_up(info: &PgInfo, tail: Eversion) -> bool {
    info.is_complete() && !info.is_absent() && info.last_update >= tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::History;
    use types::{HObject, PgId, PoolId};

    fn info(lu: (u32, u64), tail: u64, les: u32) -> PgInfo {
        let history = History { epoch_created: Epoch(1), ..History::default() };
        let mut i = PgInfo::new(PgId::new(PoolId(1), 0), history);
        i.last_update = Eversion::new(Epoch(lu.0), lu.1);
        i.log_tail = Eversion::new(Epoch(1), tail);
        i.last_epoch_started = Epoch(les);
        i.history.last_epoch_started = Epoch(les);
        i
    }

    fn osds(ids: &[i32]) -> OsdSet {
        ids.iter().map(|o| OsdId(*o)).collect()
    }

    fn mapping(ids: &[i32]) -> Mapping {
        let up = osds(ids);
        let p = up.first().copied();
        Mapping { acting: up.clone(), up, up_primary: p, acting_primary: p }
    }

    fn infos(list: &[(i32, PgInfo)]) -> BTreeMap<OsdId, PgInfo> {
        list.iter().map(|(o, i)| (OsdId(*o), i.clone())).collect()
    }

    fn chosen(all: &BTreeMap<OsdId, PgInfo>, mapping: &Mapping, me: OsdId) -> Choice {
        choose(all, &BTreeMap::new(), &BTreeSet::new(), mapping, 3, me).unwrap()
    }

    /// Who should act of three, when they miss so many objects and some are full.
    fn want(all: &BTreeMap<OsdId, PgInfo>, missing: &[(i32, u64)], full: &[i32]) -> OsdSet {
        let lack = |n| Lack { objects: n, newest: Eversion::ZERO };
        let missing = missing.iter().map(|(o, n)| (OsdId(*o), lack(*n))).collect();
        let full = osds(full).into_iter().collect();
        choose(all, &missing, &full, &mapping(&[0, 1, 2]), 3, OsdId(1)).unwrap().want
    }

    #[test]
    fn a_longer_log_of_an_older_activation_does_not_count() {
        // osd.1 wrote alone in epoch 5 without ever being active in the newest interval.
        let all = infos(&[(0, info((9, 20), 1, 8)), (1, info((5, 30), 1, 4))]);
        assert_eq!(authoritative(&all, &BTreeMap::new(), OsdId(1)), Some(OsdId(0)));
    }

    #[test]
    fn an_incomplete_copy_is_no_authority_but_its_history_counts() {
        let mut partial = info((9, 30), 1, 9);
        partial.last_backfill = HObject::min();
        assert_eq!(
            authoritative(
                &infos(&[(0, info((9, 20), 1, 8)), (1, partial)]),
                &BTreeMap::new(),
                OsdId(0)
            ),
            None
        );
    }

    #[test]
    fn entries_without_data_that_others_have_lost_do_not_count() {
        let at = |version| Eversion::new(Epoch(9), version);
        let lack = |newest| Lack { objects: 1, newest: at(newest) };
        let choose = |all: &[(i32, PgInfo)], lacks: &[(i32, Lack)]| {
            let lacks = lacks.iter().map(|(o, l)| (OsdId(*o), *l)).collect();
            authoritative(&infos(all), &lacks, OsdId(0)).unwrap()
        };
        let (short, long) = (info((9, 43), 1, 8), info((9, 45), 1, 8));
        let all = [(0, short.clone()), (1, short.clone()), (2, long.clone())];
        assert_eq!(choose(&all, &[(2, lack(43))]), OsdId(2), "the data of its last ones are there");
        assert_eq!(choose(&all, &[(2, lack(44))]), OsdId(0));
        // Somebody has the data.
        let all = [(0, short.clone()), (1, long.clone()), (2, long.clone())];
        assert_eq!(choose(&all, &[(2, lack(44))]), OsdId(1));
        // They may have been acknowledged.
        let all = [(1, long.clone()), (2, long.clone())];
        assert_eq!(choose(&all, &[(1, lack(44)), (2, lack(44))]), OsdId(1));
        // There is no other that could lead.
        let filling = PgInfo { last_backfill: HObject::min(), ..short };
        assert_eq!(choose(&[(1, filling), (2, long)], &[(2, lack(44))]), OsdId(2));
    }

    #[test]
    fn a_copy_too_far_behind_is_backfilled_and_another_acts_meanwhile() {
        let all = infos(&[
            (0, info((1, 5), 1, 8)),
            (1, info((9, 90), 50, 8)),
            (2, info((9, 90), 50, 8)),
            (3, info((9, 80), 40, 8)),
        ]);
        let choice = chosen(&all, &mapping(&[0, 1, 2]), OsdId(1));
        assert_eq!(choice.auth, OsdId(1));
        assert_eq!(choice.want, osds(&[1, 2, 3]));
        assert_eq!(choice.backfill, [OsdId(0)].into());
    }

    #[test]
    fn a_copy_that_misses_much_does_not_lead_until_it_has_caught_up() {
        let fresh = info((9, 90), 50, 8);
        let mut all =
            infos(&[(0, info((9, 60), 50, 8)), (1, fresh.clone()), (2, info((9, 70), 50, 8))]);
        let choose = |all: &_, missing| want(all, missing, &[]);
        assert_eq!(choose(&all, &[]), osds(&[1, 0, 2]));
        // It has the log now, but not the objects.
        all.insert(OsdId(0), fresh.clone());
        assert_eq!(choose(&all, &[(0, 30)]), osds(&[1, 0, 2]));
        assert_eq!(choose(&all, &[(0, 3)]), osds(&[0, 1, 2]));
        // Nobody would be better.
        assert_eq!(choose(&all, &[(0, 30), (1, 30), (2, 30)]), osds(&[0, 1, 2]));
    }

    /// It has no space for what it misses: clients would wait for that until somebody deletes something.
    #[test]
    fn a_full_copy_leads_only_if_it_misses_nothing_or_nobody_is_better() {
        let fresh = info((9, 90), 50, 8);
        let mut all = infos(&[(0, fresh.clone()), (1, fresh.clone()), (2, fresh)]);
        assert_eq!(want(&all, &[], &[0]), osds(&[0, 1, 2]));
        assert_eq!(want(&all, &[(0, 1)], &[]), osds(&[0, 1, 2]));
        assert_eq!(want(&all, &[(0, 1)], &[0]), osds(&[1, 0, 2]));
        assert_eq!(want(&all, &[(0, 1), (1, 1)], &[0, 1]), osds(&[2, 0, 1]));
        // One that has space can be brought what it misses.
        assert_eq!(want(&all, &[(0, 1), (1, 5), (2, 1)], &[0, 2]), osds(&[1, 0, 2]));
        assert_eq!(want(&all, &[(0, 1), (1, 1), (2, 1)], &[0, 1, 2]), osds(&[0, 1, 2]));
        // What it does not know of yet, it will miss.
        all.insert(OsdId(0), info((9, 89), 50, 8));
        assert_eq!(want(&all, &[], &[0]), osds(&[1, 0, 2]));
    }

    /// Else a PG whose members turn out to have other logs than they said would change its mind for ever.
    #[test]
    fn who_acts_already_keeps_its_place() {
        let all = infos(&[
            (0, info((9, 90), 50, 8)),
            (4, info((9, 90), 50, 8)),
            (5, info((9, 70), 50, 8)),
        ]);
        let acting = osds(&[0, 5, 4]);
        let mapping = Mapping { acting, acting_primary: Some(OsdId(0)), ..mapping(&[1, 0, 2]) };
        let want = chosen(&all, &mapping, OsdId(0)).want;
        assert_eq!(want, osds(&[0, 5, 4]));
    }

    #[test]
    fn everybody_equal_keeps_the_mapping() {
        let i = info((9, 90), 50, 8);
        let all = infos(&[(0, i.clone()), (1, i.clone()), (2, i)]);
        let choice = chosen(&all, &mapping(&[2, 0, 1]), OsdId(2));
        assert_eq!(choice.want, osds(&[2, 0, 1]));
        assert!(choice.backfill.is_empty());
    }
}
