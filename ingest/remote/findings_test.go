package remote

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/ingest/wire"
)

func validFinding(now time.Time) *wire.Finding {
	return &wire.Finding{
		Kind: "reserved-bits", Id: 7, Severity: "warning", FromNs: now.UnixNano() - 5e8, ToNs: now.UnixNano(), Count: 3,
		Device: "leaf1", Port: "up1", Location: 1 << 60, Evidence: `reserved bits of "wide" are set`,
	}
}

// manyFindings returns n different findings.
func manyFindings(now time.Time, n int) (list []*wire.Finding) {
	for i := range n {
		f := validFinding(now)
		f.Id = uint64(i)
		list = append(list, f)
	}
	return list
}

// TestFindings: a tap's findings arrive with its record, under its identity, however often the
// record is sent.
func TestFindings(t *testing.T) {
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	c := startClient(t, clientConfig(t, s.url))
	st, err := c.StreamOf("eth0/0", 7)
	if err != nil {
		t.Fatal(err)
	}
	d, now := testDescription(), time.Now()
	for range 2 {
		if err := st.WriteBlock(t.Context(), testBlock(newRand(t, 1), now, 10)); err != nil {
			t.Fatal(err)
		}
		if err := st.Tap(t.Context(), d.Epoch(), validTap(now), manyFindings(now, MaxFindings)...); err != nil {
			t.Fatal(err)
		}
		c.flush(t)
	}
	run := Run{aggregate.Source{Producer: Producer("tester", "eth0/0"), Incarnation: 7, Epoch: d.Epoch()}, "tester", "eth0/0"}
	for _, want := range manyFindings(now, MaxFindings) {
		if got := l.found[foundKey{tapKey{run, 3}, want.GetKind(), want.GetId()}]; !proto.Equal(got, want) {
			t.Errorf("finding %d: %v, want %v", want.GetId(), got, want)
		}
	}
	if len(l.found) != MaxFindings || len(l.taps) != 1 || s.Stats().Total.StoredFindings != 2*MaxFindings {
		t.Errorf("%d findings of %d taps, %d counted", len(l.found), len(l.taps), s.Stats().Total.StoredFindings)
	}
	checkConservation(t, s.Stats().Total)
	if err := st.Tap(t.Context(), d.Epoch(), validTap(now), manyFindings(now, MaxFindings+1)...); err == nil {
		t.Error("more findings than a record holds are taken")
	}
}

// TestHostileFindings: an invalid finding invalidates its record only.
func TestHostileFindings(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name   string
		spoil  func(r *wire.Record)
		expect wire.Outcome
	}{
		{"sound", func(*wire.Record) {}, wire.Outcome_OUTCOME_STORED},
		{"of a later kind", func(r *wire.Record) { r.Findings[0].Kind = "not-known-yet" }, wire.Outcome_OUTCOME_STORED},
		{"without a place", func(r *wire.Record) { r.Findings[0].Device, r.Findings[0].Port = "", "" }, wire.Outcome_OUTCOME_STORED},
		{"of a gap", func(r *wire.Record) { r.What = &wire.Record_Gap{Gap: validGap(now)} }, wire.Outcome_OUTCOME_INVALID},
		{"no kind", func(r *wire.Record) { r.Findings[0].Kind = "" }, wire.Outcome_OUTCOME_INVALID},
		{"a kind that spoils a table", func(r *wire.Record) { r.Findings[0].Kind = "a' OR 1" }, wire.Outcome_OUTCOME_INVALID},
		{"a long kind", func(r *wire.Record) { r.Findings[0].Kind = strings.Repeat("a", 33) }, wire.Outcome_OUTCOME_INVALID},
		{"no severity", func(r *wire.Record) { r.Findings[0].Severity = "" }, wire.Outcome_OUTCOME_INVALID},
		{"of nothing", func(r *wire.Record) { r.Findings[0].Count = 0 }, wire.Outcome_OUTCOME_INVALID},
		{"of no time", func(r *wire.Record) { r.Findings[0].FromNs = 0 }, wire.Outcome_OUTCOME_INVALID},
		{"from after to", func(r *wire.Record) { r.Findings[0].FromNs = now.UnixNano() + 1 }, wire.Outcome_OUTCOME_INVALID},
		{"a device that spoils a log", func(r *wire.Record) { r.Findings[0].Device = "a\nb" }, wire.Outcome_OUTCOME_INVALID},
		{"evidence that spoils a terminal", func(r *wire.Record) { r.Findings[0].Evidence = "\x1b[2J" }, wire.Outcome_OUTCOME_INVALID},
		{"long evidence", func(r *wire.Record) { r.Findings[0].Evidence = strings.Repeat("a", 1025) }, wire.Outcome_OUTCOME_INVALID},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(t)
			cfg.Logger = nil
			l := newLedger()
			s := startCollector(t, cfg, l, "")
			r := tapRecord(now)
			r.Findings = manyFindings(now, 2)
			c.spoil(r)
			m := requestOf(r)
			if got := outcomeOf(t, s, m); got != c.expect {
				t.Errorf("%s, want %s", got, c.expect)
			}
			if n := len(l.found) + len(l.taps); n > 0 != (c.expect == wire.Outcome_OUTCOME_STORED) {
				t.Errorf("%d rows", n)
			}
			checkConservation(t, s.Stats().Total)
		})
	}
}

// TestMisdatedFindings: findings with implausible times are removed from their record and
// counted once, although the record is sent again after its description.
func TestMisdatedFindings(t *testing.T) {
	now := time.Now()
	cfg := testConfig(t)
	cfg.Logger = nil
	l := newLedger()
	s := startCollector(t, cfg, l, "")
	r := tapRecord(now)
	r.Findings = manyFindings(now, 6)
	for i, times := range [][2]int64{{now.UnixNano() + 3600e9, now.UnixNano() + 3601e9}, {now.UnixNano(), math.MaxInt64}, {1, 2}} {
		r.Findings[2*i].FromNs, r.Findings[2*i].ToNs = times[0], times[1]
	}
	m := requestOf(r)
	if got := outcomeOf(t, s, &wire.PushRequest{Records: m.GetRecords()}); got != wire.Outcome_OUTCOME_UNDESCRIBED {
		t.Fatalf("without its description: %s", got)
	}
	if got := outcomeOf(t, s, m); got != wire.Outcome_OUTCOME_STORED {
		t.Fatalf("%s, want it stored", got)
	}
	for _, f := range r.GetFindings() {
		if kept := slices.ContainsFunc(slices.Collect(maps.Values(l.found)), func(o *wire.Finding) bool { return proto.Equal(f, o) }); kept != (f.GetId()%2 == 1) {
			t.Errorf("finding %d from %d to %d is stored: %t", f.GetId(), f.GetFromNs(), f.GetToNs(), kept)
		}
	}
	c := s.Stats().Total
	if len(l.taps) != 1 || c.Refused[ReasonFuture] != 2 || c.Refused[ReasonPast] != 1 || c.StoredFindings != 3 || c.RefusedItems != 0 {
		t.Errorf("%d taps, %+v", len(l.taps), c)
	}
	checkConservation(t, c)
}

// TestFindingsOfAllKinds: all kinds of package finding are accepted under their names.
func TestFindingsOfAllKinds(t *testing.T) {
	for k := range finding.Kind(finding.NumKinds) {
		f := validFinding(time.Now())
		f.Kind, f.Severity = k.String(), string(k.Severity())
		if err := checkFinding(f); err != nil {
			t.Error(err)
		}
	}
}

func tapRecord(now time.Time) *wire.Record {
	d := testDescription()
	return &wire.Record{
		Stream: "eth0", Incarnation: 1, Epoch: d.Epoch(), Description: d.toWire().GetId(), What: &wire.Record_Tap{Tap: validTap(now)},
	}
}

func requestOf(r *wire.Record) *wire.PushRequest {
	d := testDescription()
	return &wire.PushRequest{Descriptions: []*wire.Description{d.toWire()}, Records: []*wire.Record{r}}
}

// TestFindingsBounds: too many or too large findings in a record are refused before decoding.
func TestFindingsBounds(t *testing.T) {
	now := time.Now()
	request := func(n, evidence int) []byte {
		r := tapRecord(now)
		r.Findings = manyFindings(now, n)
		r.Findings[0].Evidence = strings.Repeat("a", evidence)
		data, err := proto.Marshal(requestOf(r))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, c := range []struct {
		n, evidence int
		refused     string
	}{{MaxFindings, 1, ""}, {MaxFindings + 1, 1, "findings of a record"}, {1, maxFindingBytes, "bytes of a finding"}} {
		err := scan(request(c.n, c.evidence))
		if text := fmt.Sprint(err); (err == nil) != (c.refused == "") || !strings.Contains(text, c.refused) {
			t.Errorf("%d findings with %d bytes of evidence: %v", c.n, c.evidence, err)
		}
	}
}

// TestUnknownFindings: a collector that does not know findings accepts the rest of the record,
// as a current one does with an unknown field. An exporter without findings sends records that
// are byte for byte the same as before.
func TestUnknownFindings(t *testing.T) {
	now := time.Now()
	r := tapRecord(now)
	before, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	finding, err := proto.Marshal(validFinding(now))
	if err != nil {
		t.Fatal(err)
	}
	const tomorrow = 15
	later := protowire.AppendBytes(protowire.AppendTag(before[:len(before):len(before)], tomorrow, protowire.BytesType), finding)
	for name, body := range map[string][]byte{"without": before, "of tomorrow": later} {
		t.Run(name, func(t *testing.T) {
			got := new(wire.Record)
			if err := proto.Unmarshal(body, got); err != nil {
				t.Fatal(err)
			}
			l := newLedger()
			s := startCollector(t, testConfig(t), l, "")
			if outcome := outcomeOf(t, s, requestOf(got)); outcome != wire.Outcome_OUTCOME_STORED || len(l.taps) != 1 || len(l.found) != 0 {
				t.Errorf("%s, %d taps, %d findings", outcome, len(l.taps), len(l.found))
			}
		})
	}
}
