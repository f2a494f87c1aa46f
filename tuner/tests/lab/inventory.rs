//! Who is who.

use std::process::Command;

use crate::byhand::{Device, Queue};
use crate::support::{Lab, kernel_is, queues, run, tuner_json};

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
        let stat = std::fs::read_to_string(format!("/proc/{worker}/stat")).unwrap();
        let nice = stat.split_whitespace().nth(18).unwrap();
        assert_eq!(queue["worker_nice"].to_string(), nice);
        assert!(queue["worker_cpu"].is_u64() && queue["worker_run_ns"].as_u64() > Some(0));
        assert!(queue["worker_wait_ns"].is_u64());
        assert!(queue["worker_cgroup"].as_str().unwrap().starts_with('/'));
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

/// Whatever stage a device is in, it is shown as it is.
#[test]
fn devices_that_are_not_running_are_shown_for_what_they_are() {
    run("modprobe", &["vhost_vsock"]);
    let other = std::fs::File::open("/dev/vhost-vsock").unwrap();
    let opened = Device::open();
    let owned = Device::open();
    owned.own();
    // A kernel thread, also since workers are threads of the process.
    let kthreaded = Device::open();
    kthreaded.ask_for_a_kthread();
    kthreaded.own();
    let pairs = [(); 3].map(|()| {
        let device = Device::open();
        device.own();
        device.set_up();
        let queue = Queue::open("byhand0", true);
        device.backend(queue.fd());
        (device, queue)
    });
    pairs[1].1.enable(false);
    // Opened here, given to the lab driver and owned by it, as libvirt does it.
    let given = Device::open();
    let inherited = given.inherited();
    let number = std::os::fd::AsRawFd::as_raw_fd(&inherited).to_string();
    let lab = Lab::open(&["--mode", "idle", "--vhost-fd", &number]);
    drop(inherited);

    let document = tuner_json(&["list", "--json"]);
    let ours = queues(&document, &std::process::id().to_string());
    let of = |device: &Device, direction: &str| ours[&(device.fd(), direction.to_owned())].clone();
    for direction in ["rx", "tx"] {
        let queue = of(&opened, direction);
        assert_eq!(queue["owner"], false);
        assert_eq!(queue["backend"], "none");
        for unknown in [
            "tap",
            "netns",
            "queue_enabled",
            "mtu",
            "worker_tid",
            "worker_nice",
        ] {
            assert!(queue[unknown].is_null(), "{unknown}: {queue}");
        }
        let queue = of(&owned, direction);
        assert_eq!(queue["owner"], true);
        assert_eq!(queue["backend"], "none");
        assert!(queue["worker_tid"].is_u64() && queue["tap"].is_null());
        assert_eq!(queue["worker_kthread"], kernel_is("6.1"));
        let queue = of(&kthreaded, direction);
        assert_eq!(queue["worker_kthread"], true, "{queue}");
        // Called after the thread that made this process the owner.
        // SAFETY: takes nothing and cannot fail.
        let comm = format!("vhost-{}", unsafe { libc::gettid() });
        assert_eq!(queue["worker_comm"].as_str(), Some(comm.as_str()));
        for (at, (device, _)) in pairs.iter().enumerate() {
            let queue = of(device, direction);
            assert_eq!(queue["tap"], "byhand0");
            assert_eq!(queue["ring_size"], 16);
            assert_eq!(queue["queue_enabled"], at != 1, "{queue}");
        }
    }
    assert_eq!(ours.len(), 12, "{document}");
    assert!(!ours.keys().any(|(fd, _)| *fd == given.fd()));
    let labs = queues(&document, &lab.pid());
    assert_eq!(labs.len(), 2);
    assert!(labs.values().all(|queue| queue["owner"] == true));
    assert_eq!(document["queues"].as_array().unwrap().len(), 14);
    lab.close();
    drop(other);
    let _ = Command::new("rmmod").arg("vhost_vsock").status();
}

#[test]
fn a_host_without_vms_has_an_empty_list() {
    let list = tuner_json(&["list", "--json"]);
    assert_eq!(list["queues"], serde_json::json!([]));
    assert_eq!(list["notes"], serde_json::json!([]));
}
