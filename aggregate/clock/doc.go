// Package clock estimates the offset between the clocks of two taps, and their drift, from packets
// that both have seen.
//
// A packet that passes A and then B needs some time, never less than none. So B's timestamp minus
// A's is never below the offset between the clocks, except for timestamp errors; for packets that
// pass B first it is never above. Queues add to it, unevenly and by large amounts, so a mean or a
// median measures the queues. The envelope is reliable. The line of the offset over time lies below
// all packets of one direction and above all packets of the other, and the band between the two is
// as high as the least round trip. Its middle is the estimate; the lines that fit into the band
// bound the error, whatever the queues did.
//
// The band leaves room for many drifts. The packets that met no queue decide between them: those of
// one kind, such as one length, took equally long, so along the right line their distances pile up,
// as sharply as timestamps are right. Where queues never empty, packets pile up at full ones. That
// gives an estimate with a standard error, not a bound: if few packets meet no queue, steadily
// growing or falling load looks like a drift.
//
// A tag that B has seen and its reflection that A has seen later are a pair of the second
// direction; the receiver's holding time adds to the delay.
//
// It knows lines and points. It must never know packets, taps or how they were matched: a wrong
// match is a point like any other, and one that contradicts the others is an error.
package clock
