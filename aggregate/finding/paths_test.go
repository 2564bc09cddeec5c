package finding

import (
	"strings"
	"testing"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestPaths: faults of flows are found, and blamed on the common element; similar observations
// without a fault are not reported.
func TestPaths(t *testing.T) {
	t.Parallel()
	strips := func(by func(closFlow) bool) func(*network) {
		return func(n *network) { n.tag = func(_ int, f closFlow, _ *csig.Tag) bool { return !by(f) } }
	}
	bySpine2 := func(f closFlow) bool { return f.spine == 2 }
	for _, test := range []struct {
		name string
		set  func(*network)
		want string
	}{
		{"nothing", func(*network) {}, ""},
		{"a spine strips", strips(bySpine2), "stripped-flows spine2"},
		{"one port strips", strips(func(f closFlow) bool { return f.spine == 2 && f.dst[0] == 3 }), "stripped-flows spine2:down3"},
		{"a leaf strips what its hosts send", strips(func(f closFlow) bool { return f.src[0] == 1 }), "stripped-flows leaf1"},
		{"it strips for a rack", strips(func(f closFlow) bool { return f.dst[0] == 3 }), ""},
		{"a host tags nothing beyond its rack", strips(func(f closFlow) bool { return f.src == [2]int{1, 1} }), ""},
		{"some flows of all senders have none", strips(func(f closFlow) bool { return (f.src[0]+2*f.src[1]+f.dst[0]+f.spine)%3 == 0 }), ""},
		{"a spine tags what senders do not", func(n *network) {
			n.barely = func(f closFlow) bool { return f.src[1] == 1 && f.src[0] != f.dst[0] }
			n.tag = func(_ int, f closFlow, _ *csig.Tag) bool { return !n.barely(f) || f.spine == 2 }
			n.watch = true
		}, "rogue-insertion spine2"},
		{"two uplinks write each other's locators", func(n *network) {
			n.tag = func(_ int, _ closFlow, tag *csig.Tag) bool {
				switch tag.LM {
				case upID(1, 1):
					tag.LM = upID(1, 2)
				case upID(1, 2):
					tag.LM = upID(1, 1)
				}
				return true
			}
		}, "swapped-locators leaf1"},
		{"packets are spread over spines", func(n *network) {
			n.tag = func(i int, f closFlow, tag *csig.Tag) bool {
				if i%4 > 1 { // by the other spine
					moved(f, tag)
				}
				return true
			}
		}, ""},
		{"flows move to the other spine", func(n *network) {
			n.tag = func(i int, f closFlow, tag *csig.Tag) bool {
				if i > 40+f.number {
					moved(f, tag)
				}
				return true
			}
		}, ""},
		{"a spine changes the type of tags", func(n *network) {
			sent := map[closFlow]int{}
			n.mark = func(f closFlow, o *decode.Observation) {
				if sent[f]++; sent[f]%2 == 0 && (f.spine != 2 || f.src[0] == f.dst[0]) {
					o.Tag.T, o.Tag.S, o.Tag.LM = 3, 0, 0
				}
			}
		}, "type-changed spine2"},
		{"senders choose types by destination", func(n *network) {
			sent := map[closFlow]int{}
			n.mark = func(f closFlow, o *decode.Observation) {
				if sent[f]++; f.dst[1] == 1 && sent[f]%2 == 0 {
					o.Tag.T, o.Tag.S, o.Tag.LM = 3, 0, 0
				}
			}
		}, ""},
		{"a spine freezes whole packets", func(n *network) {
			n.mark = func(f closFlow, o *decode.Observation) {
				o.Bytes, o.Tag.D = 1500, f.spine == 2 && f.src[0] != f.dst[0]
			}
		}, "trim-invented spine2"},
		{"a spine trims packets", func(n *network) {
			n.mark = func(f closFlow, o *decode.Observation) {
				if o.Bytes = 1500; f.spine == 2 && f.src[0] != f.dst[0] && o.Packet%2 == 0 {
					o.Bytes, o.Tag.D = 90, true
				}
			}
		}, ""},
		{"some flows have no tags, as a tap sees", func(n *network) {
			n.barely = func(f closFlow) bool { return f.spine == 2 && f.src[0] != f.dst[0] }
			n.tag = func(_ int, f closFlow, _ *csig.Tag) bool { return !n.barely(f) }
			n.watch = true
		}, ""},
		{"some flows have no tags from some time on, as a tap sees", func(n *network) {
			n.barely = func(f closFlow) bool { return n.packets > 1800 && f.spine == 2 && f.src[0] != f.dst[0] }
			n.tag = func(_ int, f closFlow, _ *csig.Tag) bool { return !n.barely(f) }
			n.watch = true
		}, ""},
		{"a spine strips from some time on, as a tap sees", func(n *network) {
			n.tag = func(_ int, f closFlow, _ *csig.Tag) bool { return n.packets <= 1800 || f.spine != 2 }
			n.watch = true
		}, "stripped-flows spine2"},
		{"a spine sets reserved bits", func(n *network) {
			n.mark = func(f closFlow, o *decode.Observation) {
				if f.spine == 2 && f.src[0] != f.dst[0] {
					o.Tag.R = 1
				}
			}
		}, "reserved-bits spine2"},
		{"a sender sets reserved bits", func(n *network) {
			n.mark = func(f closFlow, o *decode.Observation) {
				if f.src == [2]int{2, 1} {
					o.Tag.R = 1
				}
			}
		}, "reserved-bits"},
		{"a spine tags twice", func(n *network) {
			n.mark = func(f closFlow, o *decode.Observation) {
				if f.spine == 2 && f.src[0] != f.dst[0] && o.Packet%2 == 0 {
					o.Flags |= decode.Orphan
				}
			}
		}, "orphan-tag spine2"},
		{"a port writes another locator", func(n *network) {
			n.tag = func(_ int, f closFlow, tag *csig.Tag) bool {
				if tag.LM == upID(1, 2) {
					tag.LM = 7
				}
				return true
			}
		}, "unknown-locator leaf1:up2"},
		{"a spine writes values without locators", func(n *network) {
			n.tag = func(_ int, f closFlow, tag *csig.Tag) bool {
				if tag.LM == downID(2, f.dst[0]) {
					tag.LM = 0
				}
				return true
			}
		}, "unknown-locator spine2"},
		{"and a host forges with that locator", func(n *network) {
			n.tag = func(i int, f closFlow, tag *csig.Tag) bool {
				switch {
				case f.src == [2]int{1, 1} && i%2 == 0:
					tag.LM, tag.S = 0, forgedDelay
				case i >= 86 && tag.LM == downID(2, f.dst[0]):
					tag.LM = 0
				}
				return true
			}
		}, "forged-value, scrub-failure leaf1, unknown-locator spine2"},
		{"a host forges, its edge does not scrub", forges, "forged-value, scrub-failure leaf1"},
		{"and a tap sees it at the host", func(n *network) { forges(n); n.watch = true }, "forged-value, scrub-failure leaf1"},
		{"a host forges, its edge scrubs", func(n *network) { n.watch, n.forger = true, true }, "forged-value"},
		{"a host forges what its uplink may write", func(n *network) {
			n.watch, n.forger = true, true
			n.lm = func(f closFlow) uint16 { return upID(1, f.spine) }
			n.tag = func(i int, f closFlow, tag *csig.Tag) bool {
				if f.src == [2]int{1, 1} && i%2 == 0 {
					tag.LM, tag.S = upID(1, f.spine), forgedDelay
				}
				return true
			}
		}, "forged-value, scrub-failure leaf1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			test.set(n)
			n.mesh(90)
			if got := n.found(); got != test.want {
				t.Errorf("found %q, want %q", got, test.want)
				for _, f := range n.Findings() {
					t.Logf("%s %s %v: %s", f.Kind, f.Subject, f.Candidates, f.Evidence)
				}
			}
		})
	}
}

// TestLostTags: untagged packets lost their tags if a tap at the sender saw fewer of them.
func TestLostTags(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		sent, got traffic
		want      uint64
	}{
		{"all", traffic{tagged: 100}, traffic{data: 100}, 100},
		{"the sender tags some", traffic{tagged: 100, data: 200}, traffic{tagged: 100, data: 200}, 0},
		{"some of these lose them", traffic{tagged: 100, data: 200}, traffic{tagged: 40, data: 260}, 60},
		{"tagged packets are dropped", traffic{tagged: 1000, data: 200}, traffic{tagged: 600, data: 200}, 0},
		{"acknowledgements have none", traffic{tagged: 100, untagged: 50}, traffic{tagged: 100, untagged: 50}, 0},
		{"the tap at the sender begins late", traffic{tagged: 50, data: 100}, traffic{tagged: 100, data: 200}, 0},
		{"and tags are lost", traffic{tagged: 50, data: 50}, traffic{data: 200}, 100},
		{"the tap at the receiver sees one in ten", traffic{tagged: 1000}, traffic{data: 100}, 100},
		{"nothing arrives", traffic{tagged: 100, data: 100}, traffic{}, 0},
	} {
		if got := (&flow{sent: test.sent, got: test.got}).lost(); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// moved replaces a locator by the locator of the same hop through the other spine.
func moved(f closFlow, tag *csig.Tag) {
	switch tag.LM {
	case upID(f.src[0], f.spine):
		tag.LM = upID(f.src[0], 3-f.spine)
	case downID(f.spine, f.dst[0]):
		tag.LM = downID(3-f.spine, f.dst[0])
	}
}

// TestFlowBounds: flows past the bound are counted, and give no findings; without flows there is
// neither a bound nor a finding from flows.
func TestFlowBounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		most, flows int
		counted     bool
	}{{10, 10, true}, {-1, 0, false}, {1000, 60, false}} {
		n := newNetwork(t)
		n.tag = func(_ int, f closFlow, _ *csig.Tag) bool { return f.spine != 2 }
		n.flows = newFlows(test.most)
		n.mesh(90)
		if len(n.flows.of) != test.flows || n.Untracked() > 0 != test.counted {
			t.Errorf("at most %d: %d flows, %d packets of others", test.most, len(n.flows.of), n.Untracked())
		}
		if found := n.found(); (found != "") != (test.most == 1000) {
			t.Errorf("at most %d flows: found %q", test.most, found)
		}
	}
}

// TestReference: every kind has a name, a definition, and other explanations; the unseen faults
// follow.
func TestReference(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	if err := WriteReference(&text); err != nil {
		t.Fatal(err)
	}
	table, _, more := strings.Cut(text.String(), "\n\n")
	rows := strings.Split(table, "\n")
	if len(rows) != int(NumKinds)+2 || !more {
		t.Fatalf("%d rows of %d kinds", len(rows), NumKinds)
	}
	for i, row := range rows[2:] {
		k := Kind(i)
		if !strings.HasPrefix(row, "| `"+k.String()+"` | "+string(k.Severity())+" | ") || !strings.Contains(row, k.Otherwise()) || strings.Contains(row, "|  |") {
			t.Error(row)
		}
	}
}

// forgedDelay is a delay that a forger writes.
const forgedDelay = 9000

// forges makes host 1 of rack 1 write delays with a locator that no port has.
func forges(n *network) {
	n.forger = true
	n.tag = func(i int, f closFlow, tag *csig.Tag) bool {
		if f.src == [2]int{1, 1} && i%2 == 0 {
			tag.LM, tag.S = 0, forgedDelay
		}
		return true
	}
}
