//! Reading a table back.

use super::expr::{Expr, Verdict};
use super::expr_wire::{NFTA_DATA_VALUE, NFTA_DATA_VERDICT, NFTA_LIST_ELEM};
use super::message as m;
use super::model::{
    BaseChain, Chain, Data, Element, Family, Hook, KeyType, Rule, Set, Table, TableFlags,
};
use super::socket::NftSocket;
use super::{FIXED, nfgenmsg};
use crate::kernel::KernelError;
use crate::kernel::netlink::{Attr, Encoder, Message};

/// How often a table that changes while it is read is read again.
const ATTEMPTS: usize = 10;

impl NftSocket {
    /// The content and flags of a table; `None` when there is no such table. Also the generation it belongs to.
    ///
    /// # Errors
    /// [`KernelError::Interrupted`] when the ruleset changed each time while it was read.
    #[allow(clippy::type_complexity)]
    pub fn read(
        &mut self,
        family: Family,
        name: &str,
    ) -> Result<(Option<(Table, TableFlags)>, u32), KernelError> {
        for _ in 0..ATTEMPTS {
            let before = self.generation()?;
            match self.read_once(family, name) {
                Ok(found) if self.generation()? == before => return Ok((found, before)),
                // Something disappeared between two questions, or the ruleset is another by now.
                Ok(_) => {}
                Err(e) if e.is(libc::ENOENT) || e == KernelError::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Err(KernelError::Interrupted)
    }

    fn read_once(
        &mut self,
        family: Family,
        name: &str,
    ) -> Result<Option<(Table, TableFlags)>, KernelError> {
        let fixed = nfgenmsg(family.number());
        let mut flags = None;
        let get = Encoder::single(m::GETTABLE, 0, &fixed, |e| e.string(m::TABLE_NAME, name));
        let answer = self.socket.query(get, |message| {
            if message.kind == m::NEWTABLE {
                let bits = message
                    .attrs(FIXED)
                    .find(m::TABLE_FLAGS)
                    .and_then(|a| a.be32());
                flags = Some(TableFlags::from_bits(bits.unwrap_or(0)));
            }
        });
        match answer {
            Ok(()) => {}
            Err(e) if e.is(libc::ENOENT) => return Ok(None),
            Err(e) => return Err(e),
        }
        let Some(flags) = flags else { return Ok(None) };
        let mut table = Table::new(family, name);

        let chains = Encoder::single(m::GETCHAIN, 0, &fixed, |_| {});
        let found: Vec<(String, Chain)> =
            self.socket.dump(&chains, |found: &mut Vec<_>, message| {
                found.extend(decode_chain(message, name));
            })?;
        table.chains.extend(found);

        let rules = Encoder::single(m::GETRULE, 0, &fixed, |e| e.string(m::RULE_TABLE, name));
        let found: Vec<(String, Rule)> =
            self.socket.dump(&rules, |found: &mut Vec<_>, message| {
                found.extend(decode_rule(message, name));
            })?;
        for (chain, rule) in found {
            table.chains.entry(chain).or_default().rules.push(rule);
        }

        let sets = Encoder::single(m::GETSET, 0, &fixed, |e| e.string(m::SET_TABLE, name));
        let found: Vec<(String, Set)> =
            self.socket.dump(&sets, |found: &mut Vec<_>, message| {
                found.extend(decode_set(message, name));
            })?;
        for (set_name, mut set) in found {
            let elements = Encoder::single(m::GETSETELEM, 0, &fixed, |e| {
                e.string(m::ELEMENTS_TABLE, name);
                e.string(m::ELEMENTS_SET, &set_name);
            });
            let found: Vec<Element> =
                self.socket.dump(&elements, |found: &mut Vec<_>, message| {
                    found.extend(decode_elements(message));
                })?;
            set.elements.extend(found);
            table.sets.insert(set_name, set);
        }
        Ok(Some((table, flags)))
    }
}

fn decode_chain(message: &Message<'_>, table: &str) -> Option<(String, Chain)> {
    let attrs = message.attrs(FIXED);
    if message.kind != m::NEWCHAIN || attrs.find(m::CHAIN_TABLE)?.text() != table {
        return None;
    }
    let base = attrs.find(m::CHAIN_HOOK).and_then(|hook| {
        Some(BaseChain {
            kind: attrs.find(m::CHAIN_TYPE)?.text(),
            hook: Hook::from_number(hook.nested().find(m::HOOK_NUMBER)?.be32()?)?,
            priority: hook.nested().find(m::HOOK_PRIORITY)?.be32()? as i32,
        })
    });
    Some((
        attrs.find(m::CHAIN_NAME)?.text(),
        Chain {
            base,
            rules: Vec::new(),
        },
    ))
}

fn decode_rule(message: &Message<'_>, table: &str) -> Option<(String, Rule)> {
    let attrs = message.attrs(FIXED);
    if message.kind != m::NEWRULE || attrs.find(m::RULE_TABLE)?.text() != table {
        return None;
    }
    let list = attrs.find(m::RULE_EXPRESSIONS);
    let exprs = list
        .into_iter()
        .flat_map(|l| l.nested().collect::<Vec<_>>())
        .filter_map(|e| Expr::decode(&e))
        .collect();
    let comment = attrs
        .find(m::RULE_USERDATA)
        .and_then(|a| comment(&a))
        .unwrap_or_default();
    Some((attrs.find(m::RULE_CHAIN)?.text(), Rule { exprs, comment }))
}

/// User data is a run of (type, length, value); type 0 is the comment.
fn comment(userdata: &Attr<'_>) -> Option<String> {
    let mut rest = userdata.data;
    while let [kind, length, tail @ ..] = rest {
        let value = tail.get(..usize::from(*length))?;
        if *kind == 0 {
            return Some(
                Attr {
                    kind: 0,
                    data: value,
                }
                .text(),
            );
        }
        rest = &tail[usize::from(*length)..];
    }
    None
}

fn decode_set(message: &Message<'_>, table: &str) -> Option<(String, Set)> {
    let attrs = message.attrs(FIXED);
    if message.kind != m::NEWSET || attrs.find(m::SET_TABLE)?.text() != table {
        return None;
    }
    let number = |kind| attrs.find(kind).and_then(|a| a.be32());
    let flags = number(m::SET_FLAGS).unwrap_or(0);
    let key = KeyType {
        number: number(m::SET_KEY_TYPE)?,
        length: number(m::SET_KEY_LENGTH)?,
    };
    let data = (flags & m::SET_FLAG_MAP != 0).then(|| {
        let number_of_type = number(m::SET_DATA_TYPE).unwrap_or(0);
        if number_of_type == KeyType::VERDICT.number {
            KeyType::VERDICT
        } else {
            KeyType {
                number: number_of_type,
                length: number(m::SET_DATA_LENGTH).unwrap_or(0),
            }
        }
    });
    let interval = flags & m::SET_FLAG_INTERVAL != 0;
    let set = Set {
        key,
        data,
        interval,
        elements: Default::default(),
    };
    Some((attrs.find(m::SET_NAME)?.text(), set))
}

fn decode_elements(message: &Message<'_>) -> Vec<Element> {
    if message.kind != m::NEWSETELEM {
        return Vec::new();
    }
    let list = message.attrs(FIXED).find(m::ELEMENTS_LIST);
    let elements = list
        .into_iter()
        .flat_map(|l| l.nested().collect::<Vec<_>>());
    elements
        .filter(|e| e.kind == NFTA_LIST_ELEM)
        .filter_map(|e| decode_element(&e))
        .collect()
}

fn decode_element(element: &Attr<'_>) -> Option<Element> {
    let attrs = element.nested();
    let key = attrs
        .find(m::ELEMENT_KEY)?
        .nested()
        .find(NFTA_DATA_VALUE)?
        .data
        .to_vec();
    let range_end = attrs
        .find(m::ELEMENT_FLAGS)
        .and_then(|a| a.be32())
        .unwrap_or(0)
        & 1
        != 0;
    let data = attrs
        .find(m::ELEMENT_DATA)
        .and_then(|d| match d.nested().find(NFTA_DATA_VERDICT) {
            Some(verdict) => Verdict::decode(verdict.nested()).map(Data::Verdict),
            None => d
                .nested()
                .find(NFTA_DATA_VALUE)
                .map(|v| Data::Value(v.data.to_vec())),
        });
    Some(Element {
        key,
        range_end,
        data,
    })
}
