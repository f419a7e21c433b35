//! librados through Python: what the command-line tool does not reach.

use super::cluster::shared;
use std::path::Path;

#[test]
fn everything_librados_reaches_works() {
    let pool = shared().pool("python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/interop/librados.py");
    let said = pool.cluster.python(&script).arg(&pool.name).text();
    assert!(said.trim_end().ends_with("all is well"), "{said}");
}
