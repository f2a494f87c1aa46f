//! What the operator calls a VM, from the command line of the process that
//! runs it.

use std::{borrow::Cow, path::PathBuf};

use super::{ProcError, ProcStat, read};

/// Which program runs the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vmm {
    /// QEMU, started by hand, by libvirt or by another manager.
    Qemu,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// crosvm.
    Crosvm,
    /// DPDK with virtio-user on `/dev/vhost-net`: no VM, the same queues.
    Dpdk,
    /// Our own lab driver.
    Lab,
    /// Anything else that opened `/dev/vhost-net`.
    Other,
}

impl Vmm {
    /// The word for it in JSON and on screen.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::CloudHypervisor => "cloud-hypervisor",
            Self::Crosvm => "crosvm",
            Self::Dpdk => "dpdk",
            Self::Lab => "vhost-lab",
            Self::Other => "other",
        }
    }
}

/// A VM's name and the program that runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmName {
    /// The name as given on the command line, else the command name. Not
    /// unique: two VMs may carry the same.
    pub name: String,
    /// Which program it is.
    pub vmm: Vmm,
}

impl VmName {
    /// The name of process `pid`, whose command name is `comm`; that alone
    /// where the command line is hidden or the process has ended.
    #[must_use]
    pub fn of(pid: i32, comm: &str) -> Self {
        let cmdline = read(&PathBuf::from(format!("/proc/{pid}/cmdline")));
        vm_name_from(&cmdline.unwrap_or_default(), comm)
    }
}

/// Reads the name of process `pid` from `/proc/PID/cmdline` and
/// `/proc/PID/stat`. Both are readable for everybody unless procfs is mounted
/// with `hidepid`, and both are those of the process whatever mount namespace it
/// is in.
///
/// # Errors
///
/// [`ProcError::Gone`] when the process has ended.
pub fn vm_name(pid: i32) -> Result<VmName, ProcError> {
    let comm = ProcStat::of_process(pid)?.comm;
    Ok(VmName::of(pid, &comm))
}

/// Finds the name in a command line, NUL between arguments as in
/// `/proc/PID/cmdline`. A process may overwrite that text: whatever it holds,
/// the answer falls back to `comm`.
pub fn vm_name_from(cmdline: &[u8], comm: &str) -> VmName {
    let args: Vec<Cow<'_, str>> = cmdline
        .split(|&byte| byte == 0)
        .map(String::from_utf8_lossy)
        .collect();
    // Managers may start a program under another name (`exec -a microvm@web1`),
    // and some systems wrap it (`.qemu-system-x86_64-wrapped`).
    let program = args.first().map_or("", |arg| base_name(arg));
    let is = |known: fn(&str) -> bool| known(program) || known(comm.trim_start_matches('.'));
    let last = |names: &[&str]| options(&args, names).next_back().map(str::to_owned);
    let (vmm, name) = if is(|program| program == "vhost-lab") {
        (Vmm::Lab, None)
    } else if is(is_qemu) {
        // Several are put together, and the last name counts.
        let names = options(&args, &["-name", "--name"]);
        (Vmm::Qemu, names.filter_map(qemu_name).next_back())
    } else if is(is_cloud_hypervisor) {
        let socket = options(&args, &["--api-socket"]).next_back();
        (Vmm::CloudHypervisor, socket.and_then(socket_name))
    } else if is(|program| program == "crosvm") {
        let socket = || options(&args, &["--socket", "-s"]).next_back();
        let name = last(&["--name"]).or_else(|| socket().and_then(socket_name));
        (Vmm::Crosvm, name)
    } else if has_virtio_user(&args) {
        (Vmm::Dpdk, last(&["--file-prefix"]))
    } else {
        // Kata's own VMM, StratoVirt, kvmtool and others agree on these.
        (Vmm::Other, last(&["--name", "-name", "--id", "-id"]))
    };
    VmName {
        name: name
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| comm.to_owned()),
        vmm,
    }
}

/// Last part of a path; the whole of it when there is no slash.
fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `qemu-system-x86_64` and its likes, RHEL's `qemu-kvm`, Debian's and
/// Proxmox's `kvm`.
fn is_qemu(program: &str) -> bool {
    program.starts_with("qemu-system-") || matches!(program, "qemu-kvm" | "kvm" | "qemu")
}

/// `cloud-hypervisor`, also as the kernel cuts it off, and the builds of it that
/// are released under longer names (`cloud-hypervisor-static`).
fn is_cloud_hypervisor(program: &str) -> bool {
    program.starts_with("cloud-hypervisor") || program == "cloud-hyperviso"
}

/// Values of the options called one of `names`, given as `--x value` or as
/// `--x=value`, in order. Mostly the last one counts.
fn options<'a>(
    args: &'a [Cow<'_, str>],
    names: &[&str],
) -> impl DoubleEndedIterator<Item = &'a str> {
    args.iter()
        .enumerate()
        .skip(1)
        .filter_map(move |(at, arg)| {
            names.iter().find_map(|name| match arg.strip_prefix(name)? {
                "" => args.get(at + 1).map(AsRef::as_ref),
                rest => rest.strip_prefix('='),
            })
        })
}

/// QEMU's `-name [guest=]NAME[,process=…][,debug-threads=on]`; a comma inside
/// the name is written twice.
fn qemu_name(value: &str) -> Option<String> {
    let parts = split_doubled(value);
    let guest = parts.iter().find_map(|part| part.strip_prefix("guest="));
    if let Some(guest) = guest {
        return Some(guest.to_owned());
    }
    // Only the first part may leave its key out.
    parts
        .first()
        .filter(|part| {
            !["process=", "debug-threads="]
                .iter()
                .any(|key| part.starts_with(key))
        })
        .cloned()
}

/// Splits at single commas and turns double ones into one.
fn split_doubled(value: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = value.chars().peekable();
    while let Some(char) = chars.next() {
        if char == ',' && chars.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(char);
        }
    }
    parts
}

/// File names of sockets that managers give to all their VMs alike; the folder
/// then is the VM's: `/run/vc/vm/ID/clh-api.sock` of Kata, for one.
const ALIKE: [&str; 6] = [
    "api",
    "api-socket",
    "ch-api",
    "clh-api",
    "crosvm",
    "crosvm_control",
];

/// Folders that are nobody's in particular.
const SHARED: [&str; 3] = ["tmp", "run", ""];

/// Cloud Hypervisor has no name for a VM, nor had crosvm for long; managers name
/// its control socket after it: `/run/vms/web1.sock` or
/// `path=/run/vms/web1.sock`.
fn socket_name(value: &str) -> Option<String> {
    let path = value
        .split(',')
        .find_map(|part| part.strip_prefix("path="))
        .unwrap_or(value);
    if path.starts_with("fd=") {
        return None;
    }
    let file = base_name(path);
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let folder = path.rsplit('/').nth(1).unwrap_or("");
    let name = if ALIKE.contains(&stem) && !SHARED.contains(&folder) {
        folder
    } else {
        stem
    };
    (!name.is_empty()).then(|| name.to_owned())
}

/// Whether a DPDK `--vdev` makes a virtio-user port.
fn has_virtio_user(args: &[Cow<'_, str>]) -> bool {
    let is_port =
        |value: &str| value.starts_with("virtio_user") || value.starts_with("net_virtio_user");
    args.iter().enumerate().any(|(at, arg)| {
        if let Some(value) = arg.strip_prefix("--vdev=") {
            is_port(value)
        } else {
            arg == "--vdev" && args.get(at + 1).is_some_and(|value| is_port(value))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(cmdline: &str, comm: &str) -> (String, Vmm) {
        let found = vm_name_from(cmdline.replace(' ', "\0").as_bytes(), comm);
        (found.name, found.vmm)
    }

    #[test]
    fn libvirt_and_plain_qemu_names_are_found() {
        let libvirt = "/usr/bin/qemu-system-x86_64 -name guest=web1,debug-threads=on -S -object \
            {\"qom-type\":\"secret\"} -machine pc-q35-7.2,usb=off";
        let proxmox = "/usr/bin/kvm -id 101 -name db,debug-threads=on -no-shutdown";
        for (cmdline, expected) in [
            (libvirt, "web1"),
            (proxmox, "db"),
            ("qemu-system-aarch64 --name vm7 -m 1G", "vm7"),
            (
                "/usr/libexec/qemu-kvm -name process=qemu:x,guest=x -m 1",
                "x",
            ),
            ("qemu-system-x86_64 -name a,,b,process=p", "a,b"),
            ("qemu-system-x86_64 -name=eq", "eq"),
            ("qemu-system-x86_64 -m 1G", "qemu-system-x86"),
            (
                "qemu-system-x86_64 -name debug-threads=on",
                "qemu-system-x86",
            ),
            ("qemu-system-x86_64 -name", "qemu-system-x86"),
            (
                "/opt/kata/bin/qemu-system-x86_64 -name \
                 sandbox-41cb92475d2d,debug-threads=on -uuid e62392aa",
                "sandbox-41cb92475d2d",
            ),
            (
                "qemu-system-x86_64 -name web -name debug-threads=on -m 1G",
                "web",
            ),
            (
                "qemu-system-x86_64 -name guest=first -name guest=second",
                "second",
            ),
            ("microvm@web1 -name web1 -M microvm -netdev tap", "web1"),
        ] {
            let expected = (expected.to_owned(), Vmm::Qemu);
            assert_eq!(name(cmdline, "qemu-system-x86"), expected, "{cmdline}");
        }
    }

    #[test]
    fn other_vmms_are_told_apart() {
        let cases = [
            (
                "cloud-hypervisor --api-socket /run/ch/web.2.sock --cpus boot=2",
                "web.2",
                Vmm::CloudHypervisor,
            ),
            (
                "/opt/cloud-hypervisor --api-socket=path=/tmp/ch.sock",
                "ch",
                Vmm::CloudHypervisor,
            ),
            (
                "cloud-hypervisor --api-socket fd=3",
                "comm",
                Vmm::CloudHypervisor,
            ),
            (
                "/usr/bin/crosvm run --name arcvm --cpus 4",
                "arcvm",
                Vmm::Crosvm,
            ),
            ("crosvm run --cpus 4", "comm", Vmm::Crosvm),
            (
                "/usr/bin/crosvm run -s /run/vm/termina.sock --net tap-fd=12,vhost-net",
                "termina",
                Vmm::Crosvm,
            ),
            (
                "cloud-hypervisor-static --api-socket=/vm/vm4k2/ch-api.sock --net tap=tap0",
                "vm4k2",
                Vmm::CloudHypervisor,
            ),
            (
                "/opt/kata/bin/cloud-hypervisor --api-socket /run/vc/vm/9f3c/clh-api.sock -v",
                "9f3c",
                Vmm::CloudHypervisor,
            ),
            (
                "cloud-hypervisor --api-socket /tmp/ch-api.sock",
                "ch-api",
                Vmm::CloudHypervisor,
            ),
            (
                "cloud-hypervisor --kernel vmlinux --net tap=,mac=,ip=,mask=",
                "comm",
                Vmm::CloudHypervisor,
            ),
            (
                "/opt/kata/bin/containerd-shim-kata-v2 -namespace k8s.io -address \
                 /run/containerd/containerd.sock -id 41cb92475d2d -debug",
                "41cb92475d2d",
                Vmm::Other,
            ),
            (
                "/usr/bin/stratovirt -name web1 -machine q35 -netdev tap,id=net0,vhost=on",
                "web1",
                Vmm::Other,
            ),
            (
                "lkvm run --name guest-7 --network mode=tap,vhost=1",
                "guest-7",
                Vmm::Other,
            ),
            ("/usr/bin/vpp -c /etc/vpp/startup.conf", "comm", Vmm::Other),
            (
                "dpdk-testpmd -l 0-1 --vdev=virtio_user0,path=/dev/vhost-net,queues=2 --file-prefix=pg",
                "pg",
                Vmm::Dpdk,
            ),
            (
                "dpdk-testpmd --vdev net_virtio_user0,path=/dev/vhost-net --",
                "comm",
                Vmm::Dpdk,
            ),
            ("dpdk-testpmd --vdev net_tap0", "comm", Vmm::Other),
            ("vhost-lab serve --name x", "comm", Vmm::Lab),
            ("", "comm", Vmm::Other),
        ];
        for (cmdline, expected, vmm) in cases {
            assert_eq!(
                name(cmdline, "comm"),
                (expected.to_owned(), vmm),
                "{cmdline}"
            );
        }
        assert_eq!(name("/tmp/x", "vhost-lab"), ("vhost-lab".into(), Vmm::Lab));
        // Under another name, as some managers start them; the kernel cuts the
        // program's own off after 15 bytes.
        for (cmdline, comm, vmm) in [
            (
                "microvm@db --api-socket db.sock",
                "cloud-hyperviso",
                Vmm::CloudHypervisor,
            ),
            ("microvm@db -name db", ".qemu-system-x8", Vmm::Qemu),
            ("microvm@db --name db", "crosvm", Vmm::Crosvm),
        ] {
            assert_eq!(name(cmdline, comm), ("db".to_owned(), vmm), "{cmdline}");
        }
    }

    #[test]
    fn an_overwritten_command_line_falls_back_to_the_command_name() {
        assert_eq!(vm_name_from(b"\xff\xfe -name\0\0\0", "odd").name, "odd");
        assert_eq!(vm_name_from(b"qemu-system-x86_64\0-name\0", "q").name, "q");
    }

    #[test]
    fn our_own_name_is_read() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(vm_name(pid).unwrap().vmm, Vmm::Other);
    }
}
