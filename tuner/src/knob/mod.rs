//! Reads and sets what can be turned on a running VM.
