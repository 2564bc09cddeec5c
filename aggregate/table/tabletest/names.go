package tabletest

import (
	"context"
	"fmt"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// Names are the groups and locations in blocks: rack1 to rackN in two pods, and the ports of leaf1
// and leaf2.
type Names struct{ Racks int }

// Groups lists the racks and pods.
func (n Names) Groups(context.Context) (list []fabric.Group, err error) {
	for i := range n.Racks {
		list = append(list, fabric.Group{
			ID: aggregate.GroupID(FirstGroup + i), Name: fmt.Sprintf("rack%d", i+1), Level: "rack", Parent: fmt.Sprintf("pod%d", 1+i%2), Order: i,
		})
	}
	for i := range 2 {
		list = append(list, fabric.Group{ID: aggregate.GroupID(2<<60 + i), Name: fmt.Sprintf("pod%d", 1+i), Level: "pod", Order: n.Racks + i})
	}
	return list, nil
}

// Locations lists the ports and their devices.
func (n Names) Locations(context.Context) (list []fabric.Location, err error) {
	for i := range 2 {
		id := aggregate.LocationID(4<<60 + i)
		list = append(list, fabric.Location{
			ID: id, Name: fmt.Sprintf("leaf%d", i+1), Kind: fabric.KindSet, Device: fmt.Sprintf("leaf%d", i+1), Stage: "leaf",
			Set: id, DeviceLoc: id, StageLoc: id,
		})
	}
	for i := range Locations {
		device := list[i%2]
		id := aggregate.LocationID(FirstLocation + i)
		list = append(list, fabric.Location{
			ID: id, Name: fmt.Sprintf("%s:up%d", device.Name, i+1), Kind: fabric.KindPort, Device: device.Name, Stage: "leaf",
			Orientation: "up", Capacity: 100_000_000, Candidates: []string{fmt.Sprintf("%s:up%d", device.Name, i+1)}, CandidateCount: 1,
			Set: device.ID, DeviceLoc: device.ID, StageLoc: device.ID,
		})
	}
	return list, nil
}
