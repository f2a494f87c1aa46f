//! Many datagrams with one system call.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Most datagrams in one call.
pub const BATCH: usize = 32;

/// Room for [`BATCH`] datagrams.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<Vec<u8>>,
    lengths: [usize; BATCH],
}

impl Batch {
    /// Room for datagrams of up to `size` bytes.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self {
            bytes: vec![vec![0; size]; BATCH],
            lengths: [0; BATCH],
        }
    }

    /// Receives what is there, without waiting; says how many datagrams.
    ///
    /// # Errors
    /// What recvmmsg(2) failed with; nothing to receive is not a failure.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let mut parts = self.parts();
        let mut messages = messages(&mut parts);
        // SAFETY: every message points to one iovec, and that to a buffer
        // of the length it says; all of them live across the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return match io::Error::last_os_error() {
                e if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
                {
                    Ok(0)
                }
                e => Err(e),
            };
        };
        for (length, message) in self.lengths.iter_mut().zip(&messages) {
            *length = message.msg_len as usize;
        }
        Ok(count)
    }

    /// Datagram `index` of those just received.
    #[must_use]
    pub fn datagram(&self, index: usize) -> &[u8] {
        let bytes = &self.bytes[index];
        &bytes[..self.lengths[index].min(bytes.len())]
    }

    /// Datagram `index`, to be filled before sending.
    pub fn fill(&mut self, index: usize) -> &mut Vec<u8> {
        &mut self.bytes[index]
    }

    /// Sends the first `count` datagrams as filled; says how many went.
    ///
    /// # Errors
    /// What sendmmsg(2) failed with at the first datagram.
    pub fn send(&mut self, socket: &UdpSocket, count: usize) -> io::Result<usize> {
        let mut parts = self.parts();
        let mut messages = messages(&mut parts);
        // SAFETY: as in `receive`; no more messages are sent than there are.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                count.min(BATCH) as libc::c_uint,
                0,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    fn parts(&mut self) -> Vec<libc::iovec> {
        self.bytes
            .iter_mut()
            .map(|bytes| libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            })
            .collect()
    }
}

fn messages(parts: &mut [libc::iovec]) -> Vec<libc::mmsghdr> {
    parts
        .iter_mut()
        .map(|part| {
            // SAFETY: all-zero is a valid message header: no name, no data.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_arrive_as_they_were_sent() {
        let (a, b) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        a.connect(b.local_addr().unwrap()).unwrap();
        let mut out = Batch::new(0);
        for i in 0..5 {
            *out.fill(i) = vec![i as u8; i + 1];
        }
        assert_eq!(out.send(&a, 5).unwrap(), 5);
        let mut into = Batch::new(100);
        assert_eq!(into.receive(&b).unwrap(), 5);
        for i in 0..5 {
            assert_eq!(into.datagram(i), vec![i as u8; i + 1]);
        }
        assert_eq!(into.receive(&b).unwrap(), 0);
    }
}
