// Package clock estimates the offset between the clocks of two taps, and their drift, from packets
// that both have seen.
//
// A packet that passes A and then B never takes a negative time. So B's timestamp minus A's is never
// below the offset between the clocks, except for timestamp errors; for packets that pass B first it
// is never above. Queues change this difference unevenly and by large amounts, so its mean or median
// measures the queues. Its extremes do not: the line of the offset over time lies below all packets
// of one direction and above all packets of the other, and the band between the two is as high as the
// least round trip. The middle of the band is the estimate; the lines that fit into the band bound the
// error, whatever the queues did.
//
// Lines with many drifts fit into the band. The packets that met no queue decide between them: those
// of one kind, such as one length, took equally long, so their distances from the right line are
// equal except for timestamp errors. Where queues never empty, those that met full ones decide. That
// gives an estimate with a standard error, not a bound: if few packets meet no queue, steadily
// growing or falling load looks like a drift.
//
// A tag that B has seen and its reflection that A has seen later are a pair of the second
// direction; the receiver's holding time adds to the delay.
//
// It knows lines and points. It must never know packets, taps or how they were matched: a wrong
// match is a point like any other, and one that contradicts the others is an error.
package clock
