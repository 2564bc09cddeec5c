package handover

import (
	"reflect"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
)

// TestWireFinding: every field of a live tap's finding survives the way from an exporter, and
// it goes only with the row of its tap.
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
