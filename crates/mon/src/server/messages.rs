//! What clients say, to the mon and to the mgr.

use super::history::Asked;
use super::tasks::Waiting;
use super::{Output, Role, Server};
use crate::commands::{Call, Handler, Reply, mon_status};
use crate::log::Speaker;
use crate::tasks::Found;
use admin::{Answer, Args, CommandError, Format};
use bytes::Bytes;
use denc::DecodeError;
use io::Now;
use maps::OsdMap;
use types::{Epoch, Errno, Uuid};
use wire::LinkId;
use wire::msg::{
    MAuth, MAuthReply, MCommand, MGetPoolStats, MMgrCommand, MMgrCommandReply, MMonCommand,
    MMonCommandAck, MMonGetMap, MMonGetOsdMap, MMonGetVersion, MMonGetVersionReply, MMonSubscribe,
    MPing, MPoolOp, MStatfs, Message, OutMessage, PaxosHeader, Payload, kind,
};

impl Server {
    pub(super) fn on_message(&mut self, now: Now, role: Role, link: LinkId, m: &Message) {
        self.counters.messages += 1;
        let done = match role {
            Role::Mon => self.on_mon_message(now, link, m),
            Role::Mgr => self.on_mgr_message(now, link, m),
        };
        if let Err(why) = done {
            let kind = m.header.kind;
            let what = kind::name(kind).map_or_else(|| format!("{kind:#x}"), str::to_owned);
            tracing::warn!("a peer is disconnected: its message {what} cannot be read: {why}");
            self.outbox.push(Output::Close(role, link));
        }
    }

    fn on_mon_message(&mut self, now: Now, link: LinkId, m: &Message) -> Result<(), DecodeError> {
        let tid = m.header.tid;
        match m.header.kind {
            MMonSubscribe::TYPE => self.subscribe(now, link, m.decode()?),
            MMonGetMap::TYPE => self.send_monmap(link),
            MMonGetOsdMap::TYPE => self.get_osdmap(now, link, &m.decode()?),
            MMonGetVersion::TYPE => self.get_version(link, tid, &m.decode()?),
            MMonCommand::TYPE => self.on_command(now, link, tid, m.decode()?),
            MCommand::TYPE => {
                let command: MCommand = m.decode()?;
                if self.is_ours(command.fsid) {
                    self.on_tell(now, Role::Mon, link, tid, &command);
                }
            }
            MAuth::TYPE => self.renew_auth(link, tid, &m.decode()?),
            MPoolOp::TYPE => {
                let op: MPoolOp = m.decode()?;
                if self.is_ours(op.fsid) {
                    let reply = self.cluster.pool_op(now, &op).encode().with_tid(tid);
                    self.send(link, reply);
                }
            }
            MStatfs::TYPE => {
                let ask: MStatfs = m.decode()?;
                if self.is_ours(ask.fsid) {
                    let reply = self.cluster.statfs(&ask).encode().with_tid(tid);
                    self.send(link, reply);
                }
            }
            MGetPoolStats::TYPE => {
                let ask: MGetPoolStats = m.decode()?;
                if self.is_ours(ask.fsid) {
                    let reply = self.cluster.pool_stats(&ask).encode().with_tid(tid);
                    self.send(link, reply);
                }
            }
            MPing::TYPE => self.ping(now, link, tid),
            _ => {
                if !self.on_daemon(now, link, m)? {
                    tracing::debug!("a message of type {:#x} is ignored", m.header.kind);
                }
            }
        }
        Ok(())
    }

    /// Clients do not name the cluster here.
    fn on_mgr_message(&mut self, now: Now, link: LinkId, m: &Message) -> Result<(), DecodeError> {
        let tid = m.header.tid;
        match m.header.kind {
            MCommand::TYPE => self.on_tell(now, Role::Mgr, link, tid, &m.decode()?),
            MMgrCommand::TYPE => {
                let m: MMgrCommand = m.decode()?;
                let from = From { role: Role::Mgr, link, tid };
                self.run(now, from, &m.cmd.concat(), &m.data);
            }
            // What daemons say to a mgr: ours say it to the mon.
            _ => tracing::debug!("the mgr ignores a message of type {:#x}", m.header.kind),
        }
        Ok(())
    }

    /// `ceph ping mon.NAME`: how this mon and the cluster are.
    fn ping(&mut self, now: Now, link: LinkId, tid: u64) {
        let pong = serde_json::json!({
            "health": self.cluster.health(now).json(false),
            "mon_status": mon_status(&self.cluster, now),
        });
        let text = admin::json::print(&pong, Format::JsonPretty);
        let reply = OutMessage::new::<MPing>(denc::encode(&text)).with_tid(tid);
        self.send(link, reply);
    }

    /// Whether a request is meant for this cluster. Ceph drops others silently.
    fn is_ours(&self, fsid: Uuid) -> bool {
        let ours = self.cluster.state.fsid;
        if fsid != ours {
            tracing::warn!("a request for the cluster {fsid} is dropped, this one is {ours}");
        }
        fsid == ours
    }

    fn get_version(&mut self, link: LinkId, tid: u64, m: &MMonGetVersion) {
        let state = &self.cluster.state;
        let (oldest, newest) = match m.what.as_str() {
            "osdmap" => self.cluster.kept_maps(),
            "monmap" => (Epoch(1), state.monmap.epoch),
            "mgrmap" => (state.mgr_epoch, state.mgr_epoch),
            "mdsmap" | "fsmap" => (Epoch(1), Epoch(1)),
            what => {
                tracing::debug!("nobody knows the version of '{what}'");
                return;
            }
        };
        let reply = MMonGetVersionReply {
            handle: m.handle,
            newest: newest.0.into(),
            oldest: oldest.0.into(),
        };
        self.send(link, reply.encode().with_tid(tid));
    }

    /// There are no tickets without authentication, so that there is nothing to renew.
    fn renew_auth(&mut self, link: LinkId, tid: u64, m: &MAuth) {
        let Some(session) = self.cluster.sessions.get(&link) else { return };
        let global_id = session.peer.global_id;
        let reply = MAuthReply { protocol: m.protocol, global_id, ..MAuthReply::default() };
        self.send(link, reply.encode().with_tid(tid));
    }

    fn on_command(&mut self, now: Now, link: LinkId, tid: u64, m: MMonCommand) {
        let from = From { role: Role::Mon, link, tid };
        if m.fsid != self.cluster.state.fsid {
            let wrong = CommandError::not_permitted("wrong fsid");
            return self.answer(&from, &m.cmd.concat(), Format::Plain, Err(wrong));
        }
        self.run(now, from, &m.cmd.concat(), &m.data);
    }

    /// Carries out a command of `ceph`.
    fn run(&mut self, now: Now, from: From, text: &str, input: &Bytes) {
        let (handler, args) = match self.table.parse(text) {
            Ok((spec, args)) => (spec.def.handler, args),
            Err(e) => {
                let e = self.no_handler(from.role, text).unwrap_or(e);
                return self.answer(&from, text, Format::Plain, Err(e));
            }
        };
        self.counters.commands += 1;
        let peer = match from.role {
            Role::Mon => self.msgr.peer(from.link),
            Role::Mgr => self.mgr.peer(from.link),
        };
        let speaker = peer.map(|p| Speaker::of(p)).unwrap_or_default();
        tracing::debug!("{}: {text}", speaker.rank);
        let format = args.format();
        let call = Call { now, args, input: input.clone(), from: speaker };
        let reply = match handler {
            Handler::Read(f) => f(&self.cluster, &call),
            Handler::Write(f) => f(&mut self.cluster, &call),
            Handler::Look(ask, then) => match ask(&self.cluster, &call) {
                Ok(None) => then(&mut self.cluster, &call, &Ok(Found::default())),
                Ok(Some(question)) => {
                    let waiting = Waiting::Command(from, text.to_owned());
                    return self.ask_worker(now, waiting, question);
                }
                Err(e) => Err(e),
            },
            Handler::Descriptions => Ok(Answer::json(self.table.descriptions())),
            Handler::Map(f) => match self.wanted_epoch(&call.args) {
                Ok(None) => {
                    let map = self.cluster.state.osdmap.clone();
                    f(&self.cluster, &call, &map)
                }
                Ok(Some(epoch)) => {
                    let From { role, link, tid } = from;
                    let asked = Asked { role, link, tid, text: text.to_owned(), epoch };
                    return self.read_for_command(asked);
                }
                Err(e) => Err(e),
            },
        };
        self.answer(&from, text, format, reply);
    }

    /// What a mgr says of a command that it does not have (`DaemonServer.cc`). By these words clients know that
    /// they have to do without: ceph-csi then removes images itself.
    fn no_handler(&self, role: Role, text: &str) -> Option<CommandError> {
        let prefix = self.table.unknown_prefix(text).filter(|_| role == Role::Mgr)?;
        Some(CommandError::invalid(format_args!("No handler found for '{prefix}'")))
    }

    /// The old epoch that a command wants to see; `None` for the newest one. There is no epoch 0.
    fn wanted_epoch(&self, args: &Args) -> Result<Option<Epoch>, CommandError> {
        let newest = self.cluster.state.osdmap.epoch;
        let Some(wanted) = args.int("epoch") else { return Ok(None) };
        let none = || CommandError::not_found(format_args!("there is no map for epoch {wanted}"));
        let epoch = Epoch(u32::try_from(wanted).map_err(|_| none())?);
        if epoch > newest || epoch < self.cluster.state.first_epoch {
            return Err(none());
        }
        Ok(Some(epoch).filter(|e| *e != newest))
    }

    /// An old map is here that a command wants to see.
    pub(super) fn show_old_map(
        &mut self,
        now: Now,
        asked: &Asked,
        map: Result<OsdMap, CommandError>,
    ) {
        let from = From { role: asked.role, link: asked.link, tid: asked.tid };
        let Ok((spec, args)) = self.table.parse(&asked.text) else { return };
        let format = args.format();
        let call = Call { now, args, input: Bytes::new(), from: Speaker::default() };
        let reply = map.and_then(|map| match spec.def.handler {
            Handler::Map(f) => f(&self.cluster, &call, &map),
            _ => Err(CommandError::new(Errno::EINVAL, "command not known")),
        });
        self.answer(&from, &asked.text, format, reply);
    }

    pub(super) fn answer(&mut self, from: &From, text: &str, format: Format, reply: Reply) {
        let (result, outs, data) = reply.unwrap_or_else(Answer::from).into_reply(format);
        let message: OutMessage = match from.role {
            Role::Mon => {
                let version = u64::from(self.cluster.map().epoch.0);
                let paxos = PaxosHeader { version };
                MMonCommandAck { paxos, result, outs, cmd: vec![text.to_owned()], data }.encode()
            }
            Role::Mgr => MMgrCommandReply { result, outs, data }.encode(),
        };
        self.outbox.push(Output::Message(from.role, from.link, message.with_tid(from.tid)));
    }
}

/// Who asked.
#[derive(Debug)]
pub(super) struct From {
    role: Role,
    link: LinkId,
    tid: u64,
}
