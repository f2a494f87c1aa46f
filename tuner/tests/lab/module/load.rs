//! Putting the module in the stock one's place, and taking it away.

use super::{Module, file, folder, knobs, rounds};
use crate::support::{Lab, tuner_json, tuner_output};

pub(super) fn state() -> String {
    let status = tuner_json(&["module", "status", "--dir", &folder(), "--json"]);
    status["state"].as_str().unwrap().to_owned()
}

#[test]
fn status_says_what_runs() {
    assert_eq!(state(), "stock");
    let module = Module::replacing();
    assert_eq!(state(), "replaced");
    module.revert();
    assert_eq!(state(), "stock");
}

#[test]
fn it_comes_and_goes_with_devices_opened_in_between() {
    for _ in 0..rounds(5, 100) {
        let module = Module::replacing();
        let mut lab = Lab::open(&["--mode", "echo", "--packets", "50", "--pairs", "2"]);
        let fd = lab.descriptors()[0];
        lab.run();
        assert_eq!(knobs(&lab, fd, None).states, 2);
        lab.close();
        module.revert();
    }
    assert_eq!(state(), "stock");
}

#[test]
fn a_module_in_use_is_not_replaced() {
    let mut lab = Lab::open(&["--mode", "echo", "--packets", "100"]);
    let output = tuner_output(&["module", "load", "--dir", &folder()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains(&lab.pid()) && said.contains("livepatch"),
        "{said}"
    );
    assert_eq!(state(), "stock");
    lab.run();
    lab.close();
}

#[test]
fn a_replacement_in_use_is_not_reverted() {
    let module = Module::replacing();
    let mut lab = Lab::open(&["--mode", "echo", "--packets", "100"]);
    let output = tuner_output(&["module", "revert"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&lab.pid()), "{said}");
    assert_eq!(state(), "replaced");
    lab.run();
    lab.close();
    module.revert();
}

#[test]
fn a_livepatch_is_not_put_on_the_replacement() {
    let _module = Module::replacing();
    let output = tuner_output(&["module", "livepatch", "--dir", &folder()]);
    assert!(!output.status.success() || state() == "replaced");
    assert_eq!(state(), "replaced");
    // The module itself refuses as well.
    let inserted = std::process::Command::new("insmod")
        .arg(file("livepatch-vhost-net.ko"))
        .output()
        .unwrap();
    assert!(!inserted.status.success());
    assert_eq!(state(), "replaced");
}

#[test]
fn zero_copy_is_not_patched() {
    crate::support::run("rmmod", &["vhost_net"]);
    crate::support::run("modprobe", &["vhost_net", "experimental_zcopytx=1"]);
    let output = tuner_output(&["module", "livepatch", "--dir", &folder()]);
    let inserted = std::process::Command::new("insmod")
        .arg(file("livepatch-vhost-net.ko"))
        .output()
        .unwrap();
    let now = state();
    crate::support::run("rmmod", &["vhost_net"]);
    crate::support::run("modprobe", &["vhost_net"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("experimental_zcopytx"), "{said}");
    assert!(!inserted.status.success());
    assert_eq!(now, "stock");
}

#[test]
fn without_built_modules_it_says_where_it_looked() {
    for command in ["load", "livepatch"] {
        let output = tuner_output(&["module", command, "--dir", "/nonexistent"]);
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("/nonexistent"), "{said}");
        assert_eq!(state(), "stock");
    }
}
