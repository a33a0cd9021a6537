//! What a policy says of a member besides rates.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmio_model::policy::{Class, Direction};

use crate::desired::Identity;

/// What the policy says of a member besides rates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingsDocument {
    /// How long its excess may wait on this host, by its class; null: the queue has room for TCP.
    pub queue_seconds: Option<f64>,
    /// Target of its class: longest wait of a packet; null for none.
    pub delay_seconds: Option<f64>,
    /// Target of its class: largest difference between the waits of two packets; null for none.
    pub jitter_seconds: Option<f64>,
    /// Longest wait of a packet beside the members that the policy names; null without a target.
    pub longest_wait_seconds: Option<f64>,
    /// Its local traffic, by its class: `count` or `limit`; null of what it receives, as all below (`addresses` is
    /// empty then).
    pub local: Option<String>,
    /// What becomes of what is above its maximum, by its class: `queue` or `drop`.
    pub excess: String,
    /// What becomes of packets that claim another's address: `off`, `warn` or `drop`.
    pub spoofing: Option<String>,
    /// IP addresses that no other guest may claim.
    pub addresses: Vec<String>,
    /// Who names them: `policy`, and it may claim no others; `manager`, and there may be more; null where nobody does.
    pub addresses_by: Option<String>,
    /// Whether it routes for others, and may claim any IP address.
    pub router: Option<bool>,
}

impl SettingsDocument {
    pub(super) fn of(identity: &Identity, class: &Class, direction: Direction) -> SettingsDocument {
        let sends = direction == Direction::GuestTx;
        let by = match (identity.addresses.is_empty(), identity.all_known) {
            (true, _) => None,
            (false, true) => Some("policy"),
            (false, false) => Some("manager"),
        };
        let addresses = if sends { identity.addresses.as_slice() } else { &[] };
        let target = class.delay.unwrap_or_default();
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        SettingsDocument {
            queue_seconds: seconds(class.queue_time()),
            delay_seconds: seconds(target.delay),
            jitter_seconds: seconds(target.jitter),
            longest_wait_seconds: seconds(target.longest),
            local: sends.then(|| class.local_word().to_owned()),
            excess: class.excess.word().to_owned(),
            spoofing: sends.then(|| identity.spoofing.word().to_owned()),
            addresses: addresses.iter().map(ToString::to_string).collect(),
            addresses_by: by.filter(|_| sends).map(str::to_owned),
            router: sends.then_some(identity.router),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_model::policy::delay::DelayTarget;

    #[test]
    fn what_is_received_has_a_queue_alone() {
        let identity = Identity {
            addresses: vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
            all_known: true,
            router: true,
            ..Identity::default()
        };
        let class = Class { queue: Some(Duration::from_millis(25)), limit_local: true, ..Class::default() };
        let sent = SettingsDocument::of(&identity, &class, Direction::GuestTx);
        assert_eq!((sent.addresses.join(" "), sent.router), ("192.0.2.7 2001:db8::7".to_owned(), Some(true)));
        let words = [sent.local, sent.spoofing, sent.addresses_by].map(Option::unwrap);
        assert_eq!(words, ["limit", "warn", "policy"]);
        let received = SettingsDocument::of(&identity, &class, Direction::GuestRx);
        assert_eq!((received.queue_seconds, received.addresses.len(), received.router), (Some(0.025), 0, None));
        assert_eq!((sent.delay_seconds, sent.longest_wait_seconds), (None, None));
        let ms = |time| Some(Duration::from_millis(time));
        let delay = Some(DelayTarget { delay: ms(20), jitter: ms(5), queue: ms(3), longest: ms(4) });
        let targeted = Class { delay, ..Class::default() };
        let targeted = SettingsDocument::of(&identity, &targeted, Direction::GuestRx);
        assert_eq!((targeted.queue_seconds, targeted.delay_seconds), (Some(0.003), Some(0.02)));
        assert_eq!((targeted.jitter_seconds, targeted.longest_wait_seconds), (Some(0.005), Some(0.004)));
        let managed = Identity { all_known: false, ..identity };
        let by = SettingsDocument::of(&managed, &class, Direction::GuestTx).addresses_by;
        assert_eq!(by.as_deref(), Some("manager"));
        let none = SettingsDocument::of(&Identity::default(), &Class::default(), Direction::GuestTx);
        assert_eq!((none.addresses_by, none.queue_seconds, none.local.as_deref()), (None, None, Some("count")));
    }
}
