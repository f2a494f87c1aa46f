//! Plain text tables: columns as wide as what stands in them.

use std::io::{self, Write};

/// Writes rows below a header; text to the left, figures to the right.
pub(super) struct Table {
    header: Vec<(&'static str, bool)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; `true` stands for a column of text.
    pub(super) fn new(header: &[(&'static str, bool)]) -> Self {
        Self {
            header: header.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, which has as many cells as there are columns.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.header.len());
        self.rows.push(cells);
    }

    /// Writes everything.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let widths: Vec<usize> = self
            .header
            .iter()
            .enumerate()
            .map(|(at, (name, _))| {
                let cells = self.rows.iter().filter_map(|row| row.get(at));
                cells
                    .map(|cell| cell.chars().count())
                    .chain([name.len()])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let names: Vec<String> = self.header.iter().map(|(n, _)| (*n).to_owned()).collect();
        for row in std::iter::once(&names).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), (_, text)) in row.iter().zip(&widths).zip(&self.header) {
                if !line.is_empty() {
                    line.push(' ');
                }
                let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
                if *text {
                    line.push_str(cell);
                    line.push_str(&padding);
                } else {
                    line.push_str(&padding);
                    line.push_str(cell);
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A value or a dash.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("VM", true), ("N", false)]);
        table.row(vec!["a-long-name".to_owned(), "1".to_owned()]);
        table.row(vec!["b".to_owned(), "1000".to_owned()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "VM             N\na-long-name    1\nb           1000\n"
        );
    }

    #[test]
    fn an_empty_table_is_its_header() {
        let mut out = Vec::new();
        Table::new(&[("VM", true)]).write(&mut out).unwrap();
        assert_eq!(out, b"VM\n");
    }
}
