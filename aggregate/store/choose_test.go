package store

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestFlowQuestion: filters select exactly their rows, for both address families.
func TestFlowQuestion(t *testing.T) {
	sequential(t)
	s := openStore(t)
	source := aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}
	first, second, others := aFlow(source, 1, testStart, 1), aFlow(source, 1, testStart, 2), aFlow(source, 1, testStart, 0)
	second.Flow.Src, second.SrcGroup, second.DstGroup, second.Kind, second.Heavy = netip.MustParseAddr("10.0.1.255"), 20, 21, decode.Reflection, 9
	others.Flow = Flow{}
	zero := aFlow(source, 1, testStart, 3)
	zero.Flow.Src, zero.Flow.Dst, zero.Heavy, zero.LocationHeavy = netip.IPv6Unspecified(), netip.IPv6Unspecified(), 1, 1
	if err := writeFlows(t.Context(), s, []FlowRow{first, second, others, zero}); err != nil {
		t.Fatal(err)
	}
	prefix := netip.MustParsePrefix
	for name, tt := range map[string]struct {
		chosen FlowQuestion
		ports  []uint16 // 0 is the sum of all others
	}{
		"all":             {FlowQuestion{}, []uint16{2, 0, 1, 3}},
		"groups":          {FlowQuestion{SrcGroups: []aggregate.GroupID{20, 99}, DstGroups: []aggregate.GroupID{21}}, []uint16{2}},
		"nobody":          {FlowQuestion{SrcGroups: []aggregate.GroupID{99}}, nil},
		"kind":            {FlowQuestion{Kind: decode.Tag}, []uint16{0, 1, 3}},
		"heavy":           {FlowQuestion{MinHeavy: 5}, []uint16{2}},
		"host":            {FlowQuestion{Src: prefix("10.0.0.1/32")}, []uint16{1}},
		"IPv4":            {FlowQuestion{Src: prefix("10.0.0.0/23")}, []uint16{2, 1}},
		"IPv4 mapped":     {FlowQuestion{Src: prefix("::ffff:10.0.0.0/119")}, []uint16{2, 1}},
		"beside":          {FlowQuestion{Src: prefix("10.0.2.0/23")}, nil},
		"IPv4 all":        {FlowQuestion{Src: prefix("0.0.0.0/0")}, []uint16{2, 1}},
		"IPv4 all mapped": {FlowQuestion{Src: prefix("::ffff:0.0.0.0/96")}, []uint16{2, 1}},
		"IPv6 around it":  {FlowQuestion{Src: prefix("::fffe:0:0/95")}, nil},
		"IPv6 no IPv4":    {FlowQuestion{Src: prefix("::/0")}, []uint16{3}},
		"IPv6 all":        {FlowQuestion{Dst: prefix("::/0")}, []uint16{2, 1, 3}},
		"IPv6":            {FlowQuestion{Dst: prefix("2001:db8::/32")}, []uint16{2, 1}},
		"family":          {FlowQuestion{Dst: prefix("0.0.0.0/0")}, nil},
		"everything told": {FlowQuestion{SrcGroups: []aggregate.GroupID{10}, Src: prefix("10.0.0.0/8"), Dst: prefix("2001:db8::2/128"), Kind: decode.Tag, MinHeavy: 4}, []uint16{1}},
	} {
		q := tt.chosen
		q.Signal, q.From, q.To, q.Limit = csig.MaxDelay, testStart, testStart.Add(time.Minute), 10
		got, err := s.Flows(t.Context(), q)
		var ports []uint16
		for _, f := range got {
			ports = append(ports, f.SrcPort)
			if f.Src.IsValid() != (f.SrcPort > 0) || f.Dst.IsValid() != f.Src.IsValid() {
				t.Errorf("%s: flow %+v", name, f.Flow)
			}
		}
		if err != nil || fmt.Sprint(ports) != fmt.Sprint(tt.ports) {
			t.Errorf("%s: ports %v, %v, want %v", name, ports, err, tt.ports)
		}
	}
	many := FlowQuestion{Signal: csig.MaxDelay, From: testStart, To: testStart.Add(time.Minute), SrcGroups: make([]aggregate.GroupID, maxChoices+1), Limit: 10}
	if _, err := s.Flows(t.Context(), many); !errors.Is(err, ErrQuestion) {
		t.Errorf("too many groups: %v", err)
	}
}

// TestFindingQuestion: names match literally, whatever characters they contain.
func TestFindingQuestion(t *testing.T) {
	sequential(t)
	s := openStore(t)
	source := aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}
	names := []string{"plain", `it's`, `back\slash`, `\' OR 1=1 --`, "') UNION ALL SELECT 1 --", "nul\x00", "{x:String}", "tab\t\n", "ключ", `\`}
	var rows []FindingRow
	for i, name := range names {
		r := aFinding(source, uint64(i), testStart)
		r.Kind, r.Device, r.ID, r.Location = name, name, uint64(i), aggregate.LocationID(i)
		rows = append(rows, r)
	}
	rows[0].Severity = SeverityInfo
	if err := s.WriteFindings(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	count := func(q FindingQuestion, n int) (list []FindingRow) {
		t.Helper()
		q.From, q.To, q.Limit = testStart, testStart.Add(time.Hour), n
		list, err := s.Findings(t.Context(), q)
		if err != nil {
			t.Errorf("%+v: %v", q, err)
		}
		return list
	}
	for i, name := range names {
		for _, f := range []FindingQuestion{{Kinds: []string{name}}, {Devices: []string{name, "nobody"}}, {Locations: []aggregate.LocationID{aggregate.LocationID(i)}}} {
			if got := count(f, 100); len(got) != 1 || got[0].Kind != name {
				t.Errorf("%+v: %d findings, want that of %q alone", f, len(got), name)
			}
		}
	}
	if got := count(FindingQuestion{Severities: []string{SeverityInfo, "' OR ''='"}}, 100); len(got) != 1 {
		t.Errorf("%d findings are %s, want 1", len(got), SeverityInfo)
	}
	if got := count(FindingQuestion{}, 3); len(got) != 3 {
		t.Errorf("%d findings, want the first 3", len(got))
	}
}
