package decode

// Reason says how the walk through a frame ended. A frame whose walk ended early
// may still have yielded what came whole before that point.
type Reason uint8

// The reasons. Cut means that the capture ended inside a part, Bad that a part
// contradicts itself.
const (
	NoCSIG       Reason = iota // whole, with neither tag nor reflection
	OK                         // whole, with at least one tag or reflection
	CutEthernet                // before the end of an EtherType
	CutVLAN                    // inside a VLAN tag
	CutMACsec                  // inside a SecTAG
	CutTag                     // inside a CSIG tag
	CutIP                      // inside an IP header or its extensions
	CutTransport               // inside a TCP or UDP header or the TCP options
	BadMACsec                  // SecTAG of an unknown version
	BadIP                      // impossible version or lengths
	BadTransport               // impossible TCP or UDP lengths
	BadOptions                 // TCP option of impossible length
	Hidden                     // encrypted by MACsec: a tag may be inside
	TooDeep                    // more tags or headers than the decoder follows

	// NumReasons bounds Reason.
	NumReasons = iota
)

var reasonNames = [NumReasons]string{
	"no-csig", "ok", "cut-ethernet", "cut-vlan", "cut-macsec", "cut-tag", "cut-ip", "cut-transport",
	"bad-macsec", "bad-ip", "bad-transport", "bad-options", "hidden", "too-deep",
}

// String is the reason's name in summaries and metrics, such as "cut-ip".
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Counters count what a Decoder has seen. The reasons add up to Frames.
type Counters struct {
	Frames  uint64
	Reasons [NumReasons]uint64

	Tags        uint64 // orphans included
	Orphans     uint64 // tags in a place where no tag belongs
	Reflections uint64

	// An empty or invalid reflection says that the path is not CSIG-capable
	// (section 6.3.3), which is coverage and not an error: the option is there,
	// with no data fields or with a number of bytes that is no tag's.
	EmptyReflections   uint64
	InvalidReflections uint64
	// ExcessReflections did not fit the Result beside the others of their frame.
	ExcessReflections uint64
}

// Add adds o to c.
func (c *Counters) Add(o *Counters) {
	c.Frames += o.Frames
	for i := range c.Reasons {
		c.Reasons[i] += o.Reasons[i]
	}
	c.Tags += o.Tags
	c.Orphans += o.Orphans
	c.Reflections += o.Reflections
	c.EmptyReflections += o.EmptyReflections
	c.InvalidReflections += o.InvalidReflections
	c.ExcessReflections += o.ExcessReflections
}
