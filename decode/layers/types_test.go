package layers_test

import (
	"errors"
	"testing"

	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
	csiglayers "github.com/csigscope/csigscope/decode/layers"
)

func TestRegister(t *testing.T) {
	domain := compile(t, testSpec())
	for _, id := range domain.TPIDs() {
		l, _ := domain.LayoutOf(id)
		e := layers.EthernetType(id)
		if e.LayerType() != csiglayers.TagType(l) || e.String() != "CSIG/"+l.String() {
			t.Errorf("0x%04x is %s, layer type %v", id, e, e.LayerType())
		}
	}
	if err := csiglayers.Register(domain); err != nil {
		t.Errorf("registering again: %v", err)
	}
	if err := csiglayers.Register(nil); err == nil {
		t.Error("no error without a domain")
	}
}

// TestRegisterTaken checks that a TPID with another meaning is an error, and that nothing is
// registered then.
func TestRegisterTaken(t *testing.T) {
	const (
		free = 0x88f0
		ctp  = 0x9000 // gopacket's layers.EthernetTypeEthernetCTP
	)
	for _, taken := range []csig.TPIDSpec{
		{TPID: ctp, Format: "compact", Profile: "ietf01"},
		{TPID: 0x9900, Format: "compact", Profile: "uec050"},
	} {
		domain := compile(t, csig.Spec{TPIDs: []csig.TPIDSpec{{TPID: free, Format: "wide", Profile: "ietf01"}, taken}})
		before := layers.EthernetType(taken.TPID).LayerType()
		if err := csiglayers.Register(domain); !errors.Is(err, csiglayers.ErrTaken) {
			t.Errorf("0x%04x: error %v", taken.TPID, err)
		}
		if layers.EthernetType(taken.TPID).LayerType() != before || layers.EthernetType(free).LayerType() != 0 {
			t.Errorf("0x%04x: something is registered", taken.TPID)
		}
	}
}
