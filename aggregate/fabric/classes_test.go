package fabric

import (
	"net/netip"
	"testing"
)

// Addresses of one group and class can stand for each other, in their role: whatever
// the locator metadata, the answer is the same.
func TestClassesDecideLocations(t *testing.T) {
	for _, file := range []string{"leafspine.yaml", "threetier.yaml"} {
		s, f := load(t, file)
		addresses := []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
		for _, h := range s.Hosts {
			for _, text := range h.Addresses {
				a := netip.MustParseAddr(text)
				addresses = append(addresses, a, a.Next())
			}
		}
		same := 0
		for _, a := range addresses {
			for _, b := range addresses {
				aSrc, aDst := f.Classes(a)
				bSrc, bDst := f.Classes(b)
				for _, other := range addresses {
					for lm := range uint16(1 << 7) {
						if aSrc == bSrc {
							same++
							x, _ := f.Locate(compact, 2, lm, a, other)
							if y, _ := f.Locate(compact, 2, lm, b, other); x != y {
								t.Fatalf("%s: lm %d from %v or %v to %v: sources of one class differ", file, lm, a, b, other)
							}
						}
						if aDst == bDst {
							x, _ := f.Locate(compact, 2, lm, other, a)
							if y, _ := f.Locate(compact, 2, lm, other, b); x != y {
								t.Fatalf("%s: lm %d from %v to %v or %v: destinations of one class differ", file, lm, other, a, b)
							}
						}
					}
				}
			}
		}
		if same == 0 {
			t.Errorf("%s: no two addresses share a class", file)
		}
	}
}
