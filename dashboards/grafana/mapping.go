package grafana

import (
	"cmp"
	"slices"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
)

// maxMappings bounds the locations with a colour of their own: each is in the JSON of
// every panel that names locations. Those beyond look alike.
const maxMappings = 1000

// Colours of states, and of locations without a colour.
const (
	clearColor   = "#1e4d2b"
	fewColor     = "#48525f"
	noDataColor  = "#1b1f26"
	unknownColor = "#8a8f98"
)

// mappings give locations the colours that they have on the page, and states theirs.
func mappings(locations []fabric.Location) []object {
	options := object{}
	add := func(value, color string) {
		if _, known := options[value]; !known {
			options[value] = object{"text": value, "color": color, "index": len(options)}
		}
	}
	add("clear", clearColor)
	add("too few", fewColor)
	add("no data", noDataColor)
	add("congested", unknownColor)
	sorted := slices.Clone(locations)
	slices.SortStableFunc(sorted, func(a, b fabric.Location) int {
		return cmp.Or(cmp.Compare(coarseness(&a), coarseness(&b)), cmp.Compare(a.Name, b.Name))
	})
	for i := range sorted[:min(len(sorted), maxMappings)] {
		add(sorted[i].Name, query.Color(sorted[i]))
	}
	return []object{{"type": "value", "options": options}}
}

// coarseness puts stages first and ports last.
func coarseness(l *fabric.Location) int {
	switch l.ID {
	case l.StageLoc:
		return 0
	case l.DeviceLoc:
		return 1
	case l.Set:
		return 2
	}
	return 3
}
