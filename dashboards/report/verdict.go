package report

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
)

// Verdict says in words where the fabric is congested, like csigscope query verdict.
type Verdict struct {
	Kind       string      `json:"kind"`
	Text       string      `json:"text"`
	Notes      []string    `json:"notes"`
	Statements []Statement `json:"statements"`         // most heavy observations first
	LeftOut    int         `json:"left_out,omitempty"` // places without a statement here

	calm int // those of LeftOut that were not congested
}

// Statement describes one location that limits cells.
type Statement struct {
	Text      string     `json:"text"`
	Place     string     `json:"place"`
	Kind      string     `json:"kind"`
	State     string     `json:"state"` // at the end of the captures
	First     *time.Time `json:"first"` // start of the first and end of the last congested window, else of heavy ones; null if unknown
	Last      *time.Time `json:"last"`
	Heavy     uint64     `json:"heavy"` // observations over all signals
	Share     float64    `json:"share"` // share of all heavy observations
	Locations []string   `json:"locations"`
	Cells     int        `json:"cells"`
	Worst     []Worst    `json:"worst"` // by signal, most heavy observations first
}

// Worst is the tightest value of a signal at a location.
type Worst struct {
	Signal string `json:"signal"`
	Heavy  uint64 `json:"heavy"`
	Text   string `json:"text"`
}

// maxStatements bounds the statements of a document.
const maxStatements = 10

// VerdictInput holds the inputs of a verdict beside the data.
type VerdictInput struct {
	Names      Names
	Groups     []fabric.Group
	Fabric     *fabric.Fabric // nil without a fabric file
	Thresholds aggregate.Thresholds
}

// Judge returns the verdict on captures. Coverage.SetTaps must be called before.
func Judge(ctx context.Context, data Data, g *VerdictInput, c *Coverage) (*Verdict, error) {
	span := data.Span()
	levels := make(map[aggregate.GroupID]fabric.Group, len(g.Groups))
	for _, one := range g.Groups {
		levels[one.ID] = one
	}
	ground := &query.VerdictInput{
		From: time.Unix(0, span.First), To: time.Unix(0, span.Last).Add(span.Step), Fabric: g.Fabric, Coverage: c.producers(),
		Location: func(id aggregate.LocationID) *fabric.Location {
			l := location(g.Names, id)
			return &l
		},
		Group: func(id aggregate.GroupID) fabric.Group { return levels[id] },
	}
	signals, err := data.Signals(ctx)
	if err != nil {
		return nil, fmt.Errorf("judge captures: %w", err)
	}
	// Times are aligned to windows.
	if ground.From, ground.To = windowsOf(ground.From, ground.To, span.Window); len(signals) == 0 {
		ground.From, ground.To = time.Time{}, time.Time{}
	}
	for _, s := range signals {
		rows := query.SignalRows{Signal: s, Recent: &query.Recent{Thresholds: g.Thresholds, Length: int64(span.Window), End: ground.To.UnixNano()}}
		if rows.Cells, err = data.Cells(ctx, s); err == nil {
			rows.Locations, err = data.CellLocations(ctx, s)
		}
		if err == nil {
			rows.Recent.Windows, err = data.LocationWindows(ctx, s)
		}
		if err != nil {
			return nil, fmt.Errorf("judge captures by %s: %w", s, err)
		}
		ground.Signals = append(ground.Signals, rows)
	}
	v := query.NewFabricVerdict(ground)
	if rejected := c.rejected(); v.Kind == query.VerdictNoData && len(rejected) > 0 {
		v.Text = "Observations were made, but none enters a heatmap: " + counted(rejected) + "."
	}
	return verdictOf(v), nil
}

// windowsOf widens a range to whole windows.
func windowsOf(from, to time.Time, window time.Duration) (time.Time, time.Time) {
	if window <= 0 || !from.Before(to) {
		return from, to
	}
	first, last := from.UnixNano()/int64(window), (to.UnixNano()-1)/int64(window)
	return time.Unix(0, first*int64(window)), time.Unix(0, (last+1)*int64(window))
}

func verdictOf(v *query.FabricVerdict) *Verdict {
	out := &Verdict{Kind: v.Kind.String(), Text: v.Text, Notes: v.Notes, Statements: []Statement{}}
	shown := v.Statements[:min(len(v.Statements), maxStatements)]
	out.LeftOut, out.calm = len(v.Statements)-len(shown)+v.Rest.Places, v.Rest.Places
	for i := range shown {
		s := &shown[i]
		one := Statement{
			Text: s.Text, Place: s.Place, Kind: s.Kind.String(), State: s.State.String(),
			Heavy: s.Heavy, Share: s.Share, Cells: len(s.Cells),
		}
		if s.Last > 0 { // else neither is known
			first, last := time.Unix(0, s.First).UTC(), time.Unix(0, s.Last).UTC()
			one.First, one.Last = &first, &last
		}
		for _, l := range s.Locations[:min(len(s.Locations), maxLocations)] {
			one.Locations = append(one.Locations, l.Name)
		}
		for n := range s.Signals {
			one.Worst = append(one.Worst, Worst{s.Signals[n].Signal.String(), s.Signals[n].Heavy, s.Signals[n].WorstText()})
		}
		out.Statements = append(out.Statements, one)
	}
	return out
}

// producers returns the taps' coverage; silent taps include those with too little data to judge by.
func (c *Coverage) producers() query.Producers {
	p := query.Producers{Expected: len(c.Taps) + len(c.Silent), Covered: 1, Silent: append([]string{}, c.Silent...)}
	for i := range c.Taps {
		if t := &c.Taps[i]; t.Note != "" {
			p.Silent = append(p.Silent, t.Name+" ("+t.Note+")")
		}
	}
	p.Present = p.Expected - len(p.Silent)
	return p
}

// Rest says how many places are left out; it is empty if there are none.
func (v *Verdict) Rest() string {
	var parts []string
	if n := v.LeftOut - v.calm; n > 0 {
		parts = append(parts, morePlaces(n)+" had fewer heavy observations.")
	}
	if v.calm > 0 {
		parts = append(parts, morePlaces(v.calm)+" had heavy observations, but too few to count as congested; cells behind them may still have been congested.")
	}
	return strings.Join(parts, " ")
}

func morePlaces(n int) string {
	if n == 1 {
		return "1 more place"
	}
	return fmt.Sprintf("%d more places", n)
}

// Detail returns the tightest value of each signal in words.
func (s *Statement) Detail() string {
	var parts []string
	for _, w := range s.Worst {
		if w.Text != "" {
			parts = append(parts, w.Signal+" "+w.Text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "Tightest values: " + strings.Join(parts, ", ") + "."
}
