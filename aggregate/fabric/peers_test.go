package fabric

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPeers reads back what fingerprints of whole fabrics say, among other lines.
func TestPeers(t *testing.T) {
	for _, file := range []string{"leafspine.yaml", "threetier.yaml"} {
		spec, f := load(t, file)
		want := map[string]string{}
		for _, d := range spec.Devices {
			for _, p := range d.Ports {
				if p.Peer != "" {
					want[d.Name+":"+p.Name] = p.Peer
				}
			}
		}
		if diff := cmp.Diff(want, Peers("endpoints outer\n"+f.Fingerprint())); diff != "" {
			t.Errorf("%s: peers (-file +text):\n%s", file, diff)
		}
	}
	odd := Peers("port a b:up 1 id 7  peer \"quoted \\\"host\\\"\" 0 kbit/s\nport x\nport x id 1 up peer \"\" 5 kbit/s\nport y id 1 up peer \"\\q\" 5 kbit/s\n")
	if !maps.Equal(odd, map[string]string{"a b:up 1": `quoted "host"`}) {
		t.Errorf("odd lines gave %q", odd)
	}
}
