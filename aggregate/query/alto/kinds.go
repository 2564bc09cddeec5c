package alto

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The cost modes (RFC 7285, section 6.1.2): costs as they are, or their order alone.
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

// kinds are all that are served.
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

// costType is what answers say of the kind; the directory adds a description.
func (k kind) costType() costType {
	t := costType{Mode: k.mode, Metric: k.name}
	if k.name != "routingcost" {
		t.Context = &costContext{"estimation"}
	}
	return t
}

// describe is the kind for people.
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

// costsOf are the latest costs in the kind's mode.
func (s *server) costsOf(k kind) map[pair]float64 {
	if k.mode == ordinal {
		return s.latest(k.metric).ranks()
	}
	return s.latest(k.metric).of
}

// rank gives each pair the place of its cost among those of the whole map, from 1 for what is
// to be preferred. Equal costs share a place, and no place is left out.
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
