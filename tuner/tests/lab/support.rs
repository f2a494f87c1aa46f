//! The programs under test, as processes, and what they print.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Beyond this a process that should have answered hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Path of a program under test.
fn program(variable: &str) -> PathBuf {
    env::var_os(variable)
        .map(PathBuf::from)
        .unwrap_or_else(|| panic!("{variable} is not set: run by `cargo xtask test`"))
}

/// A `vhost-tuner` command.
pub(crate) fn tuner(arguments: &[&str]) -> Command {
    let mut command = Command::new(program("VHOST_TUNER_BIN"));
    command.args(arguments);
    command
}

/// Runs a `vhost-tuner` command to its end.
pub(crate) fn tuner_output(arguments: &[&str]) -> Output {
    tuner(arguments).output().unwrap()
}

/// Runs a `vhost-tuner` command that has to succeed and print JSON.
pub(crate) fn tuner_json(arguments: &[&str]) -> Value {
    let output = tuner_output(arguments);
    assert!(
        output.status.success(),
        "{arguments:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a command of the system that has to succeed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// True on the kernel series that a test is about.
pub(crate) fn kernel_is(series: &str) -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap()
        .starts_with(&format!("{series}."))
}

/// A process that prints JSON lines; killed when dropped.
pub(crate) struct Lines {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
}

impl Lines {
    /// Starts it.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line)
                    .unwrap_or_else(|why| panic!("not JSON ({why}): {line}"));
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
        }
    }

    /// The next line; none once the process has closed its output.
    pub(crate) fn next(&self) -> Option<Value> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line for {PATIENCE:?}"),
        }
    }

    /// Writes a line to its standard input.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the child is not reaped yet.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
    }

    /// Closes its input and waits for it to end by itself.
    pub(crate) fn finish(mut self) -> std::process::ExitStatus {
        drop(self.stdin.take());
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "process {} hangs", self.pid());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lab driver with its device open.
pub(crate) struct Lab {
    lines: Lines,
    ready: Value,
}

impl Lab {
    /// Opens a device; the traffic waits for [`Lab::go`].
    pub(crate) fn open(arguments: &[&str]) -> Self {
        Self::open_by(Command::new(Self::program()), arguments)
    }

    /// Path of the driver, for a command that starts it.
    pub(crate) fn program() -> PathBuf {
        program("VHOST_LAB_BIN")
    }

    /// The same, started by a command that ends with the driver's path.
    pub(crate) fn open_by(mut command: Command, arguments: &[&str]) -> Self {
        command
            .arg("run")
            .args(arguments)
            .args(["--wait-go", "--hold"]);
        let lines = Lines::start(command);
        let ready = lines.next().expect("the lab driver did not start");
        assert_eq!(ready["event"], "ready", "{ready}");
        Self { lines, ready }
    }

    /// Its process id, as text.
    pub(crate) fn pid(&self) -> String {
        self.lines.pid().to_string()
    }

    /// The process itself.
    pub(crate) fn process(&self) -> &Lines {
        &self.lines
    }

    /// Descriptors of its devices, in order.
    pub(crate) fn descriptors(&self) -> Vec<u64> {
        let pairs = self.ready["pairs"].as_array().unwrap().iter();
        let mut found: Vec<u64> = pairs.map(|p| p["vhost_fd"].as_u64().unwrap()).collect();
        found.sort_unstable();
        found
    }

    /// Threads that work for its devices: kthreads, or threads of its own.
    pub(crate) fn workers(&self) -> Vec<String> {
        let named = format!("vhost-{}", self.pid());
        let mut found = Vec::new();
        for folder in ["/proc".to_owned(), format!("/proc/{}/task", self.pid())] {
            for entry in std::fs::read_dir(folder).unwrap().map_while(Result::ok) {
                let comm = std::fs::read_to_string(entry.path().join("comm"));
                if comm.is_ok_and(|comm| comm.trim() == named) {
                    found.push(entry.file_name().to_string_lossy().into_owned());
                }
            }
        }
        assert!(!found.is_empty(), "no worker is called {named}");
        found
    }

    /// Gives the guest and the host's end one CPU and the workers another, so
    /// that the scheduler has no reason to end a spin.
    pub(crate) fn pin(&self) {
        run("taskset", &["-a", "-p", "-c", "1", &self.pid()]);
        for worker in self.workers() {
            run("taskset", &["-p", "-c", "2", &worker]);
        }
    }

    /// Keeps everything to one CPU. Where the lab is emulated, three busy CPUs
    /// on two real ones take milliseconds to answer each other, and a livepatch
    /// has the kernel rewrite thousands of places, each with all CPUs' consent.
    pub(crate) fn pin_to_one(&self) {
        run("taskset", &["-a", "-p", "-c", "1", &self.pid()]);
        for worker in self.workers() {
            run("taskset", &["-p", "-c", "1", &worker]);
        }
    }

    /// Starts the traffic.
    pub(crate) fn go(&mut self) {
        self.lines.say("go");
    }

    /// Ends the traffic before its time.
    pub(crate) fn stop(&mut self) {
        self.lines.say("stop");
    }

    /// Waits for the traffic's end; the device stays open. Nothing may have
    /// been lost, duplicated, reordered or damaged.
    pub(crate) fn result(&self) -> Value {
        loop {
            let line = self.lines.next().expect("the lab driver ended early");
            if line["event"] == "result" {
                check_flows(&line);
                return line;
            }
        }
    }

    /// Takes the mutex of the `rx` or `tx` ring inside the kernel.
    pub(crate) fn hold(&mut self, ring: &str) {
        self.lines.say(&format!("hold {ring}"));
        assert_eq!(self.answer("held")["ring"], ring);
    }

    /// Gives it back.
    pub(crate) fn free(&mut self) {
        self.lines.say("free");
        self.answer("freed");
    }

    /// Waits for `packets` more of the kind `rx` or `tx`. The driver must have
    /// been told to report.
    pub(crate) fn wait_for(&self, kind: &str, packets: u64) {
        let figure = format!("{kind}_packets");
        // Reports from before the call may wait to be read.
        while self.lines.lines.try_recv().is_ok() {}
        let now = || self.answer("progress")[&figure].as_u64().unwrap();
        let goal = now() + packets;
        while now() < goal {}
    }

    /// The next line of a kind, while traffic goes on.
    fn answer(&self, event: &str) -> Value {
        loop {
            let line = self.lines.next().expect("the lab driver ended early");
            assert_ne!(line["event"], "result", "traffic ended: {line}");
            if line["event"] == event {
                return line;
            }
        }
    }

    /// Traffic from beginning to end.
    pub(crate) fn run(&mut self) -> Value {
        self.go();
        self.result()
    }

    /// Closes the device.
    pub(crate) fn close(self) {
        assert!(self.lines.finish().success());
    }
}

fn check_flows(result: &Value) {
    for pair in result["pairs"].as_array().unwrap() {
        for flow in ["tx_flow", "rx_flow"] {
            for fault in ["lost", "duplicated", "reordered", "damaged"] {
                assert_eq!(pair[flow][fault], 0, "{flow} {fault}: {pair}");
            }
        }
    }
}

/// `vhost-tuner stat` in the background.
pub(crate) struct Stat {
    lines: Lines,
}

/// Figures by descriptor and direction.
pub(crate) type Queues = BTreeMap<(u64, String), Value>;

impl Stat {
    /// Attaches; returns once the probes are there.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// The same with further options.
    pub(crate) fn with(more: &[&str]) -> Self {
        let mut command = tuner(&["stat", "-i", "0.2", "--json-lines"]);
        command.args(more);
        let lines = Lines::start(command);
        lines.next().expect("stat did not start");
        Self { lines }
    }

    /// The process itself.
    pub(crate) fn process(&self) -> &Lines {
        &self.lines
    }

    /// The next document of which every figure was read after this call.
    pub(crate) fn fresh(&self) -> Value {
        while self.lines.lines.try_recv().is_ok() {}
        // The line that is being made may have been read before the call.
        self.lines.next().expect("stat ended");
        self.lines.next().expect("stat ended")
    }

    /// Queues of a process now.
    pub(crate) fn queues(&self, pid: &str) -> Queues {
        queues(&self.fresh(), pid)
    }
}

/// Queues of a process in a document of `stat` or `list`.
pub(crate) fn queues(document: &Value, pid: &str) -> Queues {
    document["queues"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|q| q["pid"].as_u64() == pid.parse().ok())
        .map(|q| {
            let direction = q["direction"].as_str().unwrap().to_owned();
            ((q["fd"].as_u64().unwrap(), direction), q.clone())
        })
        .collect()
}

/// A counter since attaching.
pub(crate) fn total(queue: &Value, figure: &str) -> u64 {
    queue["totals"][figure]
        .as_u64()
        .unwrap_or_else(|| panic!("{figure} is not a number: {}", queue["totals"]))
}

/// An independent count of function calls: a probe of tracefs, whose profile
/// counts its hits.
pub(crate) struct Calls {
    name: String,
}

static NUMBER: Mutex<u32> = Mutex::new(0);
const TRACEFS: &str = "/sys/kernel/tracing";

impl Calls {
    /// Counts calls of `function` of `module` from now on.
    pub(crate) fn of(module: &str, function: &str) -> Self {
        Self::at("p", &format!("{module}:{function}"))
    }

    /// Counts entries (`p`) or returns (`r`) of the only function of this name.
    pub(crate) fn bare(kind: &str, function: &str) -> Self {
        Self::at(kind, function)
    }

    fn at(kind: &str, place: &str) -> Self {
        let name = {
            let mut number = NUMBER.lock().unwrap();
            *number += 1;
            format!("calls{number}")
        };
        append(
            &format!("{TRACEFS}/kprobe_events"),
            &format!("{kind}:lab/{name} {place}\n"),
        );
        append(&format!("{TRACEFS}/events/lab/{name}/enable"), "1\n");
        Self { name }
    }

    /// Hits so far; none may have been missed.
    pub(crate) fn count(&self) -> u64 {
        let profile = std::fs::read_to_string(format!("{TRACEFS}/kprobe_profile")).unwrap();
        let line = profile
            .lines()
            .find(|line| line.split_whitespace().next() == Some(&self.name))
            .unwrap_or_else(|| panic!("no {} in {profile}", self.name));
        let figures: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .map(|word| word.parse().unwrap())
            .collect();
        assert_eq!(figures[1], 0, "tracefs itself missed calls: {line}");
        figures[0]
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let _ = std::fs::write(format!("{TRACEFS}/events/lab/{}/enable", self.name), "0\n");
        append(
            &format!("{TRACEFS}/kprobe_events"),
            &format!("-:lab/{}\n", self.name),
        );
    }
}

/// Appends to a file of tracefs, or says why it cannot.
pub(crate) fn append(path: &str, text: &str) {
    let written = std::fs::OpenOptions::new()
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    if let Err(why) = written {
        // Also called while a test is failing already.
        eprintln!("{path}: {why}");
    }
}

/// Polls until something is so; panics when it is not in time.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A flag that two threads share.
pub(crate) type Flag = Arc<std::sync::atomic::AtomicBool>;

/// Checks that nobody traces any thread of a process, and that none is stopped.
pub(crate) fn assert_undisturbed(pid: &str) {
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let path = entry.unwrap().path().join("status");
        // A thread may end between the listing and here.
        let Ok(status) = std::fs::read_to_string(&path) else {
            continue;
        };
        let field = |name: &str| {
            let mut found = status.lines().filter_map(|line| line.strip_prefix(name));
            found.next().unwrap().trim().to_owned()
        };
        assert_eq!(field("TracerPid:"), "0", "{status}");
        assert!(!field("State:").starts_with(['t', 'T']), "{status}");
    }
}
