//! The host's budget for spinning: one price for all vrings.
//!
//! Spinning is made dearer for all alike until what is predicted fits. Each
//! vring then still chooses what costs it least, so the budget goes where it
//! saves most wake-ups for its time.

/// The price goes up and down in steps of this part.
const STEP: f64 = 1.25;
/// It goes down only while this part of the budget is left unused.
const SLACK: f64 = 0.15;
/// Beyond this price, nobody spins.
const HIGHEST: f64 = 1e9;

/// Finds the price of spinning at which `predicted`, in cores, fits the budget,
/// starting from the price of the last look. The highest, if none does.
pub(super) fn price(budget: f64, last: f64, mut predicted: impl FnMut(f64) -> f64) -> f64 {
    let mut price = last.max(1.0);
    if predicted(price) > budget {
        // Ever longer steps: it may be far off.
        let (mut low, mut step) = (price, STEP);
        while predicted(price) > budget {
            if price >= HIGHEST {
                return HIGHEST;
            }
            low = price;
            price = (price * step).min(HIGHEST);
            step *= STEP;
        }
        // No dearer than need be.
        while price > low * STEP {
            let middle = (low * price).sqrt();
            if predicted(middle) > budget {
                low = middle;
            } else {
                price = middle;
            }
        }
        return price;
    }
    while price > 1.0 {
        let lower = (price / STEP).max(1.0);
        let then = predicted(lower);
        if then > budget * (1.0 - SLACK) {
            break;
        }
        price = lower;
    }
    price
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_need_spinning_has_its_own_price() {
        assert_eq!(price(1.0, 1.0, |_| 0.5), 1.0);
        assert_eq!(price(1.0, 300.0, |_| 0.5), 1.0);
    }

    #[test]
    fn what_cannot_be_lowered_ends_at_the_highest_price() {
        assert_eq!(price(1.0, 1.0, |_| 2.0), HIGHEST);
    }

    #[test]
    fn the_price_stays_where_it_is_while_it_fits_about() {
        let predicted = |price: f64| 10.0 / price;
        let first = price(1.0, 1.0, predicted);
        assert!((10.0..=12.5).contains(&first), "{first}");
        assert_eq!(price(1.0, first, |price| 0.97 * predicted(price)), first);
    }

    proptest! {
        #[test]
        fn what_fits_is_found_and_does_fit(
            budget in 0.0..10.0f64, last in 1.0..1e6f64,
            demands in prop::collection::vec((0.0..1.0f64, 1.0..1e6f64), 1..50),
        ) {
            // Each spins its share until the price passes its own limit.
            let predicted = |price: f64| -> f64 {
                demands.iter().filter(|(_, most)| price <= *most).map(|(share, _)| share).sum()
            };
            let found = price(budget, last, predicted);
            prop_assert!(predicted(found) <= budget || budget < 0.0, "{found}");
            prop_assert!(found >= 1.0);
        }
    }
}
