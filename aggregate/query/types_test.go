package query_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestTypesOfTables asks for types that tables define. A type with one meaning has a short name;
// if several are stored, each needs its full name.
func TestTypesOfTables(t *testing.T) {
	m := small()
	delay5 := csig.ConfiguredSignal(5, csig.Nanosecond, csig.AggregateMax)
	hops5 := csig.ConfiguredSignal(5, csig.Count, csig.AggregateSum)
	free6 := csig.ConfiguredSignal(6, csig.BitPerSecond, csig.AggregateMin)
	row := m.Rows[0]
	for _, s := range []csig.Signal{delay5, hops5, free6, csig.SignalOf(csig.IETF01, 7)} {
		r := row
		r.Signal = s
		m.Rows = append(m.Rows, r)
	}
	b := build(t, m, query.Options{})
	want := []query.SignalInfo{
		{Name: "type_7", Unit: "", Direction: "max", Aggregation: ""},
		{Name: "type_6", Unit: "bit/s", Direction: "min", Aggregation: "min"},
		{Name: "type_5:max:ns", Unit: "ns", Direction: "max", Aggregation: "max"},
		{Name: "type_5:sum:count", Unit: "count", Direction: "max", Aggregation: "sum"},
	}
	if diff := cmp.Diff(want, b.Signals[len(b.Signals)-len(want):], cmpopts.IgnoreFields(query.SignalInfo{}, "NotJudgedHint")); diff != "" {
		t.Errorf("signals (-want +got):\n%s", diff)
	}
	h := query.NewHandler(query.HandlerConfig{Reader: m})
	for target, want := range map[string]string{
		"type_6":                   "type_6",
		"type_6:min:bit/s":         "type_6",
		"type_5:max:ns":            "type_5:max:ns",
		"type_5:sum:count,min_abw": "type_5:sum:count",
		"type_7":                   "type_7",
	} {
		r := serve(t, h, "GET", "/api/v1/bundle?signal="+target)
		var got query.Bundle
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.StatusCode != 200 {
			t.Fatalf("%s: status %d, %v", target, r.StatusCode, err)
		}
		d := got.Data[0]
		if name := got.Signals[d.Signal].Name; name != want || len(d.Total.Mean) != 1 || math.IsNaN(d.Total.Mean[0]) {
			t.Errorf("%s: answered with %s, means %v, want %s", target, name, d.Total.Mean, want)
		}
	}
	if _, err := query.Build(context.Background(), m, query.Options{Named: []string{"type_5"}}); !errors.Is(err, query.ErrInvalid) ||
		!strings.Contains(err.Error(), "type_5:max:ns, type_5:sum:count") {
		t.Errorf("type_5 has two meanings: %v", err)
	}
}
