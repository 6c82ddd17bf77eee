//! The messages of a transaction.

use super::expr_wire::{NFTA_DATA_VALUE, NFTA_LIST_ELEM};
use super::model::{Chain, Data, Element, Family, KeyType, Rule, Set, TableFlags};
use super::{SUBSYSTEM, nfgenmsg};
use crate::kernel::netlink::Encoder;

pub(super) const NEWTABLE: u16 = SUBSYSTEM;
pub(super) const GETTABLE: u16 = SUBSYSTEM | 1;
const DELTABLE: u16 = SUBSYSTEM | 2;
pub(super) const NEWCHAIN: u16 = SUBSYSTEM | 3;
pub(super) const GETCHAIN: u16 = SUBSYSTEM | 4;
const DELCHAIN: u16 = SUBSYSTEM | 5;
pub(super) const NEWRULE: u16 = SUBSYSTEM | 6;
pub(super) const GETRULE: u16 = SUBSYSTEM | 7;
const DELRULE: u16 = SUBSYSTEM | 8;
pub(super) const NEWSET: u16 = SUBSYSTEM | 9;
pub(super) const GETSET: u16 = SUBSYSTEM | 10;
const DELSET: u16 = SUBSYSTEM | 11;
pub(super) const NEWSETELEM: u16 = SUBSYSTEM | 12;
pub(super) const GETSETELEM: u16 = SUBSYSTEM | 13;
const DELSETELEM: u16 = SUBSYSTEM | 14;
pub(super) const NEWGEN: u16 = SUBSYSTEM | 15;
pub(super) const GETGEN: u16 = SUBSYSTEM | 16;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const BATCH_GENERATION: u16 = 1;

pub(super) const TABLE_NAME: u16 = 1;
pub(super) const TABLE_FLAGS: u16 = 2;
pub(super) const CHAIN_TABLE: u16 = 1;
pub(super) const CHAIN_NAME: u16 = 3;
pub(super) const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
pub(super) const CHAIN_TYPE: u16 = 7;
pub(super) const HOOK_NUMBER: u16 = 1;
pub(super) const HOOK_PRIORITY: u16 = 2;
pub(super) const RULE_TABLE: u16 = 1;
pub(super) const RULE_CHAIN: u16 = 2;
pub(super) const RULE_EXPRESSIONS: u16 = 4;
pub(super) const RULE_USERDATA: u16 = 7;
pub(super) const SET_TABLE: u16 = 1;
pub(super) const SET_NAME: u16 = 2;
pub(super) const SET_FLAGS: u16 = 3;
pub(super) const SET_KEY_TYPE: u16 = 4;
pub(super) const SET_KEY_LENGTH: u16 = 5;
pub(super) const SET_DATA_TYPE: u16 = 6;
pub(super) const SET_DATA_LENGTH: u16 = 7;
const SET_ID: u16 = 10;
pub(super) const SET_FLAG_INTERVAL: u32 = 0x4;
pub(super) const SET_FLAG_MAP: u32 = 0x8;
pub(super) const ELEMENTS_TABLE: u16 = 1;
pub(super) const ELEMENTS_SET: u16 = 2;
pub(super) const ELEMENTS_LIST: u16 = 3;
pub(super) const ELEMENT_KEY: u16 = 1;
pub(super) const ELEMENT_DATA: u16 = 2;
pub(super) const ELEMENT_FLAGS: u16 = 3;
/// Octets of elements per message: the list's length field has 16 bits.
const ELEMENTS_SIZE: usize = 48 << 10;
const ACCEPT: u32 = 1;

/// How the description of a message that makes or adopts a table begins.
pub(super) const TABLE_LABEL: &str = "table ";

/// Messages that the kernel applies all together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    messages: Encoder,
    /// One description per message, for errors.
    labels: Vec<String>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// True when there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Adds the messages of another batch.
    pub fn append(&mut self, other: Self) {
        self.messages.raw(other.messages.bytes());
        self.labels.extend(other.labels);
    }

    /// What the message of an index does.
    pub fn label(&self, index: usize) -> &str {
        self.labels.get(index).map_or("", String::as_str)
    }

    fn push(
        &mut self,
        kind: u16,
        flags: u16,
        family: Family,
        label: String,
        body: impl FnOnce(&mut Encoder),
    ) {
        self.messages
            .message(kind, flags, &nfgenmsg(family.number()), body);
        self.labels.push(label);
    }

    /// Makes a table or adopts the one that is there.
    pub fn table(&mut self, family: Family, name: &str, flags: TableFlags) {
        let label = format!("{TABLE_LABEL}{} {name}", family.name());
        self.push(NEWTABLE, libc::NLM_F_CREATE as u16, family, label, |m| {
            m.string(TABLE_NAME, name);
            m.be32(TABLE_FLAGS, flags.bits());
        });
    }

    /// Deletes a table with all it holds.
    pub fn delete_table(&mut self, family: Family, name: &str) {
        let label = format!("delete table {} {name}", family.name());
        self.push(DELTABLE, 0, family, label, |m| m.string(TABLE_NAME, name));
    }

    /// Makes a chain without rules.
    pub fn chain(&mut self, family: Family, table: &str, name: &str, chain: &Chain) {
        let label = format!("chain {} {table} {name}", family.name());
        self.push(NEWCHAIN, libc::NLM_F_CREATE as u16, family, label, |m| {
            m.string(CHAIN_TABLE, table);
            m.string(CHAIN_NAME, name);
            if let Some(base) = &chain.base {
                m.nest(CHAIN_HOOK, |h| {
                    h.be32(HOOK_NUMBER, base.hook.number());
                    h.be32(HOOK_PRIORITY, base.priority as u32);
                });
                m.be32(CHAIN_POLICY, ACCEPT);
                m.string(CHAIN_TYPE, &base.kind);
            }
        });
    }

    /// Deletes a chain, which must be empty and unused by then.
    pub fn delete_chain(&mut self, family: Family, table: &str, name: &str) {
        let label = format!("delete chain {} {table} {name}", family.name());
        self.push(DELCHAIN, 0, family, label, |m| {
            m.string(CHAIN_TABLE, table);
            m.string(CHAIN_NAME, name);
        });
    }

    /// Removes all rules of a chain.
    pub fn flush_chain(&mut self, family: Family, table: &str, name: &str) {
        let label = format!("flush chain {} {table} {name}", family.name());
        self.push(DELRULE, 0, family, label, |m| {
            m.string(RULE_TABLE, table);
            m.string(RULE_CHAIN, name);
        });
    }

    /// Appends a rule.
    pub fn rule(&mut self, family: Family, table: &str, chain: &str, rule: &Rule) {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_APPEND) as u16;
        let label = format!("rule {} {table} {chain} ({})", family.name(), rule.comment);
        self.push(NEWRULE, flags, family, label, |m| {
            m.string(RULE_TABLE, table);
            m.string(RULE_CHAIN, chain);
            m.nest(RULE_EXPRESSIONS, |list| {
                for expr in &rule.exprs {
                    expr.encode(list);
                }
            });
            if !rule.comment.is_empty() {
                let mut userdata = vec![0, (rule.comment.len() + 1) as u8];
                userdata.extend(rule.comment.as_bytes());
                userdata.push(0);
                m.attr(RULE_USERDATA, &userdata);
            }
        });
    }

    /// Makes a set or map without elements.
    pub fn set(&mut self, family: Family, table: &str, name: &str, set: &Set) {
        let label = format!("set {} {table} {name}", family.name());
        let id = self.labels.len() as u32 + 1;
        self.push(NEWSET, libc::NLM_F_CREATE as u16, family, label, |m| {
            m.string(SET_TABLE, table);
            m.string(SET_NAME, name);
            let mut flags = if set.interval { SET_FLAG_INTERVAL } else { 0 };
            if set.data.is_some() {
                flags |= SET_FLAG_MAP;
            }
            m.be32(SET_FLAGS, flags);
            m.be32(SET_KEY_TYPE, set.key.number);
            m.be32(SET_KEY_LENGTH, set.key.length);
            if let Some(data) = set.data {
                m.be32(SET_DATA_TYPE, data.number);
                if data != KeyType::VERDICT {
                    m.be32(SET_DATA_LENGTH, data.length);
                }
            }
            m.be32(SET_ID, id);
        });
    }

    /// Deletes a set, which must be unused by then.
    pub fn delete_set(&mut self, family: Family, table: &str, name: &str) {
        let label = format!("delete set {} {table} {name}", family.name());
        self.push(DELSET, 0, family, label, |m| {
            m.string(SET_TABLE, table);
            m.string(SET_NAME, name);
        });
    }

    /// Adds elements.
    pub fn add_elements<'a>(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
        elements: impl IntoIterator<Item = &'a Element>,
    ) {
        self.elements(NEWSETELEM, "elements to", family, table, set, elements);
    }

    /// Removes elements.
    pub fn delete_elements<'a>(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
        elements: impl IntoIterator<Item = &'a Element>,
    ) {
        self.elements(DELSETELEM, "elements from", family, table, set, elements);
    }

    fn elements<'a>(
        &mut self,
        kind: u16,
        what: &str,
        family: Family,
        table: &str,
        set: &str,
        elements: impl IntoIterator<Item = &'a Element>,
    ) {
        let flags = if kind == NEWSETELEM {
            libc::NLM_F_CREATE as u16
        } else {
            0
        };
        let mut elements = elements.into_iter().peekable();
        while elements.peek().is_some() {
            let label = format!("{what} set {} {table} {set}", family.name());
            self.push(kind, flags, family, label, |m| {
                m.string(ELEMENTS_TABLE, table);
                m.string(ELEMENTS_SET, set);
                m.nest(ELEMENTS_LIST, |list| {
                    let start = list.len();
                    while list.len() - start < ELEMENTS_SIZE
                        && let Some(element) = elements.next()
                    {
                        list.nest(NFTA_LIST_ELEM, |e| element.encode(e));
                    }
                });
            });
        }
    }

    /// The whole transaction with its frame. `generation`: apply only if this is the ruleset's current generation.
    pub(super) fn framed(&self, generation: Option<u32>) -> Encoder {
        let frame = [0, 0, 0, (SUBSYSTEM >> 8) as u8];
        let mut whole = Encoder::new();
        whole.message(BATCH_BEGIN, 0, &frame, |m| {
            if let Some(generation) = generation {
                m.be32(BATCH_GENERATION, generation);
            }
        });
        whole.raw(self.messages.bytes());
        whole.message(BATCH_END, 0, &frame, |_| {});
        whole
    }
}

impl Element {
    fn encode(&self, m: &mut Encoder) {
        m.nest(ELEMENT_KEY, |k| k.attr(NFTA_DATA_VALUE, &self.key));
        match &self.data {
            Some(Data::Value(value)) => {
                m.nest(ELEMENT_DATA, |d| d.attr(NFTA_DATA_VALUE, value));
            }
            Some(Data::Verdict(verdict)) => m.nest(ELEMENT_DATA, |d| verdict.encode(d)),
            None => {}
        }
        if self.range_end {
            m.be32(ELEMENT_FLAGS, 1);
        }
    }
}
