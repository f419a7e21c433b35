//! What Ceph's module `rbd_support` answers `rbd`: I/O by image, see `crate::images`.

use crate::cluster::Cluster;
use crate::commands::{Call, CommandDef, Reply, read};
use crate::images::{COUNTER_NAMES, COUNTERS, ImageStats, Place};
use admin::{Answer, CommandError};
use serde_json::{Map, Value, json};

/// The signature of a command: of which images, and which of them first.
macro_rules! perf_image {
    ($what:literal) => {
        concat!(
            "rbd perf image ",
            $what,
            " [pool_spec:String] [sort_by:Choices,",
            "write_ops|write_bytes|write_latency|read_ops|read_bytes|read_latency]"
        )
    };
}

const STATS: &str = "shows what clients do with each image in a second";
const SUMS: &str = "shows what clients did with each image since somebody began to ask";

pub(super) const COMMANDS: &[CommandDef] = &[
    read(perf_image!("stats"), "mgr", STATS, stats),
    read(perf_image!("counters"), "mgr", SUMS, counters),
];

/// Images of one answer, the busiest of all (`REPORT_MAX_RESULTS`).
const MAX_SHOWN: usize = 64;

fn stats(c: &Cluster, call: &Call) -> Reply {
    report(c, call, "stat", |image| image.rates.map(Value::from))
}

fn counters(c: &Cluster, call: &Call) -> Reply {
    report(c, call, "counter", |image| image.sums.map(Value::from))
}

/// The images that are asked for: of a pool or a namespace of it, or of all pools that are for images.
fn wanted(c: &Cluster, call: &Call) -> Result<impl Fn(&Place) -> bool, CommandError> {
    let spec = call.args.text("pool_spec").into_owned();
    let only = match spec.split_once('/').unwrap_or((&spec, "")) {
        ("", "") if spec.is_empty() => None,
        (pool, nspace) => {
            let is_odd = pool.is_empty() || nspace.contains('/') || spec.ends_with('/');
            if is_odd {
                let text = format_args!("Invalid pool spec: {spec}");
                return Err(CommandError::invalid(text));
            }
            let why = format_args!("Pool '{pool}' not found");
            let unknown = || {
                CommandError::not_found(format_args!("[errno 2] RADOS object not found ({why})"))
            };
            let id = c.map().pool_by_name(pool).ok_or_else(unknown)?;
            Some((id, nspace.to_owned()))
        }
    };
    let map = c.map().clone();
    Ok(move |place: &Place| match &only {
        Some(only) => place == only,
        None => map.pool(place.0).is_some_and(|p| p.application_metadata.contains_key("rbd")),
    })
}

fn report(
    c: &Cluster,
    call: &Call,
    what: &str,
    show: impl Fn(&ImageStats) -> [Value; COUNTERS],
) -> Reply {
    let wanted = wanted(c, call)?;
    c.images.ask(call.now.mono);
    let sort_by = call.args.text("sort_by");
    let by = COUNTER_NAMES.iter().position(|name| *name == sort_by).unwrap_or(0);
    let mut images = c.images.stats(call.now.mono, wanted);
    images.sort_by(|a, b| b.rates[by].total_cmp(&a.rates[by]));
    images.truncate(MAX_SHOWN);
    let mut places: Vec<String> = Vec::new();
    let mut shown = Vec::new();
    for image in &images {
        let values = show(image);
        if values.iter().all(|v| v.as_f64() == Some(0.0)) {
            continue;
        }
        let Some(pool) = c.map().pool_name(image.place.0) else { continue };
        let place = match image.place.1.as_str() {
            "" => pool.to_owned(),
            nspace => format!("{pool}/{nspace}"),
        };
        let known = places.iter().position(|p| *p == place);
        let at = known.unwrap_or_else(|| {
            places.push(place);
            places.len() - 1
        });
        shown.push(json!({ format!("{at}/{}", image.name): values }));
    }
    let places = places.into_iter().enumerate().map(|(at, place)| (at.to_string(), place.into()));
    let answer = [
        ("timestamp".to_owned(), json!(f64::from(call.now.wall.sec))),
        (format!("{what}_descriptors"), json!(COUNTER_NAMES)),
        ("pool_descriptors".to_owned(), Value::Object(places.collect())),
        (format!("{what}s"), Value::Array(shown)),
    ];
    Ok(Answer::json_line(Value::Object(Map::from_iter(answer))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use peer::{ImageCounts, ImageIo};
    use types::{OsdId, PoolId};

    fn ask(bench: &mut Bench, what: &str, spec: &str) -> Result<Value, (i32, String)> {
        let prefix = format!("rbd perf image {what}");
        let (r, outs, out) = bench.run(&json!({"prefix": prefix, "pool_spec": spec}));
        if r == 0 { Ok(serde_json::from_slice(&out).unwrap()) } else { Err((r, outs)) }
    }

    /// Two images with writes, one with reads in a namespace, and one that is in no list.
    fn busy() -> Bench {
        let mut bench = Bench::new();
        let pool = bench.make_pool_of_images("p");
        assert_eq!(ask(&mut bench, "stats", "").unwrap()["stats"], json!([]));
        let io = |nspace: &str, id: &str, writes, reads| {
            let (nspace, id) = (nspace.to_owned(), id.to_owned());
            let (write_us, read_us) = (writes * 2, reads * 3);
            ImageIo { pool, nspace, id, writes, write_us, reads, read_us, ..ImageIo::default() }
        };
        let images =
            vec![io("", "1", 10, 0), io("", "2", 50, 0), io("n", "3", 0, 20), io("", "gone", 5, 0)];
        let counts = ImageCounts { over_ms: 5000, images };
        let now = bench.now().mono;
        bench.c.images.report(now, OsdId(0), counts);
        for place in bench.c.images.names_due() {
            let ids = if place.1.is_empty() { vec!["1", "2"] } else { vec!["3"] };
            let names = ids.iter().map(|id| (format!("image{id}"), (*id).to_owned()));
            bench.c.images.names_read(now, &place, Some(names.collect()));
        }
        bench
    }

    #[test]
    fn images_are_shown_busiest_first() {
        let mut bench = busy();
        let all = ask(&mut bench, "stats", "").unwrap();
        assert_eq!(all["stat_descriptors"], json!(COUNTER_NAMES));
        assert_eq!(all["pool_descriptors"], json!({"0": "p", "1": "p/n"}));
        let want = json!([
            {"0/image2": [10, 0, 0, 0, 2000, 0]},
            {"0/image1": [2, 0, 0, 0, 2000, 0]},
            {"1/image3": [0, 4, 0, 0, 0, 3000]},
        ]);
        assert_eq!(all["stats"], want);
        let one = ask(&mut bench, "counters", "p/n").unwrap();
        assert_eq!(one["counters"], json!([{"0/image3": [0, 20, 0, 0, 0, 60_000]}]));
        let default = ask(&mut bench, "counters", "p").unwrap();
        assert_eq!(default["counters"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_pool_that_cannot_be_meant_is_refused() {
        let mut bench = busy();
        let text = "[errno 2] RADOS object not found (Pool 'q' not found)";
        let unknown = Err((-2, text.to_owned()));
        assert_eq!(ask(&mut bench, "stats", "q"), unknown);
        for odd in ["/", "p/", "/n", "p/n/m"] {
            let refused = Err((-22, format!("Invalid pool spec: {odd}")));
            assert_eq!(ask(&mut bench, "stats", odd), refused);
        }
    }

    #[test]
    fn only_pools_for_images_are_searched() {
        let mut bench = busy();
        let (r, ..) = bench.run(&json!({
            "prefix": "osd pool application disable", "pool": "p", "app": "rbd",
            "yes_i_really_mean_it": true,
        }));
        assert_eq!(r, 0);
        assert_eq!(ask(&mut bench, "stats", "").unwrap()["stats"], json!([]));
        assert_eq!(bench.c.map().pool_by_name("p"), Some(PoolId(2)));
        assert_eq!(ask(&mut bench, "stats", "p").unwrap()["stats"].as_array().unwrap().len(), 2);
    }
}
