//! What comes, goes and changes is told by events.

use std::process::{Command, Stdio};

use serde_json::Value;
use vhost_tuner::inventory::link::{Change, Table};

use crate::byhand::{Device, Queue};
use crate::module::Module;
use crate::support::{Lab, Stat, queues, run, tuner_json, until};

/// The rx queue of a device of this process in the next reading.
fn shown(stat: &Stat, device: &Device) -> Option<Value> {
    let ours = stat.queues(&std::process::id().to_string());
    ours.get(&(device.fd(), "rx".to_owned())).cloned()
}

/// Each step shows in the very next reading, long before anything is listed for
/// its own sake.
fn follows_each_step(stat: &Stat) {
    let device = Device::open();
    let queue = shown(stat, &device).expect("it was opened");
    assert!(queue["tap"].is_null() && queue["worker_tid"].is_null());
    device.own();
    let queue = shown(stat, &device).unwrap();
    assert!(queue["worker_tid"].is_u64(), "it is owned: {queue}");
    device.set_up();
    let tap = Queue::open("step0", false);
    device.backend(tap.fd());
    let queue = shown(stat, &device).unwrap();
    assert_eq!(queue["tap"], "step0");
    run("ip", &["link", "set", "step0", "name", "step1"]);
    let queue = shown(stat, &device).unwrap();
    assert_eq!(queue["tap"], "step1", "it was renamed");
    assert_eq!(queue["tap_dropped"], 0);
    device.backend(-1);
    let queue = shown(stat, &device).unwrap();
    assert!(queue["tap"].is_null(), "its backend is gone: {queue}");
    device.disown();
    let queue = shown(stat, &device).unwrap();
    assert!(queue["worker_tid"].is_null(), "it has no owner: {queue}");
    let pid = std::process::id().to_string();
    drop(device);
    stat.fresh();
    assert!(stat.queues(&pid).is_empty(), "it was closed");
}

#[test]
fn a_device_is_followed_from_opening_to_release() {
    follows_each_step(&Stat::start());
}

#[test]
fn it_is_followed_under_the_livepatch_too() {
    let stat = Stat::start();
    let module = Module::livepatching();
    follows_each_step(&stat);
    module.revert();
    follows_each_step(&stat);
}

#[test]
fn a_tap_that_goes_to_another_namespace_is_followed_there() {
    let stat = Stat::start();
    let device = Device::open();
    device.own();
    device.set_up();
    let tap = Queue::open("step0", false);
    device.backend(tap.fd());
    assert_eq!(shown(&stat, &device).unwrap()["tap"], "step0");
    run("ip", &["netns", "add", "elsewhere"]);
    run("ip", &["link", "set", "step0", "netns", "elsewhere"]);
    let inside = ["netns", "exec", "elsewhere", "ip", "link", "set", "step0"];
    run(
        "ip",
        &[&inside[..], &["name", "step2", "mtu", "1280"]].concat(),
    );
    let queue = shown(&stat, &device).unwrap();
    assert_eq!(queue["tap"], "step2", "{queue}");
    // Of two readings there.
    assert_eq!(shown(&stat, &device).unwrap()["tap_dropped"], 0);
    run(
        "ip",
        &["-n", "elsewhere", "link", "set", "step2", "name", "step3"],
    );
    assert_eq!(shown(&stat, &device).unwrap()["tap"], "step3");
    let list = queues(
        &tuner_json(&["list", "--json"]),
        &std::process::id().to_string(),
    );
    for queue in list.values() {
        assert_eq!(queue["tap"], "step3");
        assert_eq!(queue["mtu"], 1280);
        assert_eq!(queue["link_kind"], "tap");
    }
    // The namespace goes with its last user: no socket of ours keeps it.
    let (counted, there) = ("/proc/self/net/netlink", "the namespace is let go of");
    assert!(std::fs::exists(counted).unwrap());
    drop(device);
    drop(tap);
    let pid = stat.process().pid();
    let sockets = || {
        let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        folder
            .flatten()
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .filter(|target| target.to_string_lossy().starts_with("socket:"))
            .count()
    };
    until(there, || sockets() == 2);
    run("ip", &["netns", "del", "elsewhere"]);
}

/// Runs of the program that lists devices, in an interval.
fn listings(document: &Value) -> u64 {
    let costs = document["own_cost"].as_array().unwrap().iter();
    let of_devices = costs.filter(|cost| cost["program"] == "devices");
    of_devices.map(|cost| cost["runs"].as_u64().unwrap()).sum()
}

#[test]
fn nothing_is_listed_while_nothing_changes() {
    let mut lab = Lab::open(&["--mode", "echo", "--seconds", "100000"]);
    lab.go();
    let stat = Stat::with(&["--own-cost"]);
    // The second list, which is always read, is past.
    until("the list has settled", || {
        (0..5).all(|_| listings(&stat.fresh()) == 0)
    });
    for _ in 0..20 {
        let document = stat.process().next().unwrap();
        assert_eq!(listings(&document), 0, "{document}");
        assert_eq!(queues(&document, &lab.pid()).len(), 2);
        assert!(document["degraded"]["devices"].is_null());
    }
    // And the program would be counted, if it ran.
    let device = Device::open();
    assert!(shown(&stat, &device).is_some());
    let mut listed = 0;
    until("it is listed", || {
        listed += listings(&stat.process().next().unwrap());
        listed > 0
    });
    lab.stop();
    lab.result();
    lab.close();
}

/// More events than the socket holds: the table is right all the same.
#[test]
fn links_are_right_after_events_were_lost() {
    run("ip", &["link", "add", "many0", "type", "dummy"]);
    let mut table = Table::open().unwrap();
    let index = |table: &Table, name: &str| {
        let mut links = table.links().values();
        links
            .find(|link| link.name == name)
            .map(|link| link.ifindex)
    };
    let many = index(&table, "many0").unwrap();
    let mut lines = String::new();
    for round in 0..3000 {
        lines.push_str(&format!("link set many0 mtu {}\n", 1000 + round % 7));
    }
    lines.push_str("link set many0 name many1\nlink add many2 type dummy\n");
    let mut batch = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = batch.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, lines.as_bytes()).unwrap();
    drop(stdin);
    assert!(batch.wait().unwrap().success());
    let text = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    let drops = text.lines().skip(1).filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words[8].parse::<u64>().ok()
    });
    assert!(drops.sum::<u64>() > 0, "nothing was lost: {text}");
    let changes = table.follow().unwrap();
    assert_eq!(changes.get(&many), Some(&Change::Shown));
    assert_eq!(index(&table, "many1"), Some(many));
    let new = index(&table, "many2").unwrap();
    assert_eq!(changes.get(&new), Some(&Change::Shown));
    assert!(table.follow().unwrap().is_empty());
    run("ip", &["link", "del", "many1"]);
    run("ip", &["link", "del", "many2"]);
    let changes = table.follow().unwrap();
    assert_eq!(changes.get(&many), Some(&Change::Moved));
    assert_eq!(changes.get(&new), Some(&Change::Moved));
}
