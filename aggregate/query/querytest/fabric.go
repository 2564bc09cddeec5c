package querytest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Start is the first window of Fabric.
var Start = time.Date(2026, 1, 20, 9, 0, 0, 0, time.UTC)

const (
	spines    = 4
	portSpeed = 100e9 // bit/s
)

// Fabric makes a leaf-spine fabric with one rack per leaf and four spines, and windows of 1 s of
// a training job's traffic: a ring all-reduce in bursts, an incast on one rack, storage in the
// background, a rack whose tap is silent and one whose tap becomes silent after half of the time.
// The same arguments make the same rows.
func Fabric(racks, windows int) *Memory {
	f := &maker{
		memory: &Memory{Resolution: time.Second}, racks: racks,
		random: rand.New(rand.NewPCG(7, uint64(racks))),
		ports:  map[string]aggregate.LocationID{},
	}
	f.names()
	for w := range windows {
		f.window(w, windows)
	}
	return f.memory
}

type maker struct {
	memory *Memory
	racks  int
	random *rand.Rand
	ports  map[string]aggregate.LocationID
}

// Peers returns the peers in Fabric: every leaf's uplink goes to the spine with its number, and
// every spine's downlink to the leaf.
func (m *Memory) Peers(context.Context) (map[string]string, error) {
	m.calls.Add(1)
	out := map[string]string{}
	for _, l := range m.LocationRows {
		_, port, _ := strings.Cut(l.Name, ":")
		if n, up := strings.CutPrefix(port, "up"); up && l.Kind == "port" {
			out[l.Name] = "spine" + n
		} else if n, down := strings.CutPrefix(port, "down"); down && l.Kind == "port" {
			out[l.Name] = "leaf" + n
		}
	}
	return out, nil
}

// rackID and the location ids are above 2^53, as hashes of names are.
func rackID(i int) aggregate.GroupID { return aggregate.GroupID(1<<60 + i) }

func (f *maker) names() {
	for i := range f.racks {
		f.memory.GroupRows = append(f.memory.GroupRows, fabric.Group{
			ID: rackID(i), Name: fmt.Sprintf("rack%d", i+1), Level: "rack", Parent: "pod1", Order: i + 1,
		})
	}
	f.memory.GroupRows = append(f.memory.GroupRows,
		fabric.Group{ID: 2 << 60, Name: "pod1", Level: "pod"},
		fabric.Group{ID: aggregate.UnknownGroup, Name: "unknown"})
	for i := range f.racks {
		f.device("leaf", i+1, "up", spines)
	}
	for i := range spines {
		f.device("spine", i+1, "down", f.racks)
	}
}

// device adds a device, its ports, the set of them and its stage.
func (f *maker) device(stage string, n int, orientation string, ports int) {
	name := fmt.Sprintf("%s%d", stage, n)
	add := func(text, kind, device string) *fabric.Location {
		id, known := f.ports[text]
		if !known {
			id = aggregate.LocationID(3<<60 + len(f.ports) + 2)
			f.ports[text] = id
			f.memory.LocationRows = append(f.memory.LocationRows, fabric.Location{
				ID: id, Name: text, Kind: kind, Device: device, Stage: stage, Orientation: orientation,
				Capacity: portSpeed / 1000, Set: id, DeviceLoc: id, StageLoc: id, FarEnd: id,
			})
		}
		for i := range f.memory.LocationRows {
			if f.memory.LocationRows[i].ID == id {
				return &f.memory.LocationRows[i]
			}
		}
		return nil
	}
	stageID := add(stage, "set", "").ID
	deviceID := add(name, "set", name).ID
	set := add(orientation+"links of "+name, "set", name)
	setID := set.ID
	set.DeviceLoc, set.StageLoc, set.CandidateCount = deviceID, stageID, ports
	for i := range ports {
		port := fmt.Sprintf("%s:%s%d", name, orientation, i+1)
		set.Candidates = append(set.Candidates, port)
	}
	for _, port := range set.Candidates {
		p := add(port, "port", name)
		p.Set, p.DeviceLoc, p.StageLoc = setID, deviceID, stageID
	}
}

// silent reports whether the tap of a rack receives nothing in a window.
func (f *maker) silent(rack, window, windows int) bool {
	return f.racks > 4 && (rack == f.racks-2 || rack == f.racks/2 && window >= windows/2)
}

func (f *maker) window(w, windows int) {
	start := Start.Add(time.Duration(w) * time.Second).UnixNano()
	burst := math.Max(0, math.Sin(2*math.Pi*float64(w)/10))
	for src := range f.racks {
		for dst := range f.racks {
			if src == dst || f.silent(dst, w, windows) || (src*5+dst*3)%17 == 0 {
				continue
			}
			load := 0.15 + 0.2*f.random.Float64()
			if dst == (src+1)%f.racks || src == (dst+1)%f.racks {
				load += 0.75 * burst
			}
			if dst == f.racks/4 && w > windows/3 {
				load += 0.5 + 0.3*f.random.Float64()
			}
			if src == f.racks/3 {
				load += 0.35 * f.random.Float64()
			}
			f.cell(start, src, dst, min(load, 0.99))
		}
	}
}

// cell spreads a cell's observations over its paths' tightest ports.
func (f *maker) cell(start int64, src, dst int, load float64) {
	count := uint64(20 + f.random.IntN(400))
	if (src+2*dst)%23 == 0 {
		count = 4
	}
	kind := decode.Tag
	if dst%8 == 5 {
		kind = decode.Reflection
	}
	for i := range 3 {
		spine := (src + dst*i) % spines
		port := fmt.Sprintf("leaf%d:up%d", src+1, spine+1)
		if dst == f.racks/4 || i == 1 {
			port = fmt.Sprintf("spine%d:down%d", spine+1, dst+1)
		}
		if i == 2 && src%3 == 0 {
			port = fmt.Sprintf("uplinks of leaf%d", src+1)
		}
		n := count >> i
		share := min(0.99, load*(0.9+0.2*f.random.Float64()))
		f.row(start, rackID(src), rackID(dst), kind, f.ports[port], n, share)
	}
}

// row adds one location's observations at a link load of share, for three signals.
func (f *maker) row(start int64, src, dst aggregate.GroupID, kind decode.Kind, at aggregate.LocationID, n uint64, share float64) {
	delay := 800 + 60e3*math.Pow(share, 6)
	free := 1 - share
	var heavy uint64
	if share > 0.6 {
		heavy = uint64(float64(n) * min(1, (share-0.6)*2.6))
	}
	var trimmed uint64
	if share > 0.9 {
		trimmed = n / 20
	}
	add := func(s csig.Signal, value float64) {
		stored := func(v float64) uint64 { return uint64(math.Round(v / s.Unit().PerStored())) }
		valued := n - trimmed
		f.memory.Rows = append(f.memory.Rows, Row{Window: start, Signal: s, Kind: kind, Src: src, Dst: dst, Location: at, Sums: aggregate.Sums{
			Observations: n, Samples: valued, Measured: valued, Sum: stored(value) * valued, Min: stored(value * 0.7), Max: stored(value * 1.3),
			Trimmed: trimmed, Heavy: min(heavy, valued), HeavySum: stored(value) * min(heavy, valued),
		}})
	}
	add(csig.MinABW, free*portSpeed)
	add(csig.MinABWRatio, free)
	add(csig.MaxDelay, delay)
}

// Flows makes n flows in m's first second, of max_delay; the last one is the sum of all others.
func Flows(m *Memory, n int) (list []Flow) {
	for i := range n {
		f := Flow{Window: Start, Signal: csig.MaxDelay}
		cell := m.Rows[i%len(m.Rows)]
		f.SrcGroup, f.DstGroup, f.Kind, f.Location = cell.Src, cell.Dst, decode.Tag, cell.Location
		f.Observations, f.Bytes, f.Heavy, f.LocationHeavy, f.Windows = uint64(2*n), uint64(2*n*1500), uint64(n-i), uint64((n-i)/2), 1
		f.Mean, f.Min, f.Max = 20_000, 10_000, 30_000+float64(i)
		if i < n-1 || n == 1 {
			f.Src, f.Dst = netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), netip.AddrFrom4([4]byte{10, 0, 2, byte(i / 256)})
			f.SrcPort, f.DstPort, f.Proto = uint16(1000+i), 4791, 17
		}
		list = append(list, f)
	}
	return list
}

// Findings makes n findings in m's first second.
func Findings(m *Memory, n int) (list []query.FindingRow) {
	severities, kinds := []string{"error", "warning", "info"}, []finding.Kind{finding.RogueInsertion, finding.ScrubFailure}
	for i := range n {
		place := m.LocationRows[i%len(m.LocationRows)]
		list = append(list, query.FindingRow{
			Kind: kinds[i%2].String(), ID: 1<<60 + uint64(i), Severity: severities[i*3/n],
			From: Start.UnixNano(), To: Start.Add(time.Duration(i+1) * time.Millisecond).UnixNano(), Count: uint64(i + 1),
			Device: place.Device, Port: "up1", Location: place.ID, Evidence: fmt.Sprintf("S=%d 'then' 4", i), Packets: []uint64{9, 1 << 60},
		})
	}
	return list
}
