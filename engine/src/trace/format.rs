//! The file of a trace: lines `# key<TAB>value`, then a line of tab separated columns per position.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use super::{Header, Row, Trace};
use crate::error::{Error, Result};

/// The columns of a row.
pub const COLUMNS: [&str; 6] = ["chunk", "pos", "target", "nll", "top_ids", "top_logits"];

/// Writes the lines of the header, and the one that names the columns.
///
/// # Errors
///
/// Those of `out`.
pub fn write_header(out: &mut impl Write, header: &Header) -> Result<()> {
    for (key, value) in header.entries() {
        writeln!(out, "# {key}\t{value}")?;
    }
    Ok(writeln!(out, "# columns\t{}", COLUMNS.join("\t"))?)
}

/// Writes a position.
///
/// # Errors
///
/// Those of `out`.
pub fn write_row(out: &mut impl Write, row: &Row) -> Result<()> {
    let Row { chunk, pos, target, nll, top } = row;
    let tokens: Vec<String> = top.iter().map(|(token, _)| token.to_string()).collect();
    let logits: Vec<String> = top.iter().map(|(_, logit)| format!("{logit:.6}")).collect();
    Ok(writeln!(out, "{chunk}\t{pos}\t{target}\t{nll:.6}\t{}\t{}", tokens.join(","), logits.join(","))?)
}

/// Reads a trace, of this engine or of another one that writes the same columns.
///
/// Lines that begin with `[` are skipped: engines print such between the rows. A line of the header may hold several pairs
/// of key and value.
///
/// # Errors
///
/// The file cannot be read; a row is malformed, with its line and column; the file has no rows, or fewer than it announces.
pub fn read(path: &Path) -> Result<Trace> {
    let file =
        std::fs::File::open(path).map_err(|source| Error::read(path, source, "`logit-trace` makes such files"))?;
    parse(path, BufReader::new(file))
}

/// As [`read`], from a text that is there already; `path` is for messages.
///
/// # Errors
///
/// As [`read`].
pub fn parse(path: &Path, text: impl BufRead) -> Result<Trace> {
    let mut trace = Trace::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let line = line.trim_end_matches('\r');
        if line.is_empty() || line.starts_with('[') {
            continue;
        }
        match line.strip_prefix('#') {
            Some(pairs) => trace.header = read_pairs(std::mem::take(&mut trace.header), pairs),
            None => trace.rows.push(Cells { path, line: index as u64 + 1, cells: line.split('\t').collect() }.row()?),
        }
    }
    let announced: Option<usize> = trace.header.get("positions").and_then(|count| count.parse().ok());
    match (trace.rows.len(), announced) {
        (0, _) => Err(Error::malformed(path, "no rows: expected lines of `logit-trace` with 6 columns")),
        (rows, Some(announced)) if rows != announced => {
            let text = format!("{rows} rows, where its header announces {announced}: it ends early; make it again");
            Err(Error::malformed(path, text))
        }
        _ => Ok(trace),
    }
}

/// `columns` is followed by a list; every other line by keys and values in turn.
fn read_pairs(header: Header, line: &str) -> Header {
    let mut cells = line.trim_start().split('\t');
    let mut header = header;
    while let Some(key) = cells.next() {
        if key == "columns" {
            break;
        }
        header = header.with(key, cells.next().unwrap_or_default());
    }
    header
}

/// One line's cells, and where it stands.
struct Cells<'a> {
    path: &'a Path,
    line: u64,
    cells: Vec<&'a str>,
}

impl Cells<'_> {
    fn row(&self) -> Result<Row> {
        if self.cells.len() != COLUMNS.len() {
            let expected = format!("{} cells separated by tabs ({})", COLUMNS.len(), COLUMNS.join(", "));
            let column = COLUMNS.get(self.cells.len()).copied().unwrap_or("(after the last)");
            return Err(self.error(column, expected, format!("{}", self.cells.len())));
        }
        let tokens: Vec<u32> = self.list(4, "tokens separated by commas")?;
        let logits: Vec<f64> = self.list(5, "finite numbers separated by commas")?;
        let nll: f64 = self.cell(3, "a finite number from 0")?;
        if !(nll >= 0.0 && nll.is_finite()) {
            return Err(self.error(COLUMNS[3], "a finite number from 0", self.cells[3]));
        }
        if tokens.len() != logits.len() {
            return Err(self.error(
                COLUMNS[5],
                format!("{}, as many as top_ids", tokens.len()),
                logits.len().to_string(),
            ));
        }
        if logits.iter().any(|logit| !logit.is_finite()) || !logits.is_sorted_by(|a, b| a >= b) {
            return Err(self.error(COLUMNS[5], "finite numbers, largest first", self.cells[5]));
        }
        Ok(Row {
            chunk: self.cell(0, "a whole number")?,
            pos: self.cell(1, "a whole number")?,
            target: self.cell(2, "a token")?,
            nll,
            top: tokens.into_iter().zip(logits).collect(),
        })
    }

    fn cell<T: std::str::FromStr>(&self, column: usize, expected: &str) -> Result<T> {
        self.cells[column].parse().map_err(|_| self.error(COLUMNS[column], expected, self.cells[column]))
    }

    fn list<T: std::str::FromStr>(&self, column: usize, expected: &str) -> Result<Vec<T>> {
        let values: Result<Vec<T>, T::Err> = self.cells[column].split(',').map(str::parse).collect();
        values.map_err(|_| self.error(COLUMNS[column], expected, self.cells[column]))
    }

    fn error(&self, column: &str, expected: impl Into<String>, got: impl Into<String>) -> Error {
        Error::Cell {
            path: self.path.to_owned(),
            line: self.line,
            column: column.to_owned(),
            expected: expected.into(),
            got: got.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Trace> {
        super::parse(Path::new("t.tsv"), text.as_bytes())
    }

    fn row(pos: usize) -> Row {
        Row { chunk: 1, pos, target: 7, nll: 0.25, top: vec![(7, 3.5), (2, -1.125)] }
    }

    #[test]
    fn what_is_written_is_read() {
        let trace = Trace {
            header: Header::default().with("model", "a\tb\nc").with("positions", 2),
            rows: vec![row(0), row(1)],
        };
        let mut text = Vec::new();
        write_header(&mut text, &trace.header).unwrap();
        trace.rows.iter().for_each(|row| write_row(&mut text, row).unwrap());
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().next(), Some("# model\ta b c"));
        assert_eq!(text.lines().last(), Some("1\t1\t7\t0.250000\t7,2\t3.500000,-1.125000"));
        assert_eq!(parse(&text).unwrap(), trace);
    }

    #[test]
    fn lines_of_other_engines_are_understood() {
        let text = "[Model] loaded\n# chunks\t4\tchunk_tokens\t1\tprefill\t512\n# columns\tchunk\tpos\n\
                    0\t0\t5\t0.5\t5,6\t2.0,1.0\r\n[Model] layer 3\n\n0\t1\t5\t0.5\t5,6\t2.0,1.0";
        let trace = parse(text).unwrap();
        assert_eq!(trace.rows.len(), 2);
        assert_eq!(trace.header.get("chunk_tokens"), Some("1"));
        assert_eq!(trace.header.get("prefill"), Some("512"));
        assert_eq!(trace.header.get("pos"), None);
    }

    #[test]
    fn malformed_rows_name_line_column_expected_and_got() {
        for (row, parts) in [
            ("0\t0\t5\t0.5\t5,6", ["`top_logits`", "6 cells", "got 5"]),
            ("0\t0\t5\t0.5\t5,6\t2,1\t9", ["(after the last)", "6 cells", "got 7"]),
            ("warning: slow", ["`pos`", "6 cells", "got 1"]),
            ("x\t0\t5\t0.5\t5,6\t2,1", ["`chunk`", "a whole number", "got x"]),
            ("0\t-1\t5\t0.5\t5,6\t2,1", ["`pos`", "a whole number", "got -1"]),
            ("0\t0\t5.5\t0.5\t5,6\t2,1", ["`target`", "a token", "got 5.5"]),
            ("0\t0\t5\tNaN\t5,6\t2,1", ["`nll`", "a finite number from 0", "got NaN"]),
            ("0\t0\t5\t-0.5\t5,6\t2,1", ["`nll`", "a finite number from 0", "got -0.5"]),
            ("0\t0\t5\t\t5,6\t2,1", ["`nll`", "a finite number from 0", "got "]),
            ("0\t0\t5\t0.5\t5,,6\t2,1", ["`top_ids`", "tokens", "got 5,,6"]),
            ("0\t0\t5\t0.5\t5,6\t2", ["`top_logits`", "2, as many as top_ids", "got 1"]),
            ("0\t0\t5\t0.5\t5,6\t2,inf", ["`top_logits`", "finite", "got 2,inf"]),
            ("0\t0\t5\t0.5\t5,6\t1,2", ["`top_logits`", "largest first", "got 1,2"]),
        ] {
            let error = parse(&format!("# model\tm\n{row}\n")).unwrap_err().to_string();
            assert!(error.starts_with("t.tsv:2: column "), "{error}");
            assert!(parts.iter().all(|part| error.contains(part)), "{row:?}: {error}");
        }
    }

    #[test]
    fn files_without_all_their_rows_are_refused() {
        for (text, part) in [("", "no rows"), ("# model\tm\n", "no rows"), ("[x]\n", "no rows")] {
            assert!(parse(text).unwrap_err().to_string().contains(part), "{text:?}");
        }
        let error = parse("# positions\t3\n0\t0\t5\t0.5\t5,6\t2,1\n").unwrap_err().to_string();
        assert!(error.contains("1 rows") && error.contains("announces 3"), "{error}");
    }
}
