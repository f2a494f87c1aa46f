//! What is shown to whoever lacks rights.

use std::process::{Command, Output};

use serde_json::Value;

use crate::namespaces::Container;
use crate::support::{Lab, Queues, queues, tuner, tuner_output};

/// `vhost-tuner` as a user without rights, but for these capabilities.
fn as_nobody(capabilities: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([
        format!("--inh-caps=-all{capabilities}"),
        format!("--ambient-caps=-all{capabilities}"),
    ]);
    command.arg(tuner(&[]).get_program());
    command.args(arguments).output().unwrap()
}

/// Queues of a process in `list`, and all notes in one text. It has to succeed.
fn listed(output: &Output, pid: &str) -> (Queues, String) {
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let notes = document["notes"].as_array().unwrap().iter();
    let notes: Vec<_> = notes.map(|note| note.as_str().unwrap()).collect();
    (queues(&document, pid), notes.join("; "))
}

#[test]
fn fewer_rights_make_a_shorter_list_and_a_sentence() {
    let lab = Lab::open(&["--mode", "idle"]);
    let list = ["list", "--json"];

    let (found, notes) = listed(&as_nobody("", &list), &lab.pid());
    assert!(found.is_empty());
    assert!(notes.contains("lacks CAP_BPF and CAP_PERFMON"), "{notes}");
    assert!(notes.contains("CAP_DAC_READ_SEARCH"), "{notes}");

    let (found, notes) = listed(&as_nobody(",+sys_ptrace", &list), &lab.pid());
    assert!(found.is_empty());
    assert!(
        notes.contains("CAP_BPF") && notes.contains("hidden"),
        "{notes}"
    );

    let rights = ",+sys_ptrace,+dac_read_search";
    let (found, notes) = listed(&as_nobody(rights, &list), &lab.pid());
    assert_eq!(found.len(), 2, "{notes}");
    let mut fds = found.keys().map(|(fd, _)| *fd);
    assert!(fds.all(|fd| lab.descriptors().contains(&fd)));
    assert!(found.values().all(|queue| queue["tap"].is_null()));
    assert!(
        notes.contains("CAP_BPF") && !notes.contains("hidden"),
        "{notes}"
    );

    // All that a list shows is had by BPF, netlink, and what everybody may read.
    let (found, notes) = listed(&as_nobody(",+cap_38,+cap_39", &list), &lab.pid());
    let (whole, _) = listed(&tuner_output(&list), &lab.pid());
    assert_eq!(notes, "");
    assert_eq!(found.len(), 2);
    for (key, queue) in &found {
        for same in [
            "vm",
            "tap",
            "mtu",
            "link_kind",
            "worker_tid",
            "worker_cpus",
            "owner",
        ] {
            assert_eq!(queue[same], whole[key][same], "{same}");
        }
    }

    // What needs more says so, and is refused.
    let output = as_nobody(",+cap_38,+cap_39", &["stat", "-c", "1"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("CAP_SYSLOG"), "{said}");
    lab.close();
}

#[test]
fn a_namespace_that_may_not_be_entered_is_said() {
    let container = Container::unnamed(&["--mode", "idle"]);
    for (rights, named) in [
        (",+cap_38,+cap_39", "CAP_SYS_PTRACE"),
        (",+cap_38,+cap_39,+sys_ptrace", "CAP_SYS_ADMIN"),
    ] {
        let output = as_nobody(rights, &["list", "--json"]);
        let (found, notes) = listed(&output, &container.pid);
        assert_eq!(found.len(), 2);
        for queue in found.values() {
            assert_eq!(queue["tap"], "vlab0");
            assert!(queue["mtu"].is_null() && queue["netns"].is_u64());
        }
        assert!(
            notes.contains("another network namespace") && notes.contains(named),
            "{notes}"
        );
    }
}
