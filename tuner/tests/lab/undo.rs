//! What was set is put back, whatever has happened since.

use std::fs;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use vhost_tuner::inspect::Kernel;
use vhost_tuner::inventory::{Device, Inventory, Target};
use vhost_tuner::knob::backend::Backend;
use vhost_tuner::knob::journal::{Entry, Journal};
use vhost_tuner::knob::module::{Change, Knob, Setting};
use vhost_tuner::knob::turn::{TurnError, Turner};
use vhost_tuner::knob::undo::{Gone, Outcome, by_device};
use vhost_tuner::knob::{self, inject};
use vhost_tuner::lock::{self, Lock};
use vhost_tuner::probe::DeviceLister;

use crate::module::{Module, knobs};
use crate::support::{Lab, run, tuner, tuner_json, tuner_output, until};

/// What turns and undoes within this process: each command of the program
/// takes seconds where the lab is emulated.
struct Desk {
    folder: TempDir,
    turner: Turner,
}

impl Desk {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let turner = Self::turner(folder.path());
        Self { folder, turner }
    }

    fn turner(folder: &Path) -> Turner {
        let lister = DeviceLister::new(&Kernel::inspect()).unwrap();
        Turner::new(Some(lister), Journal::read(folder).unwrap())
    }

    /// The folder of the journal, as text.
    fn state(&self) -> String {
        self.folder.path().to_str().unwrap().to_owned()
    }

    /// Reads the journal anew, as the next program does.
    fn reopen(&mut self) {
        self.turner = Self::turner(self.folder.path());
    }

    fn inventory(&mut self) -> Inventory {
        Inventory::from_records(&self.turner.list().unwrap())
    }

    fn devices(&mut self, lab: &Lab) -> Vec<Device> {
        let inventory = self.inventory();
        let devices = Target(lab.pid()).resolve(&inventory).unwrap();
        devices.into_iter().cloned().collect()
    }

    /// Timeouts of the devices of a process, as the kernel has them.
    fn timeouts(&mut self, lab: &Lab) -> Vec<[u32; 2]> {
        let devices = self.devices(lab);
        let timeouts = |device: &Device| device.rings.each_ref().map(|info| info.ring.timeout);
        devices.iter().map(timeouts).collect()
    }

    fn entries(&self) -> Vec<Entry> {
        self.turner.journal().entries().iter().cloned().collect()
    }

    /// Undoes everything; what became of each knob.
    fn undo(&mut self, force: bool) -> Vec<(Knob, Outcome)> {
        let inventory = self.inventory();
        let mut outcomes = Vec::new();
        for group in by_device(self.entries()) {
            let undone = self
                .turner
                .restore(&group, &inventory, force, false)
                .unwrap();
            outcomes.extend(
                undone
                    .into_iter()
                    .map(|one| (one.entry.key.knob, one.outcome)),
            );
        }
        outcomes
    }
}

const RX: Knob = Knob::Busyloop { direction: 0 };
const TX: Knob = Knob::Busyloop { direction: 1 };

fn timeouts(rx: u32, tx: u32) -> Change {
    Change {
        busyloop: knob::Change {
            rx: Some(rx),
            tx: Some(tx),
        },
        ..Change::default()
    }
}

fn idle(more: &[&str]) -> Lab {
    Lab::open(&[&["--mode", "idle", "--busyloop-rx", "10"], more].concat())
}

/// A second process with a device, beside the one of [`idle`].
fn other() -> Lab {
    let arguments = ["--ifname", "vother", "--net", "10.78.0.0/16"];
    idle(&arguments)
}

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn several_targets_are_set_and_all_is_put_back() {
    let mut desk = Desk::open();
    let first = idle(&["--devices", "2"]);
    let second = other();
    // Where the journal is if nobody says.
    let set = tuner_json(&[
        "set",
        &first.pid(),
        "vlab0",
        "vother",
        "--busyloop-rx",
        "300",
        "--json",
    ]);
    let changes = set["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 3, "{set}");
    assert_eq!(set["failures"], Value::Array(Vec::new()));
    assert_eq!(desk.timeouts(&first), [[300, 0], [300, 0]]);
    assert_eq!(desk.timeouts(&second), [[300, 0]]);
    let set = tuner_json(&["set", "--all", "--busyloop-tx", "200", "--json"]);
    assert_eq!(set["changes"].as_array().unwrap().len(), 3, "{set}");
    assert_eq!(desk.timeouts(&first), [[300, 200], [300, 200]]);
    let journal = fs::read_to_string("/var/lib/vhost-tuner/journal").unwrap();
    assert!(journal.contains("\"vm\":\"") && journal.contains("\"original\":10"));

    let planned = tuner_json(&["undo", "--all", "--dry-run", "--json"]);
    assert_eq!(desk.timeouts(&second), [[300, 200]]);
    let one = tuner_json(&["undo", "vother", "--json"]);
    assert_eq!(one["knobs"].as_array().unwrap().len(), 2, "{one}");
    assert_eq!(desk.timeouts(&second), [[10, 0]]);
    assert_eq!(desk.timeouts(&first), [[300, 200], [300, 200]]);
    let rest = tuner_json(&["undo", "--all", "--json"]);
    // Tests before this one have left something of ended processes too.
    let restored = |document: &Value| {
        let rows = document["knobs"].as_array().unwrap().iter();
        rows.filter(|row| row["outcome"] == "restored").count()
    };
    assert_eq!(
        (restored(&planned), restored(&one), restored(&rest)),
        (6, 2, 4)
    );
    assert_eq!(desk.timeouts(&first), [[10, 0], [10, 0]]);

    let again = tuner_output(&["undo", "--all"]);
    assert!(again.status.success(), "{}", said(&again));
    assert!(said(&again).contains("nothing to undo"), "{}", said(&again));
    assert!(again.stdout.is_empty());
    first.close();
    second.close();
}

#[test]
fn a_device_that_cannot_be_set_does_not_keep_others_from_being_set() {
    let mut desk = Desk::open();
    let first = idle(&["--devices", "2"]);
    let second = other();
    second.process().signal(libc::SIGSTOP);
    let set = ["set", "--all", "--busyloop-rx", "300", "--json"];
    let output = tuner_output(&[&set[..], &["--state-dir", &desk.state()]].concat());
    second.process().signal(libc::SIGCONT);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["changes"].as_array().unwrap().len(), 2);
    let failures = document["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{document}");
    assert_eq!(failures[0]["tap"], "vother");
    let reason = failures[0]["reason"].as_str().unwrap();
    assert!(reason.contains("stopped by a signal"), "{reason}");
    assert!(said(&output).contains(reason), "{}", said(&output));
    assert_eq!(desk.timeouts(&first), [[300, 0], [300, 0]]);
    assert_eq!(desk.timeouts(&second), [[10, 0]]);
    // What was not changed is not in the journal.
    desk.reopen();
    assert_eq!(desk.entries().len(), 2);
    first.close();
    second.close();
}

#[test]
fn the_original_outlives_many_changes_and_the_journal_stays_small() {
    let mut desk = Desk::open();
    let lab = idle(&[]);
    let device = desk.devices(&lab).remove(0);
    let began = std::time::Instant::now();
    let rounds = 60;
    for round in 0..rounds {
        let turned = desk.turner.turn(&device, &timeouts(20 + round, 30 + round));
        let turned = turned.unwrap();
        assert_eq!(turned.backend, Backend::Inject);
        assert_eq!(turned.after.busyloop, [20 + round, 30 + round]);
    }
    println!("{rounds} turns took {:?}", began.elapsed());
    // What is there already stops no thread.
    let turned = desk.turner.turn(&device, &timeouts(79, 89)).unwrap();
    assert_eq!(turned.stop, None);
    desk.reopen();
    assert_eq!(desk.entries().len(), 2);
    let size = fs::metadata(desk.turner.journal().path()).unwrap().len();
    assert!(size < 40_000, "{size}");
    let restored = |before| Outcome::Restored { before };
    assert_eq!(desk.undo(false), [(RX, restored(79)), (TX, restored(89))]);
    assert_eq!(desk.timeouts(&lab), [[10, 0]]);
    assert!(desk.entries().is_empty());
    lab.close();
}

/// Has the kernel end the program at a system call, as it would by `kill -9`
/// there: nothing of the program runs any more.
fn killed_at(command: &mut Command, call: libc::c_long, first: Option<u32>) {
    let load = |offset: u32| libc::sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        k: offset,
    };
    let unless = |value: u32, skip: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: skip,
        k: value,
    };
    let result = |value: u32| libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: value,
    };
    let call = u32::try_from(call).unwrap();
    let mut filter = vec![load(0)];
    match first {
        None => filter.push(unless(call, 1)),
        // The low half of the first argument.
        Some(first) => filter.extend([unless(call, 3), load(16), unless(first, 1)]),
    }
    filter.push(result(libc::SECCOMP_RET_KILL_PROCESS));
    filter.push(result(libc::SECCOMP_RET_ALLOW));
    // SAFETY: between fork and exec only a system call is made; the program it
    // points to is moved into the closure and lives across it.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog {
                len: u16::try_from(filter.len()).unwrap_or(0),
                filter: filter.as_ptr().cast_mut(),
            };
            let mode = libc::SECCOMP_MODE_FILTER;
            match libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
}

#[test]
fn killed_before_the_change_it_leaves_a_record_that_does_no_harm() {
    let mut desk = Desk::open();
    let lab = idle(&[]);
    let mut set = tuner(&["set", &lab.pid(), "--busyloop-rx", "300"]);
    set.args(["--state-dir", &desk.state()]);
    killed_at(&mut set, libc::SYS_fdatasync, None);
    let output = set.output().unwrap();
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGSYS),
        "{}",
        said(&output)
    );
    // Written down, not done.
    assert_eq!(desk.timeouts(&lab), [[10, 0]]);
    desk.reopen();
    assert_eq!(desk.entries().len(), 1);
    assert!(desk.turner.journal().notes().is_empty());
    assert_eq!(desk.undo(false), [(RX, Outcome::Already)]);
    assert!(desk.entries().is_empty());

    // The same once more, between two changes that are made.
    let device = desk.devices(&lab).remove(0);
    desk.turner.turn(&device, &timeouts(50, 60)).unwrap();
    let mut set = tuner(&["set", &lab.pid(), "--busyloop-rx", "300"]);
    set.args(["--state-dir", &desk.state()]);
    killed_at(&mut set, libc::SYS_fdatasync, None);
    assert_eq!(set.output().unwrap().status.signal(), Some(libc::SIGSYS));
    assert_eq!(desk.timeouts(&lab), [[50, 60]]);
    desk.reopen();
    let restored = |before| Outcome::Restored { before };
    assert_eq!(desk.undo(false), [(RX, restored(50)), (TX, restored(60))]);
    assert_eq!(desk.timeouts(&lab), [[10, 0]]);
    lab.close();
}

/// A pipe that takes nothing more.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    let (reader, mut writer) = (OwnedFd::from(reader), fs::File::from(OwnedFd::from(writer)));
    // SAFETY: plain calls on a descriptor that is open.
    let flags = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: as above.
    let set = |flags: libc::c_int| unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags) };
    assert_eq!(set(flags | libc::O_NONBLOCK), 0);
    while writer.write(&[0; 4096]).is_ok() {}
    while writer.write(&[0]).is_ok() {}
    // SAFETY: as above.
    let cleared = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags) };
    assert_eq!(cleared, 0);
    (reader, writer.into())
}

#[test]
fn killed_after_the_change_it_has_left_all_that_undo_needs() {
    let mut desk = Desk::open();
    let lab = idle(&[]);
    // It stands still when it wants to say what it did.
    let (reader, writer) = full_pipe();
    let mut set = tuner(&["set", &lab.pid(), "--busyloop-rx", "300"]);
    set.args(["--busyloop-tx", "200", "--state-dir", &desk.state()]);
    let mut set = set.stdout(Stdio::from(writer)).spawn().unwrap();
    until("it is set", || desk.timeouts(&lab) == [[300, 200]]);
    set.kill().unwrap();
    assert_eq!(set.wait().unwrap().signal(), Some(libc::SIGKILL));
    drop(reader);
    // Its lock is gone with it.
    let undo = ["undo", &lab.pid(), "--state-dir", &desk.state()];
    let output = tuner_output(&undo);
    assert!(output.status.success(), "{}", said(&output));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(lines.contains("went back from 300 µs to 10 µs"), "{lines}");
    assert!(lines.contains("went back from 200 µs to 0 µs"), "{lines}");
    assert_eq!(desk.timeouts(&lab), [[10, 0]]);
    lab.close();
}

#[test]
fn what_somebody_else_has_set_is_left_alone_unless_forced() {
    let mut desk = Desk::open();
    let lab = idle(&[]);
    let device = desk.devices(&lab).remove(0);
    desk.turner.turn(&device, &timeouts(50, 60)).unwrap();
    let mut lister = DeviceLister::new(&Kernel::inspect()).unwrap();
    let theirs = knob::Change {
        rx: Some(77),
        tx: None,
    };
    knob::set(&device, theirs, &mut lister).unwrap();
    let undo = ["undo", &lab.pid(), "--state-dir", &desk.state()];
    let output = tuner_output(&undo);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let complaint = said(&output);
    assert!(
        complaint
            .contains("left alone: vhost-tuner did not set it to 77 µs; --force restores 10 µs"),
        "{complaint}"
    );
    // The other ring is ours.
    assert_eq!(desk.timeouts(&lab), [[77, 0]]);
    desk.reopen();
    assert_eq!(desk.entries().len(), 1);
    assert_eq!(desk.undo(false), [(RX, Outcome::Left { now: 77 })]);
    assert_eq!(desk.undo(true), [(RX, Outcome::Restored { before: 77 })]);
    assert_eq!(desk.timeouts(&lab), [[10, 0]]);
    assert!(desk.entries().is_empty());
    lab.close();
}

#[test]
fn what_has_ended_is_said_and_forgotten() {
    let mut desk = Desk::open();
    let lab = idle(&[]);
    let pid = lab.pid();
    let device = desk.devices(&lab).remove(0);
    desk.turner.turn(&device, &timeouts(50, 60)).unwrap();
    lab.close();
    // Another process with a device, perhaps at the very same address.
    let next = idle(&[]);
    let output = tuner_output(&["undo", &pid, "--state-dir", &desk.state()]);
    assert!(output.status.success(), "{}", said(&output));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        lines.matches("is forgotten: its process has ended").count(),
        2,
        "{lines}"
    );
    assert_eq!(desk.timeouts(&next), [[10, 0]]);
    desk.reopen();
    assert!(desk.entries().is_empty());
    next.close();
}

#[test]
fn one_tuner_at_a_time_and_the_second_is_told_who_is_first() {
    let mut desk = Desk::open();
    let lab = idle(&[]);
    let lock = Lock::take(Path::new(lock::KNOBS), "daemon", Duration::ZERO).unwrap();
    let set = [
        "set",
        &lab.pid(),
        "--busyloop-rx",
        "300",
        "--state-dir",
        &desk.state(),
    ];
    let output = tuner_output(&set);
    assert_eq!(output.status.code(), Some(1));
    let holder = format!(
        "`vhost-tuner daemon` (process {}) is at work",
        std::process::id()
    );
    assert!(said(&output).contains(&holder), "{}", said(&output));
    assert_eq!(desk.timeouts(&lab), [[10, 0]]);
    // Nobody has to wait for what changes nothing.
    let planned = tuner_output(&[&set[..], &["--dry-run"]].concat());
    assert!(planned.status.success(), "{}", said(&planned));
    drop(lock);
    lab.close();
}

#[test]
fn without_a_journal_nothing_is_changed() {
    let mut desk = Desk::open();
    let lab = idle(&["--devices", "2"]);
    let file = desk.folder.path().join("file");
    fs::write(&file, "somebody's").unwrap();
    let file = file.to_str().unwrap();
    let output = tuner_output(&["set", "--all", "--busyloop-rx", "300", "--state-dir", file]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = said(&output);
    assert!(
        complaint.contains(file) && complaint.contains("nothing was changed"),
        "{complaint}"
    );
    assert_eq!(desk.timeouts(&lab), [[10, 0], [10, 0]]);
    assert_eq!(fs::read(file).unwrap(), b"somebody's");

    // A disk that is full between two devices.
    let disk = tempfile::tempdir().unwrap();
    let disk = disk.path().to_str().unwrap();
    run("mount", &["-t", "tmpfs", "-o", "size=8k", "tmpfs", disk]);
    let mut turner = Desk::turner(Path::new(disk));
    let devices = desk.devices(&lab);
    turner.turn(&devices[0], &timeouts(50, 60)).unwrap();
    let mut filler = fs::File::create(format!("{disk}/filler")).unwrap();
    while filler.write(&[0; 4096]).is_ok() {}
    let full = Path::new(disk).join("journal");
    let size = || fs::metadata(&full).unwrap().len();
    // The page that the journal has begun still has room.
    let mut value = 0;
    let why = loop {
        value = (value + 1) % 1000;
        match turner.turn(&devices[0], &timeouts(value, value + 1)) {
            Ok(_) => assert!(size() <= 8192),
            Err(why) => break why,
        }
    };
    let kept = size();
    assert!(matches!(why, TurnError::Journal { .. }), "{why}");
    assert!(why.to_string().contains("No space left"), "{why}");
    let before = desk.timeouts(&lab);
    let why = turner.turn(&devices[1], &timeouts(70, 80)).unwrap_err();
    assert!(why.is_everywhere(), "{why}");
    assert_eq!(desk.timeouts(&lab), before);
    assert_eq!(size(), kept);
    // With room again it goes on, and all of it can be undone.
    fs::remove_file(format!("{disk}/filler")).unwrap();
    drop(filler);
    turner.turn(&devices[1], &timeouts(70, 80)).unwrap();
    let entries: Vec<Entry> = turner.journal().entries().iter().cloned().collect();
    let inventory = desk.inventory();
    for group in by_device(entries) {
        turner.restore(&group, &inventory, false, false).unwrap();
    }
    assert_eq!(desk.timeouts(&lab), [[10, 0], [10, 0]]);
    drop(turner);
    run("umount", &[disk]);
    lab.close();
}

#[test]
fn whoever_lacks_a_capability_is_told_which() {
    let lab = idle(&[]);
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let set = ["set", &lab.pid(), "--busyloop-rx", "300"];
    for arguments in [&set[..], &["undo", "--all"]] {
        let command = tuner(arguments);
        let mut program = Command::new("setpriv");
        program.args(nobody).arg("--").arg(command.get_program());
        let output = program.args(command.get_args()).output().unwrap();
        let complaint = said(&output);
        assert_eq!(output.status.code(), Some(3), "{complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(
            complaint.contains("lacks CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE"),
            "{complaint}"
        );
    }
    lab.close();
}

fn everything() -> Change {
    Change {
        tx_batched: Some(Setting::Own(8)),
        poll_peer: Some(Setting::Own(false)),
        ..timeouts(50, 60)
    }
}

#[test]
fn what_the_module_set_is_undone_with_it_and_without_it() {
    let mut desk = Desk::open();
    let lab = idle(&[]);
    let fd = lab.descriptors()[0];
    let device = desk.devices(&lab).remove(0);
    let injected = desk.turner.turn(&device, &timeouts(30, 40)).unwrap();
    assert_eq!(injected.backend, Backend::Inject);
    let why = desk.turner.turn(&device, &everything()).unwrap_err();
    assert!(
        why.is_unable() && why.to_string().contains("rx-frames"),
        "{why}"
    );

    let module = Module::livepatching();
    desk.reopen();
    let restored = |before| Outcome::Restored { before };
    // What was injected is undone by the module.
    assert_eq!(desk.undo(false), [(RX, restored(30)), (TX, restored(40))]);
    let found = knobs(&lab, fd, None);
    assert_eq!(found.busyloop, [10, 0]);

    let turned = desk.turner.turn(&device, &everything()).unwrap();
    assert!(matches!(turned.backend, Backend::Module(_)));
    let found = knobs(&lab, fd, None);
    assert_eq!(
        (found.busyloop, found.tx_batched, found.poll_peer),
        ([50, 60], 8, 0)
    );
    assert_eq!(
        desk.undo(false),
        [
            (RX, restored(50)),
            (TX, restored(60)),
            (Knob::TxBatched, restored(8)),
            (Knob::PollPeer, restored(0)),
        ]
    );
    let found = knobs(&lab, fd, None);
    assert_eq!(
        (found.busyloop, found.tx_batched, found.poll_peer),
        ([10, 0], 0, 2)
    );

    // Somebody else's cap is left, what is ours beside it goes back.
    desk.turner.turn(&device, &everything()).unwrap();
    let theirs = Change {
        tx_batched: Some(Setting::Own(5)),
        ..Change::default()
    };
    knobs(&lab, fd, Some(&theirs));
    let outcomes = desk.undo(false);
    assert_eq!(outcomes[2], (Knob::TxBatched, Outcome::Left { now: 5 }));
    let found = knobs(&lab, fd, None);
    assert_eq!(
        (found.busyloop, found.tx_batched, found.poll_peer),
        ([10, 0], 5, 2)
    );
    assert_eq!(desk.undo(true), [(Knob::TxBatched, restored(5))]);

    // What the module set is undone by injection once it has gone, and what
    // went with it is forgotten.
    desk.turner.turn(&device, &everything()).unwrap();
    module.revert();
    desk.reopen();
    assert_eq!(
        desk.undo(false),
        [
            (RX, restored(50)),
            (TX, restored(60)),
            (Knob::TxBatched, Outcome::Dropped(Gone::NoModule)),
            (Knob::PollPeer, Outcome::Dropped(Gone::NoModule)),
        ]
    );
    assert_eq!(desk.timeouts(&lab), [[10, 0]]);
    assert!(desk.entries().is_empty());
    assert_eq!(inject::in_flight(), 0);
    lab.close();
}
