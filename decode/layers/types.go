package layers

import (
	"errors"
	"fmt"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
)

// Numbers of the layer types. gopacket leaves 1000 to 1999 to applications; an application that
// uses one of these panics at startup.
const (
	numberOfTags       = 1640 // and csig.NumLayouts-1 more
	numberOfReflection = numberOfTags + csig.NumLayouts
)

// The layer types of tags, one for each layout: a packet does not say which profile it follows, and
// layers.Dot1Q and gopacket.DecodingLayerParser pass on only a layer type. They exist as soon as
// the package is imported, like gopacket's own; Register maps EtherTypes to them.
var (
	LayerTypeCompactIETF01 = newTagType(csig.Layout{Format: csig.Compact, Profile: csig.IETF01})
	LayerTypeCompactUEC050 = newTagType(csig.Layout{Format: csig.Compact, Profile: csig.UEC050})
	LayerTypeWideIETF01    = newTagType(csig.Layout{Format: csig.Wide, Profile: csig.IETF01})
	LayerTypeWideUEC050    = newTagType(csig.Layout{Format: csig.Wide, Profile: csig.UEC050})
)

// LayerTypeReflection is the layer type of ReflectionOption. It has no decoder, because the
// option's encoding is configuration: see Reflections.
var LayerTypeReflection = gopacket.RegisterLayerType(numberOfReflection, gopacket.LayerTypeMetadata{
	Name: "CSIGReflection",
})

// Classes of layer types, for Packet.LayerClass: a packet's tag of one format, or of any.
var (
	LayerClassCompactTag = gopacket.NewLayerClass([]gopacket.LayerType{LayerTypeCompactIETF01, LayerTypeCompactUEC050})
	LayerClassWideTag    = gopacket.NewLayerClass([]gopacket.LayerType{LayerTypeWideIETF01, LayerTypeWideUEC050})
	LayerClassTag        = gopacket.NewLayerClass([]gopacket.LayerType{
		LayerTypeCompactIETF01, LayerTypeCompactUEC050, LayerTypeWideIETF01, LayerTypeWideUEC050,
	})
)

// The interfaces that gopacket requires of a layer for reading and writing.
var (
	_ gopacket.DecodingLayer     = (*Tag)(nil)
	_ gopacket.SerializableLayer = (*Tag)(nil)
	_ gopacket.Layer             = (*Tag)(nil)
	_ gopacket.DecodingLayer     = (*ReflectionOption)(nil)
	_ gopacket.SerializableLayer = (*ReflectionOption)(nil)
	_ gopacket.Layer             = (*ReflectionOption)(nil)
)

// TagType returns the layer type of tags of the layout, which must have a format and a profile.
func TagType(l csig.Layout) gopacket.LayerType {
	return gopacket.LayerType(numberOfTags + l.Index())
}

func newTagType(l csig.Layout) gopacket.LayerType {
	return gopacket.RegisterLayerType(int(TagType(l)), gopacket.LayerTypeMetadata{
		Name: "CSIG/" + l.String(),
		Decoder: gopacket.DecodeFunc(func(data []byte, p gopacket.PacketBuilder) error {
			return decodeTag(l, data, p)
		}),
	})
}

// ErrTaken is Register's error for a TPID that already has another meaning.
var ErrTaken = errors.New("the EtherType is taken")

// unknownName is gopacket's name for EtherTypes without a meaning.
const unknownName = "UnknownEthernetType"

// Register makes gopacket decode the domain's TPIDs as tags. It writes to gopacket's global
// layers.EthernetTypeMetadata without a lock, because gopacket reads it without one: call it before
// packets are decoded, and never at the same time.
//
// It may be called again, with the same domain, which changes nothing, or with one that has further
// TPIDs. If gopacket, the program or an earlier domain gave a TPID another meaning, it returns an
// error that wraps ErrTaken, and registers nothing.
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
