package emitter

// summaries say in one line what the scenarios of the library show.
var summaries = map[string]string{
	"demo":              "a training job on 12 of 16 racks, one rack with slow uplinks, and an incast",
	"quickstart":        "a ring in steps and an incast, in 4 seconds",
	"incast":            "six hosts send to one",
	"ring":              "an all-reduce ring in steps; the uplinks of rack 2 are slow",
	"alltoall":          "every host sends to every other one, in steps",
	"fabric-like":       "10 million packets that many observations share a cell of: what speeds are stated on",
	"worst-case":        "random flows and tags: nothing to aggregate, and no truth",
	"tree":              "an all-reduce over a binary tree",
	"pipeline":          "a model in four stages, one a rack; one link between stages is slow",
	"permutation":       "few large flows, of which ECMP puts two on some uplinks",
	"storage":           "transfers of heavy-tailed sizes between random pairs",
	"straggler":         "a ring whose steps jitter, and a host that is late in every other one",
	"probes":            "an incast that only probes between all hosts measure",
	"three-tier":        "four pods below a core, oversubscribed 2:1, with a job on all of them",
	"mixed-generations": "pods of three generations of speed and buffers, and side links",
	"fairness":          "three flows whose senders react to the delay of the worst hop",
	"fairness-e2e":      "three flows whose senders react to the round trip",
	"pony":              "a transport over UDP that reflects in its own header",
	"overlay":           "VXLAN between leaves: mid taps see the tag on the tunnel, receivers on the packet",
	"ipv6":              "hosts that talk IPv6, and some of them through SRv6 and Geneve",
	"vlans":             "jobs in VLANs, in stacks of them, and behind MACsec",
	"mirrors":           "ERSPAN sessions of types II and III instead of taps",
	"noisy-taps":        "taps that lose, duplicate and reorder frames, with clocks that drift",
}
