//! Which files there are for this kernel, and which of them fits.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::elf::Contents;
use super::{LIVEPATCH, VHOST_NET};

/// Which of our modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `vhost_net.ko`, in place of the distribution's.
    Replacement,
    /// `livepatch-vhost-net.ko`.
    Livepatch,
}

impl Kind {
    /// Names that its file may have, without the suffix of a compression.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Replacement => &["vhost_net.ko"],
            Self::Livepatch => &["livepatch-vhost-net.ko", "livepatch_vhost_net.ko"],
        }
    }

    /// The file's usual name.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        self.names()[0]
    }

    /// The module's name in the kernel.
    #[must_use]
    pub fn module(self) -> &'static str {
        match self {
            Self::Replacement => VHOST_NET,
            Self::Livepatch => LIVEPATCH,
        }
    }
}

/// Programs that decompress to their standard output, by suffix.
const SUFFIXES: [(&str, Option<&str>); 4] = [
    ("", None),
    (".xz", Some("xz")),
    (".zst", Some("zstd")),
    (".gz", Some("gzip")),
];

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It cannot be read.
    Unreadable(String),
    /// It does not bear our mark.
    Foreign,
    /// It is another module.
    Name(String),
    /// It is built for another kernel.
    Vermagic {
        /// What it says.
        file: String,
        /// What this kernel's modules say.
        kernel: String,
    },
    /// Its structures may not be those of the running module.
    Layout(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "it cannot be read: {why}"),
            Self::Foreign => write!(
                f,
                "it does not say `vhost_tuner=` in its modinfo, so it is somebody else's module"
            ),
            Self::Name(name) => write!(f, "it is a module called `{name}`"),
            Self::Vermagic { file, kernel } => write!(
                f,
                "it is built for another kernel (vermagic `{}`, this kernel's is `{}`): build it \
                 for this one",
                file.trim_end(),
                kernel.trim_end()
            ),
            Self::Layout(why) => write!(
                f,
                "its structures may not be those of the running vhost_net, and it would corrupt \
                 memory: {why}"
            ),
        }
    }
}

/// What a file has to say to fit this kernel.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// `uname -r`.
    pub release: String,
    /// The distribution's vhost_net's vermagic, if that could be read.
    pub vermagic: Option<String>,
}

impl Wanted {
    /// What is wrong with a file of this kind; nothing if it fits. Layouts are
    /// not looked at here.
    #[must_use]
    pub fn problem(&self, kind: Kind, contents: &Contents) -> Option<Problem> {
        if contents.get("vhost_tuner").is_none() {
            return Some(Problem::Foreign);
        }
        // A kernel since 4.13 writes it into every module.
        if let Some(name) = contents.get("name").filter(|name| *name != kind.module()) {
            return Some(Problem::Name(name.to_owned()));
        }
        let file = contents.get("vermagic").unwrap_or_default();
        let release = file.split(' ').next().unwrap_or_default();
        let fits = match &self.vermagic {
            Some(vermagic) => file.trim_end() == vermagic.trim_end(),
            None => release == self.release,
        };
        (!fits).then(|| Problem::Vermagic {
            file: file.to_owned(),
            kernel: self.vermagic.clone().unwrap_or(self.release.clone()),
        })
    }
}

/// A module's file, read.
#[derive(Debug)]
pub struct Image {
    /// Where it lies.
    pub path: PathBuf,
    /// What it says.
    pub contents: Contents,
    /// Its bytes, decompressed.
    pub bytes: Vec<u8>,
    /// The file as it is open, unless it is compressed: what was looked at is
    /// then what is loaded.
    pub file: Option<File>,
}

impl Image {
    /// Reads and, if need be, decompresses.
    ///
    /// # Errors
    /// A sentence, if it cannot be read or is no module.
    pub fn open(path: &Path) -> Result<Self, String> {
        let name = path.to_string_lossy();
        let tool = SUFFIXES[1..]
            .iter()
            .find_map(|(suffix, tool)| tool.filter(|_| name.ends_with(suffix)));
        let mut bytes = Vec::new();
        let mut file = None;
        match tool {
            Some(tool) => bytes = decompress(tool, path)?,
            None => {
                let mut open = File::open(path).map_err(|why| why.to_string())?;
                open.read_to_end(&mut bytes)
                    .map_err(|why| why.to_string())?;
                file = Some(open);
            }
        }
        Ok(Self {
            path: path.to_owned(),
            contents: Contents::parse(&bytes)?,
            bytes,
            file,
        })
    }
}

fn decompress(tool: &str, path: &Path) -> Result<Vec<u8>, String> {
    let output = Command::new(tool)
        .arg("-dc")
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(|why| format!("`{tool}`, which is needed to decompress it: {why}"))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{tool}` cannot decompress it: {}", said.trim()))
    }
}

/// A file that was chosen, and what is wrong with it.
#[derive(Debug)]
pub struct Chosen {
    /// Where it lies.
    pub path: PathBuf,
    /// What was read; none where it could not be.
    pub image: Option<Image>,
    /// What is wrong, if anything.
    pub problem: Option<Problem>,
}

/// Folders to look in, the first one first.
#[must_use]
pub fn folders(dir: Option<&Path>, release: &str, program: Option<&Path>) -> Vec<PathBuf> {
    if let Some(dir) = dir {
        return vec![dir.to_owned(), dir.join(release)];
    }
    let modules = Path::new("/lib/modules").join(release);
    let mut list: Vec<PathBuf> = ["updates/dkms", "updates", "extra"]
        .iter()
        .map(|folder| modules.join(folder))
        .collect();
    list.push(Path::new("/usr/lib/vhost-tuner").join(release));
    // target/release/vhost-tuner has target/modules beside it.
    if let Some(above) = program.and_then(Path::parent).and_then(Path::parent) {
        list.push(above.join("modules").join(release));
    }
    list
}

/// All files of `names` in `folder`, compressed or not.
pub(super) fn in_folder(folder: &Path, names: &[&str]) -> Vec<PathBuf> {
    let all = names.iter().flat_map(|name| {
        SUFFIXES
            .iter()
            .map(move |(suffix, _)| folder.join(format!("{name}{suffix}")))
    });
    all.filter(|path| fs::metadata(path).is_ok_and(|meta| meta.is_file()))
        .collect()
}

/// The first file that fits; where none does, the first that is ours, else the
/// first there is.
#[must_use]
pub fn choose(kind: Kind, folders: &[PathBuf], wanted: &Wanted) -> Option<Chosen> {
    let mut best: Option<Chosen> = None;
    let paths = folders
        .iter()
        .flat_map(|folder| in_folder(folder, kind.names()));
    for path in paths {
        let found = match Image::open(&path) {
            Ok(image) => Chosen {
                problem: wanted.problem(kind, &image.contents),
                path,
                image: Some(image),
            },
            Err(why) => Chosen {
                path,
                image: None,
                problem: Some(Problem::Unreadable(why)),
            },
        };
        if found.problem.is_none() {
            return Some(found);
        }
        let foreign = |c: &Chosen| matches!(c.problem, Some(Problem::Foreign));
        if best.as_ref().is_none_or(|b| foreign(b) && !foreign(&found)) {
            best = Some(found);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::elf::tests::module;
    use super::*;

    const MAGIC: &str = "6.1.0-57-amd64 SMP preempt mod_unload modversions ";

    fn wanted(vermagic: Option<&str>) -> Wanted {
        Wanted {
            release: "6.1.0-57-amd64".to_owned(),
            vermagic: vermagic.map(str::to_owned),
        }
    }

    fn file(name: &str, vermagic: &str, ours: bool) -> Vec<u8> {
        let mark = if ours { "vhost_tuner=1\0" } else { "" };
        let info = format!("{mark}name={name}\0vermagic={vermagic}\0");
        module(&[(".modinfo", info.as_bytes())])
    }

    fn problem(bytes: &[u8], vermagic: Option<&str>) -> Option<Problem> {
        let contents = Contents::parse(bytes).unwrap();
        wanted(vermagic).problem(Kind::Replacement, &contents)
    }

    #[test]
    fn a_file_fits_if_its_vermagic_is_the_distributions() {
        let bytes = file("vhost_net", MAGIC, true);
        assert_eq!(problem(&bytes, Some(MAGIC)), None);
        let other = "6.1.0-57-amd64 SMP mod_unload modversions ";
        assert!(matches!(
            problem(&bytes, Some(other)),
            Some(Problem::Vermagic { .. })
        ));
    }

    #[test]
    fn without_the_distributions_file_the_release_has_to_do() {
        assert_eq!(problem(&file("vhost_net", MAGIC, true), None), None);
        let why = problem(&file("vhost_net", "6.1.0-58-amd64 SMP", true), None).unwrap();
        assert!(why.to_string().contains("6.1.0-58-amd64"), "{why}");
    }

    #[test]
    fn foreign_and_wrong_modules_are_told() {
        assert_eq!(
            problem(&file("vhost_net", MAGIC, false), None),
            Some(Problem::Foreign)
        );
        assert_eq!(
            problem(&file("livepatch_vhost_net", MAGIC, true), None),
            Some(Problem::Name("livepatch_vhost_net".to_owned()))
        );
    }

    #[test]
    fn folders_are_looked_through_in_order() {
        let list = folders(None, "R", Some(Path::new("/x/target/release/vhost-tuner")));
        let text: Vec<String> = list.iter().map(|p| p.display().to_string()).collect();
        assert_eq!(
            text,
            [
                "/lib/modules/R/updates/dkms",
                "/lib/modules/R/updates",
                "/lib/modules/R/extra",
                "/usr/lib/vhost-tuner/R",
                "/x/target/modules/R",
            ]
        );
        assert_eq!(
            folders(Some(Path::new("/d")), "R", None),
            [PathBuf::from("/d"), PathBuf::from("/d/R")]
        );
    }

    #[test]
    fn the_first_file_that_fits_is_chosen() {
        let root = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| root.path().join(name));
        for (folder, bytes) in [
            (&a, file("vhost_net", MAGIC, false)),
            (&b, file("vhost_net", "6.1.0-50-amd64 SMP", true)),
            (&c, file("vhost_net", MAGIC, true)),
        ] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("vhost_net.ko"), bytes).unwrap();
        }
        let chosen = |folders: &[&PathBuf]| {
            let folders: Vec<PathBuf> = folders.iter().map(|f| (*f).clone()).collect();
            choose(Kind::Replacement, &folders, &wanted(Some(MAGIC)))
        };
        let found = chosen(&[&a, &b, &c]).unwrap();
        assert!(found.path.starts_with(&c) && found.problem.is_none());
        // A file of ours that does not fit says more than a foreign one.
        let found = chosen(&[&a, &b]).unwrap();
        assert!(found.path.starts_with(&b));
        assert!(matches!(found.problem, Some(Problem::Vermagic { .. })));
        assert_eq!(chosen(&[&a]).unwrap().problem, Some(Problem::Foreign));
        assert!(chosen(&[]).is_none());
    }

    #[test]
    fn a_compressed_file_is_read() {
        let root = tempfile::tempdir().unwrap();
        let plain = root.path().join("livepatch_vhost_net.ko");
        fs::write(&plain, file("livepatch_vhost_net", MAGIC, true)).unwrap();
        let status = Command::new("gzip").arg(&plain).status();
        if !status.is_ok_and(|status| status.success()) {
            return;
        }
        let folders = [root.path().to_owned()];
        let found = choose(Kind::Livepatch, &folders, &wanted(None)).unwrap();
        assert!(found.path.to_string_lossy().ends_with(".ko.gz"));
        assert_eq!(found.problem, None);
        let image = found.image.unwrap();
        assert!(image.file.is_none() && !image.bytes.is_empty());
    }

    #[test]
    fn a_damaged_file_is_a_problem_not_a_panic() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("vhost_net.ko"), b"\x7fELF").unwrap();
        let folders = [root.path().to_owned()];
        let found = choose(Kind::Replacement, &folders, &wanted(None)).unwrap();
        assert!(matches!(found.problem, Some(Problem::Unreadable(_))));
    }
}
