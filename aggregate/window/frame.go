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

// FrameOf is what a decoder reads of a captured frame.
func FrameOf(f *capture.Frame) decode.Frame {
	return decode.Frame{Data: f.Data, WireLen: f.WireLen, TPID: f.TPID, TCI: f.TCI}
}

// Stamp sets what the capture knows of an observation.
func Stamp(o *decode.Observation, f *capture.Frame, wireLen uint32) {
	o.TimeNS, o.Packet, o.Bytes = f.TimeNS, f.Packet, wireLen
}
