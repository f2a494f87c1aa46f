//! Asking the kernel for all links.

use std::{io, os::fd::AsRawFd};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN,
    NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{RouteNetlinkMessage, link::LinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::{Link, parse};

/// Length of `struct nlmsghdr`, bytes.
const NETLINK_HEADER_LEN: usize = 16;

/// `RTM_NEWLINK` of rtnetlink(7).
const RTM_NEWLINK: u16 = 16;

/// Attempts at a dump that is whole. Links come and go while VMs start; each
/// attempt is one pass over all devices, well below a millisecond.
const ATTEMPTS: u32 = 8;

/// First size of the receive buffer, bytes. The kernel fills at most 32 KiB
/// per message of a dump; a larger one makes the buffer grow.
const BUFFER: usize = 64 * 1024;

/// Ceiling for the receive buffer, bytes.
const BUFFER_MAX: usize = 4 * 1024 * 1024;

/// How long the kernel may take for one answer, seconds. A dump is made in our
/// own system call, so this is reached only when the kernel loses an answer.
const ANSWER_SECONDS: libc::time_t = 5;

/// Why the links could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A system call on the netlink socket failed.
    #[error("{call} on a rtnetlink socket: {source}")]
    Socket {
        /// Which one.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The kernel answered the request with an error.
    #[error("the kernel refused RTM_GETLINK: {source}")]
    Refused {
        /// What it said.
        source: io::Error,
    },
    /// The kernel's answer breaks the rules of netlink(7).
    #[error("the kernel's answer to RTM_GETLINK cannot be read: {0}")]
    Malformed(&'static str),
    /// Links changed during every one of the attempts.
    #[error(
        "network devices came or went during each of {0} attempts to list them; the last \
         list would have been incomplete"
    )]
    Unsettled(u32),
}

/// Why one attempt gave no list.
enum Attempt {
    /// Another attempt may do better.
    Again,
    /// So may one with a larger buffer, bytes.
    Larger(usize),
    Failed(LinkError),
}

impl From<LinkError> for Attempt {
    fn from(error: LinkError) -> Self {
        Self::Failed(error)
    }
}

/// All links of the calling thread's network namespace, ascending by index.
///
/// Needs no rights. A dump during which devices came or went is marked by the
/// kernel (`NLM_F_DUMP_INTR`) and made again, a few times.
///
/// # Errors
///
/// See [`LinkError`].
pub fn links() -> Result<Vec<Link>, LinkError> {
    let mut buffer = Vec::with_capacity(BUFFER);
    for _ in 0..ATTEMPTS {
        // A fresh socket each time: nothing of a failed attempt can be left
        // in its queue.
        match attempt(&mut buffer) {
            Ok(mut links) => {
                links.sort_by_key(|link| link.ifindex);
                return Ok(links);
            }
            Err(Attempt::Again) => {}
            Err(Attempt::Larger(size)) if size <= BUFFER_MAX => {
                buffer.clear();
                buffer.reserve(size.next_power_of_two());
            }
            Err(Attempt::Larger(_)) => {
                return Err(LinkError::Malformed("a message beyond 4 MiB"));
            }
            Err(Attempt::Failed(error)) => return Err(error),
        }
    }
    Err(LinkError::Unsettled(ATTEMPTS))
}

fn attempt(buffer: &mut Vec<u8>) -> Result<Vec<Link>, Attempt> {
    let failed = |call| move |source| LinkError::Socket { call, source };
    let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed("socket"))?;
    socket.bind_auto().map_err(failed("bind"))?;
    socket
        .connect(&SocketAddr::new(0, 0))
        .map_err(failed("connect"))?;
    bound_waiting(&socket).map_err(failed("setsockopt(SO_RCVTIMEO)"))?;
    socket.send(&request(), 0).map_err(failed("send"))?;
    let mut links = Vec::new();
    loop {
        buffer.clear();
        let length = match socket.recv(buffer, libc::MSG_TRUNC) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // The socket's queue overran and messages are lost.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                return Err(Attempt::Again);
            }
            Err(error) => return Err(failed("recv")(error).into()),
        };
        if length > buffer.len() {
            return Err(Attempt::Larger(length));
        }
        if datagram(buffer, &mut links)? {
            return Ok(links);
        }
    }
}

/// Sets a limit on waiting for an answer, so that no kernel can hang us.
fn bound_waiting(socket: &Socket) -> io::Result<()> {
    let limit = libc::timeval {
        tv_sec: ANSWER_SECONDS,
        tv_usec: 0,
    };
    // SAFETY: the descriptor is open for as long as `socket` lives, and the
    // kernel reads exactly one timeval, which `limit` is.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const limit).cast(),
            size_of_val(&limit) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn request() -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    header.sequence_number = 1;
    let payload = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(payload));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Takes the links out of one datagram; true when it ends the dump.
fn datagram(bytes: &[u8], links: &mut Vec<Link>) -> Result<bool, Attempt> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let Ok(message) = NetlinkBuffer::new_checked(rest) else {
            return Err(LinkError::Malformed("a message longer than its datagram").into());
        };
        if message.flags() & NLM_F_DUMP_INTR != 0 {
            return Err(Attempt::Again);
        }
        let length = message.length() as usize;
        let Some(payload) = rest.get(NETLINK_HEADER_LEN..length) else {
            return Err(LinkError::Malformed("a message shorter than its header").into());
        };
        match message.message_type() {
            RTM_NEWLINK => links.extend(parse::link(payload)),
            NLMSG_DONE | NLMSG_ERROR => {
                // Both begin with 0 or a negative errno.
                let code = payload
                    .first_chunk()
                    .map_or(0, |code| i32::from_ne_bytes(*code));
                return match code {
                    0 => Ok(true),
                    // Since 5.x: the table changed under the dump.
                    code if code == -libc::EINTR => Err(Attempt::Again),
                    code => Err(LinkError::Refused {
                        source: io::Error::from_raw_os_error(code.saturating_neg()),
                    }
                    .into()),
                };
            }
            NLMSG_OVERRUN => return Err(Attempt::Again),
            NLMSG_NOOP => {}
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NLM_F_MULTIPART;

    use super::*;

    fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(NETLINK_HEADER_LEN + payload.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn loopback_is_found_on_this_host() {
        let links = links().unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert_eq!(lo.ifindex, 1);
        assert!(lo.stats.is_some());
        assert!(links.is_sorted_by_key(|link| link.ifindex));
    }

    #[test]
    fn an_interrupted_dump_is_made_again() {
        let flags = NLM_F_MULTIPART | NLM_F_DUMP_INTR;
        let result = datagram(&message(RTM_NEWLINK, flags, &[0; 16]), &mut Vec::new());
        assert!(matches!(result, Err(Attempt::Again)));
        let done = message(NLMSG_DONE, flags, &[0; 4]);
        let result = datagram(&done, &mut Vec::new());
        assert!(matches!(result, Err(Attempt::Again)));
    }

    #[test]
    fn the_end_and_refusals_are_told_apart() {
        let done = message(NLMSG_DONE, NLM_F_MULTIPART, &[0; 4]);
        assert!(matches!(datagram(&done, &mut Vec::new()), Ok(true)));
        let refused = message(NLMSG_ERROR, 0, &(-libc::EPERM).to_ne_bytes());
        assert!(matches!(
            datagram(&refused, &mut Vec::new()),
            Err(Attempt::Failed(LinkError::Refused { .. }))
        ));
        let busy = message(NLMSG_DONE, 0, &(-libc::EINTR).to_ne_bytes());
        let result = datagram(&busy, &mut Vec::new());
        assert!(matches!(result, Err(Attempt::Again)));
    }

    #[test]
    fn messages_that_lie_about_their_length_are_refused() {
        for length in [0u32, 15, 17, 4096] {
            let mut bytes = message(NLMSG_DONE, 0, &[]);
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert!(matches!(
                datagram(&bytes, &mut Vec::new()),
                Err(Attempt::Failed(LinkError::Malformed(_)))
            ));
        }
    }
}
