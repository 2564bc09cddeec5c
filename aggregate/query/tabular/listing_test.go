package tabular

import (
	"errors"
	"strings"
	"testing"
)

// TestListing: a listing in each format; missing values are empty, or left out of JSON.
func TestListing(t *testing.T) {
	l := Listing{
		Columns: []string{"name", "mean", "mode"},
		Rows:    [][]any{{"a, b", 1234567.891, nil}, {"c", 0.000012345678, uint64(7)}},
	}
	for format, want := range map[string]string{
		"table":  "NAME  MEAN          MODE\na, b  1234570       \nc     0.0000123457  7\n",
		"csv":    "name,mean,mode\n\"a, b\",1234570,\nc,0.0000123457,7\n",
		"ndjson": "{\"name\":\"a, b\",\"mean\":1234567.891}\n{\"name\":\"c\",\"mean\":0.000012345678,\"mode\":7}\n",
		"json":   "[\n  {\n    \"name\": \"a, b\",\n    \"mean\": 1234567.891\n  },\n  {\n    \"name\": \"c\",\n    \"mean\": 0.000012345678,\n    \"mode\": 7\n  }\n]\n",
	} {
		var b strings.Builder
		if err := l.Write(&b, format); err != nil || b.String() != want {
			t.Errorf("%s: %v, got\n%q, want\n%q", format, err, b.String(), want)
		}
	}
	var b strings.Builder
	brief := Listing{Columns: l.Columns, Rows: l.Rows, Brief: []string{"mode", "mean"}, Show: func(column string, v any) string { return column }}
	if err := brief.Write(&b, "table"); err != nil || b.String() != "MODE  MEAN\n      mean\nmode  mean\n" {
		t.Errorf("in brief: %v, %q", err, b.String())
	}
	b.Reset()
	if err := brief.Write(&b, "wide"); err != nil || b.String() != "NAME  MEAN          MODE\na, b  1234570       \nc     0.0000123457  7\n" {
		t.Errorf("wide: %v, %q", err, b.String())
	}
	b.Reset()
	l.Continued = true
	if err := l.Write(&b, "csv"); err != nil || strings.HasPrefix(b.String(), "name") {
		t.Errorf("continued: %v, %q", err, b.String())
	}
	if err := l.Write(&b, "xml"); err == nil || !strings.Contains(err.Error(), "expected one of table, wide, json, ndjson, csv") {
		t.Errorf("another format: %v", err)
	}
	for _, format := range ListingFormats() {
		if err := l.Write(full{}, format); !errors.Is(err, errFull) {
			t.Errorf("%s to a full disk: %v", format, err)
		}
	}
}

var errFull = errors.New("no space left")

// full accepts no bytes.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
