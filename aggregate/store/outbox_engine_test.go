package store

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

func openWithOutbox(t testing.TB) *Store {
	t.Helper()
	o := engineOptions(t)
	o.Outbox = &Outbox{Dir: t.TempDir()}
	s := open(t, o)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// rawRows counts the rows of a table, repeated ones too.
func rawRows(t *testing.T, s *Store, table string) (n uint64) {
	t.Helper()
	if err := s.reader.QueryRow(t.Context(), "SELECT count() FROM csigscope."+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOutboxOnEngine: rows come through the outbox unchanged; a repeated token costs nothing; and
// an emptied table is filled again.
func TestOutboxOnEngine(t *testing.T) {
	s := openWithOutbox(t)
	writeAncestry(t, s)
	g := traffic{resolution: time.Second, windows: 20, groups: 5, locations: 12, signals: allSignals}
	rows := g.rows(rand.New(rand.NewPCG(8, 8)), aggregate.Source{Producer: 1 << 63, Incarnation: 2})
	write(t, s, blocks(rows))
	compareStored(t, s, rows, time.Second)
	if got := rawRows(t, s, "partials_1s"); got != uint64(len(rows)) {
		t.Errorf("%d rows stored, want %d", got, len(rows))
	}

	b := batchOf(t, time.Minute, 5)
	for range 3 {
		if err := s.deliveries[0].to.sendBatch(t.Context(), b, "a token"); err != nil {
			t.Fatal(err)
		}
	}
	if got := rawRows(t, s, "partials_1m"); got != uint64(b.rows()) {
		t.Errorf("%d rows after three inserts with one token, want %d", got, b.rows())
	}

	truncate(t, s, "partials_1s")
	if !s.deliveries[0].verify(t.Context()) {
		t.Fatal("the server could not be asked")
	}
	compareStored(t, s, rows, time.Second)
	if !s.deliveries[0].verify(t.Context()) || rawRows(t, s, "partials_1s") != uint64(len(rows)) {
		t.Errorf("%d rows after looking again, want %d", rawRows(t, s, "partials_1s"), len(rows))
	}
}

// TestTrimmedStaysTrimmed: no outbox brings back rows that were deleted on purpose, neither of
// the store that deleted them nor of another one; both bring back rows that the server lost.
func TestTrimmedStaysTrimmed(t *testing.T) {
	o := engineOptions(t)
	var stores []*Store
	for producer := range uint64(2) {
		o.Outbox = &Outbox{Dir: t.TempDir()}
		s := open(t, o)
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		writeTrimmed(t, s, aggregate.Source{Producer: producer + 1}, testStart, 1)
		stores = append(stores, s)
	}
	tables := []string{"partials_fine", "partials_1s", "taps", "findings"}
	expect := func(when string, want ...uint64) {
		t.Helper()
		for _, s := range stores {
			if !s.deliveries[0].verify(t.Context()) {
				t.Fatal("the server could not be asked")
			}
		}
		for i, table := range tables {
			var got uint64
			if err := stores[0].reader.QueryRow(t.Context(), "SELECT count() FROM csigscope."+table+" FINAL").Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != want[i] {
				t.Errorf("%s: %d rows of %s, want %d", when, got, table, want[i])
			}
		}
	}
	expect("stored", 80, 80, 2, 2)
	if _, err := stores[0].Trim(t.Context(), 1); !errors.Is(err, ErrDisk) {
		t.Errorf("trim: %v, want ErrDisk", err)
	}
	expect("trimmed", 0, 0, 0, 0)
	writeTrimmed(t, stores[1], aggregate.Source{Producer: 2}, testStart, 2)
	expect("come late", 40, 40, 1, 1)
	if _, err := stores[0].Trim(t.Context(), 1); !errors.Is(err, ErrDisk) {
		t.Errorf("trim again: %v, want ErrDisk", err)
	}
	expect("trimmed again", 0, 0, 0, 0)
	gaps := readStrings(t, stores[0], "SELECT toString((count(), sum(rows))) FROM csigscope.gaps FINAL WHERE reason LIKE 'trimmed%' GROUP BY producer ORDER BY producer")
	if want := []string{"(4,82)", "(8,164)"}; !slices.Equal(gaps, want) {
		t.Errorf("gaps and their rows %q, want %q", gaps, want)
	}
	writeTrimmed(t, stores[1], aggregate.Source{Producer: 2}, testStart.Add(time.Minute), 3)
	for _, table := range tables {
		truncate(t, stores[0], table)
	}
	expect("of a server that lost later rows", 40, 40, 1, 1)
}

// writeTrimmed writes rows into each table that is trimmed and whose rows are sent again.
func writeTrimmed(t *testing.T, s *Store, source aggregate.Source, at time.Time, seq uint64) {
	t.Helper()
	for _, resolution := range []time.Duration{10 * time.Millisecond, time.Second} {
		var rows []row
		for i := range 40 {
			rows = append(rows, row{
				resolution: int64(resolution), window: at.Add(time.Duration(i%4) * resolution).UnixNano(), source: source,
				seq: seq, kind: 1, src: uint64(i), observations: 1,
			})
		}
		write(t, s, blocks(rows))
	}
	if err := errors.Join(
		s.WriteTaps(t.Context(), []TapRow{aTap(source, seq, at)}),
		s.WriteFindings(t.Context(), []FindingRow{aFinding(source, seq, at)}),
		s.Flush(t.Context()),
	); err != nil {
		t.Fatal(err)
	}
}

func TestPresent(t *testing.T) {
	s := openStore(t)
	for i, resolution := range []time.Duration{10 * time.Millisecond, time.Second, time.Minute} {
		b := batchOf(t, resolution, uint64(i))
		if err := s.insertBatch(t.Context(), s.names, b, ""); err != nil {
			t.Fatal(err)
		}
		want := map[rowSample]bool{}
		var probes []rowSample
		for j := range 100 {
			p := b.probe(j * (b.rows() - 1) / 99)
			want[p] = true
			probes = append(probes, p)
			p.Seq += 1 << 40
			probes = append(probes, p)
		}
		got, err := s.present(t.Context(), b.table, probes)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", resolution, diff)
		}
	}
}

func TestGapsTable(t *testing.T) {
	s := openStore(t)
	at := time.Now().UTC().Truncate(time.Millisecond)
	p := lossExtent{1 << 63, 2, 3, int64(time.Second), testStart.UnixNano(), testStart.Add(time.Minute).UnixNano(), 40, 500}
	list := append(inLog(gapsOf([]lossExtent{p}, "full", 9, at), "1s", 7, 8), gapsOf(nil, "missing", 10, at)...)
	for range 2 {
		if err := s.sendGaps(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	got := storedGaps(t, s)
	if diff := cmp.Diff(list, got, cmp.AllowUnexported(gap{}, lossExtent{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wrong := gapsOf([]lossExtent{p}, "full", 11, time.Unix(0, 0))
	wrong = append(wrong, gapsOf([]lossExtent{p}, "full", 12, at.Add(1e5*time.Hour))...)
	if err := s.sendGaps(t.Context(), wrong); err != nil {
		t.Fatal(err)
	}
	if err := s.migrator.Exec(t.Context(), "OPTIMIZE TABLE csigscope.gaps FINAL"); err != nil {
		t.Fatal(err)
	}
	got = storedGaps(t, s)
	if len(got) != 4 {
		t.Fatalf("%d gaps, want 4: those of a wrong clock expire", len(got))
	}
	for _, g := range got[2:] {
		if age := time.Since(time.Unix(0, g.At)); age < 0 || age > maxGapAge+time.Minute {
			t.Errorf("gap %d is of %s, want the server's time or at most %s before", g.ID, time.Unix(0, g.At), maxGapAge)
		}
	}
}

// TestGapReasons: the comment of the column reason explains every reason.
func TestGapReasons(t *testing.T) {
	sequential(t)
	s := openStore(t)
	want := []string{
		GapRestart, GapDrops, GapMirror, GapOpen, string(lostFull), string(lostRefused), string(lostDisk), string(lostNewer),
		string(outbox.Damaged), string(outbox.Missing), string(outbox.Uncertain),
		gapTrimmed, gapTrimmedFlows, gapTrimmedTaps, gapTrimmedFindings, "exporter_*",
	}
	comment := readStrings(t, s, "SELECT comment FROM system.columns WHERE database = 'csigscope' AND table = 'gaps' AND name = 'reason'")
	var got []string
	for explained := range strings.SplitSeq(comment[0], "; ") {
		if reason, meaning, _ := strings.Cut(explained, ": "); meaning != "" {
			got = append(got, reason)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q explains %q, expected %q", comment, got, want)
	}
}

// storedGaps reads the table of gaps.
func storedGaps(t *testing.T, s *Store) []gap {
	t.Helper()
	var got []gap
	err := s.query(t.Context(), s.reader, "read gaps", `SELECT producer, incarnation, epoch, resolution_ns, window_from, window_to, rows, observations, reason, id, at, log_class, first_seq, last_seq
FROM csigscope.gaps FINAL ORDER BY id`, func(rows driver.Rows) error {
		var g gap
		var resolution uint64
		var from, to, at time.Time
		err := rows.Scan(&g.Producer, &g.Incarnation, &g.Epoch, &resolution, &from, &to, &g.Rows, &g.Observations, &g.Reason, &g.ID, &at, &g.LogClass, &g.FirstSeq, &g.LastSeq)
		g.Resolution, g.From, g.To, g.At = int64(resolution), from.UnixNano(), to.UnixNano(), at.UnixNano()
		got = append(got, g)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}
