//! Lengths of straws for straw (v1) buckets (`crush_calc_straw`).
//!
//! Only old maps have such buckets, but a changed weight in one must give the lengths Ceph gives.

use crate::map::WEIGHT_ONE;

/// The length of each item's straw. `version` is the tunable `straw_calc_version`: 0 is the
/// original calculation, which is wrong for equal and zero weights; 1 is the corrected one.
pub(crate) fn straw_lengths(weights: &[u32], version: u8) -> Vec<u32> {
    let mut lengths = vec![0; weights.len()];
    // Lightest first; equal ones stay in order.
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&i| weights[i]);

    let (mut straw, mut below, mut last) = (1.0f64, 0.0f64, 0.0f64);
    let mut left = weights.len() as i32;
    let mut rest = order.as_slice();
    while let [current, after @ ..] = rest {
        rest = after;
        let weight = weights[*current];
        if weight == 0 {
            left -= i32::from(version > 0);
            continue;
        }
        lengths[*current] = (straw * f64::from(WEIGHT_ONE)) as u32;
        let Some(&next) = after.first() else { break };
        let next = weights[next];
        if version == 0 && next == weight {
            continue;
        }
        below += (f64::from(weight) - last) * f64::from(left);
        left -= match version {
            0 => after.iter().take_while(|&&i| weights[i] == next).count() as i32,
            _ => 1,
        };
        // The product is taken in 32 bits, as Ceph does.
        let step = f64::from((left as u32).wrapping_mul(next.wrapping_sub(weight)));
        let share = below / (below + step);
        straw *= (1.0 / share).powf(1.0 / f64::from(left));
        last = f64::from(weight);
    }
    lengths
}
