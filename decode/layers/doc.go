// Package layers lets programs that use gopacket read and write CSIG. Its tags are layers between
// Ethernet or 802.1Q and the next protocol; its TCP reflection is an option of layers.TCP.
//
// It knows how to present CSIG to gopacket. It must never know how package decode parses a frame,
// because tests compare that decoder with it, nor time windows, networks and capture files.
//
// No EtherType is allocated to CSIG, and nothing on the wire tells its profiles apart. So each
// layout of the tag has its own layer type, and a program registers once which EtherType means
// which of them:
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
// A tag on the wire (draft-ravi-ippm-csig-01, section 4.1). As with layers.Dot1Q, the EtherType
// before it is part of the layer before it:
//
//	compact  | TPID |  data 2  | EtherType |
//	wide     | TPID |        data 6        | EtherType |
//	                ^ contents of the layer ^
//
// Section numbers refer to that draft unless another source is named.
package layers
