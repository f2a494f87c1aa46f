//! A kernel's headers and source: where they are, and whether modules can be
//! built from them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::parse::{self, Config, SourceVersion};
use crate::command;

/// The build directory of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    pub(super) dir: PathBuf,
    pub(super) config: Config,
    /// What the source of this kernel says of itself.
    pub(crate) source_version: SourceVersion,
}

impl Headers {
    /// Where the headers of this version are, if they are here.
    pub(crate) fn place(version: &str) -> Option<PathBuf> {
        [
            format!("/lib/modules/{version}/build"),
            format!("/usr/src/linux-headers-{version}"),
            // Where Fedora has them.
            format!("/usr/src/kernels/{version}"),
        ]
        .map(PathBuf::from)
        .into_iter()
        .find(|dir| release(dir).is_ok_and(|release| release == version))
    }

    /// Reads them; they have to be of this version.
    pub(crate) fn read(dir: &Path, version: &str) -> Result<Self> {
        let release = release(dir)?;
        ensure!(
            release == version,
            "the headers at {} are of Linux {release}, not of {version}: name the right ones with \
             --headers",
            dir.display()
        );
        let config = read(dir, ".config").or_else(|_| read(dir, "include/config/auto.conf"))?;
        let header = read(dir, "include/generated/uapi/linux/version.h")?;
        Ok(Self {
            dir: dir.to_owned(),
            config: Config::of(&config),
            source_version: parse::header_version(&header)
                .with_context(|| format!("no version in version.h of {}", dir.display()))?,
        })
    }

    /// Whether this kernel takes the modules at all; and whether a livepatch.
    pub(super) fn takes_livepatch(&self, version: &str) -> Result<bool> {
        match self.config.get("VHOST_NET") {
            Some("m") => (),
            Some(_) => bail!(
                "vhost_net is built into Linux {version} (CONFIG_VHOST_NET=y), where no module can \
                 take its place: use a kernel that has it as a module"
            ),
            None => bail!(
                "Linux {version} has no vhost_net (CONFIG_VHOST_NET is not set): use a kernel that \
                 has it as a module"
            ),
        }
        ensure!(
            self.config.on("DEBUG_INFO_BTF_MODULES"),
            "Linux {version} has no type information for modules (CONFIG_DEBUG_INFO_BTF_MODULES is \
             not set), without which neither their layouts can be checked nor vhost-tuner can \
             measure: use a kernel that has it"
        );
        Ok(self.config.on("LIVEPATCH"))
    }
}

/// The kernel version that headers are of.
fn release(dir: &Path) -> Result<String> {
    let header = read(dir, "include/generated/utsrelease.h")?;
    parse::defined(&header, "UTS_RELEASE")
        .map(str::to_owned)
        .with_context(|| format!("no UTS_RELEASE in utsrelease.h of {}", dir.display()))
}

fn read(dir: &Path, file: &str) -> Result<String> {
    fs::read_to_string(dir.join(file)).with_context(|| {
        format!(
            "{} is no kernel's build directory: cannot read {file} in it",
            dir.display()
        )
    })
}

/// What a kernel's source says of itself.
pub(crate) fn version_of_source(dir: &Path) -> Result<SourceVersion> {
    for file in ["drivers/vhost/net.c", "drivers/vhost/vhost.h"] {
        ensure!(
            dir.join(file).is_file(),
            "{} has no {file}: --kernel-src takes the top of a kernel's source",
            dir.display()
        );
    }
    let makefile = fs::read_to_string(dir.join("Makefile"))
        .with_context(|| format!("no Makefile in {}", dir.display()))?;
    parse::makefile_version(&makefile)
        .with_context(|| format!("the Makefile in {} is not a kernel's", dir.display()))
}

/// Refuses source of another version than the headers.
pub(super) fn same_version(source: &Path, headers: &Headers, version: &str) -> Result<()> {
    let (found, wanted) = (version_of_source(source)?, headers.source_version);
    let shown = |(major, minor, patch)| format!("{major}.{minor}.{patch}");
    ensure!(
        found == wanted,
        "the source in {} is Linux {}, but Linux {version} was made from {}: get that one's source",
        source.display(),
        shown(found),
        shown(wanted)
    );
    Ok(())
}

/// The compiler to build with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Compiler {
    pub(super) program: String,
    /// The first line of `--version`.
    pub(super) says: String,
}

impl Compiler {
    /// The one that the kernel was built with, or one of the same major version.
    pub(super) fn of(headers: &Headers, version: &str) -> Result<Self> {
        let text = headers
            .config
            .get("CC_VERSION_TEXT")
            .context("the headers do not say which compiler the kernel was built with")?;
        Self::choose(text, version, |program| {
            command::output(Command::new(program).arg("--version").env("LC_ALL", "C"))
                .ok()
                .and_then(|text| text.lines().next().map(str::to_owned))
        })
    }

    fn choose(text: &str, version: &str, says: impl Fn(&str) -> Option<String>) -> Result<Self> {
        ensure!(
            !text.contains("clang"),
            "Linux {version} was built with {text}; only kernels that gcc built are supported"
        );
        let wanted = parse::compiler_version(text)
            .and_then(major)
            .with_context(|| format!("no version in the name of the compiler: {text}"))?;
        let named = text.split(' ').next().unwrap_or_default().to_owned();
        let versioned = format!("gcc-{wanted}");
        let mut others = Vec::new();
        for program in [named, versioned.clone(), "gcc".to_owned()] {
            let Some(says) = says(&program) else {
                continue;
            };
            if parse::compiler_version(&says).and_then(major) == Some(wanted) {
                return Ok(Self { program, says });
            }
            others.push(says);
        }
        let here = if others.is_empty() {
            "there is no gcc here".to_owned()
        } else {
            format!("here is {}", others.join(", "))
        };
        bail!(
            "Linux {version} was built with {text}, and {here}: a module has to be built with the \
             same major version; install {versioned}"
        )
    }

    /// A remark where it is not the very same build of the compiler.
    pub(super) fn remark(&self, headers: &Headers) -> Option<String> {
        let text = headers.config.get("CC_VERSION_TEXT")?;
        let (ours, theirs) = (
            parse::compiler_version(&self.says)?,
            parse::compiler_version(text)?,
        );
        (ours != theirs).then(|| {
            format!("NOTE: built with {ours} of gcc, the kernel with {theirs}: they should agree")
        })
    }
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0";

    #[test]
    fn the_compiler_is_the_kernels_own_or_of_its_major_version() {
        let compiler = Compiler::choose(TEXT, "V", |program| match program {
            "gcc" => Some("gcc (Debian 14.1.0-1) 14.1.0".to_owned()),
            "gcc-12" => Some("gcc-12 (Debian 12.4.0-1) 12.4.0".to_owned()),
            _ => None,
        });
        assert_eq!(compiler.unwrap().program, "gcc-12");
    }

    #[test]
    fn another_compiler_is_refused_with_what_to_install() {
        let other = |program: &str| (program == "gcc").then(|| "gcc (GCC) 14.1.0".to_owned());
        let error = Compiler::choose(TEXT, "V", other).unwrap_err().to_string();
        assert!(error.contains("here is gcc (GCC) 14.1.0"), "{error}");
        assert!(error.ends_with("install gcc-12"), "{error}");
        let none = Compiler::choose(TEXT, "V", |_| None).unwrap_err();
        assert!(none.to_string().contains("there is no gcc"), "{none}");
        let clang = Compiler::choose("clang version 17.0.6", "V", |_| None).unwrap_err();
        assert!(
            clang.to_string().contains("only kernels that gcc"),
            "{clang}"
        );
    }

    #[test]
    fn a_kernel_says_which_modules_it_takes() {
        let headers = |config: &str| Headers {
            dir: PathBuf::new(),
            config: Config::of(config),
            source_version: (6, 1, 0),
        };
        let btf = "CONFIG_DEBUG_INFO_BTF_MODULES=y\n";
        let takes = |config: &str| headers(&format!("{btf}{config}")).takes_livepatch("V");
        assert!(takes("CONFIG_VHOST_NET=m\nCONFIG_LIVEPATCH=y\n").unwrap());
        assert!(!takes("CONFIG_VHOST_NET=m\n").unwrap());
        let text = takes("CONFIG_VHOST_NET=y\n").unwrap_err().to_string();
        assert!(text.contains("built into"), "{text}");
        let text = takes("").unwrap_err().to_string();
        assert!(text.contains("has no vhost_net"), "{text}");
        let bare = headers("CONFIG_VHOST_NET=m\n").takes_livepatch("V");
        assert!(
            bare.unwrap_err()
                .to_string()
                .contains("no type information")
        );
    }
}
