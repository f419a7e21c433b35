//! From map to text (`CrushCompiler::decompile`): the same bytes as `crushtool -d` prints.

use crate::bucket::{Algorithm, Bucket};
use crate::location::is_valid_name;
use crate::map::{
    ChooseArg, CrushMap, ItemId, Op, RULE_ERASURE, RULE_REPLICATED, Rule, Step, Tunables,
    WEIGHT_ONE,
};
use std::collections::BTreeSet;
use std::fmt::{self, Write};

/// The text form of a map.
pub fn decompile(map: &CrushMap) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_map(map, &mut out);
    out
}

fn write_map(map: &CrushMap, out: &mut String) -> fmt::Result {
    out.push_str("# begin crush map\n");
    write_tunables(&map.tunables, out)?;

    out.push_str("\n# devices\n");
    let devices = map.item_names.range(0..map.max_devices.max(0));
    for (&id, name) in devices {
        writeln!(out, "device {id} {name}{}", Class(map.item_class(id)))?;
    }

    out.push_str("\n# types\n");
    if !map.type_names.is_empty() && map.type_name(0).is_none() {
        out.push_str("type 0 osd\n");
    }
    for (kind, name) in map.type_names().filter(|&(kind, _)| kind >= 0) {
        writeln!(out, "type {kind} {name}")?;
    }

    out.push_str("\n# buckets\n");
    let mut written = BTreeSet::new();
    for bucket in map.buckets() {
        write_bucket_after_its_items(map, bucket, &mut written, out)?;
    }

    out.push_str("\n# rules\n");
    for (number, rule) in map.rules() {
        write_rule(map, number, rule, out)?;
    }
    if !map.choose_args.is_empty() {
        out.push_str("\n# choose_args\n");
        for (id, args) in map.choose_args() {
            // Printed as unsigned; it is read back as what it was.
            writeln!(out, "choose_args {} {{", id as u64)?;
            for (bucket, arg) in args.iter() {
                write_choose_arg(bucket, arg, out)?;
            }
            out.push_str("}\n");
        }
    }
    out.push_str("\n# end crush map\n");
    Ok(())
}

/// Those that are not as in the oldest maps.
fn write_tunables(t: &Tunables, out: &mut String) -> fmt::Result {
    let pairs = |t: &Tunables| {
        // Ceph prints them as signed numbers, but for the last.
        let signed = |n: u32| i64::from(n as i32);
        [
            ("choose_local_tries", signed(t.choose_local_tries)),
            ("choose_local_fallback_tries", signed(t.choose_local_fallback_tries)),
            ("choose_total_tries", signed(t.choose_total_tries)),
            ("chooseleaf_descend_once", signed(t.chooseleaf_descend_once)),
            ("chooseleaf_vary_r", i64::from(t.chooseleaf_vary_r)),
            ("chooseleaf_stable", i64::from(t.chooseleaf_stable)),
            ("straw_calc_version", i64::from(t.straw_calc_version)),
            ("allowed_bucket_algs", i64::from(t.allowed_bucket_algs)),
        ]
    };
    for ((name, value), (_, legacy)) in pairs(t).into_iter().zip(pairs(&Tunables::LEGACY)) {
        if value != legacy {
            writeln!(out, "tunable {name} {value}")?;
        }
    }
    Ok(())
}

/// Depth first, so that every bucket stands after those it contains; each once. Recursion is as
/// deep as the hierarchy, which is bounded.
fn write_bucket_after_its_items(
    map: &CrushMap,
    bucket: &Bucket,
    written: &mut BTreeSet<ItemId>,
    out: &mut String,
) -> fmt::Result {
    if !written.insert(bucket.id) {
        return Ok(());
    }
    for inner in bucket.items.iter().filter_map(|&item| map.bucket(item)) {
        write_bucket_after_its_items(map, inner, written, out)?;
    }
    match map.item_name(bucket.id) {
        // Shadows are made anew when the text is compiled.
        Some(name) if !is_valid_name(name) => Ok(()),
        _ => write_bucket(map, bucket, out),
    }
}

fn write_bucket(map: &CrushMap, b: &Bucket, out: &mut String) -> fmt::Result {
    const KEEP: &str = "\t\t# do not change unnecessarily";
    let (kind, name) = (Type(map, i32::from(b.kind)), Item(map, b.id));
    writeln!(out, "{kind} {name} {{")?;
    writeln!(out, "\tid {}{KEEP}", b.id)?;
    for (&class, shadow) in map.class_buckets.get(&b.id).into_iter().flatten() {
        let class = map.class_name(class).unwrap_or_default();
        writeln!(out, "\tid {shadow} class {class}{KEEP}")?;
    }
    writeln!(out, "\t# weight {}", Fixed(b.weight))?;
    let alg = b.algorithm();
    write!(out, "\talg {}", alg.name())?;
    match alg {
        Algorithm::Uniform => {
            let size = b.items.len();
            write!(out, "\t# do not change bucket size ({size}) unnecessarily")?;
        }
        Algorithm::List => {
            out.push_str("\t# add new items at the end; do not change order unnecessarily");
        }
        Algorithm::Tree => {
            out.push_str("\t# do not change pos for existing items unnecessarily");
        }
        Algorithm::Straw | Algorithm::Straw2 => {}
    }
    let hash = if b.hash == 0 { "rjenkins1" } else { "unknown" };
    writeln!(out, "\n\thash {}\t# {hash}", b.hash)?;
    for (pos, (item, weight)) in b.entries().enumerate() {
        write!(out, "\titem {} weight {}", Item(map, item), Fixed(weight))?;
        if matches!(alg, Algorithm::Uniform | Algorithm::Tree) {
            write!(out, " pos {pos}")?;
        }
        out.push('\n');
    }
    out.push_str("}\n");
    Ok(())
}

fn write_rule(map: &CrushMap, number: u32, rule: &Rule, out: &mut String) -> fmt::Result {
    let name = map.rule_name(number).unwrap_or_default();
    writeln!(out, "rule {name} {{\n\tid {number}")?;
    if u32::from(rule.ruleset) != number {
        writeln!(
            out,
            "\t# WARNING: ruleset {} != id {number}; this will not recompile to the same map",
            rule.ruleset
        )?;
    }
    match rule.kind {
        RULE_REPLICATED => out.push_str("\ttype replicated\n"),
        RULE_ERASURE => out.push_str("\ttype erasure\n"),
        other => writeln!(out, "\ttype {other}")?,
    }
    writeln!(out, "\tmin_size {}", rule.min_size)?;
    writeln!(out, "\tmax_size {}", rule.max_size)?;
    for step in &rule.steps {
        write_step(map, step, out)?;
    }
    out.push_str("}\n");
    Ok(())
}

fn write_step(map: &CrushMap, step: &Step, out: &mut String) -> fmt::Result {
    let (n, kind) = (step.arg1, Type(map, step.arg2));
    match step.op {
        Op::NOOP => writeln!(out, "\tstep noop"),
        Op::TAKE => {
            let (item, class) = map.split_shadow(n).unwrap_or((n, None));
            let class = class.and_then(|class| map.class_name(class));
            writeln!(out, "\tstep take {}{}", Item(map, item), Class(class))
        }
        Op::EMIT => writeln!(out, "\tstep emit"),
        Op::SET_CHOOSE_TRIES => writeln!(out, "\tstep set_choose_tries {n}"),
        Op::SET_CHOOSE_LOCAL_TRIES => writeln!(out, "\tstep set_choose_local_tries {n}"),
        Op::SET_CHOOSE_LOCAL_FALLBACK_TRIES => {
            writeln!(out, "\tstep set_choose_local_fallback_tries {n}")
        }
        Op::SET_CHOOSELEAF_TRIES => writeln!(out, "\tstep set_chooseleaf_tries {n}"),
        Op::SET_CHOOSELEAF_VARY_R => writeln!(out, "\tstep set_chooseleaf_vary_r {n}"),
        Op::SET_CHOOSELEAF_STABLE => writeln!(out, "\tstep set_chooseleaf_stable {n}"),
        Op::CHOOSE_FIRSTN => writeln!(out, "\tstep choose firstn {n} type {kind}"),
        Op::CHOOSE_INDEP => writeln!(out, "\tstep choose indep {n} type {kind}"),
        Op::CHOOSELEAF_FIRSTN => writeln!(out, "\tstep chooseleaf firstn {n} type {kind}"),
        Op::CHOOSELEAF_INDEP => writeln!(out, "\tstep chooseleaf indep {n} type {kind}"),
        _ => Ok(()),
    }
}

fn write_choose_arg(bucket: ItemId, arg: &ChooseArg, out: &mut String) -> fmt::Result {
    writeln!(out, "  {{\n    bucket_id {bucket}")?;
    if !arg.weight_sets.is_empty() {
        out.push_str("    weight_set [\n");
        for set in &arg.weight_sets {
            out.push_str("      [ ");
            for &weight in set {
                write!(out, "{} ", Fixed(weight))?;
            }
            out.push_str("]\n");
        }
        out.push_str("    ]\n");
    }
    if !arg.ids.is_empty() {
        out.push_str("    ids [ ");
        for id in &arg.ids {
            write!(out, "{id} ")?;
        }
        out.push_str("]\n");
    }
    out.push_str("  }\n");
    Ok(())
}

/// A weight with three digits after the point.
struct Fixed(u32);

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Ceph takes it as signed, and divides in single precision.
        let value = self.0 as i32 as f32 / WEIGHT_ONE as f32;
        write!(f, "{:.3}", f64::from(value))
    }
}

/// An item's name, or one made of its id.
struct Item<'a>(&'a CrushMap, ItemId);

impl fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.item_name(self.1), self.1) {
            (Some(name), _) => f.write_str(name),
            (None, id) if id >= 0 => write!(f, "device{id}"),
            (None, id) => write!(f, "bucket{}", !id),
        }
    }
}

/// A type's name, or one made of its number.
struct Type<'a>(&'a CrushMap, i32);

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.type_name(self.1), self.1) {
            (Some(name), _) => f.write_str(name),
            (None, 0) => f.write_str("device"),
            (None, kind) => write!(f, "type{kind}"),
        }
    }
}

/// ` class hdd`, or nothing.
struct Class<'a>(Option<&'a str>);

impl fmt::Display for Class<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, " class {name}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Fixed;

    #[test]
    fn halves_are_rounded_to_even_as_printf_does() {
        assert_eq!(Fixed(0x1000).to_string(), "0.062");
        assert_eq!(Fixed(0x3000).to_string(), "0.188");
        assert_eq!(Fixed(0x6666).to_string(), "0.400");
        assert_eq!(Fixed(u32::MAX).to_string(), "-0.000");
    }
}
