package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestProducers: live producers are listed with their last start or rows, until they are
// forgotten, and again once they write.
func TestProducers(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	now := time.Now()
	begin := func(producer, incarnation uint64, mode RunMode, name string) aggregate.Source {
		t.Helper()
		r := Run{Source: aggregate.Source{Producer: producer, Incarnation: incarnation, Epoch: 1}, Mode: mode, Name: name}
		if err := s.BeginRun(ctx, r); err != nil {
			t.Fatal(err)
		}
		return r.Source
	}
	begin(1, 1, RunLive, "host1/eth0")
	wrote := begin(0xabc, 1, RunLive, "it's")
	begin(3, 1, RunReplay, "capture.pcap")
	begin(4, 1, RunLive, "eth0")
	five := begin(5, 1, RunLive, "eth0")
	soon := now.Add(2 * time.Hour).Truncate(time.Minute)
	// Minutes with rows, also if only seconds are stored yet; the start of a tap is none.
	lastRows := map[uint64]time.Time{wrote.Producer: soon, five.Producer: now.Truncate(time.Minute)}
	write := func(rows ...row) {
		t.Helper()
		for _, r := range rows {
			r.signal, r.kind, r.src, r.dst, r.location, r.observations = uint8(csig.MinABWRatio), 1, 10, 11, 5, 1
			if err := s.WriteBlock(ctx, blockOf([]row{r})); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	write(row{source: wrote, resolution: int64(time.Minute), window: soon.UnixNano()},
		row{source: five, resolution: int64(time.Second), window: now.Truncate(time.Second).UnixNano()})
	want := func(since time.Duration, want ...string) {
		t.Helper()
		list, err := s.Producers(ctx, now.Add(since))
		var got []string
		for _, p := range list {
			got = append(got, fmt.Sprintf("%x %s %t", p.ID, p.Name, p.Forgotten))
			if last := lastRows[p.ID]; last.After(now.Add(since)) && !p.Last.Equal(last) || last.IsZero() && !p.Last.IsZero() {
				t.Errorf("%x wrote last at %s, want %s", p.ID, p.Last, lastRows[p.ID])
			}
		}
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("since %s: %q, %v, want %q", since, got, err, want)
		}
	}
	forget := func(name string, want int) {
		t.Helper()
		list, err := s.Forget(ctx, name)
		if err != nil || len(list) != want {
			t.Errorf("forget %s: %+v, %v, want %d", name, list, err, want)
		}
		for _, p := range list {
			if !p.Last.Equal(lastRows[p.ID]) {
				t.Errorf("forget %s: %x wrote last at %s, want %s", name, p.ID, p.Last, lastRows[p.ID])
			}
		}
	}
	want(-time.Hour, "1 host1/eth0 false", "4 eth0 false", "5 eth0 false", "abc it's false")
	want(time.Hour, "abc it's false")
	forget("host1/eth0", 1)
	forget("eth0", 2)
	forget("abc", 1) // whose clock was ahead
	want(time.Hour, "1 host1/eth0 true", "4 eth0 true", "5 eth0 true", "abc it's true")
	begin(1, 2, RunLive, "host1/eth0")
	plant(t, s, "partials_1m", "producer = 0xabc", map[string]string{"stored_at": "stored_at + 120"}) // it writes on
	want(-time.Hour, "1 host1/eth0 false", "4 eth0 true", "5 eth0 true", "abc it's false")
	plant(t, s, "partials_1s", "producer = 5", map[string]string{"stored_at": "stored_at + 120"}) // its last rows, late
	want(-time.Hour, "1 host1/eth0 false", "4 eth0 true", "5 eth0 true", "abc it's false")
	plant(t, s, "partials_1s", "producer = 5", map[string]string{"window_start": "window_start + toIntervalSecond(120)", "stored_at": "stored_at + 120"})
	lastRows[five.Producer] = now.Truncate(time.Minute).Add(2 * time.Minute)
	want(-time.Hour, "1 host1/eth0 false", "4 eth0 true", "5 eth0 false", "abc it's false")
	for _, name := range []string{"", "nobody", "capture.pcap", "3", "' OR 1"} {
		if _, err := s.Forget(ctx, name); !errors.Is(err, ErrNoProducer) {
			t.Errorf("forget %q: %v", name, err)
		}
	}
}

// TestForgetAhead: a tap whose clock is far ahead is dismissed, also after a merge, and is expected again
// once it starts.
func TestForgetAhead(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	run := Run{Source: aggregate.Source{Producer: 7, Incarnation: 1, Epoch: 9}, Mode: RunLive, Name: "eth0"}
	last := time.Date(2105, 6, 1, 0, 0, 0, 0, time.UTC)
	if err := s.BeginRun(ctx, run); err != nil {
		t.Fatal(err)
	}
	write(t, s, blocks([]row{delayRow(run.Source, 1, last, time.Minute, 3)}))
	want := func(when string, forgotten bool) {
		t.Helper()
		list, err := s.Producers(ctx, time.Now().Add(-ExpectFor))
		if err != nil || len(list) != 1 || !list[0].Last.Equal(last) || list[0].Forgotten != forgotten {
			t.Errorf("%s: %+v, %v, want forgotten: %t", when, list, err, forgotten)
		}
		expected := uint64(1)
		if forgotten {
			expected = 0
		}
		if c, err := s.CountProducers(ctx, last.Add(time.Hour), last.Add(2*time.Hour)); err != nil || c.Expected != expected {
			t.Errorf("%s: %+v, %v, want %d expected", when, c, err, expected)
		}
	}
	want("wrote", false)
	if _, err := s.Forget(ctx, "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := s.migrator.Exec(ctx, "OPTIMIZE TABLE csigscope.forgotten FINAL"); err != nil {
		t.Fatal(err)
	}
	want("forgotten", true)
	run.Incarnation = 2
	if err := s.BeginRun(ctx, run); err != nil {
		t.Fatal(err)
	}
	plant(t, s, "partials_1m", "producer = 7", map[string]string{"incarnation": "2", "stored_at": "stored_at + 120"})
	want("started and wrote again", false)
}

// TestCountProducers: the producers of a range are those with rows in it, and the live ones that
// wrote in the day before its end.
func TestCountProducers(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour) // before any Forget
	wrote := func(producer, incarnation uint64, mode RunMode, resolution time.Duration, at ...time.Duration) {
		t.Helper()
		run := Run{Source: aggregate.Source{Producer: producer, Incarnation: incarnation, Epoch: 1}, Mode: mode, Name: fmt.Sprint("tap", producer)}
		if err := s.BeginRun(ctx, run); err != nil {
			t.Fatal(err)
		}
		for _, d := range at {
			if err := s.WriteBlock(ctx, blockOf([]row{{
				source: run.Source, resolution: int64(resolution), window: noon.Add(d).UnixNano(),
				signal: uint8(csig.MinABWRatio), kind: 1, src: 10, dst: 11, location: 5, observations: 1,
			}})); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.EndRun(ctx, run); err != nil {
			t.Fatal(err)
		}
	}
	wrote(1, 1, RunLive, time.Minute, 0, time.Minute, 2*time.Minute)
	wrote(2, 1, RunLive, time.Minute, -23*time.Hour, 3*time.Minute)          // silent for most of the day
	wrote(3, 1, RunLive, time.Minute, -25*time.Hour)                         // gone before
	wrote(4, 1, RunLive, time.Minute, -time.Hour)                            // forgotten below
	wrote(5, 1, RunReplay, time.Minute, time.Minute)                         // the first pass,
	wrote(5, 2, RunReplay, time.Minute, 2*time.Minute)                       // which the second one hides
	wrote(6, 1, RunReplay, time.Minute, -2*time.Hour)                        // a capture from another time
	wrote(7, 1, RunLive, time.Second, 2*time.Minute+time.Second, -time.Hour) // its minutes are still open
	wrote(8, 1, RunReplay, time.Minute, -72*time.Hour, -71*time.Hour)        // four taps, one of which continues in the next file,
	wrote(9, 1, RunReplay, time.Minute, -71*time.Hour)
	wrote(10, 1, RunReplay, time.Minute, -71*time.Hour) // and a file without rows of its taps
	tap := func(producer, seq uint64, name string, from, to time.Duration, stored uint64) TapRow {
		return TapRow{
			Source: aggregate.Source{Producer: producer, Incarnation: 1, Epoch: 1}, Seq: seq, Name: name,
			From: noon.Add(from).UnixNano(), To: noon.Add(to).UnixNano(), Packets: 9, Stored: stored,
		}
	}
	if err := errors.Join(s.Flush(ctx), s.WriteTaps(ctx, []TapRow{
		tap(8, 1, "a", -72*time.Hour, -71*time.Hour, 1), tap(8, 2, "b", -72*time.Hour, -71*time.Hour, 1), tap(8, 3, "idle", -72*time.Hour, -71*time.Hour, 0),
		tap(8, 4, "c", -71*time.Hour, -71*time.Hour, 1), tap(9, 1, "a", -71*time.Hour, -71*time.Hour, 1), tap(9, 2, "d", -71*time.Hour, -71*time.Hour, 1),
		tap(1, 1, "session", 0, time.Hour, 1),
	})); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Forget(ctx, "tap4"); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		from, to time.Duration
		want     ProducerCounts
	}{
		{0, time.Minute, ProducerCounts{Expected: 2, Present: 1}},
		{time.Minute, 2 * time.Minute, ProducerCounts{Expected: 2, Present: 1}},
		{2 * time.Minute, 3 * time.Minute, ProducerCounts{Expected: 4, Present: 3}},
		{150 * time.Second, 170 * time.Second, ProducerCounts{Expected: 4, Present: 3}},
		{0, 4 * time.Minute, ProducerCounts{Expected: 4, Present: 4}},
		{-2 * time.Hour, 0, ProducerCounts{Expected: 3, Present: 2}},
		{-26 * time.Hour, -25 * time.Hour, ProducerCounts{}},
		{-48 * time.Hour, time.Hour, ProducerCounts{Expected: 6, Present: 6}},
		{-72 * time.Hour, -72*time.Hour + time.Minute, ProducerCounts{Expected: 2, Present: 2}},
		{-72 * time.Hour, -70 * time.Hour, ProducerCounts{Expected: 5, Present: 5}},
	} {
		if got, err := s.CountProducers(ctx, noon.Add(test.from), noon.Add(test.to)); err != nil || got != test.want {
			t.Errorf("%s to %s: %+v, %v, want %+v", test.from, test.to, got, err, test.want)
		}
	}
	if got, err := s.CountProducers(ctx, time.Unix(0, 0), time.Unix(60, 0)); err != nil || got != (ProducerCounts{}) {
		t.Errorf("the first minute: %+v, %v", got, err)
	}
}
