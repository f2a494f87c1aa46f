//! Keeps a VM from outliving us, however we end.

use std::{path::Path, process::Command, sync::LazyLock};

use crate::command;

/// A PID namespace: when its first process dies, the kernel kills the rest.
const NAMESPACE: [&str; 3] = ["--pid", "--fork", "--kill-child"];
/// The same for those who are not root.
const USER_NAMESPACE: [&str; 4] = ["--map-current-user", "--pid", "--fork", "--kill-child"];

/// The options for `unshare` that work here; none where none do.
static OPTIONS: LazyLock<&[&str]> = LazyLock::new(|| {
    let allowed = |options: &[&str]| {
        let mut unshare = Command::new("unshare");
        command::output(unshare.args(options).args(["--", "true"])).is_ok()
    };
    for options in [&NAMESPACE[..], &USER_NAMESPACE] {
        if allowed(options) {
            return options;
        }
    }
    eprintln!("[lab] no PID namespace to be had: should this be killed hard, its VM would go on");
    &[]
});

/// The program with nothing that it starts able to outlive it.
pub(super) fn caged(program: &Path) -> Command {
    if OPTIONS.is_empty() {
        return Command::new(program);
    }
    let mut unshare = Command::new("unshare");
    unshare.args(*OPTIONS).arg("--").arg(program);
    unshare
}
