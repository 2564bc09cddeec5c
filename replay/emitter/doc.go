// Package emitter simulates a Clos fabric packet by packet and writes what taps
// would capture of it, together with the truth.
//
// It knows scenarios, queues, senders and receivers, and how switches update tags
// (draft-ravi-ippm-csig-01, sections 4.3 and 5). It must never know how
// observations are aggregated or stored: its truth is the oracle of those
// packages' tests and is computed from what the simulator itself did.
//
// The simulation is of discrete events in picoseconds. Every port is a first-in
// first-out queue with a speed and a buffer that drops its tail; packets are
// stored and forwarded. Because queues are first-in first-out and delays between
// ports are constant, a packet's times in a port are known when it enters, so a
// hop costs one event. All packets inside the network stay in the rings of their
// ports: memory follows the buffers of the fabric, not the duration of the run.
//
// Senders follow a rate or keep a congestion window; they send no packet twice, so
// that what is lost stays lost. A receiver acknowledges what it has.
//
// The same scenario gives the same bytes on every machine: times, rates and
// random numbers are integers throughout.
//
// # Frames and taps
//
// Frames are made only where a tap stands. gopacket writes the headers of each shape
// once; a frame is a copy with its fields set. Payloads are zeros. Host n of rack r
// is 10.0.r.n and fd00:c516:a:r::n; inside of tunnels between hosts, it is known as
// 10.128.r.n and fd00:c516:a:8000+r::n.
//
// A run writes, for each tap or for all of them, pcapng (nanoseconds, an interface for
// each tap with its name and a comment) or classic pcap (nanoseconds), as it is or in
// gzip or zstd; fabric.yaml, which package aggregate/fabric reads; and truth.ndjson,
// see below. Where Scenario.Counters asks for it, counters.csv says what ports measured, as
// package decode/conform reads it.
//
// A scenario file holds the fields of Scenario in YAML, as Dump writes it.
//
// # Fabrics and devices
//
// A fabric is leaves and spines, pods below a core, or a fabric file as the other
// commands read it; side links join neighbours. Flows take equal cost shortest paths,
// as aggregate/fabric assumes: of the ports that lead one link nearer to the receiver,
// the one that the device's hash of the 5-tuple names. Devices have complete native
// support unless Scenario.Devices or Scenario.Faults say otherwise; see Behavior for the
// kinds. A packet that finds a buffer full is dropped, or cut to its headers and queued
// behind the others where Scenario.TrimBuffer makes room for such packets.
//
// # The truth
//
// truth.ndjson has one JSON object a line; ReadTruth reads it. In order:
//
//   - kind header (TruthHeader): the scenario, units, and the definition of each number.
//   - kind device and fault (TruthBehavior): one for each port that behaves otherwise
//     than a complete device, or host that forges tags, with from and to.
//   - for each window, kind cell (TruthCell): what the tags and the reflections of one
//     signal between two racks say as they were written, after quantization and after
//     faults, and the mode of the bottleneck that follows from it. Where some device may
//     be unfaithful, or tags may be frozen, each line also has faithful, the same for what
//     devices with complete support would have written into the senders' tags with the
//     same queues (the true bottleneck), and agree, the number of observations in which
//     both are the same. A tag that names no port by what is configured is counted at
//     "lm:N". Stripped and discarded tags make no observation at all: ports count them.
//   - then kind port (TruthPort): load, bytes, longest queue, and packets dropped,
//     trimmed, discarded, stripped of their tag or given one.
//   - in the end, kind flow (TruthFlow): the ports that each connection's data and
//     acknowledgements passed, and where its packets are.
//
// Memory for the truth is bounded by the cells, ports and flows of the scenario: only two
// windows are kept at a time.
package emitter
