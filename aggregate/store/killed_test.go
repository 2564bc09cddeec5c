package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestEndKilled: for a run whose process was killed, the open minutes are built from the stored
// seconds, by ring and flow; existing rows stay. A gap records the missing time, once.
func TestEndKilled(t *testing.T) {
	sequential(t)
	s := openStore(t)
	run := Run{Source: aggregate.Source{Producer: 7, Incarnation: 8, Epoch: 9}, Mode: RunLive, Name: "eth0"}
	if err := s.BeginRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	writeKilled(t, s, run.Source)
	other := run
	other.Incarnation++
	if err := s.BeginRun(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	writeKilled(t, s, other.Source) // still running
	for round := range 2 {
		if err := s.EndEarlier(t.Context(), []Run{other}); err != nil {
			t.Fatal(err)
		}
		if err := s.EndKilled(t.Context(), []Run{run}); err != nil {
			t.Fatal(err)
		}
		sums := func(table, time string) []string {
			return readStrings(t, s, fmt.Sprintf(`SELECT concat(toString(toUnixTimestamp(%s) AS m), ' ', toString((bitShiftRight(seq, 48) AS ring, signal, source_kind, encoding, src_group, dst_group, location)), ' ',
toString((sum(observations), sum(bytes), sum(measured), sum(sum), minIf(min, measured > 0), max(max), sum(untouched), sum(trimmed), sum(heavy), sum(heavy_sum), sum(samples))), toString(sumMap(dist)))
FROM csigscope.%s FINAL WHERE incarnation = 8 GROUP BY m, ring, signal, source_kind, encoding, src_group, dst_group, location ORDER BY 1`, time, table))
		}
		seconds, minutes := sums("partials_1s", "toStartOfMinute(window_start)"), sums("partials_1m", "window_start")
		if !slices.Equal(seconds, minutes) || len(minutes) < 100 {
			t.Errorf("round %d: %d rows of minutes differ from the %d of their seconds", round, len(minutes), len(seconds))
		}
		flows := func(resolution, time string) []string {
			return readStrings(t, s, fmt.Sprintf(`SELECT concat(toString(toUnixTimestamp(%s) AS m), ' ', toString((bitShiftRight(seq, 48) AS ring, src_port)), ' ', toString((sum(observations), sum(heavy), sum(location_heavy), sum(sampled))))
FROM csigscope.flows FINAL WHERE incarnation = 8 AND resolution_ns = %s GROUP BY m, ring, src_port ORDER BY 1`, time, resolution))
		}
		if seconds, minutes := flows("1000000000", "toStartOfMinute(window_start)"), flows("60000000000", "window_start"); !slices.Equal(seconds, minutes) || len(minutes) < 4 {
			t.Errorf("round %d: flows of minutes %q differ from those of their seconds %q", round, minutes, seconds)
		}
		rows := readStrings(t, s, "SELECT toString((incarnation, count(), countIf(seq = bitOr(bitShiftLeft(bitShiftRight(seq, 48), 48), 281474976710655)) > 0)) FROM csigscope.partials_1m FINAL GROUP BY incarnation ORDER BY incarnation")
		if len(rows) != 2 || strings.HasSuffix(rows[1], "1)") || !strings.HasSuffix(rows[0], "1)") {
			t.Errorf("round %d: minutes %q: want some that are made again, of the killed run alone", round, rows)
		}
		gaps := readStrings(t, s, "SELECT concat(reason, ' ', toString(resolution_ns), ' ', toString(incarnation), ' ', toString(window_from)) FROM csigscope.gaps FINAL ORDER BY 1")
		last := testStart.Add(149 * time.Second)
		want := []string{
			"open 1000000000 8 " + last.Format("2006-01-02 15:04:05.000000000"),
			"restart 0 8 " + last.Add(time.Second).Format("2006-01-02 15:04:05.000000000"),
		}
		if !slices.Equal(gaps, want) {
			t.Errorf("round %d: gaps %q, want %q", round, gaps, want)
		}
	}
}

// TestEndKilledFine: the gap of open windows has the seconds that have fine windows alone.
func TestEndKilledFine(t *testing.T) {
	sequential(t)
	for name, tt := range map[string]struct {
		seconds, from, to int // stored seconds, and the gap
	}{
		"some seconds": {seconds: 17, from: 16, to: 20},
		"all seconds":  {seconds: 20, from: 19, to: 20},
		"no second":    {seconds: 0, from: 0, to: 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			run := Run{Source: aggregate.Source{Producer: 7, Incarnation: 8, Epoch: 9}, Mode: RunLive, Name: "eth0"}
			if err := s.BeginRun(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			second := func(n int) time.Time { return testStart.Add(time.Duration(n) * time.Second) }
			var rows []row
			for i := range 20 {
				rows = append(rows, delayRow(run.Source, uint64(100+i), second(i).Add(500*time.Millisecond), 10*time.Millisecond, 3))
				if i < tt.seconds {
					rows = append(rows, delayRow(run.Source, uint64(i), second(i), time.Second, 3))
				}
			}
			write(t, s, blocks(rows))
			if err := s.EndKilled(t.Context(), []Run{run}); err != nil {
				t.Fatal(err)
			}
			got := readStrings(t, s, "SELECT concat(toString(window_from), ' ', toString(window_to)) FROM csigscope.gaps FINAL WHERE reason = 'open'")
			if want := []string{stamp(second(tt.from)) + " " + stamp(second(tt.to))}; !slices.Equal(got, want) {
				t.Errorf("gaps %q, want %q", got, want)
			}
			if n := faults(t, s)["fine windows exceed their second"]; n > 0 {
				t.Errorf("verification finds fine windows above their second, %d times", n)
			}
		})
	}
}

// TestEndKilledNext: the gap after a killed process ends where the next one began.
func TestEndKilledNext(t *testing.T) {
	sequential(t)
	now, began := time.Now(), testStart.Add(20*time.Second)
	first := uint64(testStart.UnixNano())
	for name, tt := range map[string]struct {
		later  []uint64  // incarnations
		killed int       // number of later processes that were killed, too
		want   time.Time // end of the gap; zero: now
	}{
		"a start":         {later: []uint64{uint64(began.Add(time.Hour).UnixNano()), uint64(began.UnixNano())}, want: began},
		"a count":         {later: []uint64{first + 1}},
		"not yet":         {later: []uint64{uint64(now.Add(time.Hour).UnixNano())}},
		"the highest one": {later: []uint64{math.MaxUint64}},
		"none":            {},
		"one without windows": {
			later: []uint64{uint64(began.Add(-time.Second).UnixNano()), uint64(began.UnixNano())}, killed: 1, want: began,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			run := Run{Source: aggregate.Source{Producer: 7, Incarnation: first, Epoch: 9}, Mode: RunLive, Name: "eth0"}
			other := Run{Source: aggregate.Source{Producer: 8, Incarnation: first + 1e9, Epoch: 9}, Mode: RunLive, Name: "eth1"}
			list := []Run{run, other}
			for _, incarnation := range tt.later {
				next := run
				next.Incarnation = incarnation
				list = append(list, next)
			}
			if err := s.BeginRuns(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			write(t, s, blocks([]row{delayRow(run.Source, 1, testStart, time.Second, 3)}))
			if err := s.EndKilled(t.Context(), append([]Run{run}, list[2:2+tt.killed]...)); err != nil {
				t.Fatal(err)
			}
			var got time.Time
			query := "SELECT window_to FROM csigscope.gaps FINAL WHERE reason = 'restart'"
			if err := s.reader.QueryRow(t.Context(), query).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if tt.want.IsZero() && got.Before(now.Truncate(time.Second)) || !tt.want.IsZero() && !got.Equal(tt.want) {
				t.Errorf("the gap ends at %s, want %s", got, tt.want)
			}
		})
	}
}

// TestEndKilledKnown: the windows of a process whose gap is known are not read.
func TestEndKilledKnown(t *testing.T) {
	s := openStore(t)
	run := Run{Source: aggregate.Source{Producer: 7, Incarnation: 8, Epoch: 9}, Mode: RunLive, Name: "eth0"}
	known := Gap{Source: run.Source, From: testStart, To: testStart.Add(time.Second), Reason: GapRestart}
	if err := errors.Join(s.BeginRun(t.Context(), run), s.WriteGaps(t.Context(), []Gap{known})); err != nil {
		t.Fatal(err)
	}
	s.reader = &asked{s.reader, "partials_", func() { t.Error("windows are read") }}
	if err := s.EndKilled(t.Context(), []Run{run}); err != nil {
		t.Error(err)
	}
}

// TestRebuild: a run is ended as killed while seconds of one ring and a minute of the other still
// wait in the outbox of another process. When they arrive, verification finds that the minute is
// short, or counts twice, until it is repaired, whatever the clock of another killed process was.
func TestRebuild(t *testing.T) {
	sequential(t)
	o := engineOptions(t)
	s := open(t, o)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	run := Run{Source: aggregate.Source{Producer: 7, Incarnation: 8, Epoch: 9}, Mode: RunLive, Name: "eth0"}
	minute := testStart.Truncate(time.Minute)
	rowOf := func(ring, seq uint64, at time.Time, resolution time.Duration, n uint64) row {
		return delayRow(run.Source, ring<<aggregate.PartShift|seq, at, resolution, n)
	}
	seconds := func(s *Store, from, to uint64, rings ...uint64) {
		t.Helper()
		var flows []FlowRow
		for second := from; second < to; second++ {
			at := minute.Add(time.Duration(second) * time.Second)
			for _, ring := range rings {
				if err := s.WriteBlock(t.Context(), blockOf([]row{rowOf(ring, 1+second, at, time.Second, 3)})); err != nil {
					t.Fatal(err)
				}
				flows = append(flows, aFlow(run.Source, ring<<aggregate.PartShift|(1+second), at, 1))
			}
		}
		if err := writeFlows(t.Context(), s, flows); err != nil {
			t.Fatal(err)
		}
	}
	away := o
	away.Outbox = &Outbox{Dir: t.TempDir()}
	away.Writer = &clickhouse.Options{Addr: []string{"127.0.0.1:1"}, DialTimeout: time.Second}
	other, err := Open(t.Context(), away)
	if err != nil {
		t.Fatal(err)
	}
	seconds(other, 20, 50, 0)
	whole := aFlow(run.Source, 1<<aggregate.PartShift|99, minute, 1)
	whole.Resolution = int64(time.Minute)
	whole.Observations, whole.Bytes, whole.Measured, whole.Sum = 20*whole.Observations, 20*whole.Bytes, 20*whole.Measured, 20*whole.Sum
	whole.Heavy, whole.HeavySum, whole.LocationHeavy, whole.Sampled = 20*whole.Heavy, 20*whole.HeavySum, 20*whole.LocationHeavy, 20*whole.Sampled
	if err := errors.Join(
		other.WriteBlock(t.Context(), blockOf([]row{rowOf(1, 99, minute, time.Minute, 60)})),
		writeFlows(t.Context(), other, []FlowRow{whole}), other.Close(),
	); err != nil {
		t.Fatal(err)
	}

	if err := s.BeginRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	seconds(s, 0, 20, 0, 1)
	last := minute.Add(50 * time.Second)
	open1s := Gap{Source: run.Source, From: last, To: last.Add(time.Second), Reason: GapOpen, Resolution: time.Second}
	if err := errors.Join(s.WriteGaps(t.Context(), []Gap{open1s}), s.EndKilled(t.Context(), []Run{run})); err != nil {
		t.Fatal(err)
	}
	early := run // of a tap whose clock stood at 1970
	early.Producer++
	first := Gap{Source: early.Source, From: time.Unix(18, 0), To: time.Unix(22, 0), Reason: GapOpen, Resolution: time.Second}
	if err := errors.Join(s.BeginRun(t.Context(), early), s.WriteGaps(t.Context(), []Gap{first}), s.EndKilled(t.Context(), []Run{early})); err != nil {
		t.Fatal(err)
	}
	expect := func(when string, minutes, flows string, faulty bool) {
		t.Helper()
		if got := readStrings(t, s, "SELECT toString((sum(observations), sum(bytes), sum(sum), max(max), sum(heavy), sumMap(dist))) FROM csigscope.partials_1m FINAL"); got[0] != minutes {
			t.Errorf("%s: minutes %s, want %s", when, got[0], minutes)
		}
		if got := readStrings(t, s, "SELECT toString(sum(observations)) FROM csigscope.flows FINAL WHERE resolution_ns = 60000000000"); got[0] != flows {
			t.Errorf("%s: observations of flows %s, want %s", when, got[0], flows)
		}
		if got := faults(t, s)["seconds do not fold into minutes"] > 0; got != faulty {
			t.Errorf("%s: verification finds other minutes: %t, want %t", when, got, faulty)
		}
	}
	n := aFlow(run.Source, 1, minute, 1).Observations
	expect("ended", "(120,12000,1200,10,120,{7:120})", fmt.Sprint(40*n), false)
	away.Writer = o.Writer
	late := open(t, away)
	if err := errors.Join(late.Migrate(t.Context()), late.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	expect("with rows of another process", "(180,18000,1800,10,180,{7:180})", fmt.Sprint(60*n), true)
	for _, s := range []*Store{s, late} {
		if err := s.rebuildRecent(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect("repaired", "(210,21000,2100,10,210,{7:210})", fmt.Sprint(70*n), false)
		if rows := rawRows(t, s, "partials_1m"); rows > 5 {
			t.Errorf("%d rows of minutes: a second look writes them again", rows)
		}
	}
}

// delayRow is a row with n heavy observations.
func delayRow(source aggregate.Source, seq uint64, at time.Time, resolution time.Duration, n uint64) row {
	return row{
		resolution: int64(resolution), window: at.UnixNano(), source: source, seq: seq, signal: uint8(csig.MaxDelay), kind: uint8(decode.Tag),
		src: 3, dst: 4, location: 5, observations: n, bytes: 100 * n, sum: 10 * n, min: 10, max: 10, heavy: n, heavySum: 10 * n,
		distCode: []uint16{7}, distCount: []uint64{n},
	}
}

// TestRebuildFolded: nothing is added to a minute in which a row stands for other keys, since nobody
// knows for which.
func TestRebuildFolded(t *testing.T) {
	sequential(t)
	s := openStore(t)
	run := Run{Source: aggregate.Source{Producer: 7, Incarnation: 8, Epoch: 9}, Mode: RunLive, Name: "eth0"}
	if err := s.BeginRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	minute := testStart.Truncate(time.Minute)
	for second := range uint64(50) {
		if err := s.WriteBlock(t.Context(), blockOf([]row{delayRow(run.Source, 1+second, minute.Add(time.Duration(second)*time.Second), time.Second, 3)})); err != nil {
			t.Fatal(err)
		}
	}
	folded := delayRow(run.Source, 99, minute, time.Minute, 100)
	folded.src, folded.dst = uint64(aggregate.OverflowGroup), uint64(aggregate.OverflowGroup)
	if err := errors.Join(s.WriteBlock(t.Context(), blockOf([]row{folded})), s.Flush(t.Context()), s.EndKilled(t.Context(), []Run{run})); err != nil {
		t.Fatal(err)
	}
	if got := readStrings(t, s, "SELECT toString((count(), sum(observations))) FROM csigscope.partials_1m FINAL"); got[0] != "(1,100)" {
		t.Errorf("rows and observations of the minute are %s, want (1,100)", got[0])
	}
}

// writeKilled writes seconds of two rings, the first minute of one of them, and a part of that of the
// other.
func writeKilled(t *testing.T, s *Store, source aggregate.Source) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 5))
	type key struct {
		ring          uint64
		src, location uint64
	}
	minute := map[key]row{}
	var flows []FlowRow
	for second := range 150 {
		at := testStart.Add(time.Duration(second) * time.Second)
		for ring := range uint64(2) {
			seq := ring<<aggregate.PartShift | uint64(second+1)
			var rows []row
			for src := range uint64(8) {
				for location := range 1 + random.Uint64N(4) {
					n := 1 + random.Uint64N(9)
					r := row{
						resolution: int64(time.Second), window: at.UnixNano(), source: source, seq: seq, signal: uint8(csig.MaxDelay), kind: uint8(decode.Tag),
						src: 2 + src, dst: 3, location: location, observations: n, samples: 1 + n/3, bytes: 100 * n, sum: 10 * n, min: 10 + src, max: 10 + src + location, heavy: 1, heavySum: 10,
						distCode: []uint16{uint16(location), 900}, distCount: []uint64{1, n},
					}
					rows = append(rows, r)
					if k := (key{ring, src, location}); second < 60 {
						sum, ok := minute[k]
						if !ok {
							sum = r
							sum.resolution, sum.window, sum.seq = int64(time.Minute), testStart.UnixNano(), ring<<aggregate.PartShift|1000
							sum.distCount = slices.Clone(r.distCount)
						} else {
							sum.observations, sum.bytes, sum.sum = sum.observations+r.observations, sum.bytes+r.bytes, sum.sum+r.sum
							sum.samples += r.samples
							sum.heavy, sum.heavySum = sum.heavy+1, sum.heavySum+10
							sum.distCount[0], sum.distCount[1] = sum.distCount[0]+1, sum.distCount[1]+n
						}
						minute[k] = sum
					}
				}
			}
			if err := s.WriteBlock(t.Context(), blockOf(rows)); err != nil {
				t.Fatal(err)
			}
			flows = append(flows, aFlow(source, seq, at, uint16(1+second%2)))
		}
	}
	var closed, partly []row
	for k, r := range minute {
		switch {
		case k.ring == 0:
			closed = append(closed, r)
		case k.src < 3:
			partly = append(partly, r)
		}
	}
	for _, rows := range [][]row{closed, partly} {
		if err := s.WriteBlock(t.Context(), blockOf(rows)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeFlows(t.Context(), s, flows); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}
