//! The durable records and their keys; no I/O.
//!
//! A record is JSON with a `schema` number. Everything the controller must
//! remember over a crash is one of these, under a key that [`Keys`] names.

mod active;
mod ids;
mod keys;
pub mod labels;
mod operation;
mod ownership;
mod record;
mod request;
mod revision;
mod secrets;
mod status;
mod text;

pub use active::{Active, ActiveService, Bind};
pub use ids::{ContainerId, Digest, Incarnation, OperationId, RevisionNumber};
pub use keys::Keys;
pub use operation::{
    Diagnostics, Operation, Outcome, OutcomeKind, Request, Step, StepKind, StepState, Verb, Warning,
};
pub use ownership::{
    BindClaim, Inhibition, InhibitionReason, Intent, Leader, Node, Ownership, ProcessIdentity,
    Resources, Retained, Stake, Wish,
};
pub use record::{Record, RecordError, decode, encode};
pub use request::{Asked, AskedVerb, RequestError, parse_id};
pub use revision::{PinnedService, Revision};
pub use secrets::{
    NeededSecrets, SecretVersion, TakenSecrets, own_prefix, podman_name, references,
};
pub use status::{Condition, ConditionType, Event, EventType, ServiceStatus, Status, Truth};
pub use text::shorten;
