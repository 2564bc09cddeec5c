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

// Shipped is the specification of that name, which holds tables for compact tags
// and nothing else: DefaultSpec().Overlay of it is a whole domain. The caller owns
// it.
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
