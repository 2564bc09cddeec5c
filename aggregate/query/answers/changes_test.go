package answers

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// TestChangeLines: each change is one line with all of its fields.
func TestChangeLines(t *testing.T) {
	t.Parallel()
	set := &wire.ChangeSet{WindowEnd: timestamppb.New(time.Date(2026, 1, 20, 9, 0, 1, 0, time.UTC)), Changes: []*wire.Change{
		{Kind: wire.ChangeKind_CHANGE_KIND_TAP_LOST, Producer: "host7/eth0", AgeS: proto.Float64(3)},
		{Kind: wire.ChangeKind_CHANGE_KIND_TAP_LOST, Producer: "host8/eth0"},
		{
			Kind: wire.ChangeKind_CHANGE_KIND_MOVED, Src: "rack1", Dst: "rack2", State: wire.State_STATE_CONGESTED, Location: "leaf3:up1", LocationBefore: "leaf3:up2",
			HeavyRatio: proto.Float64(0.4), Mean: &wire.Measure{Value: &wire.Measure_Ratio{Ratio: 0.125}},
		},
		{Kind: wire.ChangeKind_CHANGE_KIND_CLEARED, Src: "rack1", Dst: "rack2", State: wire.State_STATE_NO_DATA, LastedS: 2, SilentProducers: []string{"a", "b"}},
	}}
	const want = `2026-01-20T09:00:01Z  tap_lost       host7/eth0  3 s
2026-01-20T09:00:01Z  tap_lost       host8/eth0
2026-01-20T09:00:01Z  moved          rack1 to rack2  congested  from leaf3:up2  at leaf3:up1  40.0 % heavy  mean 0.125 ratio
2026-01-20T09:00:01Z  cleared        rack1 to rack2  no_data  for 2 s  without a, b
`
	var out bytes.Buffer
	if err := writeChanges(&out, set); err != nil || out.String() != want {
		t.Errorf("%v:\n%swant:\n%s", err, &out, want)
	}
}

// TestSortTimes: times are sorted as times, with and without fractions of a second; rows without one are
// before the first.
func TestSortTimes(t *testing.T) {
	t.Parallel()
	at := func(ms int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 1, 20, 9, 0, 0, ms*1e6, time.UTC))
	}
	for by, want := range map[string]string{"first": " 0 200 250 1000", "-first": "1000 250 200 0 "} {
		a := newAnswer(&wire.FindingsResponse{Findings: []*wire.Finding{
			{Id: "250", First: at(250)}, {}, {Id: "1000", First: at(1000)}, {Id: "200", First: at(200)}, {Id: "0", First: at(0)},
		}}, "findings")
		if err := a.Sort(by); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range a.rows {
			got = append(got, r.(*wire.Finding).Id)
		}
		if list := strings.Join(got, " "); list != want {
			t.Errorf("by %s: %q, want %q", by, list, want)
		}
	}
}

// TestFlowColumns: the table has the number of samples only if there are any, CSV always.
func TestFlowColumns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		sampled uint64
		format  string
		shown   bool
	}{{0, "table", false}, {7, "table", true}, {0, "csv", true}, {7, "csv", true}} {
		a := flowsAnswer(&wire.FlowsResponse{
			About: &wire.About{Signal: "max_delay", Unit: "ns"}, Flows: []*wire.Flow{{Observations: 9}, {Observations: 8, Sampled: tc.sampled}},
		})
		var out bytes.Buffer
		if err := a.Write(&out, tc.format); err != nil {
			t.Fatal(err)
		}
		columns, _, _ := strings.Cut(strings.ToLower(out.String()), "\n")
		list := strings.FieldsFunc(columns, func(r rune) bool { return r == ' ' || r == ',' })
		if slices.Contains(list, "sampled") != tc.shown || !slices.Contains(list, "heavy") {
			t.Errorf("%s with %d samples: %s", tc.format, tc.sampled, columns)
		}
	}
}
