//! From a file's call frame information to its table.

use std::ops::Range;

use gimli::{
    AArch64, BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, FrameDescriptionEntry,
    NativeEndian, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection,
    UnwindTableRow, Vendor, X86_64,
};
use gopclntab::Module;
use object::ReadRef;

use crate::go;
use crate::image::{Architecture, Image, Section, function_symbols};
use crate::instructions::{Code, Described, MAX_CODE_BYTES, describe};
use crate::rule::{Cfa, Rule};
use crate::signal;
use crate::table::Table;

/// The most rows of a table: 64 MiB of them. Chromium has two million.
pub const MAX_ROWS: usize = 8 << 20;

/// The longest entry that functions share. Each function begins with its instructions, so that a long one costs as often as there
/// are functions; compilers write 30 bytes.
const MAX_SHARED_BYTES: usize = 1024;

/// How much code the entry point is taken to have where nothing describes it.
const ENTRY_BYTES: u64 = 64;

/// Less code than that between two functions is what fills up to the next multiple of 16.
const MIN_GAP_BYTES: u64 = 16;

/// For less code than that symbols are not read: nearly every program has some 200 bytes of its C compiler's that nothing describes, and
/// its symbols may be many megabytes.
const MIN_BYTES_FOR_SYMBOLS: u64 = 4 << 10;

/// Where the kernel puts the general registers of a signal's frame, from the stack pointer, and where in them it puts the
/// stack pointer (`struct rt_sigframe`, `struct sigcontext` of x86-64).
const SAVED_STACK_POINTER: u32 = 120;

type Reader<'a> = gimli::EndianSlice<'a, NativeEndian>;

/// Why there is no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The file has no call frame information.
    #[error("no call frame information (.eh_frame, .debug_frame)")]
    None,
    /// It describes more than [`MAX_ROWS`].
    #[error("more than {MAX_ROWS} rows of call frame information")]
    TooMany,
}

/// What of a file's call frame information is not in its table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    /// Functions whose description cannot be read.
    pub functions: u64,
    /// Stretches of code whose description has no room in a row.
    pub stretches: u64,
    /// Whether the entries could not be read to their end.
    pub is_cut: bool,
}

/// Some function's stretches of code, in the list of all.
struct Function {
    begin: u64,
    end: u64,
    rows: Range<usize>,
}

/// A table in the making.
#[derive(Default)]
struct Builder {
    functions: Vec<Function>,
    rows: Vec<(u64, Rule)>,
    left: Left,
}

impl Table {
    /// The table of a file by what it says itself, and what is not in it.
    ///
    /// # Errors
    /// [`TableError`]
    pub fn of(image: &Image<'_>) -> Result<(Self, Left), TableError> {
        let mut builder = Builder::described(image)?;
        builder.enter_starts(image);
        let left = builder.left;
        builder.finish().map(|table| (table, left)).ok_or(TableError::None)
    }

    /// As [`of`](Self::of); of code on x86-64 that the file says nothing of, by its instructions. `file`: what the image was parsed from.
    ///
    /// # Errors
    /// [`TableError`]
    pub fn with_instructions<'a, R: ReadRef<'a>>(
        image: &Image<'a>,
        file: R,
    ) -> Result<(Self, Left), TableError> {
        let mut builder = Builder::described(image)?;
        if image.architecture() == Architecture::X86_64 {
            builder.follow_instructions(image, file);
        }
        builder.enter_starts(image);
        let left = builder.left;
        builder.finish().map(|table| (table, left)).ok_or(TableError::None)
    }
}

/// Whose extensions of call frame information hold.
pub(crate) const fn vendor(architecture: Architecture) -> Vendor {
    match architecture {
        Architecture::X86_64 => Vendor::Default,
        Architecture::Aarch64 => Vendor::AArch64,
    }
}

/// What pointers of a section are relative to.
pub(crate) fn bases(image: &Image<'_>, section: Section<'_>) -> BaseAddresses {
    let bases = BaseAddresses::default().set_eh_frame(section.address);
    let bases = image.text.map_or(bases.clone(), |text| bases.set_text(text));
    image.got.map_or(bases.clone(), |got| bases.set_got(got))
}

impl Builder {
    /// What a file says of its code, by address.
    fn described(image: &Image<'_>) -> Result<Self, TableError> {
        let mut builder = Self::default();
        // Of code that several describe, the first one counts.
        if let Some(signal_return) = image.signal_return {
            builder.signal_return(signal_return);
        }
        if let (Some(module), Architecture::X86_64) = (&image.go, image.architecture()) {
            builder.go(module)?;
        }
        if let Some(section) = image.eh_frame {
            let mut frames = EhFrame::new(section.bytes, NativeEndian);
            frames.set_address_size(8);
            frames.set_vendor(vendor(image.architecture()));
            builder.read(image, &frames, &bases(image, section))?;
        }
        // Some files have only the one, and some the one for their own code and the other for what they link.
        if let Some(section) = image.debug_frame {
            let mut frames = DebugFrame::new(section.bytes, NativeEndian);
            frames.set_address_size(8);
            frames.set_vendor(vendor(image.architecture()));
            builder.read(image, &frames, &bases(image, section))?;
        }
        if let Some(builtins) = &image.builtins {
            builder.keeps_frame_pointers(builtins.clone(), image.architecture());
        }
        // Of two descriptions of the same code, the first in the file.
        builder.functions.sort_by_key(|function| function.begin);
        builder.functions.dedup_by_key(|function| function.begin);
        Ok(builder)
    }

    /// Code that nobody called, where nothing else describes it.
    fn enter_starts(&mut self, image: &Image<'_>) {
        let entry = image.entry().map(|entry| entry..entry.saturating_add(ENTRY_BYTES));
        for code in entry.into_iter().chain(image.starts.iter().cloned()) {
            self.enter(code);
        }
    }

    fn read<'a, S>(
        &mut self,
        image: &Image<'_>,
        frames: &S,
        bases: &BaseAddresses,
    ) -> Result<(), TableError>
    where
        S: UnwindSection<Reader<'a>>,
        S::Offset: gimli::UnwindOffset<usize>,
    {
        let mut context = UnwindContext::new();
        let mut entries = frames.entries(bases);
        loop {
            match entries.next() {
                Ok(None) => return Ok(()),
                Ok(Some(CieOrFde::Cie(_))) => {}
                Ok(Some(CieOrFde::Fde(function))) => match function.parse(S::cie_from_offset) {
                    Ok(function) => self.function(image, frames, bases, &mut context, &function)?,
                    Err(_unreadable) => self.left.functions += 1,
                },
                Err(_unreadable) => {
                    self.left.is_cut = true;
                    return Ok(());
                }
            }
        }
    }

    fn function<'a, S: UnwindSection<Reader<'a>>>(
        &mut self,
        image: &Image<'_>,
        frames: &S,
        bases: &BaseAddresses,
        context: &mut UnwindContext<usize>,
        function: &FrameDescriptionEntry<Reader<'a>>,
    ) -> Result<(), TableError> {
        let begin = function.initial_address();
        let Some(end) = begin.checked_add(function.len()).filter(|end| *end > begin) else {
            return Ok(());
        };
        // The linker leaves entries of functions that it dropped, at address 0.
        if !image.is_code(begin) {
            return Ok(());
        }
        if function.cie().entry_len() > MAX_SHARED_BYTES {
            self.left.functions += 1;
            return Ok(());
        }
        let first = self.rows.len();
        let Ok(mut rows) = function.rows(frames, bases, context) else {
            self.left.functions += 1;
            return Ok(());
        };
        loop {
            match rows.next_row() {
                Ok(Some(row)) => {
                    let rule = if function.is_signal_trampoline() {
                        signal_rule(frames, row)
                    } else {
                        match image.architecture() {
                            Architecture::X86_64 => x86_64_rule(frames, row),
                            Architecture::Aarch64 => aarch64_rule(row),
                        }
                    };
                    self.left.stretches += u64::from(rule.is_none());
                    self.rows.push((row.start_address(), rule.unwrap_or(Rule::UNKNOWN)));
                }
                Ok(None) => break,
                Err(_unreadable) => {
                    self.left.functions += 1;
                    self.rows.truncate(first);
                    return Ok(());
                }
            }
            if self.rows.len() > MAX_ROWS {
                return Err(TableError::TooMany);
            }
        }
        self.functions.push(Function { begin, end, rows: first..self.rows.len() });
        Ok(())
    }

    fn go(&mut self, module: &Module<'_>) -> Result<(), TableError> {
        let is_whole = go::functions(module, |function| {
            if self.rows.len() <= MAX_ROWS {
                let first = self.rows.len();
                let unknown = function.rows.iter().filter(|(_, rule)| *rule == Rule::UNKNOWN);
                self.left.stretches += unknown.count() as u64;
                self.rows.extend(function.rows);
                let Range { start: begin, end } = function.code;
                self.functions.push(Function { begin, end, rows: first..self.rows.len() });
            }
        });
        self.left.is_cut |= !is_whole;
        if self.rows.len() > MAX_ROWS { Err(TableError::TooMany) } else { Ok(()) }
    }

    /// Nothing calls it, so that the byte before it belongs to it, too.
    fn signal_return(&mut self, begin: u64) {
        let (before, row) = (begin.saturating_sub(1), self.rows.len());
        self.rows.push((before, signal::rule()));
        let end = begin.saturating_add(signal::RETURN.len() as u64);
        self.functions.push(Function { begin: before, end, rows: row..row + 1 });
    }

    /// Code that nothing describes otherwise.
    fn keeps_frame_pointers(&mut self, code: Range<u64>, architecture: Architecture) {
        let row = self.rows.len();
        self.rows.push((code.start, Rule::frame_pointers(architecture)));
        self.functions.push(Function { begin: code.start, end: code.end, rows: row..row + 1 });
    }

    /// Adds rows of code that nothing describes.
    fn follow_instructions<'a, R: ReadRef<'a>>(&mut self, image: &Image<'a>, file: R) {
        let mut room = MAX_CODE_BYTES;
        let gaps = self.gaps(&image.code).into_iter().filter_map(|gap| {
            room = room.checked_sub(gap.end - gap.start)?;
            Some(Code { address: gap.start, bytes: image.bytes_at(file, &gap)? })
        });
        let gaps: Vec<Code<'a>> = gaps.collect();
        if gaps.is_empty() {
            return;
        }
        let bytes: u64 = gaps.iter().map(|gap| gap.bytes.len() as u64).sum();
        let entries =
            if bytes >= MIN_BYTES_FOR_SYMBOLS { function_symbols(file) } else { Vec::new() };
        for Described { code, rows } in describe(&gaps, &entries, image.entry()) {
            let first = self.rows.len();
            if first.saturating_add(rows.len()) > MAX_ROWS {
                break;
            }
            self.rows.extend(rows);
            let Range { start: begin, end } = code;
            self.functions.push(Function { begin, end, rows: first..self.rows.len() });
        }
        self.functions.sort_by_key(|function| function.begin);
    }

    /// Code between functions that are described, when it is more than what fills up to the next multiple of some number.
    fn gaps(&self, code: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        for section in code {
            let mut from = section.start;
            let first = self.functions.partition_point(|function| function.end <= section.start);
            for function in self.functions.get(first..).unwrap_or_default() {
                if function.begin >= section.end {
                    break;
                }
                gaps.push(from..function.begin);
                from = from.max(function.end);
            }
            gaps.push(from..section.end);
        }
        gaps.retain(|gap| gap.end.saturating_sub(gap.start) >= MIN_GAP_BYTES);
        gaps
    }

    fn finish(self) -> Option<Table> {
        let mut table = Table::with_base(self.functions.first()?.begin);
        let mut functions = self.functions.iter().peekable();
        while let Some(function) = functions.next() {
            let next = functions.peek().map_or(u64::MAX, |next| next.begin);
            let end = function.end.min(next);
            for (address, rule) in self.rows.get(function.rows.clone()).unwrap_or_default() {
                if *address < end && !table.push((*address).max(function.begin), *rule) {
                    break;
                }
            }
            if end < next && !table.push(end, Rule::UNKNOWN) {
                break;
            }
        }
        table.shrink();
        Some(table)
    }

    /// Nobody called the code that a program begins with, whether or not it says so.
    fn enter(&mut self, code: Range<u64>) {
        let Range { start: begin, end } = code;
        let behind = self.functions.partition_point(|function| function.begin <= begin);
        let before = behind.checked_sub(1).and_then(|at| self.functions.get(at));
        if before.is_some_and(|function| function.end > begin) {
            return;
        }
        let row = self.rows.len();
        self.rows.push((begin, Rule::OUTERMOST));
        self.functions.insert(behind, Function { begin, end, rows: row..row + 1 });
    }
}

/// `None` when it has no room in a row.
pub(crate) fn x86_64_rule<'a, S: UnwindSection<Reader<'a>>>(
    frames: &S,
    row: &UnwindTableRow<usize>,
) -> Option<Rule> {
    match row.register(X86_64::RA) {
        Some(RegisterRule::Undefined) => return Some(Rule::OUTERMOST),
        Some(RegisterRule::Offset(-8)) => {}
        _ => return None,
    }
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let offset = u32::try_from(*offset).ok()?;
            match *register {
                X86_64::RSP => Cfa::StackPointer(offset),
                X86_64::RBP => Cfa::FramePointer(offset),
                _ => return None,
            }
        }
        CfaRule::Expression(expression) => x86_64_expression(frames, *expression)?,
    };
    let saved = match (row.register(X86_64::RBP), cfa) {
        // Where a function aligns its stack, the frame pointer's place holds the caller's.
        (Some(RegisterRule::Expression(place)), Cfa::BelowFramePointer(_)) => {
            let [0x76, 0] = bytes_of(frames, place)? else { return None };
            None
        }
        (None | Some(RegisterRule::Undefined | RegisterRule::SameValue), _) => None,
        (Some(RegisterRule::Offset(below)), _) => Some(below_frame(below)?),
        _ => return None,
    };
    Rule::new(cfa, saved, false)
}

fn x86_64_expression<'a, S: UnwindSection<Reader<'a>>>(
    frames: &S,
    expression: UnwindExpression<usize>,
) -> Option<Cfa> {
    // breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus
    const LINKAGE_TABLE: [u8; 11] =
        [0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    match bytes_of(frames, expression)? {
        bytes if bytes == LINKAGE_TABLE => Some(Cfa::LinkageTable),
        // breg7 N; deref; plus_uconst 8
        [0x77, offset @ .., 0x06, 0x23, 0x08] => {
            Some(Cfa::AtStackPointer(u32::try_from(sleb128(offset)?).ok()?))
        }
        // breg6 -N; deref
        [0x76, offset @ .., 0x06] => {
            Some(Cfa::BelowFramePointer(u32::try_from(sleb128(offset)?.checked_neg()?).ok()?))
        }
        _ => None,
    }
}

/// The frame of a signal: the stack pointer before it, and all other registers, are in what the kernel has put on the stack.
fn signal_rule<'a, S: UnwindSection<Reader<'a>>>(
    frames: &S,
    row: &UnwindTableRow<usize>,
) -> Option<Rule> {
    let CfaRule::Expression(expression) = row.cfa() else { return None };
    // breg7 N; deref
    let [0x77, offset @ .., 0x06] = bytes_of(frames, *expression)? else { return None };
    let offset = u32::try_from(sleb128(offset)?).ok()?;
    Rule::new(Cfa::Signal(offset.checked_sub(SAVED_STACK_POINTER)?), None, false)
}

pub(crate) fn aarch64_rule(row: &UnwindTableRow<usize>) -> Option<Rule> {
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let offset = u32::try_from(*offset).ok()?;
    let cfa = match *register {
        AArch64::SP => Cfa::StackPointer(offset),
        AArch64::X29 => Cfa::FramePointer(offset),
        _ => return None,
    };
    let saved = |register: Register| match row.register(register) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(None),
        Some(RegisterRule::Offset(below)) => below_frame(below).map(Some),
        Some(_) => None,
    };
    if matches!(row.register(AArch64::X30), Some(RegisterRule::Undefined)) {
        return Some(Rule::OUTERMOST);
    }
    match (saved(AArch64::X30)?, saved(AArch64::X29)?) {
        (None, None) => Rule::new(cfa, None, false),
        (Some(link), None) => Rule::new(cfa, Some(link), false),
        (Some(link), Some(frame)) if frame == link + 8 => Rule::new(cfa, Some(link), true),
        _ => None,
    }
}

/// Bytes from the frame address down to where a register is saved.
fn below_frame(offset: i64) -> Option<u32> {
    u32::try_from(offset.checked_neg()?).ok().filter(|below| *below > 0)
}

fn bytes_of<'a, S: UnwindSection<Reader<'a>>>(
    frames: &S,
    expression: UnwindExpression<usize>,
) -> Option<&'a [u8]> {
    expression.get(frames).ok().map(|expression| expression.0.slice())
}

/// All of the bytes as one signed number.
fn sleb128(bytes: &[u8]) -> Option<i64> {
    let mut reader = gimli::EndianSlice::new(bytes, NativeEndian);
    let number = gimli::Reader::read_sleb128(&mut reader).ok()?;
    reader.is_empty().then_some(number)
}
