//! What a map asks of those who use it: shown by `osd crush show-tunables`, and what decides the
//! oldest client that can be served (`CrushWrapper::has_*`).

use crate::bucket::Algorithm;
use crate::map::{COMPAT_CHOOSE_ARGS, ChooseArg, CrushMap, Op, Rule, Tunables};

impl Tunables {
    /// Whether the tries are not those of the oldest clients.
    pub fn has_nondefault_tries(&self) -> bool {
        let legacy = Tunables::LEGACY;
        self.choose_local_tries != legacy.choose_local_tries
            || self.choose_local_fallback_tries != legacy.choose_local_fallback_tries
            || self.choose_total_tries != legacy.choose_total_tries
    }
}

impl Rule {
    fn has_op(&self, ops: &[Op]) -> bool {
        self.steps.iter().any(|step| ops.contains(&step.op))
    }
}

impl CrushMap {
    fn any_rule_has(&self, ops: &[Op]) -> bool {
        self.rules().any(|(_, rule)| rule.has_op(ops))
    }

    /// Whether a rule uses indep or sets tries (`has_v2_rules`, Firefly).
    pub fn has_v2_rules(&self) -> bool {
        self.any_rule_has(&[
            Op::CHOOSE_INDEP,
            Op::CHOOSELEAF_INDEP,
            Op::SET_CHOOSE_TRIES,
            Op::SET_CHOOSELEAF_TRIES,
        ])
    }

    /// Whether a rule sets `chooseleaf_vary_r` (`has_v3_rules`, Firefly).
    pub fn has_v3_rules(&self) -> bool {
        self.any_rule_has(&[Op::SET_CHOOSELEAF_VARY_R])
    }

    /// Whether a bucket is straw2 (`has_v4_buckets`, Hammer).
    pub fn has_v4_buckets(&self) -> bool {
        self.buckets().any(|b| b.algorithm() == Algorithm::Straw2)
    }

    /// Whether a rule sets `chooseleaf_stable` (`has_v5_rules`, Jewel).
    pub fn has_v5_rules(&self) -> bool {
        self.any_rule_has(&[Op::SET_CHOOSELEAF_STABLE])
    }

    /// Whether there are weight-sets that clients before Luminous cannot be given as plain
    /// weights (`has_incompat_choose_args`).
    pub fn has_incompat_choose_args(&self) -> bool {
        let plain = |arg: &ChooseArg| arg.weight_sets.len() == 1 && arg.ids.is_empty();
        let compat = |id, args: &crate::ChooseArgs| {
            id == COMPAT_CHOOSE_ARGS && args.iter().all(|(_, arg)| plain(arg))
        };
        self.choose_args.len() > 1 || !self.choose_args().all(|(id, args)| compat(id, args))
    }

    /// The oldest release that understands the map (`get_min_required_version`).
    pub fn min_required_version(&self) -> &'static str {
        let t = &self.tunables;
        if self.has_v5_rules() || t.chooseleaf_stable != 0 {
            "jewel"
        } else if self.has_v4_buckets() {
            "hammer"
        } else if t.chooseleaf_vary_r != 0 {
            "firefly"
        } else if t.chooseleaf_descend_once != 0 || t.has_nondefault_tries() {
            "bobtail"
        } else {
            "argonaut"
        }
    }
}
