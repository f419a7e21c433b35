//! The text form against what `crushtool` makes of the same maps.

use crate::samples::{MAPS, bin, map, text};
use crate::tools::{crushtool, decompiled};
use crush::{compile, decompile};

#[test]
fn compiling_gives_the_bytes_of_crushtool() {
    for name in MAPS {
        let map = compile(&text(&format!("crush/{name}.txt"))).unwrap();
        assert_eq!(denc::encode(&map), bin(name), "{name}");
    }
}

#[test]
fn what_is_decompiled_compiles_to_the_same_map() {
    for name in MAPS {
        let map = map(name);
        assert_eq!(compile(&decompile(&map)).as_ref(), Ok(&map), "{name}");
    }
}

#[test]
fn decompiling_gives_the_text_of_crushtool() {
    let Some(tool) = crushtool() else { return };
    for name in MAPS {
        let map = map(name);
        assert_eq!(decompile(&map), decompiled(&tool, &bin(name)), "{name}");
    }
}

#[test]
fn errors_say_where_and_what() {
    let head = "type 0 osd\ntype 1 host\ndevice 0 osd.0\n";
    for (text, line, col, message) in [
        ("host h {\n alg straw3\n}", 5, 6, "unknown bucket alg 'straw3'"),
        (
            "host h {\n alg straw2\n item osd.7\n}",
            6,
            7,
            "item 'osd.7' in bucket 'h' is not defined",
        ),
        ("rack r {\n alg list\n}", 4, 1, "bucket type 'rack' is not defined"),
        ("host h {\n alg list\n", 5, 10, "parse error: '}' expected, not the end"),
        ("host h {\n alg list\n item osd.0 weight 101\n}", 6, 7, "device weight limited to 100"),
        (
            "host a {\n alg list\n item b\n}\nhost b {\n alg list\n item a\n}",
            4,
            6,
            "bucket 'a' and bucket 'b' are included each other",
        ),
    ] {
        let error = compile(&format!("{head}{text}")).unwrap_err();
        assert_eq!((error.line, error.col, error.message.as_str()), (line, col, message));
    }
    let long = format!("{head}host x {{\n alg list\n item x\n}}");
    assert!(compile(&long).is_err(), "a bucket in itself");
}
