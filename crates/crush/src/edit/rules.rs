//! Creating and removing rules.

use super::Result;
use crate::error::CrushError;
use crate::map::{CrushMap, ItemId, MAX_RULES, Op, Rule, Step};

/// How a rule treats a place that cannot be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleMode {
    /// The places after it move up: for replicas.
    Firstn,
    /// It stays empty: for shards, which are different from each other.
    Indep,
}

impl RuleMode {
    /// The mode of this name in commands.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "firstn" => Some(RuleMode::Firstn),
            "indep" => Some(RuleMode::Indep),
            _ => None,
        }
    }
}

impl CrushMap {
    /// Adds the rule that takes a root and chooses devices in different buckets of a type
    /// (`add_simple_rule`; `osd crush rule create-replicated`, `create-simple`, and for
    /// erasure-code profiles).
    ///
    /// `failure_domain` is a type's name; empty or that of devices chooses devices directly. With
    /// a class only its devices are used. `kind` is [`crate::RULE_REPLICATED`] or
    /// [`crate::RULE_ERASURE`].
    ///
    /// # Errors
    /// When the name is taken, or there is no such root, type, class, or device of the class.
    pub fn add_simple_rule(
        &mut self,
        name: &str,
        root: &str,
        failure_domain: &str,
        class: Option<&str>,
        mode: RuleMode,
        kind: u8,
    ) -> Result<u32> {
        if self.rule_id(name).is_some() {
            return Err(CrushError::RuleExists(name.to_owned()));
        }
        let number = self.free_rule().ok_or(CrushError::RulesFull)?;
        let no_root = || CrushError::NoSuchRoot(root.to_owned());
        let mut start = self.item_id(root).ok_or_else(no_root)?;
        let kind_of_domain = match failure_domain {
            "" => 0,
            domain => {
                let unknown = || CrushError::NoSuchType(domain.to_owned());
                self.type_id(domain).ok_or_else(unknown)?
            }
        };
        if let Some(class) = class.filter(|class| !class.is_empty()) {
            let no_class = || CrushError::NoSuchClass(class.to_owned());
            let id = self.class_id(class).ok_or_else(no_class)?;
            let none =
                || CrushError::NoDevicesOfClass { root: root.to_owned(), class: class.to_owned() };
            start = self.shadow_of(start, id).ok_or_else(none)?;
        }
        let rule = simple_rule(number, start, kind_of_domain, mode, kind);
        self.place_rule(u32::from(number), rule)?;
        self.set_rule_name(u32::from(number), name);
        Ok(u32::from(number))
    }

    /// The lowest number that no rule has, neither as its slot nor as its ruleset.
    fn free_rule(&self) -> Option<u8> {
        let used = |n: u8| self.rules().any(|(i, r)| i == u32::from(n) || r.ruleset == n);
        (0..=u8::MAX).find(|&n| !used(n))
    }

    /// Puts a rule into an empty slot (`crush_add_rule`).
    pub(crate) fn place_rule(&mut self, number: u32, rule: Rule) -> Result<()> {
        let slot = number as usize;
        if slot >= MAX_RULES {
            return Err(CrushError::RulesFull);
        }
        if self.rules.len() <= slot {
            self.rules.resize(slot + 1, None);
        }
        let place = &mut self.rules[slot];
        if place.is_some() {
            return Err(CrushError::RuleNumberExists(number));
        }
        *place = Some(rule);
        Ok(())
    }

    pub(crate) fn set_rule_name(&mut self, rule: u32, name: &str) {
        self.rule_names.insert(rule as i32, name.to_owned());
    }

    /// Sets the largest pool size a rule is for; erasure-code profiles set it to k + m
    /// (`set_rule_mask_max_size`).
    ///
    /// # Errors
    /// When there is no such rule.
    pub fn set_rule_max_size(&mut self, rule: u32, size: u8) -> Result<()> {
        let slot = self.rules.get_mut(rule as usize).and_then(Option::as_mut);
        slot.ok_or(CrushError::NoSuchRule(rule))?.max_size = size;
        Ok(())
    }

    /// Removes a rule (`osd crush rule rm`). That no pool uses it, the caller has checked.
    ///
    /// # Errors
    /// When there is no such rule.
    pub fn remove_rule(&mut self, rule: u32) -> Result<()> {
        if self.rule(rule).is_none() {
            return Err(CrushError::NoSuchRule(rule));
        }
        self.all_or_nothing(|map| {
            if let Some(slot) = map.rules.get_mut(rule as usize) {
                *slot = None;
            }
            map.rule_names.remove(&(rule as i32));
            map.rebuild_shadows()
        })
    }

    /// Renames a rule (`osd crush rule rename`).
    ///
    /// # Errors
    /// When there is no such rule, or the new name is taken.
    pub fn rename_rule(&mut self, src: &str, dst: &str) -> Result<()> {
        let missing = || CrushError::RuleRenameMissing(src.to_owned());
        let rule = self.rule_id(src).ok_or_else(missing)?;
        if self.rule_id(dst).is_some() {
            return Err(CrushError::RuleRenameTaken(dst.to_owned()));
        }
        self.set_rule_name(rule, dst);
        Ok(())
    }
}

fn simple_rule(number: u8, start: ItemId, domain: i32, mode: RuleMode, kind: u8) -> Rule {
    let choose = match (mode, domain) {
        (RuleMode::Firstn, 0) => Op::CHOOSE_FIRSTN,
        (RuleMode::Firstn, _) => Op::CHOOSELEAF_FIRSTN,
        (RuleMode::Indep, 0) => Op::CHOOSE_INDEP,
        (RuleMode::Indep, _) => Op::CHOOSELEAF_INDEP,
    };
    let mut steps = vec![
        Step::new(Op::TAKE, start, 0),
        Step::new(choose, 0, domain),
        Step::new(Op::EMIT, 0, 0),
    ];
    let (min_size, max_size) = match mode {
        RuleMode::Firstn => (1, 10),
        RuleMode::Indep => {
            let tries = [
                Step::new(Op::SET_CHOOSELEAF_TRIES, 5, 0),
                Step::new(Op::SET_CHOOSE_TRIES, 100, 0),
            ];
            steps.splice(0..0, tries);
            (3, 20)
        }
    };
    Rule { ruleset: number, kind, min_size, max_size, steps }
}
