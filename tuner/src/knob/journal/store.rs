//! The journal's file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::entries::Entries;
use super::record::{Key, Record, VERSION, header};
use super::text::{Parsed, Unreadable, parse};
use crate::inventory::proc::ProcStat;

/// Folder of the journal, if no other one is named.
pub const FOLDER: &str = "/var/lib/vhost-tuner";

/// A file of more bytes than this is looked through for what is over and done
/// with.
const BOUND: usize = 1 << 20;

/// Fewer records than this are never worth writing the file anew.
const FEW: usize = 64;

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file or folder cannot be used.
    #[error("{path} cannot be {verb}: {why}")]
    File {
        /// Which.
        path: String,
        /// What was to be done with it.
        verb: &'static str,
        /// What the system said.
        why: io::Error,
    },
    /// A later program wrote it.
    #[error(
        "{path} is of format {version}, and this vhost-tuner knows format {VERSION} only: use the \
         vhost-tuner that wrote it; the file was left as it is"
    )]
    Version {
        /// The file.
        path: String,
        /// The format it is of.
        version: u32,
    },
    /// Something else is called so.
    #[error("{path} is no journal of vhost-tuner: move it away; it was left as it is")]
    Foreign {
        /// The file.
        path: String,
    },
}

/// What we have turned, in memory and on disk.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    /// Which boot this is.
    boot: String,
    /// Open once something may be written.
    file: Option<File>,
    /// What is in the file.
    on_disk: Parsed,
    /// Size of the file from which on it is looked through again.
    bound: usize,
}

impl Journal {
    /// Reads the journal of a folder; one that is not there is empty. Nothing
    /// is written before [`Journal::prepare`].
    ///
    /// # Errors
    /// If there is something that cannot be read or is no journal of this
    /// version.
    pub fn read(folder: &Path) -> Result<Self, JournalError> {
        let boot = Path::new("/proc/sys/kernel/random/boot_id");
        let boot = fs::read_to_string(boot).map_err(|why| failed(boot, "read", why))?;
        let mut journal = Self {
            folder: folder.to_owned(),
            boot: boot.trim().to_owned(),
            file: None,
            on_disk: Parsed::default(),
            bound: BOUND,
        };
        let path = journal.path();
        let bytes = contents(&path).map_err(|why| failed(&path, "read", why))?;
        journal.on_disk = parse(&bytes).map_err(|why| match why {
            Unreadable::Version(version) => JournalError::Version {
                path: path.display().to_string(),
                version,
            },
            Unreadable::Foreign => JournalError::Foreign {
                path: path.display().to_string(),
            },
        })?;
        Ok(journal)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.join("journal")
    }

    /// Where it is written anew before it takes the place of the file.
    fn new_path(&self) -> PathBuf {
        self.folder.join("journal.new")
    }

    /// Which boot of the host this is.
    #[must_use]
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// What is known to have been turned.
    #[must_use]
    pub fn entries(&self) -> &Entries {
        &self.on_disk.entries
    }

    /// What was wrong with the file, in sentences.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.on_disk.notes
    }

    /// Makes sure, before anything is changed, that records can be written:
    /// makes folder and file if they are not there.
    ///
    /// # Errors
    /// If they cannot be made or written to.
    pub fn prepare(&mut self) -> Result<(), JournalError> {
        if self.file.is_some() {
            return Ok(());
        }
        make_folder(&self.folder).map_err(|why| failed(&self.folder, "made", why))?;
        if self.on_disk.headless {
            return self.write_anew();
        }
        let path = self.path();
        let file = open_to_append(&path).map_err(|why| failed(&path, "opened", why))?;
        self.file = Some(file);
        self.tidy();
        Ok(())
    }

    /// Has records on disk when it returns: one write and one sync for all of
    /// them. After an error none of them counts.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if records.is_empty() {
            return Ok(());
        }
        self.prepare()?;
        self.clean()?;
        let mut bytes = Vec::new();
        if !self.on_disk.ended {
            bytes.push(b'\n');
        }
        for record in records {
            bytes.extend(record.encode());
        }
        let path = self.path();
        if let Some(mut file) = self.file.as_ref() {
            let written = file.write_all(&bytes).and_then(|()| file.sync_data());
            if let Err(why) = written {
                // If it does not work now, the next append sees to it.
                let _ = file.set_len(self.on_disk.good as u64);
                return Err(failed(&path, "written to", why));
            }
        }
        self.on_disk.good += bytes.len();
        self.on_disk.ended = true;
        self.on_disk.records += records.len();
        for record in records {
            self.on_disk.entries.apply(record);
        }
        self.tidy();
        Ok(())
    }

    /// Cuts off what does not count, and brings back a file that somebody has
    /// removed.
    fn clean(&mut self) -> Result<(), JournalError> {
        let path = self.path();
        let Some(file) = &self.file else {
            return Ok(());
        };
        let meta = file.metadata();
        let meta = meta.map_err(|why| failed(&path, "looked at", why))?;
        if meta.nlink() == 0 {
            return self.write_anew();
        }
        if meta.len() > self.on_disk.good as u64 {
            file.set_len(self.on_disk.good as u64)
                .map_err(|why| failed(&path, "cut off", why))?;
        }
        Ok(())
    }

    /// Writes the file anew if that is worth it: if most records in it are over,
    /// or if it has become large and a quarter is. What cannot be done now may
    /// be done later: the file is right as it is.
    fn tidy(&mut self) {
        let records = self.on_disk.records;
        let over = records.saturating_sub(self.on_disk.entries.len());
        let large = self.on_disk.good > self.bound;
        if !large && (over <= FEW || over * 2 <= records) {
            return;
        }
        let mut entries = self.on_disk.entries.clone();
        entries.retain(|entry| entry.key.boot == self.boot && may_live(&entry.key));
        let over = records.saturating_sub(entries.len());
        if over * 4 >= records {
            self.on_disk.entries = entries;
            if let Err(why) = self.write_anew() {
                log::warn!("the journal goes on growing: {why}");
            }
        }
        if large {
            // Not again before a quarter more has come.
            self.bound = BOUND.max(self.on_disk.good + self.on_disk.good / 4);
        }
    }

    /// Writes one record for each entry to a new file and puts it into the old
    /// one's place.
    fn write_anew(&mut self) -> Result<(), JournalError> {
        let (path, new_path) = (self.path(), self.new_path());
        let records = self.on_disk.entries.records();
        let mut bytes = header();
        for record in &records {
            bytes.extend(record.encode());
        }
        // One may have been left behind.
        let fresh = match fs::remove_file(&new_path) {
            Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
            _ => create(&new_path),
        };
        let written = fresh.and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()
        });
        let placed = written
            .and_then(|()| fs::rename(&new_path, &path))
            .and_then(|()| File::open(&self.folder)?.sync_all());
        if let Err(why) = placed {
            let _ = fs::remove_file(&new_path);
            return Err(failed(&path, "written", why));
        }
        let file = open_to_append(&path).map_err(|why| failed(&path, "opened", why))?;
        self.file = Some(file);
        self.on_disk.records = records.len();
        self.on_disk.good = bytes.len();
        self.on_disk.ended = true;
        self.on_disk.headless = false;
        Ok(())
    }
}

/// False for a process that has ended; what cannot be found out may live.
#[must_use]
pub fn may_live(key: &Key) -> bool {
    let Ok(pid) = i32::try_from(key.pid) else {
        return false;
    };
    match ProcStat::of_process(pid) {
        Ok(stat) => stat.start_time == key.start_time,
        Err(why) => !why.is_gone(),
    }
}

fn failed(path: &Path, verb: &'static str, why: io::Error) -> JournalError {
    JournalError::File {
        path: path.display().to_string(),
        verb,
        why,
    }
}

/// A file's bytes; none for one that is not there.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        // A pipe in its place must not keep us waiting.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let mut file = match file {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes a folder for us alone, and those above it. One that is there is left
/// as it is.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder
        .parent()
        .filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        make_folder(above)?;
    }
    DirBuilder::new().mode(0o700).create(folder)?;
    File::open(above.unwrap_or(Path::new(".")))?.sync_all()
}

fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests;
