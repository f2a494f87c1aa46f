//! Takes CPUs away from tasks that keep them, for moments.
//!
//! A task moves over when the kernel looks and finds it off its CPU, with no
//! function that is patched on its stack. A worker under load may be on its CPU
//! at every look, one a second. It leaves its handler as soon as another task
//! wants the CPU, so a thread that wants it, again and again, is all it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a thread holds its CPU.
const BUSY: Duration = Duration::from_millis(2);
/// How long it then leaves it alone.
const IDLE: Duration = Duration::from_millis(2);

/// A set of CPUs as the kernel takes it, of any length.
type Mask = Vec<libc::c_ulong>;

/// One thread for each CPU that is contended for.
#[derive(Default)]
pub struct Contention {
    threads: BTreeMap<u32, Contender>,
}

/// A thread, pinned and let go from outside: on a CPU that a real-time task
/// keeps for itself it does not come to run, not even to end.
struct Contender {
    stop: Arc<AtomicBool>,
    tid: libc::pid_t,
    /// Where it may run when it is let go.
    everywhere: Mask,
    thread: Option<JoinHandle<()>>,
}

impl Contention {
    /// Contends for these CPUs from now on, and for no other.
    pub fn on(&mut self, cpus: &BTreeSet<u32>) {
        self.threads.retain(|cpu, _| cpus.contains(cpu));
        for cpu in cpus {
            if self.threads.contains_key(cpu) {
                continue;
            }
            match Contender::start(*cpu) {
                Ok(contender) => {
                    self.threads.insert(*cpu, contender);
                }
                Err(why) => log::debug!("CPU {cpu} cannot be contended for: {why}"),
            }
        }
    }
}

impl Contender {
    fn start(cpu: u32) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let everywhere = affinity()?;
        let (tell, told) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(format!("contend-{cpu}"))
            .spawn(move || {
                // SAFETY: it takes nothing and cannot fail.
                let _ = tell.send(unsafe { libc::gettid() });
                contend(&flag);
            })?;
        let tid = told.recv().map_err(io::Error::other)?;
        // From here on dropping it ends the thread.
        let contender = Self {
            stop,
            tid,
            everywhere,
            thread: Some(thread),
        };
        pin(tid, &only(cpu))?;
        Ok(contender)
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Err(why) = pin(self.tid, &self.everywhere) {
            log::debug!("thread {} stays where it is: {why}", self.tid);
        }
        if let Some(thread) = self.thread.take() {
            // It can only have panicked; then it does not contend either.
            let _ = thread.join();
        }
    }
}

fn contend(stop: &AtomicBool) {
    if let Err(why) = raise() {
        log::debug!("contending without priority: {why}");
    }
    while !stop.load(Ordering::Relaxed) {
        let until = Instant::now() + BUSY;
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        thread::sleep(IDLE);
    }
}

fn only(cpu: u32) -> Mask {
    let (bits, cpu) = (libc::c_ulong::BITS as usize, cpu as usize);
    let mut mask = vec![0; cpu / bits + 1];
    mask[cpu / bits] = 1 << (cpu % bits);
    mask
}

/// The CPUs that this thread may run on.
fn affinity() -> io::Result<Mask> {
    // Room for the most CPUs that a kernel can be built for.
    let mut mask: Mask = vec![0; 8192 / libc::c_ulong::BITS as usize];
    // SAFETY: the pointer and the length are those of one live buffer, and the
    // kernel writes no further; 0 is the calling thread.
    let bytes = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            size_of_val(mask.as_slice()),
            mask.as_mut_ptr(),
        )
    };
    let bytes = usize::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
    mask.truncate(bytes / size_of::<libc::c_ulong>());
    Ok(mask)
}

/// Has a thread run on these CPUs only.
fn pin(tid: libc::pid_t, mask: &Mask) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of one live buffer, which
    // the kernel only reads.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            tid,
            size_of_val(mask.as_slice()),
            mask.as_ptr(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has this thread come before ordinary ones: by the lowest real-time
/// priority, else as nice as is allowed.
fn raise() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure lives for the call; 0 is the calling thread.
    let real_time = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
    if real_time == 0 {
        return Ok(());
    }
    // SAFETY: numbers only; 0 is the calling thread.
    let nice = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    if nice == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .flatten()
            .filter(|task| {
                let comm = std::fs::read_to_string(task.path().join("comm"));
                comm.is_ok_and(|name| name.starts_with("contend-"))
            })
            .count()
    }

    #[test]
    fn threads_come_and_go_with_the_cpus_and_with_the_contention() {
        let mut contention = Contention::default();
        contention.on(&BTreeSet::from([0]));
        thread::sleep(Duration::from_millis(20));
        assert_eq!(threads(), 1);
        contention.on(&BTreeSet::new());
        assert_eq!(threads(), 0);
        contention.on(&BTreeSet::from([0]));
        drop(contention);
        assert_eq!(threads(), 0);
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_left_alone() {
        assert!(pin(0, &only(100_000)).is_err());
        let mut contention = Contention::default();
        contention.on(&BTreeSet::from([100_000]));
        assert!(contention.threads.is_empty());
    }

    #[test]
    fn a_mask_has_one_bit_and_grows_as_needed() {
        assert_eq!(only(0), [1]);
        assert_eq!(only(65), [0, 2]);
        assert!(affinity().unwrap().iter().any(|word| *word != 0));
    }
}
