//! Who is who.

use crate::support::{Lab, kernel_is, queues, tuner_json};

#[test]
fn a_device_with_its_queues_worker_and_tap() {
    let mut lab = Lab::open(&["--mode", "echo", "--packets", "100", "--pairs", "2"]);
    lab.run();
    let list = queues(&tuner_json(&["list", "--json"]), &lab.pid());
    assert_eq!(list.len(), 4);
    for queue in list.values() {
        assert_eq!(queue["tap"], "vlab0");
        assert_eq!(queue["link_kind"], "tap");
        assert_eq!(queue["vmm"], "vhost-lab");
        assert_eq!(queue["owner"], true);
        assert_eq!(queue["up"], true);
        assert_eq!(queue["ring_size"], 256);
        let worker = queue["worker_tid"].as_u64().unwrap();
        let comm = std::fs::read_to_string(format!("/proc/{worker}/comm")).unwrap();
        assert_eq!(comm.trim(), format!("vhost-{}", lab.pid()));
        // A kthread, or since 6.4 a thread of the process.
        let thread = std::fs::exists(format!("/proc/{}/task/{worker}", lab.pid())).unwrap();
        assert_eq!(queue["worker_kthread"], !thread);
        if kernel_is("6.1") {
            assert!(!thread);
        }
    }
    let workers: std::collections::BTreeSet<_> =
        list.values().map(|q| q["worker_tid"].as_u64()).collect();
    assert_eq!(workers.len(), 2, "one worker for each queue pair");
    lab.close();
}

#[test]
fn a_macvtap_is_named_and_told_from_a_tap() {
    let lab = Lab::open(&["--mode", "idle", "--backend", "macvtap"]);
    let list = queues(&tuner_json(&["list", "--json"]), &lab.pid());
    assert_eq!(list.len(), 2);
    for queue in list.values() {
        assert_eq!(queue["backend"], "macvtap");
        assert_eq!(queue["link_kind"], "macvtap");
        assert!(queue["tap"].is_string());
    }
    lab.close();
}

#[test]
fn a_host_without_vms_has_an_empty_list() {
    let list = tuner_json(&["list", "--json"]);
    assert_eq!(list["queues"], serde_json::json!([]));
    assert_eq!(list["notes"], serde_json::json!([]));
}
