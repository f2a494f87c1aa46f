//! The distribution's vhost_net: where it lies, and how it is put back.

use std::path::{Path, PathBuf};

use super::VHOST_NET;
use super::files::{Image, in_folder};
use super::insert;

/// Its file, where the kernel's own modules lie. Files of ours lie elsewhere
/// (`updates`, `extra`), but nothing keeps anybody from putting one there.
fn image(release: &str) -> Result<Image, String> {
    let folder = Path::new("/lib/modules")
        .join(release)
        .join("kernel/drivers/vhost");
    image_in(&folder)
}

fn image_in(folder: &Path) -> Result<Image, String> {
    let mut why = format!("there is no vhost_net.ko in {}", folder.display());
    for path in in_folder(folder, &["vhost_net.ko"]) {
        match Image::open(&path) {
            Ok(image) if image.contents.get("vhost_tuner").is_none() => return Ok(image),
            Ok(_) => why = format!("{} is ours", path.display()),
            Err(error) => why = format!("{}: {error}", path.display()),
        }
    }
    Err(why)
}

/// The vermagic of this kernel's modules, from the distribution's vhost_net.
pub(super) fn vermagic(release: &str) -> Option<String> {
    let vermagic = match image(release) {
        Ok(image) => image.contents.get("vermagic").map(str::to_owned),
        Err(why) => {
            log::debug!("{why}");
            insert::modinfo("vermagic", VHOST_NET)
                .ok()
                .filter(|_| modprobe_finds_stock())
        }
    };
    vermagic.filter(|text| !text.is_empty())
}

/// Whether `modprobe vhost_net` would load the distribution's. Where DKMS has
/// put ours into `updates`, it would load that.
fn modprobe_finds_stock() -> bool {
    insert::modinfo("vhost_tuner", VHOST_NET).is_ok_and(|mark| mark.is_empty())
}

/// How the distribution's module can be loaded.
pub(super) enum Stock {
    /// By `modprobe`, which minds what the administrator has configured.
    Modprobe,
    /// From its file, past `modprobe`.
    File(Box<Image>),
}

impl Stock {
    /// Finds out, before anything is taken out.
    ///
    /// # Errors
    /// A sentence, if there is no such module.
    pub(super) fn find(release: &str) -> Result<Self, String> {
        if modprobe_finds_stock() {
            return Ok(Self::Modprobe);
        }
        image(release).map(|image| Self::File(Box::new(image)))
    }

    /// Where it is loaded from, for messages.
    pub(super) fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Modprobe => None,
            Self::File(image) => Some(image.path.clone()),
        }
    }

    /// Loads it with these parameters.
    pub(super) fn load(&self, parameters: &str) -> Result<(), String> {
        match self {
            Self::Modprobe => {
                let mut arguments = vec![VHOST_NET];
                arguments.extend(parameters.split_ascii_whitespace());
                insert::modprobe(&arguments)
            }
            Self::File(image) => {
                insert::dependencies(&image.contents)?;
                insert::insert(image, parameters)
                    .map_err(|why| format!("{}: {}", image.path.display(), insert::explain(&why)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::elf::tests::module;
    use super::*;

    #[test]
    fn ours_in_the_distributions_place_is_not_the_distributions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vhost_net.ko");
        fs::write(&path, module(&[(".modinfo", b"vhost_tuner=1\0")])).unwrap();
        let why = image_in(folder.path()).unwrap_err();
        assert!(why.contains("is ours"), "{why}");
        fs::write(&path, module(&[(".modinfo", b"vermagic=6.1 SMP \0")])).unwrap();
        let image = image_in(folder.path()).unwrap();
        assert_eq!(image.contents.get("vermagic"), Some("6.1 SMP "));
    }

    #[test]
    fn a_folder_without_it_is_named() {
        let why = image_in(Path::new("/nowhere")).unwrap_err();
        assert!(why.contains("/nowhere"), "{why}");
    }
}
