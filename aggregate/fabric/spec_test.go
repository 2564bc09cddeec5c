package fabric

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestWriteIsReadBack(t *testing.T) {
	for _, file := range []string{"leafspine.yaml", "threetier.yaml"} {
		s, f := load(t, file)
		var b bytes.Buffer
		if err := s.Write(&b); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(&b, "written")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(s, again) {
			t.Errorf("%s: read back as %+v, wrote %+v", file, again, s)
		}
		if compile(t, again).Fingerprint() != f.Fingerprint() {
			t.Errorf("%s: another fingerprint after writing", file)
		}
	}
}

func TestWriteLayout(t *testing.T) {
	s, _ := load(t, "leafspine.yaml")
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"    - {tpid: 0x9900, format: compact, profile: ietf01}\n",
		"      - {name: up1, id: 1, orientation: up, peer: spine1, speed: 100Gbps}\n",
		"  - {name: h11, addresses: [10.0.1.1]}\n",
		"  - {name: rack1, level: rack, parent: pod1, prefixes: [10.0.1.0/24]}\n",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no line %q in\n%s", line, b.String())
		}
	}
}

func TestWriteKeepsEmptyLists(t *testing.T) {
	for _, text := range []string{
		"version: 1\ncsig:\n  tpids: []\n  reflections: []\n",
		"version: 1\ncsig:\n  udp_reflections: []\n",
		"version: 1\ncsig:\n  reflections: []\n  tpids:\n    - {tpid: 0x9900, format: compact, profile: ietf01}\n",
	} {
		s, err := Parse(strings.NewReader(text), "f.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := s.Write(&b); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(&b, "written")
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("read back as %+v, wrote %+v: %v", again, s, err)
		}
	}
}

// small is a fabric that the error cases modify.
const small = `version: 1
csig:
  locators:
    - format: compact
      fields: [{field: port_id, bits: 6}]
groups:
  - {name: rack1, level: rack, prefixes: [10.0.1.0/24]}
  - {name: rack2, level: rack, prefixes: [10.0.2.0/24]}
devices:
  - name: leaf1
    stage: leaf
    ports:
      - {name: up1, id: 1, orientation: up, peer: spine1, speed: 100Gbps}
      - {name: down1, id: 2, orientation: down, peer: h1, speed: 25Gbps}
  - name: spine1
    stage: spine
    ports:
      - {name: down1, id: 3, orientation: down, peer: leaf1, speed: 100Gbps}
hosts:
  - name: h1
    addresses: [10.0.1.1]
taps:
  - {name: t1, place: receiver}
`

func TestParseErrors(t *testing.T) {
	if _, err := Parse(strings.NewReader(small), "f.yaml"); err != nil {
		t.Fatalf("undamaged: %v", err)
	}
	for _, c := range []struct{ name, old, text, want string }{
		{"syntax", "devices:", "devices: [", "f.yaml:9: did not find expected node content"},
		{"unknown key", "    stage: leaf\n", "    stage: leaf\n    color: red\n", `f.yaml:12: unknown key "color": expected one of name, stage, id, hash_seed, ports`},
		{"unknown key of a csig table", "bits: 6", "bits: 6, wide: 1", `f.yaml:5: unknown key "wide": expected one of field, bits, values`},
		{"fraction", "id: 3", "id: 3.5", "f.yaml:18: devices.ports.id: `3.5` is a number, expected a whole number of the key's range"},
		{"wrong type", "id: 3", "id: three", "f.yaml:18: devices.ports.id: `three` is text, expected a whole number of the key's range"},
		{"no list", "[10.0.1.1]", "10.0.1.1", "f.yaml:21: hosts.addresses: `10.0.1.1` is text, expected a list"},
		{"time", "taps:", "paths:\n  - {src: h1, dst: rack2, via: [leaf1], from: 2026-01-05, until: 2026-01-05 12:00}\ntaps:", `f.yaml:23: paths.until: "2026-01-05 12:00": expected a time such as 2026-01-05T12:00:00Z`},
		{"number as a time", "taps:", "paths:\n  - {src: h1, dst: rack2, proto: 12, via: [leaf1], until: 12}\n  - {src: h1, dst: rack2, via: [leaf1], until: 12}\ntaps:", `f.yaml:23: paths.until: "12": expected a time such as`},
		{"key twice", "version: 1", "version: 1\nversion: 1", `f.yaml:2: mapping key "version" already defined at line 1`},
		{"version", "version: 1", "version: 7", "f.yaml:1: version: is 7: expected 1"},
		{"csig section", "port_id, bits: 6", "port_id, bits: 20", "f.yaml:4: csig.locators[0]: locators[0] (compact): fields take 20 bits"},
		{"bad prefix", "10.0.2.0/24", "10.0.2/24", `f.yaml:8: groups[1].prefixes[0]: "10.0.2/24": expected a prefix such as`},
		{"prefix with host bits", "10.0.2.0/24", "10.0.2.9/24", "f.yaml:8: groups[1].prefixes[0]: 10.0.2.9/24: has bits beyond its length: did you mean 10.0.2.0/24?"},
		{"prefix twice", "10.0.2.0/24", "10.0.1.0/24", `f.yaml:8: groups[1].prefixes[0]: 10.0.1.0/24: is already a prefix of group "rack1"`},
		{"group twice", "name: rack2", "name: rack1", `f.yaml:8: groups[1].name: "rack1": two groups have that name`},
		{"reserved group", "name: rack2", "name: unknown", `f.yaml:8: groups[1].name: "unknown": is reserved`},
		{"level", "{name: rack2, level: rack", "{name: rack2, level: row", `f.yaml:8: groups[1].level: "row": expected host, rack, pod or cluster`},
		{"parent", "{name: rack2, level: rack", "{name: rack2, level: rack, parent: rack9", `f.yaml:8: groups[1].parent: "rack9": no group has that name`},
		{"parent not above", "{name: rack2, level: rack", "{name: rack2, level: rack, parent: rack1", `f.yaml:8: groups[1].parent: "rack1" is a rack, not above a rack`},
		{"device twice", "name: spine1", "name: leaf1", `f.yaml:15: devices[1].name: "leaf1": is already the name of devices[0]`},
		{"device named as a host", "name: spine1", "name: h1", `f.yaml:15: devices[1].name: "h1": is already the name of hosts[0]`},
		{"device name", "name: spine1", "name: 'spine:1'", `f.yaml:15: devices[1].name: "spine:1": expected printable characters`},
		{"stage missing", "    stage: spine\n", "", "f.yaml:15: devices[1].stage: is missing"},
		{"port twice", "name: down1, id: 2", "name: up1, id: 2", `f.yaml:14: devices[0].ports[1].name: "up1": device "leaf1" has two ports of that name`},
		{"port id twice", "id: 3", "id: 1", "f.yaml:18: devices[1].ports[0].id: 1: is already the id of port leaf1:up1"},
		{"port id beyond the locator", "id: 3", "id: 64", "f.yaml:18: devices[1].ports[0].id: 64: does not fit the locator of compact/ietf01 (at most 63)"},
		{"orientation", "orientation: up", "orientation: north", `f.yaml:13: devices[0].ports[0].orientation: "north": expected up, down or side`},
		{"speed missing", ", speed: 25Gbps", "", "f.yaml:14: devices[0].ports[1].speed: is missing"},
		{"speed", "speed: 25Gbps", "speed: fast", `f.yaml:14: devices[0].ports[1].speed: parse quantity "fast"`},
		{"peer", "peer: leaf1", "peer: leaf9", `f.yaml:18: devices[1].ports[0].peer: "leaf9": no device or host has that name`},
		{"own peer", "peer: leaf1", "peer: spine1", `f.yaml:18: devices[1].ports[0].peer: "spine1": is the port's own device`},
		{"host without port", "peer: h1, ", "", `f.yaml:20: hosts[0]: no port faces host "h1"`},
		{"address", "[10.0.1.1]", "[10.0.1.1.1]", `f.yaml:21: hosts[0].addresses[0]: "10.0.1.1.1": expected an IP address`},
		{"address twice", "[10.0.1.1]", "[10.0.1.1, '::ffff:10.0.1.1']", `hosts[0].addresses[1]: ::ffff:10.0.1.1: is already an address of host "h1"`},
		{"no address", "[10.0.1.1]", "[]", `f.yaml:21: hosts[0].addresses: host "h1" has none`},
		{"tap place", "place: receiver", "place: roof", `f.yaml:23: taps[0].place: "roof": expected receiver, sender or mid`},
		{"after an empty item", "hosts:\n  - name: h1", "hosts:\n  -\n  - name: h 1", `f.yaml:21: hosts[0].name: "h 1": expected printable`},
		{"two documents", "version: 1", "version: 1\n---\nversion: 1", "parse f.yaml: more than one YAML document"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(small, c.old) {
				t.Fatalf("%q is not in the file", c.old)
			}
			_, err := Parse(strings.NewReader(strings.Replace(small, c.old, c.text, 1)), "f.yaml")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

func TestParseCutFiles(t *testing.T) {
	for n := range len(small) {
		s, err := Parse(strings.NewReader(small[:n]), "f.yaml")
		if err == nil {
			compile(t, s)
		} else if !strings.HasPrefix(err.Error(), "f.yaml:") && n > 0 {
			t.Errorf("cut at byte %d: %v: expected file and line", n, err)
		}
	}
}

func TestParseReportsAllMistakesAtOnce(t *testing.T) {
	text := strings.NewReplacer("speed: 25Gbps", "speed: fast", "place: receiver", "place: roof", "10.0.2.0/24", "x").Replace(small)
	_, err := Parse(strings.NewReader(text), "f.yaml")
	for _, line := range []string{"f.yaml:14:", "f.yaml:23:", "f.yaml:8:"} {
		if err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("no %s in %v", line, err)
		}
	}
	var s *SpecError
	if !errors.As(err, &s) || s.Line == 0 || s.File != "f.yaml" {
		t.Errorf("first error %+v: expected its file and line", s)
	}
}

func TestParseBoundsErrors(t *testing.T) {
	text := "version: 1\nhosts:\n" + strings.Repeat("  - {name: '', addresses: []}\n", 500)
	_, err := Parse(strings.NewReader(text), "f.yaml")
	if err == nil || !strings.Contains(err.Error(), "more errors") || strings.Count(err.Error(), "\n") != maxProblems {
		t.Errorf("got %v, want %d errors and how many more there are", err, maxProblems)
	}
}

func TestParseRefusesEmptyAndHugeFiles(t *testing.T) {
	for name, text := range map[string]string{
		"is empty":           "",
		"larger than 32 MiB": strings.Repeat("#", maxFile+1),
	} {
		if _, err := Parse(strings.NewReader(text), "f.yaml"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that the file does not exist", err)
	}
}

// TestWriteInParts: lists of several parts are read back, with each comment before its element.
func TestWriteInParts(t *testing.T) {
	s := &Spec{Version: SpecVersion, Name: "parts"}
	comments := map[string]string{}
	for i := range 2*partLen + 1 {
		name := fmt.Sprintf("d%d", i)
		s.Devices = append(s.Devices, DeviceSpec{Name: name, Stage: "leaf", Ports: []PortSpec{{Name: name + "-p", Orientation: "up", Speed: "1Gbps"}}})
		s.Groups = append(s.Groups, GroupSpec{Name: "g" + name, Level: "rack", Prefixes: []string{fmt.Sprintf("10.0.%d.0/24", i)}})
		comments[fmt.Sprintf("devices[%d]", i)] = "about " + name
		comments[fmt.Sprintf("devices[%d].ports[0]", i)] = "about " + name + "-p"
		comments[fmt.Sprintf("groups[%d]", i)] = "about g" + name
	}
	var b bytes.Buffer
	if err := s.WriteCommented(&b, "a head", comments); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	again, err := Parse(&b, "written")
	if err != nil || !reflect.DeepEqual(s, again) {
		t.Errorf("read back as %+v, wrote %+v: %v", again, s, err)
	}
	for _, name := range []string{"d0", "d15-p", "d16", "gd16", "d32", "d32-p", "gd32"} {
		if !regexp.MustCompile("# about " + name + `\n +- \{?name: ` + name + `\b`).MatchString(text) {
			t.Errorf("no comment about %s before it in\n%s", name, text)
		}
	}
	if n := strings.Count(text, "devices:"); n != 1 || !strings.HasPrefix(text, "# a head\n") {
		t.Errorf("%d times devices in\n%s", n, text)
	}
}

// TestWriteRefusesHugeFiles: no fabric file is written that Parse refuses for its size.
func TestWriteRefusesHugeFiles(t *testing.T) {
	var whole bytes.Buffer
	s := clos(4, 2, 2)
	if err := s.Write(&whole); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]string{whole.Len(): "", whole.Len() - 1: "larger than 32 MiB"} {
		err := s.encode(&boundedWriter{io.Discard, most}, "", nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes of %d: got %v, want %q", most, whole.Len(), err, want)
		}
	}
}

func TestPortIDsPerDevice(t *testing.T) {
	text := strings.Replace(small, "{field: port_id, bits: 6}", "{field: device_id, bits: 2}, {field: port_id, bits: 4}", 1)
	text = strings.Replace(text, "id: 3, ", "id: 1, ", 1)
	text = strings.Replace(text, "    stage: leaf", "    stage: leaf\n    id: 1", 1)
	text = strings.Replace(text, "    stage: spine", "    stage: spine\n    id: 2", 1)
	whole, err := Parse(strings.NewReader(text), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// The locators may also stand in the configuration.
	begin, end := strings.Index(text, "csig:"), strings.Index(text, "devices:")
	bare, err := Parse(strings.NewReader(text[:begin]+text[end:]), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(bare, domainOf(t, whole))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*Fabric{compile(t, whole), f} {
		for lm, want := range map[uint16]string{1<<4 | 1: "leaf1:up1", 2<<4 | 1: "spine1:down1"} {
			if loc, _ := locate(t, f, compact, 0, lm, "", ""); loc.Name != want {
				t.Errorf("lm 0x%x is %q, want %s", lm, loc.Name, want)
			}
		}
	}
}

// TestMissingIDs: ports and devices without the id that a locator holds are missing facts, and so is
// the meaning of locator 0 if a port writes it.
func TestMissingIDs(t *testing.T) {
	const ofPorts = "the locator of compact/ietf01 has port_id, so the locations of tags that name these ports are unknown"
	without := regexp.MustCompile(`id: \d, `).ReplaceAllString(small, "")
	perDevice := strings.Replace(small, "{field: port_id, bits: 6}", "{field: device_id, bits: 2}, {field: port_id, bits: 4}", 1)
	for text, want := range map[string]string{
		small:                                    "",
		without:                                  "id of leaf1:down1, leaf1:up1, spine1:down1: " + ofPorts,
		strings.Replace(small, "id: 2, ", "", 1): "id of leaf1:down1: " + ofPorts,
		strings.Replace(without, "{field: port_id, bits: 6}", "{field: stage, bits: 2, values: {1: leaf, 2: spine}}", 1): "",
		strings.Replace(without, "{field: port_id, bits: 6}", "{field: stage, bits: 2, values: {0: leaf, 1: spine}}", 1): "zero_is_location of the locator of compact/ietf01, which is 0 for leaf1:down1, leaf1:up1: without it, " +
			"0 is the value that hosts send, so the locations of tags that name these ports are unknown",
		perDevice: "id of leaf1, spine1: the locator of compact/ietf01 has device_id, so the locations of tags that name ports of these devices are unknown",
		strings.Replace(perDevice, "    stage: spine", "    stage: spine\n    id: 1", 1): "id of leaf1: the locator of compact/ietf01 has device_id, so the locations of tags that name ports of these devices are unknown",
	} {
		s, err := Parse(strings.NewReader(text), "f.yaml")
		if err != nil {
			t.Fatal(err)
		}
		lines, _ := compile(t, s).Review()
		lines = slices.DeleteFunc(lines, func(line string) bool {
			return !strings.HasPrefix(line, "id of ") && !strings.HasPrefix(line, "zero_is_location of ")
		})
		if got := strings.Join(lines, "\n"); got != want {
			t.Errorf("missing %q, expected %q in\n%s", got, want, text)
		}
	}
}

func TestWarnings(t *testing.T) {
	text := strings.Replace(small, "{field: port_id, bits: 6}", "{field: stage, bits: 2, values: {1: leaf}}, {field: capacity, bits: 2, values: {0: 100Gbps}}", 1)
	text = strings.Replace(text, "10.0.1.0/24", "10.9.1.0/24", 1)
	text = strings.Replace(text, "orientation: up, peer: spine1", "orientation: up", 1)
	s, err := Parse(strings.NewReader(text), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(compile(t, s).Warnings(), "\n")
	for _, want := range []string{
		`stage "spine", as of port spine1:down1, is not in the value table of the locator of compact/ietf01`,
		`capacity "25Gbps", as of port leaf1:down1, is not in the value table`,
		"port spine1:down1 faces leaf1, which has no port that faces spine1",
		"address 10.0.1.1 of host h1 is in no group",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no warning %q in\n%s", want, got)
		}
	}
	if _, f := load(t, "leafspine.yaml"); len(f.Warnings()) != 0 {
		t.Errorf("warnings about a sound fabric: %q", f.Warnings())
	}
}
