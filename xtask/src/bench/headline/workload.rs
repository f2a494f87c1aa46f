//! What is measured, and at which settings.

use clap::ValueEnum;

use super::setting::Setting;

/// One kind of traffic, as `--only` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// TCP from the host to the guest, as in the patch
    Tcp,
    /// Small questions and answers over TCP
    TcpRr,
    /// Round trips with a guest that sleeps on its interrupt: each direction's
    /// work comes from the other's, so this shows most of what poll_peer does
    Echo,
    /// Packets to a guest that sleeps on its interrupt
    Rxflood,
    /// The same while it sends
    Bidir,
    /// Packets of a guest that publishes 32 at a time
    Txflood,
    /// Packets of DPDK's testpmd
    Flood,
}

impl Name {
    /// As `--only` takes it.
    pub(super) fn shown(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Who makes it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Traffic {
    /// The lab driver, with these arguments.
    Lab(&'static [&'static str]),
    /// testpmd.
    Flood,
    /// iperf3 through testpmd, with these arguments.
    Tcp(&'static [&'static str]),
    /// Our own connections through testpmd.
    TcpRoundTrips { connections: usize, bytes: usize },
}

/// What of it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    RoundTrips,
    /// Packets to the guest.
    Received,
    /// Packets from the guest.
    Sent,
    /// Bits to the guest.
    Throughput,
}

impl Figure {
    /// Of so many a second.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::RoundTrips => "trips/s",
            Self::Received => "rx pkt/s",
            Self::Sent => "tx pkt/s",
            Self::Throughput => "Mbit/s",
        }
    }
}

/// One setting against another of the same workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    pub(super) setting: usize,
    pub(super) against: usize,
    /// What the patch's author measured between the two.
    pub(super) claim: Option<&'static str>,
}

/// Traffic and what it is measured at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) name: Name,
    pub(super) what: &'static str,
    pub(super) traffic: Traffic,
    pub(super) figure: Figure,
    pub(super) settings: &'static [Setting],
    pub(super) comparisons: &'static [Comparison],
}

const POLLING: &[Setting] = &[
    Setting::polling("poll_peer off, 100 µs", 100, false),
    Setting::polling("poll_peer on, 100 µs", 100, true),
    Setting::polling("no polls", 0, true),
];

const fn polling(claim: Option<&'static str>) -> [Comparison; 2] {
    [
        Comparison {
            setting: 1,
            against: 0,
            claim,
        },
        Comparison {
            setting: 1,
            against: 2,
            claim: None,
        },
    ]
}

const OF_POLLING: &[Comparison] = &polling(None);
const OF_POLLING_AS_IN_THE_PATCH: &[Comparison] = &polling(Some("1.66 (12.7 to 21.1 Gbit/s)"));

const BATCHING: &[Setting] = &[
    Setting::batching("tx_batched 1", 1),
    Setting::batching("tx_batched 16", 16),
    Setting::batching("tx_batched 64", 64),
];

const OF_BATCHING: &[Comparison] = &[
    Comparison {
        setting: 1,
        against: 0,
        claim: Some("1.16 (pktgen, packets/s)"),
    },
    Comparison {
        setting: 2,
        against: 0,
        claim: None,
    },
];

/// All of them, in the order of the table.
pub(super) const ALL: &[Workload] = &[
    Workload {
        name: Name::Tcp,
        what: "iperf3 -P 10 -M 1400, host to guest, through testpmd",
        traffic: Traffic::Tcp(&["-P", "10", "-M", "1400"]),
        figure: Figure::Throughput,
        settings: POLLING,
        comparisons: OF_POLLING_AS_IN_THE_PATCH,
    },
    Workload {
        name: Name::TcpRr,
        what: "TCP questions and answers of 64 bytes on 1 connection, through testpmd",
        traffic: Traffic::TcpRoundTrips {
            connections: 1,
            bytes: 64,
        },
        figure: Figure::RoundTrips,
        settings: POLLING,
        comparisons: OF_POLLING,
    },
    Workload {
        name: Name::Echo,
        what: "the lab driver's echo, one question under way",
        traffic: Traffic::Lab(&["--mode", "echo"]),
        figure: Figure::RoundTrips,
        settings: POLLING,
        comparisons: OF_POLLING,
    },
    Workload {
        name: Name::Rxflood,
        what: "the lab driver's rxflood",
        traffic: Traffic::Lab(&["--mode", "rxflood"]),
        figure: Figure::Received,
        settings: POLLING,
        comparisons: OF_POLLING,
    },
    Workload {
        name: Name::Bidir,
        what: "the lab driver's bidir",
        traffic: Traffic::Lab(&["--mode", "bidir"]),
        figure: Figure::Received,
        settings: POLLING,
        comparisons: OF_POLLING,
    },
    Workload {
        name: Name::Txflood,
        what: "the lab driver's txflood, 32 packets published at a time",
        traffic: Traffic::Lab(&["--mode", "txflood", "--publish", "32"]),
        figure: Figure::Sent,
        settings: BATCHING,
        comparisons: OF_BATCHING,
    },
    Workload {
        name: Name::Flood,
        what: "testpmd's txonly, 64-byte packets",
        traffic: Traffic::Flood,
        figure: Figure::Sent,
        settings: BATCHING,
        comparisons: OF_BATCHING,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_workload() {
        for name in Name::value_variants() {
            let found = ALL.iter().filter(|workload| workload.name == *name);
            assert_eq!(found.count(), 1, "{name:?}");
        }
    }

    #[test]
    fn comparisons_are_of_two_settings_that_are_measured() {
        for workload in ALL {
            for comparison in workload.comparisons {
                assert_ne!(comparison.setting, comparison.against);
                assert!(comparison.setting < workload.settings.len());
                assert!(comparison.against < workload.settings.len());
            }
        }
    }
}
