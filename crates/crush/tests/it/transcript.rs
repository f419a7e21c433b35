//! Commands given to a real mon, and the map after each.

use crush::{
    COMPAT_CHOOSE_ARGS, CrushError, CrushMap, Location, RULE_REPLICATED, RuleMode, decompile,
    weight_from_f64,
};
use denc::crc32c;

fn location(words: &[&str]) -> Location {
    Location::parse(words).unwrap()
}

fn weight(word: &str) -> u32 {
    weight_from_f64(word.parse().unwrap()).unwrap()
}

fn device(word: &str) -> i32 {
    word.strip_prefix("osd.").unwrap().parse().unwrap()
}

/// Makes the edit that a mon makes for `osd crush COMMAND`.
fn run(map: &mut CrushMap, command: &[&str]) -> Result<(), CrushError> {
    match command {
        ["rule", rest @ ..] => return run_rule(map, rest),
        ["class", rest @ ..] => return run_class(map, rest),
        ["weight-set", rest @ ..] => return run_weight_set(map, rest),
        ["reweight-all"] => return map.reweight_all(),
        ["add-bucket", name, kind, loc @ ..] => {
            return map.add_bucket(name, kind, &location(loc)).map(|_| ());
        }
        ["set-device-class", class, osds @ ..] => {
            let mut set = osds.iter().map(|osd| map.set_device_class(device(osd), class));
            return set.try_for_each(|result| result.map(|_| ()));
        }
        ["rm-device-class", osds @ ..] => {
            let mut set = osds.iter().map(|osd| map.remove_device_class(device(osd)));
            return set.try_for_each(|result| result.map(|_| ()));
        }
        ["tunables", profile] => {
            map.tunables = map.tunables.with_profile(profile).unwrap();
            return Ok(());
        }
        ["rename-bucket", src, dst] => return map.rename_bucket(src, dst),
        ["add" | "set" | "create-or-move", osd, w, loc @ ..] => {
            let (id, w, loc) = (device(osd), weight(w), location(loc));
            return match command[0] {
                "create-or-move" => map.create_or_move_item(id, w, osd, &loc).map(|_| ()),
                "add" if map.weight_at(id, &loc).is_none() => map.insert_item(id, w, osd, &loc),
                _ => map.update_item(id, w, osd, &loc).map(|_| ()),
            };
        }
        _ => {}
    }
    let named = |map: &CrushMap, name: &str| map.item_id(name).ok_or(CrushError::NotPlaced(0));
    let id = named(map, command[1])?;
    match command {
        ["move", _, loc @ ..] => map.move_bucket(id, &location(loc)),
        ["link", _, loc @ ..] => map.link_bucket(id, &location(loc)),
        ["unlink" | "rm", _] => map.remove_item(id, command[0] == "unlink"),
        ["unlink" | "rm", _, above] => {
            map.remove_item_under(id, named(map, above)?, command[0] == "unlink")
        }
        ["swap-bucket", _, other, ..] => map.swap_buckets(id, named(map, other)?),
        ["reweight", _, w] => map.reweight_item(id, weight(w)),
        ["reweight-subtree", _, w] => map.reweight_subtree(id, weight(w)).map(|_| ()),
        other => panic!("unknown command {other:?}"),
    }
}

fn run_rule(map: &mut CrushMap, command: &[&str]) -> Result<(), CrushError> {
    let mut add = |name, root, domain, class, mode| {
        let added = map.add_simple_rule(name, root, domain, class, mode, RULE_REPLICATED);
        added.map(|_| ())
    };
    match *command {
        ["create-replicated", name, root, domain] => {
            add(name, root, domain, None, RuleMode::Firstn)
        }
        ["create-replicated", name, root, domain, class] => {
            add(name, root, domain, Some(class), RuleMode::Firstn)
        }
        ["create-simple", name, root, domain, mode] => {
            add(name, root, domain, None, RuleMode::from_name(mode).unwrap())
        }
        ["rename", src, dst] => map.rename_rule(src, dst),
        ["rm", name] => map.remove_rule(map.rule_id(name).unwrap()),
        _ => panic!("unknown command {command:?}"),
    }
}

fn run_class(map: &mut CrushMap, command: &[&str]) -> Result<(), CrushError> {
    match *command {
        ["create", name] => map.create_class(name).map(|_| ()),
        ["rm", name] => map.remove_class(name).map(|_| ()),
        ["rename", src, dst] => map.rename_class(src, dst),
        _ => panic!("unknown command {command:?}"),
    }
}

fn run_weight_set(map: &mut CrushMap, command: &[&str]) -> Result<(), CrushError> {
    match *command {
        ["create-compat"] => map.create_weight_set(COMPAT_CHOOSE_ARGS, 1),
        ["rm-compat"] => {
            assert!(map.remove_weight_set(COMPAT_CHOOSE_ARGS));
            Ok(())
        }
        ["reweight-compat", osd, w] => {
            map.reweight_in_weight_set(COMPAT_CHOOSE_ARGS, device(osd), &[weight(w)])
        }
        _ => panic!("unknown command {command:?}"),
    }
}

#[test]
fn each_command_gives_the_map_of_a_real_mon() {
    let transcript = include_str!("../../samples/mon-edits.txt");
    let mut map = CrushMap::fresh("host").unwrap();
    let mut commands = 0;
    for line in transcript.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [crc, outcome, command @ ..] = words.as_slice() else {
            panic!("{line}");
        };
        let result = run(&mut map, command);
        assert_eq!(result.is_ok(), *outcome == "ok", "{line}: {result:?}");
        // A mon stores the map encoded.
        let bytes = denc::encode(&map);
        map = denc::decode_all(&bytes).unwrap();
        let actual = crc32c(u32::MAX, &denc::encode(&map));
        assert_eq!(format!("{actual:08x}"), *crc, "{line}\n{}", decompile(&map));
        commands += 1;
    }
    assert_eq!(commands, 95);
}
