//! `/tmp/perf-PID.map`: a line for each function that a process makes, `begin length name`, both numbers in hexadecimal digits
//! (tools/perf/Documentation/jit-interface.txt of Linux).

use super::JitCode;

/// The longest line; a longer one says nothing.
const MAX_LINE_BYTES: usize = 16 << 10;

/// The reader of a file that grows.
#[derive(Debug, Clone, Default)]
pub struct PerfMap {
    /// Behind the last whole line.
    read: u64,
    /// Inside of a line that is too long.
    is_skipping: bool,
    malformed: u64,
}

impl PerfMap {
    /// From where in the file on [`read`](Self::read) is to be given bytes: the end of the last line that was read.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.read.saturating_sub(1)
    }

    /// Lines that are none.
    #[must_use]
    pub const fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Reads the whole lines of what the file has from [`offset`](Self::offset) on. When the file is another one than before, reading
    /// begins again, and nothing that it said before counts.
    pub fn read(&mut self, bytes: &[u8], into: &mut JitCode) {
        let mut rest = bytes;
        if self.read > 0 {
            match rest.split_first() {
                Some((first, behind)) if *first == b'\n' || self.is_skipping => rest = behind,
                _another_file => {
                    let malformed = self.malformed;
                    *self = Self { malformed, ..Self::default() };
                    into.clear();
                    return;
                }
            }
        }
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, behind) = rest.split_at(end);
            self.read += end as u64 + 1;
            rest = behind.get(1..).unwrap_or_default();
            if std::mem::take(&mut self.is_skipping) {
                continue;
            }
            match parsed(line).filter(|_| line.len() <= MAX_LINE_BYTES) {
                Some((begin, len, name)) => into.insert(begin, len, name, Box::default()),
                None => self.malformed += 1,
            }
        }
        if rest.len() > MAX_LINE_BYTES {
            self.malformed += u64::from(!std::mem::replace(&mut self.is_skipping, true));
            self.read += rest.len() as u64;
        }
    }
}

fn parsed(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let (begin, len, name) = (words.next()?, words.next()?, words.next()?);
    let number = |word: &[u8]| {
        let digits = std::str::from_utf8(word.strip_prefix(b"0x").unwrap_or(word)).ok()?;
        u64::from_str_radix(digits, 16).ok()
    };
    let name = name.trim_ascii();
    (!name.is_empty()).then_some((number(begin)?, number(len)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file that is there up to each of these lengths in turn.
    fn read_up_to(file: &[u8], lengths: impl IntoIterator<Item = usize>) -> (PerfMap, JitCode) {
        let (mut map, mut code) = (PerfMap::default(), JitCode::default());
        for len in lengths {
            let from = usize::try_from(map.offset()).unwrap();
            map.read(&file[from..len], &mut code);
        }
        (map, code)
    }

    const FILE: &[u8] =
        b"1000 20 one\n0x1020 0x10 JS:*two words file.js:1:2\nnonsense\n2000 zz x\n\
                          1010 8 three\n3000 10 \n";

    #[test]
    fn however_it_grows_a_file_says_the_same() {
        let (whole, code) = read_up_to(FILE, [FILE.len()]);
        assert_eq!(code.find(0x1000).unwrap().name, "one");
        assert_eq!(code.find(0x1017).unwrap().name, "three");
        assert_eq!(code.find(0x1018).unwrap().name, "one");
        assert_eq!(code.find(0x102f).unwrap().name, "JS:*two words file.js:1:2");
        assert_eq!(code.find(0x1030), None);
        assert_eq!((whole.malformed(), whole.offset()), (3, FILE.len() as u64 - 1));
        for step in 1..FILE.len() {
            let lengths = (0..FILE.len()).step_by(step).chain([FILE.len()]);
            let (map, grown) = read_up_to(FILE, lengths);
            assert_eq!((map.malformed(), map.offset()), (3, whole.offset()), "{step}");
            assert_eq!((grown.len(), grown.find(0x1017)), (code.len(), code.find(0x1017)));
        }
    }

    #[test]
    fn a_line_without_end_costs_nothing_and_ends_at_its_end() {
        let mut file = b"10 10 a\n".to_vec();
        file.resize(file.len() + 3 * MAX_LINE_BYTES, b'1');
        let cut = file.len() - 10;
        file.extend(b"\n20 10 b\n");
        let (map, code) = read_up_to(&file, [5, cut, cut + 3, file.len()]);
        assert_eq!((code.len(), map.malformed()), (2, 1));
        assert_eq!(code.find(0x2f).unwrap().name, "b");
    }

    #[test]
    fn a_file_that_was_written_again_is_read_again() {
        let (mut map, mut code) = read_up_to(b"10 10 a\n20 10 b\n", [16]);
        let other = b"30 100 other longer\n50 10 last\n";
        map.read(&other[usize::try_from(map.offset()).unwrap()..], &mut code);
        assert_eq!((code.is_empty(), map.offset()), (true, 0));
        map.read(&other[usize::try_from(map.offset()).unwrap()..], &mut code);
        assert_eq!((code.find(0x10), code.find(0x30).unwrap().name), (None, "other longer"));
        map.read(b"", &mut code);
        assert_eq!((code.is_empty(), map.offset()), (true, 0));
    }
}
