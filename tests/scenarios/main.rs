//! What Podherd does, against a store, a runtime and a traffic graph in memory.
//! Every test asserts what was done and in which order.
//!
//! The doubles also watch each single effect and write, whatever the test is about:
//! see `support/watch.rs`. Each of these tests was seen to fail when the code broke
//! the invariant (DESIGN, section 6) that it stands for:
//!
//! | invariant | tests that fail without it |
//! | --- | --- |
//! | 1 preflight before disruption | `refused` |
//! | 2 nothing stopped before its withdrawal is confirmed | `failing::a_withdrawal_that_is_not_confirmed_touches_nothing`, `removing::a_withdrawal_that_is_not_confirmed_removes_nothing`, the watch on every signal |
//! | 3 no two writers | `failing::a_generation_that_can_not_be_retired_lets_nothing_new_be_made`, `writing`, the watch on every start |
//! | 4 an inhibited container is never started | `writing::a_stopped_writer_that_can_not_be_removed_is_never_started_again`, the watch on every start |
//! | 5 an inhibition is durable before its step | `writing::a_writer_is_inhibited_durably_before_it_is_stopped`, `removing::the_intent_and_the_inhibitions_are_durable_before_anything_is_done` |
//! | 6 ACTIVE after readiness, traffic after ACTIVE | `failing::a_candidate_that_is_not_ready_is_removed_and_active_stays`, the watch on every ACTIVE and every graph |
//! | 7 no bind served that wasn't inspected since the start | `repairing::a_container_restarted_by_hand_is_verified_on_the_ports_it_has_now`, `repairing::a_restarted_container_that_is_not_ready_stays_withdrawn`, `plan::tests::next` |
//! | 8 no orphan for good | `interrupted`, `strange::a_create_that_nobody_can_tell_of_leaves_nothing_behind_in_the_end`, `strange::an_orphan_of_the_live_incarnation_is_swept` |
//! | 9 never a false success, an ID never twice | `interrupted`, `failing::a_cancelled_probe_leaves_the_operation_in_flight_for_the_next_holder`, the watch on every journal write |
//! | 10 stopped stays stopped, removed stays removed | `stopping::a_stopped_app_is_neither_started_nor_deployed`, `removing::a_manifest_that_comes_back_during_the_removal_begins_another_incarnation` |
//! | 11 volumes and images are kept | `removing::volumes_and_images_are_retained_and_listed_under_the_old_incarnation` |
//! | 12 nothing without our label is changed | `refused::a_volume_of_somebody_else_is_never_taken_over`, `refused::a_network_of_somebody_else_is_never_taken_over`, `networks::a_network_that_is_not_podherd_s_is_refused_and_left_alone`, `networks::one_whose_label_changed_is_not_removed`, `strange::a_container_of_an_unknown_incarnation_is_left_alone_and_reported` |
//! | 13 without leadership nothing is written or started | `leading`, the watch on every effect and every fence |
//! | 15 an empty or older store stops nothing | `strange::a_restored_backup_is_held_for_a_person_and_stops_nothing`, `strange::an_empty_store_stops_nothing` |
//! | 16 no log in errors, events, status, no secret anywhere | `failing::a_failed_readiness_is_journaled_with_its_log_and_told_without_it`, the check after every pass |

// A test says what went wrong by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changing;
mod deploy;
mod failing;
mod history;
mod interrupted;
mod journaled;
mod leading;
mod limits;
mod listening;
mod living;
mod lost;
mod networks;
mod overlapping;
mod paused;
mod policy;
mod predecessors;
mod provisioning;
mod pulling;
mod rebuilding;
mod refused;
mod removing;
mod repairing;
mod requests;
mod restarting;
mod rolling_back;
mod secrets;
mod starting;
mod stopped;
mod stopping;
mod strange;
mod support;
mod writing;
