//! Small questions and answers over TCP, as netperf's TCP_RR makes them.

use std::{
    fs::File,
    io::{ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    super::worker,
    bridge::{ADDRESS, GUEST},
    session::STACK_CPU,
};

const PORT: u16 = 7007;
/// How often a thread that waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(200);

/// Connections that ask from the host, with the guest answering; dropped, they
/// end.
pub(super) struct RoundTrips {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    count: AtomicU32,
    over: AtomicBool,
}

impl RoundTrips {
    /// So many connections, each with one question of so many bytes under way.
    pub(super) fn start(connections: usize, bytes: usize) -> Result<Self> {
        let mut trips = Self {
            shared: Arc::default(),
            threads: Vec::new(),
        };
        // Threads begin in the namespace of the one that starts them.
        let listener = thread::spawn(listen_in_guest)
            .join()
            .map_err(|_| anyhow::anyhow!("the thread that listens in the guest panicked"))??;
        for _ in 0..connections {
            let asking = TcpStream::connect((ADDRESS, PORT)).context("connect to the guest")?;
            let (answering, _) = listener.accept().context("accept a connection")?;
            for (stream, asks) in [(asking, true), (answering, false)] {
                stream.set_nodelay(true).context("set TCP_NODELAY")?;
                stream
                    .set_read_timeout(Some(LOOK))
                    .context("set SO_RCVTIMEO")?;
                let shared = Arc::clone(&trips.shared);
                trips
                    .threads
                    .push(thread::spawn(move || talk(stream, &shared, asks, bytes)));
            }
        }
        Ok(trips)
    }

    /// Answers so far.
    pub(super) fn count(&self) -> u32 {
        self.shared.count.load(Ordering::Relaxed)
    }
}

impl Drop for RoundTrips {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A socket stays in the namespace it was made in.
fn listen_in_guest() -> Result<TcpListener> {
    let path = format!("/run/netns/{GUEST}");
    let namespace = File::open(&path).with_context(|| format!("open {path}"))?;
    // SAFETY: a plain system call on a descriptor that is ours; it concerns this
    // thread only, which ends right after.
    if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
        return Err(std::io::Error::last_os_error()).context("enter the guest's namespace");
    }
    TcpListener::bind((ADDRESS, PORT)).context("listen in the guest")
}

/// One end of a connection, until nobody wants it any more or it breaks.
fn talk(mut stream: TcpStream, shared: &Shared, asks: bool, bytes: usize) {
    // Unpinned it measures worse, not nothing.
    let _ = worker::pin_self(&[STACK_CPU]);
    let mut message = vec![0; bytes];
    if asks && stream.write_all(&message).is_err() {
        return;
    }
    while receive(&mut stream, shared, &mut message) && stream.write_all(&message).is_ok() {
        if asks {
            shared.count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Fills the message; false when there will be none.
fn receive(stream: &mut TcpStream, shared: &Shared, message: &mut [u8]) -> bool {
    let mut filled = 0;
    while filled < message.len() {
        match stream.read(&mut message[filled..]) {
            Ok(0) => return false,
            Ok(read) => filled += read,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                if shared.over.load(Ordering::Relaxed) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    !shared.over.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_until_it_is_over() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let asking = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (answering, _) = listener.accept().unwrap();
        let mut trips = RoundTrips {
            shared: Arc::default(),
            threads: Vec::new(),
        };
        for (stream, asks) in [(asking, true), (answering, false)] {
            stream.set_read_timeout(Some(LOOK)).unwrap();
            let shared = Arc::clone(&trips.shared);
            trips
                .threads
                .push(thread::spawn(move || talk(stream, &shared, asks, 16)));
        }
        while trips.count() < 10 {
            thread::yield_now();
        }
        drop(trips);
    }
}
