//! Table and picture of a record that benches/peers/gpu.py wrote.

use std::error::Error;
use std::fs;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// This library's name in the record.
const OURS: &str = "ssm-update";
/// Batch sizes from which the bandwidth is the measure.
const LARGE: usize = 64;

/// One case with its candidates.
#[derive(Debug)]
struct Cell {
    case: String,
    batch: usize,
    state: String,
    /// Candidate and microseconds.
    times: Vec<(String, f64)>,
}

impl Cell {
    fn best(&self, of: impl Fn(&str) -> bool) -> Option<f64> {
        self.times.iter().filter(|(name, _)| of(name)).map(|(_, us)| *us).min_by(f64::total_cmp)
    }

    fn ours(&self) -> Option<f64> {
        self.best(|name| name == OURS)
    }

    fn flashinfer(&self) -> Option<f64> {
        self.best(|name| name.starts_with("flashinfer"))
    }

    fn triton(&self) -> Option<f64> {
        self.best(|name| name.ends_with("triton"))
    }

    /// Bytes that a step has to move: the state in and out, x, y, B and C in bf16, dt in f32.
    fn bytes(&self, shapes: &[(&str, [usize; 4])]) -> Option<f64> {
        let (_, [heads, head_dim, d_state, groups]) = shapes.iter().find(|(name, _)| *name == self.case)?;
        let element = if self.state == "f32" { 4 } else { 2 };
        let row =
            2 * heads * head_dim * d_state * element + 2 * 2 * heads * head_dim + 2 * 2 * groups * d_state + 4 * heads;
        Some((self.batch * row) as f64)
    }
}

/// The cells of a record, in its order, and the rate of a plain stream in the same run, in GB/s.
fn read(text: &str) -> Result<(Vec<Cell>, f64), String> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut stream: f64 = 0.0;
    for (number, line) in text.lines().enumerate() {
        if let Some(rate) = line.strip_prefix("# stream GB/s:") {
            stream = stream.max(rate.trim().parse().map_err(|_| format!("line {}: no rate: {line}", number + 1))?);
        }
        let fields: Vec<&str> = line.split(',').collect();
        let Some(&[case, batch, state, candidate, us]) = fields.first_chunk::<5>() else { continue };
        if line.starts_with('#') || case == "case" {
            continue;
        }
        let fault = |what: &str| format!("line {}: no {what}: {line}", number + 1);
        let batch = batch.parse().map_err(|_| fault("batch"))?;
        let us = us.parse().map_err(|_| fault("time"))?;
        let same = |cell: &&mut Cell| cell.case == case && cell.batch == batch && cell.state == state;
        match cells.iter_mut().find(same) {
            Some(cell) => cell.times.push((candidate.to_owned(), us)),
            None => cells.push(Cell {
                case: case.to_owned(),
                batch,
                state: state.to_owned(),
                times: vec![(candidate.to_owned(), us)],
            }),
        }
    }
    if stream == 0.0 || cells.iter().any(|cell| cell.ours().is_none() || cell.flashinfer().is_none()) {
        return Err("the record lacks the stream rate, this library or FlashInfer in some case".to_owned());
    }
    Ok((cells, stream))
}

/// Prints the record as a table and draws it beside the file.
///
/// # Errors
///
/// The file cannot be read, is not a record, or the picture cannot be written.
pub fn report(path: &Path, shapes: &[(&str, [usize; 4])]) -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (cells, stream) = read(&text).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("| case | state | batch | us | of FlashInfer's best | of Triton | of the stream's {stream:.0} GB/s |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    for cell in &cells {
        let (Some(ours), Some(flashinfer)) = (cell.ours(), cell.flashinfer()) else { continue };
        let triton = cell.triton().map_or("-".to_owned(), |triton| format!("{:.2}", ours / triton));
        let rate = cell.bytes(shapes).filter(|_| cell.batch >= LARGE);
        let rate = rate.map_or("-".to_owned(), |bytes| format!("{:.1} %", bytes / ours / 1e3 / stream * 100.0));
        println!(
            "| {} | {} | {} | {ours:.2} | {:.2} | {triton} | {rate} |",
            cell.case,
            cell.state,
            cell.batch,
            ours / flashinfer
        );
    }
    let device = text.lines().next().unwrap_or_default().trim_start_matches("# ");
    let picture = path.with_extension("svg");
    draw(&picture, &cells, device)?;
    eprintln!("wrote {}", picture.display());
    Ok(())
}

const WIDTH: u32 = 1000;
const LEFT: i32 = 230;
const RIGHT: i32 = 60;
const TOP: i32 = 64;
const BOTTOM: i32 = 40;
const BAR: i32 = 8;
const GAP: i32 = 6;
const OURS_COLOUR: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const TRITON_COLOUR: RGBColor = RGBColor(0xff, 0x9f, 0x40);

/// Time as a fraction of FlashInfer's best, for the f32 and bf16 states.
fn draw(path: &Path, cells: &[Cell], device: &str) -> Result<(), Box<dyn Error>> {
    let shown: Vec<&Cell> = cells.iter().filter(|cell| cell.state != "f16").collect();
    let row = 2 * BAR + GAP;
    let height = TOP + BOTTOM + shown.len() as i32 * row;
    let area = SVGBackend::new(path, (WIDTH, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let text = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
    area.draw(&Text::new(
        "One token's state update: time as a fraction of FlashInfer's best algorithm",
        (16, 10),
        text(17),
    ))?;
    area.draw(&Text::new(device.to_owned(), (16, 32), text(12)))?;
    const MOST: f64 = 2.5;
    let right = WIDTH as i32 - RIGHT;
    let x = |ratio: f64| LEFT + (f64::from(right - LEFT) * ratio.min(MOST) / MOST) as i32;
    let floor = height - BOTTOM;
    for tick in [0.0, 0.5, 1.0, 1.5, 2.0, 2.5] {
        let shade = if tick == 1.0 { 0.8 } else { 0.15 };
        area.draw(&PathElement::new(vec![(x(tick), TOP), (x(tick), floor)], BLACK.mix(shade)))?;
        let centred = text(11).pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(format!("{tick}"), (x(tick), floor + 4), centred))?;
    }
    for (index, cell) in shown.iter().enumerate() {
        let top = TOP + index as i32 * row + GAP / 2;
        let label = text(11).pos(Pos::new(HPos::Right, VPos::Top));
        area.draw(&Text::new(format!("{}, {}, batch {}", cell.case, cell.state, cell.batch), (LEFT - 8, top), label))?;
        let Some(flashinfer) = cell.flashinfer() else { continue };
        for (bar, (time, colour)) in
            [(cell.ours(), OURS_COLOUR), (cell.triton(), TRITON_COLOUR)].into_iter().enumerate()
        {
            let Some(ratio) = time.map(|time| time / flashinfer) else { continue };
            let y = top + bar as i32 * BAR;
            area.draw(&Rectangle::new([(LEFT, y), (x(ratio), y + BAR - 1)], colour.filled()))?;
            area.draw(&Text::new(format!("{ratio:.2}"), (x(ratio) + 4, y - 2), text(9)))?;
        }
    }
    for (index, (name, colour)) in [(OURS, OURS_COLOUR), ("mamba_ssm Triton", TRITON_COLOUR)].iter().enumerate() {
        let left = LEFT + index as i32 * 190;
        area.draw(&Rectangle::new([(left, floor + 22), (left + 10, floor + 32)], colour.filled()))?;
        area.draw(&Text::new((*name).to_owned(), (left + 15, floor + 22), text(12)))?;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_record_is_read_and_a_lack_is_named() {
        let whole = "# GPU\n# stream GB/s: 4000\ncase,batch,state,candidate,us,error\na,1,f32,flashinfer auto,3.5,1e-3\n\
                     a,1,f32,ssm-update,2.0,\n";
        let (cells, stream) = read(whole).expect("a record");
        assert_eq!((cells.len(), stream), (1, 4000.0));
        assert_eq!((cells[0].ours(), cells[0].flashinfer(), cells[0].triton()), (Some(2.0), Some(3.5), None));
        assert!(read(&whole.replace("ssm-update", "other")).is_err());
        assert!(read(&whole.replace("3.5", "fast")).expect_err("no number").contains("line 4"));
    }
}
