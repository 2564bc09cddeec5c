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
// The same scenario gives the same bytes on every machine: times, rates and
// random numbers are integers throughout.
package emitter
