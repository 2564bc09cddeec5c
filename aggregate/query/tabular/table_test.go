package tabular_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/tabular/tabulartest"
)

type row struct {
	name  string
	count uint64
	value float64
	at    time.Time
	flag  bool
}

var columns = []tabular.Column[row]{
	{Name: "name", Text: func(r *row) string { return r.name }},
	{Name: "count", Count: func(r *row) uint64 { return r.count }},
	{Name: "value_ratio", Real: func(r *row) float64 { return r.value }},
	{Name: "at", Time: func(r *row) time.Time { return r.at }},
	{Name: "flag", Flag: func(r *row) bool { return r.flag }},
}

var formats = []tabular.Format{tabular.CSV, tabular.Parquet, tabular.Arrow}

func write(t testing.TB, f tabular.Format, out io.Writer, n int, make func(int) row) {
	t.Helper()
	w, err := tabular.New(f, columns, out)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		r := make(i)
		if err := w.Write(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(map[string]string{"rows": fmt.Sprint(n)}); err != nil {
		t.Fatal(err)
	}
}

// some has boundary values, and missing ones.
func some(i int) row {
	at := time.Date(2026, 1, 20, 9, 0, 0, 123456789, time.UTC)
	switch i % 4 {
	case 0:
		return row{"rack1, \"north\"\n", math.MaxUint64 - uint64(i), 0.25, at.Add(time.Duration(i)), true}
	case 1:
		return row{"", 0, math.NaN(), time.Time{}, false}
	case 2:
		return row{"ключ", uint64(i), math.Inf(1), at, false}
	}
	return row{"b", 1, -1e300, time.Unix(0, 0), true}
}

// TestRoundTrip: each format reproduces the rows: several batches of them, or none.
func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 7, 70_000} {
		want := [][]string{{"name", "count", "value_ratio", "at", "flag"}}
		var text bytes.Buffer
		write(t, tabular.CSV, &text, n, some)
		rows, _, err := tabulartest.Read(tabular.CSV, text.Bytes())
		if err != nil || len(rows) != n+1 {
			t.Fatalf("%d rows of %d: %v", len(rows)-1, n, err)
		}
		if n == 7 {
			want = append(want, []string{"rack1, \"north\"\n", "18446744073709551615", "0.25", "2026-01-20T09:00:00.123456789Z", "true"}, []string{"", "0", "", "", "false"})
			if diff := cmp.Diff(want, rows[:3]); diff != "" {
				t.Errorf("CSV (-want +got):\n%s", diff)
			}
		}
		for _, f := range formats[1:] {
			var out bytes.Buffer
			write(t, f, &out, n, some)
			got, notes, err := tabulartest.Read(f, out.Bytes())
			if err != nil || !slices.EqualFunc(rows, got, slices.Equal) {
				t.Errorf("%s of %d rows: %v, %d rows that differ from those of CSV", f, n, err, len(got)-1)
			}
			if f == tabular.Parquet && notes["rows"] != fmt.Sprint(n) {
				t.Errorf("notes %v", notes)
			}
		}
	}
}

// TestRuns: values repeat for a while or alternate, among few or many, with gaps or without:
// every encoding of a column reproduces them.
func TestRuns(t *testing.T) {
	at := time.Date(2026, 1, 20, 9, 0, 0, 0, time.UTC)
	for _, distinct := range []int{1, 2, 3, 9, 300, 8192, 8193, 20_000} {
		for _, run := range []int{1, 3, 7, 8, 9, 40} {
			make := func(i int) row {
				v := i / run % distinct
				r := row{fmt.Sprint("rack", v), uint64(v), float64(v), at.Add(time.Duration(v)), v%2 == 1}
				if i/run%5 == 4 {
					r.name, r.value, r.at = "", math.NaN(), time.Time{}
				}
				return r
			}
			const rows = 20_011
			var text bytes.Buffer
			write(t, tabular.CSV, &text, rows, make)
			want, _, err := tabulartest.Read(tabular.CSV, text.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range formats[1:] {
				var out bytes.Buffer
				write(t, f, &out, rows, make)
				if got, _, err := tabulartest.Read(f, out.Bytes()); err != nil || !slices.EqualFunc(want, got, slices.Equal) {
					t.Errorf("%s, runs of %d of %d values: %v, %d rows that differ from those of CSV", f, run, distinct, err, len(got)-1)
				}
			}
		}
	}
}

// TestParquetBounds: a row group states the time range of its rows, so that readers can skip it.
func TestParquetBounds(t *testing.T) {
	at := time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC)
	var out bytes.Buffer
	write(t, tabular.Parquet, &out, 3, func(i int) row {
		if i == 1 {
			return row{}
		}
		return row{at: at.Add(time.Duration(i) * time.Second)}
	})
	r, err := file.NewParquetReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range columns {
		chunk, err := r.MetaData().RowGroup(0).ColumnChunk(i)
		if err != nil {
			t.Fatal(err)
		}
		s, err := chunk.Statistics()
		if err != nil {
			t.Fatal(err)
		}
		if c.Time == nil {
			if s != nil && s.HasMinMax() {
				t.Errorf("%s has bounds", c.Name)
			}
			continue
		}
		times, ok := s.(*metadata.Int64Statistics)
		if !ok || times.Min() != at.UnixNano() || times.Max() != at.Add(2*time.Second).UnixNano() {
			t.Errorf("%s: %v", c.Name, s)
		}
	}
}

// TestInvalidText: readers of Parquet and Arrow require UTF-8.
func TestInvalidText(t *testing.T) {
	for _, f := range formats[1:] {
		var out bytes.Buffer
		write(t, f, &out, 1, func(int) row { return row{name: "a\xff"} })
		if got, _, err := tabulartest.Read(f, out.Bytes()); err != nil || got[1][0] != "a\ufffd" {
			t.Errorf("%s: %q, %v", f, got, err)
		}
	}
}

// TestCutShort: a truncated table is not accepted as complete.
func TestCutShort(t *testing.T) {
	var out bytes.Buffer
	write(t, tabular.Parquet, &out, 10, some)
	for n := range out.Len() {
		if _, _, err := tabulartest.Read(tabular.Parquet, out.Bytes()[:n]); err == nil {
			t.Errorf("%d of %d bytes are read", n, out.Len())
		}
	}
}

// broken accepts a limited number of bytes.
type broken struct{ left int }

var errBroken = errors.New("broken")

func (b *broken) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

// TestBroken: a failed write is reported, wherever it happens.
func TestBroken(t *testing.T) {
	for _, f := range formats {
		for _, left := range []int{0, 3, 200, 20_000} {
			w, err := tabular.New(f, columns, &broken{left})
			for i := 0; err == nil && i < 70_000; i++ {
				r := some(i)
				err = w.Write(&r)
			}
			if err == nil {
				err = w.Close(nil)
			}
			if !errors.Is(err, errBroken) {
				t.Errorf("%s with room for %d bytes: %v", f, left, err)
			}
		}
	}
	if _, err := tabular.New("xlsx", columns, io.Discard); err == nil {
		t.Error("an unknown format: no error")
	}
}

// TestMemory: memory does not grow with the rows.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector measures itself")
	}
	for _, f := range formats {
		var before, after runtime.MemStats
		w, err := tabular.New(f, columns, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 400_000 {
			if i == 100_000 {
				settle(&before)
			}
			r := some(i)
			if err := w.Write(&r); err != nil {
				t.Fatal(err)
			}
		}
		settle(&after)
		grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		t.Logf("%s: %d KiB held, %d KiB more after 300,000 rows", f, after.HeapAlloc>>10, grown>>10)
		if grown > 8<<20 {
			t.Errorf("%s: %d bytes more after 300,000 rows", f, grown)
		}
		if err := w.Close(nil); err != nil {
			t.Fatal(err)
		}
	}
}

// settle measures memory without the contents of pools, which survive one collection.
func settle(m *runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(m)
}
