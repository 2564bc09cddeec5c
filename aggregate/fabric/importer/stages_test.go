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

// TestStagesBelowNamedOnes: switches that face hosts are below the named ones, unless these face hosts
// as well.
func TestStagesBelowNamedOnes(t *testing.T) {
	for _, c := range []struct{ links, want string }{
		{"h1:a h2:b a:spine1 b:spine1 a:spine2 b:spine2", "a=leaf b=leaf spine1=spine spine2=spine"},
		{"h1:a h2:b a:c b:d c:spine1 d:spine1", "a=leaf b=leaf c=agg d=agg spine1=spine"},
		{"h1:a h2:b a:agg1 b:agg2 agg1:spine1 agg2:spine1", "a=leaf b=leaf agg1=agg agg2=agg spine1=spine"},
		{"h1:a h2:spine1 a:spine1", "a=spine spine1=spine"},
		{"leaf1:spine1 h1:a a:spine1", "a=leaf leaf1=leaf spine1=spine"},
	} {
		text := "topology:\n  nodes:\n"
		links := "  links:\n"
		seen := map[string]int{}
		for link := range strings.FieldsSeq(c.links) {
			var ends []string
			for name := range strings.SplitSeq(link, ":") {
				if seen[name]++; seen[name] == 1 {
					kind := "nokia_srlinux"
					if name[0] == 'h' {
						kind = "linux"
					}
					text += fmt.Sprintf("    %s: {kind: %s}\n", name, kind)
				}
				ends = append(ends, fmt.Sprintf("%s:eth%d", name, seen[name]))
			}
			links += fmt.Sprintf("  - endpoints: [%q, %q]\n", ends[0], ends[1])
		}
		r, err := Import([]File{{Name: "x.clab.yml", Data: []byte(text + links)}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range r.Spec.Devices {
			got = append(got, d.Name+"="+d.Stage)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, expected %s", c.links, s, c.want)
		}
	}
}

// TestInheritedRoles: containerlab gives nodes the labels of their group and kind.
func TestInheritedRoles(t *testing.T) {
	const text = `topology:
  kinds:
    arista_ceos: {labels: {role: leaf}}
  groups:
    top: {kind: nokia_srlinux, labels: {role: spine}}
  nodes:
    a: {kind: arista_ceos}
    b: {group: top}
    c: {group: top, labels: {graph-group: core}}
  links:
  - endpoints: ["a:eth1", "b:e1-1"]
  - endpoints: ["b:e1-2", "c:e1-1"]
`
	r, err := Import([]File{{Name: "x.clab.yml", Data: []byte(text)}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range r.Spec.Devices {
		got = append(got, d.Name+"="+d.Stage)
	}
	if s := strings.Join(got, " "); s != "a=leaf b=spine c=core" {
		t.Errorf("stages are %s", s)
	}
}
