package metrics

import (
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csigscope/csigscope/aggregate"
)

// Type is a metric type as named in the exposition.
type Type string

// Metric types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Family describes the metrics exported under one name.
type Family struct {
	Name   string
	Type   Type
	Labels []string
	Help   string
}

// family is a Family that can be exported.
type family struct {
	Family
	desc *prometheus.Desc
}

// Collector exports a snapshot at each scrape. It is safe for concurrent use if its snapshot
// function is.
type Collector struct {
	families []*family
	read     func(emit)
}

// emit exports one number. Labels have the order of the family's labels.
type emit func(f *family, v float64, labels ...string)

func (c *Collector) counter(name, help string, labels ...string) *family {
	return c.add(Counter, name, help, labels)
}

func (c *Collector) gauge(name, help string, labels ...string) *family {
	return c.add(Gauge, name, help, labels)
}

func (c *Collector) add(t Type, name, help string, labels []string) *family {
	f := &family{Family{Name: "csigscope_" + name, Type: t, Labels: labels, Help: help}, nil}
	f.desc = prometheus.NewDesc(f.Name, help, labels, nil)
	c.families = append(c.families, f)
	return f
}

// snapshots is a Collector of a snapshot of type T, whose families export numbers of it.
type snapshots[T any] struct {
	*Collector
	each []func(emit, *T)
}

// of returns a collector without families.
func of[T any](read func() T) *snapshots[T] {
	c := &snapshots[T]{Collector: new(Collector)}
	c.read = func(to emit) {
		s := read()
		for _, export := range c.each {
			export(to, &s)
		}
	}
	return c
}

// counter exports one number.
func (c *snapshots[T]) counter(name, help string, value func(*T) float64) {
	c.number(c.Collector.counter(name, help), value)
}

// gauge exports one number. It is absent while it is NaN.
func (c *snapshots[T]) gauge(name, help string, value func(*T) float64) {
	c.number(c.Collector.gauge(name, help), value)
}

func (c *snapshots[T]) number(f *family, value func(*T) float64) {
	c.each = append(c.each, func(to emit, s *T) {
		if v := value(s); !math.IsNaN(v) {
			to(f, v)
		}
	})
}

// counters exports numbers by the value of a label.
func (c *snapshots[T]) counters(name, help, label string, values func(*T) map[string]uint64) {
	f := c.Collector.counter(name, help, label)
	c.each = append(c.each, func(to emit, s *T) {
		for l, n := range values(s) {
			to(f, float64(n), l)
		}
	})
}

// named returns counts by their names.
func named[K ~int | ~uint8](counts []uint64, name func(K) string) map[string]uint64 {
	by := make(map[string]uint64, len(counts)+1)
	for i, n := range counts {
		by[name(K(i))] = n
	}
	return by
}

// with adds a count.
func with(by map[string]uint64, name string, n uint64) map[string]uint64 {
	by[name] = n
	return by
}

// stamp returns Unix seconds, NaN for the zero time.
func stamp(t time.Time) float64 {
	if t.IsZero() {
		return math.NaN()
	}
	return seconds(t.UnixNano())
}

// Families returns the exported families.
func (c *Collector) Families() []Family {
	list := make([]Family, len(c.families))
	for i, f := range c.families {
		list[i] = f.Family
	}
	return list
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range c.families {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector. Of several numbers with the same name and labels, it
// exports the first one, since a duplicate would fail the whole scrape.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	seen := make(map[string]bool)
	c.read(func(f *family, v float64, labels ...string) {
		for i, l := range labels {
			labels[i] = label(l)
		}
		key := f.Name + "\x00" + strings.Join(labels, "\x00")
		if seen[key] {
			return
		}
		seen[key] = true
		kind := prometheus.GaugeValue
		if f.Type == Counter {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(f.desc, kind, v, labels...)
	})
}

// maxLabel is the maximum length of a label value in bytes, since some come from other machines.
const maxLabel = 128

// label makes a value valid for the exposition.
func label(s string) string {
	if len(s) > maxLabel {
		s = s[:maxLabel]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// seconds converts nanoseconds to the base unit.
func seconds(ns int64) float64 { return float64(ns) / 1e9 }

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// MaxProducers bounds the values of the labels tap, producer and exporter. The first ones keep
// labels of their own; the others share Other.
const MaxProducers = 256

// Other is the label of everything beyond a bound.
const Other = "other"

// first assigns labels to the first names, permanently, so that a counter labeled Other never
// decreases because a name left it. It is safe for concurrent use.
type first struct {
	mu    sync.Mutex
	named map[string]bool
}

// name returns the label of a name.
func (f *first) name(s string) string {
	s = label(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.named == nil {
		f.named = make(map[string]bool)
	}
	if !f.named[s] {
		if len(f.named) >= MaxProducers {
			return Other
		}
		f.named[s] = true
	}
	return s
}

// sums adds up counters by label, in the order of first appearance.
type sums[T any] struct {
	order []string
	of    map[string]*T
}

// at returns the sum of a label, for updates.
func (s *sums[T]) at(name string) *T {
	if s.of == nil {
		s.of = make(map[string]*T)
	}
	if s.of[name] == nil {
		s.of[name] = new(T)
		s.order = append(s.order, name)
	}
	return s.of[name]
}

// described is implemented by every collector of this package.
type described interface{ Families() []Family }

// All returns the families of every collector, in the order of the pipeline. Which of them a
// process exports depends on its tasks.
func All() []Family {
	var all []Family
	for _, c := range []described{
		NewBuild("", ""), NewTaps(nil), NewMirrors(nil), NewDecode(nil), NewAggregate(nil), NewProducers(nil, nil),
		NewBottlenecks(nil, 0, func(aggregate.LocationID) string { return "" }, nil), NewFabric(nil), NewLive(nil), NewWindows(nil),
		NewIngest(nil), NewPeers(nil), NewSpool(nil), NewStore(nil), NewLatency(nil), NewTrim(nil), NewEngine(nil), NewAPI(nil), NewHTTP(),
	} {
		all = append(all, c.Families()...)
	}
	return all
}

// Unit returns the unit of a family's numbers by its name: seconds, bytes, ratio, or "" for counts.
func (f *Family) Unit() string {
	name := strings.TrimSuffix(f.Name, "_total")
	for _, unit := range []string{"seconds", "bytes", "ratio"} {
		if strings.HasSuffix(name, "_"+unit) {
			return unit
		}
	}
	return ""
}

// WriteReference writes all families as a table.
func WriteReference(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n")
	for _, f := range All() {
		labels := ""
		if len(f.Labels) > 0 {
			labels = "`" + strings.Join(f.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Type, f.Unit(), labels, f.Help)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
