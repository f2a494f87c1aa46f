//! What is told to a running program: lines on stdin, and signals.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::hold::Order;
use crate::packet::Direction;
use crate::system::{signals_as_fd, wait_readable};

/// Something that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// The line "go".
    Go,
    /// The line "hold rx", "hold tx" or "free".
    Hold(Order),
    /// Any other line.
    Line,
    /// No more lines will come.
    End,
    /// SIGINT or SIGTERM.
    Signal,
}

/// Stdin and signals.
#[derive(Debug)]
pub struct Console {
    stdin: File,
    signals: File,
    lines: Lines,
    signalled: bool,
    /// Told, but nobody asked yet.
    pending: VecDeque<Input>,
}

impl Console {
    /// Takes stdin and the signals over. To be called before any thread is
    /// started, which would take the signals otherwise.
    ///
    /// # Errors
    /// When signalfd fails or there is no stdin.
    pub fn new() -> Result<Self> {
        let stdin = io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .context("cannot use stdin")?;
        Ok(Self {
            stdin: stdin.into(),
            signals: signals_as_fd().context("cannot take signals over")?,
            lines: Lines::default(),
            signalled: false,
            pending: VecDeque::new(),
        })
    }

    /// Waits until something is told, `other` is readable, or `limit` has
    /// passed; returns what was told.
    ///
    /// # Errors
    /// When poll or reading fails.
    pub fn listen(&mut self, other: Option<RawFd>, limit: Option<Duration>) -> Result<Vec<Input>> {
        let has_stdin = !self.lines.ended;
        let stdin = if has_stdin {
            self.stdin.as_raw_fd()
        } else {
            -1
        };
        let own = [self.signals.as_raw_fd(), stdin];
        let ready = wait_readable(&own, other.as_slice(), limit).context("cannot poll")?;
        let mut told = Vec::new();
        if ready.contains(0) {
            let mut record = [0; size_of::<libc::signalfd_siginfo>()];
            match self.signals.read(&mut record) {
                Ok(_) => {
                    self.signalled = true;
                    told.push(Input::Signal);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e).context("cannot read a signal"),
            }
        }
        if has_stdin && ready.contains(1) {
            let mut bytes = [0; 4096];
            match self.stdin.read(&mut bytes) {
                Ok(count) => self.lines.take(&bytes[..count], &mut told),
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(e) => return Err(e).context("cannot read stdin"),
            }
        }
        Ok(told)
    }

    /// Keeps something for the next [`Console::ask`].
    pub fn keep(&mut self, input: Input) {
        self.pending.push_back(input);
    }

    /// Waits for the next line, the end of stdin, or a signal.
    ///
    /// # Errors
    /// As [`Console::listen`].
    pub fn ask(&mut self) -> Result<Input> {
        loop {
            if self.signalled {
                return Ok(Input::Signal);
            }
            if let Some(input) = self.pending.pop_front() {
                return Ok(input);
            }
            if self.lines.ended {
                return Ok(Input::End);
            }
            let told = self.listen(None, None)?;
            self.pending.extend(told);
        }
    }
}

/// Cuts bytes into lines.
#[derive(Debug, Default)]
struct Lines {
    partial: Vec<u8>,
    ended: bool,
}

impl Lines {
    /// Takes bytes in, none at the end of the file.
    fn take(&mut self, bytes: &[u8], told: &mut Vec<Input>) {
        if bytes.is_empty() {
            if !self.partial.is_empty() {
                told.push(line(&self.partial));
                self.partial.clear();
            }
            self.ended = true;
            told.push(Input::End);
            return;
        }
        for byte in bytes {
            if *byte == b'\n' {
                told.push(line(&self.partial));
                self.partial.clear();
            } else if self.partial.len() < 4096 {
                self.partial.push(*byte);
            }
        }
    }
}

fn line(bytes: &[u8]) -> Input {
    match bytes.trim_ascii() {
        b"go" => Input::Go,
        b"hold rx" => Input::Hold(Order::Hold(Direction::Rx)),
        b"hold tx" => Input::Hold(Order::Hold(Direction::Tx)),
        b"free" => Input::Hold(Order::Free),
        _ => Input::Line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_wherever_the_pieces_end() {
        let mut lines = Lines::default();
        let mut told = Vec::new();
        lines.take(b"g", &mut told);
        assert_eq!(told, []);
        lines.take(b"o\nstop\r\n go \nhal", &mut told);
        assert_eq!(told, [Input::Go, Input::Line, Input::Go]);
        told.clear();
        lines.take(b"", &mut told);
        assert_eq!(told, [Input::Line, Input::End]);
        assert!(lines.ended);
    }

    #[test]
    fn rings_are_named_to_be_held() {
        let mut told = Vec::new();
        Lines::default().take(b"hold tx\nhold rx\nfree\nhold\n", &mut told);
        let orders = [
            Order::Hold(Direction::Tx),
            Order::Hold(Direction::Rx),
            Order::Free,
        ];
        let mut expected: Vec<Input> = orders.map(Input::Hold).to_vec();
        expected.push(Input::Line);
        assert_eq!(told, expected);
    }
}
