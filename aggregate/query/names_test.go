package query_test

import (
	"fmt"
	"math"
	"regexp"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
)

func TestColorIsAFunctionOfNames(t *testing.T) {
	a := fabric.Location{ID: 5, Name: "leaf3:up1", Device: "leaf3", Stage: "leaf"}
	b := a
	b.ID, b.Capacity, b.Candidates = 77, 1, []string{"x"}
	if query.Color(a) != query.Color(b) {
		t.Errorf("colour depends on more than names: %s, %s", query.Color(a), query.Color(b))
	}
	for _, l := range []fabric.Location{a, {ID: 2}, {ID: 3, Name: "99999999999999999999"}, {ID: aggregate.OverflowLocation}} {
		if c := query.Color(l); !regexp.MustCompile(`^#[0-9a-f]{6}$`).MatchString(c) {
			t.Errorf("colour of %q is %q, want #rrggbb", l.Name, c)
		}
	}
}

// TestColorsDiffer requires a minimum distance, in 8-bit RGB, between any two ports of a row of
// racks.
func TestColorsDiffer(t *testing.T) {
	type rgb [3]float64
	var all []rgb
	for leaf := range 6 {
		for up := range 4 {
			device := fmt.Sprintf("leaf%d", leaf+1)
			c := query.Color(fabric.Location{ID: 9, Name: fmt.Sprintf("%s:up%d", device, up+1), Device: device, Stage: "leaf"})
			var v [3]int
			if _, err := fmt.Sscanf(c, "#%02x%02x%02x", &v[0], &v[1], &v[2]); err != nil {
				t.Fatal(err)
			}
			all = append(all, rgb{float64(v[0]), float64(v[1]), float64(v[2])})
		}
	}
	closest := math.Inf(1)
	for i, a := range all {
		for _, b := range all[:i] {
			closest = min(closest, math.Hypot(math.Hypot(a[0]-b[0], a[1]-b[1]), a[2]-b[2]))
		}
	}
	if closest < 12 {
		t.Errorf("two of %d ports are only %.1f apart, want at least 12", len(all), closest)
	}
}
