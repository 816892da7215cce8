//! How a record becomes the JSON under a key, and back.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A durable record of the controller.
pub trait Record: Serialize + DeserializeOwned {
    /// Layout number of this kind; raised when older readers would misread it.
    const SCHEMA: u32;
    /// What the record is called in messages.
    const KIND: &'static str;
}

/// Why a record can't be read back.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The JSON isn't one, or lacks a field.
    #[error("{kind} record is damaged: {source}; restore the key from a backup of etcd")]
    Damaged {
        /// What the record is called.
        kind: &'static str,
        /// Where it is damaged.
        source: serde_json::Error,
    },
    /// Written by a newer Podherd.
    #[error(
        "{kind} record has schema {found}, this Podherd knows up to {known}: upgrade Podherd on this host"
    )]
    Newer {
        /// What the record is called.
        kind: &'static str,
        /// The record's schema number.
        found: u32,
        /// The newest one known here.
        known: u32,
    },
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    schema: u32,
    #[serde(flatten)]
    body: T,
}

/// The JSON of a record, with its schema number first.
///
/// # Errors
/// Only when a map in it has keys that JSON can't hold, which no record has.
pub fn encode<T: Record>(record: &T) -> Result<Vec<u8>, RecordError> {
    serde_json::to_vec(&Envelope {
        schema: T::SCHEMA,
        body: record,
    })
    .map_err(|source| RecordError::Damaged {
        kind: T::KIND,
        source,
    })
}

/// Reads a record back.
///
/// # Errors
/// When it is damaged or newer than this program.
pub fn decode<T: Record>(bytes: &[u8]) -> Result<T, RecordError> {
    #[derive(Deserialize)]
    struct Header {
        schema: u32,
    }
    let damaged = |source| RecordError::Damaged {
        kind: T::KIND,
        source,
    };
    let header: Header = serde_json::from_slice(bytes).map_err(damaged)?;
    if header.schema > T::SCHEMA {
        return Err(RecordError::Newer {
            kind: T::KIND,
            found: header.schema,
            known: T::SCHEMA,
        });
    }
    serde_json::from_slice::<Envelope<T>>(bytes)
        .map(|envelope| envelope.body)
        .map_err(damaged)
}
