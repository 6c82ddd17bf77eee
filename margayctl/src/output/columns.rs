//! `-o custom-columns=NAME:.path,...`

use super::Table;
use super::path::{plain, query, translate};
use crate::failure::Failure;
use serde_json::Value;

/// Columns chosen by the user.
#[derive(Debug, Clone)]
pub(crate) struct CustomColumns {
    columns: Vec<(String, String)>,
}

impl std::str::FromStr for CustomColumns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let columns = text
            .split(',')
            .map(|column| match column.split_once(':') {
                Some((name, path)) if !name.is_empty() && !path.is_empty() => {
                    Ok((name.to_owned(), translate(path)))
                }
                _ => Err(format!("custom-columns wants NAME:.path, found {column:?}")),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { columns })
    }
}

impl CustomColumns {
    /// One row per object.
    pub(crate) fn table(&self, objects: &[Value]) -> Result<Table, Failure> {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        let mut table = Table::new(&names);
        for object in objects {
            let mut row = Vec::new();
            for (_, path) in &self.columns {
                let found: Vec<String> = query(object, path)?.into_iter().map(plain).collect();
                row.push(if found.is_empty() {
                    "<none>".to_owned()
                } else {
                    found.join(",")
                });
            }
            table.row(row);
        }
        Ok(table)
    }
}
