//! Rows of the record, printed and written.

use std::error::Error;
use std::fs;
use std::path::Path;

use ssm_update_bench::measure::Times;

use crate::facts::Facts;

/// One measurement. What has no meaning in it is none; on a simulated device, that is every time and rate.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// What was done: `step`, `copy`, or for a process `ready`, `launch`, `first result`.
    pub measurement: &'static str,
    /// A model with this shape.
    pub model: String,
    /// `heads x head_dim x d_state groups batch`.
    pub case: String,
    /// Dtype of the state.
    pub state: String,
    /// Who did it.
    pub arm: String,
    /// Times of one.
    pub times: Option<Times>,
    /// State bytes read and written.
    pub bytes: usize,
    /// The rate as a fraction of the best copy's of the same bytes.
    pub of_copy: Option<f64>,
    /// Time of the host for one launch.
    pub host_us: Option<f64>,
    /// State buffers that take turns, and their bytes together.
    pub buffers: Option<(usize, usize)>,
}

impl Row {
    /// State bytes read and written per second, in GB/s.
    pub fn gb_per_s(&self) -> Option<f64> {
        self.times.filter(|_| self.bytes > 0).map(|times| self.bytes as f64 / times.median / 1e3)
    }
}

/// The columns; docs/rocm.md describes them.
const HEADING: &str = "source,measurement,model,case,state,arm,median_us,quartile_1_us,quartile_3_us,samples,gb_per_s,of_copy,\
                       host_us,buffers,footprint_mib";

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or(String::new(), |value| format!("{value:.digits$}"))
}

fn line(row: &Row, simulated: bool) -> String {
    let times = row.times;
    let time = |get: fn(&Times) -> f64| number(times.as_ref().map(get), 3);
    [
        if simulated { "simulated" } else { "measured" }.to_owned(),
        row.measurement.to_owned(),
        // Names have commas in them.
        format!("\"{}\"", row.model),
        row.case.clone(),
        row.state.clone(),
        row.arm.clone(),
        time(|times| times.median),
        time(|times| times.quartile_1),
        time(|times| times.quartile_3),
        times.map_or(String::new(), |times| times.steps.to_string()),
        number(row.gb_per_s(), 1),
        number(row.of_copy, 3),
        number(row.host_us, 3),
        row.buffers.map_or(String::new(), |(buffers, _)| buffers.to_string()),
        row.buffers.map_or(String::new(), |(_, bytes)| (bytes >> 20).to_string()),
    ]
    .join(",")
}

/// Prints a row for people; none of its numbers where the device is simulated.
pub fn print(row: &Row, simulated: bool) {
    let what = format!("{:<13} {:<24} {:<20} {:<5} {:<20}", row.measurement, row.model, row.case, row.state, row.arm);
    if simulated {
        println!("simulated: {what} done, result checked; not timed");
        return;
    }
    let optional = |value: Option<f64>, unit: &str| value.map_or(String::new(), |value| format!(" {value:.1} {unit}"));
    println!(
        "{what} {:>12} us{}{}{}",
        number(row.times.map(|times| times.median), 2),
        optional(row.gb_per_s(), "GB/s"),
        optional(row.of_copy.map(|part| part * 100.0), "% of the copy"),
        optional(row.host_us, "us of the host"),
    );
}

/// Writes a record: facts as comments, then the rows.
///
/// # Errors
///
/// The file cannot be written.
pub fn write(path: &Path, facts: &Facts, rows: &[Row], simulated: bool) -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    if simulated {
        text += "# SIMULATED: no device, so that there are no times\n";
    }
    for (name, value) in facts {
        text += &format!("# {name}: {}\n", value.replace('\n', " "));
    }
    text += &format!("{HEADING}\n");
    for row in rows {
        text += &format!("{}\n", line(row, simulated));
    }
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    written.map_err(|error| format!("{}: {error}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let times = Times { quartile_1: 14.0, median: 16.0, quartile_3: 18.0, steps: 21 };
        Row {
            measurement: "step",
            model: "A, b".to_owned(),
            case: "48x64x128 g1 b1".to_owned(),
            state: "f32".to_owned(),
            arm: "ahead of time".to_owned(),
            times: Some(times),
            bytes: 3_200_000,
            of_copy: Some(0.9),
            host_us: Some(2.5),
            buffers: Some((341, 512 << 20)),
        }
    }

    #[test]
    fn a_line_has_every_column() {
        let text = line(&row(), false);
        let expected = "measured,step,\"A, b\",48x64x128 g1 b1,f32,ahead of time,16.000,14.000,18.000,21,200.0,0.900,2.500,341,512";
        assert_eq!(text, expected);
        // The model's name has one comma of its own.
        assert_eq!(text.split(',').count() - 1, HEADING.split(',').count());
        let none = Row { times: None, of_copy: None, host_us: None, ..row() };
        assert_eq!(line(&none, true), "simulated,step,\"A, b\",48x64x128 g1 b1,f32,ahead of time,,,,,,,,341,512");
    }
}
