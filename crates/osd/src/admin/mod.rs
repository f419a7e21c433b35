//! What an operator asks the OSD: the admin socket (`ceph daemon`) and `ceph tell`.
//!
//! Both ways lead to one table of commands.

mod pg_query;
mod told;

use crate::config::OsdConfig;
use crate::daemon::{Daemon, Life};
use crate::links::ADMIN;
use crate::options::Limits;
use crate::tracker::tracked_json;
use admin::command::Def;
use admin::common::Common;
use admin::perf::{Logger, Resets};
use admin::{AdminEvent, AdminServer, Answer, Args, CommandError, CommandTable, Format, Settings};
use io::net::{ConnId, NetEvent};
use io::{Effects, Now};
use pg::scrub::Kind;
use serde_json::{Value, json};
use std::rc::Rc;
use told::PassedOver;
use types::{Mono, PgId};
use wire::LinkId;
use wire::msg::{MCommand, MCommandReply, Message, Payload};

/// A command.
#[derive(Clone, Copy, Debug)]
enum Handler {
    /// One that every daemon has.
    Common(Common),
    /// One of the OSD's own.
    Own(fn(&mut Daemon, &Args) -> Result<Answer, CommandError>),
    /// One that is answered by [`Daemon::answer_command`], unless it fails at once.
    Later(fn(&mut Daemon, &Args, Asker, &mut Effects) -> Result<(), CommandError>),
}

/// Who waits for the answer to a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// `ceph daemon`
    Socket(ConnId),
    /// `ceph tell`: where, the message's number, and how it is to be printed.
    Tell(LinkId, u64, Format),
}

const fn own(
    sig: &'static str,
    help: &'static str,
    f: fn(&mut Daemon, &Args) -> Result<Answer, CommandError>,
) -> Def<Handler> {
    Def::read(sig, "osd", help, Handler::Own(f))
}

const OWN: &[Def<Handler>] = &[
    own("status", "shows how this OSD is", |d, _| Ok(d.status())),
    own("ops", "shows the requests in flight", |d, _| Ok(d.ops_in_flight())),
    own("dump_ops_in_flight", "shows the requests in flight", |d, _| Ok(d.ops_in_flight())),
    own("dump_blocked_ops", "shows requests that take too long", |d, _| Ok(d.blocked_ops())),
    own("dump_historic_ops", "shows the newest requests that ended", |d, _| {
        Ok(Answer::json(d.history.dump(d.now.mono, &d.limits.history, false)))
    }),
    own(
        "dump_historic_ops_by_duration",
        "shows the newest requests that ended, the slowest first",
        |d, _| Ok(Answer::json(d.history.dump(d.now.mono, &d.limits.history, true))),
    ),
    own("dump_historic_slow_ops", "shows the newest requests that were slow", |d, _| {
        Ok(Answer::json(d.history.dump_slow(d.now.mono, &d.limits.history)))
    }),
    own("dump_watchers", "shows who watches which objects", |d, _| Ok(d.watchers())),
    own("dump_blocklist", "shows clients that are shut out", |d, _| Ok(d.blocklist())),
    own("get_mapped_pools", "shows the pools that have PGs here", |d, _| Ok(d.mapped_pools())),
    own(
        "dump_osd_network [value:Int]",
        "shows the OSDs that are asked for heartbeats, and how long their answers take; with a value \
         only those that take more milliseconds",
        |d, args| Ok(d.osd_network(args)),
    ),
    own("get_latest_osdmap", "asks the mon for the newest map", |d, _| {
        d.mon.wants_map = true;
        Ok(Answer::ok())
    }),
    own(
        "dump_recovery_reservations",
        "shows PGs that recover, and those that wait for their turn",
        |d, _| Ok(d.recovery_reservations()),
    ),
    own("dump_scrubs", "shows when PGs are to be scrubbed", |d, _| Ok(d.planned_scrubs())),
    own("dump_scrub_reservations", "counts scrubs that this OSD takes part in", |d, _| {
        Ok(d.scrub_reservations())
    }),
    own("flush_pg_stats", "reports to the mon at once; see `ceph osd last-stat-seq`", |d, _| {
        d.flush_report()
    }),
    own("send_beacon", "reports to the mon at once", |d, _| d.flush_report().map(|_| Answer::ok())),
    own("objecter_requests", "shows what is asked of other OSDs to copy objects", |d, _| {
        Ok(Answer::json(d.copy_requests()))
    }),
    own("compact", "does nothing: the store needs no compaction", |_, _| {
        Ok(Answer::json(json!({ "elapsed_time": 0.0 })))
    }),
    own("store usage", "shows what the store's space is used for", |d, _| Ok(d.store_usage())),
    own("dump_mempools", "shows what memory is used for", |d, _| Ok(d.mempools())),
    own("cache drop", "drops what the store keeps in memory of what it has read", |d, _| {
        d.store.drop_caches();
        Ok(Answer::ok())
    }),
    own("flush_store_cache", "the same as `cache drop`", |d, _| {
        d.store.drop_caches();
        Ok(Answer::ok())
    }),
    own("cache status", "shows bytes that the store keeps of what it has read", |d, _| {
        Ok(Answer::json(json!({ "bluestore_buffers": d.store.counters().kept_bytes })))
    }),
    Def::read(
        "bench [count:Int] [size:Int] [object_size:Int] [object_num:Int]",
        "osd",
        "measures how fast the store takes writes: `count` bytes in pieces of `size`; with objects, over \
         and over in those",
        Handler::Later(Daemon::start_bench),
    ),
    own(
        "heap <heapcmd:Choices,dump|start_profiler|stop_profiler|release|get_release_rate|\
         set_release_rate|stats> [value:String]",
        "there is no heap profiler: see `dump_mempools`",
        |_, _| {
            let why = "could not issue heap profiler command -- not using tcmalloc! 'dump_mempools' \
                       shows what memory is used for";
            Err(CommandError::unsupported(why))
        },
    ),
    own("list_devices", "shows the disks of this OSD", |d, _| Ok(d.devices())),
    own("query [pgid:Pgid]", "shows a PG in full", Daemon::query),
    own("scrub [pgid:Pgid]", "compares the copies of a PG", |d, args| {
        d.scrub_command(args, Kind::asked(false, false))
    }),
    own("deep_scrub [pgid:Pgid]", "compares the copies of a PG byte by byte", |d, args| {
        d.scrub_command(args, Kind::asked(true, false))
    }),
    own(
        "setomapval <pool:String> <objname:String> <key:String> <val:String>",
        "for tests: sets an omap entry of this copy of an object only",
        Daemon::set_omap_val,
    ),
    own(
        "rmomapkey <pool:String> <objname:String> <key:String>",
        "for tests: removes an omap entry of this copy of an object only",
        Daemon::remove_omap_key,
    ),
    own(
        "truncobj <pool:String> <objname:String> <len:Int>",
        "for tests: sets the size of this copy of an object only",
        Daemon::truncate_copy,
    ),
    own(
        "rmobj <pool:String> <objname:String>",
        "for tests: removes this copy of an object only",
        Daemon::remove_copy,
    ),
    own(
        "injectfull [type:String] [count:Int]",
        "for tests: takes the disk for full, so many times or until it is told 'none'",
        Daemon::inject_full,
    ),
    Def::read(
        "break_session <osd:Int>",
        "osd",
        "ends the session with another OSD, and what was on its way is lost: for tests, and when it hangs",
        Handler::Later(Daemon::break_session_command),
    ),
    own("list_unfound [pgid:Pgid] [offset:String]", "shows lost objects", Daemon::list_unfound),
    own(
        "mark_unfound_lost [pgid:Pgid] <mulcmd:Choices,revert|delete>",
        "gives up objects that nobody has: they go back to an older state, or are deleted",
        Daemon::mark_unfound_lost,
    ),
    own(
        "pg <pgid:Pgid> <cmd:Choices,query|list_unfound|list_missing|mark_unfound_lost> \
         [mulcmd:Choices,revert|delete] [offset:String]",
        "shows a PG in full, or its lost objects; gives those up",
        |d, args| match &*args.text("cmd") {
            "query" => d.query(args),
            "mark_unfound_lost" => d.mark_unfound_lost(args),
            _ => d.list_unfound(args),
        },
    ),
];

/// The admin socket, the settings and the commands.
#[derive(Debug)]
pub struct Admin {
    server: Option<AdminServer>,
    pub settings: Settings,
    passed_over: PassedOver,
    resets: Resets,
    table: Rc<CommandTable<Handler>>,
}

impl Admin {
    /// As the configuration says.
    pub fn new(cfg: &OsdConfig) -> Self {
        let defs = admin::common::defs(Handler::Common);
        let table = CommandTable::new(defs.into_iter().chain(OWN.iter().copied()));
        Admin {
            server: cfg.admin_socket.clone().map(|path| AdminServer::new(ADMIN, path)),
            settings: cfg.settings(),
            passed_over: PassedOver::default(),
            resets: Resets::default(),
            table: Rc::new(table),
        }
    }

    /// Makes the socket.
    pub fn listen(&self, fx: &mut Effects) {
        if let Some(server) = &self.server {
            server.start(fx);
        }
    }

    /// When something is due.
    pub fn next_deadline(&self) -> Option<Mono> {
        self.server.as_ref().and_then(AdminServer::next_deadline)
    }

    /// Closes whoever took too long.
    pub fn tick(&mut self, now: Now, fx: &mut Effects) {
        if let Some(server) = &mut self.server {
            server.tick(now, fx);
        }
    }
}

impl Daemon {
    /// Something happened on the admin socket.
    pub(crate) fn on_admin(&mut self, event: NetEvent, fx: &mut Effects) {
        let Some(server) = &mut self.admin.server else { return };
        let mut events = Vec::new();
        server.handle(self.now, event, fx, &mut events);
        for event in events {
            match event {
                AdminEvent::Listening => {}
                AdminEvent::Failed(errno) => {
                    let error = std::io::Error::from_raw_os_error(errno);
                    let path = self.cfg.admin_socket.clone().unwrap_or_default();
                    let (id, path) = (self.cfg.id, path.display());
                    // Its data are worth more than what the socket would tell of them.
                    tracing::warn!(
                        "osd.{id}: serves without the admin socket {path}, which is tried again: {error}"
                    );
                }
                AdminEvent::Request(conn, request) => {
                    let asker = Asker::Socket(conn);
                    let table = self.admin.table.clone();
                    let answer = match table.find(request.args) {
                        Ok((spec, args)) => self.run_command(spec.def.handler, &args, asker, fx),
                        Err(why) => Some(Err(why)),
                    };
                    if let Some(answer) = answer {
                        self.answer_command(asker, answer, fx);
                    }
                }
            }
        }
    }

    /// `ceph tell` came.
    pub(crate) fn on_command(&mut self, link: LinkId, message: &Message, fx: &mut Effects) {
        let command: MCommand = match message.decode() {
            Ok(command) => command,
            Err(why) => {
                self.refuse_link(link, format!("a malformed COMMAND: {why}"), fx);
                return;
            }
        };
        let table = self.admin.table.clone();
        let text = command.cmd.concat();
        let asker = |format| Asker::Tell(link, message.header.tid, format);
        let (answer, asker) = match table.parse(&text) {
            Ok((spec, args)) => {
                let asker = asker(told_format(&args));
                (self.run_command(spec.def.handler, &args, asker, fx), asker)
            }
            Err(why) => (Some(Err(why)), asker(Format::Plain)),
        };
        if let Some(answer) = answer {
            self.answer_command(asker, answer, fx);
        }
    }

    /// Answers a command. Who asked may be gone.
    pub(crate) fn answer_command(
        &mut self,
        asker: Asker,
        answer: Result<Answer, CommandError>,
        fx: &mut Effects,
    ) {
        match asker {
            Asker::Socket(conn) => {
                if let Some(server) = &mut self.admin.server {
                    server.reply(conn, answer, fx);
                }
            }
            Asker::Tell(link, tid, format) => {
                let (result, outs, data) = answer.unwrap_or_else(Answer::from).into_reply(format);
                let reply = MCommandReply { result, outs, data };
                self.msgr.send(link, reply.encode().with_tid(tid));
            }
        }
    }

    /// `None`: the answer comes later.
    fn run_command(
        &mut self,
        handler: Handler,
        args: &Args,
        asker: Asker,
        fx: &mut Effects,
    ) -> Option<Result<Answer, CommandError>> {
        Some(match handler {
            Handler::Own(f) => f(self, args),
            Handler::Later(f) => match f(self, args, asker, fx) {
                Ok(()) => return None,
                Err(why) => Err(why),
            },
            Handler::Common(common) => {
                fx.reopen_log |= common == Common::LogReopen;
                let table = self.admin.table.clone();
                let mut settings = std::mem::take(&mut self.admin.settings);
                let mut resets = std::mem::take(&mut self.admin.resets);
                let answer =
                    common.run(args, &table, &mut settings, &mut resets, || self.loggers());
                (self.admin.settings, self.admin.resets) = (settings, resets);
                self.take_over_settings();
                answer
            }
        })
    }

    fn take_over_settings(&mut self) {
        self.limits = Limits::of(&self.admin.settings);
        self.store.set_memory(self.limits.store_bytes);
        self.places.set_number(self.limits.max_backfills);
        self.pacer.set_share(self.limits.recovery_share);
        self.limit_receiving();
    }

    fn status(&self) -> Answer {
        let state = match self.life {
            Life::Loading(_) => "initializing",
            Life::Joining => "booting",
            Life::Up => "active",
            Life::Leaving { .. } | Life::Closing => "stopping",
        };
        Answer::json(json!({
            "cluster_fsid": self.cfg.cluster.to_string(),
            "osd_fsid": self.store.identity().store.to_string(),
            "whoami": self.cfg.id.0,
            "state": state,
            "refused": self.mon.refused,
            "oldest_map": self.maps.oldest().0,
            "newest_map": self.maps.epoch().0,
            "num_pgs": self.pgs.len(),
        }))
    }

    fn shown_ops(&self, least: std::time::Duration) -> Vec<Value> {
        let now = self.now.mono;
        let mut ops: Vec<_> = self.ops.values().filter(|op| op.trace.age(now) >= least).collect();
        ops.sort_by_key(|op| op.trace.began());
        ops.iter()
            .map(|op| tracked_json(&op.request, op.sender, op.tid, &op.trace, now, now))
            .collect()
    }

    fn ops_in_flight(&self) -> Answer {
        let ops = self.shown_ops(std::time::Duration::ZERO);
        let count = ops.len();
        Answer::json(json!({ "ops": ops, "num_ops": count }))
    }

    fn blocked_ops(&self) -> Answer {
        let ops = self.shown_ops(self.limits.complaint);
        let count = ops.len();
        Answer::json(json!({
            "ops": ops,
            "complaint_time": self.limits.complaint.as_secs_f64(),
            "num_blocked_ops": count,
        }))
    }

    fn watchers(&self) -> Answer {
        let mut all = Vec::new();
        for host in self.pgs.values() {
            for (object, client, addr) in
                host.watches.connected(|link| self.sessions.get(link).map(|s| s.sender.addr))
            {
                all.push(json!({
                    "namespace": String::from_utf8_lossy(&object.nspace),
                    "object": String::from_utf8_lossy(&object.name),
                    "entity_name": { "type": client.kind.name(), "num": client.num },
                    "entity_addr": addr.to_string(),
                }));
            }
        }
        Answer::json(Value::Array(all))
    }

    fn blocklist(&self) -> Answer {
        let listed = self.maps.current().blocklist.iter();
        let shown = listed.map(|(addr, until)| {
            json!({ "entity_addr_t": addr.addr().to_string(), "expire_time": until.to_string() })
        });
        Answer::json(shown.collect())
    }

    /// Ceph's form, with the last time instead of averages over minutes.
    fn osd_network(&self, args: &Args) -> Answer {
        let threshold = args.int("value").unwrap_or(0).max(0) as u128;
        let map = self.maps.current();
        let mut entries = Vec::new();
        for (osd, owes, times) in self.heartbeats.peers() {
            for (interface, time) in ["back", "front"].into_iter().zip(times) {
                if time.unwrap_or_default().as_millis() < threshold {
                    continue;
                }
                let waits = owes.map(|at| self.now.mono.since(at).as_secs_f64());
                entries.push(json!({
                    "from osd": self.cfg.id.0, "to osd": osd.0, "interface": interface,
                    "up from": map.osd(osd).map(|o| o.info.up_from.0),
                    "last": time.map(|t| t.as_secs_f64() * 1000.0), "unanswered for": waits,
                }));
            }
        }
        Answer::json(json!({ "threshold": threshold as u64, "entries": entries }))
    }

    fn recovery_reservations(&self) -> Answer {
        let names = |all: &[PgId]| all.iter().map(PgId::to_string).collect::<Vec<_>>();
        let [ours, waiting, guests, asking] = self.places.lists();
        let most = self.limits.max_backfills;
        let [read, write] = self.pacer.means().map(|mean| mean.as_secs_f64() * 1000.0);
        Answer::json(json!({
            "pace": {
                "share": self.limits.recovery_share, "read_ms": read, "write_ms": write,
                "held_steps": self.held.len(),
                "clients_work": self.pacer.clients_work(self.now.mono),
            },
            "local_reservations": {
                "max_allowed": most, "in_progress": names(&ours), "queues": names(&waiting),
            },
            "remote_reservations": {
                "max_allowed": most, "in_progress": names(&guests), "queues": names(&asking),
            },
        }))
    }

    fn mapped_pools(&self) -> Answer {
        let pools: std::collections::BTreeSet<_> = self.pgs.keys().map(|p| p.pool.0).collect();
        Answer::json(json!({ "mapped_pools": pools.into_iter().collect::<Vec<_>>() }))
    }

    fn store_usage(&self) -> Answer {
        let u = self.store.usage();
        Answer::json(json!({
            "total_bytes": u.total, "system_bytes": u.system, "log_bytes": u.log,
            "log_used_bytes": u.log_used, "data_bytes": u.data, "shared_bytes": u.shared,
            "metadata_bytes": u.metadata, "freeing_bytes": u.freeing, "free_bytes": u.free,
            "reserve_bytes": u.reserve, "available_bytes": u.available, "objects": u.objects,
            "object_bytes": u.object_bytes,
            "compressed_bytes": u.compressed,
            "compressed_padding_bytes": u.compressed - u.compressed_bytes,
            "compressed_original_bytes": u.compressed_original,
        }))
    }

    fn devices(&self) -> Answer {
        let said = |name: &str| self.cfg.metadata.get(name).map_or("", String::as_str);
        let ids: Vec<&str> = said("device_ids").split(',').collect();
        let names = said("devices").split(',').filter(|name| !name.is_empty());
        let shown = names.map(|name| {
            let id = ids.iter().find_map(|id| id.strip_prefix(name)?.strip_prefix('='));
            json!({ "device": format!("/dev/{name}"), "device_id": id.unwrap_or_default() })
        });
        Answer::json(shown.collect())
    }

    fn loggers(&self) -> Vec<Logger> {
        let led = self.pgs.values().filter(|h| h.pg.is_primary()).count() as u64;
        let pgs = crate::perf::PgCounts {
            all: self.pgs.len() as u64,
            led,
            removing: self.removals.len() as u64,
            moving: self.moving as u64,
        };
        let in_flight = (self.ops.len() as u64, self.in_hand.own as u64);
        vec![
            self.perf.logger(&pgs, in_flight, &self.store.usage()),
            crate::perf::store_logger(self.store.counters()),
        ]
    }
}

/// The format of an answer to `tell`: in JSON unless asked otherwise, as Ceph's OSD does.
fn told_format(args: &Args) -> Format {
    match args.format() {
        Format::Plain => Format::JsonPretty,
        format => format,
    }
}
