package csig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode/csig"
)

func udpSpec(t *testing.T, text string) csig.Spec {
	t.Helper()
	var s csig.Spec
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestUDPReflectionCompiles(t *testing.T) {
	t.Parallel()
	spec := udpSpec(t, `udp_reflections:
- {ports: [7000, 7001], offset: 12, format: wide, profile: ietf01, valid_offset: 3, valid_mask: 0x80}
- {ports: [7000], offset: 18, format: compact, profile: uec050, match_offset: 1, match_mask: 0x0f, match_value: 2}
- {offset: 16, format: wide, profile: uec050, pds_type: 8}
- {ports: [9000], offset: 16, format: wide, profile: uec050, pds_type: 31}
`)
	got := compile(t, spec).UDPReflections()
	want := []csig.UDPReflection{
		{Ports: []uint16{7000, 7001}, Layout: csig.Layout{Format: csig.Wide, Profile: csig.IETF01}, Offset: 12, ValidOffset: 3, ValidMask: 0x80},
		{Ports: []uint16{7000}, Layout: csig.Layout{Format: csig.Compact, Profile: csig.UEC050}, Offset: 18, MatchOffset: 1, MatchMask: 15, MatchValue: 2},
		{Ports: []uint16{4793}, Layout: csig.Layout{Format: csig.Wide, Profile: csig.UEC050}, Offset: 16, MatchMask: 0xf8, MatchValue: 0x40},
		{Ports: []uint16{9000}, Layout: csig.Layout{Format: csig.Wide, Profile: csig.UEC050}, Offset: 16, MatchMask: 0xf8, MatchValue: 0xf8},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text, err := yaml.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spec, udpSpec(t, string(text))); diff != "" {
		t.Errorf("round trip (-want +got):\n%s", diff)
	}
	if n := len(compile(t, csig.DefaultSpec()).UDPReflections()); n != 0 {
		t.Errorf("%d reflections over UDP by default", n)
	}
	merged := csig.DefaultSpec().Overlay(spec)
	if diff := cmp.Diff(spec.UDPReflections, merged.Overlay(csig.Spec{}).UDPReflections); diff != "" {
		t.Errorf("overlay (-want +got):\n%s", diff)
	}
}

// Two places may share a port if they never read the same bytes of one datagram.
func TestUDPReflectionsBesideEachOther(t *testing.T) {
	t.Parallel()
	const first = "udp_reflections:\n- {ports: [7000], offset: 4, format: wide, profile: uec050, match_mask: 3, match_value: 1}\n- "
	for text, ok := range map[string]bool{
		"{ports: [7000], offset: 10, format: wide, profile: uec050}":                                                true,
		"{ports: [7000], offset: 2, format: compact, profile: uec050}":                                              true,
		"{ports: [7001], offset: 4, format: wide, profile: uec050}":                                                 true,
		"{ports: [7000], offset: 4, format: wide, profile: uec050, match_mask: 3, match_value: 2}":                  true,
		"{ports: [7000], offset: 4, format: wide, profile: uec050, match_mask: 4, match_value: 4}":                  false,
		"{ports: [7000], offset: 9, format: wide, profile: uec050}":                                                 false,
		"{ports: [1, 7000], offset: 3, format: compact, profile: uec050}":                                           false,
		"{ports: [7000], offset: 4, format: wide, profile: uec050, match_offset: 1, match_mask: 3, match_value: 2}": false,
	} {
		_, err := udpSpec(t, first+text).Compile()
		if (err == nil) != ok || (!ok && !strings.Contains(err.Error(), "compile udp_reflections[1]: port 7000: the data fields at offset")) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestUDPReflectionErrors(t *testing.T) {
	t.Parallel()
	const rest = ", format: wide, profile: uec050"
	for text, want := range map[string]string{
		"ports: [1], profile: uec050":                                       "parse format",
		"ports: [1], format: wide":                                          "no profile",
		"ports: [1], format: wide, profile: x":                              "parse profile",
		"offset: 1" + rest:                                                  "0 ports: expected 1 to 16",
		"ports: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]" + rest:         "17 ports",
		"ports: [0]" + rest:                                                 "0 is no port",
		"ports: [7, 7]" + rest:                                              "7 is no port or is given twice",
		"ports: [1], offset: 1025" + rest:                                   "offset 1025",
		"ports: [1], offset: 65535" + rest:                                  "offset 65535",
		"ports: [1], valid_offset: 1025, valid_mask: 1" + rest:              "valid_offset 1025",
		"ports: [1], match_offset: 1025, match_mask: 1" + rest:              "match_offset 1025",
		"ports: [1], valid_offset: 8" + rest:                                "no effect without valid_mask",
		"ports: [1], valid_offset: 5, valid_mask: 1" + rest:                 "valid_offset 5: lies in the data fields",
		"ports: [1], match_offset: 8" + rest:                                "no effect without match_mask",
		"ports: [1], match_value: 8" + rest:                                 "no effect without match_mask",
		"ports: [1], match_offset: 8, match_mask: 1, match_value: 2" + rest: "so that nothing matches",
		"ports: [1], match_offset: 5, match_mask: 1" + rest:                 "match_offset 5: lies in the data fields",
		"offset: 9, pds_type: 32" + rest:                                    "pds_type 32: expected 0 to 31",
		"offset: 9, pds_type: 3, match_mask: 3" + rest:                      "pds_type: is a match of its own",
		"offset: 0, pds_type: 3" + rest:                                     "match_offset 0: lies in the data fields",
	} {
		_, err := udpSpec(t, "udp_reflections: [{"+text+"}]").Compile()
		if err == nil || !strings.HasPrefix(err.Error(), "compile udp_reflections[0]: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("{%s}: %v, want %q", text, err, want)
		}
	}
	var many csig.Spec
	for i := range 17 {
		many.UDPReflections = append(many.UDPReflections, csig.UDPReflectionSpec{Ports: []uint16{uint16(i + 1)}, Format: "wide", Profile: "uec050"})
	}
	if _, err := many.Compile(); err == nil || !strings.Contains(fmt.Sprint(err), "more than 16") {
		t.Errorf("17 reflections over UDP: %v", err)
	}
}
