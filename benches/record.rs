//! The record of a run: rows, the CSV file and where it goes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cases::Case;
use crate::measure::Times;

/// One arm of one case.
#[derive(Clone, Debug)]
pub struct Row {
    /// Models with this shape.
    pub models: String,
    /// Sizes.
    pub case: String,
    /// Whether the states rotate beyond the caches.
    pub rotating: bool,
    /// The arm.
    pub arm: String,
    /// Its times.
    pub times: Times,
    /// State bytes read and written per second, in GB/s.
    pub gb_per_s: f64,
    /// That, as a fraction of the copy's.
    pub of_copy: f64,
    /// Speed-up over the graph of the same case.
    pub over_graph: Option<f64>,
    /// Speed-up over ggml in the same case.
    pub over_ggml: Option<f64>,
}

/// The rows of a case; `arms` are names, bytes and times, the copy first.
pub fn rows(case: &Case, arms: &[(String, usize, Times)]) -> Vec<Row> {
    let rate = |(_, bytes, times): &(String, usize, Times)| *bytes as f64 / times.median / 1e3;
    let copy = rate(&arms[0]);
    let peer = |prefix: &str| arms.iter().find(|(name, ..)| name.starts_with(prefix)).map(|(.., times)| times.median);
    let (graph, ggml) = (peer("graph"), peer("ggml"));
    let row = |arm: &(String, usize, Times)| Row {
        models: case.models.clone(),
        case: case.name(),
        rotating: case.rotating,
        arm: arm.0.clone(),
        times: arm.2,
        gb_per_s: rate(arm),
        of_copy: rate(arm) / copy,
        over_graph: graph.map(|graph| graph / arm.2.median),
        over_ggml: ggml.map(|ggml| ggml / arm.2.median),
    };
    arms.iter().map(row).collect()
}

/// Writes the rows as CSV, with what a later comparison needs to know as comment lines at the head.
///
/// # Errors
///
/// The file cannot be written.
pub fn write(path: &Path, rows: &[Row], facts: &[(&str, String)]) -> io::Result<()> {
    let optional = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
    let mut text = String::new();
    for (name, value) in facts {
        text += &format!("# {name}: {value}\n");
    }
    text += "case,state,arm,median_us,quartile_1_us,quartile_3_us,steps,gb_per_s,of_copy,over_graph,over_ggml,models\n";
    for row in rows {
        let Times { quartile_1, median, quartile_3, steps } = row.times;
        text += &format!(
            "{},{},{},{median:.2},{quartile_1:.2},{quartile_3:.2},{steps},{:.2},{:.3},{},{},\"{}\"\n",
            row.case,
            if row.rotating { "rotating" } else { "resident" },
            row.arm,
            row.gb_per_s,
            row.of_copy,
            optional(row.over_graph),
            optional(row.over_ggml),
            row.models,
        );
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

/// The processor's name, as the system tells it.
pub fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value =
        |key: &str| info.lines().find_map(|line| line.strip_prefix(key)?.split_once(':')).map(|(_, v)| v.trim());
    match (value("model name"), value("model\t")) {
        (Some(name), Some(model)) => format!("{name} (family {}, model {model})", value("cpu family").unwrap_or("?")),
        (Some(name), None) => name.to_owned(),
        _ => std::env::consts::ARCH.to_owned(),
    }
}

/// A folder name for a processor: letters, digits and single dashes.
pub fn device_folder(processor: &str) -> String {
    let name = processor.split(" (").next().unwrap_or_default();
    let cleaned: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let words = cleaned.split('-').filter(|word| !matches!(*word, "" | "r" | "tm" | "cpu" | "processor"));
    words.collect::<Vec<_>>().join("-")
}

/// `<folder>/<date>`, without an ending.
pub fn stem(folder: &Path, processor: &str) -> PathBuf {
    folder.join(device_folder(processor)).join(today())
}

/// Today's date in UTC, `YYYY-MM-DD` (days to civil date: Hinnant, "chrono-compatible low-level date algorithms").
pub fn today() -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400) as i64;
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
