package csig

import (
	"bytes"
	"embed"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
