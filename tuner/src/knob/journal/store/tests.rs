//! The journal's file, in folders of its own.

use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;
use tuner_common::queue::RX;

use super::super::record::tests::{key, touch};
use super::*;
use crate::knob::module::Knob;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A key of a process that lives: this one.
fn living(boot: &str, fd: u32) -> Key {
    let pid = std::process::id();
    Key {
        boot: boot.to_owned(),
        start_time: ProcStat::of_process(pid.cast_signed()).unwrap().start_time,
        fd,
        ..key(pid, Knob::Busyloop { direction: RX })
    }
}

fn want(key: &Key, wanted: u32) -> Record {
    Record::Want {
        key: key.clone(),
        wanted,
        previous: None,
    }
}

fn bytes(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("journal")).unwrap()
}

#[test]
fn reading_makes_no_file_and_writing_makes_one_for_us_alone() {
    let root = folder();
    let folder = root.path().join("var/lib/tuner");
    let mut journal = Journal::read(&folder).unwrap();
    assert!(journal.entries().is_empty() && journal.notes().is_empty());
    assert!(!root.path().join("var").exists());
    journal.prepare().unwrap();
    assert_eq!(bytes(&folder), header());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&journal.path()), 0o600);
}

#[test]
fn what_was_appended_is_there_for_the_next_one() {
    let root = folder();
    let mut journal = Journal::read(root.path()).unwrap();
    let [first, second] = [7, 8].map(|fd| living(journal.boot(), fd));
    journal
        .append(&[touch(first.clone(), 0, 50), touch(second.clone(), 5, 60)])
        .unwrap();
    journal.append(&[want(&first, 70)]).unwrap();
    let again = Journal::read(root.path()).unwrap();
    assert_eq!(again.entries(), journal.entries());
    let entry = again.entries().get(&first).unwrap();
    assert_eq!((entry.original, entry.wanted), (0, 70));
    assert_eq!(again.entries().get(&second).unwrap().original, 5);
}

#[test]
fn a_torn_end_is_cut_off_by_the_next_append() {
    let root = folder();
    let mut journal = Journal::read(root.path()).unwrap();
    let key = living(journal.boot(), 7);
    journal.append(&[touch(key.clone(), 0, 50)]).unwrap();
    let whole = bytes(root.path());
    for rest in [&b"0"[..], b"12345678 {\"record\":\"wa", b"\0\0\0\0", b"x\n"] {
        fs::write(journal.path(), [&whole, rest].concat()).unwrap();
        let mut torn = Journal::read(root.path()).unwrap();
        assert_eq!(torn.notes().len(), 1);
        torn.append(&[want(&key, 60)]).unwrap();
        let expected = [&whole[..], &want(&key, 60).encode()].concat();
        assert_eq!(bytes(root.path()), expected);
    }
    // A last line that lacks its newline only gets one.
    fs::write(journal.path(), &whole[..whole.len() - 1]).unwrap();
    let mut torn = Journal::read(root.path()).unwrap();
    assert_eq!(torn.entries().len(), 1);
    torn.append(&[want(&key, 60)]).unwrap();
    assert!(Journal::read(root.path()).unwrap().notes().is_empty());
    assert!(bytes(root.path()).starts_with(&whole));
}

#[test]
fn what_another_process_has_left_half_written_is_cut_off_too() {
    let root = folder();
    let mut journal = Journal::read(root.path()).unwrap();
    let key = living(journal.boot(), 7);
    journal.append(&[touch(key.clone(), 0, 50)]).unwrap();
    let mut text = bytes(root.path());
    text.extend(b"half a li");
    fs::write(journal.path(), &text).unwrap();
    journal.append(&[want(&key, 60)]).unwrap();
    assert!(Journal::read(root.path()).unwrap().notes().is_empty());
}

#[test]
fn a_damaged_first_line_is_written_anew_with_what_can_be_read() {
    let root = folder();
    let mut journal = Journal::read(root.path()).unwrap();
    let key = living(journal.boot(), 7);
    journal.append(&[touch(key.clone(), 0, 50)]).unwrap();
    let mut text = bytes(root.path());
    text[12] ^= 1;
    fs::write(journal.path(), &text).unwrap();
    let mut damaged = Journal::read(root.path()).unwrap();
    assert_eq!(damaged.notes(), ["its first line is damaged"]);
    damaged.append(&[want(&key, 60)]).unwrap();
    let again = Journal::read(root.path()).unwrap();
    assert!(again.notes().is_empty());
    assert_eq!(again.entries().get(&key).unwrap().original, 0);
}

#[test]
fn a_later_version_and_another_file_are_left_as_they_are() {
    let json = r#"{"format":"vhost-tuner journal","version":2}"#;
    let later = format!(
        "{:08x} {json}\nwhat comes\n",
        crc32fast::hash(json.as_bytes())
    );
    for (text, said) in [
        (later.as_str(), "is of format 2"),
        ("somebody's notes\n", "is no journal"),
    ] {
        let root = folder();
        fs::write(root.path().join("journal"), text).unwrap();
        let why = Journal::read(root.path()).unwrap_err().to_string();
        assert!(why.contains(said) && why.contains("left as it is"), "{why}");
        assert_eq!(bytes(root.path()), text.as_bytes());
    }
}

#[test]
fn what_is_in_the_way_is_named_and_left_alone() {
    let root = folder();
    let file = root.path().join("file");
    fs::write(&file, "x").unwrap();
    for folder in [file.clone(), file.join("below")] {
        let why = Journal::read(&folder).and_then(|mut journal| journal.prepare());
        let why = why.unwrap_err().to_string();
        assert!(why.contains(&file.display().to_string()), "{why}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"x");
    // A link might lead anywhere, a folder is no file.
    let linked = root.path().join("linked");
    fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink("/dev/null", linked.join("journal")).unwrap();
    assert!(Journal::read(&linked).is_err());
    let nested = root.path().join("nested");
    fs::create_dir_all(nested.join("journal")).unwrap();
    assert!(Journal::read(&nested).is_err());
}

#[test]
fn many_changes_of_few_knobs_keep_the_file_small() {
    let root = folder();
    let mut journal = Journal::read(root.path()).unwrap();
    let key = living(journal.boot(), 7);
    journal.append(&[touch(key.clone(), 3, 0)]).unwrap();
    let mut longest = 0;
    for wanted in 0..1000 {
        journal.append(&[want(&key, wanted)]).unwrap();
        longest = longest.max(bytes(root.path()).len());
    }
    let line = touch(key.clone(), 3, 0).encode().len();
    assert!(longest < line * (FEW + 4), "{longest}");
    let again = Journal::read(root.path()).unwrap();
    let entry = again.entries().get(&key).unwrap();
    assert_eq!((entry.original, entry.wanted), (3, 999));
}

/// Entries of this boot for one living process, one that has ended, and
/// one of another boot.
fn three(journal: &Journal) -> [Record; 3] {
    let living_now = living(journal.boot(), 7);
    let ended = Key {
        start_time: living_now.start_time + 1,
        ..living_now.clone()
    };
    let elsewhen = living("another boot", 7);
    [living_now, ended, elsewhen].map(|key| touch(key, 3, 4))
}

#[test]
fn what_is_over_goes_when_the_file_is_written_anew() {
    let root = folder();
    let mut journal = Journal::read(root.path()).unwrap();
    let records = three(&journal);
    journal.append(&records).unwrap();
    assert_eq!(Journal::read(root.path()).unwrap().entries().len(), 3);
    let key = living(journal.boot(), 7);
    for wanted in 0..200 {
        journal.append(&[want(&key, wanted)]).unwrap();
    }
    let again = Journal::read(root.path()).unwrap();
    assert_eq!(again.entries().len(), 1);
    assert_eq!(again.entries().get(&key).unwrap().original, 3);
    assert_eq!(again.entries(), journal.entries());
}

#[test]
fn ended_processes_do_not_make_it_grow_beyond_its_bound() {
    let root = folder();
    let mut journal = Journal::read(root.path()).unwrap();
    let key = living(journal.boot(), 7);
    journal.append(&[touch(key.clone(), 3, 4)]).unwrap();
    let mut longest = 0;
    for start_time in 1..60 {
        // A hundred descriptors of a process that has ended.
        let ended = |fd| Key {
            start_time,
            ..living(journal.boot(), fd)
        };
        let records: Vec<_> = (0..200).map(|fd| touch(ended(fd), 0, 1)).collect();
        journal.append(&records).unwrap();
        longest = longest.max(bytes(root.path()).len());
    }
    assert!(longest > BOUND / 2 && longest < BOUND * 5 / 4, "{longest}");
    assert!(journal.entries().get(&key).is_some());
}

#[test]
fn living_entries_stay_however_many_they_are() {
    let root = folder();
    let mut journal = Journal::read(root.path()).unwrap();
    let keys: Vec<_> = (0..6000).map(|fd| living(journal.boot(), fd)).collect();
    for part in keys.chunks(500) {
        let records: Vec<_> = part.iter().map(|key| touch(key.clone(), 3, 4)).collect();
        journal.append(&records).unwrap();
    }
    assert!(bytes(root.path()).len() > BOUND);
    let again = Journal::read(root.path()).unwrap();
    assert_eq!(again.entries().len(), keys.len());
}

#[test]
fn a_crash_before_the_new_file_takes_its_place_loses_nothing() {
    let root = folder();
    let mut journal = Journal::read(root.path()).unwrap();
    let key = living(journal.boot(), 7);
    journal.append(&[touch(key.clone(), 3, 4)]).unwrap();
    // As a program leaves it that ends between writing and renaming.
    for left in [&b""[..], b"0123", &header()] {
        fs::write(journal.new_path(), left).unwrap();
        let mut next = Journal::read(root.path()).unwrap();
        assert_eq!(next.entries().len(), 1);
        assert!(next.notes().is_empty());
        next.write_anew().unwrap();
        assert!(!next.new_path().exists());
        let again = Journal::read(root.path()).unwrap();
        assert_eq!(again.entries(), journal.entries());
    }
}

#[test]
fn a_journal_that_was_removed_meanwhile_comes_back_whole() {
    let root = folder();
    let mut journal = Journal::read(root.path()).unwrap();
    let key = living(journal.boot(), 7);
    journal.append(&[touch(key.clone(), 3, 4)]).unwrap();
    fs::remove_file(journal.path()).unwrap();
    journal.append(&[want(&key, 5)]).unwrap();
    let again = Journal::read(root.path()).unwrap();
    assert_eq!(again.entries(), journal.entries());
    assert_eq!(again.entries().get(&key).unwrap().original, 3);
}
