package layers

import (
	"errors"
	"fmt"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
)

// ErrTaken is the error of Register for a TPID that means something else already.
var ErrTaken = errors.New("the EtherType is taken")

// unknownName is the name that gopacket gives to EtherTypes without a meaning.
const unknownName = "UnknownEthernetType"

// Register tells gopacket what the domain's TPIDs mean. It writes to gopacket's
// global layers.EthernetTypeMetadata, without a lock, as gopacket reads it: call it
// before packets are decoded, and never at the same time.
//
// It may be called again, with the same domain, which then changes nothing, or with
// one that has further TPIDs.
// When gopacket, the program or an earlier domain gives a TPID another meaning it
// returns an error that is ErrTaken, and registers nothing.
func Register(domain *csig.Domain) error {
	if domain == nil {
		return errors.New("register layers: no domain is configured")
	}
	var added []uint16
	for _, id := range domain.TPIDs() {
		l, _ := domain.LayoutOf(id)
		m := &layers.EthernetTypeMetadata[id]
		switch {
		case m.LayerType == TagType(l):
		case m.LayerType == gopacket.LayerTypeZero && m.Name == unknownName:
			added = append(added, id)
		default:
			return fmt.Errorf("register tpid 0x%04x as %s: %w by %s; configure another one", id, l, ErrTaken, m.Name)
		}
	}
	for _, id := range added {
		l, _ := domain.LayoutOf(id)
		t := TagType(l)
		layers.EthernetTypeMetadata[id] = layers.EnumMetadata{DecodeWith: t, Name: t.String(), LayerType: t}
	}
	return nil
}
