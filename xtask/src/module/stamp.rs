//! What modules were made from, in one short text: as long as that stays the
//! same, they are not made again.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::make::Subject;
use crate::paths;

/// How modules are built and checked is also what they are made from.
const RECIPE: [&str; 4] = [
    include_str!("check.rs"),
    include_str!("make.rs"),
    include_str!("mod.rs"),
    include_str!("parse.rs"),
];

/// For these modules.
pub(super) fn stamp(subject: &Subject) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    RECIPE.hash(&mut hasher);
    let top = paths::module_source();
    for file in files(&top)? {
        file.strip_prefix(&top).ok().hash(&mut hasher);
        hash_content(&file, &mut hasher)?;
    }
    for file in ["drivers/vhost/net.c", "drivers/vhost/vhost.h"] {
        hash_content(&subject.source.join(file), &mut hasher)?;
    }
    for file in ["Module.symvers", "include/generated/utsrelease.h"] {
        hash_content(&subject.headers.dir.join(file), &mut hasher)?;
    }
    Ok(format!(
        "{}\n{}\n{}\n{:016x}\n",
        subject.kernel.version,
        subject.kernel.image.display(),
        subject.compiler.says,
        hasher.finish()
    ))
}

fn hash_content(file: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    fs::read(file)
        .with_context(|| format!("cannot read {}", file.display()))?
        .hash(hasher);
    Ok(())
}

/// All files below a directory, in a fixed order.
pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for entry in entries {
        let path = entry.context("read a directory")?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
