package emitter

import "testing"

func TestScenariosTakeOtherSizes(t *testing.T) {
	long(t)
	sizes := []struct{ leaves, spines, hosts int }{{0, 0, 0}, {8, 0, 8}, {3, 2, 2}, {32, 8, 1}}
	for _, name := range Names() {
		original, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range sizes {
			s := original.WithSize(size.leaves, size.spines, size.hosts)
			s.Packets = 500
			if r, _ := run(t, s); r.Captured != 500 {
				t.Errorf("%s on %+v: captured %d packets of 500", name, size, r.Captured)
			}
		}
	}
}

func TestSizeMovesRacksInProportion(t *testing.T) {
	s, err := Named("demo")
	if err != nil {
		t.Fatal(err)
	}
	small := s.WithSize(8, 0, 1)
	if len(small.RackUplinkSpeed) != 1 || small.RackUplinkSpeed[3] == 0 {
		t.Errorf("slow racks %v, want rack 3", small.RackUplinkSpeed)
	}
	if target := small.Workloads[1].Target; target != (Host{Rack: 7, Host: 1}) {
		t.Errorf("target %+v, want the only host of rack 7", target)
	}
	if n := len(small.Workloads[0].Racks); n != 6 {
		t.Errorf("the job runs on %d racks, want 6", n)
	}
	if len(s.Workloads[0].Racks) != 12 || s.RackUplinkSpeed[5] == 0 {
		t.Error("the original changed")
	}
}
