package alto

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// The cost modes (RFC 7285, section 6.1.2): the costs themselves, or only their order.
const (
	numerical = "numerical"
	ordinal   = "ordinal"
)

var modes = []string{numerical, ordinal}

// kind is a cost metric in one of the modes.
type kind struct {
	metric
	mode string
}

// kinds returns all served kinds.
func kinds() (all []kind) {
	for _, mode := range modes {
		for _, m := range metrics {
			all = append(all, kind{m, mode})
		}
	}
	return all
}

// resource is the kind in names of resources, which have no colon in paths.
func (k kind) resource() string {
	return k.mode[:3] + "-" + strings.ReplaceAll(strings.TrimPrefix(k.name, "priv:"), ":", "-")
}

// costType is the kind's cost type in answers; the directory adds a description.
func (k kind) costType() costType {
	t := costType{Mode: k.mode, Metric: k.name}
	if k.name != "routingcost" {
		t.Context = &costContext{"estimation"}
	}
	return t
}

// describe describes the kind for people.
func (k kind) describe() string {
	if k.mode == numerical {
		return k.description
	}
	most := "least"
	if k.room {
		most = "most"
	}
	return fmt.Sprintf("rank by %s; 1 is the %s, equal costs have the same rank", k.description, most)
}

// costsOf returns the latest costs in the kind's mode, and the coverage behind them.
func (s *server) costsOf(k kind) (map[pair]float64, *table.Coverage) {
	c := s.latest(k.metric)
	if k.mode == ordinal {
		return c.ranks(), c.coverage
	}
	return c.of, c.coverage
}

// rank returns the rank of each pair's cost in the whole map, from 1 for the most preferred.
// Equal costs share a rank, and no rank is skipped.
func rank(of map[pair]float64, room bool) map[pair]float64 {
	order := make([]float64, 0, len(of))
	for _, cost := range of {
		order = append(order, cost)
	}
	slices.Sort(order)
	order = slices.Compact(order)
	ranks := make(map[pair]float64, len(of))
	for p, cost := range of {
		at, _ := slices.BinarySearchFunc(order, cost, cmp.Compare[float64])
		if room {
			at = len(order) - 1 - at
		}
		ranks[p] = float64(at + 1)
	}
	return ranks
}

// costType is RFC 7285, section 10.7, with the context of RFC 9439.
type costType struct {
	Mode        string       `json:"cost-mode"`
	Metric      string       `json:"cost-metric"`
	Context     *costContext `json:"cost-context,omitempty"`
	Description string       `json:"description,omitempty"`
}

// costContext is the source of a cost (RFC 9439).
type costContext struct {
	Source string `json:"cost-source"`
}

// metric is a cost metric, and how to compute it from observations.
type metric struct {
	name        string // of RFC 7285, RFC 9439, or private use
	description string
	signal      csig.Signal
	least       bool // the minimum of the windows, instead of the mean
	room        bool // more is better
}

// metrics are the served metrics. Those without a name in ALTO are for private use: the closest
// ALTO metric to the largest delay of a hop is delay-ow, the delay of the whole path, of which it
// is a lower bound.
var metrics = []metric{
	{"routingcost", "load of the limiting hop in percent: 100 less the share that is available", csig.MinABWRatio, false, false},
	{"bw-available", "mean available bandwidth of the limiting hop, byte/s", csig.MinABW, false, true},
	{"bw-available:min", "least available bandwidth of the limiting hop, byte/s", csig.MinABW, true, true},
	{"priv:csig-max-hop-delay", "mean of the largest delay at a hop, microseconds: at most delay-ow", csig.MaxDelay, false, false},
}

// cost is the cost of a cell; NaN if too little was measured, or no threshold applies: such a
// cell must not affect any weight.
func (m metric) cost(c *aggregate.CellStats) float64 {
	if c.Measured == 0 || c.State == aggregate.TooFew || c.State == aggregate.NotJudged {
		return math.NaN()
	}
	v := c.Mean() * c.Signal.Unit().PerStored()
	if m.least {
		v = c.Signal.Unit().FromStored(c.Min)
	}
	const hundredth, nsPerMicrosecond, bitsPerByte = 100, 1000, 8
	switch m.signal {
	case csig.MinABWRatio:
		return math.Round((1-v)*100*hundredth) / hundredth
	case csig.MaxDelay:
		return math.Round(v/nsPerMicrosecond*hundredth) / hundredth
	}
	return math.Round(v / bitsPerByte) // RFC 9439, section 5.3.2
}

// pair is a source and a destination.
type pair struct{ src, dst aggregate.GroupID }

// costs are the costs of one metric at one revision. They never change.
type costs struct {
	epoch, revision uint64
	coverage        *table.Coverage
	of              map[pair]float64
	ranks           func() map[pair]float64 // ranks in place of costs, see rank
}

// latest returns the costs of the last windows, computed once per revision.
func (s *server) latest(m metric) *costs {
	state := s.Memory.State()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.costs[m]; c != nil && c.epoch == state.Epoch && c.revision == state.Revision {
		return c
	}
	c := &costs{epoch: state.Epoch, revision: state.Revision, coverage: state.Coverage, of: make(map[pair]float64)}
	c.ranks = sync.OnceValue(func() map[pair]float64 { return rank(c.of, m.room) })
	if windows := state.Last(MaxWindows); len(windows) > 0 {
		cells := table.Merge(windows).Without(state.Old(windows)).Cells(m.signal, nil)
		for i := range cells {
			if v := m.cost(&cells[i]); !math.IsNaN(v) && !math.IsInf(v, 0) {
				c.of[pair{cells[i].Src, cells[i].Dst}] = v
			}
		}
	}
	s.costs[m] = c
	return c
}

// costMapData are costs by the PIDs of source and destination.
type costMapData map[string]map[string]float64

func (d costMapData) put(src, dst string, cost float64) {
	if d[src] == nil {
		d[src] = make(map[string]float64)
	}
	d[src][dst] = cost
}

// dated is a document of costs with their freshness, which is a member of its meta but does not
// count for the document's tag.
type dated struct {
	document, meta map[string]any
	freshness      freshness
}

// whole returns the document with its freshness.
func (d *dated) whole() any {
	d.meta["csigscope"] = d.freshness
	return d.document
}

// freshness is the age of costs, and the number of producers behind them.
type freshness struct {
	AsOf     time.Time `json:"as_of"`
	Age      *float64  `json:"age_s,omitempty"` // of the newest rows; nil before the first
	Expected int       `json:"expected_producers"`
	Present  int       `json:"present_producers"`
}

func (s *server) freshness(c *table.Coverage) freshness {
	f := freshness{AsOf: s.Now().UTC(), Expected: c.Expected, Present: c.Present()}
	if !c.Newest.IsZero() {
		age := f.AsOf.Sub(c.Newest).Seconds()
		f.Age = &age
	}
	return f
}

func (s *server) costAnswer(n *network, k kind, costs costMapData, c *table.Coverage) any {
	meta := map[string]any{"dependent-vtags": []versionTag{n.tag}, "cost-type": k.costType()}
	return &dated{map[string]any{"meta": meta, "cost-map": costs}, meta, s.freshness(c)}
}

// costMap is RFC 7285, section 11.2.3, of the sources, destinations and costs of a filter.
func (s *server) costMap(ctx context.Context, k kind, srcs, dsts set, limits []constraint) (any, error) {
	n, err := s.network(ctx)
	if err != nil {
		return nil, err
	}
	out := costMapData{}
	costs, from := s.costsOf(k)
	for p, cost := range costs {
		src, ok1 := n.pid(p.src)
		dst, ok2 := n.pid(p.dst)
		if ok1 && ok2 && srcs.takes(src) && dsts.takes(dst) && met(limits, cost) {
			out.put(src, dst, cost)
		}
	}
	return s.costAnswer(n, k, out, from), nil
}

// wanted are the common fields of requests for costs.
type wanted struct {
	CostType *struct {
		Mode   *string `json:"cost-mode"`
		Metric *string `json:"cost-metric"`
	} `json:"cost-type"`
	Constraints []string `json:"constraints"`
}

// check resolves the requested kind and the constraints.
func (w *wanted) check() (k kind, limits []constraint, err error) {
	switch {
	case w.CostType == nil:
		return k, nil, missing("cost-type")
	case w.CostType.Mode == nil:
		return k, nil, missing("cost-type/cost-mode")
	case w.CostType.Metric == nil:
		return k, nil, missing("cost-type/cost-metric")
	case !slices.Contains(modes, *w.CostType.Mode):
		return k, nil, invalid("cost-type/cost-mode", *w.CostType.Mode)
	}
	at := slices.IndexFunc(metrics, func(m metric) bool { return m.name == *w.CostType.Metric })
	if at < 0 {
		return k, nil, invalid("cost-type/cost-metric", *w.CostType.Metric)
	}
	for _, text := range w.Constraints {
		c, ok := parseConstraint(text)
		if !ok {
			return k, nil, invalid("constraints", text)
		}
		limits = append(limits, c)
	}
	return kind{metrics[at], *w.CostType.Mode}, limits, nil
}

// constraint is a condition on served costs, such as "ge 10" (RFC 7285, section 11.3.2.3): in
// ordinal mode on ranks.
type constraint struct {
	op    string
	value float64
}

func parseConstraint(text string) (c constraint, ok bool) {
	op, rest, ok := strings.Cut(strings.TrimSpace(text), " ")
	v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
	if !ok || err != nil || math.IsNaN(v) || !slices.Contains([]string{"gt", "lt", "ge", "le", "eq"}, op) {
		return c, false
	}
	return constraint{op, v}, true
}

// met reports whether a cost meets all constraints.
func met(limits []constraint, cost float64) bool {
	for _, c := range limits {
		good := false
		switch c.op {
		case "gt":
			good = cost > c.value
		case "lt":
			good = cost < c.value
		case "ge":
			good = cost >= c.value
		case "le":
			good = cost <= c.value
		case "eq":
			good = cost == c.value
		}
		if !good {
			return false
		}
	}
	return true
}

// filteredCostMap is RFC 7285, section 11.3.2.
func (s *server) filteredCostMap(r *http.Request) (any, error) {
	var in struct {
		wanted
		PIDs *struct {
			Src *[]string `json:"srcs"`
			Dst *[]string `json:"dsts"`
		} `json:"pids"`
	}
	if err := read(r, typeCostMapFilter, &in); err != nil {
		return nil, err
	}
	k, limits, err := in.check()
	if err != nil {
		return nil, err
	}
	src, dst := set{}, set{}
	if in.PIDs != nil {
		if in.PIDs.Src == nil {
			return nil, missing("pids/srcs")
		}
		if in.PIDs.Dst == nil {
			return nil, missing("pids/dsts")
		}
		src, dst = newSet(*in.PIDs.Src), newSet(*in.PIDs.Dst)
	}
	return s.costMap(r.Context(), k, src, dst, limits)
}

// set is a set of names; an empty one stands for all.
type set map[string]bool

func newSet(list []string) set {
	s := set{}
	for _, name := range list {
		s[name] = true
	}
	return s
}

func (s set) takes(name string) bool { return len(s) == 0 || s[name] }
