//! What our knobs had before we turned them, on disk, so that it can be put
//! back, also after `kill -9` or a crash of ours.
//!
//! One file, to which lines are added. A record is on disk before the change
//! that it is about; so whatever we have set is known here, and what is known
//! here may or may not have been set. `docs/undo.md` describes the format.
//!
//! [`record`], [`entries`] and `text` are pure; [`store`] touches files. Only
//! who holds the host's lock writes ([`crate::lock`]).

pub mod entries;
pub mod record;
pub mod store;
mod text;

pub use entries::{Entries, Entry};
pub use record::{Key, Record};
pub use store::{Journal, JournalError};
