//! How long a member's packets wait, and whether the targets of its class are met.

use vmio_guard::manager::document::MemberDocument;

use super::super::told::measured;
use crate::report::format;

/// What the last second's packets of a member waited; `None` where none was measured.
pub fn note(member: &MemberDocument) -> Option<String> {
    let (figures, delay) = (figures(member)?, member.delay.as_ref()?);
    let half = format::time(delay.median_seconds?);
    let met = delay.met.map(|met| if met { "; targets met" } else { "; a target is missed" });
    Some(format!("{figures}; half of the packets waited at most {half}{}", met.unwrap_or_default()))
}

/// Delay and jitter, each with its target.
pub fn figures(member: &MemberDocument) -> Option<String> {
    let (delay, settings) = (member.delay.as_ref()?, member.settings.as_ref());
    let delayed = measured("delay", delay.p99_seconds?, settings.and_then(|of| of.delay_seconds));
    let jitter = measured("jitter", delay.jitter_seconds?, settings.and_then(|of| of.jitter_seconds));
    Some(format!("{delayed}, {jitter}"))
}
