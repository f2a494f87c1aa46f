//! Cutting a netlink datagram into its messages.

use std::io;

use netlink_packet_core::{
    NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;

use super::LinkError;

/// Length of `struct nlmsghdr`, bytes.
const HEADER: usize = 16;

/// One message as it lies in a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    /// What it is: `RTM_NEWLINK` and the like.
    pub(super) kind: u16,
    flags: u16,
    /// Number of the request that it answers.
    pub(super) sequence: u32,
    /// What stands behind the header.
    pub(super) payload: &'a [u8],
}

/// What an answer says of itself.
#[derive(Debug)]
pub(super) enum Sense {
    /// It holds something.
    Content,
    /// The answer ends here.
    End,
    /// What was told so far is not whole, and more may follow.
    Torn,
    /// The request is refused.
    Refused(io::Error),
}

impl Message<'_> {
    /// What it says of the answer that it belongs to.
    pub(super) fn sense(&self) -> Sense {
        match self.kind {
            NLMSG_DONE | NLMSG_ERROR => {
                // Both begin with 0 or a negative errno.
                let code = self.payload.first_chunk();
                match code.map_or(0, |code| i32::from_ne_bytes(*code)) {
                    0 if self.flags & NLM_F_DUMP_INTR != 0 => Sense::Torn,
                    0 => Sense::End,
                    code => Sense::Refused(io::Error::from_raw_os_error(code.saturating_neg())),
                }
            }
            NLMSG_OVERRUN => Sense::Torn,
            _ if self.flags & NLM_F_DUMP_INTR != 0 => Sense::Torn,
            _ => Sense::Content,
        }
    }

    /// True for the last message of an answer, whatever it says.
    pub(super) fn ends(&self) -> bool {
        matches!(self.kind, NLMSG_DONE | NLMSG_ERROR)
    }
}

/// All messages of a datagram, in order; an error where one lies about its
/// length, and nothing after that.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<Message<'_>, LinkError>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (found, after) = match first(rest) {
            Ok((message, after)) => (Ok(message), after),
            Err(why) => (Err(why), &[][..]),
        };
        rest = after;
        Some(found)
    })
}

fn first(bytes: &[u8]) -> Result<(Message<'_>, &[u8]), LinkError> {
    let Ok(message) = NetlinkBuffer::new_checked(bytes) else {
        return Err(LinkError::Malformed("a message longer than its datagram"));
    };
    let length = message.length() as usize;
    let Some(payload) = bytes.get(HEADER..length) else {
        return Err(LinkError::Malformed("a message shorter than its header"));
    };
    let found = Message {
        kind: message.message_type(),
        flags: message.flags(),
        sequence: message.sequence_number(),
        payload,
    };
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Ok((found, after))
}

/// A request as it is sent.
pub(super) fn request(message: RouteNetlinkMessage, flags: u16, sequence: u32) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
pub(super) mod tests {
    use netlink_packet_core::NLM_F_MULTIPART;

    use super::*;

    /// A message with sequence number 0.
    pub(in super::super) fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + payload.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn sense(kind: u16, flags: u16, payload: &[u8]) -> Sense {
        let bytes = message(kind, flags, payload);
        let mut all = messages(&bytes);
        all.next().unwrap().unwrap().sense()
    }

    #[test]
    fn a_torn_dump_is_told_from_a_whole_one() {
        let torn = NLM_F_MULTIPART | NLM_F_DUMP_INTR;
        assert!(matches!(sense(16, torn, &[0; 16]), Sense::Torn));
        assert!(matches!(sense(NLMSG_DONE, torn, &[0; 4]), Sense::Torn));
        assert!(matches!(sense(NLMSG_OVERRUN, 0, &[]), Sense::Torn));
        let whole = NLM_F_MULTIPART;
        assert!(matches!(sense(16, whole, &[0; 16]), Sense::Content));
        assert!(matches!(sense(NLMSG_DONE, whole, &[0; 4]), Sense::End));
    }

    #[test]
    fn a_refusal_carries_its_errno() {
        for kind in [NLMSG_ERROR, NLMSG_DONE] {
            let Sense::Refused(why) = sense(kind, 0, &(-libc::EPERM).to_ne_bytes()) else {
                panic!("not refused");
            };
            assert_eq!(why.raw_os_error(), Some(libc::EPERM));
        }
    }

    #[test]
    fn a_datagram_is_cut_into_its_messages() {
        let mut bytes = message(16, 0, b"abc");
        bytes.extend(message(17, 0, b"defgh"));
        let found: Vec<_> = messages(&bytes).map(Result::unwrap).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].kind, found[0].payload), (16, &b"abc"[..]));
        assert_eq!((found[1].kind, found[1].payload), (17, &b"defgh"[..]));
    }

    #[test]
    fn messages_that_lie_about_their_length_are_refused() {
        for length in [0u32, 15, 17, 4096] {
            let mut bytes = message(NLMSG_DONE, 0, &[]);
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            let found: Vec<_> = messages(&bytes).collect();
            assert_eq!(found.len(), 1);
            assert!(matches!(found[0], Err(LinkError::Malformed(_))));
        }
    }
}
