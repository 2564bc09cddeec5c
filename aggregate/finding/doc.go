// Package finding reports violations of the protocol and contradictions to the configuration in the
// observations of taps: forged values, tags of senders that may not send any, locator metadata that
// no port writes, stuck ports, devices that strip or insert tags, and faults of the taps
// themselves. A Detector sees all observations of captures. A Watcher sees the unusual observations
// of one shard and its closing windows. Both apply one table of rules to single observations. A
// Watcher of live packets also checks its tap. WriteReference writes the table of all kinds.
//
// It knows observations, the endpoints of untagged packets, the place of a tap, the ports of
// locators, the possible paths of packets, and the rows of closing windows. It must never know
// where frames come from, how windows are made, or where findings go. Package decode/conform judges
// faults that only a pair of captures around a device shows.
//
// # Finding the culprit
//
// If tags do not name a device, the culprit is the common element of the affected flows that other
// flows do not share. Only the ports that a flow's tags name show which of the equal-cost paths it
// takes. Suspects are ports, the ports of a device with an orientation, devices, and senders, each
// weighed by the likelihood of the observations. A suspect that wrote correct values at the time is
// cleared. A finding names the smallest set that the evidence allows.
//
// A sender is cleared of an unknown locator if a tap nearer to the sender sees the same flows without
// it. The TTL shows which tap is nearer. One farther away proves nothing, since an edge between them may
// have reset the values.
//
// TestFaults of package replay (make accuracy) injects each kind of fault into 7 scenarios of 1 s,
// and looks for it twice: with the taps of receivers alone, and with those of senders as well. Tags
// show the fault in 254 of these runs. The likelihoods find it in 251, and in 249 with its location. Of
// the 671 findings of all runs, 667 name the fault and its location, or a few locations of which it is
// one; 4 name the fault alone, and none a wrong location.
//
// A simpler rule names the ports that all affected paths share, without those that a clean flow
// surely passes; then sets, devices and senders. It finds less and blames sound elements, for two
// reasons. A fault that affects only some packets, such as a changed type, leaves clean flows behind
// the same port. And a forger's flows share ports elsewhere on their way, which the rule blames
// instead.
//
// # Stuck ports of few codes
//
// A port that is stuck on one of 32 codes writes the same as a sound port with a steady load or a
// full queue. In 2 of 19 scenarios without faults (locators that name ports, 2 seeds, 4 s),
// sound ports have one heavy value for 3 s. With flows of a constant 950 Mbit/s, all loaded
// ports of 1 Gbit/s do, in 8,100 of 8,100 packets. Neither the time nor the number of packets
// distinguishes them. A contradiction does: a queue that is never empty leaves no bandwidth. So a
// delay with few codes is stuck only while the same port reports available bandwidth. That finds a
// stuck delay of 5 ms in 7 of 8 scenarios, whether the bandwidth beside it is true or stuck as
// well, and nothing in the sound ones. In the eighth all bandwidth is used up at times.
//
// # Not found
//
// A tag that is initial everywhere, trimmed, stripped at the boundary of the domain or not updated
// is no finding: networks may be idle, and hops may fail open or pass tags through. The reference
// lists the other faults that receivers do not show. If tags read like those of a wrongly
// configured layout, one finding suggests to change it, in place of all consequences. The package
// never changes it.
package finding
