use tuner_common::hist::time_bucket;

use super::*;
use crate::model::TimeHistogram;
use crate::policy::config::Override;
use crate::policy::look::{Backend, PairKey, WorkerLook};

fn look(gaps: Option<&[(u64, u64)]>) -> PairLook {
    let vring = || {
        let gaps = gaps.map(|gaps| {
            let mut histogram = TimeHistogram::default();
            for (us, count) in gaps {
                histogram.add(time_bucket(us * 1000), *count);
            }
            histogram
        });
        VringLook {
            timeout: 0,
            gaps,
            packets: 100_000,
            run_ns: 100_000_000,
            wakes: Some(10_000),
            wake_wait_ns: Some(80_000_000),
            spin_ns: Some(0),
            batches: Some(25_000),
            missed: 0,
        }
    };
    PairLook {
        key: PairKey {
            pid: 1,
            fd: 2,
            device: 3,
        },
        vm: "web1".to_owned(),
        backend: Backend::Module,
        interval_ns: 10_000_000_000,
        worker: WorkerLook::default(),
        tx_batched: Some(64),
        rx: vring(),
        tx: vring(),
    }
}

fn choice(explanation: &Explanation, name: ProfileName) -> &Choice {
    let mut choices = explanation.vrings[0].choices.iter();
    choices.find(|choice| choice.profile == name).unwrap()
}

#[test]
fn every_candidate_is_priced_and_every_profile_chooses_the_cheapest() {
    let config = Config::default();
    let explanation = explain(&config, &look(Some(&[(30, 10_000)])));
    let vring = &explanation.vrings[0];
    assert_eq!(vring.curve.len(), config.busyloop.candidates.len());
    // 10,000 gaps of 30 µs in 10 s.
    let longest = vring.curve.last().unwrap();
    assert!((longest.spin_percent - 3.0).abs() < 0.2, "{longest:?}");
    assert!((vring.curve[0].wakes_per_s - 1000.0).abs() < 1e-6);
    assert_eq!(
        choice(&explanation, ProfileName::Latency).timeout_us,
        Some(30)
    );
    assert_eq!(
        choice(&explanation, ProfileName::Efficiency).timeout_us,
        Some(0)
    );
    for choice in &vring.choices {
        let cost = |priced: &Priced| priced.cost_us[choice.profile.name()];
        let chosen = vring
            .curve
            .iter()
            .find(|p| Some(p.timeout_us) == choice.timeout_us);
        let bounds = config.profiles.get(choice.profile).timeout;
        for priced in vring.curve.iter().filter(|p| bounds.hold(p.timeout_us)) {
            assert!(cost(chosen.unwrap()) <= cost(priced) * 1.000_01);
        }
    }
}

#[test]
fn what_is_not_known_is_said_and_nothing_is_chosen() {
    let unknown = explain(&Config::default(), &look(None));
    assert_eq!(unknown.vrings[0].gaps, None);
    assert!(unknown.vrings[0].curve.is_empty());
    for choice in &unknown.vrings[0].choices {
        assert_eq!(choice.timeout_us, None);
        assert_eq!(choice.sentence, "The gaps are not known.");
    }
    let few = explain(&Config::default(), &look(Some(&[(30, 3)])));
    let choice = choice(&few, ProfileName::Latency);
    assert_eq!(choice.timeout_us, None);
    assert!(choice.sentence.contains("too few"), "{}", choice.sentence);
}

#[test]
fn overrides_count() {
    let config = Config {
        overrides: vec![Override {
            vm: "web*".to_owned(),
            pin_busyloop_rx: Some(33),
            wake_us: Some(80.0),
            ..Override::default()
        }],
        ..Config::default()
    };
    let explanation = explain(&config, &look(Some(&[(30, 10_000)])));
    for choice in &explanation.vrings[0].choices {
        assert_eq!(choice.timeout_us, Some(33));
    }
    for choice in &explanation.vrings[1].choices {
        assert!((choice.wake_us - 80.0).abs() < 1.0);
    }
}

#[test]
fn the_cap_is_explained_where_the_module_is() {
    let explanation = explain(&Config::default(), &look(Some(&[(30, 10_000)])));
    assert_eq!(explanation.tx_batched.len(), 3);
    let mut without = look(Some(&[(30, 10_000)]));
    without.tx_batched = None;
    assert!(explain(&Config::default(), &without).tx_batched.is_empty());
    let mut unknown = look(Some(&[(30, 10_000)]));
    unknown.tx.batches = None;
    assert!(explain(&Config::default(), &unknown).tx_batched.is_empty());
}

#[test]
fn the_text_marks_what_each_profile_chooses() {
    let text = explain(&Config::default(), &look(Some(&[(30, 10_000)]))).to_string();
    assert!(text.contains("web1 rx: 0 is set"), "{text}");
    let thirty = text
        .lines()
        .find(|line| line.trim_start().starts_with("30 "));
    assert!(thirty.is_some_and(|line| line.contains('*')), "{text}");
    assert!(
        text.contains("Spinning up to 30 catches 100 % of the gaps"),
        "{text}"
    );
    assert!(text.contains("Sleeping at once costs"), "{text}");
}
