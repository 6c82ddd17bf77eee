//! Routes: interned attributes, the table of all paths, the decision process, what leaves to whom.

mod adj_out;
mod decision;
mod export;
mod hash;
mod intern;
mod path;
mod table;

pub(crate) use adj_out::AdjOut;
pub(crate) use decision::{DecisionContext, Step, explain};
pub(crate) use export::{ExportSession, Exporter};
pub(crate) use hash::{FastMap, FastSet};
pub(crate) use intern::Interner;
pub(crate) use path::{Path, SourceFacts, SourceId};
pub(crate) use table::Table;
