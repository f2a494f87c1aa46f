//! A rtnetlink socket. It belongs to the network namespace in which it was
//! opened, whichever thread uses it later.

use std::io;
use std::os::fd::AsRawFd;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::stats::{StatsFilterMask, StatsHeader, StatsMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::LinkError;
use super::message::{Message, Sense, messages, request};

/// `RTNLGRP_LINK` of rtnetlink(7): links come, go and change.
const GROUP_LINK: u32 = 1;

/// First size of the receive buffer, bytes. The kernel fills at most 32 KiB
/// per datagram of a dump; a larger one makes the buffer grow.
const BUFFER: usize = 64 * 1024;

/// Ceiling for the receive buffer, bytes.
const BUFFER_MAX: usize = 4 * 1024 * 1024;

/// What the kernel may keep of events until they are read, bytes. Only what
/// waits takes memory; each event takes about 2 KB.
const BACKLOG: libc::c_int = 2 * 1024 * 1024;

/// How long the kernel may take for one answer, seconds. An answer is made in
/// our own system call, so this is reached only when the kernel loses one.
const ANSWER_SECONDS: libc::time_t = 5;

/// Whether an answer can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is complete.
    Whole,
    /// Something changed while it was made, or a part was lost.
    Torn,
}

/// A socket that asks, or one that listens.
pub(super) struct Route {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Route {
    /// A socket for requests.
    pub(super) fn asking() -> Result<Self, LinkError> {
        let route = Self::open()?;
        let limit = libc::timeval {
            tv_sec: ANSWER_SECONDS,
            tv_usec: 0,
        };
        set(&route.socket, libc::SO_RCVTIMEO, &limit).map_err(failed("setsockopt(SO_RCVTIMEO)"))?;
        Ok(route)
    }

    /// A socket that is told of every change of a link.
    pub(super) fn listening() -> Result<Self, LinkError> {
        let mut route = Self::open()?;
        route
            .socket
            .add_membership(GROUP_LINK)
            .map_err(failed("setsockopt(NETLINK_ADD_MEMBERSHIP)"))?;
        route
            .socket
            .set_non_blocking(true)
            .map_err(failed("fcntl"))?;
        // More than the system's limit needs CAP_NET_ADMIN. With less, events
        // are lost sooner, which is noticed.
        if set(&route.socket, libc::SO_RCVBUFFORCE, &BACKLOG).is_err() {
            let _ = set(&route.socket, libc::SO_RCVBUF, &BACKLOG);
        }
        route.buffer.reserve(BUFFER);
        Ok(route)
    }

    fn open() -> Result<Self, LinkError> {
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed("socket"))?;
        socket.bind_auto().map_err(failed("bind"))?;
        // To the kernel: nobody else's messages are taken.
        socket
            .connect(&SocketAddr::new(0, 0))
            .map_err(failed("connect"))?;
        Ok(Self {
            socket,
            buffer: Vec::new(),
            sequence: 0,
        })
    }

    /// Asks for all links.
    pub(super) fn links(&mut self, each: impl FnMut(Message<'_>)) -> Result<Answer, LinkError> {
        let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
        self.ask(all, NLM_F_REQUEST | NLM_F_DUMP, each)
    }

    /// Asks for the counters of one link, or of all.
    pub(super) fn counters(
        &mut self,
        ifindex: Option<u32>,
        each: impl FnMut(Message<'_>),
    ) -> Result<Answer, LinkError> {
        let mut header = StatsHeader::default();
        header.ifindex = ifindex.unwrap_or(0);
        header.filter_mask = StatsFilterMask::Link64;
        let mut message = StatsMessage::default();
        message.header = header;
        let flags = match ifindex {
            Some(_) => NLM_F_REQUEST,
            None => NLM_F_REQUEST | NLM_F_DUMP,
        };
        self.ask(RouteNetlinkMessage::GetStats(message), flags, each)
    }

    /// Sends a request and hands out what its answer holds. An error leaves
    /// the socket of no use.
    fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        mut each: impl FnMut(Message<'_>),
    ) -> Result<Answer, LinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request(message, flags, self.sequence);
        self.socket.send(&bytes, 0).map_err(failed("send"))?;
        let single = flags & NLM_F_DUMP != NLM_F_DUMP;
        let mut answer = Answer::Whole;
        loop {
            match self.receive()? {
                Received::Datagram => {}
                Received::Nothing => {
                    let why = io::Error::from(io::ErrorKind::TimedOut);
                    return Err(failed("recv")(why));
                }
                Received::Lost => {
                    answer = Answer::Torn;
                    continue;
                }
            }
            for message in messages(&self.buffer) {
                let message = message?;
                if message.sequence != self.sequence {
                    continue;
                }
                match message.sense() {
                    Sense::Content => each(message),
                    Sense::Torn => answer = Answer::Torn,
                    Sense::End => {}
                    Sense::Refused(why) if why.raw_os_error() == Some(libc::EINTR) => {
                        answer = Answer::Torn;
                    }
                    Sense::Refused(source) => return Err(LinkError::Refused { source }),
                }
                if message.ends() || single {
                    return Ok(answer);
                }
            }
        }
    }

    /// Hands out what was told since the last time.
    pub(super) fn told(&mut self, mut each: impl FnMut(Message<'_>)) -> Result<Answer, LinkError> {
        let mut answer = Answer::Whole;
        loop {
            match self.receive()? {
                Received::Nothing => return Ok(answer),
                Received::Lost => answer = Answer::Torn,
                Received::Datagram => {
                    for message in messages(&self.buffer) {
                        each(message?);
                    }
                }
            }
        }
    }

    fn receive(&mut self) -> Result<Received, LinkError> {
        loop {
            self.buffer.clear();
            self.buffer.reserve(BUFFER);
            match self.socket.recv(&mut self.buffer, libc::MSG_TRUNC) {
                Ok(length) if length > BUFFER_MAX => {
                    return Err(LinkError::Malformed("a message beyond 4 MiB"));
                }
                Ok(length) if length > self.buffer.len() => {
                    // Cut off: the next one will find room.
                    self.buffer.reserve(length.next_power_of_two());
                    return Ok(Received::Lost);
                }
                Ok(_) => return Ok(Received::Datagram),
                Err(why) => match why.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN) => return Ok(Received::Nothing),
                    // The socket's queue overran and messages are lost.
                    Some(libc::ENOBUFS) => return Ok(Received::Lost),
                    _ => return Err(failed("recv")(why)),
                },
            }
        }
    }
}

/// What came of one look.
enum Received {
    /// A datagram is in the buffer.
    Datagram,
    /// Nothing waits, or nothing came in time.
    Nothing,
    /// Something was lost.
    Lost,
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> LinkError {
    move |source| LinkError::Socket { call, source }
}

fn set<T>(socket: &Socket, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `socket` lives, and the
    // kernel reads as many bytes as `value` has.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
