//! From sources to modules: `module/prepare`, make, and type information.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    check::{Kind, Reference},
    headers::{self, Compiler, Headers},
};
use crate::{command, paths, progress::Progress, setup::Kernel};

/// What the modules are built for, and from.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) kernel: Kernel,
    pub(super) headers: Headers,
    pub(super) source: PathBuf,
    pub(super) compiler: Compiler,
    /// Which modules this kernel takes.
    pub(super) kinds: Vec<Kind>,
}

impl Subject {
    /// Looks whether all of it fits together.
    pub(super) fn of(kernel: Kernel, headers: &Path, source: &Path) -> Result<Self> {
        let version = &kernel.version;
        // Make and the script run in other directories.
        let absolute = |path: &Path| {
            path.canonicalize()
                .with_context(|| format!("there is no {}", path.display()))
        };
        let headers = Headers::read(&absolute(headers)?, version)?;
        let livepatch = headers.takes_livepatch(version)?;
        let source = absolute(source)?;
        headers::same_version(&source, &headers, version)?;
        let compiler = Compiler::of(&headers, version)?;
        let mut kinds = vec![Kind::Replacement];
        kinds.extend(livepatch.then_some(Kind::Livepatch));
        Ok(Self {
            kernel,
            headers,
            source,
            compiler,
            kinds,
        })
    }

    /// Writes the sources of the modules to `out`.
    pub(super) fn prepare(&self, out: &Path, progress: &Progress) -> Result<()> {
        let _ = fs::remove_dir_all(out);
        let script = paths::module_source().join("prepare");
        let mut prepare = Command::new("sh");
        prepare
            .arg(&script)
            .args(["--kernel", &self.kernel.version])
            .arg("--headers")
            .arg(&self.headers.dir)
            .arg("--source")
            .arg(&self.source)
            .arg("--out")
            .arg(out);
        progress.say("putting the hooks in");
        let output = prepare
            .output()
            .with_context(|| format!("cannot start `{}`", command::shown(&prepare)))?;
        let said = String::from_utf8_lossy(&output.stderr);
        for line in said.lines() {
            progress.say(line);
        }
        ensure!(
            output.status.success(),
            "the hooks could not be put into the source of Linux {} ({}): what `module/prepare` \
             says above tells which, and why",
            self.kernel.version,
            output.status
        );
        Ok(())
    }

    /// Make, as the kernel's own build system wants it.
    pub(super) fn make(&self, out: &Path) -> Command {
        let mut make = Command::new("make");
        make.env("LC_ALL", "C")
            .arg("-C")
            .arg(&self.headers.dir)
            .arg(format!("M={}", out.display()))
            .arg(format!("CC={}", self.compiler.program));
        make
    }

    /// What to compare the modules with; `work` gets what has to be unpacked.
    pub(super) fn reference(&self, work: &Path) -> Result<Reference> {
        let symvers = self.headers.dir.join("Module.symvers");
        Ok(Reference {
            stock: self.stock(work)?,
            types: self.types(work)?,
            symvers: fs::read_to_string(&symvers).with_context(|| {
                format!(
                    "cannot read {}, which should come with the headers",
                    symvers.display()
                )
            })?,
            checksums: self.headers.config.on("MODVERSIONS"),
        })
    }

    /// The kernel's own module.
    fn stock(&self, work: &Path) -> Result<PathBuf> {
        let version = &self.kernel.version;
        let unpacked = self
            .kernel
            .image
            .ancestors()
            .nth(2)
            .unwrap_or(Path::new("/"));
        let dirs = [unpacked, Path::new("/")];
        let packings = [
            ("", "cat"),
            (".xz", "xz"),
            (".zst", "zstd"),
            (".gz", "gzip"),
        ];
        for dir in dirs {
            let place = dir
                .join("lib/modules")
                .join(version)
                .join("kernel/drivers/vhost");
            for (ending, unpacker) in packings {
                let file = place.join(format!("vhost_net.ko{ending}"));
                if file.is_file() {
                    let stock = work.join("stock-vhost_net.ko");
                    let mut unpack = Command::new(unpacker);
                    if !ending.is_empty() {
                        unpack.arg("-dc");
                    }
                    let target = fs::File::create(&stock).context("unpack the stock module")?;
                    command::run(unpack.arg(&file).stdout(target))?;
                    return Ok(stock);
                }
            }
        }
        bail!(
            "no vhost_net.ko of Linux {version} itself here to compare the layouts with: install \
             the kernel's package, or name the kernel's image with --kernel DIR/boot/vmlinuz-{version}"
        )
    }

    /// A file with the kernel's type information.
    fn types(&self, work: &Path) -> Result<PathBuf> {
        let version = &self.kernel.version;
        let running = Path::new("/sys/kernel/btf/vmlinux");
        if running.is_file() && running_version()? == *version {
            return Ok(running.to_owned());
        }
        let built = self.headers.dir.join("vmlinux");
        if built.is_file() {
            return Ok(built);
        }
        ensure!(
            self.kernel.image.is_file(),
            "no type information of Linux {version}: neither does it run here, nor have its \
             headers a vmlinux, nor is there an image at {}; name one with --kernel \
             DIR/boot/vmlinuz-{version}",
            self.kernel.image.display()
        );
        let (whole, types) = (work.join("vmlinux"), work.join("vmlinux-types"));
        let script = self.source.join("scripts/extract-vmlinux");
        let target = fs::File::create(&whole).context("unpack the kernel's image")?;
        let mut extract = Command::new("sh");
        extract.arg(&script).arg(&self.kernel.image).stdout(target);
        command::run(&mut extract).with_context(|| {
            format!(
                "cannot take the type information out of {}",
                self.kernel.image.display()
            )
        })?;
        // It complains of segments that are empty then.
        command::output(
            Command::new("objcopy")
                .arg("--only-section=.BTF")
                .args([&whole, &types]),
        )?;
        fs::remove_file(&whole).context("remove the unpacked kernel")?;
        Ok(types)
    }

    /// Gives a module type information where the build could not: it takes the
    /// kernel's own, which Debian's headers of 6.1 do not bring.
    pub(super) fn add_types(&self, module: &Path, types: &Path) -> Result<()> {
        let mut script = Command::new("sh");
        script
            .arg(paths::module_source().join("types"))
            .args(["--kernel", &self.kernel.version])
            .arg("--headers")
            .arg(&self.headers.dir)
            .arg("--base")
            .arg(types)
            .arg(module);
        command::output(&mut script).map(drop)
    }
}

/// What `uname -r` says.
pub(super) fn running_version() -> Result<String> {
    let version = command::output(Command::new("uname").arg("-r"))?;
    Ok(version.trim().to_owned())
}
