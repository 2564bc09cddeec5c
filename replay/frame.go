package replay

import (
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// linkOf is the link type of a capture interface; ok is false for one that the
// decoder cannot read.
func linkOf(interfaces []capture.Interface, index uint32) (link decode.Link, ok bool) {
	if int(index) >= len(interfaces) {
		return decode.Ethernet, true
	}
	link = decode.Link(interfaces[index].Link)
	return link, link.Known()
}

// decodeFrame decodes a frame, or the one that a switch mirrored in it: only a frame
// without CSIG of its own is looked into, so that a tag of the mirror's path is not
// hidden by the mirrored one.
func decodeFrame(d *decode.Decoder, link decode.Link, f *capture.Frame, r *decode.Result) {
	d.DecodeLink(link, f.Data, r)
	wireLen := f.WireLen
	if r.N == 0 && link == decode.Ethernet {
		if inner, _, mirror := capture.Unwrap(f); mirror == capture.MirrorOK {
			d.Decode(inner.Data, r)
			wireLen = inner.WireLen
		}
	}
	for i := range r.N {
		o := &r.Obs[i]
		o.TimeNS, o.Packet, o.Bytes = f.TimeNS, f.Packet, wireLen
	}
}
