package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"

	"github.com/csigscope/csigscope/decode/csig"
)

// Bounds that Options takes when they are 0.
const (
	DefaultMaxWindows = 1440
	DefaultMaxRows    = 1 << 20
	DefaultMaxGroups  = 512
	DefaultMaxPlaces  = 20_000
)

// Options say what goes into a bundle. The zero value takes every signal over all
// that is stored, at the level location.
type Options struct {
	Fabric   string         // name shown in the header
	Signals  []csig.Signal  // with Named; both empty: all that are stored
	Named    []string       // signals as csig.FindSignal finds them among the stored ones
	Levels   []fabric.Level // empty: fabric.LevelLocation
	From, To time.Time      // zero: all that is stored; widened to whole windows
	Step     time.Duration  // 0: chosen so that a range has about 120 windows

	MaxWindows int // of one bundle, 0: DefaultMaxWindows
	MaxRows    int // of all signals together, 0: DefaultMaxRows
	MaxGroups  int // of the axes, 0: DefaultMaxGroups; groups that have data are never left out

	MaxPlaces int // locations that nothing names are left out beyond this; 0: DefaultMaxPlaces

	TotalsOnly bool // without the cells of each window, which frames give
	// Src and Dst choose the cells of frames; nil is all.
	Src, Dst *aggregate.GroupID

	Now time.Time // stated as generated_at; zero: the current time
}

func (o Options) withDefaults() Options {
	o.MaxWindows = cmp.Or(o.MaxWindows, DefaultMaxWindows)
	o.MaxRows = cmp.Or(o.MaxRows, DefaultMaxRows)
	o.MaxGroups = cmp.Or(o.MaxGroups, DefaultMaxGroups)
	o.MaxPlaces = cmp.Or(o.MaxPlaces, DefaultMaxPlaces)
	if len(o.Levels) == 0 {
		o.Levels = []fabric.Level{fabric.LevelLocation}
	}
	o.Levels = slices.Compact(slices.Sorted(slices.Values(o.Levels)))
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	return o
}

// Build reads a bundle. Errors wrap ErrInvalid, ErrTooLarge or ErrNoData where the
// request is at fault, and the reader's errors otherwise. The bundle is the
// caller's.
func Build(ctx context.Context, r Reader, o Options) (*Bundle, error) {
	o = o.withDefaults()
	extent, err := r.Extent(ctx)
	if err != nil {
		return nil, fmt.Errorf("read extent: %w", err)
	}
	if err := o.findSignals(extent); err != nil {
		return nil, err
	}
	p, err := newPlan(o, extent)
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
	axes := newAxes(groups, raw, o.MaxGroups)
	places := newPlaces(locations, raw, o.MaxPlaces)
	for i := range places.list {
		places.list[i].Peer = peers[places.list[i].Name]
	}
	return b.assemble(extent, raw, axes, places)
}

// findSignals adds the signals that are asked for by name to the others.
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

// rawSignal is what a reader answered for one signal; cells and totals are by
// level, sorted by window, source and destination.
type rawSignal struct {
	signal    csig.Signal
	cells     [][]CellRow
	totals    [][]CellRow
	locations []LocationCount
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
		slices.SortFunc(raw.locations, func(a, b LocationCount) int {
			return cmp.Or(cmp.Compare(a.Window, b.Window), cmp.Compare(a.Location, b.Location))
		})
		out = append(out, raw)
	}
	return out, nil
}

func (b *builder) readLevel(ctx context.Context, q Question, raw *rawSignal) error {
	var windows []CellRow
	if !b.options.TotalsOnly {
		var err error
		if windows, err = b.reader.CellWindows(ctx, q); err != nil {
			return fmt.Errorf("read cells per window: %w", err)
		}
	}
	total, err := b.reader.Cells(ctx, q)
	if err != nil {
		return fmt.Errorf("read cells: %w", err)
	}
	if err := b.count(len(windows) + len(total)); err != nil {
		return err
	}
	slices.SortFunc(windows, compareCells)
	slices.SortFunc(total, compareCells)
	raw.cells = append(raw.cells, windows)
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

func (b *builder) assemble(e Extent, raw []rawSignal, axes *axes, places *places) (*Bundle, error) {
	out := &Bundle{
		Version: Version, GeneratedAt: b.options.Now.UTC(), Fabric: b.options.Fabric,
		ResolutionNS: b.plan.resolution, StepNS: b.plan.step,
		HeavyOnly:       b.plan.resolution > 0 && time.Duration(b.plan.resolution) < heavyOnlyBelow,
		TotalsOnly:      b.options.TotalsOnly,
		MinObservations: aggregate.MinObservations,
		Groups:          axes.groups, Locations: places.list,
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
		d, err := b.signalData(s, axes, places)
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
		out[i] = SignalInfo{Name: names[i], Unit: s.Unit().String(), Direction: "min"}
		if s.Direction() == csig.Max {
			out[i].Direction = "max"
		}
		if s.HasValue() {
			out[i].Aggregation = s.Aggregation().String()
		}
	}
	return out
}
