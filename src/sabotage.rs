//! Deliberate defects, each of which the simulation must find. Debug builds only: in a
//! release none of them can be switched on.
//!
//! A defect belongs to a thread, so that a test can look for several at once.

/// A deliberate defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // Each says what is wrong.
pub enum Defect {
    WithdrawalSkipped,
    WithdrawalNotConfirmed,
    AppWithdrawalSkipped,
    ProbeSkipped,
    InhibitionSkipped,
    InhibitionClearedEarly,
    RemovalNotInhibited,
    RetirementMarkerDropped,
    InhibitedStarted,
    FenceForgotten,
    LeadershipNotAsked,
    StaleBindsReused,
    CreateRepeatedBlindly,
    StepNotJournaled,
    InterruptedIsSuccess,
    CandidateLeft,
    BindsReleasedEarly,
    BindsNotReleased,
    PortsNotClaimed,
    StopNotIntended,
    StoppedIsDeployed,
    RetirementNotConfirmed,
    VolumesDeleted,
    NetworksLeft,
    LogInError,
    OlderStoreAccepted,
    ExecutionNotCompared,
    ReplayRunsAgain,
    RoutesBeforeActive,
    LostWriteTrusted,
    CreatedBeforeRetired,
    FailureNotRetried,
    UnhealthyIgnored,
    DeadIgnored,
    EndedStaysRouted,
}

impl Defect {
    /// All of them.
    pub const ALL: [Self; 35] = [
        Self::WithdrawalSkipped,
        Self::WithdrawalNotConfirmed,
        Self::AppWithdrawalSkipped,
        Self::ProbeSkipped,
        Self::InhibitionSkipped,
        Self::InhibitionClearedEarly,
        Self::RemovalNotInhibited,
        Self::RetirementMarkerDropped,
        Self::InhibitedStarted,
        Self::FenceForgotten,
        Self::LeadershipNotAsked,
        Self::StaleBindsReused,
        Self::CreateRepeatedBlindly,
        Self::StepNotJournaled,
        Self::InterruptedIsSuccess,
        Self::CandidateLeft,
        Self::BindsReleasedEarly,
        Self::BindsNotReleased,
        Self::PortsNotClaimed,
        Self::StopNotIntended,
        Self::StoppedIsDeployed,
        Self::RetirementNotConfirmed,
        Self::VolumesDeleted,
        Self::NetworksLeft,
        Self::LogInError,
        Self::OlderStoreAccepted,
        Self::ExecutionNotCompared,
        Self::ReplayRunsAgain,
        Self::RoutesBeforeActive,
        Self::LostWriteTrusted,
        Self::CreatedBeforeRetired,
        Self::FailureNotRetried,
        Self::UnhealthyIgnored,
        Self::DeadIgnored,
        Self::EndedStaysRouted,
    ];
}

#[cfg(debug_assertions)]
mod chosen {
    use std::cell::Cell;

    use super::Defect;

    thread_local! {
        static CHOSEN: Cell<Option<Defect>> = const { Cell::new(None) };
    }

    /// From now on this thread's controllers have the defect, or none.
    pub fn choose(defect: Option<Defect>) {
        CHOSEN.set(defect);
    }

    pub(crate) fn has(defect: Defect) -> bool {
        CHOSEN.get() == Some(defect)
    }
}

#[cfg(debug_assertions)]
pub use chosen::choose;
#[cfg(debug_assertions)]
pub(crate) use chosen::has;

/// Never: this isn't a debug build.
#[cfg(not(debug_assertions))]
pub(crate) const fn has(_: Defect) -> bool {
    false
}
