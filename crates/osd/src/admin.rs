//! What an operator asks the OSD: the admin socket and `ceph tell`.

use crate::config::OsdConfig;
use crate::daemon::Daemon;
use io::Effects;
use io::net::NetEvent;
use wire::msg::MConfig;

/// The admin socket and the settings.
#[derive(Debug, Default)]
pub struct Admin {}

impl Admin {
    pub fn new(_cfg: &OsdConfig) -> Self {
        Admin {}
    }
    pub fn listen(&mut self, _fx: &mut Effects) {}
    pub fn apply_mon_config(&mut self, _m: &MConfig) {}
}

impl Daemon {
    pub(crate) fn on_admin(&mut self, _event: NetEvent, _fx: &mut Effects) {}
}
impl Daemon {
    pub(crate) fn on_command(
        &mut self,
        _link: wire::LinkId,
        _m: &wire::msg::Message,
        _fx: &mut Effects,
    ) {
    }
}
