//! Reading tables of measurements, of this engine and of others that name the columns alike.

use std::path::Path;

use crate::error::{Error, Result};

/// A row, as far as a comparison needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Line of the file.
    pub line: u64,
    /// Name of the model.
    pub model: String,
    /// The processor or accelerator; empty where the table does not say.
    pub hardware: String,
    /// Tokens of the prompt; `None` where the cell is empty, as with the rates.
    pub prompt_tokens: Option<usize>,
    /// Prompt tokens per second.
    pub prefill_tok_s: Option<f64>,
    /// Decoded tokens per second.
    pub decode_tok_s: Option<f64>,
    /// The `FAIL:reason` or `SKIP:reason` with which a row that was not measured ends.
    pub failure: Option<String>,
}

/// Columns that a table has to have.
const NEEDED: [&str; 5] = ["model", "hardware", "prompt_tokens", "prefill_tok_s", "decode_tok_s"];

/// Reads a table. Columns are found by their names; rows may be shorter or longer than the header, since some writers put
/// the outcome after the last column.
///
/// # Errors
///
/// The file cannot be read; a needed column is missing; a cell is not what its column holds.
pub fn read(path: &Path) -> Result<Vec<Row>> {
    let file =
        std::fs::File::open(path).map_err(|source| Error::read(path, source, "`bench-decode` makes such files"))?;
    parse(path, file)
}

fn parse(path: &Path, file: impl std::io::Read) -> Result<Vec<Row>> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(file);
    let failed = |error: csv::Error| Error::malformed(path, error);
    let header = reader.headers().map_err(failed)?.clone();
    let mut columns = [0; NEEDED.len()];
    for (column, name) in columns.iter_mut().zip(NEEDED) {
        *column = header.iter().position(|found| found == name).ok_or_else(|| {
            let found: Vec<&str> = header.iter().collect();
            Error::malformed(path, format!("column `{name}` is missing; its first line has {}", found.join(",")))
        })?;
    }
    reader.into_records().map(|record| Cells { path, columns, record: record.map_err(failed)? }.row()).collect()
}

/// One line's cells.
struct Cells<'a> {
    path: &'a Path,
    columns: [usize; NEEDED.len()],
    record: csv::StringRecord,
}

impl Cells<'_> {
    fn row(&self) -> Result<Row> {
        let last = self.record.iter().rev().find(|cell| !cell.is_empty());
        let failure = last.filter(|cell| cell.starts_with("FAIL:") || cell.starts_with("SKIP:"));
        if self.text(0).is_empty() {
            return Err(self.error(0, "the name of a model"));
        }
        Ok(Row {
            line: self.line(),
            model: self.text(0).to_owned(),
            hardware: self.text(1).to_owned(),
            prompt_tokens: match self.text(2) {
                "" => None,
                text => Some(text.parse().map_err(|_| self.error(2, "a whole number"))?),
            },
            prefill_tok_s: self.rate(3)?,
            decode_tok_s: self.rate(4)?,
            failure: failure.map(str::to_owned),
        })
    }

    /// The cell of a needed column; empty where the row ends before it, or where it holds the outcome of a shortened row.
    fn text(&self, needed: usize) -> &str {
        let cell = self.record.get(self.columns[needed]).unwrap_or_default();
        if cell.starts_with("FAIL:") || cell.starts_with("SKIP:") { "" } else { cell }
    }

    fn rate(&self, needed: usize) -> Result<Option<f64>> {
        match self.text(needed) {
            "" => Ok(None),
            text => match text.parse::<f64>() {
                Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok(Some(rate)),
                _ => Err(self.error(needed, "a finite number from 0")),
            },
        }
    }

    fn line(&self) -> u64 {
        self.record.position().map_or(0, csv::Position::line)
    }

    fn error(&self, needed: usize, expected: &str) -> Error {
        Error::Cell {
            path: self.path.to_owned(),
            line: self.line(),
            column: NEEDED[needed].to_owned(),
            expected: expected.to_owned(),
            got: format!("{:?}", self.text(needed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first line of another engine's tables.
    const OTHER: &str = "model,model_path,prompt_tokens,generated_tokens,prefill_ms,prefill_tok_s,decode_ms,decode_tok_s,date,\
        hardware,mlxcel_version,build_type,max_tokens,prompt,prompt_target_len,mlxcel_commit,mlx_commit,\
        mlx_rocm_overlay_commit,hip_version";

    fn parse(text: &str) -> Result<Vec<Row>> {
        super::parse(Path::new("t.csv"), text.as_bytes())
    }

    #[test]
    fn tables_of_other_engines_are_read_with_their_outcomes() {
        let text = format!(
            "{OTHER}\n\
             a,models/a,512,128,900.5,568.6,2000,64.0,2026-01-02,gfx1151_128GB,0.9,release,128,\"Hello, how\",512,c,m,o,7.2\n\
             b,models/b,,,,,,,2026-01-02,gfx1151_128GB,0.9,release,128,x,512,c,m,o,7.2,SKIP:oom\n\
             c,models/c,FAIL:bench\n"
        );
        let rows = parse(&text).unwrap();
        assert_eq!((rows[0].prompt_tokens, rows[0].decode_tok_s, &rows[0].failure), (Some(512), Some(64.0), &None));
        assert_eq!((rows[1].decode_tok_s, rows[1].failure.as_deref()), (None, Some("SKIP:oom")));
        assert_eq!(rows[1].hardware, "gfx1151_128GB");
        assert_eq!((rows[2].prompt_tokens, rows[2].failure.as_deref()), (None, Some("FAIL:bench")));
        assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn malformed_cells_name_line_column_expected_and_got() {
        let header = "model,hardware,prompt_tokens,prefill_tok_s,decode_tok_s";
        for (row, parts) in [
            ("a,h,x,1,2", ["`prompt_tokens`", "a whole number", "got \"x\""]),
            ("a,h,1,-1,2", ["`prefill_tok_s`", "a finite number from 0", "got \"-1\""]),
            ("a,h,1,1,NaN", ["`decode_tok_s`", "a finite number from 0", "got \"NaN\""]),
            (",h,1,1,2", ["`model`", "the name of a model", "got \"\""]),
        ] {
            let error = parse(&format!("{header}\nok,h,1,1,2\n{row}\n")).unwrap_err().to_string();
            assert!(error.starts_with("t.csv:3: column ") && parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn tables_without_a_needed_column_are_refused() {
        for text in ["", "model,decode_tok_s\na,1\n"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("is missing"), "{error}");
        }
        // Bytes that are no text.
        assert!(super::parse(Path::new("t.csv"), &b"model,\xff\n"[..]).is_err());
    }
}
