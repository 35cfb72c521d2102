//! From text to [`Expr`].

use std::str::Chars;
use std::sync::Arc;

use super::expr::{Comparison, Expr, Literal, PacketField, Place, Predicate, Subject, Test};
use super::pattern::{Glob, Pattern};
use super::{FilterError, MAX_DEPTH, MAX_LEN, Problem};

pub(super) fn parse(text: &str) -> Result<Expr, FilterError> {
    if text.len() > MAX_LEN {
        let problem = Problem::TooMany { what: "bytes", limit: MAX_LEN };
        return Err(FilterError { column: 1, problem });
    }
    let mut parser = Parser { lexer: Lexer::new(text), next: Token::END, depth: 0 };
    parser.bump()?;
    let expr = parser.any()?;
    match parser.next.kind {
        Kind::End => Ok(expr),
        _ => Err(parser.unexpected("`&&`, `||` or the end")),
    }
}

fn fail(column: usize, problem: Problem) -> FilterError {
    FilterError { column, problem }
}

/// At most 64 characters of a text that is quoted in an error.
fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    next: Token,
    depth: usize,
}

impl Parser<'_> {
    /// Takes the next token and reads the one after it.
    fn bump(&mut self) -> Result<Token, FilterError> {
        let read = self.lexer.token()?;
        Ok(std::mem::replace(&mut self.next, read))
    }

    fn unexpected(&self, expected: &'static str) -> FilterError {
        fail(self.next.column, Problem::Unexpected { expected, found: self.next.kind.shown() })
    }

    fn any(&mut self) -> Result<Expr, FilterError> {
        let mut parts = vec![self.all()?];
        while self.next.kind == Kind::Or {
            self.bump()?;
            parts.push(self.all()?);
        }
        Ok(one_or(parts, Expr::Any))
    }

    fn all(&mut self) -> Result<Expr, FilterError> {
        let mut parts = vec![self.unary()?];
        while self.next.kind == Kind::And {
            self.bump()?;
            parts.push(self.unary()?);
        }
        Ok(one_or(parts, Expr::All))
    }

    fn unary(&mut self) -> Result<Expr, FilterError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let problem = Problem::TooMany { what: "levels of parentheses", limit: MAX_DEPTH };
            return Err(fail(self.next.column, problem));
        }
        let expr = match self.next.kind {
            Kind::Not => {
                self.bump()?;
                Expr::Not(Box::new(self.unary()?))
            }
            Kind::Open => {
                self.bump()?;
                let expr = self.any()?;
                self.close()?;
                expr
            }
            _ => Expr::Test(self.test()?),
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn close(&mut self) -> Result<(), FilterError> {
        match self.next.kind {
            Kind::Close => self.bump().map(drop),
            _ => Err(self.unexpected("`)`")),
        }
    }

    fn test(&mut self) -> Result<Test, FilterError> {
        if !matches!(self.next.kind, Kind::Word(_) | Kind::Quoted(_)) {
            return Err(self.unexpected("a name, a field, `!` or `(`"));
        }
        let Token { kind, column } = self.bump()?;
        let word = match kind {
            Kind::Word(word) => word,
            Kind::Quoted(raw) => {
                return Ok(named(&unescape(&raw, column, For::Pattern)?, column));
            }
            _ => String::new(),
        };
        if word == "has" && self.next.kind == Kind::Open {
            return self.has();
        }
        if let Kind::Operator(operator) = self.next.kind {
            let subject = subject(&word, column)?;
            let at = self.bump()?.column;
            let predicate = self.predicate(operator, at)?;
            return Ok(Test { subject, column, predicate });
        }
        if number(&word).is_some() {
            let found = format!("`{}`", cut(&word));
            return Err(fail(column, Problem::Unexpected { expected: "a name or a field", found }));
        }
        Ok(named(&word, column))
    }

    /// `has(field)`, from the parenthesis on.
    fn has(&mut self) -> Result<Test, FilterError> {
        self.bump()?;
        if !matches!(self.next.kind, Kind::Word(_)) {
            return Err(self.unexpected("a field"));
        }
        let Token { kind, column } = self.bump()?;
        let Kind::Word(word) = kind else { return Err(self.unexpected("a field")) };
        let subject = subject(&word, column)?;
        self.close()?;
        Ok(Test { subject, column, predicate: Predicate::Exists })
    }

    fn predicate(&mut self, operator: Operator, at: usize) -> Result<Predicate, FilterError> {
        let Token { kind, column } = match self.next.kind {
            Kind::Word(_) | Kind::Quoted(_) => self.bump()?,
            _ => return Err(self.unexpected("a number, a text in quotes or a word")),
        };
        let (text, quoted) = match kind {
            Kind::Quoted(raw) => (raw, true),
            Kind::Word(word) => (word, false),
            _ => (String::new(), false),
        };
        if let Some(number) = number(&text).filter(|_| !quoted) {
            let number = number.map_err(|problem| fail(column, problem))?;
            return match operator {
                Operator::Compare(comparison) => Ok(Predicate::Compare(comparison, number)),
                _ => Err(fail(at, Problem::NeedsText(operator.shown()))),
            };
        }
        let (pattern, negated) = match operator {
            Operator::Compare(_) if !quoted && text.contains(['*', '?']) => {
                let hint = "`~` takes patterns, quotes make it a text";
                return Err(fail(column, Problem::Pattern { found: cut(&text), hint }));
            }
            Operator::Compare(comparison) => {
                let text = unescape(&text, column, For::Comparison)?;
                return Ok(Predicate::Compare(comparison, Literal::Text(text)));
            }
            Operator::Fits { negated } => {
                (Pattern::Glob(Glob::new(&unescape(&text, column, For::Pattern)?)), negated)
            }
            Operator::Regex => {
                let refused = |error: regex_lite::Error| Problem::Regex(cut(&error.to_string()));
                (Pattern::regex(&text).map_err(|error| fail(column, refused(error)))?, false)
            }
        };
        Ok(Predicate::Match { pattern: Arc::new(pattern), negated })
    }
}

/// The only one of `parts`, or all of them.
fn one_or(mut parts: Vec<Expr>, several: fn(Vec<Expr>) -> Expr) -> Expr {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            several(parts)
        }
    }
}

/// A pattern on its own tests the name.
fn named(pattern: &str, column: usize) -> Test {
    let pattern = Arc::new(Pattern::Glob(Glob::new(pattern)));
    let predicate = Predicate::Match { pattern, negated: false };
    Test { subject: Subject::Name, column, predicate }
}

fn subject(word: &str, column: usize) -> Result<Subject, FilterError> {
    if word.contains(['*', '?']) {
        let hint = "a field is written out; without an operator it is the name's pattern";
        return Err(fail(column, Problem::Pattern { found: cut(word), hint }));
    }
    if let Some(field) = word.strip_prefix("packet.") {
        return packet_field(field).map_err(|problem| fail(column, problem));
    }
    if let Some(key) = word.strip_prefix("env.") {
        return Ok(Subject::Env(key.to_owned()));
    }
    let field = |place, path: &str| Subject::Field { place, path: path.to_owned() };
    Ok(match word {
        "name" => Subject::Name,
        "host" => Subject::Host,
        "loglevel" => Subject::LogLevel,
        _ => {
            if let Some(path) = word.strip_prefix("payload.") {
                field(Place::Payload, path)
            } else if let Some(path) =
                word.strip_prefix("context.").or_else(|| word.strip_prefix("$ctx."))
            {
                field(Place::Contexts, path)
            } else {
                field(Place::Anywhere, word)
            }
        }
    })
}

fn packet_field(name: &str) -> Result<Subject, Problem> {
    let found = PacketField::NAMES.iter().find(|(known, _)| *known == name);
    found.map(|(_, field)| Subject::Packet(*field)).ok_or_else(|| {
        let known: Vec<&str> = PacketField::NAMES.iter().map(|(known, _)| *known).collect();
        Problem::PacketField { found: cut(name), known: known.join(", ") }
    })
}

/// Words that begin like a number must be one.
fn number(word: &str) -> Option<Result<Literal, Problem>> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let radix = [("0x", 16), ("0X", 16), ("0b", 2), ("0o", 8)];
    let prefixed =
        radix.iter().find_map(|(prefix, radix)| Some((digits.strip_prefix(prefix)?, *radix)));
    let (digits, radix) = prefixed.unwrap_or((digits, 10));
    let is_integer = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    if is_integer {
        let magnitude = i128::from_str_radix(digits, radix).ok();
        let value = magnitude.map(|magnitude| if negative { -magnitude } else { magnitude });
        let in_range = value.filter(|v| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(v));
        return Some(in_range.map(Literal::Integer).ok_or_else(|| Problem::Range(cut(word))));
    }
    let float = word.parse().ok().filter(|_| radix == 10);
    Some(float.map(Literal::Float).ok_or_else(|| Problem::Number(cut(word))))
}

/// What the escapes of a text are resolved for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Comparison,
    /// Keeps a `\` before what it takes the meaning from.
    Pattern,
}

/// Resolves the escapes of a text that stands in quotes at `column`.
fn unescape(raw: &str, column: usize, purpose: For) -> Result<String, FilterError> {
    let mut out = String::with_capacity(raw.len());
    let mut chars = (column + 1..).zip(raw.chars());
    while let Some((at, char)) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        let wrong = |escape: String| fail(at, Problem::Escape(escape));
        match chars.next().map(|(_, escape)| escape) {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some(char @ ('"' | '\'')) => out.push(char),
            Some(char @ ('\\' | '*' | '?')) => {
                out.extend((purpose == For::Pattern).then_some('\\'));
                out.push(char);
            }
            Some('x') => {
                let digits: String = chars.by_ref().take(2).map(|(_, digit)| digit).collect();
                let code = u8::from_str_radix(&digits, 16).ok();
                let ascii = code.filter(|code| digits.len() == 2 && code.is_ascii());
                out.push(ascii.map(char::from).ok_or_else(|| wrong(format!("x{digits}")))?);
            }
            other => return Err(wrong(other.into_iter().collect())),
        }
    }
    Ok(out)
}

#[derive(Debug)]
struct Token {
    kind: Kind,
    column: usize,
}

impl Token {
    const END: Self = Self { kind: Kind::End, column: 0 };
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Word(String),
    /// What stands between the quotes, with its escapes.
    Quoted(String),
    Operator(Operator),
    And,
    Or,
    Not,
    Open,
    Close,
    End,
}

impl Kind {
    fn shown(&self) -> String {
        match self {
            Self::Word(word) => format!("`{}`", cut(word)),
            Self::Quoted(text) => format!("\"{}\"", cut(text)),
            Self::Operator(operator) => format!("`{}`", operator.shown()),
            Self::And => "`&&`".to_owned(),
            Self::Or => "`||`".to_owned(),
            Self::Not => "`!`".to_owned(),
            Self::Open => "`(`".to_owned(),
            Self::Close => "`)`".to_owned(),
            Self::End => "the end".to_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Compare(Comparison),
    Fits { negated: bool },
    Regex,
}

impl Operator {
    const fn shown(self) -> &'static str {
        match self {
            Self::Compare(Comparison::Equal) => "==",
            Self::Compare(Comparison::NotEqual) => "!=",
            Self::Compare(Comparison::Less) => "<",
            Self::Compare(Comparison::LessOrEqual) => "<=",
            Self::Compare(Comparison::Greater) => ">",
            Self::Compare(Comparison::GreaterOrEqual) => ">=",
            Self::Fits { negated: false } => "~",
            Self::Fits { negated: true } => "!~",
            Self::Regex => "=~",
        }
    }
}

struct Lexer<'t> {
    rest: Chars<'t>,
    /// Of the next character.
    column: usize,
}

impl<'t> Lexer<'t> {
    fn new(text: &'t str) -> Self {
        Self { rest: text.chars(), column: 1 }
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn bump(&mut self) -> Option<char> {
        let char = self.rest.next()?;
        self.column += 1;
        Some(char)
    }

    fn token(&mut self) -> Result<Token, FilterError> {
        while self.peek().is_some_and(char::is_whitespace) {
            self.bump();
        }
        let column = self.column;
        let kind = match self.peek() {
            None => Kind::End,
            Some(char) if is_word(char) => Kind::Word(self.word()),
            Some(quote @ ('"' | '\'')) => Kind::Quoted(self.quoted(quote)?),
            Some(_) => self.operator()?,
        };
        Ok(Token { kind, column })
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(char) = self.peek().filter(|char| is_word(*char)) {
            word.push(char);
            self.bump();
        }
        word
    }

    fn quoted(&mut self, quote: char) -> Result<String, FilterError> {
        let begin = self.column;
        self.bump();
        let mut text = String::new();
        loop {
            match self.bump() {
                None => return Err(fail(begin, Problem::OpenText(quote))),
                Some(char) if char == quote => return Ok(text),
                Some('\\') => {
                    text.push('\\');
                    text.extend(self.bump());
                }
                Some(char) => text.push(char),
            }
        }
    }

    fn operator(&mut self) -> Result<Kind, FilterError> {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        let column = self.column;
        let first = self.bump();
        let mut followed_by = |second| {
            let follows = self.peek() == Some(second);
            if follows {
                self.bump();
            }
            follows
        };
        let half = |found, meant, does| fail(column, Problem::Operator { found, meant, does });
        let compare = |comparison| Kind::Operator(Operator::Compare(comparison));
        Ok(match first {
            Some('(') => Kind::Open,
            Some(')') => Kind::Close,
            Some('&') if followed_by('&') => Kind::And,
            Some('&') => return Err(half("&", "&&", "joins tests")),
            Some('|') if followed_by('|') => Kind::Or,
            Some('|') => return Err(half("|", "||", "joins tests")),
            Some('=') if followed_by('=') => compare(Equal),
            Some('=') if followed_by('~') => Kind::Operator(Operator::Regex),
            Some('=') => return Err(half("=", "==", "compares")),
            Some('!') if followed_by('=') => compare(NotEqual),
            Some('!') if followed_by('~') => Kind::Operator(Operator::Fits { negated: true }),
            Some('!') => Kind::Not,
            Some('<') if followed_by('=') => compare(LessOrEqual),
            Some('<') => compare(Less),
            Some('>') if followed_by('=') => compare(GreaterOrEqual),
            Some('>') => compare(Greater),
            Some('~') => Kind::Operator(Operator::Fits { negated: false }),
            other => {
                let found = format!("`{}`", other.unwrap_or(' '));
                let expected = "a name, a field, an operator or a literal";
                return Err(fail(column, Problem::Unexpected { expected, found }));
            }
        })
    }
}

/// Whether names, paths, patterns and numbers can hold this character.
fn is_word(char: char) -> bool {
    char.is_alphanumeric() || "_$:.*?@/-+%#[]".contains(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, expected: &str) {
        let error = parse(text).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text}");
    }

    #[test]
    fn errors_point_at_the_column() {
        refused("", "column 1: expected a name, a field, `!` or `(`, found the end");
        refused("a &&", "column 5: expected a name, a field, `!` or `(`, found the end");
        refused("a & b", "column 3: `&` is no operator; `&&` joins tests");
        refused("a | b", "column 3: `|` is no operator; `||` joins tests");
        refused("(a", "column 3: expected `)`, found the end");
        refused("a)", "column 2: expected `&&`, `||` or the end, found `)`");
        refused("a b", "column 3: expected `&&`, `||` or the end, found `b`");
        refused("ret = 3", "column 5: `=` is no operator; `==` compares");
        refused("ret ==", "column 7: expected a number, a text in quotes or a word, found the end");
        refused("ret == 12x", "column 8: `12x` is no number");
        refused("ret == 0x", "column 8: `0x` is no number");
        refused(
            "ret < 99999999999999999999",
            "column 7: 99999999999999999999 is outside of 64 bits",
        );
        refused("f == \"abc", "column 6: the text has no closing \"");
        refused(
            r#"f == "a\q""#,
            r#"column 8: `\q` is no escape; \\ \" \' \n \t \r \xNN are, and \* \? for patterns"#,
        );
        refused(
            "comm == swap*",
            "column 9: `swap*` is a pattern; `~` takes patterns, quotes make it a text",
        );
        refused(
            "prev_* == 3",
            "column 1: `prev_*` is a pattern; a field is written out; without an operator it is the name's pattern",
        );
        refused("ret ~ 3", "column 5: `~` compares with a text in quotes or a word");
        refused("é && 42", "column 6: expected a name or a field, found `42`");
        refused("has()", "column 5: expected a field, found `)`");
        refused(
            "ret == ;",
            "column 8: expected a name, a field, an operator or a literal, found `;`",
        );
        let regex = parse("comm =~ \"(\"").expect_err("half a group");
        assert_eq!(regex.column, 9);
        assert!(matches!(regex.problem, Problem::Regex(_)));
        let packet = parse("a && packet.cpu == 1").expect_err("no such thing");
        assert!(
            packet
                .to_string()
                .starts_with("column 6: `packet.cpu` cannot be tested; one of cpu_id,")
        );
    }

    #[test]
    fn length_and_depth_are_bounded() {
        let deep = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
        assert!(parse(&deep(MAX_DEPTH - 1)).is_ok());
        refused(&deep(MAX_DEPTH), "column 65: more than 64 levels of parentheses");
        assert!(parse(&"!".repeat(MAX_LEN)).is_err());
        refused(&"a".repeat(MAX_LEN + 1), "column 1: more than 65536 bytes");
        assert!(parse(&["a"; 10_000].join("||")).is_ok(), "a long row is not deep");
    }

    #[test]
    fn numbers_have_four_bases_and_fractions() {
        let value = |word| number(word).expect("begins with a digit");
        for (word, expected) in [
            ("42", 42),
            ("-7", -7),
            ("+7", 7),
            ("0x2a", 42),
            ("-0x2A", -42),
            ("0b101", 5),
            ("0o52", 42),
            ("18446744073709551615", i128::from(u64::MAX)),
        ] {
            assert_eq!(value(word), Ok(Literal::Integer(expected)), "{word}");
        }
        assert_eq!(value("1.5e3"), Ok(Literal::Float(1500.0)));
        assert!(value("18446744073709551616").is_err());
        assert_eq!(number("abc"), None);
    }
}
