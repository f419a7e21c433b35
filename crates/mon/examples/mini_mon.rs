//! A mon as a process, until `loligo mon` is there: `mini_mon STORE ADDR FSID [ASOK]`.
use mon::{Mon, MonConfig, NewCluster};
fn main() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::DEBUG)
        .init();
    let a: Vec<String> = std::env::args().collect();
    let mut new = NewCluster::new(a[3].parse().unwrap());
    new.failure_domain = "osd".into();
    let mut cfg = MonConfig::new("a", a[2].parse().unwrap()).with_new_cluster(new);
    cfg.admin_socket = a.get(4).map(Into::into);
    cfg.options.insert("mon_allow_pool_delete".into(), "true".into());
    cfg.metadata.insert("hostname".into(), "vm".into());
    let kv = kv::Embedded::open(a[1].as_ref()).unwrap();
    let seed = std::process::id() as u64;
    let exit =
        uring::run(&mut Mon::new(cfg, seed), vec![], Some(Box::new(kv)), &Default::default());
    eprintln!("{exit:?}");
}
