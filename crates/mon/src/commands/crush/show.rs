//! Looking at the CRUSH map.

use super::Call;
use crate::cluster::Cluster;
use crate::commands::{CommandDef, Reply, old, read};
use crate::show::crush::{choose_args_json, json, rule_json, rules_json, tunables_json};
use crate::show::tree;
use admin::{Answer, CommandError};
use serde_json::{Value, json};

pub(super) const COMMANDS: &[CommandDef] = &[
    read("osd crush dump", "osd", "shows all of the CRUSH map", dump),
    read(
        "osd crush tree [shadow:Choices,--show-shadow]",
        "osd",
        "shows the hierarchy, also the shadow trees of device classes",
        crush_tree,
    ),
    read("osd crush ls <node:String,good=crush>", "osd", "lists what a bucket contains", ls),
    read("osd crush rule ls", "osd", "lists rules", rule_ls),
    old(read("osd crush rule list", "osd", "lists rules", rule_ls)),
    read(
        "osd crush rule ls-by-class <class:String,good=crush>",
        "osd",
        "lists the rules that use a device class",
        rule_ls_by_class,
    ),
    read(
        "osd crush rule dump [name:String,good=crush]",
        "osd",
        "shows one or all rules",
        rule_dump,
    ),
    read("osd crush show-tunables", "osd", "shows how CRUSH chooses", show_tunables),
    read(
        "osd crush get-tunable <tunable:Choices,straw_calc_version>",
        "osd",
        "shows one tunable",
        get_tunable,
    ),
    read("osd crush class ls", "osd", "lists device classes", class_ls),
    read(
        "osd crush class ls-osd <class:String,good=class>",
        "osd",
        "lists the OSDs of a device class",
        class_ls_osd,
    ),
    read(
        "osd crush get-device-class <ids:String>...",
        "osd",
        "shows the device class of OSDs",
        get_device_class,
    ),
    read("osd crush weight-set ls", "osd", "lists weight-sets", weight_set_ls),
    read("osd crush weight-set dump", "osd", "shows weight-sets", weight_set_dump),
];

fn dump(c: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(json(c.map().crush())))
}

fn crush_tree(c: &Cluster, call: &Call) -> Reply {
    let shadows = call.args.has("shadow");
    let crush = c.map().crush();
    Ok(Answer::either(
        call.format(),
        || tree::crush_json(crush, &c.pool_names(), shadows),
        || tree::crush_text(crush, &c.pool_names(), shadows),
    ))
}

/// Words, one a line.
fn words(call: &Call, words: &[impl AsRef<str>]) -> Answer {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    Answer::either(
        call.format(),
        || words.clone().into(),
        || words.iter().map(|w| format!("{w}\n")).collect(),
    )
}

fn ls(c: &Cluster, call: &Call) -> Reply {
    let name = call.args.text("node");
    let crush = c.map().crush();
    let id = crush
        .item_id(&name)
        .ok_or_else(|| CommandError::not_found(format_args!("node '{name}' does not exist")))?;
    let names: Vec<String> = match crush.bucket(id) {
        None => vec![name.into_owned()],
        Some(bucket) => {
            let items = bucket.items().iter();
            items.filter_map(|&i| crush.item_name(i)).map(str::to_owned).collect()
        }
    };
    Ok(words(call, &names))
}

fn rule_ls(c: &Cluster, call: &Call) -> Reply {
    let crush = c.map().crush();
    let names: Vec<&str> = crush.rules().filter_map(|(id, _)| crush.rule_name(id)).collect();
    Ok(words(call, &names))
}

fn rule_ls_by_class(c: &Cluster, call: &Call) -> Reply {
    let name = call.args.text("class");
    let crush = c.map().crush();
    let class = crush.class_id(&name).ok_or_else(|| {
        CommandError::not_found(format_args!("failed to get rules by class '{name}'"))
    })?;
    let rules = crush.rules_by_class(class);
    let names: Vec<&str> = rules.into_iter().filter_map(|id| crush.rule_name(id)).collect();
    Ok(words(call, &names))
}

fn rule_dump(c: &Cluster, call: &Call) -> Reply {
    let crush = c.map().crush();
    let Some(name) = call.args.str("name").filter(|n| !n.is_empty()) else {
        return Ok(Answer::json(rules_json(crush)));
    };
    let found = crush.rule_id(&name).and_then(|id| Some((id, crush.rule(id)?)));
    let (id, rule) = found
        .ok_or_else(|| CommandError::not_found(format_args!("unknown crush rule '{name}'")))?;
    Ok(Answer::json(rule_json(crush, id, rule)))
}

fn show_tunables(c: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(tunables_json(c.map().crush())))
}

fn get_tunable(c: &Cluster, call: &Call) -> Reply {
    let value = c.map().crush().tunables.straw_calc_version;
    Ok(Answer::either(
        call.format(),
        || json!({ "straw_calc_version": value }),
        || format!("{value}\n"),
    ))
}

fn class_ls(c: &Cluster, _: &Call) -> Reply {
    let names: Vec<&str> = c.map().crush().class_names().map(|(_, name)| name).collect();
    Ok(Answer::json(names.into()))
}

fn class_ls_osd(c: &Cluster, call: &Call) -> Reply {
    let crush = c.map().crush();
    let class = crush.class_id(&call.args.text("class"));
    let devices: Vec<i32> =
        class.map(|class| crush.devices_of_class(class).collect()).unwrap_or_default();
    Ok(Answer::either(
        call.format(),
        || devices.clone().into(),
        || devices.iter().map(|id| format!("{id}\n")).collect(),
    ))
}

fn get_device_class(c: &Cluster, call: &Call) -> Reply {
    let (map, crush) = (c.map(), c.map().crush());
    let names = call.args.list("ids");
    let mut found = Vec::new();
    for word in &names {
        if matches!(&**word, "any" | "all" | "*") {
            found = map.existing_osds().collect();
            break;
        }
        let id = super::super::osd::osd_id(word).map_err(|why| {
            CommandError::invalid(format_args!("{why}, unable to parse osd id:\"{word}\". "))
        })?;
        if !map.exists(id) {
            return Err(CommandError::not_found(format_args!("osd.{id} does not exist")));
        }
        found.push(id);
    }
    let class = |id: i32| crush.item_class(id).unwrap_or_default();
    Ok(Answer::either(
        call.format(),
        || {
            let all = found.iter().map(|id| json!({"osd": id.0, "device_class": class(id.0)}));
            Value::Array(all.collect())
        },
        || match found.as_slice() {
            [one] => format!("{}\n", class(one.0)),
            all => all.iter().map(|id| format!("osd.{id} {}\n", class(id.0))).collect(),
        },
    ))
}

fn weight_set_ls(c: &Cluster, call: &Call) -> Reply {
    let map = c.map();
    let names: Vec<String> = map
        .crush()
        .choose_args()
        .map(|(id, _)| match id {
            crush::COMPAT_CHOOSE_ARGS => "(compat)".to_owned(),
            id => map.pool_name(types::PoolId(id)).map_or_else(|| id.to_string(), str::to_owned),
        })
        .collect();
    Ok(words(call, &names))
}

fn weight_set_dump(c: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(choose_args_json(c.map().crush())))
}
