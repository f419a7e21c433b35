//! Random histories: crashes, restarts, slow maps, lost messages, writes; then everything heals and
//! all copies must be equal and hold every acknowledged write.

use crate::clients::Clients;
use crate::world::*;
use crate::writes::{Snaps, Wish};
use pg::GiveUp;
use std::collections::{BTreeMap, VecDeque};
use types::testing::{Probe, hits_of, take_hits};
use types::{Eversion, HObject, OsdId, SnapId};

struct World {
    rng: fastrand::Rng,
    maps: Vec<Map>,
    osds: Vec<Osd>,
    alive: Vec<bool>,
    /// Whoever is down stays so.
    nobody_starts: bool,
    links: BTreeMap<(i32, i32), VecDeque<Net>>,
    clients: Clients,
    next_value: u64,
    created: bool,
    taken_back: u64,
    disks_lost: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let osds: i32 = rng.i32(2..6);
        let size = rng.u32(1..=3.min(osds as u32));
        let min_size = rng.u32(1..=size);
        let unreadable_one_in = rng.choice([0, 0, 3, 10, 50]).unwrap();
        let mut world = World::of(rng, osds, size, min_size);
        world.osds.iter_mut().for_each(|o| o.unreadable_one_in = unreadable_one_in);
        world
    }

    fn of(mut rng: fastrand::Rng, osds: i32, size: u32, min_size: u32) -> Self {
        let up = (0..osds).collect();
        let up_from = (0..osds).map(|o| (o, 1)).collect();
        let order = (0..osds).collect();
        let map = Map { epoch: 1, up, up_from, order, size, min_size, ..Map::default() };
        let full_one_in = rng.choice([2, 3, 5, 50]).unwrap();
        let mut all: Vec<_> = (0..osds).map(|id| Osd::new(id, rng.fork(), full_one_in)).collect();
        all.iter_mut().for_each(|o| o.boot(std::slice::from_ref(&map)));
        World {
            rng,
            maps: vec![map],
            osds: all,
            alive: vec![true; osds as usize],
            nobody_starts: false,
            links: BTreeMap::new(),
            clients: Clients::default(),
            next_value: 0,
            created: false,
            taken_back: 0,
            disks_lost: 0,
        }
    }

    fn change_map(&mut self, f: impl FnOnce(&mut Map)) {
        let mut map = self.maps.last().unwrap().clone();
        map.epoch += 1;
        f(&mut map);
        self.maps.push(map);
    }

    fn any(&mut self) -> usize {
        self.rng.usize(..self.osds.len())
    }

    /// What the OSD said and asked since the last look.
    fn collect(&mut self, i: usize) {
        let id = self.osds[i].id;
        for (to, net) in std::mem::take(&mut self.osds[i].out) {
            if self.alive[to.0 as usize] {
                self.links.entry((id, to.0)).or_default().push_back(net);
            }
        }
        for ask in std::mem::take(&mut self.osds[i].asks) {
            match ask {
                Ask::UpThru(epoch) => self.change_map(|m| _ = m.up_thru.insert(id, epoch.0)),
                Ask::PgTemp(since, want) => {
                    let map = self.maps.last().unwrap();
                    let mine = map.mapping().acting_primary == Some(OsdId(id));
                    if mine && map.pg_temp != want && self.unchanged_since(since.0) {
                        self.change_map(|m| m.pg_temp = want);
                    }
                }
            }
        }
        for ack in std::mem::take(&mut self.osds[i].acked) {
            if !ack.goes_back() {
                self.check_is_safe(i, ack.object, ack.version);
            }
            self.clients.acknowledged(ack.object, ack.version);
        }
    }

    /// Whether the newest map says that it leads, and it knows.
    fn leads(&self, i: usize) -> bool {
        let primary = self.maps.last().unwrap().mapping().acting_primary;
        self.osds[i].map as usize == self.maps.len() && primary == Some(OsdId(i as i32))
    }

    /// What is acknowledged, and a clone that was made with it, is on enough disks. (Unless it was changed since, or the
    /// clone cannot be read: nobody waits for it.)
    fn check_is_safe(&self, i: usize, n: u32, version: Eversion) {
        let mem = self.osds[i].contents();
        let (head, map) = (object(n), self.maps.last().unwrap());
        if !self.leads(i) || mem.get(&head).is_none_or(|s| s.version != version) {
            return;
        }
        let acting = map.mapping().acting;
        let enough = (map.min_size.max(map.size.min(2)) as usize).min(acting.len());
        let all_read = self.osds[i].unreadable_one_in == 0;
        let with_it = |(o, s): &(&HObject, &State)| {
            o.head() == head
                && (all_read || o.is_head())
                && s.version.version + 1 >= version.version
        };
        for (o, state) in mem.iter().filter(with_it) {
            let disk = |osd: &OsdId| &self.osds[osd.0 as usize].disk.objects;
            let on = acting.iter().filter(|osd| disk(osd).get(o) == Some(state)).count();
            assert!(on >= enough, "o{n} {version} is acknowledged, and {o} is on {on} disks");
        }
    }

    /// A client sends a write again that was not answered.
    fn ask_again(&mut self, i: usize) {
        let n = self.rng.u32(..OBJECTS);
        let Some(version) = self.clients.unanswered(n, &mut self.rng) else { return };
        if self.osds[i].answers_again(n, version) {
            self.check_is_safe(i, n, version);
            self.clients.acknowledged(n, version);
            self.clients.acked_again += 1;
        }
    }

    /// A client looks at an object or at a snapshot of it, or sends its last write again.
    fn look(&mut self, i: usize) {
        let n = self.rng.u32(..OBJECTS);
        let snaps: Vec<_> = self.clients.snaps.live.iter().copied().collect();
        let snap = self.rng.choice(snaps).filter(|_| self.rng.bool()).unwrap_or(SnapId::HEAD);
        let Some(shown) = self.osds[i].shows(n, snap) else { return };
        let fresh = self.leads(i);
        self.clients.saw(n, snap, &shown, fresh);
    }

    /// What an OSD would take back, nobody has heard of. Mostly it does.
    fn take_back(&mut self, i: usize) {
        let Some(pg) = &self.osds[i].pg else { return };
        let all = pg.never_acknowledged();
        for lost in &all {
            let heard = self.clients.heard_of(number_of(lost));
            assert!(self.is_unheard(pg, lost), "{lost}: a client knows {heard}");
        }
        // As the log has them now: it is trimmed with each write.
        let clones = |lost| (pg.clones_made_after(&lost, Eversion::ZERO), number_of(&lost));
        let all: Vec<_> = all.into_iter().map(clones).collect();
        for (clones, n) in all {
            if self.rng.u8(..4) > 0
                && let Some(back) = self.osds[i].take_back(n, &clones)
            {
                self.clients.went_back(n, back.to, back.version);
                self.taken_back += 1;
            }
        }
    }

    /// Whether no client knows anything newer of an object than what it goes back to when it is given up.
    fn is_unheard(&self, pg: &pg::Pg, lost: &HObject) -> bool {
        let all = pg.peers().filter_map(|p| p.missing?.get(lost)).chain(pg.missing().get(lost));
        let since = all.map(|i| i.never_had_since).filter(|v| *v > Eversion::ZERO).min();
        let heard = self.clients.heard_of(number_of(lost));
        match pg.give_up_unfound(lost, true) {
            GiveUp::Revert { to, .. } => heard <= to,
            // Before that it was not there.
            GiveUp::Delete => heard < since.expect("it is known of somebody"),
        }
    }

    fn unchanged_since(&self, epoch: u32) -> bool {
        let now = self.maps.last().unwrap().mapping();
        self.maps[epoch as usize - 1..].iter().all(|m| m.mapping() == now)
    }

    fn step(&mut self, faults: bool) {
        let i = self.any();
        match self.rng.u32(..100) {
            0..30 => self.deliver(),
            30..50 if self.alive[i] => self.osds[i].make_durable(&self.maps),
            50..62 if self.alive[i] && (self.osds[i].map as usize) < self.maps.len() => {
                self.osds[i].next_map(&self.maps);
            }
            62..75 if self.alive[i] => self.osds[i].recover(),
            75..90 if faults && self.alive[i] => self.write(i),
            90 if faults => self.kill(i),
            91 if !self.alive[i] && !self.nobody_starts => self.revive(i),
            92 => self.mon_notices(),
            93 if faults && self.rng.u32(..6) == 0 => {
                let mut order = self.maps.last().unwrap().order.clone();
                self.rng.shuffle(&mut order);
                self.change_map(|m| {
                    m.order = order;
                    m.pg_temp.clear();
                });
            }
            93 if faults && self.rng.u32(..3) == 0 => self.fill(i),
            94 if faults && self.rng.u32(..3) == 0 => self.lose_disk(i),
            94 if self.alive[i] => self.osds[i].ask_again(&self.maps),
            95 if self.alive[i] => self.create_if_wanted(i),
            96 if self.alive[i] => self.trim(i),
            97..99 if self.alive[i] => self.look(i),
            99 if self.alive[i] => self.ask_again(i),
            _ => {}
        }
        self.collect(i);
        if self.alive[i] {
            self.take_back(i);
        }
    }

    /// Goes on without faults.
    #[track_caller]
    fn run_until(&mut self, holds: impl Fn(&World) -> bool) {
        for _ in 0..200_000 {
            if holds(self) {
                return;
            }
            self.step(false);
        }
        panic!("it never holds");
    }

    fn deliver(&mut self) {
        let busy: Vec<_> =
            self.links.iter().filter(|(_, q)| !q.is_empty()).map(|(k, _)| *k).collect();
        let Some((from, to)) = self.rng.choice(busy) else {
            return;
        };
        let net = self.links.get_mut(&(from, to)).unwrap().pop_front().unwrap();
        if self.alive[to as usize] {
            self.osds[to as usize].receive(&self.maps, OsdId(from), net);
            self.collect(to as usize);
        }
    }

    fn write(&mut self, i: usize) {
        if self.rng.u8(..12) == 0 {
            self.clients.change_snaps(&mut self.rng);
        }
        let n = self.rng.u32(..OBJECTS);
        let snaps = &self.clients.snaps;
        let wish = match self.rng.u32(..20) {
            0..3 => Wish::Delete,
            3..5 if !snaps.live.is_empty() => {
                Wish::RollBack(self.rng.choice(snaps.live.iter().copied()).unwrap())
            }
            _ => {
                self.next_value += 1;
                Wish::Put(self.next_value)
            }
        };
        if let Some((base, version)) = self.osds[i].client_write(n, &wish, snaps) {
            self.clients.wrote(n, &wish, base, version);
        }
    }

    fn trim(&mut self, i: usize) {
        if let Some((n, id, base, version)) = self.osds[i].trim(&self.clients.snaps) {
            self.clients.wrote(n, &Wish::Trim(id), base, version);
        }
    }

    fn kill(&mut self, i: usize) {
        if !self.alive[i] {
            return;
        }
        self.collect(i);
        let durable = self.rng.usize(..=self.osds[i].pending());
        self.osds[i].crash(durable);
        self.alive[i] = false;
        let id = i as i32;
        self.links.retain(|(a, b), _| *a != id && *b != id);
    }

    /// A disk has failed for good, and another takes its place, when those that serve without it have
    /// everything: the tools refuse it before.
    fn lose_disk(&mut self, i: usize) {
        let map = self.maps.last().unwrap();
        let mapping = map.mapping();
        let Some(primary) = mapping.acting_primary else { return };
        let primary = &self.osds[primary.0 as usize];
        let Some(pg) = primary.pg.as_ref().filter(|pg| pg.accepts_io()) else { return };
        let complete = |o: &OsdId| {
            let mut peers = pg.peers();
            let peer = peers.find(|p| p.osd == *o);
            o.0 == primary.id || peer.is_some_and(|p| p.missing.is_some_and(|m| m.is_empty()))
        };
        let whole = pg.missing().is_empty() && mapping.acting.iter().all(complete);
        let is_down = !self.alive[i] && !map.up.contains(&(i as i32));
        if is_down && primary.map as usize == self.maps.len() && whole {
            self.osds[i].disk = Disk::default();
            self.disks_lost += 1;
        }
    }

    /// Marked down first, then up again: the OSD boots with the map that says so.
    fn revive(&mut self, i: usize) {
        let id = i as i32;
        self.change_map(|m| _ = m.up.remove(&id));
        let epoch = self.maps.len() as u32 + 1;
        self.change_map(|m| {
            m.up.insert(id);
            m.up_from.insert(id, epoch);
        });
        self.alive[i] = true;
        self.osds[i].boot(&self.maps);
    }

    fn mon_notices(&mut self) {
        for i in 0..self.osds.len() {
            let id = i as i32;
            if !self.alive[i] && self.maps.last().unwrap().up.contains(&id) {
                self.change_map(|m| _ = m.up.remove(&id));
            }
        }
    }

    /// A disk has no space any more, or has some again.
    fn fill(&mut self, i: usize) {
        let id = i as i32;
        self.change_map(|m| {
            if !m.full.remove(&id) {
                m.full.insert(id);
            }
        });
    }

    fn create_if_wanted(&mut self, i: usize) {
        let primary = self.maps.last().unwrap().mapping().acting_primary;
        let current = self.osds[i].map as usize == self.maps.len();
        if !self.created && current && primary == Some(OsdId(i as i32)) {
            self.osds[i].create(&self.maps, 1);
        }
        self.created |= self.osds[i].notices.contains(&pg::Notice::Active);
    }

    fn is_settled(&self) -> bool {
        let current = self.osds.iter().all(|o| o.map as usize == self.maps.len());
        let quiet = self.osds.iter().all(|o| o.pending() == 0)
            && self.links.values().all(VecDeque::is_empty);
        let mapping = self.maps.last().unwrap().mapping();
        let primary = &self.osds[mapping.acting_primary.unwrap().0 as usize];
        current && quiet && primary.pg.as_ref().is_some_and(|p| p.state().has(pg::StateBits::CLEAN))
    }

    /// All that is left to do is what nobody has, nor has heard of: here nobody takes it back or gives it up.
    fn is_only_unfound(&self) -> bool {
        let primary = self.maps.last().unwrap().mapping().acting_primary.unwrap();
        let leader = &self.osds[primary.0 as usize];
        let Some(pg) = &leader.pg else { return false };
        let bits = [pg::StateBits::RECOVERY_UNFOUND, pg::StateBits::BACKFILL_UNFOUND];
        let heard = |o: &HObject| self.clients.heard_of(number_of(o));
        let unheard = |o: &HObject| heard(o) < pg.missing().get(o).unwrap().need;
        bits.iter().any(|bit| pg.state().has(*bit)) && pg.unfound().all(unheard)
    }

    fn heal(&mut self, seed: u64) -> bool {
        for i in 0..self.osds.len() {
            if !self.alive[i] {
                self.revive(i);
                self.collect(i);
            }
        }
        self.change_map(|m| m.full.clear());
        // Everything can be read again: who leads begins anew.
        self.osds.iter_mut().for_each(|o| o.unreadable_one_in = 0);
        if let Some(leads) = self.maps.last().and_then(|map| map.mapping().acting_primary) {
            let i = leads.0 as usize;
            self.kill(i);
            self.revive(i);
            self.collect(i);
        }
        for _ in 0..200_000 {
            self.step(false);
            if self.is_settled() {
                return true;
            }
        }
        if self.is_only_unfound() {
            return false;
        }
        for o in &self.osds {
            if let Some(pg) = &o.pg {
                eprintln!(
                    "osd.{} map {} {:?} {} {:?}",
                    o.id,
                    o.map,
                    pg.stage(),
                    pg.state(),
                    pg.info()
                );
                eprintln!("  missing {:?} mapping {:?}", pg.missing(), pg.mapping());
            }
        }
        panic!("seed {seed}: not clean after healing; maps {}", self.maps.len());
    }

    fn check(&self, seed: u64) {
        let mapping = self.maps.last().unwrap().mapping();
        let primary = &self.osds[mapping.acting_primary.unwrap().0 as usize];
        for osd in &mapping.acting {
            let copy = &self.osds[osd.0 as usize];
            assert_eq!(copy.contents(), primary.contents(), "seed {seed}: copies differ");
            assert_eq!(copy.disk.objects, *copy.contents(), "seed {seed}: disk and memory differ");
            let (a, b) = (copy.pg.as_ref().unwrap(), primary.pg.as_ref().unwrap());
            assert_eq!(a.last_update(), b.last_update(), "seed {seed}");
        }
        self.clients.check(seed, primary.contents());
    }
}

/// osd.0 leads, and misses some objects: it was away, or its disk has become full since. Clients do not wait for them
/// until there is space. Then it leads again.
#[test]
fn a_full_primary_leaves_the_lead_to_who_has_what_it_misses() {
    take_hits();
    for seed in 0..40 {
        let mut w = World::of(fastrand::Rng::with_seed(seed), 3, 3, 2);
        let leader = |w: &World| w.maps.last().unwrap().mapping().acting_primary.unwrap().0;
        w.run_until(|w| w.is_settled() && leader(w) == 0);
        w.nobody_starts = true;
        w.kill(0);
        w.mon_notices();
        w.run_until(|w| w.leads(1) && w.osds[1].pg.as_ref().is_some_and(|pg| pg.accepts_io()));
        for n in 0..4 {
            let (snaps, wish) = (Snaps::default(), Wish::Put(1 + u64::from(n)));
            let (base, version) = w.osds[1].client_write(n, &wish, &snaps).expect("it serves");
            w.clients.wrote(n, &wish, base, version);
        }
        w.run_until(|w| w.clients.acked == 4);
        if seed % 2 == 0 {
            w.fill(0);
            w.revive(0);
        } else {
            w.revive(0);
            let lacks = |pg: &pg::Pg| pg.accepts_io() && !pg.missing().is_empty();
            w.run_until(|w| {
                w.is_settled() || w.leads(0) && w.osds[0].pg.as_ref().is_some_and(lacks)
            });
            w.fill(0);
        }
        let has_all = |pg: &pg::Pg| pg.accepts_io() && pg.missing().is_empty();
        w.run_until(|w| {
            let i = leader(w) as usize;
            w.leads(i) && w.osds[i].pg.as_ref().is_some_and(has_all)
        });
        w.fill(0);
        w.run_until(|w| w.is_settled() && leader(w) == 0);
        w.check(seed);
    }
    assert!(hits_of(Probe::FullHandedOver) > 0);
}

/// What the histories came to.
#[derive(Default)]
struct Sums {
    acked: u64,
    maps: u64,
    taken_back: u64,
    disks_lost: u64,
    clones: u64,
    trims: u64,
    looked_at_clones: u64,
    acked_again: u64,
    unhealed: u64,
}

fn history(seed: u64, sums: &mut Sums) {
    let mut world = World::new(seed);
    let steps = world.rng.usize(500..6000);
    for _ in 0..steps {
        world.step(true);
    }
    if world.heal(seed) {
        world.check(seed);
    } else {
        sums.unhealed += 1;
    }
    sums.acked += world.clients.acked;
    sums.maps += world.maps.len() as u64;
    sums.taken_back += world.taken_back;
    sums.disks_lost += world.disks_lost;
    sums.clones += world.clients.clones;
    sums.trims += world.clients.trims;
    sums.acked_again += world.clients.acked_again;
    sums.looked_at_clones += world.clients.looked_at_clones;
}

#[test]
fn no_acknowledged_write_is_lost_and_all_copies_become_equal() {
    let seeds = std::env::var("PG_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1500u64);
    let first = std::env::var("PG_FIRST").ok().and_then(|s| s.parse().ok()).unwrap_or(0u64);
    let goes_on = std::env::var("PG_ALL").is_ok_and(|v| !v.is_empty());
    let (mut sums, mut failed) = (Sums::default(), 0);
    for seed in first..first + seeds {
        if is_traced() {
            eprintln!("seed {seed}");
        }
        let one = std::panic::AssertUnwindSafe(|| history(seed, &mut sums));
        if let Err(why) = std::panic::catch_unwind(one) {
            eprintln!("seed {seed} failed");
            failed += 1;
            if !goes_on {
                std::panic::resume_unwind(why);
            }
        }
    }
    assert_eq!(failed, 0, "histories that failed");
    let Sums {
        acked,
        maps,
        taken_back,
        disks_lost,
        clones,
        trims,
        looked_at_clones,
        acked_again,
        unhealed,
    } = sums;
    assert!(acked > seeds * 5, "the histories must contain writes: {acked}");
    assert!(taken_back > 0, "some must be taken back");
    assert!(clones > seeds && trims > 0 && looked_at_clones > 0, "there must be clones: {clones}");
    // Somebody lost what was not on its disk yet, and all others had left it out.
    assert!(unhealed * 100 <= seeds, "{unhealed} of {seeds} have unfound objects in the end");
    eprintln!(
        "{seeds} histories, {acked} acknowledged writes, {acked_again} when asked again, {maps} maps, {taken_back} taken back, \
         {disks_lost} disks lost, {clones} clones, {trims} trims, {looked_at_clones} looks at \
         clones, {unhealed} with unfound objects"
    );
}
