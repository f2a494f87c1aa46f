//! What is set on many devices, read at once.

use std::collections::BTreeMap;

use tuner_common::module::Knobs;
use tuner_common::queue::TX;

use super::{ModuleError, Presence, read};
use crate::inventory::Device;

/// What the module says is set, by address of the device.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    known: BTreeMap<u64, Knobs>,
    /// Why something is not known though the devices are there.
    pub unknown: Option<String>,
}

impl Settings {
    /// Asks about each device. Nobody is asked on a stock vhost_net.
    #[must_use]
    pub fn of<'a>(devices: impl Iterator<Item = &'a Device>) -> Self {
        Self::with(Presence::find(), devices, read)
    }

    fn with<'a>(
        presence: Presence,
        devices: impl Iterator<Item = &'a Device>,
        ask: impl Fn(&Device, Presence) -> Result<Knobs, ModuleError>,
    ) -> Self {
        let mut settings = Self::default();
        if !presence.answers() {
            let why = match presence {
                Presence::Transition => "vhost-tuner's livepatch is just being applied or reverted",
                _ => "stock vhost_net has no such setting",
            };
            settings.unknown = Some(why.to_owned());
            return settings;
        }
        for device in devices {
            match ask(device, presence) {
                Ok(knobs) => {
                    settings.known.insert(device.net, knobs);
                }
                // It has ended since it was listed.
                Err(
                    ModuleError::Ended { .. }
                    | ModuleError::Closed { .. }
                    | ModuleError::Other { .. }
                    | ModuleError::Reused { .. },
                ) => {}
                Err(why) => {
                    settings
                        .unknown
                        .get_or_insert_with(|| format!("{}:{}: {why}", device.pid, device.fd));
                }
            }
        }
        settings
    }

    /// The cap in effect on a queue; only tx has one.
    #[must_use]
    pub fn tx_batched(&self, net: u64, direction: u32) -> Option<u32> {
        let knobs = self.known.get(&net).filter(|_| direction == TX)?;
        Some(knobs.tx_batched_now)
    }

    /// Whether polls of a device watch the other direction too.
    #[must_use]
    pub fn poll_peer(&self, net: u64) -> Option<bool> {
        Some(self.known.get(&net)?.poll_peer_now != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::device::tests::sample;

    fn devices() -> Vec<Device> {
        vec![
            sample(1, 42, 7, "web", "tap0"),
            sample(2, 42, 9, "web", "tap1"),
        ]
    }

    #[test]
    fn a_stock_vhost_net_is_never_asked() {
        for presence in [Presence::None, Presence::Transition] {
            let settings = Settings::with(presence, devices().iter(), |_, _| {
                panic!("asked although the module is not there")
            });
            assert!(settings.unknown.is_some());
            assert_eq!(settings.tx_batched(1, TX), None);
        }
    }

    #[test]
    fn only_tx_has_a_cap_and_both_watch_the_other() {
        let settings = Settings::with(Presence::Livepatched, devices().iter(), |_, _| {
            Ok(Knobs {
                tx_batched_now: 8,
                poll_peer_now: 0,
                ..Knobs::request()
            })
        });
        assert_eq!(settings.unknown, None);
        assert_eq!(settings.tx_batched(1, TX), Some(8));
        assert_eq!(settings.tx_batched(1, 0), None);
        assert_eq!(settings.poll_peer(2), Some(false));
        assert_eq!(settings.poll_peer(3), None);
    }

    #[test]
    fn a_device_that_ended_needs_no_reason_and_a_refusal_does() {
        let ask = |device: &Device, _| match device.net {
            1 => Err(ModuleError::Ended { pid: 42 }),
            _ => Err(ModuleError::NoCapability),
        };
        let of = |devices: &[Device]| Settings::with(Presence::Replaced, devices.iter(), ask);
        assert_eq!(of(&devices()[..1]).unknown, None);
        let why = of(&devices()).unknown.unwrap();
        assert!(
            why.contains("42:9") && why.contains("CAP_NET_ADMIN"),
            "{why}"
        );
    }
}
