package main

import (
	"bytes"
	wire "encoding/binary"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// examples returns the configuration files in a text.
func examples(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, block := range regexp.MustCompile("(?s)```yaml\n((?:# )?csig:.*?)```").FindAllStringSubmatch(string(text), -1) {
		list = append(list, block[1])
	}
	return list
}

// TestDocumentedConfiguration: the examples in the documents are accepted.
func TestDocumentedConfiguration(t *testing.T) {
	for path, want := range map[string]int{"REFERENCE.md": 4, "../../decode/README.md": 3} {
		list := examples(t, path)
		if len(list) != want {
			t.Errorf("%s: %d examples, want %d", path, len(list), want)
		}
		for _, text := range list {
			if _, err := openNetwork(writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), text), ""); err != nil {
				t.Errorf("%s: %v in:\n%s", path, err, text)
			}
		}
	}
}

// TestDocumentedKeys: the reference has each key of the section csig.
func TestDocumentedKeys(t *testing.T) {
	var missing func(section reflect.Type) []string
	missing = func(section reflect.Type) (keys []string) {
		for f := range section.Fields() {
			key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if !strings.Contains(tablesReference, "`"+key+"`") {
				keys = append(keys, section.Name()+": "+key)
			}
			if elem := f.Type; elem.Kind() == reflect.Slice && elem.Elem().Kind() == reflect.Struct {
				keys = append(keys, missing(elem.Elem())...)
			}
		}
		return keys
	}
	if keys := missing(reflect.TypeFor[csig.Spec]()); keys != nil {
		t.Errorf("not in tables.md: %v", keys)
	}
}

// TestDocumentedFabric: the documented fabric file is valid, and has every key outside of csig.
func TestDocumentedFabric(t *testing.T) {
	text, err := os.ReadFile("../../aggregate/README.md")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile("(?s)```yaml\n(version: 1\n.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(list) != 1 {
		t.Fatalf("%d examples, want 1", len(list))
	}
	if _, err := openNetwork("", writeFile(t, filepath.Join(t.TempDir(), "fabric.yaml"), list[0][1])); err != nil {
		t.Errorf("%v in:\n%s", err, list[0][1])
	}
	var has func(section reflect.Type)
	has = func(section reflect.Type) {
		for f := range section.Fields() {
			key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if !regexp.MustCompile(`\b` + key + ":").MatchString(list[0][1]) {
				t.Errorf("the example lacks the key %q of %s", key, section)
			}
			if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
				has(f.Type.Elem())
			}
		}
	}
	has(reflect.TypeFor[fabric.Spec]())
}

// typesConfig is the reference's example, which defines types 5 and 6 of compact ietf01 tags
// and leaves 7 undefined.
func typesConfig(t *testing.T) string {
	t.Helper()
	for _, text := range examples(t, "REFERENCE.md") {
		if strings.Contains(text, "type_5") && strings.Contains(text, "type_6") {
			return text
		}
	}
	t.Fatal("the reference has no example of a table for types to come")
	return ""
}

// tagged is n frames of a second with one tag.
type tagged struct {
	second int
	n      int
	tag    csig.Tag
}

// typesCapture writes a classic pcap of tagged UDP packets from 10.0.1.1 to 10.0.2.1.
func typesCapture(t *testing.T, path string, list []tagged) {
	t.Helper()
	var file bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if err := wire.Write(&file, wire.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(uint32(0xa1b23c4d), uint16(2), uint16(4), uint32(0), uint32(0), uint32(65535), uint32(1))
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	packet := 0
	for _, x := range list {
		x.tag.Layout = csig.Layout{Format: csig.Compact, Profile: csig.IETF01}
		for range x.n {
			packet++
			frame := append(make([]byte, 12), 0x99, 0x00)
			frame = append(x.tag.Append(frame), 0x08, 0x00)
			frame = append(frame, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1)
			frame = append(frame, 0x10, 0, 0x20, 0, 0, 8, 0, 0)
			put(uint32(at.Unix()+int64(x.second)), uint32(packet*1000), uint32(len(frame)), uint32(len(frame)), frame)
		}
	}
	if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// typedCell is a line of query cells and windows.
type typedCell struct {
	Window, State  string
	Mean, Min, Max *float64
	Unit           string
	Heavy          int
	Mode           string
	Count          int
	RunnerUp       string
}

// typedCells returns the cells or windows of an answer.
func typedCells(list []answeredCell) (out []typedCell) {
	for _, c := range list {
		t := typedCell{Window: c.From, State: c.State, Heavy: int(c.Heavy), Mode: c.Mode.Location, Count: int(c.Mode.Heavy), RunnerUp: c.RunnerUp.Location}
		for unit := range c.Mean {
			t.Unit, t.Mean, t.Min, t.Max = unit, new(only(c.Mean)), new(only(c.Min)), new(only(c.Max))
		}
		out = append(out, t)
	}
	return out
}

func (c *typedCell) check(t *testing.T, what string, want typedCell) {
	t.Helper()
	same := func(a, b *float64) bool {
		return a == nil && b == nil || a != nil && b != nil && math.Abs(*a-*b) < 1e-6
	}
	if !same(c.Mean, want.Mean) || !same(c.Min, want.Min) || !same(c.Max, want.Max) {
		t.Errorf("%s: mean, min and max are not %g, %g, %g", what, *want.Mean, *want.Min, *want.Max)
	}
	c.Mean, c.Min, c.Max, want.Mean, want.Min, want.Max = nil, nil, nil, nil, nil, nil
	if *c != want {
		t.Errorf("%s:\n got %+v\nwant %+v", what, *c, want)
	}
}

// TestTypesToCome: a type that the profile does not define is decoded, aggregated, stored and
// answered according to its table, and counted as unknown without one.
func TestTypesToCome(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dir := t.TempDir()
	config := writeFile(t, filepath.Join(dir, "config.yaml"), typesConfig(t))
	capture := filepath.Join(dir, "types.pcap")
	typesCapture(t, capture, []tagged{
		{0, 10, csig.Tag{T: 5, S: 5, LM: 7}}, // [16, 32) us
		{0, 6, csig.Tag{T: 5, S: 6, LM: 9}},  // [32, 64) us
		{0, 4, csig.Tag{T: 5, S: 1, LM: 3}},  // [1, 2) us
		{0, 2, csig.Tag{T: 5, S: 0, LM: 3}},  // untouched, [0, 1) us
		{1, 12, csig.Tag{T: 5, S: 6, LM: 9}},
		{1, 12, csig.Tag{T: 6, S: 12, LM: 5}},
		{1, 12, csig.Tag{T: 6, S: 3, LM: 5}},
		{1, 3, csig.Tag{T: 7, S: 3, LM: 5}},
	})
	checkTypesDecoded(t, mustRun(t, env, "decode", "--config", config, capture))
	checkTypesText(t, mustRun(t, env, "replay", "--config", config, "--store", "none", capture))
	dsn := newStore(t, env, filepath.Join(dir, "store"))
	keepEngine(t, env, dsn)
	summary := mustRun(t, env, "replay", "--config", config, "--store", dsn, "-o", "json", capture)
	query := func(args ...string) string {
		return mustRun(t, env, append([]string{"query", "--store", dsn}, args...)...)
	}
	checkTypesJSON(t, summary, query)
	checkMaximum(t, query)
	checkSum(t, query)
	if cells := typedCells(answeredCells(t, query("cells", "-o", "json", "--signal", "type_7"))); len(cells) != 1 || cells[0].Mean != nil || cells[0].Unit != "" {
		t.Errorf("type_7 has no table, and cells %+v", cells)
	}
	if got := query("extent", "-o", "csv"); !strings.Contains(got, "type_7 type_5 type_6") {
		t.Errorf("extent does not list the types:\n%s", got)
	}
}

func checkTypesDecoded(t *testing.T, text string) {
	t.Helper()
	lines := strings.Split(text, "\n")
	for packet, want := range map[int]string{
		1:  `"signal":"type_5","signal_type":5,"code":5,"low":16000,"high":32000,"unit":"ns","lm":7,"untouched":false`,
		21: `"signal":"type_5","signal_type":5,"code":0,"low":0,"high":1000,"unit":"ns","lm":3,"untouched":true`,
		35: `"signal":"type_6","signal_type":6,"code":12,"low":12,"high":13,"unit":"count","lm":5`,
		59: `"signal":"type_7","signal_type":7,"code":3,"lm":5,"untouched":false`,
	} {
		if !strings.Contains(lines[packet-1], want) {
			t.Errorf("packet %d:\n got %s\nwant %s", packet, lines[packet-1], want)
		}
	}
}

func checkTypesText(t *testing.T, text string) {
	t.Helper()
	for _, want := range []string{
		`(?m)^type_5: 1 of 1 cells were congested, 1 of them at the end$`, `(?m) tag +32.68 us +82.4 % +lm:compact/ietf01:9 +64.3 % +lm:compact/ietf01:7 +35.7 % +34 +congested$`,
		`(?m)^type_6: 1 of 1 cells were congested, 1 of them at the end$`, `(?m) tag +7.5 +50.0 % +- +- +- +- +24 +congested$`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("the summary has no line %s:\n%s", want, text)
		}
	}
}

// checkTypesJSON: the cells of a summary equal those that query prints, except for their trend.
func checkTypesJSON(t *testing.T, text string, query func(...string) string) {
	t.Helper()
	summary := decodeJSON[struct {
		Observations struct {
			Unknown int `json:"unknown_type"`
		} `json:"observations"`
		Cells []map[string]any `json:"cells"`
	}](t, text)
	if summary.Observations.Unknown != 3 || len(summary.Cells) != 2 {
		t.Fatalf("%d observations of an unknown type and %d cells, want 3 and 2", summary.Observations.Unknown, len(summary.Cells))
	}
	for i, signal := range []string{"type_5", "type_6"} {
		answer := decodeJSON[struct {
			From, To string
			Cells    []map[string]any
		}](t, query("cells", "-o", "json", "--signal", signal))
		want := answer.Cells[0]
		want["from"], want["to"], want["signal"] = answer.From, answer.To, signal
		delete(want, "trend")
		if diff := cmp.Diff(want, summary.Cells[i]); diff != "" {
			t.Errorf("%s (-query +replay):\n%s", signal, diff)
		}
	}
}

func checkMaximum(t *testing.T, query func(...string) string) {
	t.Helper()
	const lm7, lm9 = "lm:compact/ietf01:7", "lm:compact/ietf01:9"
	want := []typedCell{
		{Window: "2026-01-31T12:00:00Z", State: "congested", Mean: new(535000. / 22), Min: new(500.), Max: new(48000.), Unit: "ns", Heavy: 16, Mode: lm7, Count: 10, RunnerUp: lm9},
		{Window: "2026-01-31T12:00:01Z", State: "congested", Mean: new(48000.), Min: new(48000.), Max: new(48000.), Unit: "ns", Heavy: 12, Mode: lm9, Count: 12},
	}
	windows := typedCells(answeredWindows(t, query("windows", "-o", "json", "--signal", "type_5")))
	if len(windows) != len(want) {
		t.Fatalf("%d windows, want %d: %+v", len(windows), len(want), windows)
	}
	for i := range windows {
		windows[i].check(t, "window", want[i])
	}
	whole := typedCell{State: "congested", Mean: new((535000. + 12*48000) / 34), Min: new(500.), Max: new(48000.), Unit: "ns", Heavy: 28, Mode: lm9, Count: 18, RunnerUp: lm7}
	for _, name := range []string{"type_5", "type_5:max:ns"} {
		cells := typedCells(answeredCells(t, query("cells", "-o", "json", "--signal", name)))
		if len(cells) != 1 {
			t.Fatalf("%s: %d cells, want 1", name, len(cells))
		}
		cells[0].check(t, name, whole)
	}
}

// checkSum: every hop adds to a sum, which is heavy without a bottleneck.
func checkSum(t *testing.T, query func(...string) string) {
	t.Helper()
	cells := typedCells(answeredCells(t, query("cells", "-o", "json", "--signal", "type_6")))
	if len(cells) != 1 {
		t.Fatalf("type_6: %d cells, want 1", len(cells))
	}
	cells[0].check(t, "type_6", typedCell{State: "congested", Mean: new(7.5), Min: new(3.), Max: new(12.), Unit: "count", Heavy: 12})
	if got := query("locations", "-o", "csv", "--signal", "type_6"); strings.Count(got, "\n") != 1 {
		t.Errorf("locations of a sum:\n%s", got)
	}
}
