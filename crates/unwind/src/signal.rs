//! Where a signal's handler returns to on aarch64.
//!
//! That is code of the kernel's vDSO, which has no call frame information on purpose: `arch/arm64/kernel/vdso/sigreturn.S` says that
//! unwinders know it by its two instructions.

use object::ReadRef;

use crate::image::Segment;
use crate::rule::{Cfa, Rule};

/// `mov x8, #__NR_rt_sigreturn` and `svc #0`.
pub(crate) const RETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];

/// More code than a vDSO has: larger files are not looked through.
const MAX_CODE_BYTES: u64 = 64 << 10;

/// From the stack pointer to the saved registers: `uc_mcontext` of `uc` of `struct rt_sigframe`, arch/arm64/kernel/signal.c.
const SAVED_REGISTERS: u32 = 128 + 176;

/// The address of the two instructions in a small file.
pub(crate) fn find_return<'a, R: ReadRef<'a>>(segments: &[Segment], file: R) -> Option<u64> {
    let code = segments.iter().filter(|it| it.is_executable && it.file_bytes <= MAX_CODE_BYTES);
    code.take(1).find_map(|segment| {
        let bytes = file.read_bytes_at(segment.file_offset, segment.file_bytes).ok()?;
        let at = bytes.windows(RETURN.len()).step_by(4).position(|it| it == RETURN)?;
        Some(segment.address.wrapping_add(at as u64 * 4))
    })
}

/// The rule of these instructions.
pub(crate) fn rule() -> Rule {
    Rule::new(Cfa::Signal(SAVED_REGISTERS), None, false).unwrap_or(Rule::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(file_bytes: u64) -> Segment {
        Segment { file_offset: 8, file_bytes, address: 0x1008, is_executable: true, page_bytes: 1 }
    }

    #[test]
    fn the_return_of_a_signal_is_known_by_its_instructions() {
        let nop = [0x1f, 0x20, 0x03, 0xd5];
        let code = [&[0; 8][..], &nop, &RETURN, &nop].concat();
        assert_eq!(find_return(&[segment(16)], &*code), Some(0x100c));
        assert_eq!(find_return(&[segment(8)], &*code), None);
        assert_eq!(find_return(&[segment(MAX_CODE_BYTES + 1)], &*code), None);
        assert_eq!(rule().cfa(), Cfa::Signal(304));
    }

    #[test]
    fn instructions_begin_at_words() {
        let code = [&[0; 9][..], &RETURN, &[0; 3]].concat();
        assert_eq!(find_return(&[segment(12)], &*code), None);
    }
}
