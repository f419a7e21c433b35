//! What is asked of this daemon itself.

use super::{Output, Role, Server};
use crate::commands::Tell;
use admin::common::Common;
use admin::{AdminRequest, Answer, CommandError};
use io::Now;
use io::net::ConnId;
use wire::LinkId;
use wire::msg::{MCommand, MCommandReply, Payload};

impl Server {
    pub(super) fn on_admin(&mut self, now: Now, conn: ConnId, request: AdminRequest) {
        let result = self.told(now, request.args);
        self.outbox.push(Output::Admin(conn, result));
    }

    /// `ceph tell mon.NAME`, `ceph tell mgr.NAME`.
    pub(super) fn on_tell(&mut self, now: Now, role: Role, link: LinkId, tid: u64, m: &MCommand) {
        let text = m.cmd.concat();
        let (result, format) = match self.tell.parse(&text).map(|(_, args)| args) {
            Ok(args) => {
                let format = match args.format() {
                    // What it answers is JSON; for people it is indented.
                    admin::Format::Plain => admin::Format::JsonPretty,
                    format => format,
                };
                (self.told(now, args.raw().clone()), format)
            }
            Err(e) => (Err(e), admin::Format::Plain),
        };
        let (result, outs, data) = result.unwrap_or_else(Answer::from).into_reply(format);
        let reply = MCommandReply { result, outs, data }.encode().with_tid(tid);
        self.outbox.push(Output::Message(role, link, reply));
    }

    fn told(
        &mut self,
        now: Now,
        args: serde_json::Map<String, serde_json::Value>,
    ) -> Result<Answer, CommandError> {
        let loggers = self.loggers();
        let (spec, args) = self.tell.find(args)?;
        if matches!(spec.def.handler, Tell::Common(Common::LogReopen)) {
            self.outbox.push(Output::ReopenLog);
        }
        self.cluster.told(now, &self.tell, spec.def.handler, &args, || loggers)
    }
}
