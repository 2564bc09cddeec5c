package fabric

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestOutline: pods, links and oversubscription of a fabric of three stages.
func TestOutline(t *testing.T) {
	_, f := load(t, "threetier.yaml")
	o := f.Outline("dc")
	var pods []string
	for _, p := range o.Pods {
		names := ""
		for _, d := range p.Devices {
			names += " " + d.Name
		}
		pods = append(pods, p.Name+":"+names)
	}
	want := []string{"pod1: leaf11 leaf12 agg11 agg12", "pod2: leaf21 leaf22 agg21 agg22", ": core11 core12 core21 core22"}
	if strings.Join(pods, "\n") != strings.Join(want, "\n") {
		t.Errorf("pods %q, expected %q", pods, want)
	}
	var b bytes.Buffer
	if err := o.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"dc\npod1\n  leaf\n    leaf11\n      up     up1 .. up2 (2)  100G  to agg11 .. agg12 (2)\n      down   down1 .. down2 (2)  25G  to h11 .. dual (2)\n",
		"8 links of 100G between leaf and agg\n",
		"leaf: 4 devices, ",
		"agg: 4 devices, 16 ports, 800 Gbit/s down, 3.2 Tbit/s up, oversubscription 0.25:1\n",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in\n%s", line, b.String())
		}
	}
}

// TestOutlineWorst: the most oversubscribed device of a stage is named; links of two speeds and
// side links are counted separately, each once.
func TestOutlineWorst(t *testing.T) {
	text := `version: 1
devices:
- name: leaf1
  stage: leaf
  ports:
  - {name: u, orientation: up, peer: spine1, speed: 100Gbps}
  - {name: s, orientation: side, peer: leaf2, speed: 40Gbps}
  - {name: d, orientation: down, speed: 200Gbps}
- name: leaf2
  stage: leaf
  ports:
  - {name: u, orientation: up, peer: spine1, speed: 50Gbps}
  - {name: s, orientation: side, peer: leaf1, speed: 40Gbps}
  - {name: d, orientation: down, speed: 400Gbps}
- name: spine1
  stage: spine
  ports:
  - {name: d1, orientation: down, peer: leaf1, speed: 100Gbps}
  - {name: d2, orientation: down, peer: leaf2, speed: 50Gbps}
`
	s, err := Parse(strings.NewReader(text), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o := compile(t, s).Outline("")
	if got, want := fmt.Sprint(o.Links), "[{[leaf leaf] 40000000000 1} {[leaf spine] 50000000000 1} {[leaf spine] 100000000000 1}]"; got != want {
		t.Errorf("links %s, expected %s", got, want)
	}
	if l := o.Stages[0]; l.Stage != "leaf" || l.Oversubscription != 4 || l.Worst != "leaf2" || l.WorstRatio != 8 {
		t.Errorf("stage %+v, expected 4:1, and leaf2 8:1", l)
	}
}
