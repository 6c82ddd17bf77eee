//! `GET /v1/bgp/routes`.

use std::net::IpAddr;

use ipnet::IpNet;
use margay_bgp::{Families, Family, RouteQuery, RouteSource, RouteView};
use margay_crds::admin::{Route, RouteList};
use serde::Deserialize;

use super::view::{BgpView, View};

/// Query parameters; all given ones must hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Parameters {
    prefix: Option<String>,
    longer: Option<bool>,
    #[serde(rename = "for")]
    covering: Option<String>,
    peer: Option<String>,
    out: Option<String>,
    family: Option<String>,
}

/// The paths asked for, by prefix, best first.
///
/// # Errors
/// A parameter that does not parse, or no running speaker.
pub(crate) async fn list(view: &View, parameters: &Parameters) -> Result<RouteList, String> {
    of(&view.bgp.load_full(), &view.node, parameters).await
}

/// The same for any running speaker.
///
/// # Errors
/// A parameter that does not parse, or the speaker has stopped.
pub(crate) async fn of(
    bgp: &BgpView,
    node: &str,
    parameters: &Parameters,
) -> Result<RouteList, String> {
    let query = query(parameters)?;
    let routes = match &bgp.handle {
        Some(handle) => handle
            .routes(query)
            .await
            .map_err(|error| error.to_string())?,
        None => Vec::new(),
    };
    let mut routes: Vec<Route> = routes
        .into_iter()
        .map(|route| convert(route, bgp))
        .collect();
    routes.sort_by(|a, b| {
        (prefix_key(&a.prefix), !a.best, a.from).cmp(&(prefix_key(&b.prefix), !b.best, b.from))
    });
    Ok(RouteList {
        node: node.to_owned(),
        routes,
    })
}

fn prefix_key(text: &str) -> Option<IpNet> {
    text.parse().ok()
}

fn query(parameters: &Parameters) -> Result<RouteQuery, String> {
    fn parse<T: std::str::FromStr>(name: &str, text: Option<&String>) -> Result<Option<T>, String> {
        text.map(|text| {
            text.parse()
                .map_err(|_| format!("{name}={text} cannot be read"))
        })
        .transpose()
    }
    let families = match parameters.family.as_deref() {
        None => Families::NONE,
        Some("ipv4") => Families::IPV4,
        Some("ipv6") => Families::IPV6,
        Some(other) => return Err(format!("family={other} is neither ipv4 nor ipv6")),
    };
    Ok(RouteQuery {
        prefix: parse("prefix", parameters.prefix.as_ref())?,
        longer: parameters.longer.unwrap_or(false),
        covering: parse("for", parameters.covering.as_ref())?,
        peer: parse::<IpAddr>("peer", parameters.peer.as_ref())?,
        families,
        advertised_to: parse("out", parameters.out.as_ref())?,
    })
}

fn convert(route: RouteView, bgp: &BgpView) -> Route {
    let (from, from_name, next_hop) = match &route.source {
        RouteSource::Local => (None, "local".to_owned(), None),
        RouteSource::Peer { peer, .. } => (
            Some(peer.address),
            bgp.peer_name(peer.address),
            Some(route.next_hop),
        ),
    };
    let mut communities: Vec<String> = route.communities.iter().map(ToString::to_string).collect();
    communities.extend(route.large_communities.iter().map(ToString::to_string));
    let fib = match (&route.source, route.best, Family::of_prefix(&route.prefix)) {
        (RouteSource::Local, ..) => Some("local".to_owned()),
        (RouteSource::Peer { .. }, true, _) => {
            let metric = margay_felix::calc::sessions::MAX_METRIC.saturating_sub(route.local_pref);
            Some(format!("metric {metric}"))
        }
        _ => None,
    };
    Route {
        prefix: route.prefix.to_string(),
        next_hop,
        from,
        from_name,
        as_path: route.as_path,
        local_pref: Some(route.local_pref),
        med: route.med,
        communities,
        best: route.best,
        multipath: route.multipath,
        stale: route.stale,
        since: None,
        fib,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_do_not_parse_are_named() {
        let with = |prefix: &str, family: &str| Parameters {
            prefix: Some(prefix.into()),
            family: Some(family.into()),
            ..Parameters::default()
        };
        assert!(query(&with("10.0.0.0/8", "ipv4")).is_ok());
        assert!(
            query(&with("ten", "ipv4"))
                .expect_err("prefix")
                .contains("prefix=ten")
        );
        assert!(
            query(&with("10.0.0.0/8", "ipx"))
                .expect_err("family")
                .contains("ipx")
        );
    }
}
