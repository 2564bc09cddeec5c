// Package finding tells what breaks the protocol or contradicts the configuration, as taps
// show it: forged values, tags of senders that may not send any, locator metadata that
// nobody writes, ports that are stuck, devices that strip or insert tags. WriteReference
// writes the table of all kinds.
//
// It knows observations, the ends of packets without a tag, the place of a tap, which port
// a locator means, which ways packets may take, and the rows of windows that close. It must
// never know where frames come from, how windows are made, or where findings go. What only a
// pair of captures around a device can tell, package decode/conform does.
//
// # Who it is
//
// Where tags do not name a device, it is what the flows that something happened to have in
// common, and others not. Which of equal-cost paths a flow takes nobody says but the ports
// that its tags name: suspects are ports, the ports of a device with an orientation,
// devices, and senders, each weighed by how likely it makes what is seen. Who wrote as it
// should at the time is cleared. A finding names the smallest set that the evidence leaves.
//
// # What is not found
//
// A tag that is initial everywhere, trimmed, stripped at the boundary of the domain or not
// updated is no finding: networks may be idle, hops may fail open or pass tags through. What
// else receivers do not show is in the reference.
// What reads like a layout that is configured wrongly is one suggestion to change it,
// instead of all that follows from it. It is never changed.
package finding
