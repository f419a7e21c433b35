//! librados and librbd through Python: what the command-line tools do not reach.

use super::cluster::{Pool, shared};
use super::images::Images;
use std::path::Path;

fn run(script: &str, pool: &Pool) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/interop").join(script);
    let said = pool.cluster.python(&script).arg(&pool.name).text();
    assert!(said.trim_end().ends_with("all is well"), "{said}");
}

#[test]
fn everything_librados_reaches_works() {
    run("librados.py", &shared().pool("python"));
}

#[test]
fn everything_librbd_reaches_works() {
    run("librbd.py", &Images::new("python-rbd").pool);
}
