//! Puts modules into the kernel and takes them out.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::elf::Contents;
use super::files::Image;

/// Loads a module as `insmod` does.
///
/// # Errors
/// What the kernel says.
pub fn insert(image: &Image, parameters: &str) -> io::Result<()> {
    let parameters = CString::new(parameters)?;
    let result = match &image.file {
        // SAFETY: the descriptor is open for the call and the parameters are a
        // string that ends with a zero; the kernel copies what it keeps.
        Some(file) => unsafe {
            libc::syscall(
                libc::SYS_finit_module,
                file.as_raw_fd(),
                parameters.as_ptr(),
                0,
            )
        },
        // SAFETY: the pointer and the length are those of one live buffer, and
        // the parameters as above.
        None => unsafe {
            libc::syscall(
                libc::SYS_init_module,
                image.bytes.as_ptr(),
                image.bytes.len(),
                parameters.as_ptr(),
            )
        },
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Takes a module out, without waiting for who uses it.
///
/// # Errors
/// What the kernel says; `EWOULDBLOCK` if somebody uses it.
pub fn remove(module: &str) -> io::Result<()> {
    let name = CString::new(module)?;
    // SAFETY: the name is a string that ends with a zero and lives for the
    // call.
    let result = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// What an error of [`insert`] means.
#[must_use]
pub fn explain(why: &io::Error) -> String {
    let sentence = match why.raw_os_error() {
        Some(libc::EPERM) => {
            "this kernel does not let this process load modules (a container, \
             lockdown, or a security module)"
        }
        Some(libc::ENOKEY | libc::EKEYREJECTED) => {
            "it is not signed with a key that this kernel trusts"
        }
        Some(libc::EBADMSG) => "its signature is damaged",
        Some(libc::EEXIST) => "a module of that name is loaded already",
        Some(libc::ENOENT) => "it needs a function that this kernel does not have: build it anew",
        Some(libc::ENOEXEC) => "this kernel does not take its format: build it anew",
        Some(libc::EBUSY) => "the kernel is busy with another livepatch: try again later",
        Some(libc::EOPNOTSUPP) => "it refuses this vhost_net (experimental_zcopytx)",
        Some(libc::EINVAL) => "the kernel finds it invalid: build it anew",
        _ => return why.to_string(),
    };
    format!("{sentence} ({why})")
}

/// Runs a program of kmod's; its words are the error.
fn kmod(program: &str, arguments: &[&str]) -> Result<String, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(program)
        .args(arguments)
        // A plain user's PATH, or a service's, may lack them.
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .output()
        .map_err(|why| format!("`{program}` cannot be run: {why}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // Warnings come first, the reason last.
    let said = said.trim().lines().next_back().unwrap_or_default();
    let arguments = arguments.join(" ");
    Err(if said.is_empty() {
        format!("`{program} {arguments}` failed ({})", output.status)
    } else {
        format!("`{program} {arguments}` failed: {said}")
    })
}

/// Runs `modprobe`.
///
/// # Errors
/// What it says.
pub fn modprobe(arguments: &[&str]) -> Result<(), String> {
    kmod("modprobe", arguments).map(drop)
}

/// What `modinfo` says of a field of the module that `modprobe` would load.
///
/// # Errors
/// What it says if there is no such module.
pub fn modinfo(field: &str, module: &str) -> Result<String, String> {
    kmod("modinfo", &["-F", field, module]).map(|text| text.trim().to_owned())
}

/// Parameters that the administrator has set for a module in `modprobe.d`.
#[must_use]
pub fn configured(module: &str) -> String {
    match kmod("modprobe", &["-c"]) {
        Ok(text) => options(&text, module),
        Err(why) => {
            log::debug!("no parameters from modprobe.d: {why}");
            String::new()
        }
    }
}

fn options(configuration: &str, module: &str) -> String {
    let of_module = |line: &str| -> Option<String> {
        let rest = line.strip_prefix("options ")?.trim_start();
        let (name, rest) = rest.split_once(char::is_whitespace)?;
        (name.replace('-', "_") == module).then(|| rest.trim().to_owned())
    };
    let all: Vec<String> = configuration.lines().filter_map(of_module).collect();
    all.join(" ")
}

/// Loads what a module depends on.
///
/// # Errors
/// What `modprobe` says of the first that cannot be loaded.
pub fn dependencies(contents: &Contents) -> Result<(), String> {
    for name in contents.depends() {
        let loaded = Path::new("/sys/module").join(name.replace('-', "_"));
        if !loaded.exists() {
            modprobe(&[name])?;
        }
    }
    Ok(())
}

/// What the kernel logs from now on.
pub struct KernelLog(Option<File>);

impl KernelLog {
    /// Begins.
    #[must_use]
    pub fn from_here() -> Self {
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open("/dev/kmsg")?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        Self(open().ok())
    }

    /// Lines since that mention `word`, as an addition to a sentence; nothing
    /// if there are none.
    pub fn about(&mut self, word: &str) -> String {
        let Some(file) = &mut self.0 else {
            return String::new();
        };
        let mut lines = Vec::new();
        let mut record = [0; 8192];
        // Each read is one record; an error is the end or a gap.
        while let Ok(length) = file.read(&mut record) {
            if length == 0 {
                break;
            }
            let text = String::from_utf8_lossy(&record[..length]);
            let text = text.lines().next().and_then(|line| line.split_once(';'));
            if let Some((_, message)) = text
                && message.contains(word)
            {
                lines.push(message.to_owned());
            }
        }
        if lines.is_empty() {
            String::new()
        } else {
            format!("; the kernel logged: {}", lines.join(" / "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_module_are_picked_from_the_configuration() {
        let text = "blacklist x\noptions vhost_net experimental_zcopytx=0\n\
            options kvm x=1\noptions vhost-net  tx_batched=16 poll_peer=N\n";
        assert_eq!(
            options(text, "vhost_net"),
            "experimental_zcopytx=0 tx_batched=16 poll_peer=N"
        );
        assert_eq!(options(text, "vhost"), "");
    }

    #[test]
    fn errors_are_told_in_words_with_the_kernels_own() {
        let text = explain(&io::Error::from_raw_os_error(libc::EKEYREJECTED));
        assert!(text.contains("key") && text.contains("os error"), "{text}");
        let text = explain(&io::Error::from_raw_os_error(libc::EIO));
        assert!(text.contains("os error 5"), "{text}");
    }

    #[test]
    fn a_module_that_is_not_there_cannot_be_removed() {
        let why = remove("vhost_tuner_no_such_module").unwrap_err();
        let code = why.raw_os_error();
        assert!(
            matches!(code, Some(libc::ENOENT | libc::EPERM | libc::ENOSYS)),
            "{why}"
        );
    }
}
