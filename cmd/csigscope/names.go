package main

import (
	"fmt"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// names looks identities up in a fabric, as it is when newNames is called.
type names struct {
	*fabric.Fabric
	groups map[aggregate.GroupID]string
}

func newNames(f *fabric.Fabric) names {
	n := names{f, map[aggregate.GroupID]string{}}
	for _, g := range f.Groups() {
		n.groups[g.ID] = g.Name
	}
	return n
}

// GroupName implements replay.Names.
func (n names) GroupName(id aggregate.GroupID) string {
	if name, ok := n.groups[id]; ok {
		return name
	}
	return fmt.Sprintf("group %016x", uint64(id))
}
