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
// one JSON object a line: TruthHeader, then for each window TruthCell and TruthPort.
//
// A scenario file holds the fields of Scenario in YAML, as Dump writes it.
package emitter
