//! What operators do: to maps, and to the pool.

use super::Faults;
use crate::plan::Kind;
use crate::rig::Rig;
use std::time::Duration;

/// PGs at most.
const MAX_PGS: u32 = 24;

impl Faults {
    /// Many changes of the map within a short time.
    pub(super) fn map_storm(&mut self, rig: &mut Rig) {
        // Now and then more maps than anybody keeps up with.
        let (changes, longest_us) = if self.rng.u8(0..8) == 0 {
            (self.rng.u32(30..150), 2000)
        } else {
            (self.rng.u32(1..8), 20_000)
        };
        for _ in 0..changes {
            let (osd, _) = self.osd(rig);
            let pg = self.rng.u32(0..self.plan.pg_num);
            let weight = [0.0, 0.3, 1.0, 1.0][self.rng.usize(0..4)];
            let other = self.rng.usize(0..rig.osds.len());
            let command = match self.rng.u32(0..8) {
                0 => format!(r#"{{"prefix":"osd out","ids":["{osd}"]}}"#),
                1 | 2 => format!(r#"{{"prefix":"osd in","ids":["{osd}"]}}"#),
                3 => format!(r#"{{"prefix":"osd reweight","id":{osd},"weight":{weight:.1}}}"#),
                4 => affinity(osd, weight),
                5 => format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#),
                6 => format!(
                    r#"{{"prefix":"osd pg-upmap-items","pgid":"1.{pg:x}","id":[{osd},{other}]}}"#
                ),
                _ => {
                    format!(r#"{{"prefix":"osd pg-temp","pgid":"1.{pg:x}","id":[{osd},{other}]}}"#)
                }
            };
            self.say(rig, format_args!("{command}"));
            rig.command(command);
            rig.world.count("map change", 1);
            if self.rng.bool() {
                let pause = Duration::from_micros(self.rng.u64(0..longest_us));
                rig.pass(pause);
            }
        }
    }

    /// More PGs, or fewer; often again while that is under way.
    pub(super) fn change_pg_num(&mut self, rig: &mut Rig) {
        let pg_num = self.rng.u32(1..=MAX_PGS);
        rig.command(pool_set("pg_num", pg_num));
        if self.rng.bool() {
            rig.command(pool_set("pgp_num", self.rng.u32(1..=pg_num)));
        }
        rig.world.count("pg_num changed", 1);
    }

    /// The last number of PGs: a few less than there are.
    pub fn settle_pg_num(&mut self, rig: &mut Rig) {
        if !self.plan.has(Kind::PgNums) {
            return;
        }
        let pool =
            rig.ask(r#"{"prefix":"osd pool get","pool":"p","var":"pg_num","format":"json"}"#);
        let now = pool["pg_num"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
        let pg_num = now.saturating_sub(self.rng.u32(0..3)).max(1);
        rig.ask(&pool_set("pg_num", pg_num));
        rig.ask(&pool_set("pgp_num", pg_num));
        self.plan.pg_num = pg_num;
    }
}

/// The command that says how readily an OSD leads.
pub fn affinity(osd: usize, weight: f64) -> String {
    format!(r#"{{"prefix":"osd primary-affinity","id":{osd},"weight":{weight:.1}}}"#)
}

/// The command that sets a variable of the pool.
pub fn pool_set(var: &str, val: u32) -> String {
    format!(
        r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}","yes_i_really_mean_it":true}}"#
    )
}
