package feed

import (
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// LinkOf is the link type of a capture interface; ok is false for one that the
// decoder cannot read.
func LinkOf(interfaces []capture.Interface, index uint32) (link decode.Link, ok bool) {
	if int(index) >= len(interfaces) {
		return decode.Ethernet, true
	}
	link = decode.Link(interfaces[index].Link)
	return link, link.Known()
}

// Decode decodes a frame, or the one that a switch mirrored in it, and gives its
// length on the wire. Only a frame without CSIG of its own is looked into, so that a tag
// of the mirror's path is not hidden by the mirrored one.
func Decode(d *decode.Decoder, link decode.Link, f *capture.Frame, r *decode.Result) (wireLen uint32) {
	if f.TPID != 0 {
		d.DecodeStripped(f.Data, f.TPID, f.TCI, r)
	} else {
		d.DecodeLink(link, f.Data, r)
	}
	if r.N == 0 && link == decode.Ethernet {
		if inner, _, mirror := capture.Unwrap(f); mirror == capture.MirrorOK {
			d.Decode(inner.Data, r)
			return inner.WireLen
		}
	}
	return f.WireLen
}

// Bare reads the ends of a frame without CSIG, or of the one that a switch mirrored in it,
// as decode.Decoder.Bare does; ok is false also where the link is no Ethernet.
func Bare(d *decode.Decoder, link decode.Link, f *capture.Frame, o *decode.Observation) (data, ok bool) {
	if link != decode.Ethernet {
		return false, false
	}
	frame := f.Data
	if inner, _, mirror := capture.Unwrap(f); mirror == capture.MirrorOK {
		frame = inner.Data
	}
	return d.Bare(frame, o)
}

// Stamp sets what the capture knows of an observation.
func Stamp(o *decode.Observation, f *capture.Frame, wireLen uint32) {
	o.TimeNS, o.Packet, o.Bytes = f.TimeNS, f.Packet, wireLen
}
