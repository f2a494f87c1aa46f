//! Which tap a descriptor of `/dev/net/tun` belongs to.

use std::path::PathBuf;

use super::{ProcError, read_text};

/// Name of the tun or tap device behind `fd` of process `pid`, from
/// `/proc/PID/fdinfo/FD`; `None` when it is no tun descriptor or is not
/// attached to a device yet.
///
/// The name is that of the device in *its* network namespace.
///
/// # Errors
///
/// [`ProcError::Gone`], or [`ProcError::Hidden`]: fdinfo asks for ptrace
/// rights.
pub fn tun_name(pid: i32, fd: i32) -> Result<Option<String>, ProcError> {
    let text = read_text(&PathBuf::from(format!("/proc/{pid}/fdinfo/{fd}")))?;
    Ok(tun_name_from(&text))
}

/// The `iff:` line of an fdinfo text, which `tun_chr_show_fdinfo` prints.
pub fn tun_name_from(text: &str) -> Option<String> {
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("iff:"))?
        .trim();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_name_is_found_when_there_is_one() {
        let tap = "pos:\t0\nflags:\t0104002\nmnt_id:\t27\nino:\t83\niff:\ttap0\n";
        assert_eq!(tun_name_from(tap), Some("tap0".into()));
        // A tun descriptor before TUNSETIFF prints the line without a name.
        assert_eq!(tun_name_from("pos:\t0\niff:\t\n"), None);
        assert_eq!(tun_name_from("pos:\t0\nflags:\t02\n"), None);
    }
}
