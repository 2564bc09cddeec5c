package csig

import (
	"bytes"
	"embed"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Spec is the configuration of a CSIG domain as users write it. Compile checks it
// and makes a Domain of it. The zero Spec is empty; DefaultSpec has the defaults.
type Spec struct {
	TPIDs []TPIDSpec `yaml:"tpids,omitempty"`
	// Shipped names specifications that come with the package (ShippedNames). Their
	// tables come before Tables, so that those can change one of them.
	Shipped     []string         `yaml:"shipped,omitempty,flow"`
	Tables      []TableSpec      `yaml:"tables,omitempty"`
	Locators    []LocatorSpec    `yaml:"locators,omitempty"`
	Reflections []ReflectionSpec `yaml:"reflections,omitempty"`
	// UDPReflections are off unless configured: no transport over UDP has a field
	// for CSIG that is public.
	UDPReflections []UDPReflectionSpec `yaml:"udp_reflections,omitempty"`
}

// TPIDSpec says which layout a tag protocol identifier stands for. No EtherType
// is allocated yet, and nothing on the wire tells profiles apart.
type TPIDSpec struct {
	TPID    uint16 `yaml:"tpid"`    // 0x0600 and up, and no EtherType that package decode reads
	Format  string `yaml:"format"`  // compact or wide
	Profile string `yaml:"profile"` // ietf01 or uec050
}

// MarshalYAML implements yaml.Marshaler: TPIDs are written as everybody writes EtherTypes.
func (s TPIDSpec) MarshalYAML() (any, error) {
	return struct {
		TPID    *yaml.Node `yaml:"tpid"`
		Format  string     `yaml:"format"`
		Profile string     `yaml:"profile"`
	}{&yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprintf("%#04x", s.TPID)}, s.Format, s.Profile}, nil
}

// TableSpec is the quantization of one signal. Exactly one of Buckets, Quantum and
// StepBits is set. Quantities have units: "100Gbps", "20%", "128ns".
type TableSpec struct {
	Format  string `yaml:"format"`            // compact or wide
	Profile string `yaml:"profile,omitempty"` // empty: both profiles
	Signal  string `yaml:"signal"`            // as Signal.String has it

	// Unit and Aggregation are for the types that the profile does not define
	// (type_N), which need both: "bit/s", "ratio", "ns" or "count", and how hops
	// combine the signal along the path, "min", "max", "sum" or "count".
	Unit        string `yaml:"unit,omitempty"`
	Aggregation string `yaml:"aggregation,omitempty"`

	// Buckets ascend from 0. One is its lower bound, "5%", or its range as the draft
	// has it, "5%-10%", which then has to end where the next bucket starts.
	Buckets  []string `yaml:"buckets,omitempty,flow"`
	Upper    string   `yaml:"upper,omitempty"`     // end of the last bucket; empty: open-ended
	Quantum  string   `yaml:"quantum,omitempty"`   // uniform step (section 4.1.3)
	Base     string   `yaml:"base,omitempty"`      // bV of B = (O - bV) >> b
	StepBits *uint8   `yaml:"step_bits,omitempty"` // b
	StepUnit string   `yaml:"step_unit,omitempty"` // what O counts; default 1 kbit/s, 1 ppm, 1 ns

	Initial *uint32 `yaml:"initial,omitempty"` // raw S that senders write
	Mask    *uint32 `yaml:"mask,omitempty"`    // bits of S that hold the code, a run; default all
	Shift   uint8   `yaml:"shift,omitempty"`   // position of the lowest of them
	Fixed   uint32  `yaml:"fixed,omitempty"`   // bits of S outside the mask that switches set

	// Heavy is the threshold of a heavily loaded link: "20%", "20us", "10Gbps". A
	// share on min_abw is one of the bottleneck port's capacity.
	Heavy    string `yaml:"heavy,omitempty"`
	Interval string `yaml:"interval,omitempty"` // averaging interval of the switches
}

// LocatorSpec is the layout of locator metadata, fields from the most significant
// bit to the least. Fields that leave bits unused occupy the low bits.
type LocatorSpec struct {
	Format  string      `yaml:"format"`
	Profile string      `yaml:"profile,omitempty"` // empty: both profiles
	Signal  string      `yaml:"signal,omitempty"`  // empty: all signals
	Fields  []FieldSpec `yaml:"fields"`
	// ZeroIsLocation says that LM 0 is a real value and not the host's default.
	ZeroIsLocation bool `yaml:"zero_is_location,omitempty"`
}

// FieldSpec is one bit field of a locator. Stage, orientation and capacity need a
// value table.
type FieldSpec struct {
	Field  string            `yaml:"field"`
	Bits   uint8             `yaml:"bits"`
	Values map[uint16]string `yaml:"values,omitempty,flow"`
}

// ReflectionSpec is one encoding of the TCP reflection option (section 4.2.1, Figure
// 3). No Kind is assigned: a plain Kind, or Kind 253 or 254 with an experiment
// identifier (RFC 6994). The number of data bytes, 2 or 6, tells the format.
//
//	 bytes  1      1        0, 2 or 4    2 or 6
//	+------+--------+------------+-------------+
//	| Kind | Length |    ExID    | data fields |
//	+------+--------+------------+-------------+
//
// Length counts all of the option, as RFC 9293 has it: 4 or 8 bytes with a plain Kind,
// 6 or 10 with an ExID of 16 bits, 8 or 12 with one of 32. The draft's text counts the
// data fields alone: 2 or 6 in each case.
type ReflectionSpec struct {
	Kind     uint8  `yaml:"kind"`                // no option that TCP uses already
	ExID     uint32 `yaml:"exid,omitempty"`      // with Kind 253 or 254
	ExIDBits uint8  `yaml:"exid_bits,omitempty"` // 0, 16 or 32
	// Length is how the option's length octet counts: "total", as RFC 9293 has it,
	// or "payload", the CSIG data fields alone, as the draft's text has it.
	Length  string `yaml:"length,omitempty"`
	Compact string `yaml:"compact,omitempty"` // profile of 2-byte data, default ietf01
	Wide    string `yaml:"wide,omitempty"`    // profile of 6-byte data, default uec050
}

// DefaultSpec is the domain that is assumed without configuration: the TPIDs of
// public switch code and IEEE 802's experimental EtherTypes, 32 even or
// logarithmic buckets for compact tags, and steps for wide tags that cover
// 8 Tbit/s, 100 % and 128 ms. It has no locators: locator metadata stays raw.
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

// delayBuckets are half octaves from 250 ns, since what matters about a delay is
// its order of magnitude.
func delayBuckets() []string {
	b := []string{"0ns", "250ns", "375ns"}
	for ns := 500; len(b) < 32; ns *= 2 {
		b = append(b, fmt.Sprintf("%dns", ns), fmt.Sprintf("%dns", ns+ns/2))
	}
	return b[:32]
}

// Overlay returns s with the parts that o sets: TPIDs and reflections are
// replaced as a whole, tables and locators one by one, by what they describe: what o
// says last holds. The tables of specifications named in Shipped are among the result's Tables.
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

// overlay appends over to base without those of base that over describes anew: a
// configuration that was dumped and read again stays as it is.
func overlay[T any](base, over []T, subject func(T) string) []T {
	var list []T
	for _, b := range base {
		if !slices.ContainsFunc(over, func(o T) bool { return subject(o) == subject(b) }) {
			list = append(list, b)
		}
	}
	return append(list, over...)
}

// layouts lists the layouts that a format and an optional profile name.
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

// ShippedNames are the names of the specifications that come with the package, in
// alphabetical order:
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

// withShipped is the specification with the tables that it names. Names that there
// are none of stay, for Compile to find.
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

// addShipped adds the tables of the specification of that name.
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

// Shipped is the specification of that name, which holds tables for compact tags
// and nothing else: DefaultSpec().Overlay of it is a whole domain. A configuration
// takes them by name, "shipped: [switch-3bit]". The caller owns it.
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
