package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/ingest"
)

// TestWireFinding: nothing that a finding of a live tap has is left behind on the way from
// an exporter, and it goes with the row of its tap alone.
func TestWireFinding(t *testing.T) {
	row := store.FindingRow{
		Source: aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}, Seq: 4, Kind: "orphan-tag", ID: 5, Severity: store.SeverityWarning,
		From: 6, To: 7, Count: 8, Device: "leaf1", Port: "up1", Location: 9, Evidence: "evidence",
	}
	for v, i := reflect.ValueOf(row), 0; i < v.NumField(); i++ {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "Packets" {
			t.Errorf("the test does not set %s", name)
		}
	}
	other := row
	other.Seq++
	tap := &store.TapRow{Source: row.Source, Seq: row.Seq}
	found := wireFindings([]store.FindingRow{other, row}, tap)
	if len(found) != 1 {
		t.Fatalf("%d findings of the row", len(found))
	}
	if got := findingOfWire(found[0], row.Source, row.Seq); !reflect.DeepEqual(got, row) {
		t.Errorf("got %+v, want %+v", got, row)
	}
	row.Evidence = strings.Repeat("a", 1022) + "€"
	if got := wireFindings([]store.FindingRow{row}, tap)[0].GetEvidence(); got != row.Evidence[:1022] {
		t.Errorf("evidence of %d bytes ends in %q", len(got), got[1020:])
	}
}

// TestFindingsBounded: of more findings than an exporter may hand in with a row, those
// beyond are counted with all others of their kind.
func TestFindingsBounded(t *testing.T) {
	g := new(ringRecord)
	sums := func() (sum, rest uint64) {
		for _, f := range g.Findings {
			if sum += f.Count; strings.Contains(f.Evidence, "not told apart") {
				rest += f.Count
			}
		}
		return sum, rest
	}
	for i := range 1000 {
		for k := range finding.Kind(finding.NumKinds) {
			g.found(&finding.Finding{Kind: k, ID: uint64(i)<<8 | uint64(k), From: int64(i), To: int64(i), Count: 2})
		}
	}
	apart := uint64(maxRowFindings)
	sum, rest := sums()
	if len(g.Findings) != ingest.MaxFindings || sum != 2000*finding.NumKinds || rest != sum-2*apart {
		t.Errorf("%d findings of %d, of which %d are not told apart", len(g.Findings), sum, rest)
	}
	last := g.Findings[len(g.Findings)-1]
	if time.Duration(last.From) > time.Duration(last.To) || last.To != 999 {
		t.Errorf("%+v", last)
	}
}
