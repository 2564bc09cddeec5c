package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/persist"
)

// captureResolutions are the windows of a report on captures.
var captureResolutions = Resolutions{Fine: time.Millisecond, Window: time.Second, Total: time.Minute}

// Spill says when captures go through a store because memory does not suffice.
type Spill string

// Spill modes: if memory does not suffice and the engine is installed, always, or never.
const (
	SpillAuto   Spill = "auto"
	SpillAlways Spill = "always"
	SpillNever  Spill = "never"
)

// Captures are the inputs of a report.
type Captures struct {
	// Replay reads the captures. Report sets its resolutions, sink, Taps and Finding. Fine rows
	// must cover all cells.
	Replay replay.Config
	// Examine inspects each observation. Report sets its files and progress.
	Examine replay.ExamineConfig
	Network persist.Network
	Domain  *csig.Domain
	Fabric  *fabric.Fabric
	Taps    []string // configured taps
	Limits  Limits

	Thresholds aggregate.Thresholds // thresholds of cell states; the store must have the same ones

	Spill Spill
	// Store creates an empty store for spilled captures. leave closes and removes it.
	Store func(context.Context) (db *store.Store, leave func() error, err error)

	// Progress shows the bytes read of total, and a note, until stop is called.
	Progress func(total int64, poll func() (done int64, note string)) (stop func())
	Notes    io.Writer // hints for people
}

// numbers holds the captures' aggregates.
type numbers struct {
	data    report.Data
	result  *replay.Result
	taps    []report.Tap
	unknown []string
	leave   func() error // must be called after use
}

// Report builds the report, without its Files. It reads the captures twice, for aggregates and for
// findings, and a third time through a store if the aggregates exceed the memory. If captures end
// early, it returns a report of the readable part together with the error.
func (c *Captures) Report(ctx context.Context) (doc *report.Report, err error) {
	n, err := c.numbers(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.leave()) }()
	n.result.NoteMissing(c.Notes, c.Domain)
	e, err := c.examine(ctx)
	if err != nil {
		return nil, err
	}
	if doc, err = c.write(ctx, n, e); err != nil {
		return nil, err
	}
	return doc, errors.Join(n.result.Cuts...)
}

// numbers returns the aggregates from memory, or from a store if memory does not suffice.
func (c *Captures) numbers(ctx context.Context) (*numbers, error) {
	memory, n, err := c.inMemory(ctx)
	if err != nil {
		return nil, err
	}
	limited, hint := memory.Limited(), "(--spill)"
	full := len(limited) > 0
	if c.Spill == SpillAlways || c.Spill == SpillAuto && full {
		_, err := chdb.FindLibrary("")
		switch {
		case err == nil:
			if full {
				fmt.Fprintln(c.Notes, "the aggregates take more than --memory: reading the captures once more, through the embedded engine")
			}
			// The engine needs memory of its own, so memory must not be referenced after this line.
			return c.stored(ctx, memory.Wanted(), memory.Sampler())
		case c.Spill == SpillAlways || !errors.Is(err, chdb.ErrNoEngine):
			return nil, err
		}
		hint = "(" + chdb.LibraryEnv + "), which is not installed"
	}
	if full {
		limited = append(limited, "for all of that raise --memory, or use the embedded engine "+hint)
	}
	n.unknown = limited
	return n, nil
}

// inMemory aggregates the captures in memory.
func (c *Captures) inMemory(ctx context.Context) (*Memory, *numbers, error) {
	memory, taps := NewMemory(captureResolutions, c.Thresholds, c.Limits), &tapSums{}
	r := c.replay(captureResolutions)
	r.Sink, r.Taps = memory, taps.add
	run, err := replay.New(r)
	if err != nil {
		return nil, nil, err
	}
	if err := c.run(ctx, run); err != nil {
		return nil, nil, err
	}
	return memory, &numbers{data: memory, result: run.Result(), taps: taps.list, leave: func() error { return nil }}, nil
}

// stored replays the captures into a store and returns its aggregates over span.
func (c *Captures) stored(ctx context.Context, span report.Span, samples report.Sampler) (_ *numbers, err error) {
	db, leave, err := c.Store(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, leave())
		}
	}()
	resolutions := captureResolutions
	if span.Step > 0 {
		resolutions.Fine = min(span.Step, resolutions.Window)
	}
	r, err := persist.New(c.replay(resolutions), c.Network)
	if err != nil {
		return nil, err
	}
	if err := r.Store(ctx, db, func(ctx context.Context) error { return c.run(ctx, r.Replay) }); err != nil {
		return nil, err
	}
	from, to := store.Everything()
	rows, err := db.Taps(ctx, from, to)
	if err != nil {
		return nil, err
	}
	n := &numbers{data: newStored(db, resolutions.Fine, span, samples), result: r.Result(), leave: leave}
	for i := range rows {
		t := &rows[i].TapRow
		n.taps = append(n.taps, reportTap(t, c.Replay.Tap(t.Name).Weight))
	}
	return n, nil
}

// replay returns the configuration of a replay at the given resolutions.
func (c *Captures) replay(r Resolutions) replay.Config {
	config := c.Replay
	config.Resolutions = r.List()
	config.Finding = nil // examine looks at every observation
	return config
}

// run runs the replay and shows its progress.
func (c *Captures) run(ctx context.Context, run *replay.Replay) error {
	_, total, _ := run.Progress()
	stop := c.Progress(max(total, 1), func() (int64, string) {
		done, _, _ := run.Progress()
		return done, "adding up"
	})
	defer stop()
	return run.Run(ctx)
}

// examine searches the captures for findings.
func (c *Captures) examine(ctx context.Context) (*replay.Examined, error) {
	config := c.Examine
	config.Files = c.Replay.Files
	var total int64
	for _, file := range config.Files {
		if info, err := os.Stat(file); err == nil {
			total += info.Size()
		}
	}
	var done atomic.Int64
	config.Progress = done.Store
	stop := c.Progress(max(total, 1), func() (int64, string) { return done.Load(), "examining" })
	defer stop()
	e, err := replay.Examine(ctx, config)
	if e == nil {
		return nil, err
	}
	return e, nil // the aggregation has already reported how captures end
}

// write fills in the document.
func (c *Captures) write(ctx context.Context, n *numbers, e *replay.Examined) (*report.Report, error) {
	doc := &report.Report{
		Title: "CSIG report", GeneratedAt: time.Now().UTC(), From: time.Unix(0, e.From).UTC(), To: time.Unix(0, e.To).UTC(),
		OnsetRatio: c.Thresholds.Onset, ClearRatio: c.Thresholds.Clear,
		Findings: report.Findings(e.Findings), Counts: countsOf(n.result, e),
	}
	data := &cellsOnce{Data: n.data}
	names := c.Fabric.Names() // only now: without a fabric file, groups are the prefixes that were met
	var err error
	if doc.Signals, err = report.Signals(ctx, data, names, c.Domain); err != nil {
		return nil, err
	}
	ways := make([]report.CellPackets, len(e.Pairs))
	for i, w := range e.Pairs {
		ways[i] = report.CellPackets{Src: w.Src, Dst: w.Dst, Tagged: w.Tagged, Untagged: w.Untagged, Incapable: w.Incapable}
	}
	if err := doc.Coverage.Cover(ctx, data, names, ways); err != nil {
		return nil, err
	}
	leaveOutWrongTimes(doc, n, data.Span())
	doc.Coverage.SetTaps(n.taps, c.Taps)
	if e.To == 0 { // no packet has a tag or a reflection
		doc.From, doc.To = doc.Coverage.Period()
	}
	ground := &report.VerdictInput{Names: names, Groups: c.Fabric.Groups(), Thresholds: c.Thresholds}
	if c.Fabric.TopologyRevision() != "" {
		ground.Fabric = c.Fabric
	}
	if doc.Verdict, err = report.Judge(ctx, data, ground, &doc.Coverage); err != nil {
		return nil, err
	}
	doc.Unknown = append(c.unknown(n.result, e), n.unknown...)
	missed, err := report.MissedPeriods(ctx, data, captureResolutions.Fine)
	if missed != "" {
		doc.Unknown = append(doc.Unknown, missed)
	}
	return doc, err
}

// faultyClock is the least distance from the stored windows at which the time of a packet counts as wrong
// although no observation was rejected for its time: the packet may have no tag.
const faultyClock = 24 * time.Hour

// leaveOutWrongTimes cuts the times of the report and of its taps to the span of the stored windows: one
// packet from years ahead would make all other taps look silent. It cuts an end if observations with wrong
// times were rejected there, or if it is farther outside than both faultyClock and the length of the span.
func leaveOutWrongTimes(doc *report.Report, n *numbers, span report.Span) {
	c := &n.result.Counts
	if c.Stored == 0 {
		return
	}
	first, end := time.Unix(0, span.First).UTC(), time.Unix(0, span.Last).Add(span.Step).UTC()
	far := max(end.Sub(first), faultyClock)
	shorten := func(from, to *time.Time, ahead, late bool) {
		if to.After(end) && (ahead || to.Sub(end) > far) {
			*to = end
		}
		if from.Before(first) && (late || first.Sub(*from) > far) {
			*from = first
		}
		if from.After(*to) { // all times are wrong
			*from = *to
		}
	}
	impossible := c.Rejected[aggregate.RejectInvalid] > 0
	shorten(&doc.From, &doc.To, impossible || c.Rejected[aggregate.RejectFuture] > 0, impossible || c.Late > 0)
	for i := range n.taps {
		if t := &n.taps[i]; !t.To.IsZero() {
			shorten(&t.From, &t.To, t.Stored > 0 && t.Rejected[aggregate.RejectFuture.String()] > 0, t.Stored > 0 && t.Late > 0)
		}
	}
}

// cellsOnce asks for the cells of a signal once, since a store adds them up from all rows, and
// several parts of a report need them.
type cellsOnce struct {
	report.Data
	mu    sync.Mutex
	cells map[csig.Signal][]aggregate.CellStats
}

// Cells implements report.Totals.
func (o *cellsOnce) Cells(ctx context.Context, signal csig.Signal) ([]aggregate.CellStats, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	cells, known := o.cells[signal]
	if !known {
		var err error
		if cells, err = o.Data.Cells(ctx, signal); err != nil {
			return nil, err
		}
		if o.cells == nil {
			o.cells = make(map[csig.Signal][]aggregate.CellStats)
		}
		o.cells[signal] = cells
	}
	return slices.Clone(cells), nil
}

// countsOf counts packets and observations by outcome.
func countsOf(result *replay.Result, e *replay.Examined) []report.Count {
	c := &result.Counts
	list := []report.Count{{Name: "packets", N: result.Packets}}
	for i, n := range result.Frames {
		if n > 0 {
			list = append(list, report.Count{Name: "packets, " + decode.Reason(i).String(), N: n})
		}
	}
	if result.Repeated > 0 {
		list = append(list, report.Count{Name: "packets, duplicates", N: result.Repeated, About: "left out (--dedup)"})
	}
	list = append(list, report.Count{Name: "observations", N: c.In, About: "tags and reflections: stored + late + rejected + overflow"},
		report.Count{Name: "stored", N: c.Stored}, report.Count{Name: "late", N: c.Late}, report.Count{Name: "overflow", N: c.Overflow})
	for i, n := range c.Rejected {
		if n > 0 {
			list = append(list, report.Count{Name: "rejected, " + aggregate.Rejection(i).String(), N: n, About: aggregate.Rejection(i).About()})
		}
	}
	return append(list, report.Count{Name: "untouched", N: c.Untouched, About: "no hop replaced the tag"},
		report.Count{Name: "trimmed", N: c.Trimmed, About: "counted apart, out of the mode"},
		report.Count{Name: "empty or invalid reflections", N: e.Decoded.EmptyReflections + e.Decoded.InvalidReflections, About: "of paths that are not CSIG-capable"})
}

// unknown lists gaps in knowledge with their reasons.
func (c *Captures) unknown(result *replay.Result, e *replay.Examined) []string {
	list := []string{}
	say := func(count uint64, format string, a ...any) {
		if count > 0 {
			list = append(list, fmt.Sprintf("%d %s", count, fmt.Sprintf(format, a...)))
		}
	}
	say(result.Frames[decode.Hidden], "packets are encrypted by MACsec: tags inside them are hidden")
	say(e.Decoded.Encrypted, "packets are in ESP or PSP: only the hosts see reflections inside")
	say(e.Untracked, "packets are of more flows than are kept apart: findings that compare flows leave them out")
	say(result.Counts.Unknown, "observations are of a signal type that no table gives a meaning")
	say(result.Damaged.Bytes, "bytes of damaged captures are left out")
	result.SkippedLink.List(func(u window.UnreadableLink, packets uint64) {
		say(packets, "packets are of %s, which is not read", u)
	})
	for _, cut := range result.Cuts {
		list = append(list, cut.Error())
	}
	say(result.Counts.Rejected[aggregate.RejectPlace], "observations were made before the end of their path, and enter no heatmap")
	say(result.Counts.Rejected[aggregate.RejectOrphan], "observations are orphans, tags in places where none belongs, and enter no heatmap")
	if c.Replay.Flows.Top == 0 {
		list = append(list, "the configuration switches flows off (flows: top)")
	}
	if c.Fabric.TopologyRevision() == "" {
		list = append(list, "without a fabric file (--fabric), locations are raw locator metadata and groups are prefixes")
	}
	return append(list, "whether a single switch treats tags correctly: capture before and after it, and run csigscope conform")
}

// reportTap returns the report's form of a tap.
func reportTap(t *store.TapRow, weight uint64) report.Tap {
	one := report.Tap{
		Name: t.Name, Place: t.Place, Interface: t.Interface, Weight: cmp.Or(weight, 1),
		Packets: t.Packets, Frames: maps.Clone(t.Frames), Tags: t.Tags, Reflections: t.Reflections,
		Observations: t.Observations, Stored: t.Stored, Overflow: t.Overflow, Late: t.Late, Rejected: maps.Clone(t.Rejected),
		Untouched: t.Untouched, Trimmed: t.Trimmed,
	}
	if t.To != 0 { // else no packet has a time
		one.From, one.To = time.Unix(0, t.From).UTC(), time.Unix(0, t.To).UTC()
	}
	return one
}

// tapSums adds up the counts of taps. It is safe for concurrent use.
type tapSums struct {
	mu   sync.Mutex
	list []report.Tap
}

// add adds the taps' counts of a chunk.
func (s *tapSums) add(_ context.Context, counts []replay.TapCounts) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range counts {
		row := persist.TapRow(&counts[i])
		s.merge(reportTap(&row, counts[i].Tap.Weight))
	}
	return nil
}

func (s *tapSums) merge(t report.Tap) {
	at := slices.IndexFunc(s.list, func(o report.Tap) bool {
		return o.Name == t.Name && o.Place == t.Place && o.Interface == t.Interface
	})
	if at < 0 {
		s.list = append(s.list, t)
		return
	}
	o := &s.list[at]
	if !t.To.IsZero() && (o.To.IsZero() || t.From.Before(o.From)) {
		o.From = t.From
	}
	if t.To.After(o.To) {
		o.To = t.To
	}
	for _, sum := range []struct{ to, n *uint64 }{
		{&o.Packets, &t.Packets},
		{&o.Tags, &t.Tags},
		{&o.Reflections, &t.Reflections},
		{&o.Observations, &t.Observations},
		{&o.Stored, &t.Stored},
		{&o.Overflow, &t.Overflow},
		{&o.Late, &t.Late},
		{&o.Untouched, &t.Untouched},
		{&o.Trimmed, &t.Trimmed},
	} {
		*sum.to += *sum.n
	}
	for reason, n := range t.Frames {
		o.Frames[reason] += n
	}
	for reason, n := range t.Rejected {
		o.Rejected[reason] += n
	}
}
