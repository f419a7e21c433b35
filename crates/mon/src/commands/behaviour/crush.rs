//! The CRUSH map as a whole.

use super::{done, json_of, with_pool};
use crate::commands::bench::Bench;
use bytes::Bytes;
use serde_json::json;

#[test]
fn the_crush_map_comes_and_goes_as_bytes() {
    let mut bench = with_pool();
    let get = json!({"prefix": "osd getcrushmap"});
    let (r, version, bytes) = bench.run(&get);
    assert_eq!(r, 0);
    let set =
        json!({"prefix": "osd setcrushmap", "prior_version": version.parse::<i64>().unwrap()});
    let mut crush: crush::CrushMap = denc::decode_all(&bytes).unwrap();
    crush.reweight_item(0, 0x2_0000).unwrap();
    let changed = denc::encode(&crush);
    let (r, next, _) = bench.run_with(&set, changed.clone());
    assert_eq!((r, next.parse::<i64>().ok()), (0, version.parse::<i64>().ok().map(|v| v + 1)));
    assert_eq!(bench.run(&get).2, changed);
    let (r, again, _) = bench.run_with(&set, changed.clone());
    assert_eq!((r, again), (0, next), "the answer was lost, the command came again");
    let (r, outs, _) = bench.run_with(&set, bytes);
    assert_eq!(r, -1, "{outs}");
    for bad in [Bytes::new(), Bytes::from_static(b"garbage"), changed.slice(..changed.len() / 2)] {
        let (r, outs, _) = bench.run_with(&json!({"prefix": "osd setcrushmap"}), bad);
        assert!(r == -22 && outs.contains("parse"), "{outs}");
    }
    let mut ruleless = crush.clone();
    ruleless.remove_rule(0).unwrap();
    let input = denc::encode(&ruleless);
    let (r, outs, _) = bench.run_with(&json!({"prefix": "osd setcrushmap"}), input);
    assert!(r == -2 && outs.contains("crush_rule 0"), "{outs}");
    // Its pool would have no OSD any more.
    let text = crush::decompile(&crush).replace("\tmin_size 1\n", "\tmin_size 9\n");
    let input = denc::encode(&crush::compile(&text).unwrap());
    let (r, outs, _) = bench.run_with(&json!({"prefix": "osd setcrushmap"}), input);
    assert!(r == -22 && outs.contains("sizes 9 to 10"), "{outs}");
    assert_eq!(bench.run(&get).2, changed);
}

fn crush_with_device(bench: &Bench, id: i32) -> crush::CrushMap {
    let mut crush = bench.c.map().crush().as_ref().clone();
    let place = [("host", "far"), ("root", "default")];
    let place = place.iter().map(|&(kind, name)| (kind.to_owned(), name.to_owned())).collect();
    crush.insert_item(id, 0x1_0000, &format!("osd.{id}"), &place).unwrap();
    crush
}

#[test]
fn a_crush_map_has_only_devices_that_an_osd_can_be() {
    let mut bench = with_pool();
    let set = json!({"prefix": "osd setcrushmap"});
    for id in [2_000_000_000, maps::MAX_OSDS as i32, i32::MAX - 2] {
        let input = denc::encode(&crush_with_device(&bench, id));
        let (r, outs, _) = bench.run_with(&set, input);
        assert!(r == -22 && outs.contains(&format!("device {id},")), "{outs}");
    }
    let last = maps::MAX_OSDS as i32 - 1;
    let (r, outs, _) = bench.run_with(&set, denc::encode(&crush_with_device(&bench, last)));
    assert_eq!(r, 0, "{outs}");
    let orphan = &json_of(&mut bench, json!({"prefix": "health", "detail": "detail"}))["checks"];
    let lines = orphan["OSD_ORPHAN"]["detail"].as_array().expect("it is one");
    let named = lines.iter().any(|l| l["message"].to_string().contains(&format!("osd.{last} ")));
    assert!(lines.len() == 2 && named, "one and a hint: {lines:?}");
    let dump = json_of(&mut bench, json!({"prefix": "osd crush dump"}));
    let ids: Vec<i64> =
        dump["devices"].as_array().unwrap().iter().flat_map(|d| d["id"].as_i64()).collect();
    assert!(ids.len() < 20 && ids.last() == Some(&i64::from(last)), "{ids:?}");
}

#[test]
fn a_map_that_has_such_a_device_already_is_served_and_mended() {
    let mut bench = with_pool();
    let crush = crush_with_device(&bench, 2_000_000_000);
    let mut map = maps::OsdMap::clone(&bench.c.state.osdmap);
    map.set_crush(std::sync::Arc::new(crush));
    bench.c.state.osdmap = std::sync::Arc::new(map);
    let checks = json_of(&mut bench, json!({"prefix": "health"}));
    assert_eq!(checks["checks"]["OSD_ORPHAN"]["summary"]["count"], 1, "{checks}");
    let dump = json_of(&mut bench, json!({"prefix": "osd crush dump"}));
    assert!(dump["devices"].as_array().unwrap().len() < 20);
    done(&mut bench, json!({"prefix": "osd crush reweight", "name": "osd.0", "weight": 2.0}));
    done(&mut bench, json!({"prefix": "osd crush rm", "name": "osd.2000000000"}));
    assert!(bench.c.map().crush().max_devices() < 20);
}

#[test]
fn straw_buckets_become_straw2() {
    let mut bench = with_pool();
    let text = crush::decompile(bench.c.map().crush());
    let old_text = text.replace("\talg straw2\n", "\talg straw\n");
    // Weights that are no thousandths, and classes whose numbers are not the order they stand in.
    let edited = |text: &str| {
        let mut crush = crush::compile(text).unwrap();
        crush.reweight_item(0, 0x1_2345).unwrap();
        for (id, class) in [(0, "first"), (1, "second"), (0, "second")] {
            crush.remove_device_class(id).unwrap();
            crush.set_device_class(id, class).unwrap();
        }
        crush
    };
    let (old, new) = (edited(&old_text), edited(&text));
    assert!(old.buckets().filter(|b| b.algorithm() == crush::Algorithm::Straw).count() > 3);
    let (r, outs, _) = bench.run_with(&json!({"prefix": "osd setcrushmap"}), denc::encode(&old));
    assert_eq!(r, 0, "{outs}");
    done(&mut bench, json!({"prefix": "osd crush set-all-straw-buckets-to-straw2"}));
    assert!(**bench.c.map().crush() == new, "nothing else is changed");
}

/// 2^30 ways to an OSD: whoever asks for the tree would wait for ever, and everybody else too.
#[test]
fn a_crush_map_that_cannot_be_walked_is_refused() {
    let mut bench = with_pool();
    let mut text = crush::decompile(bench.c.map().crush());
    let rules = text.find("# rules").unwrap();
    let mut levels = String::new();
    for level in 0..30 {
        for side in ["a", "b"] {
            levels += &format!("root {side}{level} {{\n\talg straw2\n\thash 0\n");
            match level {
                0 => levels += "\titem osd.0 weight 0\n",
                _ => ["a", "b"]
                    .iter()
                    .for_each(|side| levels += &format!("\titem {side}{} weight 0\n", level - 1)),
            }
            levels += "}\n";
        }
    }
    text.insert_str(rules, &levels);
    let input = denc::encode(&crush::compile(&text).unwrap());
    let (r, outs, _) = bench.run_with(&json!({"prefix": "osd setcrushmap"}), input);
    assert!(r == -22 && outs.contains("ways to"), "{outs}");
}
