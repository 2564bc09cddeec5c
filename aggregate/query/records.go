package query

import (
	"context"
	"net/netip"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Records answers questions about what is no cell.
type Records interface {
	// Flows has the first Limit flows by heavy observations, the most first.
	Flows(context.Context, FlowQuestion) ([]FlowRow, error)
	// Findings has the first Limit findings, the most severe and latest first.
	Findings(context.Context, FindingQuestion) ([]FindingRow, error)
	// Missing are the parts of a range that windows of at least one producer are known to be
	// missing of, ascending and apart.
	Missing(ctx context.Context, from, to time.Time) ([]Span, error)
}

// Span is a time range; To is exclusive.
type Span struct{ From, To time.Time }

// FlowQuestion chooses flows of one signal, of windows of 1 s or 1 min that start in
// [From, To).
type FlowQuestion struct {
	Signal               csig.Signal
	From, To             time.Time
	Resolution           time.Duration
	SrcGroups, DstGroups []aggregate.GroupID // any of them; empty: all
	Src, Dst             netip.Prefix        // that addresses are in; zero: all
	Kind                 decode.Kind         // 0: both
	MinHeavy             uint64
	Limit                int
}

// FlowRow is a flow over a range, or what all flows that no window names come to in one
// cell: without addresses then. Values are in the signal's unit, NaN without any.
type FlowRow struct {
	Src, Dst            netip.Addr
	SrcPort, DstPort    uint16
	Proto               uint8
	SrcGroup, DstGroup  aggregate.GroupID
	Kind                decode.Kind
	Observations, Bytes uint64
	Mean, Min, Max      float64
	Heavy               uint64
	Windows             uint64               // that name it
	Location            aggregate.LocationID // that most heavy observations name
	LocationHeavy       uint64
}

// FindingQuestion chooses findings with something in [From, To).
type FindingQuestion struct {
	From, To                   time.Time
	Kinds, Severities, Devices []string // any of them; empty: all
	Locations                  []aggregate.LocationID
	Limit                      int
}

// FindingRow is something that broke the protocol or the configuration.
type FindingRow struct {
	Kind         string
	ID           uint64 // what it is about
	Severity     string // info, warning or error
	First, Last  time.Time
	Count        uint64
	Device, Port string
	Location     aggregate.LocationID // NoLocation for none
	Evidence     string
	Packets      []uint64 // numbers in the capture
}
