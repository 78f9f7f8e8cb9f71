//! The picture of a record: time per step of the kernel and of the graph, for every shape at batch 1.

use std::error::Error;
use std::fs;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::record::Row;

const KERNEL: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const GRAPH: RGBColor = RGBColor(0xc7, 0xc7, 0xc7);
const GGML: RGBColor = RGBColor(0xff, 0x9f, 0x40);
const WIDTH: u32 = 1000;
/// Pixels of one bar, of the gap between cases, and of the margins.
const BAR: i32 = 11;
const GAP: i32 = 10;
const TOP: i32 = 64;
const BOTTOM: i32 = 44;
const LEFT: i32 = 290;
const RIGHT: i32 = 110;

/// Draws the resident batch-1 cases of `rows` as an SVG file. Bars are on a logarithmic axis of microseconds.
///
/// # Errors
///
/// The file cannot be written.
pub fn draw(path: &Path, rows: &[Row], subtitle: &str) -> Result<(), Box<dyn Error>> {
    let shown: Vec<&Row> = rows.iter().filter(|row| !row.rotating && row.case.ends_with(" b1")).collect();
    let mut cases: Vec<(&str, &str)> = Vec::new();
    for row in &shown {
        if !cases.iter().any(|(case, _)| *case == row.case) {
            cases.push((&row.case, &row.models));
        }
    }
    let bars = [("cpu f32 in place", KERNEL), ("ggml f32 out of place", GGML), ("graph f32 (candle)", GRAPH)];
    let bars: Vec<_> = bars.into_iter().filter(|(arm, _)| shown.iter().any(|row| row.arm == *arm)).collect();
    let case_height = bars.len() as i32 * BAR + GAP;
    let height = TOP + BOTTOM + cases.len() as i32 * case_height;

    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let area = SVGBackend::new(path, (WIDTH, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let text = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
    area.draw(&Text::new("One token's state update on the CPU, batch 1, f32 state in cache", (16, 10), text(17)))?;
    area.draw(&Text::new(subtitle.to_owned(), (16, 32), text(12)))?;

    // Decades from 1 us to beyond the slowest bar.
    let slowest = shown.iter().map(|row| row.times.median).fold(10.0, f64::max);
    let decades = slowest.log10().ceil();
    let right = WIDTH as i32 - RIGHT;
    let x = |micros: f64| LEFT + (f64::from(right - LEFT) * (micros.max(1.0).log10() / decades)) as i32;
    let floor = height - BOTTOM;
    for decade in 0..=decades as i32 {
        let micros = 10_f64.powi(decade);
        area.draw(&PathElement::new(vec![(x(micros), TOP), (x(micros), floor)], BLACK.mix(0.15)))?;
        let centred = text(11).pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(format!("{micros} us"), (x(micros), floor + 4), centred))?;
    }
    for (index, (case, models)) in cases.iter().enumerate() {
        let top = TOP + index as i32 * case_height + GAP / 2;
        let label = text(11).pos(Pos::new(HPos::Right, VPos::Top));
        area.draw(&Text::new((*models).to_owned(), (LEFT - 8, top), label.clone()))?;
        area.draw(&Text::new((*case).to_owned(), (LEFT - 8, top + 12), label.color(&BLACK.mix(0.6))))?;
        for (bar, (arm, colour)) in bars.iter().enumerate() {
            let Some(row) = shown.iter().find(|row| row.case == *case && row.arm == *arm) else { continue };
            let y = top + bar as i32 * BAR;
            let end = x(row.times.median);
            area.draw(&Rectangle::new([(LEFT, y), (end, y + BAR - 2)], colour.filled()))?;
            let figure = match row.over_graph {
                Some(ratio) if *arm == bars[0].0 => format!("{:.0} us, {ratio:.0}x the graph", row.times.median),
                _ => format!("{:.0} us", row.times.median),
            };
            area.draw(&Text::new(figure, (end + 4, y - 1), text(10)))?;
        }
    }
    legend(&area, &bars, floor + 24)?;
    area.present()?;
    Ok(())
}

fn legend(area: &DrawingArea<SVGBackend<'_>, Shift>, bars: &[(&str, RGBColor)], y: i32) -> Result<(), Box<dyn Error>> {
    for (index, (arm, colour)) in bars.iter().enumerate() {
        let x = LEFT + index as i32 * 190;
        area.draw(&Rectangle::new([(x, y), (x + 10, y + 10)], colour.filled()))?;
        area.draw(&Text::new((*arm).to_owned(), (x + 15, y), ("sans-serif", 12).into_font().color(&BLACK)))?;
    }
    Ok(())
}
