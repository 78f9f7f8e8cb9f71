//! A greedy pairwise cover: few rows in which every value of every factor meets every value of every other factor.

/// Rows of a cover. `levels[f]` is the number of values of factor `f`; a row holds one value index per factor.
///
/// Each row is started from the first pair that is not covered yet and filled factor by factor with the value that
/// covers most open pairs with what is already in the row.
pub fn cover(levels: &[usize]) -> Vec<Vec<usize>> {
    let mut open: Vec<[(usize, usize); 2]> = Vec::new();
    for (f, &f_levels) in levels.iter().enumerate() {
        for (g, &g_levels) in levels.iter().enumerate().skip(f + 1) {
            open.extend((0..f_levels).flat_map(|v| (0..g_levels).map(move |w| [(f, v), (g, w)])));
        }
    }
    let mut rows = Vec::new();
    while let Some(&[(f, v), (g, w)]) = open.first() {
        let mut row: Vec<Option<usize>> = vec![None; levels.len()];
        (row[f], row[g]) = (Some(v), Some(w));
        for factor in 0..levels.len() {
            if row[factor].is_some() {
                continue;
            }
            // Ties go round with the row number, so that values are used evenly.
            let gain = |value: usize| {
                let covers = |pair: &&[(usize, usize); 2]| {
                    pair.contains(&(factor, value)) && pair.iter().all(|&(f, v)| f == factor || row[f] == Some(v))
                };
                open.iter().filter(covers).count()
            };
            let turn = |value: usize| (value + rows.len()) % levels[factor];
            let best = (0..levels[factor]).max_by_key(|&value| (gain(value), turn(value)));
            row[factor] = best;
        }
        let row: Vec<usize> = row.into_iter().map(|value| value.expect("every factor has a value")).collect();
        open.retain(|pair| !pair.iter().all(|&(f, v)| row[f] == v));
        rows.push(row);
    }
    rows
}
