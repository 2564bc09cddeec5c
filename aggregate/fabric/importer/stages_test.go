package importer

import (
	"fmt"
	"strings"
	"testing"
)

// TestStages: stages of switches with meaningless names, from the lowest of a chain up.
func TestStages(t *testing.T) {
	for _, c := range []struct{ chain, want string }{
		{"a=ToRRouter b=LeafRouter", "a=leaf b=spine"},
		{"a=LeafRouter b=SpineRouter", "a=leaf b=spine"},
		{"a=ToRRouter b=LeafRouter c=SpineRouter", "a=leaf b=agg c=spine"},
		{"a=ToRRouter tor7=ToRRouter b=LeafRouter", "a=tor tor7=tor b=spine"}, // a is like tor7
		{"a= spine1=", "a=leaf spine1=spine"},
		{"leaf1= a= core1=", "leaf1=leaf a=agg core1=core"},
		{"leaf1= a=MgmtToRRouter spine1=", "leaf1=leaf spine1=spine"},
		{"a= b=", "a=switch b=switch"},
	} {
		var files []File
		var names []string
		for word := range strings.FieldsSeq(c.chain) {
			name, kind, _ := strings.Cut(word, "=")
			ports := map[string]string{}
			if len(names) > 0 {
				ports["Ethernet0"] = names[len(names)-1] + "|Ethernet4"
			}
			names = append(names, name)
			ports["Ethernet4"] = ""
			f := sonicFile(name, ports, "")
			f.Data = []byte(strings.Replace(string(f.Data), `"hostname"`, fmt.Sprintf(`"type": %q, "hostname"`, kind), 1))
			files = append(files, f)
		}
		r, err := Import(files, Options{})
		if err != nil {
			t.Fatal(err)
		}
		stages := map[string]string{}
		for _, d := range r.Spec.Devices {
			stages[d.Name] = d.Stage
		}
		var got []string
		for _, name := range names {
			if stages[name] != "" {
				got = append(got, name+"="+stages[name])
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, expected %s", c.chain, s, c.want)
		}
	}
}
