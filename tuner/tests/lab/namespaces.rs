//! VMs in containers: other network, pid and mount namespaces.

use std::process::Command;

use serde_json::Value;

use crate::support::{Lab, Stat, kernel_is, queues, run, tuner_json};

/// The lab driver in namespaces of its own, which go with it.
pub(crate) struct Container {
    pub(crate) lab: Lab,
    /// The driver's process, by our numbers.
    pub(crate) pid: String,
    /// Name of its network namespace, if it has one.
    name: Option<&'static str>,
}

impl Container {
    /// One whose network namespace has a name.
    pub(crate) fn named(arguments: &[&str]) -> Self {
        let name = "container";
        run("ip", &["netns", "add", name]);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name, "unshare"]);
        Self::start(command, Some(name), arguments)
    }

    /// One whose network namespace is known to its own processes only.
    pub(crate) fn unnamed(arguments: &[&str]) -> Self {
        let mut command = Command::new("unshare");
        command.arg("--net");
        Self::start(command, None, arguments)
    }

    fn start(mut command: Command, name: Option<&'static str>, arguments: &[&str]) -> Self {
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg(Lab::program());
        let lab = Lab::open_by(command, arguments);
        let outer = lab.pid();
        let path = format!("/proc/{outer}/task/{outer}/children");
        let children = std::fs::read_to_string(path).unwrap();
        let pid = children.trim().to_owned();
        Self { lab, pid, name }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Some(name) = self.name {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Number of a process's namespace.
fn number(pid: &str, kind: &str) -> Value {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
    let text = link.to_string_lossy().into_owned();
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.trim_end_matches(']').parse::<u64>().unwrap().into()
}

#[test]
fn a_container_is_looked_into() {
    let mut container = Container::named(&["--mode", "rxflood", "--packets", "2000"]);
    let pid = container.pid.clone();
    assert_ne!(number(&pid, "net"), number("self", "net"));
    assert_ne!(number(&pid, "pid"), number("self", "pid"));
    let document = tuner_json(&["list", "--json"]);
    assert_eq!(document["notes"], serde_json::json!([]));
    let list = queues(&document, &pid);
    assert_eq!(list.len(), 2, "{document}");
    for queue in list.values() {
        assert_eq!(queue["vmm"], "vhost-lab");
        assert_eq!(queue["tap"], "vlab0");
        assert_eq!(queue["link_kind"], "tap");
        assert_eq!(queue["mtu"], 1500);
        assert_eq!(queue["up"], true);
        assert_eq!(queue["netns"], number(&pid, "net"));
        let worker = queue["worker_tid"].to_string();
        let comm = std::fs::read_to_string(format!("/proc/{worker}/comm")).unwrap();
        assert_eq!(queue["worker_comm"], comm.trim());
    }
    let stat = Stat::start();
    let result = container.lab.run();
    let queue = stat.queues(&pid)[&(list.keys().next().unwrap().0, "rx".to_owned())].clone();
    assert_eq!(
        queue["totals"]["packets"],
        result["pairs"][0]["rx"]["packets"]
    );
    assert_eq!(queue["tap_dropped"], 0);
    assert_eq!(queue["tap"], "vlab0");

    // From inside, everything has the container's own numbers.
    let mut inside = Command::new("nsenter");
    inside.args(["--target", &pid, "--pid", "--mount", "--net"]);
    inside.arg(crate::support::tuner(&[]).get_program());
    let output = inside.args(["list", "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = queues(&document, "1");
    assert_eq!(list.len(), 2, "{document}");
    for queue in list.values() {
        assert_eq!(queue["mtu"], 1500);
        assert_eq!(queue["owner"], true);
        // A kthread has no number there.
        if kernel_is("6.1") {
            assert!(queue["worker_tid"].is_null());
        } else {
            assert!(queue["worker_comm"].is_string(), "{queue}");
        }
    }
    assert!(
        document["notes"][0]
            .as_str()
            .unwrap()
            .contains("pid namespace")
    );
}
