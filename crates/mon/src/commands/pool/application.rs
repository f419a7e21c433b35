//! What pools are for.

use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, read, write};
use admin::{Answer, CommandError};
use serde_json::{Value, json};

pub(super) const COMMANDS: &[CommandDef] = &[
    write(
        "osd pool application enable <pool:Poolname> <app:String,good=crush> \
         [yes_i_really_mean_it:Bool]",
        "osd",
        "says what a pool is for: rbd, cephfs, rgw, or a word of yours",
        enable,
    ),
    write(
        "osd pool application disable <pool:Poolname> <app:String> [yes_i_really_mean_it:Bool]",
        "osd",
        "takes that back",
        disable,
    ),
    write(
        "osd pool application set <pool:Poolname> <app:String> <key:String,good=crush> \
         <value:String,good=loc>",
        "osd",
        "keeps a value of an application with the pool",
        set,
    ),
    write(
        "osd pool application rm <pool:Poolname> <app:String> <key:String>",
        "osd",
        "removes a value of an application",
        rm,
    ),
    read(
        "osd pool application get [pool:Poolname] [app:String] [key:String]",
        "osd",
        "shows what a pool is for, or all of them",
        get,
    ),
];

const MAX_APPLICATIONS: usize = 4;
const MAX_KEYS: usize = 64;
const MAX_TEXT_BYTES: usize = 128;

fn check_text(what: &str, text: &str) -> Result<(), CommandError> {
    if text.is_empty() {
        return Err(CommandError::invalid(format_args!("{what} cannot be empty")));
    }
    if text.len() > MAX_TEXT_BYTES {
        let text = format!("{what} '{text}' too long; max length {MAX_TEXT_BYTES}");
        return Err(CommandError::invalid(text));
    }
    Ok(())
}

fn enable(c: &mut Cluster, call: &Call) -> Reply {
    let (pool, app) = (call.args.text("pool"), call.args.text("app").into_owned());
    let id = c.pool_id(&pool)?;
    check_text("application name", &app)?;
    c.edit_pool(id, |p, _| {
        let apps = &mut p.application_metadata;
        if apps.contains_key(&app) {
            return Ok(());
        }
        if !apps.is_empty() && !call.sure() {
            return Err(CommandError::not_permitted(format_args!(
                "Are you SURE? Pool '{pool}' already has an enabled application; pass \
                 --yes-i-really-mean-it to proceed anyway"
            )));
        }
        if apps.len() >= MAX_APPLICATIONS {
            return Err(CommandError::invalid(format_args!(
                "too many enabled applications on pool '{pool}'; max {MAX_APPLICATIONS}"
            )));
        }
        apps.insert(app.clone(), maps::StringMap::new());
        Ok(())
    })?;
    Ok(Answer::message(format_args!("enabled application '{app}' on pool '{pool}'")))
}

fn disable(c: &mut Cluster, call: &Call) -> Reply {
    let (pool, app) = (call.args.text("pool"), call.args.text("app"));
    let id = c.pool_id(&pool)?;
    if !call.sure() {
        return Err(CommandError::not_permitted(
            "Are you SURE? Disabling an application within a pool might result in loss of \
             application functionality; pass --yes-i-really-mean-it to proceed anyway",
        ));
    }
    let there = c.edit_pool(id, |p, _| Ok(p.application_metadata.remove(&*app).is_some()))?;
    Ok(Answer::message(match there {
        true => format!("disable application '{app}' on pool '{pool}'"),
        false => not_enabled(&app, &pool),
    }))
}

fn not_enabled(app: &str, pool: &str) -> String {
    format!("application '{app}' is not enabled on pool '{pool}'")
}

fn set(c: &mut Cluster, call: &Call) -> Reply {
    let (pool, app) = (call.args.text("pool"), call.args.text("app"));
    let (key, value) = (call.args.text("key").into_owned(), call.args.text("value").into_owned());
    let id = c.pool_id(&pool)?;
    check_text("key", &key)?;
    if value.len() > MAX_TEXT_BYTES {
        let text = format!("value '{value}' too long; max length {MAX_TEXT_BYTES}");
        return Err(CommandError::invalid(text));
    }
    c.edit_pool(id, |p, _| {
        let values = p
            .application_metadata
            .get_mut(&*app)
            .ok_or_else(|| CommandError::not_found(not_enabled(&app, &pool)))?;
        if values.len() >= MAX_KEYS && !values.contains_key(&key) {
            return Err(CommandError::invalid(format_args!(
                "too many keys set for application '{app}' on pool '{pool}'; max {MAX_KEYS}"
            )));
        }
        values.insert(key.clone(), value.clone());
        Ok(())
    })?;
    let text = format!("set application '{app}' key '{key}' to '{value}' on pool '{pool}'");
    Ok(Answer::message(text))
}

fn no_key(app: &str, pool: &str, key: &str) -> String {
    format!("application '{app}' on pool '{pool}' does not have key '{key}'")
}

fn rm(c: &mut Cluster, call: &Call) -> Reply {
    let (pool, app, key) = (call.args.text("pool"), call.args.text("app"), call.args.text("key"));
    let id = c.pool_id(&pool)?;
    let there = c.edit_pool(id, |p, _| {
        let values = p
            .application_metadata
            .get_mut(&*app)
            .ok_or_else(|| CommandError::not_found(not_enabled(&app, &pool)))?;
        Ok(values.remove(&*key).is_some())
    })?;
    Ok(Answer::message(match there {
        true => format!("removed application '{app}' key '{key}' on pool '{pool}'"),
        false => no_key(&app, &pool, &key),
    }))
}

/// What every pool is for.
fn get_all(c: &Cluster) -> Value {
    let named = c.map().pools.iter().map(|(id, p)| {
        let name = c.map().pool_name(*id).unwrap_or_default().to_owned();
        (name, json!(p.application_metadata))
    });
    Value::Object(named.collect())
}

fn get(c: &Cluster, call: &Call) -> Reply {
    let Some(pool) = call.args.str("pool").filter(|pool| !pool.is_empty()) else {
        return Ok(Answer::json(get_all(c)));
    };
    let id = c.pool_id(&pool)?;
    let Some(p) = c.map().pool(id) else { return Ok(Answer::ok()) };
    let Some(app) = call.args.str("app").filter(|a| !a.is_empty()) else {
        return Ok(Answer::json(json!(p.application_metadata)));
    };
    let values = p.application_metadata.get(&*app).ok_or_else(|| {
        CommandError::not_found(format_args!("pool '{pool}' has no application '{app}'"))
    })?;
    let Some(key) = call.args.str("key").filter(|k| !k.is_empty()) else {
        return Ok(Answer::json(json!(values)));
    };
    let value =
        values.get(&*key).ok_or_else(|| CommandError::not_found(no_key(&app, &pool, &key)))?;
    Ok(Answer::text(format_args!("{value}\n")))
}
