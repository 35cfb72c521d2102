//! A small program as Go's linker writes it: two functions, the first with a call that was inlined.

/// Where the file is loaded.
pub const LOADED: u64 = 0x40_0000;
/// Where code lies in it.
pub const TEXT: u64 = 0x200;

/// Which format: that of the release, and of those behind it until the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Go {
    /// Go 1.16.
    V1_16,
    /// Go 1.18.
    V1_18,
    /// Go 1.20.
    V1_20,
    /// Go 1.26.
    V1_26,
}

impl Go {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::V1_16, Self::V1_18, Self::V1_20, Self::V1_26];
}

/// The table, and where in it the tree of inlined calls lies, which from 1.26 on is a part of it.
struct Written {
    bytes: Vec<u8>,
    names: u64,
    tree: usize,
}

/// Little numbers, one behind the other.
fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// Values, and for how many bytes of code each holds.
fn values(all: &[(i32, u8)]) -> Vec<u8> {
    let mut before = -1;
    let mut bytes = Vec::new();
    for (value, len) in all {
        let change = value - before;
        before = *value;
        let number = (change << 1 ^ change >> 31).cast_unsigned();
        let low = u8::try_from(number & 0x7f).unwrap();
        match u8::try_from(number >> 7).unwrap() {
            0 => bytes.push(low),
            high => bytes.extend([low | 0x80, high]),
        }
        bytes.push(*len);
    }
    bytes.push(0);
    bytes
}

/// Puts pieces behind each other; says where each begins.
fn joined(begin: usize, pieces: &[&[u8]]) -> (Vec<u8>, Vec<u32>) {
    let mut all = Vec::new();
    let starts = pieces.iter().map(|piece| {
        let at = u32::try_from(begin + all.len()).unwrap();
        all.extend_from_slice(piece);
        at
    });
    let starts = starts.collect();
    (all, starts)
}

/// A function's description.
struct Described<'a> {
    entry: u32,
    name: u32,
    tables: [u32; 3],
    start_line: u32,
    flags: u8,
    inlined: Option<(u32, &'a [u8])>,
}

impl Described<'_> {
    fn bytes(&self, go: Go) -> Vec<u8> {
        let entry = u64::from(self.entry);
        let mut bytes = match go {
            Go::V1_16 => u64s(&[LOADED + TEXT + entry]),
            _ => u32s(&[self.entry]),
        };
        let tables = if self.inlined.is_some() { 3 } else { 0 };
        let data = if self.inlined.is_some() { 4 } else { 0 };
        let [depths, files, lines] = self.tables;
        bytes.extend(u32s(&[self.name, 0, 0, depths, files, lines, tables, 0]));
        if go >= Go::V1_20 {
            bytes.extend(u32s(&[self.start_line]));
        }
        bytes.extend([0, self.flags, 0, data]);
        if let Some((index, tree)) = self.inlined {
            bytes.extend(u32s(&[0, 0, index]));
            if go == Go::V1_16 {
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                bytes.extend(u64s(&[0, 0, 0]));
            } else {
                bytes.extend(u32s(&[u32::MAX; 3]));
            }
            bytes.extend(tree);
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }
}

/// The table, which lies there in the file.
fn table(go: Go, at: u64) -> Written {
    let (names, name) = joined(0, &[b"main.outer\0", b"main.inner\0", b"runtime.goexit\0"]);
    let (files, file) = joined(0, &[b"/a.go\0", b"/b.go\0"]);
    let (tables, each) = joined(
        1,
        &[
            &values(&[(0, 4), (24, 0x30), (0, 4)]),
            &values(&[(0, 0x10), (1, 0x10), (0, 0x18)]),
            &values(&[(10, 8), (11, 8), (7, 0x10), (12, 0x18)]),
            &values(&[(-1, 0x10), (0, 0x10), (-1, 0x18)]),
            &values(&[(0, 0x10)]),
        ],
    );
    let entry = if go >= Go::V1_20 {
        u32s(&[0, name[1], 8, 5])
    } else {
        // No parent, of no kind; file, line, name, instruction of the call.
        [u32s(&[0x0000_ffff]), u32s(&[0, 11, name[1], 8])].concat()
    };
    let padded = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    };
    let tables = [vec![0], tables].concat();
    let pieces = [&names, &u32s(&file), &files, &tables].map(|it| padded(it));
    let head_bytes = if go == Go::V1_16 { 64 } else { 72 };
    let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    let (middle, starts) = joined(head_bytes, &pieces);
    let described_at = head_bytes + middle.len();
    // The tree of inlined calls lies behind all.
    let number_bytes = if go == Go::V1_16 { 8 } else { 4 };
    let list_bytes = (5_usize * number_bytes).next_multiple_of(8);
    let of_outer = |tree: &[u8]| {
        let inlined = Some((each[3], tree));
        let tables = [each[0], each[1], each[2]];
        Described { entry: 0, name: name[0], tables, start_line: 9, flags: 0, inlined }.bytes(go)
    };
    let of_goexit = Described {
        entry: 0x40,
        name: name[2],
        tables: [each[4], 0, 0],
        start_line: 0,
        flags: 1,
        inlined: None,
    };
    let of_goexit = of_goexit.bytes(go);
    let tree_bytes = if go == Go::V1_16 { 8 } else { 4 };
    let outer_bytes = of_outer(&vec![0; tree_bytes]).len();
    let tree = described_at + list_bytes + outer_bytes + of_goexit.len();
    let outer = match go {
        Go::V1_16 => of_outer(&u64s(&[LOADED + at + tree as u64])),
        _ => of_outer(&u32s(&[0])),
    };
    let places = [list_bytes, list_bytes + outer_bytes].map(|at| u32::try_from(at).unwrap());
    let mut list = if go == Go::V1_16 {
        let text = LOADED + TEXT;
        u64s(&[text, places[0].into(), text + 0x40, places[1].into(), text + 0x50])
    } else {
        u32s(&[0, places[0], 0x40, places[1], 0x50])
    };
    list.resize(list_bytes, 0);
    let magic = match go {
        Go::V1_16 => 0xffff_fffa_u32,
        Go::V1_18 => 0xffff_fff0,
        Go::V1_20 | Go::V1_26 => 0xffff_fff1,
    };
    let mut head = [u32s(&[magic]), vec![0, 0, 1, 8], u64s(&[2, 2])].concat();
    match go {
        Go::V1_16 => {}
        Go::V1_18 | Go::V1_20 => head.extend(u64s(&[LOADED + TEXT])),
        Go::V1_26 => head.extend(u64s(&[0])),
    }
    head.extend(starts.iter().flat_map(|start| u64::from(*start).to_ne_bytes()));
    head.extend(u64s(&[described_at as u64]));
    let bytes = [head, middle, list, outer, of_goexit, entry].concat();
    Written { bytes, names: head_bytes as u64, tree }
}

/// The file, with section headers or without.
///
/// # Panics
/// Not with these few functions: lengths are small.
#[must_use]
pub fn program(go: Go, has_sections: bool) -> Vec<u8> {
    const TABLE: u64 = 0x300;
    let Written { bytes: table, names, tree } = table(go, TABLE);
    let module_at = (TABLE as usize + table.len()).next_multiple_of(64);
    let mut module = [0; 48];
    module[0] = LOADED + TABLE;
    module[1] = module[0] + names;
    (module[22], module[23]) = (LOADED + TEXT, LOADED + TEXT + 0x50);
    let tree = LOADED + TABLE + tree as u64;
    match go {
        Go::V1_16 => {}
        Go::V1_18 => module[38] = tree,
        Go::V1_20 => module[40] = tree,
        Go::V1_26 => (module[43], module[44]) = (tree, LOADED + TABLE + table.len() as u64),
    }
    let note = [u32s(&[4, 4, 4]), b"Go\0\0".to_vec(), b"a/b/".to_vec()].concat();
    let names = b"\0.text\0.gopclntab\0.noptrdata\0.shstrtab\0";
    let names_at = module_at + module.len() * 8;
    let sections_at = (names_at + names.len()).next_multiple_of(8);
    let section = |name: u32, kind: u32, at: usize, len: usize| {
        let (at, len) = (at as u64, len as u64);
        let begin = [u32s(&[name, kind]), u64s(&[2, LOADED + at, at, len])].concat();
        [begin, u32s(&[0, 0]), u64s(&[8, 0])].concat()
    };
    let sections = [
        vec![0; 64],
        section(1, 1, TEXT as usize, 0x100),
        section(7, 1, TABLE as usize, table.len()),
        section(18, 1, module_at, module.len() * 8),
        section(29, 3, names_at, names.len()),
    ];
    let len = (sections_at + 64 * sections.len()) as u64;
    let segment = |kind: u32, at: u64, len: u64, align: u64| {
        [u32s(&[kind, 5]), u64s(&[at, LOADED + at, LOADED + at, len, len, align])].concat()
    };
    let (count, shoff) = if has_sections { (5, sections_at as u64) } else { (0, 0) };
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    head.extend(u64s(&[LOADED + TEXT, 64, shoff]));
    head.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 64, 0, count, 0, 4 * u8::from(has_sections), 0]);
    let mut file =
        [head, segment(1, 0, len, 0x1000), segment(4, 0x180, note.len() as u64, 4)].concat();
    let mut put = |at: usize, bytes: &[u8]| {
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(0x180, &note);
    put(TEXT as usize, &[0x90; 0x50]);
    put(TABLE as usize, &table);
    put(module_at, &u64s(&module));
    put(names_at, names);
    put(sections_at, &sections.concat());
    file
}
