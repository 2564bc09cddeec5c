package fabric

import (
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

func TestWrites(t *testing.T) {
	t.Parallel()
	spec := csig.DefaultSpec()
	spec.Locators = []csig.LocatorSpec{{Format: "compact", Profile: "ietf01", Fields: []csig.FieldSpec{
		{Field: "stage", Bits: 1, Values: map[uint16]string{0: "leaf", 1: "spine"}},
		{Field: "orientation", Bits: 1, Values: map[uint16]string{0: "up", 1: "down"}},
	}, ZeroIsLocation: true}}
	domain, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(&Spec{Version: SpecVersion, Devices: []DeviceSpec{{Name: "leaf1", Stage: "leaf", Ports: []PortSpec{
		{Name: "up1", Orientation: "up", Speed: "100Gbps"}, {Name: "down1", Orientation: "down", Speed: "100Gbps"},
	}}}}, domain)
	if err != nil {
		t.Fatal(err)
	}
	compact, wide := csig.Layout{Format: csig.Compact, Profile: csig.IETF01}, csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
	tests := []struct {
		device, port  string
		layout        csig.Layout
		lm            uint16
		writes, known bool
	}{
		{"leaf1", "up1", compact, 0, true, true},
		{"leaf1", "up1", compact, 1, false, true},
		{"leaf1", "up1", compact, 2, false, true}, // a spine, of which there is none
		{"leaf1", "up1", compact, 99, false, true},
		{"leaf1", "down1", compact, 1, true, true},
		{"leaf1", "down2", compact, 1, false, false},
		{"leaf1", "up1", wide, 0, false, false},
	}
	for _, test := range tests {
		writes, known := f.Writes(PortLocationID(test.device, test.port), test.layout, 0, test.lm)
		if writes != test.writes || known != test.known {
			t.Errorf("%s:%s writes %d of %s: %t, known %t", test.device, test.port, test.lm, test.layout, writes, known)
		}
	}
}
