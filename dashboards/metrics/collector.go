package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Type is what kind of number a metric is, as the exposition names it.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Family is all that is exported under one name.
type Family struct {
	Name   string
	Type   Type
	Labels []string
	Help   string
}

// A family is a Family that can be exported.
type family struct {
	Family
	desc *prometheus.Desc
}

// Collector exports what a snapshot says at each scrape. It is safe for concurrent use
// if its snapshot function is.
type Collector struct {
	families []*family
	read     func(emit)
}

// emit takes one number. Labels are in the order of the family's.
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

// Families are what the collector exports.
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

// Collect implements prometheus.Collector. Of two numbers with the same name and labels
// the first one counts: a repetition would fail the whole scrape.
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

// maxLabel bounds the bytes of a label's value: some come from other machines.
const maxLabel = 128

// label makes a value fit for the exposition.
func label(s string) string {
	if len(s) > maxLabel {
		s = s[:maxLabel]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// seconds turns nanoseconds into the base unit.
func seconds(ns int64) float64 { return float64(ns) / 1e9 }

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
