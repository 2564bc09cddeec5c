package simulation

import (
	"encoding/csv"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// TestCounters checks that the file has only the matched ports, with a line whenever the quantized
// value of a signal changes, and an empty value while the port has no metric.
func TestCounters(t *testing.T) {
	s := named(t, "ring")
	s.Duration, s.Counters = 300*time.Millisecond, []string{"leaf3:up*"}
	s.Faults = []scenario.Behavior{{Match: "leaf3:up2", Kind: scenario.MissingMetric, Signals: []string{"max_delay"}}}
	r, _ := run(t, s)
	file, err := os.Open(r.Counters)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || strings.Join(rows[0], ",") != "time,port,signal,value" {
		t.Fatalf("%v, %v", rows, err)
	}
	s = s.WithDefaults()
	domain := scenarioDomain(t, &s)
	last, lines := map[string]uint32{}, map[string]int{}
	for _, row := range rows[1:] {
		signal, err := csig.ParseSignal(row[2])
		if err != nil {
			t.Fatal(err)
		}
		key := row[1] + " " + row[2]
		lines[key]++
		if row[3] == "" {
			continue
		}
		v, err := csig.ParseQuantity(signal.Unit(), row[3])
		if err != nil {
			t.Fatal(err)
		}
		code := domain.Table(csig.Layout{Format: csig.Wide, Profile: csig.UEC050}, signal.Type()).Quantize(v)
		if was, ok := last[key]; ok && was == code {
			t.Errorf("%v: is the value of the line before", row)
		}
		last[key] = code
	}
	for _, port := range []string{"leaf3:up1", "leaf3:up2"} {
		for _, signal := range []string{"min_abw", "min_abw_ratio", "max_delay", "max_nqd"} {
			key := port + " " + signal
			switch n := lines[key]; {
			case key == "leaf3:up2 max_delay" && n != 1, key != "leaf3:up2 max_delay" && n < 10:
				t.Errorf("%s: %d lines", key, n)
			}
		}
	}
	if len(lines) != 8 {
		t.Errorf("%v", lines)
	}
}

// TestQuantized checks that the value written for a code is quantized to the same code.
func TestQuantized(t *testing.T) {
	s := named(t, "ring")
	for _, layout := range []csig.Layout{{Format: csig.Wide, Profile: csig.UEC050}, {Format: csig.Compact, Profile: csig.IETF01}, {Format: csig.Compact, Profile: csig.UEC050}} {
		s := s.WithLayout(layout).WithDefaults()
		signals, err := scenario.NewSignals(&s, topologyOf(t, &s), scenarioDomain(t, &s))
		if err != nil {
			t.Fatal(err)
		}
		for i := range signals {
			table := signals[i].Table
			for code := range min(table.Codes(), 5000) {
				if got := table.Quantize(table.Value(code)); got != code {
					t.Fatalf("%s %s: code %d becomes %d", layout, signals[i].Kind, code, got)
				}
				text := string(appendQuantity(nil, signals[i].Kind.Unit(), table.Value(code)))
				if v, err := csig.ParseQuantity(signals[i].Kind.Unit(), text); err != nil || v != table.Value(code) {
					t.Fatalf("%s: %q is %d, %v, want %d", signals[i].Kind, text, v, err, table.Value(code))
				}
			}
		}
	}
}

func scenarioDomain(t *testing.T, s *scenario.Scenario) *csig.Domain {
	t.Helper()
	domain, err := scenario.CompileFabric(s, topologyOf(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return domain
}

// TestRefused expects errors for counters that match no port, and for a hash that sees tags if tags
// come or go on the way.
func TestRefused(t *testing.T) {
	for want, change := range map[string]func(*scenario.Scenario){
		"match no port":   func(s *scenario.Scenario) { s.Counters = []string{"leaf9"} },
		"syntax error in": func(s *scenario.Scenario) { s.Counters = []string{"["} },
		"tag-hash": func(s *scenario.Scenario) {
			s.Devices = []scenario.Behavior{{Match: "leaf3", Kind: scenario.Strip}}
			s.Faults = []scenario.Behavior{{Match: "leaf1", Kind: scenario.TagHash}}
		},
		"the same for all of a run": func(s *scenario.Scenario) {
			s.Faults = []scenario.Behavior{{Match: "leaf1", Kind: scenario.TagHash, Start: time.Millisecond}}
		},
	} {
		s := named(t, "ring")
		s.Duration = 10 * time.Millisecond
		change(&s)
		if _, err := Run(t.Context(), s, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
