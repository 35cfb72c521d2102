//! Where frames end.

use super::FRAME_BYTES;

/// The ends of the frames that content of a length is put in, given where its packets end.
///
/// Packets are put together up to [`FRAME_BYTES`]; one that is longer has several frames of that length, with what is left of
/// it in front of the packets that follow. So a search in the middle of a long packet decompresses no more than it reads. Where
/// nothing is known of packets, frames are of [`FRAME_BYTES`].
#[derive(Debug)]
pub(crate) struct FrameEnds<I: Iterator<Item = u64>> {
    packets: std::iter::Peekable<I>,
    at: u64,
    len: u64,
}

impl<I: Iterator<Item = u64>> FrameEnds<I> {
    /// `packets` are offsets at which packets end, ascending; what does not ascend is left out.
    pub(crate) fn new(packets: I, len: u64) -> Self {
        Self { packets: packets.peekable(), at: 0, len }
    }
}

impl<I: Iterator<Item = u64>> Iterator for FrameEnds<I> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.at >= self.len {
            return None;
        }
        let usual = self.at + FRAME_BYTES;
        let mut end = None;
        while let Some(packet) = self.packets.next_if(|packet| *packet <= usual) {
            end = Some(packet).filter(|packet| *packet > self.at).max(end);
        }
        self.at = end.unwrap_or(usual).min(self.len);
        Some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn ends(packets: &[u64], len: u64) -> Vec<u64> {
        FrameEnds::new(packets.iter().copied(), len).collect()
    }

    #[test]
    fn small_packets_share_frames() {
        let packets: Vec<u64> = (1..=6).map(|number| number * 100 * KIB).collect();
        assert_eq!(ends(&packets, 600 * KIB), [200 * KIB, 400 * KIB, 600 * KIB]);
    }

    #[test]
    fn a_large_packet_has_several_frames_and_begins_one() {
        let packets = [10 * KIB, 710 * KIB, 720 * KIB, 720 * KIB + MIB];
        let large = [256, 512, 768].map(|rest| 720 * KIB + rest * KIB);
        let expected = [[10, 266, 522, 720].map(|end| end * KIB).as_slice(), &large].concat();
        let expected = [expected, vec![720 * KIB + MIB]].concat();
        assert_eq!(ends(&packets, 720 * KIB + MIB), expected);
    }

    #[test]
    fn without_packets_frames_are_of_one_length() {
        assert_eq!(ends(&[], 0), [0; 0]);
        assert_eq!(ends(&[], 600 * KIB), [256 * KIB, 512 * KIB, 600 * KIB]);
        assert_eq!(ends(&[5, 5, 3, 0], 9), [5, 9]);
        assert_eq!(ends(&[9 * MIB], 100), [100], "a packet that is longer than the file");
    }
}
