// Package layers lets programs that use gopacket read and write CSIG: its tags are
// layers between Ethernet or 802.1Q and what follows, its TCP reflection is an
// option of layers.TCP.
//
// It knows how CSIG looks to gopacket. It must never know how package decode walks
// a frame, since it is what that decoder is tested against, nor time windows,
// networks and capture files.
//
// No EtherType is allocated to CSIG, and nothing on the wire tells its profiles
// apart. So each layout of the tag has a layer type of its own, and a program says
// once which EtherType means which of them:
//
//	domain, err := csig.DefaultSpec().Compile()
//	...
//	err = layers.Register(domain)
//
// From then on gopacket.NewPacket finds tags wherever it follows an EtherType. A
// gopacket.DecodingLayerParser needs a Tag for each layout that it may meet:
//
//	tag := layers.NewTag(csig.Layout{Format: csig.Compact, Profile: csig.IETF01})
//	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &eth, tag, &ip)
//
// A tag on the wire (draft-ravi-ippm-csig-01, section 4.1), with the EtherType
// before it, which is part of the layer before it, as it is for layers.Dot1Q:
//
//	compact  | TPID |  data 2  | EtherType |
//	wide     | TPID |        data 6        | EtherType |
//	                ^ contents of the layer ^
//
// Section numbers refer to that draft unless another source is named.
package layers
