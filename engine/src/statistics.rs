//! Order statistics.

/// The value below which `fraction` (0 to 1) of the sorted values lie, between two of them by linear interpolation; `None` of
/// none.
pub fn quantile(sorted: &[f64], fraction: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = fraction.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// The median of values in any order; `None` of none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_their_neighbours() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[3.0], 0.99), Some(3.0));
        let values = [1.0, 2.0, 4.0, 8.0];
        let got = [0.0, 0.25, 0.5, 1.0].map(|fraction| quantile(&values, fraction).unwrap());
        assert_eq!(got, [1.0, 1.75, 3.0, 8.0]);
        assert_eq!(median(&[8.0, 1.0, 4.0]), Some(4.0));
    }
}
