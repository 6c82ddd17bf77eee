//! Choosing pools for a request.

use std::collections::BTreeMap;

use ipnet::IpNet;
use margay_crds::AllowedUse;

use super::{Pool, Pools};
use crate::cidr::Family;

/// What a pool must suit.
#[derive(Debug, Clone, Copy)]
pub struct PoolRequest<'a> {
    /// Address family.
    pub family: Family,
    /// Pools asked for, by name or CIDR, in order of preference; empty means any.
    pub named: &'a [String],
    /// What the address is for.
    pub usage: &'a AllowedUse,
    /// Name of the node.
    pub node: &'a str,
    /// Labels of the node.
    pub node_labels: &'a BTreeMap<String, String>,
    /// Labels of the namespace of the pod.
    pub namespace_labels: &'a BTreeMap<String, String>,
}

/// Why no pool suits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// A pool asked for does not exist or takes no new addresses.
    #[error("the given pool ({0}) does not exist, or is not enabled")]
    NotUsable(String),
    /// A pool asked for has the other family.
    #[error("the given pool ({pool}) is not an IPv{} pool", .family.digit())]
    Family {
        /// The pool.
        pool: String,
        /// The family wanted.
        family: Family,
    },
    /// There is no usable pool of the family at all.
    #[error("cannot find a qualified ippool")]
    None,
    /// No pool is meant for this node and namespace.
    #[error("no configured Calico pools for node {0}")]
    NoneForNode(String),
    /// No pool may be used for this purpose.
    #[error("cannot find a qualified ippool, no pools match the required use")]
    Use,
}

impl Pools {
    /// The pools a request may use, in order of preference. Pools that are asked for need not select the node or the
    /// namespace and may be manual.
    ///
    /// # Errors
    /// No pool suits.
    pub fn choose(&self, request: &PoolRequest<'_>) -> Result<Vec<&Pool>, ChoiceError> {
        if !self.usable().any(|pool| pool.family() == request.family) {
            // A named pool that is missing is the more helpful answer.
            return Err(match request.named.first() {
                Some(_) => self.resolve(request).err().unwrap_or(ChoiceError::None),
                None => ChoiceError::None,
            });
        }
        let pools = match request.named.is_empty() {
            true => self.matching(request)?,
            false => self.resolve(request)?,
        };
        let suited: Vec<&Pool> = pools
            .into_iter()
            .filter(|pool| pool.allows(request.usage))
            .collect();
        if suited.is_empty() {
            return Err(ChoiceError::Use);
        }
        Ok(suited)
    }

    fn resolve(&self, request: &PoolRequest<'_>) -> Result<Vec<&Pool>, ChoiceError> {
        request
            .named
            .iter()
            .map(|text| self.named(text, request.family))
            .collect()
    }

    /// The pool with this CIDR or name.
    fn named(&self, text: &str, family: Family) -> Result<&Pool, ChoiceError> {
        let pool = match text.parse::<IpNet>() {
            Ok(cidr) if Family::of_net(&cidr) != family => {
                return Err(ChoiceError::Family {
                    pool: text.to_owned(),
                    family,
                });
            }
            Ok(cidr) => self.usable().find(|pool| pool.cidr == cidr),
            Err(_) => self.get(text),
        };
        match pool {
            Some(pool) if pool.family() == family => Ok(pool),
            Some(_) => Err(ChoiceError::Family {
                pool: text.to_owned(),
                family,
            }),
            None => Err(ChoiceError::NotUsable(text.to_owned())),
        }
    }

    fn matching(&self, request: &PoolRequest<'_>) -> Result<Vec<&Pool>, ChoiceError> {
        let pools: Vec<&Pool> = self
            .usable()
            .filter(|pool| pool.family() == request.family && pool.automatic)
            .filter(|pool| pool.node_selector.matches(request.node_labels))
            .filter(|pool| pool.namespace_selector.matches(request.namespace_labels))
            .collect();
        match pools.is_empty() {
            true => Err(ChoiceError::NoneForNode(request.node.to_owned())),
            false => Ok(pools),
        }
    }
}
