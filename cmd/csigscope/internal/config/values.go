package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode"
)

// The types of values have the same syntax in the file, in flags and in environment variables.
// Set, of pflag.Value, reads the output of String and rejects an empty text.

// unmarshal sets a value from the file. Its error is a yaml.TypeError, so the decoder continues
// and also reports errors of other keys.
func unmarshal(n *yaml.Node, v interface{ Set(string) error }) error {
	err := v.Set(n.Value) // "" if n is a list or a mapping
	if err == nil {
		return nil
	}
	text := err.Error()
	switch { // nameKeys finds the key by the kind or the quoted value
	case n.Kind == yaml.SequenceNode:
		text = "is a list, " + text
	case n.Kind == yaml.MappingNode:
		text = "is keys with values, " + text
	case n.Value != "":
		text = fmt.Sprintf("%q: %s", n.Value, text)
	}
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %s", n.Line, text)}}
}

// Bytes is a size such as 50GB, 4GiB or 4096. The file does not allow a size of 0.
type Bytes int64

// byteUnits are tried in this order. String uses the largest unit that divides a size.
var byteUnits = []struct {
	name string
	size float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
	{"", 1},
}

// Set implements pflag.Value.
func (b *Bytes) Set(text string) error {
	for _, u := range byteUnits {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || !(n >= 0) || n*u.size >= math.MaxInt64 {
			break
		}
		*b = Bytes(n * u.size)
		return nil
	}
	return errors.New("expected a size such as 50GB, 200GiB or 4096")
}

// String implements pflag.Value.
func (b Bytes) String() string {
	largest, name := Bytes(1), ""
	for _, u := range byteUnits {
		if n := Bytes(u.size); n > largest && b != 0 && b%n == 0 {
			largest, name = n, u.name
		}
	}
	return strconv.FormatInt(int64(b/largest), 10) + name
}

// Type implements pflag.Value.
func (Bytes) Type() string { return "size" }

// UnmarshalYAML implements yaml.Unmarshaler.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	if err := unmarshal(n, b); err != nil || *b > 0 {
		return err
	}
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %q: expected a size above 0 such as 50GB", n.Line, n.Value)}}
}

// MarshalYAML implements yaml.Marshaler.
func (b Bytes) MarshalYAML() (any, error) {
	if text := b.String(); strings.HasSuffix(text, "B") {
		return text, nil
	}
	return int64(b), nil
}

// Duration is a time of at least 0 such as 90s, 6h or 14d.
type Duration time.Duration

const day = 24 * time.Hour

// Set implements pflag.Value.
func (d *Duration) Set(text string) error {
	if v, err := parseDuration(text); err == nil && v >= 0 {
		*d = Duration(v)
		return nil
	}
	return errors.New("expected a time with a unit, such as 500ms, 90s, 6h or 14d")
}

// parseDuration is time.ParseDuration with days.
func parseDuration(text string) (time.Duration, error) {
	digits, ok := strings.CutSuffix(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	days, err := strconv.ParseUint(digits, 10, 64)
	if days > uint64(math.MaxInt64/day) {
		return 0, errors.New("exceeds 292 years")
	}
	return time.Duration(days) * day, err
}

// String implements pflag.Value.
func (d Duration) String() string {
	t := time.Duration(d)
	if t >= day && t%day == 0 {
		return fmt.Sprintf("%dd", t/day)
	}
	text := t.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Type implements pflag.Value.
func (Duration) Type() string { return "duration" }

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error { return unmarshal(n, d) }

// MarshalYAML implements yaml.Marshaler.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// or returns the time, or other if d is nil.
func (d *Duration) or(other time.Duration) time.Duration {
	if d == nil {
		return other
	}
	return time.Duration(*d)
}

// Quantity is a whole number above 0, such as 1048576 or 4e9. 0 means not given.
type Quantity uint64

// Set implements pflag.Value.
func (q *Quantity) Set(text string) error {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 1) || v > 1<<53 || v != float64(uint64(v)) {
		return errors.New("expected a whole number above 0, such as 1000000 or 4e9")
	}
	*q = Quantity(v)
	return nil
}

// String implements pflag.Value.
func (q Quantity) String() string { return strconv.FormatUint(uint64(q), 10) }

// Type implements pflag.Value.
func (Quantity) Type() string { return "number" }

// UnmarshalYAML implements yaml.Unmarshaler.
func (q *Quantity) UnmarshalYAML(n *yaml.Node) error { return unmarshal(n, q) }

// Int returns the quantity, or a value above all limits if it does not fit into 32 bits.
func (q Quantity) Int() int { return int(min(q, 1<<31)) }

// Text is a text that must not be empty if given.
type Text string

// Set implements pflag.Value.
func (t *Text) Set(text string) error {
	if text == "" {
		return errors.New("expected a text")
	}
	*t = Text(text)
	return nil
}

// String implements pflag.Value.
func (t Text) String() string { return string(t) }

// Type implements pflag.Value.
func (Text) Type() string { return "text" }

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *Text) UnmarshalYAML(n *yaml.Node) error { return unmarshal(n, t) }

// Address is a HOST:PORT to listen on, such as 127.0.0.1:4319.
type Address string

// Set implements pflag.Value.
func (a *Address) Set(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return errors.New("expected HOST:PORT such as 127.0.0.1:4319")
	}
	*a = Address(text)
	return nil
}

// String implements pflag.Value.
func (a Address) String() string { return string(a) }

// Type implements pflag.Value.
func (Address) Type() string { return "address" }

// UnmarshalYAML implements yaml.Unmarshaler.
func (a *Address) UnmarshalYAML(n *yaml.Node) error { return unmarshal(n, a) }

// host returns the address without its port.
func (a Address) host() string {
	host, _, _ := net.SplitHostPort(string(a))
	return host
}

// Choice is one of the words of W, or "" if not given.
type Choice[W interface{ words() []string }] string

// Set implements pflag.Value.
func (c *Choice[W]) Set(text string) error {
	var of W
	if !slices.Contains(of.words(), text) {
		return fmt.Errorf("expected one of %v", of.words())
	}
	*c = Choice[W](text)
	return nil
}

// String implements pflag.Value.
func (c Choice[W]) String() string { return string(c) }

// Type implements pflag.Value.
func (c Choice[W]) Type() string {
	var of W
	return strings.Join(of.words(), ", ")
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (c *Choice[W]) UnmarshalYAML(n *yaml.Node) error { return unmarshal(n, c) }

// Prefix is a network such as 10.0.0.0/8.
type Prefix struct{ netip.Prefix }

// Set implements pflag.Value.
func (p *Prefix) Set(text string) error {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return errors.New("expected a prefix such as 10.0.0.0/8")
	}
	p.Prefix = prefix.Masked()
	return nil
}

// Type implements pflag.Value.
func (Prefix) Type() string { return "prefix" }

// UnmarshalYAML implements yaml.Unmarshaler.
func (p *Prefix) UnmarshalYAML(n *yaml.Node) error { return unmarshal(n, p) }

// MarshalYAML implements yaml.Marshaler.
func (p Prefix) MarshalYAML() (any, error) { return p.String(), nil }

// DSN names a store, like --store. A DSN from the file keeps its line for errors on opening the
// store.
type DSN struct {
	text string
	line int
}

// NewDSN returns a DSN from the command line.
func NewDSN(text string) DSN { return DSN{text: text} }

// Secret returns the text of the DSN, with its password.
func (d DSN) Secret() string { return d.text }

// Target parses the DSN and reads the files that it names.
func (d DSN) Target() (store.Target, error) {
	t, err := store.ParseDSN(d.text)
	switch {
	case err == nil:
		return t, nil
	case d.line > 0:
		return t, fmt.Errorf("read configuration: line %d: store: dsn: %w", d.line, err)
	}
	return t, fmt.Errorf("--store: %w", err)
}

// Set implements pflag.Value.
func (d *DSN) Set(text string) error {
	if err := store.CheckDSN(text); err != nil {
		return err
	}
	d.text = text
	return nil
}

// String implements pflag.Value. Passwords are not printed.
func (d DSN) String() string {
	text, _ := store.WithoutPassword(d.text)
	return text
}

// Type implements pflag.Value.
func (DSN) Type() string { return "store" }

// UnmarshalYAML implements yaml.Unmarshaler. Its error does not quote the DSN, which may
// contain a password.
func (d *DSN) UnmarshalYAML(n *yaml.Node) error {
	err := store.ErrTarget
	if n.Kind == yaml.ScalarNode {
		err = d.Set(n.Value)
	}
	if err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %s", n.Line, err)}}
	}
	d.line = n.Line
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (d DSN) MarshalYAML() (any, error) {
	text, held := store.WithoutPassword(d.text)
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if held {
		n.LineComment = "# the password is left out: password_file=FILE names a file with it, " + store.PasswordVariable + " holds it"
	}
	return n, nil
}

// UDPTunnels maps UDP destination ports to tunnels.
type UDPTunnels map[uint16]decode.Encap

// tunnelNames are the tunnels that a port can be configured for.
var tunnelNames = map[string]decode.Encap{
	decode.VXLAN.String(): decode.VXLAN, decode.VXLANGPE.String(): decode.VXLANGPE, decode.Geneve.String(): decode.Geneve,
	decode.GTPU.String(): decode.GTPU, decode.PSP.String(): decode.PSP,
}

// UnmarshalYAML implements yaml.Unmarshaler. The tunnels of a file replace all others.
func (u *UDPTunnels) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: expected a mapping of UDP ports to tunnels such as {4789: vxlan}", n.Line)
	}
	*u = make(UDPTunnels, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		port, err := strconv.ParseUint(key.Value, 10, 16)
		if err != nil || port == 0 || key.Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d: port %q: expected 1 to 65535", key.Line, key.Value)
		}
		if _, twice := (*u)[uint16(port)]; twice {
			return fmt.Errorf("line %d: port %d is already defined", key.Line, port)
		}
		kind, ok := tunnelNames[value.Value]
		if !ok || value.Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d: tunnel %q: expected one of %v",
				value.Line, value.Value, slices.Sorted(maps.Keys(tunnelNames)))
		}
		(*u)[uint16(port)] = kind
	}
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (u UDPTunnels) MarshalYAML() (any, error) {
	names := make(map[uint16]string, len(u))
	for port, kind := range u {
		names[port] = kind.String()
	}
	return names, nil
}

// String lists the tunnels, sorted by port.
func (u UDPTunnels) String() string {
	text := ""
	for _, port := range slices.Sorted(maps.Keys(u)) {
		text += fmt.Sprintf(" %d:%s", port, u[port])
	}
	return text
}
