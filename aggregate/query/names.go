package query

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// axes are the groups of both matrix axes.
type axes struct {
	groups []Group
	index  map[aggregate.GroupID]int
}

// newAxes takes every group with data, and the silent ones of the same levels: a rack with a dead
// tap must stay visible as a row without data.
func newAxes(rows []fabric.Group, raw []rawSignal, limit int) *axes {
	seen := map[aggregate.GroupID]bool{}
	for _, s := range raw {
		for _, c := range s.totals[0] {
			seen[c.Src], seen[c.Dst] = true, true
		}
	}
	byID := make(map[aggregate.GroupID]fabric.Group, len(rows))
	for _, g := range rows {
		byID[g.ID] = g
	}
	levels := levelsShown(rows, byID, seen)
	var chosen []fabric.Group
	for id := range seen {
		g, ok := byID[id]
		if !ok {
			g = fabric.Group{ID: id, Name: id.Placeholder()}
		}
		chosen = append(chosen, g)
	}
	for _, g := range slices.SortedFunc(slices.Values(rows), compareGroups) {
		if len(chosen) < limit && !seen[g.ID] && levels[g.Level] && g.ID > aggregate.OverflowGroup {
			chosen = append(chosen, g)
		}
	}
	slices.SortFunc(chosen, compareGroups)
	a := &axes{groups: make([]Group, 0, len(chosen)), index: make(map[aggregate.GroupID]int, len(chosen))}
	for i, g := range chosen {
		a.index[g.ID] = i
		a.groups = append(a.groups, Group{ID: ID(g.ID), Name: g.Name, Level: g.Level, Parent: g.Parent, Order: g.Order})
	}
	return a
}

// levelsShown returns the levels of groups with data or, without any data, those of the groups
// that have no parts.
func levelsShown(rows []fabric.Group, byID map[aggregate.GroupID]fabric.Group, seen map[aggregate.GroupID]bool) map[string]bool {
	levels := map[string]bool{}
	for id := range seen {
		if id > aggregate.OverflowGroup {
			levels[byID[id].Level] = true
		}
	}
	if len(levels) > 0 {
		return levels
	}
	parents := map[string]bool{}
	for _, g := range rows {
		parents[g.Parent] = true
	}
	for _, g := range rows {
		if !parents[g.Name] {
			levels[g.Level] = true
		}
	}
	return levels
}

// compareGroups keeps the reserved groups at the end of the axes.
func compareGroups(a, b fabric.Group) int {
	reserved := func(g fabric.Group) int {
		if g.ID <= aggregate.OverflowGroup {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(reserved(a), reserved(b)), cmp.Compare(a.Order, b.Order),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}

// locationIndex are the locations in a bundle.
type locationIndex struct {
	list []Location
	at   map[aggregate.LocationID]int
}

// newLocationIndex takes the locations that rows name, with their ancestors, and all others up to
// the limit: a map also shows unnamed ports, and the next window may name any.
func newLocationIndex(rows []fabric.Location, raw []rawSignal, limit int) *locationIndex {
	byID := make(map[aggregate.LocationID]fabric.Location, len(rows))
	for _, l := range rows {
		byID[l.ID] = l
	}
	chosen := map[aggregate.LocationID]fabric.Location{}
	var choose func(aggregate.LocationID)
	choose = func(id aggregate.LocationID) {
		if _, done := chosen[id]; done || id == aggregate.NoLocation {
			return
		}
		l, ok := byID[id]
		if !ok {
			l = unnamedLocation(id)
		}
		chosen[id] = l
		choose(l.Set)
		choose(l.DeviceLoc)
		choose(l.StageLoc)
		choose(l.FarEnd)
	}
	for _, s := range raw {
		s.visit(choose)
	}
	if len(rows) <= limit {
		for _, l := range rows {
			choose(l.ID)
		}
	}
	sorted := make([]fabric.Location, 0, len(chosen))
	for _, l := range chosen {
		sorted = append(sorted, l)
	}
	slices.SortFunc(sorted, func(a, b fabric.Location) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return index(sorted)
}

func index(sorted []fabric.Location) *locationIndex {
	p := &locationIndex{list: make([]Location, 0, len(sorted)), at: make(map[aggregate.LocationID]int, len(sorted))}
	for i, l := range sorted {
		p.at[l.ID] = i
	}
	for i, l := range sorted {
		p.list = append(p.list, Location{
			ID: ID(l.ID), Name: l.Name, Kind: l.Kind, Device: l.Device, Stage: l.Stage, Orientation: l.Orientation,
			CapacityBPS: l.Capacity * 1000, Candidates: l.Candidates, CandidateCount: l.CandidateCount, Color: Color(l),
			Set: p.ancestor(l.Set, i), DeviceIndex: p.ancestor(l.DeviceLoc, i), StageIndex: p.ancestor(l.StageLoc, i),
			FarEndIndex: p.ancestor(l.FarEnd, i),
		})
	}
	return p
}

func (p *locationIndex) ancestor(id aggregate.LocationID, self int) int {
	if i, ok := p.at[id]; ok {
		return i
	}
	return self
}

// index is -1 for no location.
func (p *locationIndex) index(id aggregate.LocationID) int {
	if i, ok := p.at[id]; ok {
		return i
	}
	return -1
}

func unnamedLocation(id aggregate.LocationID) fabric.Location {
	l := fabric.Location{ID: id, Name: id.Placeholder(), Kind: "unknown"}
	if id == aggregate.OverflowLocation {
		l.Kind = "overflow"
	}
	return l
}

// overflowColor is gray: the row stands for no location in the network.
const overflowColor = "#8a8f98"

// goldenTurn spaces consecutive numbers as far apart on a circle as is possible without knowing
// how many there will be.
const goldenTurn = 0.6180339887498949

// Color is the color of a location as #rrggbb. It is a function of the names only, so that a
// location looks the same in every window, report and run. The hue comes from the device, with
// numbered devices of one family far apart; ports of a device share its hue and differ in
// lightness; the stage shifts chroma.
func Color(l fabric.Location) string {
	if l.ID == aggregate.OverflowLocation {
		return overflowColor
	}
	device, port := l.Device, strings.TrimPrefix(l.Name, l.Device)
	if device == "" {
		device, port = l.Name, ""
	}
	family, number := splitNumber(device)
	hue := turn(unit(family) + float64(number)*goldenTurn)
	portFamily, portNumber := splitNumber(port)
	shade := turn(unit(portFamily) + float64(portNumber)*goldenTurn)
	chroma := 0.12 + 0.05*unit(l.Stage)
	return OKLCH(0.55+0.24*shade, chroma, hue)
}

// splitNumber cuts the digits off the end of a name.
func splitNumber(name string) (family string, number int) {
	end := len(strings.TrimRight(name, "0123456789"))
	number, err := strconv.Atoi(name[end:])
	if err != nil {
		return name, 0
	}
	return name[:end], number
}

// unit maps a text to [0, 1).
func unit(s string) float64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	// The last bytes of short texts hardly reach FNV's upper bits.
	x := h.Sum64()
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	return float64(x>>11) / (1 << 53)
}

func turn(x float64) float64 { return x - math.Floor(x) }

// OKLCH converts lightness 0..1, chroma and hue (in turns) of the OKLCH space to sRGB. Colors
// outside sRGB lose chroma rather than change hue.
func OKLCH(lightness, chroma, hue float64) string {
	sin, cos := math.Sincos(2 * math.Pi * hue)
	for ; chroma > 0; chroma -= 0.005 {
		if rgb, ok := oklabToRGB(lightness, chroma*cos, chroma*sin); ok {
			return fmt.Sprintf("#%02x%02x%02x", rgb[0], rgb[1], rgb[2])
		}
	}
	rgb, _ := oklabToRGB(lightness, 0, 0)
	return fmt.Sprintf("#%02x%02x%02x", rgb[0], rgb[1], rgb[2])
}

func oklabToRGB(lightness, a, b float64) (rgb [3]uint8, inGamut bool) {
	l := cube(lightness + 0.3963377774*a + 0.2158037573*b)
	m := cube(lightness - 0.1055613458*a - 0.0638541728*b)
	s := cube(lightness - 0.0894841775*a - 1.2914855480*b)
	linear := [3]float64{
		4.0767416621*l - 3.3077115913*m + 0.2309699292*s,
		-1.2684380046*l + 2.6097574011*m - 0.3413193965*s,
		-0.0041960863*l - 0.7034186147*m + 1.7076147010*s,
	}
	inGamut = true
	for i, v := range linear {
		if v < -1e-4 || v > 1+1e-4 {
			inGamut = false
		}
		v = min(max(v, 0), 1)
		if v <= 0.0031308 {
			v *= 12.92
		} else {
			v = 1.055*math.Pow(v, 1/2.4) - 0.055
		}
		rgb[i] = uint8(math.Round(255 * v))
	}
	return rgb, inGamut
}

func cube(x float64) float64 { return x * x * x }
