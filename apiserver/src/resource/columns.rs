//! Printer columns: where a cell's text comes from.

use serde_json::Value;

use super::super::table::path::Path;

/// One column of a Table.
#[derive(Debug, Clone)]
pub struct Column {
    /// Heading.
    pub name: String,
    /// OpenAPI type: string, integer, number, boolean, date.
    pub kind: String,
    /// OpenAPI format.
    pub format: String,
    /// What it shows.
    pub description: String,
    /// 0 = always shown, above = only `-o wide`.
    pub priority: i64,
    /// Where the cell comes from.
    pub source: ColumnSource,
}

/// Where a cell comes from.
#[derive(Debug, Clone)]
pub enum ColumnSource {
    /// The first value at a path.
    Path(Path),
    /// A function of the object, for what no path can say.
    Cell(fn(&Value) -> Value),
}

impl ColumnSource {
    /// From a CRD's `jsonPath`.
    pub fn path(text: &str) -> Self {
        Self::Path(Path::parse(text))
    }
}

impl Column {
    fn plain(name: &str, kind: &str, source: ColumnSource) -> Self {
        Self {
            name: name.into(),
            kind: kind.into(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            source,
        }
    }

    /// The object's name.
    pub fn name() -> Self {
        let source = ColumnSource::path(".metadata.name");
        Self {
            format: "name".into(),
            ..Self::plain("Name", "string", source)
        }
    }

    /// Time since creation.
    pub fn age() -> Self {
        Self::plain(
            "Age",
            "date",
            ColumnSource::path(".metadata.creationTimestamp"),
        )
    }

    /// A column at a path.
    pub fn at(name: &str, kind: &str, path: &str) -> Self {
        Self::plain(name, kind, ColumnSource::path(path))
    }

    /// A computed column.
    pub fn computed(name: &str, kind: &str, cell: fn(&Value) -> Value) -> Self {
        Self::plain(name, kind, ColumnSource::Cell(cell))
    }

    /// Shown with `-o wide` only.
    pub fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }
}
