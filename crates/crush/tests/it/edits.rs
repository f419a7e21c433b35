//! Edits against the same edits made by `crushtool`, and what must hold after any of them.

use crate::samples::map;
use crate::tools::{Crushtool, crushtool, decompiled};
use crush::{
    COMPAT_CHOOSE_ARGS, CrushMap, Location, RULE_ERASURE, RULE_REPLICATED, RuleMode, WEIGHT_ONE,
    decompile, weight_from_f64,
};
use proptest::prelude::*;

/// An edit that both can make. Small numbers stand for names that may or may not exist.
#[derive(Clone, Debug)]
enum Edit {
    AddItem(i32, u16, Vec<(usize, u8)>),
    UpdateItem(i32, u16, Vec<(usize, u8)>),
    RemoveItem(Name),
    ReweightItem(i32, u16),
    AddBucket(usize, u8, Vec<(usize, u8)>),
    Move(Name, Vec<(usize, u8)>),
    Reweight,
    ReplicatedRule(u8, usize, Option<bool>),
    IndepRule(u8, usize, Option<bool>),
    RemoveRule(u8),
    SetClass(i32, bool),
    RemoveClass(i32),
}

/// The name of a device, or of a bucket of one of [`TYPES`].
#[derive(Clone, Copy, Debug)]
enum Name {
    Device(i32),
    Bucket(usize, u8),
}

const TYPES: [&str; 3] = ["host", "rack", "root"];
const CLASSES: [&str; 2] = ["hdd", "ssd"];

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Device(id) => write!(f, "osd.{id}"),
            Name::Bucket(2, 0) => f.write_str("default"),
            Name::Bucket(kind, n) => write!(f, "{}{n}", TYPES[*kind]),
        }
    }
}

fn location(words: &[(usize, u8)]) -> Location {
    let pair =
        |&(kind, n): &(usize, u8)| (TYPES[kind].to_owned(), Name::Bucket(kind, n).to_string());
    words.iter().map(pair).collect()
}

fn name() -> impl Strategy<Value = Name> {
    prop_oneof![
        (0..10i32).prop_map(Name::Device),
        (0..3usize, 0..4u8).prop_map(|(kind, n)| Name::Bucket(kind, n)),
    ]
}

fn words() -> impl Strategy<Value = Vec<(usize, u8)>> {
    let at = |kind: usize| prop::option::weighted(0.6, (Just(kind), 0..4u8));
    (at(0), at(1), at(2)).prop_map(|(a, b, c)| [a, b, c].into_iter().flatten().collect())
}

fn edit() -> impl Strategy<Value = Edit> {
    let class = || prop::option::of(any::<bool>());
    prop_oneof![
        4 => (0..10i32, any::<u16>(), words()).prop_map(|(i, w, l)| Edit::AddItem(i, w, l)),
        3 => (0..10i32, any::<u16>(), words()).prop_map(|(i, w, l)| Edit::UpdateItem(i, w, l)),
        2 => name().prop_map(Edit::RemoveItem),
        2 => (0..10i32, any::<u16>()).prop_map(|(n, w)| Edit::ReweightItem(n, w)),
        2 => (0..3usize, 0..4u8, words()).prop_map(|(k, n, l)| Edit::AddBucket(k, n, l)),
        3 => (name(), words()).prop_map(|(n, l)| Edit::Move(n, l)),
        1 => Just(Edit::Reweight),
        1 => (0..3u8, 0..3usize, class()).prop_map(|(n, k, c)| Edit::ReplicatedRule(n, k, c)),
        1 => (0..3u8, 0..3usize, class()).prop_map(|(n, k, c)| Edit::IndepRule(n, k, c)),
        1 => (0..3u8).prop_map(Edit::RemoveRule),
        3 => (0..10i32, any::<bool>()).prop_map(|(i, c)| Edit::SetClass(i, c)),
        1 => (0..10i32).prop_map(Edit::RemoveClass),
    ]
}

/// A weight below 100 of which single precision loses nothing.
fn weight(n: u16) -> u32 {
    weight_from_f64(f64::from(n) / 1024.0).unwrap()
}

/// Makes the edit; whether it was accepted.
fn apply(map: &mut CrushMap, edit: &Edit) -> bool {
    let id = |map: &CrushMap, name: &Name| map.item_id(&name.to_string());
    let osd = |n: i32| format!("osd.{n}");
    match edit {
        Edit::AddItem(n, w, l) => map.insert_item(*n, weight(*w), &osd(*n), &location(l)).is_ok(),
        Edit::UpdateItem(n, w, l) => {
            map.update_item(*n, weight(*w), &osd(*n), &location(l)).is_ok()
        }
        Edit::RemoveItem(name) => id(map, name).is_some_and(|i| map.remove_item(i, false).is_ok()),
        Edit::ReweightItem(n, w) => map.reweight_item(*n, weight(*w)).is_ok(),
        Edit::AddBucket(kind, n, l) => {
            let name = Name::Bucket(*kind, *n).to_string();
            map.add_bucket(&name, TYPES[*kind], &location(l)).is_ok()
        }
        Edit::Move(name, l) => {
            let loc = location(l);
            match id(map, name) {
                None => false,
                Some(i) if map.weight_at(i, &loc).is_some() => true,
                Some(i) if i >= 0 => map.create_or_move_item(i, 0, &name.to_string(), &loc).is_ok(),
                Some(i) => map.move_bucket(i, &loc).is_ok(),
            }
        }
        Edit::Reweight => map.reweight_all().is_ok(),
        Edit::ReplicatedRule(n, kind, class) => {
            let class = class.map(|c| CLASSES[usize::from(c)]);
            let (name, mode) = (format!("rule{n}"), RuleMode::Firstn);
            map.add_simple_rule(&name, "default", TYPES[*kind], class, mode, RULE_REPLICATED)
                .is_ok()
        }
        Edit::IndepRule(n, kind, class) => {
            let class = class.map(|c| CLASSES[usize::from(c)]);
            let (name, mode) = (format!("rule{n}"), RuleMode::Indep);
            map.add_simple_rule(&name, "default", TYPES[*kind], class, mode, RULE_ERASURE).is_ok()
        }
        Edit::RemoveRule(n) => {
            let rule = map.rule_id(&format!("rule{n}"));
            rule.is_some_and(|rule| map.remove_rule(rule).is_ok())
        }
        Edit::SetClass(n, class) => map.set_device_class(*n, CLASSES[usize::from(*class)]).is_ok(),
        Edit::RemoveClass(n) => map.remove_device_class(*n).is_ok(),
    }
}

/// The same edit as options of crushtool, where it has it.
fn options(map: &CrushMap, edit: &Edit) -> Option<Vec<String>> {
    let words = |l: &[(usize, u8)]| {
        let word = |&(kind, n): &(usize, u8)| {
            ["--loc".into(), TYPES[kind].into(), Name::Bucket(kind, n).to_string()]
        };
        l.iter().flat_map(word).collect::<Vec<String>>()
    };
    let number = |w: u16| (f64::from(w) / 1024.0).to_string();
    let mut args: Vec<String> = match edit {
        Edit::AddItem(n, w, _) => {
            vec!["--add-item".into(), n.to_string(), number(*w), format!("osd.{n}")]
        }
        Edit::UpdateItem(n, w, _) => {
            vec!["--update-item".into(), n.to_string(), number(*w), format!("osd.{n}")]
        }
        Edit::RemoveItem(name) => vec!["--remove-item".into(), name.to_string()],
        Edit::ReweightItem(n, w) => vec!["--reweight-item".into(), format!("osd.{n}"), number(*w)],
        Edit::AddBucket(kind, n, _) => {
            vec!["--add-bucket".into(), Name::Bucket(*kind, *n).to_string(), TYPES[*kind].into()]
        }
        Edit::Move(name, l) => {
            // What is there already is no success to the tool.
            let id = map.item_id(&name.to_string());
            if id.is_some_and(|id| map.weight_at(id, &location(l)).is_some()) {
                return None;
            }
            vec!["--move".into(), name.to_string()]
        }
        Edit::Reweight => vec!["--reweight".into()],
        Edit::ReplicatedRule(n, kind, class) => {
            let mut args = vec![
                "--create-replicated-rule".into(),
                format!("rule{n}"),
                "default".into(),
                TYPES[*kind].into(),
            ];
            if let Some(class) = class {
                args.extend(["--device-class".into(), CLASSES[usize::from(*class)].into()]);
            }
            args
        }
        // The tool does not mind a rule that is not there.
        Edit::RemoveRule(n) if map.rule_id(&format!("rule{n}")).is_none() => return None,
        Edit::RemoveRule(n) => vec!["--remove-rule".into(), format!("rule{n}")],
        // The tool has no class for these, and cannot classify single devices.
        Edit::IndepRule(..) | Edit::SetClass(..) | Edit::RemoveClass(_) => return None,
    };
    if let Edit::AddItem(_, _, l)
    | Edit::UpdateItem(_, _, l)
    | Edit::AddBucket(_, _, l)
    | Edit::Move(_, l) = edit
    {
        args.extend(words(l));
    }
    Some(args)
}

/// What holds after every edit: sums, shadows, and that the map can be encoded and read.
fn check(map: &CrushMap) {
    for b in map.buckets() {
        let sum: u32 = b.entries().map(|(_, w)| w).sum();
        assert_eq!(b.weight(), sum, "sum of bucket {}", b.id());
        for (item, weight) in b.entries().filter(|&(item, _)| item < 0) {
            assert_eq!(map.bucket(item).unwrap().weight(), weight, "{item} in {}", b.id());
        }
        assert!(map.item_name(b.id()).is_some());
    }
    for (bucket, class, shadow) in map.shadows() {
        let of_class: Vec<i32> = map.devices_of_class(class).collect();
        let mut expected = map.devices_below(bucket);
        expected.retain(|d| of_class.contains(d));
        assert_eq!(map.devices_below(shadow), expected, "shadow {shadow} of {bucket}");
    }
    let bytes = denc::encode(map);
    let read: CrushMap = denc::decode_all(&bytes).unwrap();
    assert_eq!(denc::encode(&read).len(), bytes.len());
    assert_eq!(crush::compile(&decompile(&read)).err(), None);
}

/// The map as a mon stores it: read again, which recalculates the number of devices.
fn stored(map: &CrushMap) -> CrushMap {
    denc::decode_all(&denc::encode(map)).unwrap()
}

fn start(which: u8) -> CrushMap {
    let mut map = match which % 4 {
        0 => CrushMap::fresh("host").unwrap(),
        1 => CrushMap::fresh("osd").unwrap(),
        2 => map("m3-classes"),
        _ => map("m1-flat-straw2"),
    };
    if which >= 4 {
        map.create_weight_set(COMPAT_CHOOSE_ARGS, 1).unwrap();
    }
    map
}

fn compare(tool: &Crushtool, mut map: CrushMap, edits: &[Edit]) {
    for edit in edits {
        let before = map.clone();
        let theirs = options(&map, edit).map(|args| {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            tool.edit(&before, &args)
        });
        let accepted = apply(&mut map, edit);
        map = stored(&map);
        if let Some(theirs) = theirs {
            assert_eq!(accepted, theirs.is_some(), "{edit:?} on\n{}", decompile(&before));
            let Some(theirs) = theirs else { continue };
            let on = decompile(&before);
            assert_eq!(decompile(&map), decompile(&theirs), "{edit:?} on\n{on}");
            assert_eq!(map, theirs, "{edit:?} on\n{on}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn edits_keep_sums_and_shadows_right(
        which in 0..8u8,
        edits in prop::collection::vec(edit(), 1..40),
    ) {
        let mut map = start(which);
        for edit in &edits {
            let before = map.clone();
            if !apply(&mut map, edit) {
                prop_assert_eq!(&map, &before, "a refused edit changes nothing");
            }
            check(&map);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn edits_are_those_of_crushtool(
        which in 0..8u8,
        edits in prop::collection::vec(edit(), 1..20),
    ) {
        let Some(tool) = crushtool() else { return Ok(()) };
        compare(&tool, start(which), &edits);
    }

    #[test]
    fn edited_maps_are_accepted_by_crushtool(
        which in 0..8u8,
        edits in prop::collection::vec(edit(), 1..40),
    ) {
        let Some(tool) = crushtool() else { return Ok(()) };
        let mut map = start(which);
        for edit in &edits {
            apply(&mut map, edit);
        }
        let map = stored(&map);
        let bytes = denc::encode(&map);
        prop_assert_eq!(decompile(&map), decompiled(&tool, &bytes));
        let file = tool.file("test.bin", &bytes);
        let args = ["-i", file.to_str().unwrap(), "--test", "--show-mappings", "--num-rep", "3", "--max-x", "63"];
        let (text, ok) = tool.run(&args);
        prop_assert!(ok, "{}", text);
        let weights = vec![WEIGHT_ONE; map.max_devices() as usize];
        for line in text.lines() {
            let Some((x, expected)) = crate::mappings::parse_mapping(line) else { continue };
            let rule = line.split(' ').nth(2).unwrap().parse().unwrap();
            let args = map.choose_args_for(COMPAT_CHOOSE_ARGS);
            let got = map.do_rule(rule, x, 3, &weights, args);
            prop_assert_eq!(got.as_slice(), expected.as_slice(), "{}", line);
        }
    }
}

/// A device below `levels` levels of two buckets each, of which both contain both of the next level.
fn lattice(levels: u32) -> CrushMap {
    let mut text = String::from("device 0 osd.0\ntype 0 osd\n");
    (1..=levels).for_each(|level| text += &format!("type {level} level{level}\n"));
    for level in 1..=levels {
        for side in ["a", "b"] {
            text += &format!("level{level} {side}{level} {{\n\talg straw2\n\thash 0\n");
            match level {
                1 => text += "\titem osd.0 weight 0\n",
                _ => ["a", "b"]
                    .iter()
                    .for_each(|side| text += &format!("\titem {side}{} weight 0\n", level - 1)),
            }
            text += "}\n";
        }
    }
    crush::compile(&text).unwrap()
}

/// There are 2^30 ways up from the device.
#[test]
fn weights_go_up_once_where_there_are_very_many_ways() {
    let mut crush = lattice(30);
    crush.reweight_item(0, 1).unwrap();
    let weight = |crush: &CrushMap, name: &str| {
        let id = crush.item_id(name).unwrap();
        crush.bucket(id).unwrap().weight()
    };
    assert_eq!(weight(&crush, "a1"), 1);
    assert_eq!((weight(&crush, "a30"), weight(&crush, "b30")), (1 << 29, 1 << 29));
    crush.remove_item(0, false).unwrap();
    assert_eq!(weight(&crush, "b30"), 0);
}

#[test]
fn edits_make_no_walk_that_does_not_end() {
    // From each of two roots on it goes to one bucket, two, four, .. and 2^9 times to the device.
    let mut crush = lattice(10);
    assert_eq!(crush.walk_len(), 2 * (1023 + 512));
    assert_eq!(lattice(64).walk_len(), u64::MAX);
    let refused = crush.check_walk().unwrap_err().to_string();
    assert!(refused.contains("3070 ways to 21 items"), "{refused}");
    // It stays editable as long as that makes nothing worse.
    let place = |words: &[&str]| Location::parse(words).unwrap();
    let top = crush.add_bucket("top", "level10", &Location::default()).unwrap();
    assert_eq!(crush.bucket(top).map(|b| b.items().len()), Some(0));
    let (a9, before) = (crush.item_id("a9").unwrap(), crush.clone());
    let refused = crush.link_bucket(a9, &place(&["level10=top"])).unwrap_err();
    assert!(matches!(refused, crush::CrushError::TooManyWays { .. }), "{refused}");
    assert!(crush == before);
    let a9 = crush.item_id("a9").unwrap();
    let b10 = crush.item_id("b10").unwrap();
    crush.remove_item_under(a9, b10, true).unwrap();
    assert_eq!(crush.walk_len(), 2 * (1023 + 512) + 1 - (511 + 256));
}

/// Classes and weights of all devices are changed by one walk of the map: by one for each device this takes
/// tens of seconds.
#[test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is what this tests")]
fn all_devices_of_a_large_map_change_at_once() {
    const HOSTS: i32 = 300;
    const PER_HOST: i32 = 10;
    let mut text = String::new();
    (0..HOSTS * PER_HOST).for_each(|n| text += &format!("device {n} osd.{n} class hdd\n"));
    text += "type 0 osd\ntype 1 host\ntype 2 root\n";
    for host in 0..HOSTS {
        text += &format!("host h{host} {{\n\talg straw2\n\thash 0\n");
        let first = host * PER_HOST;
        (first..first + PER_HOST).for_each(|n| text += &format!("\titem osd.{n} weight 1.0\n"));
        text += "}\n";
    }
    text += "root default {\n\talg straw2\n\thash 0\n";
    (0..HOSTS).for_each(|host| text += &format!("\titem h{host} weight 10.0\n"));
    let mut crush = crush::compile(&(text + "}\n")).unwrap();
    crush.create_weight_set(COMPAT_CHOOSE_ARGS, 1).unwrap();
    let all: Vec<i32> = (0..HOSTS * PER_HOST).collect();

    let begin = std::time::Instant::now();
    assert_eq!(crush.remove_device_classes(&all).unwrap(), all);
    assert_eq!(crush.set_device_classes(&all, "ssd").unwrap(), all);
    assert!(crush.set_device_classes(&all, "ssd").unwrap().is_empty());
    let root = crush.item_id("default").unwrap();
    assert_eq!(crush.reweight_subtree(root, 2 * crush::WEIGHT_ONE).unwrap(), all.len());
    assert!(begin.elapsed().as_secs() < 4, "{:?}", begin.elapsed());

    let weight = |name: &str| crush.bucket(crush.item_id(name).unwrap()).unwrap().weight();
    assert_eq!(weight("h7"), 20 * crush::WEIGHT_ONE);
    assert_eq!(weight("default"), 6000 * crush::WEIGHT_ONE);
    assert_eq!(weight("default~ssd"), 6000 * crush::WEIGHT_ONE);
    let args = crush.choose_args_for(COMPAT_CHOOSE_ARGS).unwrap();
    assert_eq!(args.get(root).unwrap().weight_sets, [[20 * crush::WEIGHT_ONE; 300]]);
    assert!(crush.item_id("default~hdd").is_none());
    // One device of another class: none is changed.
    crush.remove_device_classes(&[3, 4]).unwrap();
    crush.set_device_class(4, "nvme").unwrap();
    let before = crush.clone();
    assert!(crush.set_device_classes(&[3, 4], "ssd").is_err() && crush == before);
}
