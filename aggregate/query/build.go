package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// Bounds for zero fields of Options.
const (
	DefaultMaxWindows = 1440
	DefaultMaxRows    = 1 << 20
)

// Bounds of every bundle.
const (
	maxGroups    = 512    // of the axes; groups with data are never left out
	maxLocations = 20_000 // unnamed locations beyond this are left out
)

// Options select the contents of a bundle. The zero value takes every signal of
// the last stored day over the whole stored range, at the level location.
type Options struct {
	Fabric   string         // name shown in the header
	Signals  []csig.Signal  // with Named; both empty: all in Extent.Signals
	Named    []string       // signals as csig.FindSignal finds them among the stored ones
	Levels   []fabric.Level // empty: fabric.LevelLocation
	From, To time.Time      // zero: the whole stored range; widened to whole windows
	Step     time.Duration  // 0: chosen so that a range has about 120 windows

	// Thresholds are those of the reader's states, for display; zero:
	// aggregate.DefaultThresholds.
	Thresholds aggregate.Thresholds

	MaxWindows int // of one bundle, 0: DefaultMaxWindows
	MaxRows    int // of all signals together, 0: DefaultMaxRows

	// Src and Dst select the cells of frames; nil is all.
	Src, Dst *aggregate.GroupID

	Now time.Time // becomes generated_at; zero: the current time
}

func (o Options) withDefaults() Options {
	o.MaxWindows = cmp.Or(o.MaxWindows, DefaultMaxWindows)
	o.MaxRows = cmp.Or(o.MaxRows, DefaultMaxRows)
	if len(o.Levels) == 0 {
		o.Levels = []fabric.Level{fabric.LevelLocation}
	}
	o.Levels = slices.Compact(slices.Sorted(slices.Values(o.Levels)))
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if o.Thresholds == (aggregate.Thresholds{}) {
		o.Thresholds = aggregate.DefaultThresholds()
	}
	return o
}

// Build reads a bundle. Errors wrap ErrInvalid, ErrTooLarge or ErrNoData if the request is at
// fault, and the reader's errors otherwise. The caller owns the bundle.
func Build(ctx context.Context, r Reader, o Options) (*Bundle, error) {
	extent, p, err := o.plan(ctx, r)
	if err != nil {
		return nil, err
	}
	b := &builder{options: o, plan: p, reader: r}
	raw, err := b.read(ctx, extent)
	if err != nil {
		return nil, err
	}
	groups, err := r.Groups(ctx)
	if err != nil {
		return nil, fmt.Errorf("read groups: %w", err)
	}
	locations, err := r.Locations(ctx)
	if err != nil {
		return nil, fmt.Errorf("read locations: %w", err)
	}
	var peers map[string]string
	if l, ok := r.(Linker); ok {
		if peers, err = l.Peers(ctx); err != nil {
			return nil, fmt.Errorf("read peers: %w", err)
		}
	}
	axes := newAxes(groups, raw, maxGroups)
	index := newLocationIndex(locations, raw, maxLocations)
	for i := range index.list {
		index.list[i].Peer = peers[index.list[i].Name]
	}
	return b.assemble(extent, raw, axes, index)
}

// plan sets the defaults, finds the stored signals, and cuts the range into windows.
func (o *Options) plan(ctx context.Context, r Reader) (Extent, plan, error) {
	*o = o.withDefaults()
	extent, err := r.Extent(ctx)
	if err != nil {
		return extent, plan{}, fmt.Errorf("read extent: %w", err)
	}
	if err := o.findSignals(extent); err != nil {
		return extent, plan{}, err
	}
	p, err := newPlan(*o, extent)
	return extent, p, err
}

// findSignals adds the signals in Named to Signals.
func (o *Options) findSignals(e Extent) error {
	o.Signals = slices.Clone(o.Signals)
	for _, name := range o.Named {
		s, err := csig.FindSignal(name, e.Signals)
		if err != nil {
			return fmt.Errorf("%w: signal: %w", ErrInvalid, err)
		}
		if !slices.Contains(o.Signals, s) {
			o.Signals = append(o.Signals, s)
		}
	}
	return nil
}

type builder struct {
	options Options
	plan    plan
	reader  Reader
	rows    int
}

// rawSignal is a reader's answer for one signal; totals are by level, sorted by source and
// destination.
type rawSignal struct {
	signal    csig.Signal
	totals    [][]aggregate.CellStats
	locations []aggregate.LocationWindow
}

func (b *builder) read(ctx context.Context, e Extent) ([]rawSignal, error) {
	signals := b.options.Signals
	if len(signals) == 0 {
		signals = e.Signals
	}
	var out []rawSignal
	for _, s := range signals {
		raw := rawSignal{signal: s}
		q := b.plan.question(s)
		for _, level := range b.options.Levels {
			q.Level = level
			if err := b.readLevel(ctx, q, &raw); err != nil {
				return nil, fmt.Errorf("read %s by %s: %w", s, level, err)
			}
		}
		q.Level = fabric.LevelLocation
		var err error
		if raw.locations, err = b.reader.LocationWindows(ctx, q); err != nil {
			return nil, fmt.Errorf("read locations of %s: %w", s, err)
		}
		if err := b.count(len(raw.locations)); err != nil {
			return nil, err
		}
		slices.SortFunc(raw.locations, func(a, b aggregate.LocationWindow) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Location, b.Location))
		})
		out = append(out, raw)
	}
	return out, nil
}

func (b *builder) readLevel(ctx context.Context, q Question, raw *rawSignal) error {
	total, err := b.reader.Cells(ctx, q)
	if err != nil {
		return fmt.Errorf("read cells: %w", err)
	}
	if err := b.count(len(total)); err != nil {
		return err
	}
	slices.SortFunc(total, aggregate.CompareCells)
	raw.totals = append(raw.totals, total)
	return nil
}

// count keeps a bundle within its budget.
func (b *builder) count(rows int) error {
	if b.rows += rows; b.rows > b.options.MaxRows {
		return fmt.Errorf("%w: more than %d rows: take a longer step, a shorter range, one signal or one level",
			ErrTooLarge, b.options.MaxRows)
	}
	return nil
}

func (b *builder) assemble(e Extent, raw []rawSignal, axes *axes, locations *locationIndex) (*Bundle, error) {
	out := &Bundle{
		Version: Version, GeneratedAt: b.options.Now.UTC(), Fabric: b.options.Fabric,
		ResolutionNS: b.plan.resolution, StepNS: b.plan.step,
		HeavyOnly:       b.plan.resolution > 0 && time.Duration(b.plan.resolution) < heavyOnlyBelow,
		MinObservations: aggregate.MinObservations, OnsetRatio: b.options.Thresholds.Onset, ClearRatio: b.options.Thresholds.Clear,
		Groups: axes.groups, Locations: locations.list,
		Windows: make([]NS, 0, b.plan.windows()),
	}
	for i := range b.plan.windows() {
		out.Windows = append(out.Windows, NS(b.plan.from+int64(i)*b.plan.step))
	}
	known := slices.Clone(e.Signals)
	for _, s := range raw {
		if !slices.Contains(known, s.signal) {
			known = append(known, s.signal)
		}
	}
	slices.Sort(known)
	out.Signals = describe(known)
	for _, l := range b.options.Levels {
		out.Levels = append(out.Levels, l.String())
	}
	for _, s := range raw {
		d, err := b.signalData(s, axes, locations)
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", s.signal, err)
		}
		d.Signal = slices.Index(known, s.signal)
		out.Data = append(out.Data, d)
	}
	return out, nil
}

func describe(signals []csig.Signal) []SignalInfo {
	names := csig.SignalNames(signals)
	out := make([]SignalInfo, len(signals))
	for i, s := range signals {
		out[i] = SignalInfo{Name: names[i], Unit: s.Unit().String(), Direction: "min", NotJudgedHint: aggregate.HowToJudge(s)}
		if s.Direction() == csig.Max {
			out[i].Direction = "max"
		}
		if s.HasValue() {
			out[i].Aggregation = s.Aggregation().String()
		}
	}
	return out
}

// Errors for callers to tell apart: the request is invalid, or exceeds the bounds, or there is no
// data.
var (
	ErrInvalid  = errors.New("invalid request")
	ErrTooLarge = errors.New("answer too large")
	ErrNoData   = errors.New("no data stored")
	// ErrUnavailable is the error of requests that may succeed later: the store is unreachable or
	// slow.
	ErrUnavailable = errors.New("the store cannot answer at the moment")
)

// targetWindows is the number of windows that an automatic step aims for: enough to scrub
// through, few enough to send.
const targetWindows = 120

// heavyOnlyBelow is the resolution below which producers keep only cells with heavy observations.
const heavyOnlyBelow = time.Second

// niceSteps are the choices for an automatic step. Each divides a day evenly, so that windows of
// neighboring ranges line up.
var niceSteps = []time.Duration{
	100 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// plan is a range cut into windows, and the resolution of its rows.
type plan struct {
	from, to         int64 // Unix ns, multiples of step
	step, resolution int64
}

func (p plan) windows() int { return int((p.to - p.from) / p.step) }

// span returns the plan's range. The last window may end after all times, the range does not.
func (p plan) span() (from, to time.Time) {
	return time.Unix(0, p.from).UTC(), time.Unix(0, min(p.to, aggregate.EndOfTime)).UTC()
}

// question asks for a signal's rows over the plan's range.
func (p plan) question(s csig.Signal) Question {
	from, to := p.span()
	return Question{
		Signal: s, From: from, To: to,
		Resolution: time.Duration(p.resolution), Step: time.Duration(p.step),
	}
}

// newPlan sets unset options and validates the others. Ranges are widened to whole windows.
func newPlan(o Options, e Extent) (plan, error) {
	if e.Empty() || len(e.Resolutions) == 0 {
		return plan{}, ErrNoData
	}
	from, to := o.From, o.To
	if from.IsZero() {
		from = e.First
	}
	if to.IsZero() {
		to = e.Last
	}
	if !from.Before(to) {
		return plan{}, fmt.Errorf("%w: from %s is not before to %s", ErrInvalid,
			from.UTC().Format(time.RFC3339Nano), to.UTC().Format(time.RFC3339Nano))
	}
	resolutions := slices.Sorted(slices.Values(e.Resolutions))
	step, choices := o.Step, resolutions
	if e.OnlyMinutes(from) {
		choices = []time.Duration{time.Minute}
		if step >= heavyOnlyBelow && step%time.Minute != 0 {
			return plan{}, fmt.Errorf("%w: windows of 1s before %s are no longer stored: expected a step in whole minutes, or a later from",
				ErrInvalid, e.Seconds.UTC().Format(time.RFC3339))
		}
	}
	if step == 0 {
		step = automaticStep(from.UnixNano(), to.UnixNano(), choices)
	}
	resolution, err := resolutionFor(step, resolutions)
	if err != nil {
		return plan{}, err
	}
	p := plan{step: int64(step), resolution: int64(resolution)}
	p.from, p.to = widen(from.UnixNano(), to.UnixNano(), p.step)
	if n := (p.to - p.from) / p.step; n > int64(o.MaxWindows) {
		return plan{}, fmt.Errorf("%w: %d windows of %s, at most %d: take a longer step or a shorter range",
			ErrTooLarge, n, step, o.MaxWindows)
	}
	return p, nil
}

// automaticStep never goes below 1 s if such rows exist: finer rows cover only cells
// with heavy observations, and would hide the others unasked. It counts the windows of the widened
// range, so that the same step is chosen again for that range.
func automaticStep(from, to int64, resolutions []time.Duration) time.Duration {
	finest := resolutions[0]
	for _, r := range resolutions {
		if r >= heavyOnlyBelow {
			finest = r
			break
		}
	}
	fits := func(step time.Duration) bool {
		first, end := widen(from, to, int64(step))
		return (end-first)/int64(step) <= targetWindows+1 // an hour is 121 windows of 30 s, unless it starts with one
	}
	step := finest
	for _, s := range niceSteps {
		if s < finest || s%finest != 0 {
			continue
		}
		if step = s; fits(step) {
			return step
		}
	}
	for !fits(step) {
		step *= 2
	}
	return step
}

// widen widens a range to whole windows.
func widen(from, to, step int64) (first, end int64) {
	return floorTo(from, step), floorTo(to-1, step) + step
}

// resolutionFor is the stored resolution to read for a step. All complete ones (1 s and above)
// that divide it give the same answer, unless the coarser one has not closed its last window yet:
// only the reader can tell, so 0 leaves the choice to it.
func resolutionFor(step time.Duration, resolutions []time.Duration) (time.Duration, error) {
	var fit []time.Duration
	for _, r := range slices.Backward(resolutions) {
		if step > 0 && step%r == 0 {
			fit = append(fit, r)
		}
	}
	if len(fit) == 0 {
		var stored []string
		for _, r := range resolutions {
			stored = append(stored, r.String())
		}
		return 0, fmt.Errorf("%w: expected a step that is a multiple of a stored resolution: %s", ErrInvalid, strings.Join(stored, " or "))
	}
	if len(fit) > 1 && fit[1] >= heavyOnlyBelow {
		return 0, nil
	}
	return fit[0], nil
}

func floorTo(t, step int64) int64 {
	q := t / step
	if t%step < 0 {
		q--
	}
	return q * step
}

// SplitRange cuts a question's range into windows: of the step or, if that is 0, of a step that
// gives about 120 of them. The range is widened to whole windows, at most the given number. Errors
// wrap ErrInvalid, ErrTooLarge or ErrNoData.
func SplitRange(q *Question, e Extent, step time.Duration, windows int) error {
	p, err := newPlan(Options{From: q.From, To: q.To, Step: step, MaxWindows: windows}, e)
	if err != nil {
		return err
	}
	q.From, q.To = p.span()
	q.Step, q.Resolution = time.Duration(p.step), time.Duration(p.resolution)
	return nil
}

func (b *builder) signalData(raw rawSignal, axes *axes, locations *locationIndex) (SignalData, error) {
	var d SignalData
	d.Total = b.cellColumns(raw.totals, axes, locations)
	for i := range d.Total.Src {
		d.Sum.Observations = aggregate.AddSat(d.Sum.Observations, d.Total.Observations[i])
		d.Sum.Untouched = aggregate.AddSat(d.Sum.Untouched, d.Total.Untouched[i])
		d.Sum.Trimmed = aggregate.AddSat(d.Sum.Trimmed, d.Total.Trimmed[i])
		d.Sum.Heavy = aggregate.AddSat(d.Sum.Heavy, d.Total.Heavy[i])
	}
	n := len(raw.locations)
	d.Locations = LocationColumns{
		Window: make([]int, 0, n), Location: make([]int, 0, n),
		Observations: make([]uint64, 0, n), Heavy: make([]uint64, 0, n),
	}
	l := &d.Locations
	for _, row := range raw.locations {
		w, err := b.windowIndex(row.Start)
		if err != nil {
			return d, err
		}
		l.Window = append(l.Window, w)
		l.Location = append(l.Location, locations.index(row.Location))
		l.Observations = append(l.Observations, row.Observations)
		l.Heavy = append(l.Heavy, row.Heavy)
	}
	return d, nil
}

// cellColumns converts rows to columns. Numbers that do not depend on the level come from the
// first level; the modes of the others are joined by key, since a live store may have received
// rows between two reads.
func (b *builder) cellColumns(levels [][]aggregate.CellStats, axes *axes, locations *locationIndex) Cells {
	c := newCells(len(levels[0]))
	for i := range levels[0] {
		row := &levels[0][i]
		c.Src = append(c.Src, axes.index[row.Src])
		c.Dst = append(c.Dst, axes.index[row.Dst])
		c.Kind = append(c.Kind, int(row.Kind))
		c.State = append(c.State, int(row.State))
		c.Observations = append(c.Observations, row.Observations)
		c.Samples = append(c.Samples, row.Samples)
		c.Mean = append(c.Mean, row.MeanValue())
		c.Min = append(c.Min, row.MinValue())
		c.Max = append(c.Max, row.MaxValue())
		c.Untouched = append(c.Untouched, row.Untouched)
		c.Trimmed = append(c.Trimmed, row.Trimmed)
		c.Heavy = append(c.Heavy, row.Heavy)
	}
	for i, level := range b.options.Levels {
		c.Modes[level.String()] = modeColumns(levels[0], levels[i], locations)
	}
	return c
}

// newCells has room for n rows, and columns that are empty rather than null in JSON.
func newCells(n int) Cells {
	return Cells{
		Src: make([]int, 0, n), Dst: make([]int, 0, n), Kind: make([]int, 0, n),
		State: make([]int, 0, n), Observations: make([]uint64, 0, n), Samples: make([]uint64, 0, n),
		Mean: make(Values, 0, n), Min: make(Values, 0, n), Max: make(Values, 0, n),
		Untouched: make([]uint64, 0, n), Trimmed: make([]uint64, 0, n), Heavy: make([]uint64, 0, n),
		Modes: map[string]*ModeColumns{},
	}
}

func modeColumns(base, rows []aggregate.CellStats, locations *locationIndex) *ModeColumns {
	n := len(base)
	m := &ModeColumns{
		Mode: make([]int, 0, n), ModeCount: make([]uint64, 0, n), ModeEvidence: make([]int, 0, n),
		RunnerUp: make([]int, 0, n), RunnerUpCount: make([]uint64, 0, n), RunnerUpEvidence: make([]int, 0, n),
	}
	at := 0 // index into rows, which are in the same order
	for i := range base {
		for at < len(rows) && aggregate.CompareCells(rows[at], base[i]) < 0 {
			at++
		}
		row := &aggregate.CellStats{}
		if at < len(rows) && rows[at].Src == base[i].Src && rows[at].Dst == base[i].Dst {
			row = &rows[at]
		}
		m.Mode = append(m.Mode, locations.index(row.Mode))
		m.ModeCount = append(m.ModeCount, row.ModeCount)
		m.ModeEvidence = append(m.ModeEvidence, int(row.ModeEvidence))
		m.RunnerUp = append(m.RunnerUp, locations.index(row.RunnerUp))
		m.RunnerUpCount = append(m.RunnerUpCount, row.RunnerUpCount)
		m.RunnerUpEvidence = append(m.RunnerUpEvidence, int(row.RunnerUpEvidence))
	}
	return m
}

// windowIndex refuses rows off the grid: they would be drawn at a wrong time.
func (b *builder) windowIndex(start int64) (int, error) {
	if start < b.plan.from || start >= b.plan.to || (start-b.plan.from)%b.plan.step != 0 {
		return 0, fmt.Errorf("place window %d: not one of the %d windows of %d ns from %d",
			start, b.plan.windows(), b.plan.step, b.plan.from)
	}
	return int((start - b.plan.from) / b.plan.step), nil
}

// visit calls f for every location in the rows.
func (s rawSignal) visit(f func(aggregate.LocationID)) {
	for _, rows := range s.totals {
		for _, row := range rows {
			f(row.Mode)
			f(row.RunnerUp)
		}
	}
	for _, row := range s.locations {
		f(row.Location)
	}
}
