//! The command line on whatever system the tests run on.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vhost-tuner"))
        .args(arguments)
        .output()
        .expect("vhost-tuner starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn check_says_what_is_missing_and_exits_accordingly() {
    let output = run(&["check", "--json"]);
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("check prints JSON");
    let requirements = document["requirements"].as_array().expect("a list");
    let lacking = requirements
        .iter()
        .any(|r| r["met"] == false && r["essential"] == true);
    assert_eq!(document["can_measure"], !lacking, "{document}");
    assert_eq!(output.status.code(), Some(if lacking { 3 } else { 0 }));
    for requirement in requirements {
        let sentence = requirement["sentence"].as_str().expect("a sentence");
        assert!(
            sentence.ends_with('.') && sentence.contains(' '),
            "{sentence}"
        );
    }
    assert_eq!(text(&output.stderr).is_empty(), !lacking);
}

#[test]
fn where_nothing_can_be_measured_stat_says_so_and_exits_3() {
    if run(&["check"]).status.success() {
        return;
    }
    let output = run(&["stat", "-c", "1"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("nothing can be measured"));
    assert!(output.stdout.is_empty());
    let output = run(&["set", "x", "--busyloop-rx", "1"]);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn list_falls_back_to_procfs_and_says_so() {
    if run(&["check"]).status.success() {
        return;
    }
    let output = run(&["list", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("list prints JSON");
    assert_eq!(document["schema"], 1);
    let notes = document["notes"].to_string();
    assert!(notes.contains("only what /proc shows"), "{notes}");
    let output = run(&["list", "no-such-vm"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no-such-vm"));
}

#[test]
fn what_only_the_module_has_is_refused_without_it() {
    let parameters = "/sys/module/vhost_net/parameters/tx_batched";
    let livepatch = "/sys/module/livepatch_vhost_net";
    if [parameters, livepatch]
        .iter()
        .any(|path| std::path::Path::new(path).exists())
    {
        return;
    }
    for option in [["--tx-batched", "8"], ["--poll-peer", "off"]] {
        let with_timeout = ["set", "x", "--busyloop-rx", "1", option[0], option[1]];
        let output = run(&with_timeout);
        assert_eq!(output.status.code(), Some(3), "{option:?}");
        let said = text(&output.stderr);
        assert!(said.contains("vhost-tuner module livepatch"), "{said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn usage_errors_exit_2() {
    for arguments in [
        &["set", "x"][..],
        &["set", "--busyloop-rx", "1"],
        &["set", "x", "--all", "--busyloop-rx", "1"],
        &["set", "x", "--busyloop-rx", "10001"],
        &["set", "x", "--busyloop-rx", "1000001", "--force"],
        &["undo"],
        &["undo", "x", "--all"],
        &["set", "x", "--tx-batched", "0"],
        &["set", "x", "--tx-batched", "65"],
        &["set", "x", "--poll-peer", "maybe"],
        &["stat", "-i", "0"],
        &["simulate", "--workload", "nothing"],
        &["simulate", "--policy", "nothing"],
        &["simulate", "--look", "0"],
        &["stat", "--json", "--json-lines"],
        &["frobnicate"],
    ] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_timeout_that_takes_force_says_so() {
    let output = run(&["set", "x", "--busyloop-tx", "10001"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("--force") && said.contains("10001"), "{said}");
}

#[test]
fn simulate_needs_nothing_of_the_system_and_repeats_itself() {
    let run = || {
        let output = run(&[
            "simulate",
            "--workload",
            "unlucky-190",
            "--seconds",
            "0.5",
            "--look",
            "0.1,1",
            "--json",
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("simulate prints JSON");
        document
    };
    let document = run();
    assert_eq!(document["schema"], 1);
    let rows = document["workloads"][0]["rows"].as_array().expect("rows");
    let cost = |policy: &str| {
        let mut rows = rows.iter().filter(|row| row["policy"] == policy);
        rows.next().expect(policy)["cost_ms"]
            .as_f64()
            .expect("a number")
    };
    assert!(cost("ours") * 2.0 < cost("halt-poll"));
    assert!(cost("clairvoyant") <= cost("best-fixed"));
    let costs = |document: &serde_json::Value| -> Vec<String> {
        let rows = document["workloads"][0]["rows"].as_array().expect("rows");
        rows.iter().map(|row| row["cost_ms"].to_string()).collect()
    };
    assert_eq!(costs(&document), costs(&run()));
}

#[test]
fn simulate_names_its_workloads() {
    let output = run(&["simulate", "--list", "--json"]);
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("simulate prints JSON");
    let workloads = document["workloads"].as_array().expect("workloads");
    assert!(
        workloads
            .iter()
            .any(|workload| workload["workload"] == "bursts")
    );
}
