//! Schemas of served kinds: one compiled form for CRDs (Kubernetes structural schemas) and for core kinds (generated
//! from their Rust types), read by pruning, defaulting, validation, patches and field ownership alike.
//!
//! Compilation is lazy: a server with twenty CRDs starts without looking into one of them.

pub mod check;
mod compile;
pub mod core_kinds;
pub mod defaults;
mod formats;
pub mod prune;

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::status::FieldCause;

/// JSON type a value must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `object`
    Object,
    /// `array`
    Array,
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `boolean`
    Boolean,
}

/// How the elements of a list are identified when writers merge (structured-merge-diff list types).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListKind {
    /// The list is one value.
    #[default]
    Atomic,
    /// Elements are scalars and unique.
    Set,
    /// Elements are objects identified by these keys.
    Map(Vec<String>),
}

/// What an object may hold besides its properties.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Extra {
    /// Nothing: other fields are unknown.
    #[default]
    Unknown,
    /// Anything, kept as it is.
    Anything,
    /// Values of this schema.
    Values(Box<Node>),
}

/// One node of a compiled schema.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Node {
    /// Name of a shared definition this node stands for; everything but `default` is then there.
    pub reference: Option<String>,
    /// Required JSON type; none = any.
    pub kind: Option<Type>,
    /// Integer or string.
    pub int_or_string: bool,
    /// `null` is a value.
    pub nullable: bool,
    /// Known fields.
    pub properties: BTreeMap<String, Node>,
    /// Other fields.
    pub extra: Extra,
    /// Elements of an array.
    pub items: Option<Box<Node>>,
    /// Fields that must be there.
    pub required: Vec<String>,
    /// Value of an absent field.
    pub default: Option<Value>,
    /// Identity of list elements.
    pub list: ListKind,
    /// Single merge key of a strategic merge patch; differs from `list` for ports.
    pub merge_key: Option<String>,
    /// The object is one value to writers.
    pub atomic: bool,
    /// A whole Kubernetes object with apiVersion, kind, metadata.
    pub embedded: bool,
    /// Constraints on values; boxed because most nodes have none.
    pub limits: Option<Box<check::Limits>>,
}

/// A compiled schema: root and shared definitions.
#[derive(Debug, Default)]
pub struct Compiled {
    root: Node,
    definitions: HashMap<String, Node>,
}

impl Compiled {
    /// The node of a whole object.
    pub fn root(&self) -> &Node {
        self.resolve(&self.root)
    }

    /// Follows a reference.
    pub fn resolve<'a>(&'a self, node: &'a Node) -> &'a Node {
        let mut node = node;
        while let Some(name) = &node.reference {
            match self.definitions.get(name) {
                Some(target) => node = target,
                None => break,
            }
        }
        node
    }

    /// The schema of field `name` of an object.
    pub fn field<'a>(&'a self, node: &'a Node, name: &str) -> Option<&'a Node> {
        let node = self.resolve(node);
        match (node.properties.get(name), &node.extra) {
            (Some(property), _) => Some(self.resolve(property)),
            (None, Extra::Values(values)) => Some(self.resolve(values)),
            _ => None,
        }
    }

    /// The schema of the elements of an array.
    pub fn element<'a>(&'a self, node: &'a Node) -> Option<&'a Node> {
        self.resolve(node)
            .items
            .as_deref()
            .map(|items| self.resolve(items))
    }
}

#[derive(Debug)]
enum Source {
    /// A CRD version's `openAPIV3Schema`.
    Custom(Box<Value>),
    /// Generates a document from a Rust type.
    Core(core_kinds::Generate),
}

/// The schema of one served kind.
#[derive(Debug)]
pub struct Schema {
    source: Source,
    group: String,
    version: String,
    kind: String,
    compiled: OnceLock<Compiled>,
    cel: OnceLock<Option<CelRules>>,
}

struct CelRules(kube_cel::CompiledSchema);

impl std::fmt::Debug for CelRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CelRules")
    }
}

/// Definitions of an OpenAPI document by name.
pub type Definitions = Map<String, Value>;

impl Schema {
    /// Schema of a CRD version.
    pub fn custom(openapi: Value, group: &str, version: &str, kind: &str) -> Self {
        Self::new(Source::Custom(Box::new(openapi)), group, version, kind)
    }

    /// Schema of a built-in kind.
    pub fn core(generate: core_kinds::Generate, group: &str, version: &str, kind: &str) -> Self {
        Self::new(Source::Core(generate), group, version, kind)
    }

    fn new(source: Source, group: &str, version: &str, kind: &str) -> Self {
        Self {
            source,
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            compiled: OnceLock::new(),
            cel: OnceLock::new(),
        }
    }

    /// The compiled form.
    pub fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| {
            let (name, definitions) = self.definitions();
            compile::compile(
                &name,
                &definitions,
                matches!(self.source, Source::Custom(_)),
            )
        })
    }

    /// Name of the kind's own definition and all definitions it needs, as OpenAPI v3.
    pub fn definitions(&self) -> (String, Definitions) {
        let gvk = json!([{"group": self.group, "version": self.version, "kind": self.kind}]);
        let (name, mut definitions) = match &self.source {
            Source::Core(generate) => core_kinds::definitions(*generate),
            Source::Custom(raw) => {
                let mut labels: Vec<&str> = self.group.split('.').collect();
                labels.reverse();
                let name = format!("{}.{}.{}", labels.join("."), self.version, self.kind);
                let (_, mut definitions) =
                    core_kinds::definitions(core_kinds::generate_object_meta);
                definitions.insert(name.clone(), with_type_meta((**raw).clone()));
                (name, definitions)
            }
        };
        if let Some(own) = definitions.get_mut(&name).and_then(Value::as_object_mut) {
            own.insert("x-kubernetes-group-version-kind".into(), gvk);
        }
        (name, definitions)
    }

    /// A custom kind's schema as written in its CRD.
    pub fn raw(&self) -> Option<&Value> {
        match &self.source {
            Source::Custom(raw) => Some(raw),
            Source::Core(_) => None,
        }
    }

    /// Runs the kind's CEL rules.
    pub fn cel(&self, object: &Value, old: Option<&Value>) -> Vec<FieldCause> {
        let Source::Custom(raw) = &self.source else {
            return Vec::new();
        };
        let rules = self
            .cel
            .get_or_init(|| mentions_rules(raw).then(|| CelRules(kube_cel::compile_schema(raw))));
        let Some(CelRules(rules)) = rules else {
            return Vec::new();
        };
        let result = kube_cel::Validator::new().validate_compiled(rules, object, old);
        let errors = result
            .err()
            .map(kube_cel::ValidationErrors::into_vec)
            .unwrap_or_default();
        errors
            .into_iter()
            .map(|e| check::cel_cause(object, &e))
            .collect()
    }
}

fn mentions_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            map.contains_key("x-kubernetes-validations") || map.values().any(mentions_rules)
        }
        Value::Array(list) => list.iter().any(mentions_rules),
        _ => false,
    }
}

/// Custom kinds get what every object has: apiVersion, kind and metadata.
fn with_type_meta(mut schema: Value) -> Value {
    if !schema.is_object() {
        schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    let (_, own) = core_kinds::definitions(core_kinds::generate_object_meta);
    let (api_version, kind) = core_kinds::type_meta();
    let metadata = json!({
        "description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        "allOf": [{"$ref": format!("{}{}", core_kinds::REF, core_kinds::OBJECT_META)}],
    });
    debug_assert!(own.contains_key(core_kinds::OBJECT_META));
    if let Some(map) = schema.as_object_mut() {
        let properties = map.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert("apiVersion".into(), api_version);
            properties.insert("kind".into(), kind);
            properties.insert("metadata".into(), metadata);
        }
    }
    schema
}

/// A schema under test.
#[cfg(test)]
pub(crate) fn parse(openapi: Value) -> Schema {
    Schema::custom(openapi, "example.org", "v1", "Thing")
}
