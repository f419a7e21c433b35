//! Plain tables, padded as Ceph pads them (`common/TextTable.cc`).

use std::fmt::{self, Write};

/// Where the text of a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Left.
    Left,
    /// In the middle.
    Center,
    /// Right.
    Right,
}

#[derive(Clone, Debug)]
struct Column {
    heading: String,
    head: Align,
    body: Align,
    width: usize,
}

/// A table: columns with headings, and rows of cells. Trailing spaces are kept.
#[derive(Clone, Debug)]
pub struct TextTable {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    separator: &'static str,
}

impl Default for TextTable {
    fn default() -> Self {
        TextTable { columns: Vec::new(), rows: Vec::new(), separator: "  " }
    }
}

impl TextTable {
    /// A table without columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// With other text than two spaces between columns.
    #[must_use]
    pub fn with_separator(mut self, separator: &'static str) -> Self {
        self.separator = separator;
        self
    }

    /// Adds a column; `head` is for its heading, `body` for its cells.
    #[must_use]
    pub fn column(mut self, heading: &str, head: Align, body: Align) -> Self {
        let width = heading.len();
        self.columns.push(Column { heading: heading.to_owned(), head, body, width });
        self
    }

    /// Adds several columns aligned alike.
    #[must_use]
    pub fn columns(self, headings: &[&str], head: Align, body: Align) -> Self {
        headings.iter().fold(self, |table, heading| table.column(heading, head, body))
    }

    /// Adds a row. Cells beyond the columns are dropped; there may be fewer.
    pub fn row<S: ToString>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells = cells.into_iter().take(self.columns.len());
        let row: Vec<String> = cells.map(|c| c.to_string()).collect();
        for (column, cell) in self.columns.iter_mut().zip(&row) {
            column.width = column.width.max(cell.len());
        }
        self.rows.push(row);
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

fn pad(f: &mut fmt::Formatter<'_>, text: &str, width: usize, align: Align) -> fmt::Result {
    let space = width.saturating_sub(text.len());
    let left = match align {
        Align::Left => 0,
        Align::Center => (width / 2).saturating_sub(text.len() / 2),
        Align::Right => space,
    };
    // Not as a width of the format, which has 16 bits.
    let blanks = |f: &mut fmt::Formatter<'_>, n: usize| (0..n).try_for_each(|_| f.write_char(' '));
    blanks(f, left)?;
    f.write_str(text)?;
    blanks(f, space.saturating_sub(left))
}

impl fmt::Display for TextTable {
    /// Heading and rows, each with a newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, c) in self.columns.iter().enumerate() {
            f.write_str(if i > 0 { self.separator } else { "" })?;
            pad(f, &c.heading, c.width, c.head)?;
        }
        f.write_str("\n")?;
        for row in &self.rows {
            for (i, (cell, c)) in row.iter().zip(&self.columns).enumerate() {
                f.write_str(if i > 0 { self.separator } else { "" })?;
                pad(f, cell, c.width, c.body)?;
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and values of options may be as long as a command.
    #[test]
    fn pads_to_very_wide_cells() {
        let mut t = TextTable::new().column("ID", Align::Center, Align::Right);
        t.row(["x".repeat(100_000)]);
        t.row(["y".to_owned()]);
        assert_eq!(t.to_string().len(), 3 * 100_001);
    }

    #[test]
    fn pads_each_column_to_its_widest_cell() {
        let mut t = TextTable::new()
            .column("ID", Align::Left, Align::Right)
            .column("NAME", Align::Center, Align::Left)
            .column("X", Align::Left, Align::Center);
        t.row(["-1", "longer one", "abcd"]);
        t.row(["0", "b"]);
        assert_eq!(t.to_string(), "ID     NAME     X   \n-1  longer one  abcd\n 0  b         \n");
    }
}
