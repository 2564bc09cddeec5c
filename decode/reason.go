package decode

// Reason says how the walk through a frame ended. If it ended early, the observations complete
// before that point remain.
type Reason uint8

// The reasons. Cut means that the capture ended inside a part, Bad that a part contradicts itself.
const (
	NoCSIG       Reason = iota // whole, with neither tag nor reflection
	OK                         // whole, with at least one tag or reflection
	CutEthernet                // before the end of an EtherType
	CutVLAN                    // inside a VLAN tag
	CutMACsec                  // inside a SecTAG
	CutTag                     // inside a CSIG tag
	CutMPLS                    // inside an MPLS label stack or a control word
	CutIP                      // inside an IP header or its extensions
	CutTransport               // inside a transport header, the TCP options or a reflection over UDP
	CutTunnel                  // inside the header of a tunnel
	BadMACsec                  // SecTAG of an unknown version, or with an impossible short length
	BadIP                      // impossible version or lengths
	BadTransport               // impossible transport lengths
	BadOptions                 // TCP option of impossible length
	BadTunnel                  // tunnel header that its specification does not allow
	Hidden                     // encrypted by MACsec: a tag may be inside
	TooDeep                    // more tags, headers or tunnels than the decoder follows
	UnknownLink                // link type that the decoder does not know

	// NumReasons bounds Reason.
	NumReasons = iota
)

var reasonNames = [NumReasons]string{
	"no-csig", "ok", "cut-ethernet", "cut-vlan", "cut-macsec", "cut-tag", "cut-mpls", "cut-ip", "cut-transport", "cut-tunnel",
	"bad-macsec", "bad-ip", "bad-transport", "bad-options", "bad-tunnel", "hidden", "too-deep", "unknown-link",
}

// String returns the reason's name in summaries and metrics, such as "cut-ip".
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Cut reports whether the capture of a frame ended too early.
func (r Reason) Cut() bool { return r >= CutEthernet && r <= CutTunnel }

// Counters are the counts of a Decoder. The reasons add up to Frames.
type Counters struct {
	Frames  uint64
	Reasons [NumReasons]uint64

	Tags        uint64 // orphans included
	Orphans     uint64 // see the flag Orphan; tags and reflections
	Reflections uint64

	// An empty or invalid reflection says that the path is not CSIG-capable (section 6.3.3). That
	// is coverage, not an error. Over TCP, the option is there, with no data fields or with a
	// number of bytes that no tag has. Over UDP, the datagram belongs to a transport that reflects,
	// without the Valid bit or too short for the data fields.
	EmptyReflections   uint64
	InvalidReflections uint64
	// Encrypted packets are those in ESP or PSP. Their tag is in clear; only the hosts can see a
	// reflection inside.
	Encrypted uint64
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
	c.Encrypted += o.Encrypted
	c.ExcessReflections += o.ExcessReflections
}
