//! Which setting comes when.

/// Forth and back in turns, so that what drifts steadily favours none, and what
/// takes long to change is changed less often.
pub(super) fn order(round: u32, settings: usize) -> Vec<usize> {
    let forth = 0..settings;
    if round % 2 == 1 {
        forth.collect()
    } else {
        forth.rev().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rounds_favour_no_setting() {
        let first = order(1, 3);
        let second = order(2, 3);
        for which in 0..3 {
            let at = |order: &[usize]| order.iter().position(|&w| w == which).unwrap();
            assert_eq!(at(&first) + at(&second), 2);
        }
    }
}
