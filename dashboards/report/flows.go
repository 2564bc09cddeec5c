package report

import (
	"net/netip"
	"strconv"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
)

// maxFlows is the maximum number of flows listed per signal.
const maxFlows = 20

// Flows lists the most affected flows, worst first, and sums up all others.
type Flows struct {
	Top    []Flow `json:"top"`
	Others Others `json:"others"`
}

// Flow is one affected flow.
type Flow struct {
	Src           string  `json:"src"` // address, and port if it has one
	Dst           string  `json:"dst"`
	Proto         uint8   `json:"proto"`
	SrcGroup      string  `json:"src_group"`
	DstGroup      string  `json:"dst_group"`
	Kind          string  `json:"kind"`
	Heavy         uint64  `json:"heavy"`
	HeavyShare    float64 `json:"heavy_share"` // share of the signal's heavy observations
	HeavyBytes    uint64  `json:"heavy_bytes"`
	HeavyMean     string  `json:"heavy_mean"`
	Location      string  `json:"location,omitempty"` // named by most of its heavy observations
	LocationShare float64 `json:"location_share,omitempty"`
}

// Others sums up the heavy observations of all flows that are not listed.
type Others struct {
	Heavy      uint64  `json:"heavy"`
	HeavyShare float64 `json:"heavy_share"`
}

// flows lists the flows with the kind of observation (tags or reflections) that their cell consists
// of. The cells' remaining heavy observations count as others.
func (b *builder) flows(list []FlowStats, cells []aggregate.CellStats) Flows {
	var heavy uint64
	chosen := make(map[aggregate.CellID]bool, len(cells))
	for i := range cells {
		heavy += cells[i].Heavy
		chosen[cells[i].ID()] = true
	}
	out := Flows{Top: []Flow{}, Others: Others{Heavy: heavy}}
	for i := range list {
		f := &list[i]
		if len(out.Top) == maxFlows || f.Heavy == 0 {
			break
		}
		if !chosen[f.Cell] || f.Heavy > out.Others.Heavy {
			continue
		}
		out.Others.Heavy -= f.Heavy
		out.Top = append(out.Top, b.flow(f, heavy))
	}
	out.Others.HeavyShare = query.ZeroNaN(float64(out.Others.Heavy) / float64(heavy))
	return out
}

func (b *builder) flow(f *FlowStats, heavy uint64) Flow {
	one := Flow{
		Src: end(f.Src, f.SrcPort), Dst: end(f.Dst, f.DstPort), Proto: f.Proto, Kind: f.Cell.Kind.String(),
		SrcGroup: b.names.GroupName(f.Cell.Src), DstGroup: b.names.GroupName(f.Cell.Dst),
		Heavy: f.Heavy, HeavyShare: float64(f.Heavy) / float64(heavy), HeavyBytes: f.Bytes,
		HeavyMean: b.text(f.Mean / b.signal.Unit().PerStored()),
	}
	if f.LocationHeavy > 0 {
		one.Location, one.LocationShare = b.location(f.Location).Name, float64(f.LocationHeavy)/float64(f.Heavy)
	}
	return one
}

// end returns one endpoint of a flow as text.
func end(address [16]byte, port uint16) string {
	a := netip.AddrFrom16(address).Unmap()
	if port == 0 {
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}

// Transport returns the name of the flow's protocol, or its number.
func (f *Flow) Transport() string {
	switch f.Proto {
	case 6:
		return "TCP"
	case 17:
		return "UDP"
	}
	return strconv.Itoa(int(f.Proto))
}
