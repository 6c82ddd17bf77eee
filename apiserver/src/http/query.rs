//! Query parameters (Kubernetes: ListOptions, CreateOptions, UpdateOptions, PatchOptions, DeleteOptions).

use super::target::percent_decode;
use crate::admission::FieldValidation;
use crate::status::ApiError;

/// All parameters a request may carry; each verb reads its own.
#[derive(Debug, Clone, Default)]
pub(super) struct Query {
    pub(super) watch: bool,
    pub(super) label_selector: String,
    pub(super) field_selector: String,
    pub(super) limit: usize,
    pub(super) continuation: String,
    /// Empty = not given.
    pub(super) resource_version: String,
    pub(super) resource_version_match: String,
    pub(super) send_initial_events: bool,
    pub(super) allow_bookmarks: bool,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) dry_run: bool,
    pub(super) field_manager: String,
    pub(super) field_validation: FieldValidation,
    pub(super) force: bool,
    pub(super) propagation_policy: String,
    pub(super) grace_period: Option<i64>,
    pub(super) include_object: String,
}

impl Query {
    /// Parses a query string; unknown parameters are ignored.
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = percent_decode(&value.replace('+', " "));
            let value = decoded
                .ok_or_else(|| ApiError::bad_request(format!("parameter {name} is not UTF-8")))?;
            query.set(name, value)?;
        }
        query.check()?;
        Ok(query)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), ApiError> {
        let flag = |value: &str| matches!(value, "true" | "1" | "");
        let bad = |what: &str| ApiError::bad_request(format!("parameter {name}: {what}"));
        match name {
            "watch" => self.watch = flag(&value),
            "labelSelector" => self.label_selector = value,
            "fieldSelector" => self.field_selector = value,
            "limit" => self.limit = value.parse().map_err(|_| bad("must be a number"))?,
            "continue" => self.continuation = value,
            "resourceVersion" => self.resource_version = value,
            "resourceVersionMatch" => self.resource_version_match = value,
            "sendInitialEvents" => self.send_initial_events = flag(&value),
            "allowWatchBookmarks" => self.allow_bookmarks = flag(&value),
            "timeoutSeconds" => {
                self.timeout_seconds = Some(value.parse().map_err(|_| bad("must be a number"))?);
            }
            "dryRun" => match value.as_str() {
                "All" => self.dry_run = true,
                "" => {}
                other => return Err(bad(&format!("unsupported value \"{other}\" (All)"))),
            },
            "fieldManager" => self.field_manager = value,
            "fieldValidation" => {
                self.field_validation = match value.as_str() {
                    "Strict" => FieldValidation::Strict,
                    "Warn" | "" => FieldValidation::Warn,
                    "Ignore" => FieldValidation::Ignore,
                    _ => return Err(bad("must be Strict, Warn or Ignore")),
                };
            }
            "force" => self.force = flag(&value),
            "propagationPolicy" => self.propagation_policy = value,
            "gracePeriodSeconds" => {
                self.grace_period = Some(value.parse().map_err(|_| bad("must be a number"))?);
            }
            "includeObject" => self.include_object = value,
            _ => {}
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ApiError> {
        let version = &self.resource_version;
        if !version.is_empty() && version.parse::<u64>().is_err() {
            return Err(ApiError::bad_request(format!(
                "Invalid value: \"{version}\": resourceVersion"
            )));
        }
        if self.field_manager.len() > 128 {
            return Err(ApiError::bad_request(
                "fieldManager may not be longer than 128 bytes",
            ));
        }
        if self.send_initial_events && !self.watch {
            return Err(ApiError::bad_request(
                "sendInitialEvents is forbidden for list",
            ));
        }
        match self.resource_version_match.as_str() {
            "" => Ok(()),
            "NotOlderThan" => Ok(()),
            "Exact" if !self.watch && !matches!(version.as_str(), "" | "0") => Ok(()),
            other => Err(ApiError::bad_request(format!(
                "resourceVersionMatch {other} is not supported with this resourceVersion and verb"
            ))),
        }
    }

    /// The revision given, if any.
    pub(super) fn revision(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_checked() {
        let q =
            Query::parse("labelSelector=a%3Db%2Cc&watch=true&limit=5&foo=1&dryRun=All").unwrap();
        assert_eq!(q.label_selector, "a=b,c");
        assert!(q.watch && q.dry_run && q.limit == 5);
        for bad in [
            "limit=x",
            "dryRun=Some",
            "fieldValidation=x",
            "resourceVersion=abc",
            "resourceVersionMatch=Exact",
            "sendInitialEvents=true",
        ] {
            assert_eq!(Query::parse(bad).unwrap_err().code, 400, "{bad}");
        }
    }
}
