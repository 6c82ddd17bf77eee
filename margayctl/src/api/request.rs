//! Raw requests: objects stay `serde_json::Value`, so no field is ever lost on the way.

use super::{Api, Kind, timed_out};
use crate::failure::Failure;
use futures::{AsyncBufReadExt, Stream, StreamExt};
use http::header::{ACCEPT, CONTENT_TYPE};
use serde_json::Value;

/// How a list or an object is asked for: as objects, or as the server's own table.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// HTTP methods used on objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// Read one object or a list.
    Get,
    /// Create an object.
    Post,
    /// Replace an object.
    Put,
    /// Change an object.
    Patch,
    /// Delete an object.
    Delete,
}

/// Options of a write.
#[derive(Debug, Clone, Default)]
pub(crate) struct Write {
    /// Check everything on the server, store nothing.
    pub(crate) dry_run: bool,
    /// The name that owns the written fields in `managedFields`.
    pub(crate) field_manager: Option<String>,
    /// `Strict`, `Warn` or `Ignore`: what to do with unknown fields.
    pub(crate) field_validation: Option<&'static str>,
    /// Take fields over from other managers (server-side apply only).
    pub(crate) force: bool,
}

impl Write {
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if self.dry_run {
            query.push(("dryRun", "All".to_owned()));
        }
        if let Some(manager) = &self.field_manager {
            query.push(("fieldManager", manager.clone()));
        }
        if let Some(validation) = self.field_validation {
            query.push(("fieldValidation", validation.to_owned()));
        }
        if self.force {
            query.push(("force", "true".to_owned()));
        }
        query
    }
}

/// One request on one kind.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    kind: &'a Kind,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    method: Method,
    query: Vec<(&'static str, String)>,
    body: Option<(&'static str, Vec<u8>)>,
    table: bool,
}

impl<'a> Request<'a> {
    /// A request on a collection (`name` is `None`) or on one object.
    pub(crate) fn new(
        method: Method,
        kind: &'a Kind,
        namespace: Option<&'a str>,
        name: Option<&'a str>,
    ) -> Self {
        Self {
            kind,
            namespace,
            name,
            method,
            query: Vec::new(),
            body: None,
            table: false,
        }
    }

    /// Adds a query parameter.
    pub(crate) fn query(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.query.push((key, value.into()));
        self
    }

    /// Asks for the server's table instead of objects.
    pub(crate) fn for_table(mut self) -> Self {
        self.table = true;
        self
    }

    /// Adds a body and the options of a write.
    pub(crate) fn body(mut self, content_type: &'static str, body: &Value, write: &Write) -> Self {
        self.body = Some((content_type, body.to_string().into_bytes()));
        self.query.extend(write.query());
        self
    }

    fn into_http(self) -> Result<http::Request<Vec<u8>>, Failure> {
        let mut uri = self.kind.path(self.namespace, self.name);
        for (i, (key, value)) in self.query.iter().enumerate() {
            uri.push(if i == 0 { '?' } else { '&' });
            uri.push_str(key);
            uri.push('=');
            uri.push_str(&escape(value));
        }
        let method = match self.method {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
            Method::Put => http::Method::PUT,
            Method::Patch => http::Method::PATCH,
            Method::Delete => http::Method::DELETE,
        };
        let mut request = http::Request::builder().method(method).uri(&uri);
        request = request.header(
            ACCEPT,
            if self.table {
                TABLE
            } else {
                "application/json"
            },
        );
        let body = match self.body {
            Some((content_type, bytes)) => {
                request = request.header(CONTENT_TYPE, content_type);
                bytes
            }
            None => Vec::new(),
        };
        request
            .body(body)
            .map_err(|e| Failure::new(format!("cannot form the request {uri}"), e))
    }
}

/// Percent-encodes everything that has a meaning of its own in a query string.
fn escape(value: &str) -> String {
    value
        .bytes()
        .fold(String::with_capacity(value.len()), |mut out, b| {
            if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
                out.push(b as char);
            } else {
                out.push_str(&format!("%{b:02X}"));
            }
            out
        })
}

impl Api {
    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(&self, request: Request<'_>) -> Result<Value, Failure> {
        let what = format!("{:?} {}", request.method, request.kind.plural).to_lowercase();
        let http = request.into_http()?;
        tokio::time::timeout(self.timeout, self.client.request::<Value>(http))
            .await
            .map_err(|_| timed_out(&what, self.timeout))?
            .map_err(Failure::from)
    }

    /// Sends a watch request; each item is one event as the server wrote it.
    pub(crate) async fn watch(
        &self,
        request: Request<'_>,
    ) -> Result<impl Stream<Item = Result<Value, Failure>> + use<>, Failure> {
        let stream = self.client.request_stream(request.into_http()?).await?;
        Ok(stream.lines().map(|line| {
            let line = line.map_err(|e| Failure::new("the watch ended", e))?;
            serde_json::from_str(&line)
                .map_err(|e| Failure::new("the server sent an event that is not JSON", e))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_escaped_in_the_query() {
        assert_eq!(
            escape("rack in (a,b),x!=y"),
            "rack%20in%20%28a%2Cb%29%2Cx%21%3Dy"
        );
    }
}
