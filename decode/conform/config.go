package conform

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Role is what a device is for packets between the two captures.
type Role uint8

// A transit device trusts tags and compares and replaces them (IBCS 4.2). An ingress edge
// resets what untrusted senders set first (IBCS 4.1). A pass-through device leaves tags
// alone (draft-ravi-ippm-csig-01, section 6.2.2).
const (
	Transit Role = iota
	Ingress
	PassThrough
)

// ParseRole reads transit, ingress or pass-through.
func ParseRole(s string) (Role, error) {
	switch s {
	case "", "transit":
		return Transit, nil
	case "ingress":
		return Ingress, nil
	case "pass-through":
		return PassThrough, nil
	}
	return 0, fmt.Errorf("role %q: expected transit, ingress or pass-through", s)
}

// Strip is what the port is configured to do with tags (draft-ravi-ippm-csig-01, section
// 6.1).
type Strip uint8

// StripUnknown takes what the port does with most tags for what it is to do.
const (
	StripUnknown Strip = iota
	StripNever
	StripAlways
)

// ParseStrip reads unknown, never or always.
func ParseStrip(s string) (Strip, error) {
	switch s {
	case "", "unknown":
		return StripUnknown, nil
	case "never":
		return StripNever, nil
	case "always":
		return StripAlways, nil
	}
	return 0, fmt.Errorf("strip %q: expected unknown, never or always", s)
}

// Config is what a Judge needs to know.
type Config struct {
	Decode decode.Config // the domain is required
	Role   Role
	Strip  Strip
	Match  Match
	// Uninitialized says that the first hop may write its locator metadata where its
	// value is the initial one (IBCS 6.1, rule 1).
	Uninitialized bool
	// Signals are the signal types that the device supports, one bit each; 0 for all.
	Signals uint16
	// Ports are the names of the ports that After tells apart, at most MaxPorts.
	Ports []string
	// Own tells whether locator metadata is what a port, by its index, writes into tags of
	// a layout and signal type; known is false where that cannot be told. Nil if it never
	// can: then what a port writes most is taken for its own.
	Own func(port int, l csig.Layout, t uint8, lm uint16) (own, known bool)
	// Writers are the devices one of whose ports may have written the locator metadata of a tag
	// on its way from src to dst, separated by newlines, empty if no port on that way writes it;
	// known is false where that cannot be told. It is asked about packets behind ports that Own
	// does not know, such as one capture of several ports. Nil if it never can be told.
	Writers func(tag *csig.Tag, src, dst netip.Addr) (devices string, known bool)
	// Device is the name that Writers has for the device, empty for the one that most locators name.
	Device string
	// Metrics are what the ports measured, nil if nobody knows.
	Metrics *Metrics
	// Prefix is how many bytes behind the IP header count for matching, 0 for all: where
	// captures were cut, the fewest that any of their frames has.
	Prefix int
	// MaxPackets bounds the packets of a part that are remembered, 0 for
	// DefaultMaxPackets.
	MaxPackets int
	// Expect is how many packets before the device a part has about, 0 if nobody knows:
	// memory for them is taken at once.
	Expect int
}

// DefaultMaxPackets is how many packets before the device are remembered: some 120 bytes
// each.
const DefaultMaxPackets = 4 << 20

// MaxPorts bounds the ports after the device.
const MaxPorts = 256

// ErrTooMany says that more packets came than are remembered: judge
// them in more parts.
var ErrTooMany = errors.New("more packets before the device than are remembered")

func (c *Config) check() error {
	switch {
	case len(c.Ports) == 0 || len(c.Ports) > MaxPorts:
		return fmt.Errorf("%d ports after the device: expected 1 to %d", len(c.Ports), MaxPorts)
	case c.Prefix < 0 || c.MaxPackets < 0 || c.Expect < 0:
		return fmt.Errorf("prefix %d, %d and %d packets: expected no negative numbers", c.Prefix, c.MaxPackets, c.Expect)
	}
	return nil
}
