//! Booting the lab with a part of ourselves in it.

use std::{env, io, time::Duration};

use anyhow::{Context as _, Result};

use super::machine;
use crate::{
    build::Programs,
    lab, module,
    setup::{self, Step},
};

/// What is measured inside, and where.
pub(super) struct Inside<'a> {
    /// Written as for `lab run`.
    pub(super) kernel: &'a str,
    /// Our own command that runs in the VM …
    pub(super) command: &'static str,
    /// … and its arguments.
    pub(super) words: Vec<String>,
    pub(super) limit: Duration,
    /// Whether it takes our modules.
    pub(super) modules: bool,
}

impl Inside<'_> {
    /// Brings what is needed, boots, and waits for the end; gives the status to
    /// exit with.
    pub(super) fn run(self, needed: &[Step]) -> Result<i32> {
        setup::ensure(needed)?;
        let kernel = setup::kernel(self.kernel)?;
        let programs = Programs::build()?;
        let mut variables = programs.variables();
        if self.modules {
            let dir = module::build(&kernel)?.dir;
            variables.push((
                module::VARIABLE.to_owned(),
                dir.to_string_lossy().into_owned(),
            ));
        }
        variables.push((machine::CORES_VARIABLE.to_owned(), machine::cores()));
        let ourselves = env::current_exe().context("find our own program")?;
        let mut words = vec![
            ourselves.to_string_lossy().into_owned(),
            self.command.to_owned(),
        ];
        words.extend(self.words);
        let mut job = lab::Job::new(kernel, words);
        job.timeout = self.limit;
        job.env = variables;
        let outcome = lab::run_job(&job, &mut io::stdout(), &mut io::stderr())?;
        Ok(outcome.report(&job))
    }
}
