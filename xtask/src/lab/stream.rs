//! Passes on what the VM appends to a file.

use std::{
    fs::File,
    io::{Read as _, Write},
    path::PathBuf,
};

use anyhow::{Context as _, Result};

/// A file being written elsewhere, read from its start as it grows.
pub(crate) struct Follow {
    path: PathBuf,
    file: Option<File>,
}

impl Follow {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// Passes on what is new.
    pub(crate) fn pump(&mut self, sink: &mut dyn Write) -> Result<()> {
        if self.file.is_none() {
            // Not there yet: the command has not started.
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut buffer = [0; 64 * 1024];
        loop {
            let read = file.read(&mut buffer).context("read the VM's output")?;
            if read == 0 {
                break;
            }
            sink.write_all(&buffer[..read])
                .context("pass on the VM's output")?;
        }
        sink.flush().context("pass on the VM's output")
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::*;

    #[test]
    fn passes_on_each_byte_once() {
        let path = env::temp_dir().join(format!("xtask-follow-{}", process::id()));
        let mut follow = Follow::new(path.clone());
        let mut sink = Vec::new();
        follow.pump(&mut sink).unwrap();
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one ").unwrap();
        follow.pump(&mut sink).unwrap();
        follow.pump(&mut sink).unwrap();
        file.write_all(b"two").unwrap();
        follow.pump(&mut sink).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(sink, b"one two");
    }
}
