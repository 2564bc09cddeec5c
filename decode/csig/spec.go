package csig

import (
	"bytes"
	"embed"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Spec is the configuration of a CSIG domain as users write it. Compile checks it and returns its
// Domain. The zero Spec is empty; DefaultSpec has the defaults.
type Spec struct {
	TPIDs []TPIDSpec `yaml:"tpids,omitempty"`
	// Shipped names specifications that come with the package (ShippedNames). Their tables come
	// before Tables, which can override them.
	Shipped     []string         `yaml:"shipped,omitempty,flow"`
	Tables      []TableSpec      `yaml:"tables,omitempty"`
	Locators    []LocatorSpec    `yaml:"locators,omitempty"`
	Reflections []ReflectionSpec `yaml:"reflections,omitempty"`
	// UDPReflections are off unless configured: no public transport over UDP has a field for CSIG.
	UDPReflections []UDPReflectionSpec `yaml:"udp_reflections,omitempty"`
}

// IsZero implements yaml.IsZeroer. A list that is empty on purpose switches the defaults off, unlike a missing one.
func (s Spec) IsZero() bool {
	return s.TPIDs == nil && s.Reflections == nil && s.UDPReflections == nil && len(s.Shipped)+len(s.Tables)+len(s.Locators) == 0
}

// MarshalYAML implements yaml.Marshaler: lists that are empty on purpose are written.
func (s Spec) MarshalYAML() (any, error) {
	lists := struct {
		TPIDs          *[]TPIDSpec          `yaml:"tpids,omitempty"`
		Shipped        []string             `yaml:"shipped,omitempty,flow"`
		Tables         []TableSpec          `yaml:"tables,omitempty"`
		Locators       []LocatorSpec        `yaml:"locators,omitempty"`
		Reflections    *[]ReflectionSpec    `yaml:"reflections,omitempty"`
		UDPReflections *[]UDPReflectionSpec `yaml:"udp_reflections,omitempty"`
	}{Shipped: s.Shipped, Tables: s.Tables, Locators: s.Locators}
	if s.TPIDs != nil {
		lists.TPIDs = &s.TPIDs
	}
	if s.Reflections != nil {
		lists.Reflections = &s.Reflections
	}
	if s.UDPReflections != nil {
		lists.UDPReflections = &s.UDPReflections
	}
	return lists, nil
}

// TPIDSpec gives a tag protocol identifier its layout. No EtherType is allocated yet, and nothing
// on the wire tells profiles apart.
type TPIDSpec struct {
	TPID    uint16 `yaml:"tpid"`    // 0x0600 and up, and not of a protocol that may follow a tag, such as IPv4
	Format  string `yaml:"format"`  // compact or wide
	Profile string `yaml:"profile"` // ietf01 or uec050
}

// MarshalYAML implements yaml.Marshaler: TPIDs are written in hexadecimal, as usual for EtherTypes.
func (s TPIDSpec) MarshalYAML() (any, error) {
	return struct {
		TPID    *yaml.Node `yaml:"tpid"`
		Format  string     `yaml:"format"`
		Profile string     `yaml:"profile"`
	}{&yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprintf("%#04x", s.TPID)}, s.Format, s.Profile}, nil
}

// TableSpec is the quantization of one signal. Exactly one of Buckets, Quantum and StepBits must be
// set. Quantities have units: "100Gbps", "20%", "128ns".
type TableSpec struct {
	Format  string `yaml:"format"`            // compact or wide
	Profile string `yaml:"profile,omitempty"` // empty: both profiles
	Signal  string `yaml:"signal"`            // a result of Signal.String

	// Unit and Aggregation are only for types that the profile does not define (type_N), which need
	// both. Unit is "bit/s", "ratio", "ns" or "count"; Aggregation, how hops combine the signal
	// along the path, is "min", "max", "sum" or "count".
	Unit        string `yaml:"unit,omitempty"`
	Aggregation string `yaml:"aggregation,omitempty"`

	// Buckets ascend from 0. Each is its lower bound, "5%", or its range as in the draft, "5%-10%",
	// which then has to end where the next bucket starts.
	Buckets  []string `yaml:"buckets,omitempty,flow"`
	Upper    string   `yaml:"upper,omitempty"`     // end of the last bucket; empty: open-ended
	Quantum  string   `yaml:"quantum,omitempty"`   // uniform step (section 4.1.3)
	Base     string   `yaml:"base,omitempty"`      // bV of B = (O - bV) >> b
	StepBits *uint8   `yaml:"step_bits,omitempty"` // b
	StepUnit string   `yaml:"step_unit,omitempty"` // unit of O; default 1 kbit/s, 1 ppm, 1 ns

	Initial *uint32 `yaml:"initial,omitempty"` // raw S that senders write
	Mask    *uint32 `yaml:"mask,omitempty"`    // contiguous bits of S that hold the code; default all
	Shift   uint8   `yaml:"shift,omitempty"`   // position of the lowest bit of Mask
	Fixed   uint32  `yaml:"fixed,omitempty"`   // bits of S outside the mask that switches set

	// Heavy is the threshold at or beyond which an observation is heavy: "20%", "20us", "10Gbps". For min_abw a
	// percentage is relative to the bottleneck port's capacity.
	Heavy    string `yaml:"heavy,omitempty"`
	Interval string `yaml:"interval,omitempty"` // averaging interval of the switches
}

// LocatorSpec is the layout of locator metadata, fields from the most significant bit to the least.
// Unused bits are the highest ones. The last entry for a layout and signal applies.
type LocatorSpec struct {
	Format  string      `yaml:"format"`
	Profile string      `yaml:"profile,omitempty"` // empty: both profiles
	Signal  string      `yaml:"signal,omitempty"`  // empty: all signals
	Fields  []FieldSpec `yaml:"fields"`
	// ZeroIsLocation makes LM 0 a location instead of the host's default.
	ZeroIsLocation bool `yaml:"zero_is_location,omitempty"`
}

// FieldSpec is one bit field of a locator. Stage, orientation and capacity need a
// value table.
type FieldSpec struct {
	Field  string            `yaml:"field"`
	Bits   uint8             `yaml:"bits"`
	Values map[uint16]string `yaml:"values,omitempty,flow"`
}

// ReflectionSpec is one encoding of the TCP reflection option (section 4.2.1, Figure 3). No Kind is
// assigned: configure a plain Kind, or Kind 253 or 254 with an experiment identifier (RFC 6994).
// The number of data bytes, 2 or 6, gives the format.
//
//	 bytes  1      1        0, 2 or 4    2 or 6
//	+------+--------+------------+-------------+
//	| Kind | Length |    ExID    | data fields |
//	+------+--------+------------+-------------+
//
// Length counts the whole option, as in RFC 9293: 4 or 8 bytes with a plain Kind, 6 or 10 with a
// 16-bit ExID, 8 or 12 with a 32-bit one. In the draft's text it counts the data fields alone:
// always 2 or 6.
type ReflectionSpec struct {
	Kind     uint8  `yaml:"kind"`                // no option that TCP uses already
	ExID     uint32 `yaml:"exid,omitempty"`      // with Kind 253 or 254
	ExIDBits uint8  `yaml:"exid_bits,omitempty"` // 0, 16 or 32
	// Length is the meaning of the option's length octet: "total", as in RFC 9293, or "payload",
	// the CSIG data fields alone, as in the draft's text.
	Length  string `yaml:"length,omitempty"`
	Compact string `yaml:"compact,omitempty"` // profile of 2-byte data, default ietf01
	Wide    string `yaml:"wide,omitempty"`    // profile of 6-byte data, default uec050
}

// DefaultSpec returns the domain that applies without configuration: the TPIDs of public switch
// code and IEEE 802's experimental EtherTypes, 32 even or logarithmic buckets for compact tags, and
// steps for wide tags that cover 8 Tbit/s, 100 % and 128 ms. It has no locators: locator metadata
// stays raw.
func DefaultSpec() Spec {
	return Spec{
		TPIDs: []TPIDSpec{
			{TPID: 0x9900, Format: "compact", Profile: "ietf01"},
			{TPID: 0x88b5, Format: "compact", Profile: "uec050"},
			{TPID: 0x88b6, Format: "wide", Profile: "uec050"},
		},
		Tables: []TableSpec{
			{Format: "compact", Signal: "min_abw", Buckets: evenBuckets("Gbps", 12.5), Heavy: "20%"},
			{Format: "compact", Signal: "min_abw_ratio", Buckets: evenBuckets("%", 3.125), Upper: "100%", Heavy: "20%"},
			{Format: "compact", Signal: "max_delay", Buckets: delayBuckets(), Heavy: "20us"},
			{Format: "compact", Profile: "uec050", Signal: "max_nqd", Buckets: evenBuckets("%", 3.125), Upper: "100%", Heavy: "50%"},
			{Format: "wide", Profile: "ietf01", Signal: "min_abw", Quantum: "8Mbps", Heavy: "20%"},
			{Format: "wide", Profile: "uec050", Signal: "min_abw", StepBits: new(uint8(13)), Heavy: "20%"},
			{Format: "wide", Signal: "min_abw_ratio", Quantum: "1ppm", Heavy: "20%"},
			{Format: "wide", Profile: "ietf01", Signal: "max_delay", Quantum: "128ns", Heavy: "20us"},
			{Format: "wide", Profile: "uec050", Signal: "max_delay", StepBits: new(uint8(7)), Heavy: "20us"},
			{Format: "wide", Profile: "uec050", Signal: "max_nqd", Quantum: "1ppm", Heavy: "50%"},
		},
		Reflections: []ReflectionSpec{{Kind: 253, ExID: 0xc516, ExIDBits: 16, Length: "total"}},
	}
}

func evenBuckets(unit string, step float64) []string {
	b := make([]string, 32)
	for i := range b {
		b[i] = fmt.Sprintf("%g%s", float64(i)*step, unit)
	}
	return b
}

// delayBuckets are half octaves from 250 ns, because the order of magnitude of a delay matters
// most.
func delayBuckets() []string {
	b := []string{"0ns", "250ns", "375ns"}
	for ns := 500; len(b) < 32; ns *= 2 {
		b = append(b, fmt.Sprintf("%dns", ns), fmt.Sprintf("%dns", ns+ns/2))
	}
	return b[:32]
}

// Overlay returns s with the parts that o sets. TPIDs and reflections are replaced as a whole; a
// table or locator of o replaces the one for the same signal. The result's Tables include those of
// the specifications named in Shipped.
func (s Spec) Overlay(o Spec) Spec {
	s, o = s.withShipped(), o.withShipped()
	s.Shipped = append(s.Shipped[:len(s.Shipped):len(s.Shipped)], o.Shipped...)
	if o.TPIDs != nil {
		s.TPIDs = o.TPIDs
	}
	if o.Reflections != nil {
		s.Reflections = o.Reflections
	}
	if o.UDPReflections != nil {
		s.UDPReflections = o.UDPReflections
	}
	s.Tables = overlay(s.Tables, o.Tables, func(t TableSpec) string {
		return t.Format + "/" + t.Profile + "/" + t.Signal
	})
	s.Locators = overlay(s.Locators, o.Locators, func(l LocatorSpec) string {
		return l.Format + "/" + l.Profile + "/" + l.Signal
	})
	return s
}

// Replaced returns the names of the lists of s with entries that Overlay(o) replaces by other ones.
func (s Spec) Replaced(o Spec) (lists []string) {
	s, o = s.withShipped(), o.withShipped()
	note := func(name string, replaced bool) {
		if replaced {
			lists = append(lists, name)
		}
	}
	note("tpids", s.TPIDs != nil && o.TPIDs != nil && !reflect.DeepEqual(s.TPIDs, o.TPIDs))
	note("tables", replaced(s.Tables, o.Tables, func(a, b TableSpec) bool {
		return a.Format == b.Format && a.Signal == b.Signal && meet(a.Profile, b.Profile)
	}))
	note("locators", replaced(s.Locators, o.Locators, func(a, b LocatorSpec) bool {
		return a.Format == b.Format && meet(a.Signal, b.Signal) && meet(a.Profile, b.Profile)
	}))
	note("reflections", s.Reflections != nil && o.Reflections != nil && !reflect.DeepEqual(s.Reflections, o.Reflections))
	note("udp_reflections", s.UDPReflections != nil && o.UDPReflections != nil && !reflect.DeepEqual(s.UDPReflections, o.UDPReflections))
	return lists
}

// meet reports whether two entries overlap in a key that is empty if an entry is for all values.
func meet(a, b string) bool { return a == b || a == "" || b == "" }

// replaced reports whether entries of base overlap others in over, which does not repeat them.
func replaced[T any](base, over []T, overlap func(a, b T) bool) bool {
	return slices.ContainsFunc(base, func(b T) bool {
		return slices.ContainsFunc(over, func(o T) bool { return overlap(b, o) }) &&
			!slices.ContainsFunc(over, func(o T) bool { return reflect.DeepEqual(b, o) })
	})
}

// overlay appends over to base, without the entries of base that over replaces. Overlaying a
// specification that already holds base therefore leaves it unchanged.
func overlay[T any](base, over []T, subject func(T) string) []T {
	var list []T
	for _, b := range base {
		if !slices.ContainsFunc(over, func(o T) bool { return subject(o) == subject(b) }) {
			list = append(list, b)
		}
	}
	return append(list, over...)
}

// layouts returns the layouts for a format and an optional profile.
func layouts(format, profile string) ([]Layout, error) {
	f, err := ParseFormat(format)
	if err != nil {
		return nil, err
	}
	if profile == "" {
		return []Layout{{f, IETF01}, {f, UEC050}}, nil
	}
	p, err := ParseProfile(profile)
	if err != nil {
		return nil, err
	}
	return []Layout{{f, p}}, nil
}

// where names a part of a Spec in an error.
func where(section string, i int, names ...string) string {
	kept := names[:0:0]
	for _, n := range names {
		if n != "" {
			kept = append(kept, n)
		}
	}
	return fmt.Sprintf("%s[%d] (%s)", section, i, strings.Join(kept, " "))
}

//go:embed tables/*.yaml
var shipped embed.FS

// ShippedNames returns the names of the specifications that come with the package, in alphabetical
// order:
//
//   - appendix-a: the draft's example of a 3-bit value (Appendix A, Table 2)
//   - linear-32: 32 even buckets
//   - logarithmic-32: 32 buckets, finest where the path is tightest
//   - switch-3bit: two constant bits and a 3-bit bucket, as one family of switches
//     writes it
func ShippedNames() []string {
	entries, err := shipped.ReadDir("tables")
	if err != nil {
		return nil // the folder is part of the binary
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// withShipped returns the specification with the shipped tables that it names. Unknown names stay,
// so that Compile reports them.
func (s Spec) withShipped() Spec {
	var unknown []string
	var tables []TableSpec
	for _, name := range s.Shipped {
		o, err := Shipped(name)
		if err != nil {
			unknown = append(unknown, name)
		}
		tables = append(tables, o.Tables...)
	}
	s.Shipped = unknown
	if len(tables) > 0 {
		s.Tables = append(tables, s.Tables...)
	}
	return s
}

// addShipped adds the tables of the shipped specification.
func (d *Domain) addShipped(name string) error {
	s, err := Shipped(name)
	if err != nil {
		return err
	}
	for i := range s.Tables {
		if err := d.addTable(&s.Tables[i]); err != nil {
			return fmt.Errorf("%s: tables[%d]: %w", name, i, err)
		}
	}
	return nil
}

// Shipped returns the shipped specification of that name. It holds only tables for compact tags:
// overlay it on DefaultSpec() for a complete domain. A configuration selects it by name, "shipped:
// [switch-3bit]". The caller owns the result.
func Shipped(name string) (Spec, error) {
	text, err := shipped.ReadFile("tables/" + name + ".yaml")
	if err != nil {
		return Spec{}, fmt.Errorf("read shipped tables %q: expected one of %s", name, strings.Join(ShippedNames(), ", "))
	}
	var s Spec
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil {
		return Spec{}, fmt.Errorf("read shipped tables %q: %w", name, err)
	}
	return s, nil
}
