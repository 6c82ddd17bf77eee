//! Conversion between result layouts.

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{AddResult, Dns, IpConfig, Route};
use crate::error::{CniError, Code};
use crate::version::{CniVersion, Shape};

impl AddResult {
    /// The result as printed for a version.
    ///
    /// # Errors
    /// Code 999 when 0.2.0 is asked for and there is no address to put into it.
    pub fn to_json(&self, version: CniVersion) -> Result<Value, CniError> {
        let mut document = match version.shape() {
            Shape::Ips => to_object(self),
            Shape::VersionedIps => self.versioned(),
            Shape::Blocks => self.blocks()?,
        };
        document.insert("cniVersion".to_owned(), version.as_str().into());
        Ok(Value::Object(document))
    }

    fn versioned(&self) -> Map<String, Value> {
        let mut result = self.clone();
        for interface in &mut result.interfaces {
            interface.mtu = None;
            interface.socket_path = None;
            interface.pci_id = None;
        }
        let mut document = to_object(&result);
        if let Some(Value::Array(ips)) = document.get_mut("ips") {
            for (value, ip) in ips.iter_mut().zip(&self.ips) {
                value["version"] = family(&ip.address).into();
            }
        }
        document.entry("dns").or_insert_with(|| json!({}));
        document
    }

    fn blocks(&self) -> Result<Map<String, Value>, CniError> {
        let mut document = Map::new();
        for (key, digit) in [("ip4", "4"), ("ip6", "6")] {
            let Some(ip) = self.ips.iter().find(|ip| family(&ip.address) == digit) else {
                continue;
            };
            let routes: Vec<Value> = self
                .routes
                .iter()
                .filter(|route| family(&route.dst) == digit)
                .map(|route| {
                    to_object(&Route {
                        gw: route.gw,
                        ..Route::to(route.dst)
                    })
                    .into()
                })
                .collect();
            let mut block = Map::new();
            block.insert("ip".to_owned(), ip.address.to_string().into());
            if let Some(gateway) = ip.gateway {
                block.insert("gateway".to_owned(), gateway.to_string().into());
            }
            if !routes.is_empty() {
                block.insert("routes".to_owned(), routes.into());
            }
            document.insert(key.to_owned(), block.into());
        }
        if document.is_empty() {
            return Err(CniError::new(
                Code::INTERNAL,
                "cannot convert: no valid IP addresses",
            ));
        }
        document.insert("dns".to_owned(), to_object(&self.dns).into());
        Ok(document)
    }

    /// Reads a result of any supported version; also `CNIVersion`, as old runtimes wrote it.
    ///
    /// # Errors
    /// Code 6 when it is not a result, code 1 when its version is unknown.
    pub fn from_json(value: &Value) -> Result<AddResult, CniError> {
        let version = value.get("cniVersion").or_else(|| value.get("CNIVersion"));
        let version = CniVersion::of_config(version.and_then(Value::as_str))?;
        let decode = |error: serde_json::Error| {
            CniError::new(Code::DECODE, "cannot read the result").with_details(error.to_string())
        };
        if version.shape() != Shape::Blocks {
            return AddResult::deserialize(value).map_err(decode);
        }
        let blocks = Blocks::deserialize(value).map_err(decode)?;
        let mut result = AddResult {
            dns: blocks.dns,
            ..AddResult::default()
        };
        for block in [blocks.ip4, blocks.ip6].into_iter().flatten() {
            result.ips.push(IpConfig {
                interface: None,
                address: block.ip,
                gateway: block.gateway,
            });
            result.routes.extend(block.routes);
        }
        Ok(result)
    }
}

#[derive(Deserialize)]
struct Blocks {
    ip4: Option<Block>,
    ip6: Option<Block>,
    #[serde(default)]
    dns: Dns,
}

#[derive(Deserialize)]
struct Block {
    ip: IpNet,
    gateway: Option<std::net::IpAddr>,
    #[serde(default)]
    routes: Vec<Route>,
}

fn family(net: &IpNet) -> &'static str {
    match net {
        IpNet::V4(_) => "4",
        IpNet::V6(_) => "6",
    }
}

fn to_object(value: &impl serde::Serialize) -> Map<String, Value> {
    // The result types are structs with string keys, which always become objects.
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Interface;
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("prefix")
    }

    fn sample() -> AddResult {
        AddResult {
            interfaces: vec![
                Interface {
                    name: "cali1".into(),
                    ..Interface::default()
                },
                Interface {
                    name: "eth0".into(),
                    mac: Some("02:00:00:00:00:01".into()),
                    mtu: Some(1450),
                    sandbox: Some("/run/netns/p1".into()),
                    ..Interface::default()
                },
            ],
            ips: vec![
                IpConfig {
                    interface: Some(1),
                    address: net("10.65.0.2/32"),
                    gateway: None,
                },
                IpConfig {
                    interface: Some(0),
                    address: net("fd00::2/128"),
                    gateway: None,
                },
            ],
            routes: vec![
                Route::to(net("10.65.0.2/32")),
                Route {
                    table: Some(0),
                    ..Route::to(net("fd00::2/128"))
                },
            ],
            dns: Dns::default(),
        }
    }

    #[test]
    fn newest_layout_keeps_everything() {
        let text = sample().to_json(CniVersion::V1_0_0).expect("converted");
        assert_eq!(
            text,
            json!({"cniVersion":"1.0.0",
                "interfaces":[{"name":"cali1"},
                    {"name":"eth0","mac":"02:00:00:00:00:01","mtu":1450,"sandbox":"/run/netns/p1"}],
                "ips":[{"interface":1,"address":"10.65.0.2/32"},{"interface":0,"address":"fd00::2/128"}],
                "routes":[{"dst":"10.65.0.2/32"},{"dst":"fd00::2/128","table":0}]})
        );
    }

    #[test]
    fn middle_layout_names_the_family_and_drops_mtu() {
        let text = sample().to_json(CniVersion::V0_4_0).expect("converted");
        assert_eq!(
            text["ips"][0],
            json!({"interface":1,"address":"10.65.0.2/32","version":"4"})
        );
        assert_eq!(text["ips"][1]["version"], "6");
        assert_eq!(text["interfaces"][1].get("mtu"), None);
        assert_eq!(text["dns"], json!({}));
    }

    #[test]
    fn oldest_layout_has_one_address_per_family() {
        let mut result = sample();
        result.ips.push(IpConfig {
            interface: None,
            address: net("10.65.0.3/32"),
            gateway: None,
        });
        let text = result.to_json(CniVersion::V0_2_0).expect("converted");
        assert_eq!(
            text,
            json!({"cniVersion":"0.2.0",
                "ip4":{"ip":"10.65.0.2/32","routes":[{"dst":"10.65.0.2/32"}]},
                "ip6":{"ip":"fd00::2/128","routes":[{"dst":"fd00::2/128"}]},"dns":{}})
        );
        let error = AddResult::default()
            .to_json(CniVersion::V0_2_0)
            .expect_err("empty");
        assert_eq!(error.msg, "cannot convert: no valid IP addresses");
    }

    #[test]
    fn every_pair_of_versions_converts() {
        for from in CniVersion::SUPPORTED {
            let text = sample().to_json(from).expect("out");
            let back = AddResult::from_json(&text).expect("in");
            assert_eq!(back.ips.len(), 2);
            for to in CniVersion::SUPPORTED {
                let again = back.to_json(to).expect("converted");
                assert_eq!(again["cniVersion"], to.as_str());
                let addresses = AddResult::from_json(&again).expect("in again");
                assert_eq!(addresses.ips[1].address, net("fd00::2/128"));
                assert_eq!(addresses.routes.len(), 2);
            }
        }
    }

    #[test]
    fn gateways_survive_the_oldest_layout() {
        let text = json!({"CNIVersion":"0.2.0","ip4":{"ip":"10.0.0.5/24","gateway":"10.0.0.1",
            "routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}]}});
        let result = AddResult::from_json(&text).expect("result");
        let again = result.to_json(CniVersion::V0_1_0).expect("converted");
        assert_eq!(again["ip4"], text["ip4"]);
    }

    #[test]
    fn garbage_is_an_error() {
        for text in [
            json!({"cniVersion":"9.0.0"}),
            json!({"cniVersion":"1.0.0","ips":7}),
            json!("x"),
        ] {
            let _ = AddResult::from_json(&text).map(|result| assert!(result.ips.is_empty()));
        }
        assert!(AddResult::from_json(&json!({"cniVersion":"1.0.0","ips":7})).is_err());
    }
}
