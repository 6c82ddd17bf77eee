//! Lists in pages: all pages of a list show the objects as they were at the first page.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::status::ApiError;
use crate::store::Stored;

/// How many unfinished lists are kept; the oldest is forgotten first and its client told to start over.
const KEPT: usize = 128;

/// The rest of a list.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    /// Objects not yet sent.
    pub(super) objects: Vec<Arc<Stored>>,
    /// Revision of the whole list.
    pub(super) revision: u64,
    /// Path and selectors of the list.
    pub(super) scope: String,
}

/// Unfinished lists.
#[derive(Debug, Default)]
pub(super) struct Pages(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    lists: VecDeque<(u64, Arc<Rest>)>,
}

impl Pages {
    /// Keeps the rest of a list and returns the token that continues it at `offset`.
    pub(super) fn keep(&self, rest: Rest) -> String {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.last += 1;
        let id = pages.last;
        if pages.lists.len() >= KEPT {
            pages.lists.pop_front();
        }
        pages.lists.push_back((id, Arc::new(rest)));
        token(id, 0)
    }

    /// The rest a token points to, and the offset in it.
    pub(super) fn find(
        &self,
        token: &str,
        scope: &str,
    ) -> Result<(u64, usize, Arc<Rest>), ApiError> {
        let (id, offset) =
            parse(token).ok_or_else(|| ApiError::bad_request("continue key is not valid"))?;
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = pages
            .lists
            .iter()
            .find(|(known, _)| *known == id)
            .map(|(_, rest)| Arc::clone(rest));
        match rest {
            Some(rest) if rest.scope == scope => Ok((id, offset, rest)),
            Some(_) => Err(ApiError::bad_request(
                "continue key belongs to another list",
            )),
            None => Err(ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.",
            )),
        }
    }
}

/// The token for a position.
pub(super) fn token(id: u64, offset: usize) -> String {
    URL_SAFE_NO_PAD.encode(format!("{id}.{offset}"))
}

fn parse(token: &str) -> Option<(u64, usize)> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (id, offset) = text.split_once('.')?;
    Some((id.parse().ok()?, offset.parse().ok()?))
}
