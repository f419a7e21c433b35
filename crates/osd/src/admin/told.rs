//! What the mon says of options: the cluster's configuration, as far as it is for this OSD.

use crate::daemon::Daemon;
use admin::settings::{SettingError, Settings, Source};
use std::collections::BTreeMap;
use wire::msg::MConfig;

/// Values from the mon that are none of their options': no more than there are options. A mon of another version
/// may know other bounds, and what was set before an upgrade stays set.
#[derive(Debug, Default)]
pub struct PassedOver(BTreeMap<String, String>);

impl PassedOver {
    /// Takes over all that the mon says. Gives the options that changed, and what to warn of: with each change of
    /// the configuration the mon says everything again, but people are to be told once.
    fn take_over(
        &mut self,
        settings: &mut Settings,
        config: &BTreeMap<String, String>,
    ) -> (Vec<&'static str>, Vec<String>) {
        let (changed, refused) = settings.replace(Source::Mon, config);
        let before = std::mem::take(&mut self.0);
        let mut warnings = Vec::new();
        for (name, why) in refused {
            // What is set for everybody comes here, too: most of it is for clients.
            let SettingError::Bad(why) = why else { continue };
            let value = config.get(&name).cloned().unwrap_or_default();
            if before.get(&name) != Some(&value) {
                let stays = settings.show(&name).unwrap_or_default();
                warnings.push(format!(
                    "{name} = {value} from the cluster's configuration (see 'ceph config dump') is passed over, and \
                     it stays {stays}: {why}"
                ));
            }
            self.0.insert(name, value);
        }
        (changed, warnings)
    }
}

impl Daemon {
    /// The mon says what the cluster's configuration database has for us.
    pub(crate) fn apply_mon_config(&mut self, m: &MConfig) {
        let admin = &mut self.admin;
        let (changed, warnings) = admin.passed_over.take_over(&mut admin.settings, &m.config);
        for name in changed {
            let value = admin.settings.show(name).unwrap_or_default();
            tracing::info!("osd.{}: {name} is now {value}", self.cfg.id);
        }
        for warning in warnings {
            tracing::warn!("osd.{}: {warning}", self.cfg.id);
        }
        self.take_over_settings();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_mon_says_wrongly_is_warned_of_once() {
        let (mut passed_over, mut settings) = (PassedOver::default(), crate::known_settings());
        let mut take_over = |all: &[(&str, &str)]| {
            let config =
                all.iter().map(|(name, v)| ((*name).to_owned(), (*v).to_owned())).collect();
            passed_over.take_over(&mut settings, &config)
        };
        let bad = ("osd_recovery_max_active", "0");
        let (changed, warnings) =
            take_over(&[bad, ("osd_max_backfills", "3"), ("rbd_cache", "false")]);
        assert_eq!(changed, ["osd_max_backfills"]);
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        let expected = "osd_recovery_max_active = 0 from the cluster's configuration (see 'ceph config dump') is \
                        passed over, and it stays 16: Value '0' is below minimum 1";
        assert_eq!(warning, expected);
        assert_eq!(take_over(&[bad]), (vec!["osd_max_backfills"], Vec::new()));
        assert_eq!(take_over(&[]), (Vec::new(), Vec::new()));
        assert_eq!(take_over(&[bad]).1.len(), 1, "it was mended meanwhile");
    }
}
