//! Plain tables: upper-case header, two blanks between columns, no boxes.

use comfy_table::{CellAlignment, ContentArrangement};
use std::io::Write;

/// Which side of its column a cell stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows under a header. Columns are as wide as their widest cell; the last one is not padded.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; names of columns of numbers end in `#`.
    pub(crate) fn new(columns: &[&str]) -> Self {
        let header = columns
            .iter()
            .map(|c| match c.strip_suffix('#') {
                Some(name) => (name.to_owned(), Align::Right),
                None => ((*c).to_owned(), Align::Left),
            })
            .collect();
        Self {
            header,
            rows: Vec::new(),
        }
    }

    /// Adds a row; empty cells print as `-`.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Whether there is no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Prints the table, without its header if `headers` is false.
    pub(crate) fn print(&self, out: &mut impl Write, headers: bool) -> std::io::Result<()> {
        out.write_all(self.render(headers).as_bytes())
    }

    fn render(&self, headers: bool) -> String {
        let mut table = comfy_table::Table::new();
        table
            .load_style(comfy_table::presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        if headers {
            table.set_header(self.header.iter().map(|(name, _)| name));
        }
        for row in &self.rows {
            table.add_row(row.iter().map(|cell| shown(cell)));
        }
        for (column, (_, align)) in table.column_iter_mut().zip(&self.header) {
            column.set_padding((0, 2));
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        table
            .lines()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect()
    }
}

fn shown(cell: &str) -> &str {
    if cell.is_empty() { "-" } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_right_text_left_and_empty_cells_show_a_dash() {
        let mut table = Table::new(&["NAME", "RECV#", "LAST"]);
        table.row(vec!["a".into(), "7".into(), String::new()]);
        table.row(vec!["longer".into(), "123456".into(), "x".into()]);
        assert_eq!(
            table.render(true),
            "NAME      RECV  LAST\na            7  -\nlonger  123456  x\n"
        );
        assert_eq!(
            table.render(false),
            "a            7  -\nlonger  123456  x\n"
        );
    }
}
