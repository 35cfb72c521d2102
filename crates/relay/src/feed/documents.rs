//! Where metadata may be cut: a viewer must never get half a declaration.
//!
//! ```text
//! packets (CTF 1.8, magic 0x75D11D57)   whole at the end of a packet whose text ends between two declarations
//! text    (CTF 1.8)                     whole after a `;` outside of braces, strings and comments
//! JSON    (CTF 2)                       whole after the closing brace of a fragment
//! ```
//! Bytes are looked at once, as they come; nothing is kept but a state.

/// Magic number of a metadata packet.
const MAGIC: u32 = 0x75D1_1D57;
/// Length of a metadata packet's header: magic, UUID, checksum, content bits at 24, packet bits at 28, five bytes.
const HEADER_LEN: usize = 37;

/// How far metadata that come piece by piece are whole.
#[derive(Debug, Default, Clone)]
pub(crate) struct Documents {
    len: u64,
    whole: u64,
    container: Container,
    text: Text,
}

#[derive(Debug, Default, Clone)]
enum Container {
    /// Too few bytes to tell.
    #[default]
    Unknown,
    /// Not packets.
    Plain,
    Packets(Packet),
}

/// The packet at the end.
#[derive(Debug, Clone)]
struct Packet {
    header: [u8; HEADER_LEN],
    /// Bytes of the packet that came.
    at: u64,
    content_len: u64,
    len: u64,
}

impl Documents {
    /// All of `len` bytes are whole, and nothing more comes.
    pub(crate) fn complete(len: u64) -> Self {
        Self { len, whole: len, ..Self::default() }
    }

    /// More bytes came.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.byte(*byte);
        }
    }

    /// Zeros came.
    pub(crate) fn push_zeros(&mut self, count: u64) {
        let mut left = count;
        while left > 0 {
            let skipped = match &mut self.container {
                // After one zero in the text another changes nothing.
                Container::Packets(packet) if packet.at >= HEADER_LEN as u64 => {
                    if packet.at < packet.content_len {
                        self.text.byte(0);
                    }
                    packet.skip(left)
                }
                _ => 0,
            };
            if skipped > 0 {
                self.len += skipped;
                left -= skipped;
                self.end_packet();
            } else {
                self.byte(0);
                left -= 1;
            }
            if matches!(self.container, Container::Plain) && left > 0 {
                self.byte(0);
                self.len += left - 1;
                left = 0;
                if self.text.is_between() {
                    self.whole = self.len;
                }
            }
        }
    }

    /// Bytes that may be shown: up to the end of the last whole declaration.
    pub(crate) const fn whole(&self) -> u64 {
        self.whole
    }

    /// Nothing more comes: all of it may be shown.
    pub(crate) const fn finish(&mut self) {
        self.whole = self.len;
    }

    fn byte(&mut self, byte: u8) {
        self.len += 1;
        match &mut self.container {
            Container::Unknown => {
                // The first byte of the magic number in either order; neither begins a text.
                if MAGIC.to_le_bytes().first() == Some(&byte)
                    || MAGIC.to_be_bytes().first() == Some(&byte)
                {
                    let mut packet = Packet::new();
                    packet.take(byte);
                    self.container = Container::Packets(packet);
                } else {
                    self.container = Container::Plain;
                    self.plain(byte);
                }
            }
            Container::Plain => self.plain(byte),
            Container::Packets(packet) => {
                match packet.take(byte) {
                    Part::Text => self.text.byte(byte),
                    Part::Other => {}
                    // Not what it seemed: readers will say so, here it is not held back.
                    Part::Broken => self.container = Container::Plain,
                }
                self.end_packet();
            }
        }
    }

    fn plain(&mut self, byte: u8) {
        self.text.byte(byte);
        if self.text.is_between() {
            self.whole = self.len;
        }
    }

    fn end_packet(&mut self) {
        if let Container::Packets(packet) = &mut self.container
            && packet.is_over()
        {
            *packet = Packet::new();
            if self.text.is_between() {
                self.whole = self.len;
            }
        }
    }
}

/// What a byte of a packet is.
enum Part {
    Text,
    Other,
    Broken,
}

impl Packet {
    const fn new() -> Self {
        Self { header: [0; HEADER_LEN], at: 0, content_len: 0, len: 0 }
    }

    fn take(&mut self, byte: u8) -> Part {
        let at = usize::try_from(self.at).unwrap_or(usize::MAX);
        self.at += 1;
        if let Some(place) = self.header.get_mut(at) {
            *place = byte;
            return if at + 1 == HEADER_LEN { self.open() } else { Part::Other };
        }
        if self.at <= self.content_len { Part::Text } else { Part::Other }
    }

    /// The header is there.
    fn open(&mut self) -> Part {
        let word = |at: usize| {
            let bytes = self.header.get(at..).and_then(|rest| rest.first_chunk::<4>());
            let bytes = bytes.copied().unwrap_or_default();
            if self.header.first_chunk::<4>() == Some(&MAGIC.to_le_bytes()) {
                u32::from_le_bytes(bytes)
            } else {
                u32::from_be_bytes(bytes)
            }
        };
        let (magic, content, packet) = (word(0), u64::from(word(24)) / 8, u64::from(word(28)) / 8);
        if magic != MAGIC || content < HEADER_LEN as u64 || packet < content {
            return Part::Broken;
        }
        (self.content_len, self.len) = (content, packet);
        Part::Other
    }

    const fn is_over(&self) -> bool {
        self.at >= HEADER_LEN as u64 && self.at >= self.len
    }

    /// Passes over padding; how much of it.
    fn skip(&mut self, most: u64) -> u64 {
        let skipped = self.len.saturating_sub(self.at).min(most);
        self.at += skipped;
        skipped
    }
}

/// Where in a text we are.
#[derive(Debug, Default, Clone)]
struct Text {
    place: Where,
    /// Open braces and brackets.
    depth: u32,
    /// Whether this is JSON.
    is_json: bool,
    /// Something began that is not at its end.
    is_inside: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Where {
    #[default]
    Code,
    /// After a `/`.
    Slash,
    LineComment,
    BlockComment,
    /// After a `*` in a block comment.
    Star,
    /// In quotes of this kind.
    Quoted(u8),
    /// After a backslash in quotes.
    Escaped(u8),
}

impl Text {
    /// Whether the text ends between two declarations.
    const fn is_between(&self) -> bool {
        !self.is_inside && matches!(self.place, Where::Code)
    }

    fn byte(&mut self, byte: u8) {
        self.place = match (self.place, byte) {
            (Where::Quoted(quote) | Where::Escaped(quote), _) => match (self.place, byte) {
                (Where::Quoted(_), b'\\') => Where::Escaped(quote),
                (Where::Quoted(_), byte) if byte == quote => Where::Code,
                _ => Where::Quoted(quote),
            },
            (Where::LineComment, b'\n') => Where::Code,
            (Where::LineComment, _) => Where::LineComment,
            (Where::BlockComment | Where::Star, b'*') => Where::Star,
            (Where::Star, b'/') => Where::Code,
            (Where::BlockComment | Where::Star, _) => Where::BlockComment,
            (Where::Slash, b'/') => Where::LineComment,
            (Where::Slash, b'*') => Where::BlockComment,
            (Where::Code | Where::Slash, byte) => self.code(byte),
        };
    }

    fn code(&mut self, byte: u8) -> Where {
        match byte {
            0x1E => {
                (self.is_json, self.depth, self.is_inside) = (true, 0, true);
            }
            b'/' if !self.is_json => return Where::Slash,
            b'"' => {
                self.is_inside = true;
                return Where::Quoted(byte);
            }
            b'\'' if !self.is_json => {
                self.is_inside = true;
                return Where::Quoted(byte);
            }
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                self.is_inside = true;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.is_inside = !(self.is_json && self.depth == 0);
            }
            b';' if self.depth == 0 && !self.is_json => self.is_inside = false,
            byte if byte.is_ascii_whitespace() || byte == 0 => {}
            _ => self.is_inside = true,
        }
        Where::Code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much is whole after each piece.
    fn whole(pieces: &[&[u8]]) -> Vec<u64> {
        let mut documents = Documents::default();
        pieces
            .iter()
            .map(|piece| {
                documents.push(piece);
                documents.whole()
            })
            .collect()
    }

    /// A metadata packet of `len` bytes.
    fn packet(text: &str, len: usize) -> Vec<u8> {
        let mut packet = vec![0; HEADER_LEN];
        packet[..4].copy_from_slice(&MAGIC.to_le_bytes());
        let bits = |bytes: usize| u32::try_from(bytes * 8).unwrap().to_le_bytes();
        packet[24..28].copy_from_slice(&bits(HEADER_LEN + text.len()));
        packet[28..32].copy_from_slice(&bits(len));
        packet.extend_from_slice(text.as_bytes());
        packet.resize(len, 0);
        packet
    }

    #[test]
    fn text_is_whole_after_a_declaration() {
        assert_eq!(
            whole(&[b"/* CTF 1.8 */\n", b"trace { a = ", b"1; };", b"\n", b"ev"]),
            [14, 14, 31, 32, 32]
        );
        assert_eq!(whole(&[b"env { a = \"};\\\"\"; ", b"// };\n", b"};"]), [0, 0, 26]);
        assert_eq!(whole(&[b"typealias a := b;", b" /", b"/ more", b"\n"]), [17, 18, 18, 26]);
    }

    #[test]
    fn a_fragment_of_json_is_whole_at_its_last_brace() {
        let pieces: [&[u8]; 5] = [b"\x1e{\"a\": [1, ", b"\"}\"]", b"}", b"\n\x1e", b"{}"];
        assert_eq!(whole(&pieces), [0, 0, 16, 17, 20]);
    }

    #[test]
    fn a_packet_is_whole_at_its_end_if_its_text_is() {
        let first = packet("trace { a = 1; }", 256);
        let second = packet(";", 128);
        assert_eq!(
            whole(&[&first[..100], &first[100..], &second[..127], &second[127..]]),
            [0, 0, 0, 384]
        );
    }

    #[test]
    fn padding_that_is_not_sent_counts() {
        let whole_packet = packet("trace { };", 4096);
        let mut documents = Documents::default();
        for _ in 0..2 {
            documents.push(&whole_packet[..HEADER_LEN + 10]);
            documents.push_zeros(4096 - 47);
        }
        assert_eq!(documents.whole(), 8192);
        documents.push(&whole_packet[..50]);
        assert_eq!(documents.whole(), 8192);
        documents.finish();
        assert_eq!(documents.whole(), 8242);
    }

    #[test]
    fn what_is_no_packet_is_not_held_back_for_good() {
        let mut broken = packet("a", 64);
        broken[28..32].fill(0);
        let mut documents = Documents::default();
        documents.push(&broken);
        documents.push(b" trace { };");
        documents.finish();
        assert_eq!(documents.whole(), 75);
    }

    /// Bytes that look like metadata, in which anything may follow anything.
    fn nonsense(mut seed: u64, len: usize) -> Vec<u8> {
        let words: [&[u8]; 16] = [
            b"{",
            b"}",
            b";",
            b"\"",
            b"\\",
            b"'",
            b"/",
            b"*",
            b"//",
            b"\n",
            b"\x1e",
            b"[",
            b"a ",
            b"\0\0",
            &MAGIC.to_le_bytes(),
            &MAGIC.to_be_bytes(),
        ];
        let mut bytes = Vec::new();
        while bytes.len() < len {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let word = words.get(usize::try_from(seed >> 60).unwrap()).unwrap();
            bytes.extend_from_slice(word);
        }
        bytes
    }

    #[test]
    fn where_bytes_are_cut_and_how_zeros_are_told_makes_no_difference() {
        for seed in 0..500 {
            let mut bytes = nonsense(seed, 300);
            if seed % 2 == 0 {
                // In front of it, packets that are whole.
                let text = bytes.clone();
                bytes = packet(&String::from_utf8_lossy(&text[..40]), 128);
                bytes.extend(packet("a;", 64));
                bytes.extend(text);
            }
            let mut whole = Documents::default();
            whole.push(&bytes);
            let mut cut = Documents::default();
            let mut last = 0;
            for piece in bytes.chunk_by(|left, right| (*left == 0) == (*right == 0)) {
                match piece.first() {
                    Some(0) => cut.push_zeros(piece.len() as u64),
                    _ => piece.iter().for_each(|byte| cut.push(&[*byte])),
                }
                assert!(cut.whole() >= last && cut.whole() <= cut.len, "seed {seed}");
                last = cut.whole();
            }
            assert_eq!((cut.len, cut.whole()), (whole.len, whole.whole()), "seed {seed}");
        }
    }
}
