//! `events.k8s.io/v1` and `v1` Events are one storage; this file renames their fields
//! (Kubernetes API reference, "Event v1 events.k8s.io": the `deprecated*` fields exist for this round trip).

use serde_json::Value;

/// `v1` name, `events.k8s.io/v1` name.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
];

/// `v1` to `events.k8s.io/v1`.
pub fn to_events_v1(object: &mut Value) {
    rename(object, "events.k8s.io/v1", |(core, events)| (core, events));
}

/// `events.k8s.io/v1` to `v1`.
pub fn to_core_v1(object: &mut Value) {
    rename(object, "v1", |(core, events)| (events, core));
}

fn rename(
    object: &mut Value,
    api_version: &str,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    for pair in RENAMED {
        let (from, to) = direction(pair);
        if let Some(value) = map.shift_remove(from) {
            map.insert(to.into(), value);
        }
    }
    map.insert("apiVersion".into(), api_version.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn round_trip_keeps_everything() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "a"},
            "message": "m", "reason": "R", "source": {"component": "c"}, "count": 2});
        let mut event = core.clone();
        to_events_v1(&mut event);
        assert_eq!(event["note"], "m");
        assert_eq!(event["regarding"]["name"], "a");
        assert_eq!(event["deprecatedCount"], 2);
        to_core_v1(&mut event);
        assert_eq!(event, core);
    }
}
