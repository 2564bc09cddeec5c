package fabric

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// observationPoint numbers a point, which must exist.
func observationPoint(t *testing.T, f *Fabric, names ...string) uint32 {
	t.Helper()
	n, err := f.ObservationPoint(names)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSightings: a flow that taps in the fabric saw passes them, around the time of the sighting.
func TestSightings(t *testing.T) {
	t.Parallel()
	second, up1 := int64(time.Second), class(leaf, up, g100)
	start := noon.UnixNano()
	both := "leaf1:up1 leaf1:up2"
	for _, test := range []struct {
		name string
		seen []string // devices, one each second
		port uint16
		at   int64 // after the first
		want string
	}{
		{"seen", []string{"spine1"}, 1, 0, "leaf1:up1"},
		{"a second before", []string{"spine1"}, 1, -second, "leaf1:up1"},
		{"longer before", []string{"spine1"}, 1, -second - 1, both},
		{"a second after", []string{"spine1"}, 1, 2*second - 1, "leaf1:up1"},
		{"longer after", []string{"spine1"}, 1, 2 * second, both},
		{"another flow", []string{"spine1"}, 2, 0, both},
		{"between two", []string{"spine1", "", "spine1"}, 1, second, "leaf1:up1"},
		{"after a long pause", []string{"spine1", "", "", "", "", "spine2"}, 1, 5 * second, "leaf1:up2"},
		{"in the pause", []string{"spine1", "", "", "", "", "", "spine2"}, 1, 3 * second, both},
		{"moved", []string{"spine1", "spine2"}, 1, 0, both}, // at both within the time: neither is forced
		{"at a port", []string{"leaf1:up2"}, 1, 0, "leaf1:up2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, f := load(t, "leafspine.yaml")
			fl := flowBetween("10.0.1.1", "10.0.2.1", 1, 80)
			for i, device := range test.seen {
				if device != "" {
					f.RecordSighting(observationPoint(t, f, device), fl, start+int64(i)*second)
				}
			}
			other := flowBetween("10.0.1.1", "10.0.2.1", test.port, 80)
			if got := candidatesOn(t, f, other, up1, start+test.at); got != both {
				t.Errorf("before it is revealed: candidates %q, want %q", got, both)
			}
			f.UseSightings()
			if got := candidatesOn(t, f, other, up1, start+test.at); got != test.want {
				t.Errorf("candidates %q, want %q", got, test.want)
			}
		})
	}
}

// TestSightingsInAnyOrder: the result does not depend on the order of sightings.
func TestSightingsInAnyOrder(t *testing.T) {
	t.Parallel()
	fl := flowBetween("10.0.1.1", "10.0.2.1", 1, 80)
	r := rand.New(rand.NewPCG(1, 2))
	var points []sighting
	for range 300 {
		step := r.Int64N(600)
		points = append(points, sighting{1 + r.Uint32N(3), step, step})
	}
	var want []sighting
	for range 20 {
		s := newSightings()
		for _, p := range points {
			s.add(fl, p)
		}
		got := s.flows[*fl]
		if want == nil {
			want = slices.Clone(got)
		}
		if !slices.Equal(got, want) || s.n != len(got) {
			t.Fatalf("%d sightings, counted as %d, differ from %d in another order", len(got), s.n, len(want))
		}
		r.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	}
}

// TestObservationPointErrors: a tap in the fabric needs devices that exist.
func TestObservationPointErrors(t *testing.T) {
	t.Parallel()
	_, f := load(t, "leafspine.yaml")
	if _, err := f.ObservationPoint([]string{"spine9"}); err == nil {
		t.Error("a tap stands at a device that does not exist")
	}
	if a, b := observationPoint(t, f, "spine1"), observationPoint(t, f, "spine1"); a != b || a == 0 {
		t.Errorf("one place has the numbers %d and %d", a, b)
	}
	f.RecordSighting(7, flowBetween("10.0.1.1", "10.0.2.1", 1, 80), 1) // no such point: ignored
	if f.UseSightings() {
		t.Error("something was seen at a place that does not exist")
	}
}

// TestPredictions: hashes and paths are compared with the sightings of taps.
func TestPredictions(t *testing.T) {
	t.Parallel()
	spec, _ := load(t, "leafspine.yaml")
	spec.ECMP = []ECMPSpec{{Hash: "xor16", Fields: []string{"src_port"}}}
	spec.Paths = []PathSpec{{Src: "h11", Dst: "h22", Via: []string{"spine2"}}}
	f := compile(t, spec)
	spine1, up2 := observationPoint(t, f, "spine1"), observationPoint(t, f, "leaf1:up2")
	for port := range uint16(10) {
		f.RecordSighting(spine1, flowBetween("10.0.1.1", "10.0.2.1", port, 80), noon.UnixNano()) // the even ones are predicted
		f.RecordSighting(up2, flowBetween("10.0.1.1", "10.0.2.2", 2*port+1, 80), noon.UnixNano())
	}
	f.RecordSighting(spine1, flowBetween("10.0.1.1", "10.0.1.2", 1, 80), noon.UnixNano()) // stays below leaf1
	f.RecordSighting(spine1, flowBetween("10.0.1.1", "10.9.9.9", 1, 80), noon.UnixNano()) // from an unknown host
	want := []Prediction{{"path", 10, 10}, {"ecmp", 15, 21}}
	if got := f.Predictions(); !slices.Equal(got, want) {
		t.Errorf("predictions %+v, want %+v", got, want)
	}
}
