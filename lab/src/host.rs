//! The host's end of the flows: ordinary UDP sockets in their own threads.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::mmsg::{BATCH, Batch};
use crate::pace::Pace;
use crate::packet::{
    Direction, Ends, GUEST_PORT, HOST_PORT, Header, Kind, Parsed, parse_payload, write_payload,
};
use crate::quantiles::Times;
use crate::system::{now_ns, set_socket_option, socket_drops, wait_readable};
use crate::traffic::{QUIET, spin_until};
use crate::wire::{Stop, Window, Wire};

/// How long a sender waits for room before it takes packets for lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// The host's socket of one queue pair.
#[derive(Debug)]
pub struct HostPeer {
    socket: UdpSocket,
    wires: Arc<Vec<Wire>>,
    queue: u16,
    payload: usize,
}

/// What the host's sender is to do.
#[derive(Debug)]
pub struct SendPlan {
    /// Packets to send; without, until stopped.
    pub goal: Option<u64>,
    /// Packets it may be ahead of the guest.
    pub window: u64,
    /// Packets per burst, and the gaps; without, one endless burst.
    pub bursts: Option<(u64, Pace)>,
}

/// What came of sending.
#[derive(Debug, Default)]
pub struct Sent {
    /// Bursts sent.
    pub bursts: u64,
    /// Gaps between them.
    pub gaps: Times,
}

impl HostPeer {
    /// Opens the socket. The address must be there already.
    ///
    /// # Errors
    /// When the address or port cannot be had.
    pub fn open(wires: Arc<Vec<Wire>>, ends: &Ends, payload: usize) -> Result<Self> {
        let here = (ends.host_ip, HOST_PORT + ends.queue);
        let socket = UdpSocket::bind(here)
            .with_context(|| format!("cannot open UDP {}:{}", here.0, here.1))?;
        socket
            .connect((ends.guest_ip, GUEST_PORT + ends.queue))
            .context("cannot connect the UDP socket")?;
        // Room for everything the guest may be ahead, whatever the sysctl
        // says: a drop here would be taken for one of vhost's.
        set_socket_option(&socket, libc::SO_RCVBUFFORCE, 512 << 20)
            .context("SO_RCVBUFFORCE failed")?;
        Ok(Self {
            socket,
            wires,
            queue: ends.queue,
            payload,
        })
    }

    fn wire(&self) -> &Wire {
        &self.wires[usize::from(self.queue)]
    }

    /// Packets the socket had no room for.
    #[must_use]
    pub fn drops(&self) -> Option<u64> {
        socket_drops(&self.socket)
    }

    /// Receives until the guest has finished and all is here; with `echo`,
    /// answers.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn receive(&self, echo: bool) -> Result<()> {
        let wire = self.wire();
        let mut batch = Batch::new(65536);
        let mut answer = Vec::new();
        let mut last = Instant::now();
        loop {
            let count = batch.receive(&self.socket).context("cannot receive")?;
            if count == 0 {
                if wire.tx.finished.load(Ordering::Acquire)
                    && (wire.tx.complete() || last.elapsed() > QUIET)
                {
                    return Ok(());
                }
                let bell = if wire.tx.finished.load(Ordering::Acquire) {
                    -1
                } else {
                    wire.host_bell.as_raw_fd()
                };
                wait_readable(&[self.socket.as_raw_fd(), bell], &[], Some(QUIET))
                    .context("cannot poll")?;
                continue;
            }
            last = Instant::now();
            let mut fresh = 0;
            for i in 0..count {
                let Some(header) = self.take(batch.datagram(i), &mut fresh) else {
                    continue;
                };
                if echo && header.kind == Kind::Data {
                    self.answer(&header, &mut answer)?;
                }
            }
            wire.tx.received.add(fresh);
        }
    }

    fn take(&self, payload: &[u8], fresh: &mut u64) -> Option<Header> {
        let mut tracker = self.wire().tx.tracker();
        match parse_payload(payload) {
            Parsed::Ours(header)
                if header.queue == self.queue && header.direction == Direction::Tx =>
            {
                let new = tracker.arrived(header.sequence);
                *fresh += u64::from(new);
                new.then_some(header)
            }
            // The socket is connected to the guest, so whatever else comes
            // is a packet of ours that was harmed.
            _ => {
                tracker.damaged();
                None
            }
        }
    }

    fn answer(&self, question: &Header, answer: &mut Vec<u8>) -> Result<()> {
        let flow = &self.wire().rx;
        let sequence = flow.sent();
        let header = Header {
            direction: Direction::Rx,
            sequence,
            answers: question.sequence,
            ..*question
        };
        write_payload(&header, self.payload, answer);
        // Counted before it goes, so that the guest never receives more
        // than was sent.
        flow.sent.store(sequence + 1, Ordering::Release);
        loop {
            match self.socket.send(answer) {
                Err(e) if transient(e.kind()) || e.raw_os_error() == Some(libc::ENOBUFS) => {}
                result => return result.map(drop).context("cannot answer"),
            }
        }
    }

    /// Sends as planned, until done or stopped.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn send(&self, plan: &mut SendPlan, round: u64, stop: &Stop) -> Result<Sent> {
        let wire = self.wire();
        while !wire.primed.wait(round, Duration::from_millis(20))? {
            if stop.is_set() {
                return Ok(Sent::default());
            }
        }
        let mut sender = Sender {
            peer: self,
            batch: Batch::new(0),
            window: Window::new(plan.window),
        };
        let mut left = plan.goal.unwrap_or(u64::MAX);
        let mut sent = Sent::default();
        let mut seen_all: Option<Instant> = None;
        while left > 0 && !stop.is_set() {
            let Some((size, pace)) = plan.bursts.as_mut() else {
                sender.send(left, stop)?;
                break;
            };
            if let Some(then) = seen_all {
                spin_until(then + pace.draw(), stop);
                if stop.is_set() {
                    break;
                }
                sent.gaps.record(then.elapsed());
            }
            left -= sender.send(left.min(*size), stop)?;
            sent.bursts += 1;
            sender.wait_for_all()?;
            seen_all = Some(Instant::now());
        }
        Ok(sent)
    }
}

const fn transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

/// A sender at work.
struct Sender<'a> {
    peer: &'a HostPeer,
    batch: Batch,
    window: Window,
}

impl Sender<'_> {
    /// Sends `count` packets within the window, unless stopped; says how
    /// many went.
    fn send(&mut self, count: u64, stop: &Stop) -> Result<u64> {
        let flow = &self.peer.wire().rx;
        let mut done = 0;
        while done < count && !stop.is_set() {
            let room = self.window.room(flow).min(count - done).min(BATCH as u64);
            if room == 0 {
                self.wait_for_room(stop)?;
                continue;
            }
            let first = flow.sent();
            for i in 0..room {
                let header = Header {
                    queue: self.peer.queue,
                    direction: Direction::Rx,
                    kind: Kind::Data,
                    sequence: first + i,
                    answers: 0,
                    stamp_ns: now_ns(),
                };
                write_payload(&header, self.peer.payload, self.batch.fill(i as usize));
            }
            flow.sent.store(first + room, Ordering::Release);
            match self.batch.send(&self.peer.socket, room as usize) {
                Ok(went) => {
                    flow.sent.store(first + went as u64, Ordering::Release);
                    done += went as u64;
                }
                Err(e) if transient(e.kind()) || e.raw_os_error() == Some(libc::ENOBUFS) => {
                    flow.sent.store(first, Ordering::Release);
                }
                Err(e) => {
                    flow.sent.store(first, Ordering::Release);
                    return Err(e).context("cannot send");
                }
            }
        }
        Ok(done)
    }

    fn wait_for_room(&mut self, stop: &Stop) -> Result<()> {
        let flow = &self.peer.wire().rx;
        // A quarter of the window at once, not a wake-up for each packet.
        let target = self.window.target(flow, (self.window.limit() / 4).max(1));
        let patience = Instant::now() + PATIENCE;
        while !stop.is_set() {
            if flow.received.wait(target, Duration::from_millis(20))? {
                return Ok(());
            }
            if Instant::now() > patience {
                self.window.forgive(flow);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits until the guest has received everything, at first with open
    /// eyes, because a wake-up would make the gap longer than it should be.
    fn wait_for_all(&mut self) -> Result<()> {
        let flow = &self.peer.wire().rx;
        let patience = Instant::now() + PATIENCE;
        let open_eyes = Instant::now() + Duration::from_millis(2);
        while self.window.room(flow) < self.window.limit() {
            if Instant::now() < open_eyes {
                std::hint::spin_loop();
            } else if Instant::now() < patience {
                let target = self.window.target(flow, self.window.limit());
                flow.received.wait(target, Duration::from_millis(20))?;
            } else {
                self.window.forgive(flow);
            }
        }
        Ok(())
    }
}
