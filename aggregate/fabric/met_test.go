package fabric

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

// meet asks for much of what traffic could.
func meet(f *Fabric) {
	hosts := []netip.Addr{{}}
	for _, a := range []string{"10.0.1.1", "10.0.1.2", "10.0.2.1", "10.0.3.1", "10.0.3.99", "192.0.2.1", "2001:db8::1"} {
		hosts = append(hosts, netip.MustParseAddr(a))
		f.Group(hosts[len(hosts)-1])
	}
	for i := range csig.NumLayouts {
		for lm := range uint16(130) {
			for _, src := range hosts {
				for _, dst := range hosts {
					f.Locate(csig.LayoutAt(i), uint8(lm%5), lm, src, dst)
				}
			}
		}
	}
}

// What a fabric has met is what another one knows that it is restored to, and both go on
// alike.
func TestMet(t *testing.T) {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func() *Fabric{
		"topology": func() *Fabric { _, f := load(t, "leafspine.yaml"); return f },
		"none":     func() *Fabric { return None(domain) },
	} {
		met, restored := make(), make()
		fresh := len(met.Locations()) + len(met.Groups())
		meet(met)
		state, err := met.AppendMet([]byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		state = bytes.TrimPrefix(state, []byte("x"))
		for range 2 {
			if err := restored.RestoreMet(state); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(restored.Locations(), met.Locations()) || !reflect.DeepEqual(restored.Groups(), met.Groups()) {
				t.Errorf("%s: %d locations, expected %d", name, len(restored.Locations()), len(met.Locations()))
			}
			meet(restored)
		}
		if again, err := restored.AppendMet(nil); err != nil || !bytes.Equal(again, state) {
			t.Errorf("%s: another state: %v", name, err)
		}
		if n := len(met.Locations()) + len(met.Groups()); n < fresh+10 {
			t.Errorf("%s: %d locations and groups, %d before traffic", name, n, fresh)
		}
		for n := 0; n < len(state); n += 1 + len(state)/30 {
			if err := make().RestoreMet(state[:n]); !errors.Is(err, ErrMet) {
				t.Fatalf("%s: %d of %d bytes: %v", name, n, len(state), err)
			}
		}
	}
	for _, bad := range []string{`{}`, `{"version":2}`, `{"version":1,"numbers":[{"layout":4}]}`, fmt.Sprintf(`{"version":1,"prefixes":[%q]}`, "x")} {
		if err := None(domain).RestoreMet([]byte(bad)); !errors.Is(err, ErrMet) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
