//! What the lab cannot show.

use super::super::machine::Machine;

/// To be read with the figures.
pub(super) fn caveats(machine: &Machine) -> String {
    let shared = format!(
        "* Worker, guest and traffic share {} cores: where these are fewer than three, a worker \
         that spins takes its CPU from the guest, and polls look worse than where it has a core \
         of its own.\n",
        machine.cores
    );
    let emulated = "* Under emulation a wake-up, an interrupt between processors and a system \
                    call cost far more than on hardware, and so does each packet. What saves \
                    wake-ups looks better than it is, what saves work on a packet cannot be told. \
                    There are no VM exits at all: a kick is a system call.\n";
    let always = "* A ratio tells the direction, and whether the effect is large. Absolute \
                  figures, and ratios within a tenth of 1, are those of this machine.\n\
                  * poll_peer off is the own side only, in both directions. Before the patch a \
                  receive ring that was polled did watch the transmit ring; so off is slower \
                  here than what the patch was compared with.\n";
    let emulated = if machine.emulated { emulated } else { "" };
    format!("{shared}{emulated}{always}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_emulation_is_blamed_for_what_it_does() {
        let mut machine = Machine::here();
        for emulated in [true, false] {
            machine.emulated = emulated;
            let text = caveats(&machine);
            assert_eq!(text.contains("Under emulation"), emulated);
        }
    }
}
