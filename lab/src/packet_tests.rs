use super::*;
use proptest::prelude::*;

fn ends() -> Ends {
    Ends {
        guest_mac: [2, 0, 0, 0, 0, 2],
        host_mac: [2, 0, 0, 0, 0, 1],
        guest_ip: Ipv4Addr::new(10, 77, 0, 2),
        host_ip: Ipv4Addr::new(10, 77, 0, 1),
        queue: 3,
    }
}

fn header(sequence: u64) -> Header {
    Header {
        queue: 3,
        direction: Direction::Tx,
        kind: Kind::Data,
        sequence,
        answers: 8,
        stamp_ns: 9,
    }
}

/// Turns a frame round, as the host's answer would come.
fn turned(mut frame: Vec<u8>) -> Vec<u8> {
    let (source, destination): ([u8; 2], [u8; 2]) = (
        frame[34..36].try_into().unwrap(),
        frame[36..38].try_into().unwrap(),
    );
    frame[34..36].copy_from_slice(&destination);
    frame[36..38].copy_from_slice(&source);
    frame
}

#[test]
fn ip_checksum_of_a_known_header() {
    let mut ip = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0x00, 0x01,
        0xc0, 0xa8, 0x00, 0xc7,
    ];
    assert_eq!(ip_checksum(&ip), 0xb861);
    ip[10..12].copy_from_slice(&0xb861u16.to_be_bytes());
    assert_eq!(ip_checksum(&ip), 0);
}

#[test]
fn other_traffic_is_foreign() {
    let mut frame = Vec::new();
    write_frame(&ends(), &header(1), 100, &mut frame);
    assert_eq!(
        parse_frame(&frame),
        Parsed::Foreign,
        "it goes the other way"
    );
    let mut arp = turned(frame.clone());
    arp[13] = 0x06;
    assert_eq!(parse_frame(&arp), Parsed::Foreign);
    assert_eq!(parse_frame(&frame[..20]), Parsed::Foreign);
    assert_eq!(parse_frame(&[]), Parsed::Foreign);
}

#[test]
fn a_frame_cut_short_is_damaged() {
    let mut frame = Vec::new();
    write_frame(&ends(), &header(1), 100, &mut frame);
    let frame = turned(frame);
    assert_eq!(parse_frame(&frame[..frame.len() - 1]), Parsed::Damaged);
}

proptest! {
    #[test]
    fn a_frame_is_read_as_it_was_written(sequence: u64, len in MIN_PAYLOAD..9000, padding in 0usize..20) {
        let mut frame = Vec::new();
        write_frame(&ends(), &header(sequence), len, &mut frame);
        prop_assert_eq!(frame.len(), HEADERS + len);
        let mut frame = turned(frame);
        frame.extend(std::iter::repeat_n(0, padding));
        prop_assert_eq!(parse_frame(&frame), Parsed::Ours(header(sequence)));
    }

    #[test]
    fn every_flipped_bit_of_a_payload_is_seen(sequence: u64, len in MIN_PAYLOAD..300, at: prop::sample::Index, bit in 0u8..8) {
        let mut payload = Vec::new();
        write_payload(&header(sequence), len, &mut payload);
        prop_assert_eq!(parse_payload(&payload), Parsed::Ours(header(sequence)));
        let at = at.index(payload.len());
        payload[at] ^= 1 << bit;
        prop_assert_eq!(parse_payload(&payload), Parsed::Damaged);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let _ = parse_payload(&bytes);
        let _ = parse_frame(&bytes);
    }
}
