//! Values of fields as words of a record.
#![expect(unsafe_code, reason = "values are written where a ring has room for them")]

use std::ptr;

use crate::layout::{FieldType, MAX_VALUE_LEN};

mod sealed {
    /// # Safety
    /// `put` writes exactly as many words as `words` says.
    pub unsafe trait Words {
        fn words(&self) -> usize;

        /// # Safety
        /// There is room for [`Self::words`] words at `at`, which nobody else touches.
        unsafe fn put(&self, at: *mut u64);
    }
}
pub(crate) use sealed::Words;

/// What a field of a [`tracepoint!`](crate::tracepoint) may be.
pub trait Field: Words {
    /// As its call site's description names it.
    const TYPE: FieldType;
}

/// The values of a record, in their order: `()`, or [`Values`].
pub trait Fields: Words {}

/// A value and those after it; [`tracepoint!`](crate::tracepoint) makes these.
#[derive(Debug)]
pub struct Values<'a, T: ?Sized, R>(&'a T, R);

impl<'a, T: Field + ?Sized, R: Fields> Values<'a, T, R> {
    /// `first` before `rest`.
    #[inline(always)]
    #[must_use]
    pub const fn new(first: &'a T, rest: R) -> Self {
        Self(first, rest)
    }
}

// SAFETY: no words, and none are written.
unsafe impl Words for () {
    #[inline(always)]
    fn words(&self) -> usize {
        0
    }

    #[inline(always)]
    unsafe fn put(&self, _at: *mut u64) {}
}
impl Fields for () {}

// SAFETY: the words of one after those of the other.
unsafe impl<T: Field + ?Sized, R: Fields> Words for Values<'_, T, R> {
    #[inline(always)]
    fn words(&self) -> usize {
        self.0.words() + self.1.words()
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u64) {
        // SAFETY: the caller has room for both.
        unsafe {
            self.0.put(at);
            self.1.put(at.add(self.0.words()));
        }
    }
}
impl<T: Field + ?Sized, R: Fields> Fields for Values<'_, T, R> {}

/// Words of a span before the fields of its record.
pub(crate) struct InSpan<'a, const N: usize, F>(pub(crate) &'a [u64; N], pub(crate) &'a F);

// SAFETY: as many words as there are, and those of the fields.
unsafe impl<const N: usize, F: Fields> Words for InSpan<'_, N, F> {
    #[inline(always)]
    fn words(&self) -> usize {
        N + self.1.words()
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u64) {
        // SAFETY: the caller has room for both.
        unsafe {
            at.copy_from_nonoverlapping(self.0.as_ptr(), N);
            self.1.put(at.add(N));
        }
    }
}
impl<const N: usize, F: Fields> Fields for InSpan<'_, N, F> {}

/// Words that were made before: those of a record with tagged fields.
#[cfg(feature = "tracing")]
pub(crate) struct Made<'a>(pub(crate) &'a [u64]);

#[cfg(feature = "tracing")]
// SAFETY: as many words as there are.
unsafe impl Words for Made<'_> {
    #[inline(always)]
    fn words(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u64) {
        // SAFETY: the caller has room for all of them.
        unsafe { at.copy_from_nonoverlapping(self.0.as_ptr(), self.0.len()) };
    }
}
#[cfg(feature = "tracing")]
impl Fields for Made<'_> {}

macro_rules! one_word {
    ($($type:ty, $kind:ident, |$value:ident| $word:expr;)*) => {$(
        // SAFETY: one word is written.
        unsafe impl Words for $type {
            #[inline(always)]
            fn words(&self) -> usize {
                1
            }

            #[inline(always)]
            unsafe fn put(&self, at: *mut u64) {
                let $value = *self;
                // SAFETY: the caller has room for a word.
                unsafe { at.write($word) };
            }
        }
        impl Field for $type {
            const TYPE: FieldType = FieldType::$kind;
        }
    )*};
}

one_word! {
    u8, Unsigned, |value| value.into();
    u16, Unsigned, |value| value.into();
    u32, Unsigned, |value| value.into();
    u64, Unsigned, |value| value;
    usize, Unsigned, |value| value as u64;
    i8, Signed, |value| i64::from(value).cast_unsigned();
    i16, Signed, |value| i64::from(value).cast_unsigned();
    i32, Signed, |value| i64::from(value).cast_unsigned();
    i64, Signed, |value| value.cast_unsigned();
    isize, Signed, |value| (value as i64).cast_unsigned();
    f32, Float, |value| f64::from(value).to_bits();
    f64, Float, |value| value.to_bits();
    bool, Bool, |value| value.into();
}

// SAFETY: the length, and as many words as hold the bytes that are kept.
unsafe impl Words for [u8] {
    #[inline(always)]
    fn words(&self) -> usize {
        1 + self.len().min(MAX_VALUE_LEN).div_ceil(8)
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u64) {
        let kept = self.len().min(MAX_VALUE_LEN);
        let had = u32::try_from(self.len()).unwrap_or(u32::MAX);
        // SAFETY: the caller has room for the length and for the bytes in whole words, of which the last is cleared first.
        unsafe {
            at.write(kept as u64 | u64::from(had) << 32);
            if kept > 0 {
                at.add(kept.div_ceil(8)).write(0);
                ptr::copy_nonoverlapping(self.as_ptr(), at.add(1).cast::<u8>(), kept);
            }
        }
    }
}
impl Field for [u8] {
    const TYPE: FieldType = FieldType::Bytes;
}

// SAFETY: as those of its bytes.
unsafe impl Words for str {
    #[inline(always)]
    fn words(&self) -> usize {
        self.as_bytes().words()
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u64) {
        // SAFETY: as the caller promises.
        unsafe { self.as_bytes().put(at) };
    }
}
impl Field for str {
    const TYPE: FieldType = FieldType::Text;
}
