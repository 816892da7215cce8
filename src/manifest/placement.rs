//! Where an app runs: on which host, and in which shared networks.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use super::names::{NetworkName, NodeName};

/// A network shared between apps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SharedNetwork {
    /// The network's name.
    pub name: NetworkName,
    /// Without a way out of the host.
    #[serde(default)]
    pub internal: bool,
}

/// Which host runs the app: one by name, or any that carries the labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RawPlacement", into = "RawPlacement")]
pub enum Placement {
    /// Exactly this host.
    Node(NodeName),
    /// A host that carries all of these labels.
    Selector(BTreeMap<String, String>),
}

/// As it is written. An enum would be a tag in YAML.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(transform = exactly_one_placement)]
struct RawPlacement {
    /// Exactly this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<NodeName>,
    /// A host that carries all of these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    selector: Option<BTreeMap<String, String>>,
}

fn exactly_one_placement(schema: &mut Schema) {
    let choices = ["node", "selector"].map(|word| serde_json::json!({ "required": [word] }));
    schema.insert("oneOf".to_owned(), choices.to_vec().into());
}

impl TryFrom<RawPlacement> for Placement {
    type Error = &'static str;

    fn try_from(raw: RawPlacement) -> Result<Self, &'static str> {
        match (raw.node, raw.selector) {
            (Some(node), None) => Ok(Self::Node(node)),
            (None, Some(selector)) => Ok(Self::Selector(selector)),
            (None, None) | (Some(_), Some(_)) => Err("say exactly one of node or selector"),
        }
    }
}

impl From<Placement> for RawPlacement {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::Node(node) => Self {
                node: Some(node),
                selector: None,
            },
            Placement::Selector(selector) => Self {
                node: None,
                selector: Some(selector),
            },
        }
    }
}
