//! What streams bring: packets and their index entries meet, are written in the order of their numbers, and what is lost of
//! them is noted.

use std::net::IpAddr;
use std::time::Instant;

use wire::live::DataHeader;
use wire::live::NetSeqNum;
use wire::live::PacketIndex;
use wire::live::RelativePath;
use wire::live::RelaySessionId;
use wire::live::StreamHandle;

use super::Recording;
use crate::chunk::Chunk;
use crate::env::Env;
use crate::error::Error;
use crate::error::Result;
use crate::journal;
use crate::losses::Loss;
use crate::losses::LossCause;
use crate::merge::Lost;
use crate::merge::Place;
use crate::merge::Refused;
use crate::merge::Step;
use crate::release::Released;
use crate::stream::Kind;
use crate::stream::Slot;
use crate::stream::Stream;

/// Where a packet comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    /// A data connection whose relay session is known.
    Session(RelaySessionId),
    /// One that has brought no packet yet, see [`crate::doors::Who::host`].
    Host(Option<IpAddr>),
}

/// What became of the packet that an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// It may still come.
    Waiting,
    /// Both are written, or nothing is waited for any more.
    Written,
    /// It will not come, and the producer can send it again.
    Lost,
}

impl Recording {
    /// A packet's header came.
    pub(crate) fn begin_packet(
        &mut self,
        env: &Env,
        from: Source,
        header: &DataHeader,
    ) -> Result<(RelaySessionId, Slot)> {
        let handle = header.stream;
        let sessions = &self.sessions;
        let is_its = |stream: &&mut Stream| match from {
            Source::Session(session) => session == stream.session,
            Source::Host(host) => {
                sessions.get(&stream.session).is_some_and(|session| session.host == host)
            }
        };
        let stream = self.streams.get_mut(&handle).filter(is_its);
        let stream = stream.ok_or(Error::UnknownStream { handle })?;
        if stream.kind == Kind::Metadata {
            return Err(Error::WrongKind { handle });
        }
        let chunk = stream.chunk.ok_or(Error::NoChunk { handle })?;
        let folder = self
            .chunks
            .get(&chunk)
            .map(|chunk| &chunk.folder)
            .ok_or(Error::UnknownChunk { chunk })?;
        let max = env.limits.unpaired_per_stream;
        stream
            .merge
            .packet_begins(header.net_seq_num, max)
            .map_err(|why| refused(why, handle, header.net_seq_num, max))?;
        let slot = match stream.slot(env, folder, header) {
            Ok(Some(slot)) => slot,
            other => {
                stream.merge.packet_cut_short();
                return Err(other.err().unwrap_or(Error::NoChunk { handle }));
            }
        };
        Ok((stream.session, slot))
    }

    /// The packet's bytes and padding are in its file.
    pub(crate) fn end_packet(
        &mut self,
        env: &Env,
        header: &DataHeader,
        slot: &Slot,
        now: Instant,
    ) -> Result<()> {
        let handle = header.stream;
        let can_resume = self.can_resume();
        let stream = self.streams.get(&handle).filter(|_| slot.pen.is_valid());
        let stream = stream.ok_or(Error::UnknownStream { handle })?;
        // Its producer was told that it is lost, and sends it again.
        let is_late = can_resume && stream.merge.is_late(header.net_seq_num);
        if is_late {
            self.stop_writing(env, handle)?;
        }
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        if !is_late {
            stream.grow(header.packet_len());
        }
        let indexed = stream.kind.is_indexed();
        stream.merge.packet_done(header.net_seq_num, slot.place, indexed, now);
        env.counters.packets.add(1);
        env.counters.packet_bytes.add(header.packet_len());
        self.settle(env, handle)?;
        self.shed(env, handle)
    }

    /// Gives up what a stream holds when all hold too much.
    fn shed(&mut self, env: &Env, handle: StreamHandle) -> Result<()> {
        if !env.halves.is_full() {
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        let steps = stream.merge.shed();
        let halves = steps.iter().filter(|step| !matches!(step, Step::Lost(Lost::Both(..))));
        env.counters.halves_given_up.add(halves.count() as u64);
        self.carry_out(env, handle, steps)
    }

    /// The connection ended inside the packet: what was written of it is cut off, unless the stream did that when it ended.
    pub(crate) fn cut_packet(
        &mut self,
        env: &Env,
        handle: StreamHandle,
        slot: &Slot,
    ) -> Result<()> {
        if !slot.pen.is_valid() {
            return Ok(());
        }
        let cut = self.stop_writing(env, handle);
        cut.and(self.settle(env, handle))
    }

    /// Takes the file of a stream from who writes to it, and cuts off what there is of a packet.
    pub(super) fn stop_writing(&mut self, env: &Env, handle: StreamHandle) -> Result<()> {
        let Some((stream, folder)) = self.stream_in_folder(handle) else { return Ok(()) };
        if stream.stop_writing(env, folder)? {
            env.counters.packets_cut_short.add(1);
        }
        Ok(())
    }

    /// Cuts off what its producer will send again.
    pub(super) fn cut_to_committed(&mut self, env: &Env, handle: StreamHandle) -> Result<()> {
        let Some((stream, folder)) = self.stream_in_folder(handle) else { return Ok(()) };
        stream.cut_to_committed(env, folder)
    }

    /// A stream, and the folder of the chunk it is in.
    fn stream_in_folder(&mut self, handle: StreamHandle) -> Option<(&mut Stream, &RelativePath)> {
        let stream = self.streams.get_mut(&handle)?;
        let chunk = self.chunks.get(&stream.chunk?)?;
        Some((stream, &chunk.folder))
    }

    /// Takes an index entry; says what became of its packet.
    pub(crate) fn index(
        &mut self,
        env: &Env,
        session: RelaySessionId,
        index: PacketIndex,
        now: Instant,
    ) -> Result<Awaited> {
        let handle = index.handle;
        let stream = self.own(session, handle)?;
        if index.is_beacon() {
            env.counters.beacons.add(1);
            self.release(env, handle, &Released::Beacon(index))?;
            return Ok(Awaited::Written);
        }
        if !stream.kind.is_indexed() {
            return Err(Error::WrongKind { handle });
        }
        if stream.chunk.is_none() {
            return Err(Error::NoChunk { handle });
        }
        let max = env.limits.unpaired_per_stream;
        stream
            .merge
            .index(index, max, now)
            .map_err(|why| refused(why, handle, index.net_seq_num, max))?;
        self.settle(env, handle)?;
        self.shed(env, handle)?;
        Ok(self.awaited(session, handle, index.net_seq_num))
    }

    /// What became of the packet of an entry. One that was lost counts as such only where its producer sends it again.
    pub(crate) fn awaited(
        &self,
        session: RelaySessionId,
        handle: StreamHandle,
        number: NetSeqNum,
    ) -> Awaited {
        let data_is_gone = self.sessions.get(&session).is_none_or(|session| session.data_is_gone);
        match self.streams.get(&handle) {
            None if self.can_resume() => Awaited::Lost,
            Some(stream) if stream.merge.has_lost(number) && self.can_resume() => Awaited::Lost,
            Some(stream) if stream.merge.is_resolved(number) => Awaited::Written,
            Some(_) if data_is_gone && self.can_resume() => Awaited::Lost,
            Some(_) => Awaited::Waiting,
            None => Awaited::Written,
        }
    }

    /// Whether its producer said that it comes back and sends again what was not acknowledged.
    pub(crate) fn can_resume(&self) -> bool {
        self.resume.as_ref().is_some_and(|present| present.can_resume)
    }

    /// Does what the stream's halves allow, then lets the stream go if it is closed and complete.
    pub(crate) fn settle(&mut self, env: &Env, handle: StreamHandle) -> Result<()> {
        loop {
            let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
            match stream.merge.step() {
                Step::Wait => break,
                step => self.try_step(env, handle, step)?,
            }
        }
        let Some(stream) = self.streams.get(&handle) else { return Ok(()) };
        self.feed.settled(stream.shown, stream.merge.lowest_waiting(), stream.merge.last_index());
        match stream.closing {
            Some(last) if stream.merge.is_complete(last, false) => self.drop_stream(env, handle),
            _ => Ok(()),
        }
    }

    /// Does what can be done for the streams of a session, after the disk had no room for it.
    pub(crate) fn go_on(&mut self, env: &Env, session: RelaySessionId) -> Result<()> {
        let own = self.streams.iter().filter(|(_, stream)| stream.session == session);
        let own: Vec<StreamHandle> = own.map(|(handle, _)| *handle).collect();
        own.into_iter().try_for_each(|handle| self.settle(env, handle))
    }

    /// Does a step. An entry for which the disk has no room waits for the next time.
    fn try_step(&mut self, env: &Env, handle: StreamHandle, step: Step) -> Result<()> {
        match (self.carry_out(env, handle, [step]), step) {
            (Err(error), Step::Commit(..)) if error.is_no_room() => {
                if let Some(stream) = self.streams.get_mut(&handle) {
                    stream.merge.put_back(step);
                }
                Err(error)
            }
            (Err(error), Step::Commit(place, index)) => {
                self.entry_failed(env, handle, (place, &index), &error)
            }
            (done, _) => done,
        }
    }

    /// An entry that cannot be written is one that never came: sealing makes it from the packet, whose bytes are there.
    pub(super) fn entry_failed(
        &mut self,
        env: &Env,
        handle: StreamHandle,
        (place, index): (Place, &PacketIndex),
        error: &Error,
    ) -> Result<()> {
        let (number, error) = (index.net_seq_num, error as &dyn std::error::Error);
        tracing::error!(%handle, packet = %number, error, "cannot write an index entry");
        self.carry_out(env, handle, [Step::Lost(Lost::Index(number, place))])
    }

    pub(super) fn carry_out(
        &mut self,
        env: &Env,
        handle: StreamHandle,
        steps: impl IntoIterator<Item = Step>,
    ) -> Result<()> {
        for step in steps {
            match step {
                Step::Wait => {}
                Step::Rotate(at) => self.follow_rotation(env, handle, at)?,
                Step::Commit(place, entry) => {
                    self.release(env, handle, &Released::Packet(place, entry))?;
                }
                Step::Lost(lost) => self.release(env, handle, &Released::Lost(lost))?,
            }
        }
        Ok(())
    }

    /// The one way of what a stream brought to those who read it: packets whose bytes are written and packets that
    /// were lost, in the order of their numbers, and beacons as they come. When it returns, an entry is written.
    fn release(&mut self, env: &Env, handle: StreamHandle, released: &Released) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        let chunk = stream.chunk.and_then(|chunk| self.chunks.get_mut(&chunk));
        match released {
            Released::Packet(place, entry) => {
                let written = match &chunk {
                    Some(chunk) => stream.append_index(env, &chunk.folder, *place, entry)?,
                    None => false,
                };
                let written = if written {
                    stream.show(env, *place, entry);
                    &env.counters.index_entries
                } else {
                    self.feed.pass(stream.shown, entry);
                    &env.counters.beyond_last_chunk
                };
                written.add(1);
            }
            Released::Lost(lost) => count_lost(env, handle, lost),
            Released::Beacon(beacon) => {
                self.feed.beacon(stream.shown, beacon);
                self.feed.settled(
                    stream.shown,
                    stream.merge.lowest_waiting(),
                    stream.merge.last_index(),
                );
            }
        }
        let losses = stream.meter.read(released);
        let by_network = losses.iter().filter(|loss| loss.cause.is_network());
        let by_network = by_network.map(|loss| loss.count).fold(0, u64::saturating_add);
        if by_network > 0 {
            self.feed.lost_by_network(&stream.path_in_chunk(), by_network);
        }
        match chunk {
            Some(chunk) if !losses.is_empty() => {
                note_losses(env, chunk, &stream.path_in_chunk(), losses)
            }
            _ => Ok(()),
        }
    }
}

fn refused(why: Refused, handle: StreamHandle, found: NetSeqNum, limit: usize) -> Error {
    match why {
        Refused::NotAfter(last) => Error::NotIncreasing { handle, found, last },
        Refused::InFlight => Error::WithinPacket { handle, found },
        Refused::Full => Error::Limit { what: "unpaired packets of a stream", limit },
    }
}

/// Notes losses in the chunk and, for the time after a crash, in its journal as soon as there is room for that.
fn note_losses(
    env: &Env,
    chunk: &mut Chunk,
    stream: &RelativePath,
    losses: Vec<Loss>,
) -> Result<()> {
    for loss in losses {
        match loss.cause {
            LossCause::TracerPackets => env.counters.tracer_packets_lost.add(loss.count),
            LossCause::TracerEvents => env.counters.tracer_events_discarded.add(loss.count),
            LossCause::Network | LossCause::PacketNeverCame | LossCause::IndexNeverCame => {}
        }
        let is_noted = chunk.losses.add(stream.clone(), loss, env.limits.losses_per_chunk);
        if is_noted {
            chunk.losses_to_note.push_back((stream.clone(), loss));
        }
    }
    let Some(number) = chunk.journal else { return Ok(()) };
    while let Some((stream, loss)) = chunk.losses_to_note.front() {
        match journal::append_loss(&env.root, number, stream, loss) {
            Err(error) if error.is_no_room() => return Ok(()),
            noted => noted?,
        }
        chunk.losses_to_note.pop_front();
    }
    Ok(())
}

fn count_lost(env: &Env, handle: StreamHandle, lost: &Lost) {
    let (first, last) = lost.numbers();
    match lost {
        Lost::Both(..) => {
            env.counters.packets_never_came.add((last.get() - first.get()).saturating_add(1));
            tracing::warn!(%handle, %first, %last, "packets and their index entries never came");
        }
        Lost::Index(..) => {
            env.counters.packets_without_index.add(1);
            tracing::warn!(%handle, packet = %first, "the index entry of a packet never came");
        }
        Lost::Packet(..) => {
            env.counters.indexes_without_packet.add(1);
            tracing::warn!(%handle, packet = %first, "the packet of an index entry never came");
        }
    }
}
