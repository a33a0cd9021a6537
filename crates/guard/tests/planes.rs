//! All tests of the planes that need root, in one program: a file has its line here.

#![allow(missing_docs)]

mod common;

mod root_cards;
mod root_claims;
mod root_classifier;
mod root_crash;
mod root_dba;
mod root_debts;
mod root_delay;
mod root_excess;
mod root_flows;
mod root_gateways;
mod root_groups;
mod root_held;
mod root_hostile_taps;
mod root_htb;
mod root_ifb;
mod root_local;
mod root_plane;
mod root_queueless;
mod root_receive;
mod root_receive_undo;
mod root_rest;
mod root_shares;
mod root_stage;
mod root_takeover;
mod root_tap;
mod root_waits;
