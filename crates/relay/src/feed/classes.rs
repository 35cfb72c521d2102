//! The stream classes of channels: a stream that has sent nothing yet has that of another stream of its channel.

use std::collections::BTreeMap;

use wire::live::{Name, ViewedTraceId};

/// What is known of the channels of a session's traces. Bound: the channels of the streams that the feed has.
#[derive(Debug, Default)]
pub(super) struct Classes(BTreeMap<ViewedTraceId, BTreeMap<String, u64>>);

/// The channel of a stream: LTTng names streams `CHANNEL_CPU`.
fn channel_of(stream: &Name) -> Option<&str> {
    stream.as_str().rsplit_once('_').map(|(channel, _)| channel)
}

impl Classes {
    /// A stream has said what its class is.
    pub(super) fn is(&mut self, trace: ViewedTraceId, stream: &Name, class: u64) {
        if let Some(channel) = channel_of(stream) {
            let channels = self.0.entry(trace).or_default();
            channels.entry(channel.to_owned()).or_insert(class);
        }
    }

    /// The class of the channel that a stream is of.
    pub(super) fn of(&self, trace: ViewedTraceId, stream: &Name) -> Option<u64> {
        self.0.get(&trace)?.get(channel_of(stream)?).copied()
    }

    /// A trace has no other streams than these: the classes of channels that have none left are forgotten.
    pub(super) fn keep<'s>(
        &mut self,
        trace: ViewedTraceId,
        mut streams: impl Iterator<Item = &'s Name> + Clone,
        gone: &Name,
    ) {
        let Some(channels) = self.0.get_mut(&trace) else { return };
        if streams.clone().next().is_none() {
            self.0.remove(&trace);
        } else if let Some(channel) = channel_of(gone)
            && !streams.any(|stream| channel_of(stream) == Some(channel))
        {
            channels.remove(channel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_known_as_long_as_it_has_streams() {
        let name = |text| Name::new(text).unwrap();
        let [a, b] = [1, 2].map(ViewedTraceId::new);
        let mut classes = Classes::default();
        classes.is(a, &name("ch_0"), 7);
        classes.is(a, &name("other_0"), 8);
        classes.is(b, &name("ch_0"), 9);
        assert_eq!(classes.of(a, &name("ch_12")), Some(7));
        assert_eq!(classes.of(b, &name("ch_1")), Some(9));
        assert_eq!(classes.of(b, &name("other_1")), None);
        assert_eq!(classes.of(a, &name("metadata")), None);
        let left = [name("ch_5")];
        classes.keep(a, left.iter(), &name("ch_0"));
        classes.keep(a, left.iter(), &name("other_0"));
        assert_eq!(["ch_0", "other_0"].map(|it| classes.of(a, &name(it))), [Some(7), None]);
        classes.keep(a, [].iter(), &name("ch_5"));
        assert_eq!(classes.0.len(), 1);
    }
}
