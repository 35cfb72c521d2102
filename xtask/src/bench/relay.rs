//! `cargo xtask bench relay`: what a relay costs, ours against lttng-relayd, fed by one producer that does what
//! lttng-consumerd does: packet on the data connection, index entry on the control connection, wait for its reply.
//!
//! Two figures: CPU seconds of the relay's process per GB of 64 KiB packets, and microseconds from one 4 KiB packet to the
//! next. Sealing and destroying are outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use testkit::lttng::RelayDaemon;
use wire::live::{
    AddStream, AddStreamReply, ChunkId, CreateSession, CreateSessionReply, CreateTraceChunk,
    DataHeader, DataPending, Decoded, FullIndexFields, Name, NetSeqNum, PacketIndex, PacketSeqNum,
    PendingReply, ProtocolMinor, RelativePath, Request, ReturnReply, SendMetadata, SessionIdentity,
    SessiondSessionId, SessiondUuid, StreamHandle, UnixSeconds, Version,
};

use super::measure::{self, Rounds};

/// Streams the packets go to in turn.
const STREAMS: u64 = 4;
/// What lttng-relayd 2.13 and ours both speak.
const MINOR: ProtocolMinor = ProtocolMinor(13);
const PATIENCE: Duration = Duration::from_secs(60);

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Packets of 64 KiB, in MB
    #[arg(long, default_value_t = 2000)]
    megabytes: u64,
    /// Packets of 4 KiB
    #[arg(long, default_value_t = 50_000)]
    packets: u64,
    /// Rounds of each program
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    let large = args.megabytes * 1_000_000 / (64 << 10);
    let mut figures: [[Vec<f64>; 3]; 2] = Default::default();
    for _ in 0..args.rounds {
        for ([per_gb, per_packet, cpu_per_packet], which) in
            figures.iter_mut().zip([Which::Ours(&args.binary), Which::Reference])
        {
            let cost = Running::start(which)?.feed(64 << 10, large)?;
            let gigabytes = (large * (64 << 10)) as f64 / 1e9;
            per_gb.push(cost.cpu.as_secs_f64() / gigabytes);
            let cost = Running::start(which)?.feed(4 << 10, args.packets)?;
            per_packet.push(cost.wall.as_secs_f64() * 1e6 / args.packets as f64);
            cpu_per_packet.push(cost.cpu.as_secs_f64() * 1e6 / args.packets as f64);
        }
    }
    let [ours, theirs] = figures;
    let names = [
        "CPU seconds per GB at 64 KiB",
        "µs per 4 KiB packet, end to end",
        "µs of CPU per 4 KiB packet",
    ];
    for ((name, ours), theirs) in names.iter().zip(ours).zip(theirs) {
        report(name, &Rounds::new(ours)?, &Rounds::new(theirs)?);
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
fn report(name: &str, ours: &Rounds, theirs: &Rounds) {
    println!("{name}");
    for (who, rounds) in [("throughline relay", ours), ("lttng-relayd", theirs)] {
        let (low, high) = rounds.spread();
        println!("  {who:<20} {:>8.3} (from {low:.3} to {high:.3})", rounds.median());
    }
    println!("  ratio {:.2}", ours.median() / theirs.median());
}

#[derive(Clone, Copy)]
pub(super) enum Which<'a> {
    Ours(&'a Path),
    Reference,
}

/// A relay in a process of its own, writing to a folder of its own. It ends with this value.
pub(super) enum Running {
    Ours {
        process: Child,
        control: SocketAddr,
        data: SocketAddr,
        viewers: SocketAddr,
        _folder: tempfile::TempDir,
    },
    Reference(RelayDaemon),
}

impl Running {
    pub(super) fn start(which: Which<'_>) -> anyhow::Result<Self> {
        Ok(match which {
            Which::Ours(binary) => Self::start_ours(binary)?,
            Which::Reference => Self::Reference(RelayDaemon::start()?),
        })
    }

    fn start_ours(binary: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut process = Command::new(binary)
            .args([
                "relay",
                "--control",
                "127.0.0.1:0",
                "--data",
                "127.0.0.1:0",
                "--live",
                "127.0.0.1:0",
                "--output",
            ])
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| binary.display().to_string())?;
        let mut line = String::new();
        let stderr = process.stderr.take().context("no standard error")?;
        BufReader::new(stderr).read_line(&mut line)?;
        let address = |name: &str| -> anyhow::Result<SocketAddr> {
            let rest = line.split_once(name).with_context(|| line.clone())?.1;
            let text = rest.split(',').next().unwrap_or(rest).trim();
            text.parse().with_context(|| line.clone())
        };
        let (control, data) = (address("control ")?, address("data ")?);
        let viewers = address("viewers ")?;
        Ok(Self::Ours { process, control, data, viewers, _folder: folder })
    }

    fn pid(&self) -> u32 {
        match self {
            Self::Ours { process, .. } => process.id(),
            Self::Reference(daemon) => daemon.pid(),
        }
    }

    /// Where control and data connections are taken.
    pub(super) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        match self {
            Self::Ours { control, data, .. } => (*control, *data),
            Self::Reference(daemon) => (daemon.control(), daemon.data()),
        }
    }

    /// Where viewers are taken.
    pub(super) fn viewers(&self) -> SocketAddr {
        match self {
            Self::Ours { viewers, .. } => *viewers,
            Self::Reference(daemon) => daemon.live(),
        }
    }

    /// Sends `count` packets of `size` bytes; gives the relay's CPU time and the wall time for them.
    fn feed(self, size: usize, count: u64) -> anyhow::Result<measure::Cost> {
        let (control, data) = self.addresses();
        let mut producer = Producer::connect(control, data)?;
        let streams = producer.open()?;
        let mut packet = vec![0x5a; 32 + size];
        let before = measure::cpu_of_process(self.pid())?;
        let begin = Instant::now();
        for number in 0..count {
            let stream = streams.get(usize::try_from(number % STREAMS)?).context("a stream")?;
            producer.send(*stream, number / STREAMS, &mut packet)?;
        }
        for (stream, place) in streams.iter().zip(0..) {
            let sent = (count + STREAMS - 1 - place) / STREAMS;
            producer.wait_for(*stream, NetSeqNum::new(sent.wrapping_sub(1)))?;
        }
        let wall = begin.elapsed();
        let cpu = measure::cpu_of_process(self.pid())?.saturating_sub(before);
        Ok(measure::Cost { cpu, wall })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Ours { process, .. } = self {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

/// The client side of one relay session.
pub(crate) struct Producer {
    control: TcpStream,
    data: TcpStream,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Producer {
    pub(crate) fn connect(control: SocketAddr, data: SocketAddr) -> anyhow::Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let connect = |address| loop {
            match TcpStream::connect(address) {
                Ok(stream) => return Ok(stream),
                Err(error) if Instant::now() > deadline => {
                    return Err(error).context("the relay does not listen");
                }
                Err(_) => std::thread::park_timeout(Duration::from_millis(10)),
            }
        };
        let control = connect(control)?;
        control.set_nodelay(true)?;
        control.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { control, data: connect(data)?, request: Vec::new(), reply: Vec::new() })
    }

    /// A session with one chunk and its streams.
    pub(crate) fn open(&mut self) -> anyhow::Result<Vec<StreamHandle>> {
        let version = Version { major: 2, minor: MINOR };
        self.ask(&Request::Version(version), Version::decode)?;
        let session = Request::CreateSession(CreateSession {
            session_name: Some(Name::new("bench")?),
            hostname: Some(Name::new("host")?),
            live_timer_us: 0,
            snapshot: false,
            identity: Some(SessionIdentity {
                base_path: RelativePath::default(),
                name_has_creation_time: false,
                sessiond: SessiondUuid([1; 16]),
                sessiond_session: SessiondSessionId::new(1),
                created: UnixSeconds::new(1_795_191_738),
                current_chunk: None,
                trace_format: None,
            }),
        });
        let reply = self.ask(&session, |bytes| CreateSessionReply::decode(bytes, MINOR))?;
        ensure!(reply.code.is_ok(), "CREATE_SESSION: {}", reply.code);
        self.ok(&Request::CreateTraceChunk(CreateTraceChunk {
            chunk: ChunkId::new(0),
            created: UnixSeconds::new(1_795_191_738),
            override_name: None,
        }))?;
        let mut streams = Vec::new();
        for cpu in 0..STREAMS {
            streams.push(self.add_stream(&format!("ch_{cpu}"))?);
        }
        self.ok(&Request::StreamsSent)?;
        Ok(streams)
    }

    /// A stream of metadata with all there are.
    pub(crate) fn metadata(&mut self, text: &[u8]) -> anyhow::Result<()> {
        let handle = self.add_stream("metadata")?;
        let request = Request::SendMetadata(SendMetadata { handle, padding_len: 0, bytes: text });
        self.request.clear();
        request.encode(MINOR, &mut self.request)?;
        Ok(self.control.write_all(&self.request)?)
    }

    fn add_stream(&mut self, channel: &str) -> anyhow::Result<StreamHandle> {
        let request = Request::AddStream(AddStream {
            channel: Name::new(channel)?,
            path: RelativePath::new("ust/uid/0/64-bit")?,
            tracefile: None,
            chunk: Some(ChunkId::new(0)),
        });
        let reply = self.ask(&request, AddStreamReply::decode)?;
        ensure!(reply.code.is_ok(), "ADD_STREAM: {}", reply.code);
        Ok(reply.handle)
    }

    /// One packet and its entry; `packet` has room for the header in front.
    pub(crate) fn send(
        &mut self,
        handle: StreamHandle,
        number: u64,
        packet: &mut [u8],
    ) -> anyhow::Result<()> {
        let Some((front, body)) = packet.split_first_chunk_mut() else { bail!("no room") };
        let header = DataHeader {
            stream: handle,
            net_seq_num: NetSeqNum::new(number),
            data_len: u32::try_from(body.len())?,
            padding_len: 0,
        };
        *front = header.encode();
        let bits = body.len() as u64 * 8;
        self.data.write_all(packet)?;
        self.ok(&Request::SendIndex(PacketIndex {
            handle,
            net_seq_num: NetSeqNum::new(number),
            packet_size_bits: bits,
            content_size_bits: bits,
            timestamp_begin: number,
            timestamp_end: number,
            events_discarded: 0,
            stream_class_id: 0,
            full: Some(FullIndexFields {
                stream_instance_id: 0,
                packet_seq_num: PacketSeqNum::new(number),
            }),
        }))
    }

    fn wait_for(&mut self, handle: StreamHandle, last: NetSeqNum) -> anyhow::Result<()> {
        let request = Request::DataPending(DataPending { handle, last });
        while self.ask(&request, PendingReply::decode)? != PendingReply::Complete {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn ok(&mut self, request: &Request<'_>) -> anyhow::Result<()> {
        let ReturnReply(code) = self.ask(request, ReturnReply::decode)?;
        ensure!(code.is_ok(), "{}: {code}", request.command());
        Ok(())
    }

    fn ask<T>(
        &mut self,
        request: &Request<'_>,
        decode: impl Fn(&[u8]) -> wire::live::Result<Decoded<T>>,
    ) -> anyhow::Result<T> {
        self.request.clear();
        request.encode(MINOR, &mut self.request)?;
        self.control.write_all(&self.request)?;
        self.reply.clear();
        loop {
            match decode(&self.reply)? {
                Decoded::Complete { value, .. } => return Ok(value),
                Decoded::Incomplete { needed } => {
                    let missing = needed - self.reply.len();
                    let read = (&self.control).take(missing as u64).read_to_end(&mut self.reply)?;
                    ensure!(read == missing, "the relay closed the connection");
                }
            }
        }
    }
}
