//! An independent count of mutexes that a thread tried and did not get.

use crate::support::append;

const TRACEFS: &str = "/sys/kernel/tracing";
const EVENT: &str = "lab/refused";

/// Counts from the start on, by a return probe of tracefs and a histogram of
/// what it returned to this thread.
pub(crate) struct Refused {
    histogram: String,
}

impl Refused {
    /// Counts for thread `tid`. One at a time.
    pub(crate) fn to(tid: &str) -> Self {
        append(
            &format!("{TRACEFS}/kprobe_events"),
            &format!("r:{EVENT} mutex_trylock got=$retval:s32\n"),
        );
        let histogram = format!("hist:keys=common_pid if got == 0 && common_pid == {tid}\n");
        append(&format!("{TRACEFS}/events/{EVENT}/trigger"), &histogram);
        Self { histogram }
    }

    /// How many so far; none may have been missed.
    pub(crate) fn count(&self) -> u64 {
        let profile = std::fs::read_to_string(format!("{TRACEFS}/kprobe_profile")).unwrap();
        let line = profile
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|words| words[0] == "refused")
            .unwrap_or_else(|| panic!("no event in {profile}"));
        assert_eq!(line[2], "0", "tracefs itself missed calls: {line:?}");
        let shown = std::fs::read_to_string(format!("{TRACEFS}/events/{EVENT}/hist")).unwrap();
        let of = |what: &str| -> u64 {
            let mut found = shown
                .lines()
                .filter_map(|line| line.trim().strip_prefix(what));
            found
                .next()
                .and_then(|number| number.trim().parse().ok())
                .unwrap_or_else(|| panic!("no {what} in {shown}"))
        };
        assert_eq!(of("Dropped:"), 0, "{shown}");
        of("Hits:")
    }
}

impl Drop for Refused {
    fn drop(&mut self) {
        append(
            &format!("{TRACEFS}/events/{EVENT}/trigger"),
            &format!("!{}", self.histogram),
        );
        append(&format!("{TRACEFS}/kprobe_events"), &format!("-:{EVENT}\n"));
    }
}
