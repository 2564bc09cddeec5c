package conform

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Role is the device's part in the path, for packets between the two captures.
type Role uint8

// A transit device trusts tags; it compares and replaces them (IBCS 4.2). An ingress edge first
// resets the tags of untrusted senders (IBCS 4.1). A pass-through device leaves tags alone
// (draft-ravi-ippm-csig-01, section 6.2.2).
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

// Strip is the port's configured handling of tags (draft-ravi-ippm-csig-01, section 6.1).
type Strip uint8

// StripUnknown assumes that the port should treat all tags as it treats most.
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

// Config is the configuration of a Judge.
type Config struct {
	Decode decode.Config // the domain is required
	Role   Role
	Strip  Strip
	Match  Match
	// Uninitialized allows the first hop to write its locator metadata where its value is the
	// initial one (IBCS 6.1, rule 1).
	Uninitialized bool
	// Signals are the supported signal types, one bit each; 0 for all.
	Signals uint16
	// Ports are the names of the ports that After distinguishes, at most MaxPorts.
	Ports []string
	// Files are the names of files in examples; empty where the number of a packet says enough.
	Files []string
	// Own reports whether a port, by its index, writes this locator metadata into tags of a layout
	// and signal type; known is false where that cannot be decided. If Own is nil, the value that a
	// port writes most counts as its own.
	Own func(port int, l csig.Layout, t uint8, lm uint16) (own, known bool)
	// Writers returns the devices that may have written the locator metadata of a tag on its way from
	// src to dst by one of their ports, separated by newlines; empty if no port on that way writes it.
	// known is false where that cannot be decided. The Judge calls it for packets behind ports that
	// Own does not know, such as one capture of several ports. Nil if it can never be decided.
	Writers func(tag *csig.Tag, src, dst netip.Addr) (devices string, known bool)
	// Device is the name that Writers uses for the device; empty means the device that most
	// locators name.
	Device string
	// Metrics are the ports' measurements, nil if there are none.
	Metrics *Metrics
	// Prefix is the number of bytes behind the IP header that matching uses, 0 for all. For
	// truncated captures, set it to the fewest bytes that any of their frames has.
	Prefix int
	// Untrimmed promises that no packet was trimmed. Parts then have about equal sizes whatever the
	// packets' headers are, since no trimmed packet has to be in the part of its original.
	Untrimmed bool
	// MaxPackets bounds the packets remembered in a part, 0 for DefaultMaxPackets.
	MaxPackets int
	// Expect is the approximate number of packets before the device in a part, 0 if unknown. Memory
	// for them is allocated at once.
	Expect int
}

// DefaultMaxPackets is the number of packets before the device that are remembered, at some 120
// bytes each.
const DefaultMaxPackets = 4 << 20

// MaxPorts bounds the ports after the device.
const MaxPorts = 256

// ErrTooMany says that more packets came than the Judge remembers: judge them in more parts.
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
