// Package clock tells how far the clocks of two taps are apart, and how fast they drift,
// from packets that both have seen.
//
// A packet that passes A and then B needs some time on its way, never less than none. So
// what B's clock showed less what A's did is never below the offset between the clocks,
// but for the error of the timestamps; of packets that pass B first it is never above.
// Queues make it more, by much and unevenly: a mean or a median measures the queues. What
// holds is the envelope. The line that is the offset over time lies below all packets of
// one direction and above all of the other, and the band between the two is as high as
// the least round trip. Its middle is the estimate; the lines that fit into the band bound
// the error, whatever the queues did.
//
// The band leaves room for many drifts. Which of them is right is told by the packets that met
// no queue: those of one kind, as of one length, took equally long, so that along the right
// line their distances pile up, as sharply as timestamps are right. Where no queue ever
// empties, packets pile up at full ones. That is an estimate with a standard error, no bound:
// load that grows or falls all along looks as a drift does where few packets meet no queue.
//
// A tag that B has seen and its reflection that A has seen later are a pair of the second
// kind: the time that the receiver held it adds to the way.
//
// The package knows lines and points. It must never know packets, taps or how they were
// matched: a wrong match is a point like any other, and one that contradicts the others
// is an error.
package clock
