//! `balancer`: equal shares for OSDs, see `crate::balancer`.

use super::{Call, CommandDef, Reply, read, write};
use crate::balancer::{Changes, MAX_PLANS, NOTHING_BETTER, Plan, score, with};
use crate::cluster::Cluster;
use admin::{Answer, CommandError};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use types::{Errno, PoolId};

pub(super) const COMMANDS: &[CommandDef] = &[
    read("balancer status", "mgr", "shows what the balancer does", status),
    write("balancer on", "mgr", "lets the balancer move PGs by itself", on),
    write("balancer off", "mgr", "keeps the balancer from moving PGs by itself", off),
    write(
        "balancer mode <mode:Choices,none|crush-compat|upmap>",
        "mgr",
        "says how the balancer moves PGs",
        mode,
    ),
    read("balancer pool ls", "mgr", "lists the pools that are balanced; none: all", pool_ls),
    write("balancer pool add <pools:String>...", "mgr", "balances only chosen pools", pool_add),
    write("balancer pool rm <pools:String>...", "mgr", "balances pools no longer", pool_rm),
    read(
        "balancer eval [option:String]",
        "mgr",
        "says how evenly data lie, of all, of a pool, or with a plan",
        eval,
    ),
    write(
        "balancer optimize <plan:String> [pools:String]...",
        "mgr",
        "works out which PGs could be moved",
        optimize,
    ),
    read("balancer ls", "mgr", "lists plans", ls),
    read("balancer show <plan:String>", "mgr", "shows a plan as commands", show),
    read("balancer dump <plan:String>", "mgr", "shows a plan", dump),
    write("balancer execute <plan:String>", "mgr", "carries a plan out", execute),
    write("balancer rm <plan:String>", "mgr", "forgets a plan", rm),
    write("balancer reset", "mgr", "forgets all plans", reset),
];

fn status(c: &Cluster, _: &Call) -> Reply {
    let (started, result) = c.balancer.last.clone().unzip();
    Ok(Answer::json(json!({
        "active": c.settings.bool("mgr/balancer/active"),
        // The mon's clock stands still while it works.
        "last_optimize_duration": "",
        "last_optimize_started": started.map(|t| t.wall.to_string()).unwrap_or_default(),
        "mode": c.settings.str("mgr/balancer/mode"),
        "no_optimization_needed": result.as_deref() == Some(NOTHING_BETTER),
        "optimize_result": result.unwrap_or_default(),
        "plans": names(c),
    })))
}

fn names(c: &Cluster) -> Vec<&String> {
    c.balancer.plans.keys().collect()
}

/// Keeps a setting of the mgr, as `ceph config set mgr` does.
fn keep(c: &mut Cluster, call: &Call, name: &str, value: &str) -> Reply {
    c.set_config(call, "mgr", &format!("mgr/balancer/{name}"), Some(value));
    Ok(Answer::ok())
}

fn on(c: &mut Cluster, call: &Call) -> Reply {
    keep(c, call, "active", "true")
}

fn off(c: &mut Cluster, call: &Call) -> Reply {
    keep(c, call, "active", "false")
}

fn mode(c: &mut Cluster, call: &Call) -> Reply {
    match &*call.args.text("mode") {
        "crush-compat" => Err(CommandError::unsupported(
            "the mode crush-compat is for clients before Luminous; 'upmap' balances better",
        )),
        mode => keep(c, call, "mode", mode),
    }
}

/// Pools by their names.
fn pools(c: &Cluster, call: &Call) -> Result<BTreeSet<PoolId>, CommandError> {
    let names = call.args.list("pools");
    let found: Result<BTreeSet<PoolId>, &str> =
        names.iter().map(|name| c.map().pool_by_name(name).ok_or(&**name)).collect();
    let unknown = |name| CommandError::invalid(format_args!("pool(s) ['{name}'] not found"));
    found.map_err(unknown)
}

/// The pools that were chosen, if some were.
fn chosen(c: &Cluster) -> BTreeSet<PoolId> {
    match c.settings.str("mgr/balancer/pool_ids") {
        "" => BTreeSet::new(),
        _ => c.balanced_pools(),
    }
}

fn keep_pools(c: &mut Cluster, call: &Call, pools: &BTreeSet<PoolId>) -> Reply {
    let text = crate::show::join(pools.iter().map(|id| id.0.to_string()), ",");
    keep(c, call, "pool_ids", &text)
}

fn pool_ls(c: &Cluster, _: &Call) -> Reply {
    let names: Vec<_> = chosen(c).into_iter().filter_map(|id| c.map().pool_name(id)).collect();
    Ok(Answer::json(json!(names)))
}

fn pool_add(c: &mut Cluster, call: &Call) -> Reply {
    let mut all = chosen(c);
    all.extend(pools(c, call)?);
    keep_pools(c, call, &all)
}

fn pool_rm(c: &mut Cluster, call: &Call) -> Reply {
    let gone = pools(c, call)?;
    let left: BTreeSet<PoolId> = chosen(c).difference(&gone).copied().collect();
    keep_pools(c, call, &left)
}

fn eval(c: &Cluster, call: &Call) -> Reply {
    let all = || c.map().pools.keys().copied().collect();
    let (what, map, pools) = match call.args.str("option") {
        None => ("current cluster".to_owned(), c.map().clone(), all()),
        Some(name) => match (c.balancer.plans.get(&*name), c.map().pool_by_name(&name)) {
            (Some(plan), _) => {
                let map = Arc::new(with(c.map(), &plan.changes));
                (format!("plan {name} final"), map, plan.pools.clone())
            }
            (None, Some(id)) => (format!("pool \"{name}\""), c.map().clone(), [id].into()),
            (None, None) => {
                let text = format!("option \"{name}\" not a plan or a pool");
                return Err(CommandError::invalid(text));
            }
        },
    };
    let score = score(&map, &c.pgmap, &pools);
    let text = || format!("{what} score {score:.6} (lower is better)\n");
    Ok(Answer::either(call.format(), || json!({"of": what, "score": score}), text))
}

fn optimize(c: &mut Cluster, call: &Call) -> Reply {
    if c.settings.str("mgr/balancer/mode") == "none" {
        let text = "Please do \"ceph balancer mode\" to choose a valid mode first";
        return Err(CommandError::new(Errno::ENOEXEC, text));
    }
    let named = pools(c, call)?;
    let pools = if named.is_empty() { c.balanced_pools() } else { named };
    let name = call.args.text("plan").into_owned();
    if c.balancer.plans.len() >= MAX_PLANS && !c.balancer.plans.contains_key(&name) {
        let text = format!("there are {MAX_PLANS} plans; 'ceph balancer reset' forgets them");
        return Err(CommandError::invalid(text));
    }
    let sums = c.pgmap.sums(c.map());
    let plan = c.plan(&sums, pools)?;
    c.balancer.plans.insert(name, plan);
    Ok(Answer::ok())
}

fn ls(c: &Cluster, _: &Call) -> Reply {
    Ok(Answer::json(json!(names(c))))
}

fn plan<'a>(c: &'a Cluster, call: &Call) -> Result<&'a Plan, CommandError> {
    let name = call.args.text("plan");
    let unknown = || CommandError::not_found(format_args!("plan {name} not found"));
    c.balancer.plans.get(&*name).ok_or_else(unknown)
}

fn commands(changes: &Changes) -> Vec<String> {
    let (gone, new): (Vec<_>, Vec<_>) = changes.iter().partition(|(_, items)| items.is_empty());
    let gone = gone.into_iter().map(|(pgid, _)| format!("ceph osd rm-pg-upmap-items {pgid}"));
    let new = new.into_iter().map(|(pgid, items)| {
        let pairs = items.iter().map(|(from, to)| format!("{from} {to}"));
        format!("ceph osd pg-upmap-items {pgid} {}", crate::show::join(pairs, " "))
    });
    gone.chain(new).collect()
}

fn show(c: &Cluster, call: &Call) -> Reply {
    let plan = plan(c, call)?;
    let commands = commands(&plan.changes);
    let head = format!("# starting osdmap epoch {}\n# mode upmap\n", plan.epoch);
    let text = || format!("{head}{}\n", commands.join("\n"));
    Ok(Answer::either(call.format(), || json!(commands), text))
}

fn dump(c: &Cluster, call: &Call) -> Reply {
    let plan = plan(c, call)?;
    let changes = plan.changes.iter();
    let (gone, new): (Vec<_>, Vec<_>) = changes.partition(|(_, items)| items.is_empty());
    let new = new.into_iter().map(|(pgid, items)| {
        let mappings = items.iter().map(|(from, to)| json!({"from": from.0, "to": to.0}));
        json!({"pgid": pgid.to_string(), "mappings": mappings.collect::<Vec<Value>>()})
    });
    Ok(Answer::json(json!({
        "epoch": plan.epoch.0 + 1,
        "new_pg_upmap_items": new.collect::<Vec<Value>>(),
        "old_pg_upmap_items": gone.iter().map(|(pgid, _)| pgid.to_string()).collect::<Vec<_>>(),
    })))
}

fn execute(c: &mut Cluster, call: &Call) -> Reply {
    let plan = plan(c, call)?.clone();
    c.carry_out(call.now, &plan)?;
    rm(c, call)
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    c.balancer.plans.remove(&*call.args.text("plan"));
    Ok(Answer::ok())
}

fn reset(c: &mut Cluster, _: &Call) -> Reply {
    c.balancer.plans.clear();
    Ok(Answer::ok())
}
