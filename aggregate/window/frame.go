package window

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

// mirrored is the frame in a mirror session that the tap holds. One with a CSIG tag before
// its IP header is an ordinary frame, so that a tag of the mirror's path is not hidden by
// the mirrored one. Sessions are taken out of Ethernet frames alone.
func mirrored(link decode.Link, holds capture.Mirrors, f *capture.Frame) (inner capture.Frame, ok bool) {
	if link != decode.Ethernet {
		return inner, false
	}
	inner, _, result := holds.Unwrap(f)
	return inner, result == capture.MirrorOK
}

// Decode decodes a frame, or the mirrored one in it where the tap holds such sessions, and
// returns its length on the wire. What other sessions hold are orphans.
func Decode(d *decode.Decoder, link decode.Link, holds capture.Mirrors, f *capture.Frame, r *decode.Result) (wireLen uint32) {
	if holds != (capture.Mirrors{}) { // most taps hold none: no frame is copied for them
		if inner, ok := mirrored(link, holds, f); ok {
			d.Decode(inner.Data, r)
			return inner.WireLen
		}
	}
	if f.TPID != 0 {
		d.DecodeStripped(f.Data, f.TPID, f.TCI, r)
	} else {
		d.DecodeLink(link, f.Data, r)
	}
	return f.WireLen
}

// Bare reads the ends of a frame without CSIG, or of the mirrored one in it where the tap
// holds such sessions, as decode.Decoder.Bare does; ok is false also where the link is no
// Ethernet.
func Bare(d *decode.Decoder, link decode.Link, holds capture.Mirrors, f *capture.Frame, o *decode.Observation) (data, ok bool) {
	if link != decode.Ethernet {
		return false, false
	}
	if inner, ok := mirrored(link, holds, f); ok {
		return d.Bare(inner.Data, o)
	}
	return d.Bare(f.Data, o)
}

// Stamp sets what the capture knows of an observation.
func Stamp(o *decode.Observation, f *capture.Frame, wireLen uint32) {
	o.TimeNS, o.Packet, o.Bytes = f.TimeNS, f.Packet, wireLen
}
