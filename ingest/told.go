package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/csigscope/csigscope/ingest/wire"
)

// telling is what exporters told beside blocks.
type telling struct {
	taps  []TapRow
	gaps  []Gap
	ends  []Run
	found []Finding
}

// teller gives it to the directory.
type teller struct{ to Directory }

func (t teller) write(ctx context.Context, list []telling) error {
	var all telling
	for _, one := range list {
		all.taps = append(all.taps, one.taps...)
		all.gaps = append(all.gaps, one.gaps...)
		all.ends = append(all.ends, one.ends...)
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
		if err := t.to.WriteFindings(ctx, all.found); err != nil {
			return err
		}
	}
	if len(all.ends) > 0 {
		return t.to.EndRuns(ctx, all.ends)
	}
	return nil
}

func toldItem(r *wire.Record) *item {
	return &item{stream: r.GetStream(), epoch: r.GetEpoch(), at: placeOf{incarnation: r.GetIncarnation()}, told: r}
}

var (
	errRecord = errors.New("expected a tap, a gap, a beginning or an end")
	errTap    = errors.New("numbers of a tap contradict each other")
	errGap    = errors.New("a gap of no windows, or for no reason")
)

// endOfTime is 2106, Unix ns: stores take no later times, and all that came with one would
// come again for ever.
const endOfTime = int64(4_291_747_200e9)

// checkRecord finds out whether a record is to be stored.
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
	if err == nil && (from <= 0 || to < from || to >= endOfTime) {
		err = fmt.Errorf("from %d to %d ns: out of range", from, to)
	}
	if err != nil {
		return invalid(err)
	}
	if v := p.checkTime(from, to); v != toStore {
		return v
	}
	if err := p.checkFindings(it, m); err != nil {
		return invalid(err)
	}
	if v := p.checkDescribed(it, m.GetDescription()); v != toStore {
		return v
	}
	if v := p.own(it, Producer); v != toStore {
		return v
	}
	switch state, ok := p.e.meet(it.at, p.limits.MaxStreams); {
	case !ok:
		return verdict{outcome: wire.Outcome_OUTCOME_STREAMS}
	case state == seqStale:
		return verdict{outcome: wire.Outcome_OUTCOME_STALE}
	}
	if m.GetBegin() != nil {
		p.begun.add(p.run(it))
		return toStore
	}
	p.announce(it)
	return toStore
}

// checkTap holds what a tap took in to what wire.Tap says of it.
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
	kept := addSat(t.GetStored(), t.GetOverflow())
	if t.GetName() == "" || frames != t.GetPackets() || addSat(t.GetTags(), t.GetReflections()) != t.GetObservations() ||
		addSat(addSat(kept, t.GetLate()), rejected) != t.GetObservations() || addSat(t.GetUntouched(), t.GetTrimmed()) > kept {
		return errTap
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
		sum = addSat(sum, n)
	}
	return sum, nil
}

const maxReasonBytes = 32

// checkReason refuses what would spoil a table.
func checkReason(reason string) error {
	if reason == "" || len(reason) > maxReasonBytes || strings.Trim(reason, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return fmt.Errorf("reason %.64q: expected up to %d lower case letters", reason, maxReasonBytes)
	}
	return nil
}

// neverTaken are the reasons of gaps of packets that were in no row.
var neverTaken = []string{"restart", "drops", "mirror"}

func checkGap(g *wire.Gap) error {
	without := g.GetObservations() > 0 && g.GetRows() == 0 && !slices.Contains(neverTaken, g.GetReason())
	if g.GetResolutionNs() < 0 || g.GetResolutionNs() > int64(time.Minute) || without {
		return errGap
	}
	return checkReason(g.GetReason())
}

// tell gives the records to the directory, and what was found about the exporter. Records
// that it does not take now are to come again; the blocks are stored.
func (p *push) tell(ctx context.Context) {
	var t telling
	var told []*item
	foundTold := func() {}
	if i := slices.IndexFunc(p.items, func(it *item) bool { return it.outcome == wire.Outcome_OUTCOME_STORED }); i >= 0 {
		t.found, foundTold = p.names.disputed(p.e.name, p.run(p.items[i]).Source)
	}
	for _, it := range p.items {
		if it.told == nil || it.outcome != wire.Outcome_OUTCOME_STORED {
			continue
		}
		told = append(told, it)
		run := p.run(it)
		switch what := it.told.GetWhat().(type) {
		case *wire.Record_Tap:
			t.taps = append(t.taps, TapRow{run, what.Tap, it.told.GetFindings()})
		case *wire.Record_Gap:
			t.gaps = append(t.gaps, Gap{run.Source, what.Gap})
		case *wire.Record_End:
			t.ends = append(t.ends, run)
		}
	}
	if len(told)+len(t.found) == 0 {
		return
	}
	if err := p.tellings.wait(ctx, t); err != nil {
		p.refuse(p.e, ReasonSink, slog.String("error", err.Error()))
		for _, it := range told {
			it.outcome = wire.Outcome_OUTCOME_UNSPECIFIED
		}
		return
	}
	if len(t.found) > 0 {
		foundTold()
	}
}
