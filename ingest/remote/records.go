package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/wire"
)

// exporterRecords holds the records of exporters besides blocks.
type exporterRecords struct {
	taps  []TapRow
	gaps  []Gap
	found []Finding
}

// TapRow is the input of a tap of an exporter's stream, with its findings.
type TapRow struct {
	Run
	*wire.Tap
	Findings []*wire.Finding
}

// Gap is an interval in which blocks of an exporter's stream are missing.
type Gap struct {
	aggregate.Source
	*wire.Gap
}

// recordWriter writes records to the directory.
type recordWriter struct{ to Directory }

func (t recordWriter) write(ctx context.Context, list []exporterRecords) error {
	var all exporterRecords
	for _, one := range list {
		all.taps = append(all.taps, one.taps...)
		all.gaps = append(all.gaps, one.gaps...)
		all.found = append(all.found, one.found...)
	}
	if len(all.taps) > 0 {
		if err := t.to.WriteTaps(ctx, all.taps); err != nil {
			return err
		}
	}
	if len(all.gaps) > 0 {
		if err := t.to.WriteGaps(ctx, all.gaps); err != nil {
			return err
		}
	}
	if len(all.found) > 0 {
		return t.to.WriteFindings(ctx, all.found)
	}
	return nil
}

// ending holds live runs that end, and runs whose streams may have earlier, unended runs.
type ending struct{ runs, earlier []Run }

// end passes all ending runs to the directory in one call each.
func (t recordWriter) end(ctx context.Context, list []ending) error {
	var all ending
	for _, one := range list {
		all.runs = append(all.runs, one.runs...)
		all.earlier = append(all.earlier, one.earlier...)
	}
	if len(all.earlier) > 0 {
		if err := t.to.EndEarlier(ctx, all.earlier); err != nil {
			return err
		}
	}
	if len(all.runs) > 0 {
		return t.to.EndRuns(ctx, all.runs)
	}
	return nil
}

// endEarlier ends earlier runs of the streams that began with this push. If that fails, the
// next run of a stream repeats it.
func (p *push) endEarlier(ctx context.Context) {
	if len(p.announced) == 0 {
		return
	}
	ctx, cancel := p.patience(ctx)
	defer cancel()
	if err := p.ends.wait(ctx, ending{earlier: p.announced}); err != nil {
		p.refuseUnstored(ctx, ReasonEnds, err)
	}
}

var (
	errRecord = errors.New("expected a tap, a gap, a beginning or an end")
	errTap    = errors.New("numbers of a tap contradict each other")
	errGap    = errors.New("a gap with a resolution beyond 1 min, or with observations and no rows")
)

// checkRecord decides whether a record is stored.
func (p *push) checkRecord(it *item, m *wire.Record) verdict {
	var from, to int64
	var err error
	switch what := m.GetWhat().(type) {
	case *wire.Record_Tap:
		from, to, err = what.Tap.GetFromNs(), what.Tap.GetToNs(), checkTap(what.Tap)
	case *wire.Record_Gap:
		from, to, err = what.Gap.GetFromNs(), what.Gap.GetToNs(), checkGap(what.Gap)
	case *wire.Record_Begin, *wire.Record_End:
		from, to = p.now().UnixNano(), p.now().UnixNano()
	default:
		err = errRecord
	}
	// Stores accept no times from EndOfTime on: a batch of records with one would be retried forever.
	if err == nil && (from <= 0 || to < from || to >= aggregate.EndOfTime) {
		err = fmt.Errorf("from %d to %d ns: out of range", from, to)
	}
	if err != nil {
		return invalid(err)
	}
	v := p.checkTime(from, to)
	// Windows too far from this clock were refused, and no others will come for that time: their gap is stored.
	if v != toStore && (m.GetGap() == nil || from > p.now().Add(p.limits.MaxAge).UnixNano()) {
		return v
	}
	if err := p.checkFindings(it, m); err != nil {
		return invalid(err)
	}
	if v := p.checkDescribed(it, m.GetDescription()); v != toStore {
		return v
	}
	if v := p.meet(it, Producer); v != toStore {
		return v
	}
	if m.GetBegin() != nil {
		p.begun.add(p.run(it))
		return toStore
	}
	p.announce(it)
	return toStore
}

// checkTap validates a tap's input against wire.Tap.
func checkTap(t *wire.Tap) error {
	for _, text := range []string{t.GetName(), t.GetPlace(), t.GetInterface(), t.GetLink(), t.GetTimestamps()} {
		if !printable(text) {
			return fmt.Errorf("%.64q: expected printable text", text)
		}
	}
	frames, err := sumOf(t.GetFrames())
	if err != nil {
		return err
	}
	rejected, err := sumOf(t.GetRejected())
	if err != nil {
		return err
	}
	kept := aggregate.AddSat(t.GetStored(), t.GetOverflow())
	if err := checkTraffic(t, rejected); err != nil {
		return err
	}
	if t.GetName() == "" || !(t.GetTickNs() >= 0 && t.GetTickNs() <= maxTickNS) || frames != t.GetPackets() || aggregate.AddSat(t.GetTags(), t.GetReflections()) != t.GetObservations() ||
		aggregate.AddSat(aggregate.AddSat(kept, t.GetLate()), rejected) != t.GetObservations() || aggregate.AddSat(t.GetUntouched(), t.GetTrimmed()) > kept {
		return errTap
	}
	return nil
}

// maxTickNS is a second: no clock has a coarser resolution.
const maxTickNS = 1e9

// A tap sends a record every minute and counts some values by its own clock, so no period is
// taken as shorter. Shutdowns and outages bound the maximum.
const minPeriod, maxPeriod = time.Minute, time.Hour

// packetsIn returns the maximum number of packets of a tap in an interval. A packet may have a
// tag and a reflection, so there are at most twice as many observations.
func packetsIn(from, to int64) uint64 {
	return aggregate.MaxPackets(min(max(time.Duration(to-from), minPeriod), maxPeriod))
}

// checkTraffic rejects counts beyond a tap's capacity.
func checkTraffic(t *wire.Tap, rejected uint64) error {
	packets := packetsIn(t.GetFromNs(), t.GetToNs())
	bytes := packets * (aggregate.MaxByteRate / aggregate.MaxPacketRate)
	for _, n := range [...]uint64{t.GetPackets(), t.GetKernelDrops(), t.GetFreezes(), t.GetLost(), t.GetSuperFrames()} {
		if n > packets {
			return fmt.Errorf("%w: %d packets of a tap: expected at most %d", aggregate.ErrImpossible, n, packets)
		}
	}
	for _, n := range [...]uint64{
		t.GetTags(), t.GetReflections(), t.GetObservations(), t.GetStored(), t.GetOverflow(), t.GetLate(), t.GetUntouched(), t.GetTrimmed(), rejected,
	} {
		if n > 2*packets {
			return fmt.Errorf("%w: %d observations of a tap: expected at most %d", aggregate.ErrImpossible, n, 2*packets)
		}
	}
	if t.GetBytes() > bytes {
		return fmt.Errorf("%w: %d bytes of a tap: expected at most %d", aggregate.ErrImpossible, t.GetBytes(), bytes)
	}
	return nil
}

func sumOf(counts map[string]uint64) (sum uint64, err error) {
	if len(counts) > maxEntries {
		return 0, fmt.Errorf("%d reasons: expected at most %d", len(counts), maxEntries)
	}
	for reason, n := range counts {
		if checkReason(reason) != nil {
			return 0, checkReason(reason)
		}
		sum = aggregate.AddSat(sum, n)
	}
	return sum, nil
}

const maxReasonBytes = 32

// checkReason rejects reasons that would garble a table.
func checkReason(reason string) error {
	if reason == "" || len(reason) > maxReasonBytes || strings.Trim(reason, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return fmt.Errorf("reason %.64q: expected up to %d lower case letters, digits or _", reason, maxReasonBytes)
	}
	return nil
}

// neverTaken are the gap reasons for packets that were in no row.
var neverTaken = []string{"restart", "drops", "mirror"}

func checkGap(g *wire.Gap) error {
	without := g.GetObservations() > 0 && g.GetRows() == 0 && !slices.Contains(neverTaken, g.GetReason())
	if g.GetResolutionNs() < 0 || g.GetResolutionNs() > int64(time.Minute) || without {
		return errGap
	}
	if most := 2 * aggregate.MaxPackets(time.Duration(g.GetToNs()-g.GetFromNs())); max(g.GetRows(), g.GetObservations()) > most {
		return fmt.Errorf("%w: a gap of %d rows and %d observations: expected at most %d", aggregate.ErrImpossible, g.GetRows(), g.GetObservations(), most)
	}
	return checkReason(g.GetReason())
}

// passRecords passes the records and the findings about the exporter to the directory. Records that it
// does not accept now are to be sent again; the blocks are stored.
func (p *push) passRecords(ctx context.Context) {
	var t exporterRecords
	var ends []Run
	var records, ended []*item
	var written []func() // to call once the findings are written
	if i := slices.IndexFunc(p.items, func(it *item) bool { return it.outcome == wire.Outcome_OUTCOME_STORED }); i >= 0 {
		if found, done := p.names.disputed(p.e.name, p.run(p.items[i]).Source); len(found) > 0 {
			t.found, written = found, append(written, done)
		}
	}
	if found, done := p.e.ahead.finding(p.e.name, p.limits.MaxAhead, p.now()); found != nil {
		t.found, written = append(t.found, *found), append(written, done)
	}
	for _, it := range p.items {
		if it.record == nil || it.outcome != wire.Outcome_OUTCOME_STORED {
			continue
		}
		run := p.run(it)
		switch what := it.record.GetWhat().(type) {
		case *wire.Record_Tap:
			t.taps = append(t.taps, TapRow{run, what.Tap, it.record.GetFindings()})
		case *wire.Record_Gap:
			t.gaps = append(t.gaps, Gap{run.Source, what.Gap})
		case *wire.Record_End:
			ends, ended = append(ends, run), append(ended, it)
			continue
		default:
			continue
		}
		records = append(records, it)
	}
	ctx, cancel := p.patience(ctx)
	defer cancel()
	if len(records)+len(t.found) > 0 {
		err := p.recordGroup.wait(ctx, t)
		p.retryLater(ctx, records, err)
		if err == nil {
			for _, done := range written {
				done()
			}
		}
	}
	if len(ended) > 0 {
		p.retryLater(ctx, ended, p.ends.wait(ctx, ending{runs: ends}))
	}
}

// retryLater makes the exporter send items again that the directory did not accept.
func (p *push) retryLater(ctx context.Context, list []*item, err error) {
	if err == nil {
		return
	}
	p.refuseUnstored(ctx, ReasonSink, err)
	sendAgain(list)
}

// patience limits how long a request waits for the directory, so that its durable items are
// acknowledged in time.
func (s *Server) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.cfg.Timeout/2)
}
