package csig_test

import (
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode/csig"
)

// Every error names the wrong part of the file.
func TestCompileErrors(t *testing.T) {
	t.Parallel()
	table := func(rest string) string {
		return "tables: [{format: compact, signal: min_abw_ratio, " + rest + "}]"
	}
	locator := func(fields string) string {
		return "locators: [{format: compact, fields: [" + fields + "]}]"
	}
	for _, tc := range []struct{ name, yaml, want string }{
		{"tpid twice", "tpids: [{tpid: 0x9900, format: compact, profile: ietf01}, {tpid: 0x9900, format: wide, profile: ietf01}]", "tpids[1]: tpid 0x9900: configured twice"},
		{"tpid of IPv4", "tpids: [{tpid: 0x0800, format: compact, profile: ietf01}]", "another protocol"},
		{"tpid is a length", "tpids: [{tpid: 0x05ff, format: compact, profile: ietf01}]", "is a length"},
		{"tpid without profile", "tpids: [{tpid: 0x9900, format: compact}]", "no profile"},
		{"tpid format", "tpids: [{tpid: 0x9900, format: tiny, profile: ietf01}]", `"tiny"`},
		{"tpid profile", "tpids: [{tpid: 0x9900, format: compact, profile: ietf02}]", `"ietf02"`},
		{"too many tpids", tooManyTPIDs(), "more than 16"},

		{"gap", table(`buckets: ["1%", "2%"]`), "tables[0] (compact min_abw_ratio): bucket 0: starts at 1% and leaves a gap"},
		{"overlap", table(`buckets: ["0%", "2%", "2%"]`), "bucket 2: starts at 2%, not above the start of bucket 1"},
		{"bounds that are one when stored", "tables: [{format: compact, signal: min_abw, buckets: [0bps, 1600bps, 2400bps]}]", "tables[0] (compact min_abw): bucket 2: starts at 2400bps, not above the start of bucket 1"},
		{"descending", table(`buckets: ["0%", "2%", "1%"]`), "bucket 2"},
		{"bucket text", table(`buckets: ["0%", "2Gbps"]`), "bucket 1: parse quantity"},
		{"no buckets", table(`buckets: []`), "expected 1 to 32"},
		{"more buckets than codes", table(`mask: 1, buckets: ["0%", "1%", "2%"]`), "3 buckets: expected 1 to 2"},
		{"upper below", table(`buckets: ["0%", "2%"], upper: "2%"`), "bucket 1: ends at upper, 2%, not above its start"},
		{"upper text", table(`buckets: ["0%"], upper: much`), "upper: parse quantity"},
		{"upper of steps", table(`quantum: "1%", upper: "2%"`), "only a table of buckets"},
		{"no scale", table(`heavy: "20%"`), "exactly one of"},
		{"two scales", table(`quantum: "1%", step_bits: 3`), "exactly one of"},
		{"base of buckets", table(`buckets: ["0%"], base: "1%"`), "base and step_unit"},
		{"base of a quantum", table(`quantum: "1%", base: "1%"`), "base and step_unit"},
		{"quantum rounds to nothing", table(`quantum: "0.1ppm"`), "is 0 after rounding"},
		{"quantum text", table(`quantum: "x"`), "quantum: parse quantity"},
		{"base text", table(`step_bits: 1, base: "x"`), "base: parse quantity"},
		{"step unit text", table(`step_bits: 1, step_unit: "x"`), "step_unit: parse quantity"},
		{"step bits", table(`step_bits: 31`), "step_bits 31"},
		{"step out of range", table(`step_bits: 30, step_unit: "9e9"`), "out of range"},
		{"step wraps", table(`step_bits: 14, step_unit: "1125899906842625ppm"`), "out of range"},
		{"span out of range", "tables: [{format: wide, signal: min_abw, quantum: 9000000Tbps}]", "bucket 1048575 is out of range"},
		{"mask empty", table(`quantum: "1%", mask: 0`), "mask 0x0"},
		{"mask too wide", table(`quantum: "1%", mask: 0x3f`), "mask 0x3f"},
		{"mask with a hole", table(`quantum: "1%", mask: 5`), "run of bits"},
		{"mask and shift", table(`quantum: "1%", mask: 6`), "run of bits"},
		{"shift beyond the mask", table(`quantum: "1%", mask: 7, shift: 200`), "run of bits"},
		{"fixed inside the mask", table(`quantum: "1%", mask: 7, fixed: 4`), "fixed 0x4"},
		{"fixed too wide", table(`quantum: "1%", mask: 7, fixed: 0x20`), "fixed 0x20"},
		{"initial too wide", table(`quantum: "1%", initial: 32`), "initial 32"},
		{"heavy text", table(`quantum: "1%", heavy: "a lot"`), "heavy: parse quantity"},
		{"heavy beyond", table(`quantum: "1%", heavy: "101%"`), "more than 100%"},
		{"interval text", table(`quantum: "1%", interval: "1%"`), "interval: parse quantity"},
		{"signal", "tables: [{format: compact, signal: abw, quantum: 1Gbps}]", `parse signal "abw"`},
		{"signal of another profile", "tables: [{format: compact, profile: ietf01, signal: max_nqd, quantum: 1%}]", "not defined by the profile"},
		{"range leaves a gap", table(`buckets: ["0%-1%", "2%-3%"]`), "bucket 1: starts at 2% and leaves a gap from the end of bucket 0"},
		{"range overlaps", table(`buckets: ["0%-2%", "1%-3%"]`), "bucket 1: starts at 1% and overlaps bucket 0"},
		{"range is empty", table(`buckets: ["0%", "1%-1%"]`), "bucket 1: ends at 1%, not above its start"},
		{"range text", table(`buckets: ["0%-much"]`), "bucket 0: parse quantity"},
		{"upper of a range", table(`buckets: ["0%-2%"], upper: "3%"`), "bucket 0: ends elsewhere than at upper, 3%"},
		{"unit of a known signal", table(`quantum: "1%", unit: ratio`), "those of min_abw_ratio are defined"},
		{"aggregation of a known signal", table(`quantum: "1%", aggregation: min`), "those of min_abw_ratio are defined"},
		{"unit of an unknown signal", "tables: [{format: compact, profile: ietf01, signal: type_3, unit: bits, aggregation: max, quantum: 1}]", `parse unit "bits"`},
		{"aggregation of an unknown signal", "tables: [{format: compact, profile: ietf01, signal: type_3, unit: ns, aggregation: mean, quantum: 1ns}]", `parse aggregation "mean"`},
		{"no aggregation", "tables: [{format: compact, profile: ietf01, signal: type_3, unit: ns, quantum: 1ns}]", "needs unit and aggregation"},
		{"unknown signal", "tables: [{format: compact, profile: ietf01, signal: type_3, quantum: 1%}]", "has no unit"},
		{"count of another unit", "tables: [{format: compact, profile: ietf01, signal: type_3, unit: ns, aggregation: count, quantum: 1ns}]", "its unit is count and not ns"},
		{"full name of an unknown signal", "tables: [{format: compact, profile: ietf01, signal: 'type_3:max:ns', quantum: 1ns}]", "not defined by the profile"},
		{"shipped name", "shipped: [linear-32, linear-64]", `shipped[1]: read shipped tables "linear-64": expected one of appendix-a`},
		{"table format", "tables: [{signal: min_abw, quantum: 1Gbps}]", "parse format"},

		{"unknown field", locator("{field: color, bits: 3}"), "fields[0] (color): unknown field: expected one of stage"},
		{"too many bits", locator("{field: port_id, bits: 7}"), "fields take 7 bits: expected 1 to 6 in compact/uec050"},
		{"no fields", locator(""), "fields take 0 bits"},
		{"no bits", locator("{field: port_id, bits: 3}, {field: ttl, bits: 0}"), "bits: expected at least 1"},
		{"field twice", locator("{field: port_id, bits: 3}, {field: port_id, bits: 3}"), "fields[1] (port_id): given twice"},
		{"stage without values", locator("{field: stage, bits: 3}"), "values: stage, orientation and capacity"},
		{"port with values", locator("{field: port_id, bits: 3, values: {1: a}}"), "values: stage, orientation and capacity"},
		{"value beyond the bits", locator("{field: stage, bits: 1, values: {2: leaf}}"), "2 does not fit"},
		{"value twice", locator("{field: stage, bits: 2, values: {1: leaf, 2: leaf}}"), `"leaf" is given twice`},
		{"capacity text", locator("{field: capacity, bits: 2, values: {1: fast}}"), "parse quantity"},
		{"capacity twice", locator("{field: capacity, bits: 2, values: {1: 100Gbps, 2: 0.1Tbps}}"), "is given twice"},
		{"ttl bits", "locators: [{format: wide, fields: [{field: ttl, bits: 9}]}]", "a TTL has at most 8"},
		{"locator signal", "locators: [{format: compact, signal: abw, fields: [{field: port_id, bits: 3}]}]", "parse signal"},
		{"locator signal beyond the format", "locators: [{format: compact, signal: type_12, fields: [{field: port_id, bits: 3}]}]", "not a signal type"},

		{"reflection length", "reflections: [{kind: 200, length: some}]", `reflections[0]: length "some"`},
		{"reflection is padding", "reflections: [{kind: 1}]", "kind 1: is the TCP option of another protocol"},
		{"reflection is timestamps", "reflections: [{kind: 8}]", "kind 8: is the TCP option of another protocol"},
		{"experiment without id", "reflections: [{kind: 253}]", "needs exid"},
		{"id without experiment", "reflections: [{kind: 200, exid: 1, exid_bits: 16}]", "only kinds 253 and 254"},
		{"id without bits", "reflections: [{kind: 200, exid: 1}]", "exid_bits is missing"},
		{"id bits", "reflections: [{kind: 253, exid: 1, exid_bits: 24}]", "exid_bits 24"},
		{"id too wide", "reflections: [{kind: 253, exid: 0x10000, exid_bits: 16}]", "does not fit 16 bits"},
		{"reflection profile", "reflections: [{kind: 200, compact: x}]", "parse profile"},
		{"reflection twice", "reflections: [{kind: 200}, {kind: 200, wide: ietf01}]", "reflections[1]: kind 200, exid 0x0: configured twice"},
		{"too many reflections", tooManyReflections(), "more than 16"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var s csig.Spec
			if err := yaml.Unmarshal([]byte(tc.yaml), &s); err != nil {
				t.Fatal(err)
			}
			_, err := s.Compile()
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "compile ") {
				t.Errorf("Compile() = %v, want %q", err, tc.want)
			}
		})
	}
}

func tooManyTPIDs() string {
	var b strings.Builder
	b.WriteString("tpids:\n")
	for i := range 17 {
		fmt.Fprintf(&b, "- {tpid: %d, format: compact, profile: ietf01}\n", 0x9900+i)
	}
	return b.String()
}

func tooManyReflections() string {
	var b strings.Builder
	b.WriteString("reflections:\n")
	for i := range 17 {
		fmt.Fprintf(&b, "- {kind: %d}\n", 100+i)
	}
	return b.String()
}
