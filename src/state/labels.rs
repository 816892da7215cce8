//! Labels on every container, network, volume and secret that Podherd makes. By them
//! it finds again what a crash left unrecorded.

/// The app's name.
pub const APP: &str = "io.podherd.app";
/// The app's incarnation.
pub const INCARNATION: &str = "io.podherd.incarnation";
/// The service's name.
pub const SERVICE: &str = "io.podherd.service";
/// The number of the revision it was made from.
pub const REVISION: &str = "io.podherd.revision";
/// The operation that made it.
pub const OPERATION: &str = "io.podherd.operation";
/// The name of a secret of its own within the app.
pub const SECRET: &str = "io.podherd.secret";
/// On a shared network, instead of an app and an incarnation: its name.
pub const NETWORK: &str = "io.podherd.network";
