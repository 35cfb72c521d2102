//! One row's rule, in 32 bits.

use crate::image::Architecture;

/// How the canonical frame address of a frame is found: the stack pointer's value before the call that made the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cfa {
    /// Nothing is known about this code.
    Unknown,
    /// No frame is above this one.
    Outermost,
    /// The stack pointer and so many bytes.
    StackPointer(u32),
    /// The frame pointer and so many bytes.
    FramePointer(u32),
    /// What the stack pointer and so many bytes points to, and a word.
    AtStackPointer(u32),
    /// What lies so many bytes below where the frame pointer points to. The caller's frame pointer lies where it points to.
    BelowFramePointer(u32),
    /// An entry of the procedure linkage table: a word above the stack pointer, from its eleventh byte on two.
    LinkageTable,
    /// A signal handler's return: the kernel has put all registers so many bytes above the stack pointer.
    Signal(u32),
}

/// How to come from a frame to its caller, in 32 bits, lowest first:
///
/// | bits | meaning |
/// |---|---|
/// | 3 | which [`Cfa`] |
/// | 17 | its bytes, in words of eight: up to 1 MiB, because rustc has a frame of 528 KiB |
/// | 11 | x86-64: how many words below the frame address the caller's frame pointer is saved; aarch64: the return address; 0: it is still in its register |
/// | 1 | aarch64: the caller's frame pointer is saved a word below the return address; x86-64: the frame may lie on another stack, and so anywhere |
///
/// On x86-64 the return address is always the word below the frame address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rule(u32);

const WORD: u32 = 8;
const OFFSET_SHIFT: u32 = 3;
const OFFSET_MASK: u32 = (1 << 17) - 1;
const SAVED_SHIFT: u32 = OFFSET_SHIFT + 17;
const SAVED_MASK: u32 = (1 << 11) - 1;
const PAIR: u32 = 1 << 31;
const ELSEWHERE: u32 = 1 << 31;

impl Rule {
    /// Of code that nothing is known about.
    pub const UNKNOWN: Self = Self(0);
    /// Of code that nobody called.
    pub const OUTERMOST: Self = Self(1);

    /// Of code on x86-64 whose frame the frame pointer tells, and whose stack pointer is another stack's.
    pub(crate) const OTHER_STACK: Self =
        Self(Self::frame_pointers(Architecture::X86_64).0 | ELSEWHERE);

    /// Of code that keeps a chain of frame pointers: what an unknown function is taken for.
    #[must_use]
    pub const fn frame_pointers(architecture: Architecture) -> Self {
        let two_words = 2 << OFFSET_SHIFT | 3;
        match architecture {
            Architecture::X86_64 => Self(two_words | 2 << SAVED_SHIFT),
            Architecture::Aarch64 => Self(two_words | 1 << SAVED_SHIFT | PAIR),
        }
    }

    /// `saved`: bytes from the frame address down to what is saved; `None` when it is still in its register. `pair`: whether
    /// the frame pointer lies below that. `None` when a number has no room or is no multiple of a word.
    pub(crate) fn new(cfa: Cfa, saved: Option<u32>, pair: bool) -> Option<Self> {
        let (kind, bytes) = match cfa {
            Cfa::Unknown => (0, 0),
            Cfa::Outermost => (1, 0),
            Cfa::StackPointer(bytes) => (2, bytes),
            Cfa::FramePointer(bytes) => (3, bytes),
            Cfa::AtStackPointer(bytes) => (4, bytes),
            Cfa::BelowFramePointer(bytes) => (5, bytes),
            Cfa::LinkageTable => (6, 0),
            Cfa::Signal(bytes) => (7, bytes),
        };
        let words = |bytes: u32, mask| {
            (bytes.is_multiple_of(WORD) && bytes / WORD <= mask).then_some(bytes / WORD)
        };
        let saved = match saved {
            Some(0) => return None,
            Some(bytes) => words(bytes, SAVED_MASK)?,
            None => 0,
        };
        let offset = words(bytes, OFFSET_MASK)?;
        let pair = if pair { PAIR } else { 0 };
        Some(Self(kind | offset << OFFSET_SHIFT | saved << SAVED_SHIFT | pair))
    }

    /// Where the frame address is.
    #[must_use]
    pub const fn cfa(self) -> Cfa {
        let bytes = (self.0 >> OFFSET_SHIFT & OFFSET_MASK) * WORD;
        match self.0 & 7 {
            0 => Cfa::Unknown,
            1 => Cfa::Outermost,
            2 => Cfa::StackPointer(bytes),
            3 => Cfa::FramePointer(bytes),
            4 => Cfa::AtStackPointer(bytes),
            5 => Cfa::BelowFramePointer(bytes),
            6 => Cfa::LinkageTable,
            _ => Cfa::Signal(bytes),
        }
    }

    /// Bytes from the frame address down to the saved frame pointer (x86-64) or return address (aarch64); `None` when it is still in
    /// its register.
    #[must_use]
    pub const fn saved(self) -> Option<u32> {
        match self.0 >> SAVED_SHIFT & SAVED_MASK {
            0 => None,
            words => Some(words * WORD),
        }
    }

    /// Whether on aarch64 the caller's frame pointer lies below the saved return address.
    #[must_use]
    pub const fn is_pair(self) -> bool {
        self.0 & PAIR != 0
    }

    /// Whether on x86-64 the frame may lie on another stack than its callee's.
    #[must_use]
    pub const fn is_elsewhere(self) -> bool {
        self.0 & ELSEWHERE != 0
    }

    /// As the eBPF program reads it.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// What [`bits`](Self::bits) gave.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let largest = (1 << 17) - 1;
        for bytes in [0, 8, 16, 4096, largest * 8] {
            for cfa in [
                Cfa::StackPointer(bytes),
                Cfa::FramePointer(bytes),
                Cfa::AtStackPointer(bytes),
                Cfa::BelowFramePointer(bytes),
                Cfa::Signal(bytes),
            ] {
                for (saved, pair) in [(None, false), (Some(16), false), (Some(2047 * 8), true)] {
                    let rule = Rule::new(cfa, saved, pair).unwrap();
                    assert_eq!((rule.cfa(), rule.saved(), rule.is_pair()), (cfa, saved, pair));
                    assert_eq!(Rule::from_bits(rule.bits()), rule);
                }
            }
        }
        assert_eq!(Rule::new(Cfa::StackPointer((largest + 1) * 8), None, false), None);
        assert_eq!(Rule::new(Cfa::StackPointer(12), None, false), None);
        assert_eq!(Rule::new(Cfa::StackPointer(8), Some(2048 * 8), false), None);
    }

    #[test]
    fn constants_mean_what_they_say() {
        assert_eq!(Rule::UNKNOWN.cfa(), Cfa::Unknown);
        assert_eq!(Rule::OUTERMOST.cfa(), Cfa::Outermost);
        let chain = Rule::frame_pointers(Architecture::X86_64);
        assert_eq!((chain.cfa(), chain.saved()), (Cfa::FramePointer(16), Some(16)));
        let chain = Rule::frame_pointers(Architecture::Aarch64);
        assert_eq!(
            (chain.cfa(), chain.saved(), chain.is_pair()),
            (Cfa::FramePointer(16), Some(8), true)
        );
    }
}
