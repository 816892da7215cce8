//! Revisions: immutable, numbered, every image pinned.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manifest::{ServiceName, ServiceSpec, SharedNetwork};

use super::ids::{Digest, Incarnation, RevisionNumber};
use super::record::Record;

/// An immutable copy of an app's spec with every image pinned to a digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// Its number; unique within the incarnation.
    pub number: RevisionNumber,
    /// The incarnation it belongs to.
    pub incarnation: Incarnation,
    /// `mod_revision` of the manifest it was made from.
    pub source: i64,
    /// When it was made.
    pub created_at: Timestamp,
    /// The app's labels.
    pub labels: BTreeMap<String, String>,
    /// The services, pinned.
    pub services: BTreeMap<ServiceName, PinnedService>,
    /// The services in the order of their deployment.
    pub order: Vec<ServiceName>,
}

/// All that a container of a service is made from. Equal values make equal
/// containers, so equality decides whether a service is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedService {
    /// The spec, the app-wide environment merged in.
    pub spec: ServiceSpec,
    /// Digest of the image that the reference named.
    pub digest: Digest,
    /// The app's shared networks, which its container joins beside the private one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<SharedNetwork>,
}

impl Revision {
    /// The revision of this number.
    pub fn numbered(all: &[Self], number: RevisionNumber) -> Option<&Self> {
        all.iter().find(|revision| revision.number == number)
    }
}

impl Record for Revision {
    const SCHEMA: u32 = 1;
    const KIND: &'static str = "revision";
}
